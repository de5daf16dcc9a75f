from collections.abc import Callable
from contextlib import AbstractContextManager
from os import PathLike
from typing import Any, Literal, Optional, Union, overload

from torch import Tensor, device as Device
from typing_extensions import TypedDict, Unpack

__version__: str

class AttuneError(RuntimeError):
    status: int
    def __init__(self, status: int, text: str) -> None: ...

class _Terms(TypedDict, total=False):
    sinks: Optional[Tensor]
    seqused_q: Optional[Tensor]
    seqused_kv: Optional[Tensor]
    alibi_slopes: Optional[Tensor]
    bias: Optional[Tensor]
    attention_mask: Optional[Tensor]
    cu_seqlens_q: Optional[Tensor]
    cu_seqlens_kv: Optional[Tensor]
    dropout_state: Optional[Tensor]

class _Options(_Terms, total=False):
    causal: bool
    scale: Optional[float]
    layout: Literal["bhsd", "bshd"]
    top_left: bool
    window: Optional[tuple[Optional[int], Optional[int]]]
    invariant: bool
    softcap: float
    dropout_p: float

class _DeterministicOptions(_Options, total=False):
    deterministic: Optional[bool]

class _BackwardOptions(_DeterministicOptions, total=False):
    bias_gradient: bool

@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, *, return_lse: Literal[False] = ..., out: Optional[Tensor] = ..., **options: Unpack[_DeterministicOptions]
) -> Tensor: ...
@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, *, return_lse: Literal[True], out: Optional[Tensor] = ..., **options: Unpack[_DeterministicOptions]
) -> tuple[Tensor, Tensor]: ...
def backward(
    grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *, grad_lse: Optional[Tensor] = ...,
    grads: Optional[tuple[Tensor, ...]] = ..., **options: Unpack[_BackwardOptions]
) -> tuple[Tensor, ...]: ...
def unsupported(q: Tensor, k: Tensor, v: Tensor, **options: Unpack[_DeterministicOptions]) -> Optional[str]: ...

class _PreparedPass:
    config: str
    origin: str
    detail: str
    tune_command: str

class Prepared(_PreparedPass):
    @overload
    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, *, out: Optional[Tensor] = ..., return_lse: Literal[False] = ..., **terms: Unpack[_Terms]
    ) -> Tensor: ...
    @overload
    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, *, out: Optional[Tensor] = ..., return_lse: Literal[True], **terms: Unpack[_Terms]
    ) -> tuple[Tensor, Tensor]: ...

class PreparedBackward(_PreparedPass):
    def __call__(
        self, grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *, grad_lse: Optional[Tensor] = ...,
        grads: Optional[tuple[Tensor, ...]] = ..., **terms: Unpack[_Terms]
    ) -> tuple[Tensor, ...]: ...

def prepare(q: Tensor, k: Tensor, v: Tensor, *, config: Optional[str] = ..., **options: Unpack[_Options]) -> Prepared: ...
def prepare_backward(
    q: Tensor, k: Tensor, v: Tensor, *, config: Optional[str] = ..., **options: Unpack[_BackwardOptions]
) -> PreparedBackward: ...
def new_dropout_state(device: Optional[Union[Device, str, int]] = ...) -> Tensor: ...
def dropout_mask(dropout_p: float, dropout_state: Tensor, shape: tuple[int, int, int, int]) -> Tensor: ...
def enable_sdpa() -> AbstractContextManager[Any]: ...
def disable_sdpa() -> None: ...
def provide_flash_attn() -> None: ...
def load_pack(path: Union[str, PathLike[str]]) -> None: ...
def digest(device: Optional[Union[Device, str, int]] = ...) -> str: ...
def set_log_callback(callback: Optional[Callable[[str, str], object]], level: Literal["debug", "info", "warning"] = ...) -> None: ...
def version() -> str: ...

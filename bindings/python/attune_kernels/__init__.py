"""Attention by kernels that are generated and tuned for the GPU at hand. Torch tensors go in by pointer, on the current stream.

    import attune_kernels as attune
    o = attune.attention(q, k, v, causal=True)                       # (batch, heads, seq, head_dim)
    o, lse = attune.attention(q, k, v, layout="bshd", return_lse=True)

    attune.enable_sdpa()                                             # for torch.nn.functional.scaled_dot_product_attention
    attune.provide_flash_attn()                                      # for programs that import flash_attn

Gradients flow to q, k and v. torch.autocast casts them as it does those of PyTorch's own attention. Under torch.compile and torch.export a
call is one operator of the graph, torch.ops.attune_kernels.forward. libattune.so is taken from $ATTUNE_LIBRARY, else from the folders that a
build leaves it in, else from the loader's path.

Arrays of other libraries go in by attune_kernels.dlpack and attune_kernels.jax, which need no PyTorch. Where PyTorch is not installed, the
functions that take its tensors say so when they are asked for.

What the library says beside its answers (a database that is damaged, a cache that cannot be used) goes to the logger "attune" of Python's
logging, unless set_log_callback() names another place.
"""

import os

from . import _library
from ._library import AttuneError, set_log_callback

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
else:
    from ._attention import Prepared, PreparedBackward, attention, backward, digest, prepare, prepare_backward, unsupported
    from ._dropout import dropout_mask, new_dropout_state
    from ._provide import provide_flash_attn
    from ._sdpa import disable_sdpa, enable_sdpa

__all__ = ["AttuneError", "Prepared", "PreparedBackward", "attention", "backward", "digest", "disable_sdpa", "dropout_mask", "enable_sdpa",
           "load_pack", "new_dropout_state", "prepare", "prepare_backward", "provide_flash_attn", "set_log_callback",
           "unsupported", "version"]


def __getattr__(name):
    if name == "__version__":  # of the library, which is opened when it is asked for
        return version()
    if name in __all__:  # what was not imported above
        raise ModuleNotFoundError(f"attune_kernels.{name} needs PyTorch 2.4 or newer: pip install torch; without it arrays go in by "
                                  "attune_kernels.dlpack or attune_kernels.jax", name="torch")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def version():
    """The version of libattune."""
    return _library.load().attune_version().decode()


def load_pack(path):
    """Serves calls of this process from a pack that `attune pack` made: without NVRTC, on every GPU of the model that it is for.

    Call it before the first call: what is prepared already stays. Several packs may be loaded; the first one that has a problem answers,
    those of $ATTUNE_PACK before all others. Raises AttuneError, which says what to do, for a file that is missing, damaged, no pack, or
    made by another version; so do calls on a GPU that no loaded pack is for.
    """
    library = _library.load()
    _library.check(library.attune_load_pack(os.fsencode(path)))

"""Attention by kernels that are generated and tuned for the GPU at hand. Torch tensors go in by pointer, on the current stream.

    import attune
    o = attune.attention(q, k, v, causal=True)                       # (batch, heads, seq, head_dim)
    o, lse = attune.attention(q, k, v, layout="bshd", return_lse=True)

Forward only. libattune.so is taken from $ATTUNE_LIBRARY, else from the folders that a build leaves it in, else from the loader's path.
"""

import ctypes

import torch

from . import _library
from ._library import AttuneError

__all__ = ["AttuneError", "Prepared", "attention", "prepare", "version"]

_DTYPES = {torch.float16: _library.FP16, torch.bfloat16: _library.BF16}
_LAYOUTS = {"bhsd": _library.LAYOUT_BHSD, "bshd": _library.LAYOUT_BSHD}


def version():
    """The version of libattune."""
    return _library.load().attune_version().decode()


def attention(q, k, v, *, causal=False, scale=None, layout="bhsd", top_left=False, return_lse=False, out=None):
    """softmax(scale * q k^T + mask) v.

    q, out: (batch, heads, seq, head_dim) or, with layout="bshd", (batch, seq, heads, head_dim); k, v: the same with their own heads (a
    divisor of q's) and length. float16 or bfloat16 on one CUDA device; any strides, the last dimension contiguous.
    causal: a query attends to keys up to its own position, the last query to all of them; with top_left, the first query to one key, as
    PyTorch's is_causal has it (the same where lengths are equal). scale: 1/sqrt(head_dim) if None.
    Returns out, or (out, lse): lse is (batch, heads, seq) float32, natural logarithm, -inf where a query attends to nothing.
    Runs on the device's current stream. Raises ValueError, TypeError or AttuneError.
    """
    call = _Call(q, k, v, causal, scale, layout, top_left)
    out, lse = call.outputs(out, return_lse)
    tensors = call.tensors(out, lse)
    workspace = call.workspace()
    _library.check(
        call.library.attune_forward(call.problem, tensors, _pointer(workspace), _bytes(workspace), call.stream())
    )
    return (out, lse) if return_lse else out


def prepare(q, k, v, *, causal=False, scale=None, layout="bhsd", top_left=False, config=None):
    """Compiles for tensors like these ahead of the first call, which a capture into a CUDA graph needs.

    config: the text of one, such as "sm80 q128 kv64 w4 st2", instead of the one that attention() would pick.
    """
    return Prepared(_Call(q, k, v, causal, scale, layout, top_left), config)


class Prepared:
    """A compiled kernel. Calling it launches it, on tensors that differ from the prepared ones at most in batch, heads and lengths."""

    def __init__(self, call, config):
        self._library = call.library
        self._handle = ctypes.c_void_p()
        self._options = call.options
        text = None if config is None else config.encode()
        _library.check(self._library.attune_prepare(call.problem, text, ctypes.byref(self._handle)))
        if config is None:
            self.config, self.origin, self.detail, self.tune_command = _describe(call)
        else:
            self.config, self.origin, self.detail, self.tune_command = config, "given", "", ""

    def __call__(self, q, k, v, *, out=None, return_lse=False):
        call = _Call(q, k, v, *self._options)
        out, lse = call.outputs(out, return_lse)
        tensors = call.tensors(out, lse)
        workspace = call.workspace()
        _library.check(
            self._library.attune_launch(
                self._handle, call.problem, tensors, _pointer(workspace), _bytes(workspace), call.stream()
            )
        )
        return (out, lse) if return_lse else out

    def __del__(self):
        if getattr(self, "_handle", None):
            self._library.attune_release(self._handle)


def _describe(call):
    needed = ctypes.c_size_t()
    _library.check(call.library.attune_describe(call.problem, None, 0, ctypes.byref(needed)))
    text = ctypes.create_string_buffer(needed.value)
    _library.check(call.library.attune_describe(call.problem, text, needed, None))
    config, origin, detail, tune_command = text.value.decode().split("\n")
    return config, origin, detail, tune_command


class _Call:
    """Arguments that were checked, as the C interface takes them."""

    def __init__(self, q, k, v, causal, scale, layout, top_left):
        self.options = (causal, scale, layout, top_left)
        if layout not in _LAYOUTS:
            raise ValueError(f"layout is {layout!r}: it must be 'bhsd' or 'bshd'")
        if top_left and not causal:
            raise ValueError("top_left says where the diagonal of a causal mask begins: it needs causal=True")
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            _check_tensor(name, tensor, q)
        self.q, self.k, self.v = q, k, v
        self.seq_axis, self.head_axis = (2, 1) if layout == "bhsd" else (1, 2)
        batch, head_dim = q.shape[0], q.shape[3]
        if k.shape != v.shape:
            raise ValueError(f"k has shape {tuple(k.shape)} and v {tuple(v.shape)}: they must be equal")
        if k.shape[0] != batch or k.shape[3] != head_dim:
            raise ValueError(f"q has shape {tuple(q.shape)} and k {tuple(k.shape)}: batch and head_dim must be equal")
        if scale is not None and not scale > 0:
            raise ValueError(f"scale is {scale}: it must be positive and finite")
        self.library = _library.load()
        self.problem = _library.Problem(
            struct_size=ctypes.sizeof(_library.Problem),
            dtype=_DTYPES[q.dtype],
            batch=batch,
            heads_q=q.shape[self.head_axis],
            heads_kv=k.shape[self.head_axis],
            seq_q=q.shape[self.seq_axis],
            seq_kv=k.shape[self.seq_axis],
            head_dim=head_dim,
            mask=_mask(causal, top_left),
            softmax_scale=0.0 if scale is None else scale,
            layout=_LAYOUTS[layout],
            device=q.device.index + 1,
            alignment=16 if all(_is_aligned(t) for t in (q, k, v)) else 2,
        )

    def outputs(self, out, return_lse):
        q = self.q
        if out is None:
            out = torch.empty_like(q)  # keeps the strides of a dense q
            if out.stride(3) != 1:
                out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        else:
            _check_tensor("out", out, q)
            if out.shape != q.shape:
                raise ValueError(f"out has shape {tuple(out.shape)}: it must have q's, {tuple(q.shape)}")
        lse = None
        if return_lse:
            shape = (q.shape[0], q.shape[self.head_axis], q.shape[self.seq_axis])
            lse = torch.empty(shape, dtype=torch.float32, device=q.device)
        return out, lse

    def tensors(self, out, lse):
        return _library.Tensors(
            struct_size=ctypes.sizeof(_library.Tensors),
            q=self._view(self.q),
            k=self._view(self.k),
            v=self._view(self.v),
            o=self._view(out),
            lse=_pointer(lse),
        )

    def workspace(self):
        needed = ctypes.c_size_t()
        _library.check(self.library.attune_workspace_bytes(self.problem, ctypes.byref(needed)))
        return torch.empty(needed.value, dtype=torch.uint8, device=self.q.device) if needed.value else None

    def stream(self):
        return ctypes.c_void_p(torch.cuda.current_stream(self.q.device).cuda_stream)

    def _view(self, tensor):
        return _library.Tensor(
            tensor.data_ptr(), tensor.stride(0), tensor.stride(self.head_axis), tensor.stride(self.seq_axis)
        )


def _check_tensor(name, tensor, q):
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}: it must be a torch.Tensor")
    if tensor.device.type != "cuda":
        raise ValueError(f"{name} is on {tensor.device}: it must be on a CUDA device")
    if tensor.device != q.device:
        raise ValueError(f"{name} is on {tensor.device} and q on {q.device}: they must be on one device")
    if tensor.dtype not in _DTYPES:
        raise TypeError(f"{name} is {tensor.dtype}: it must be torch.float16 or torch.bfloat16")
    if tensor.dtype != q.dtype:
        raise TypeError(f"{name} is {tensor.dtype} and q {q.dtype}: they must be equal")
    if tensor.dim() != 4:
        raise ValueError(f"{name} has {tensor.dim()} dimensions: it must have 4")
    if tensor.numel() == 0:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}: no dimension may be empty")
    if tensor.stride(3) != 1 and tensor.shape[3] != 1:
        raise ValueError(f"the last dimension of {name} is not contiguous: call {name}.contiguous()")
    if tensor.requires_grad and torch.is_grad_enabled():
        raise NotImplementedError(f"{name} requires a gradient, and there is no backward yet: call under torch.no_grad()")


def _mask(causal, top_left):
    if not causal:
        return _library.MASK_NONE
    return _library.MASK_CAUSAL_TOP_LEFT if top_left else _library.MASK_CAUSAL


def _is_aligned(tensor):
    elements = 16 // tensor.element_size()
    return tensor.data_ptr() % 16 == 0 and all(
        size == 1 or stride % elements == 0 for size, stride in zip(tensor.shape[:3], tensor.stride()[:3])
    )


def _pointer(tensor):
    return None if tensor is None else tensor.data_ptr()


def _bytes(tensor):
    return 0 if tensor is None else tensor.numel()

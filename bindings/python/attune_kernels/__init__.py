"""Attention by kernels that are generated and tuned for the GPU at hand. Torch tensors go in by pointer, on the current stream.

    import attune_kernels as attune
    o = attune.attention(q, k, v, causal=True)                       # (batch, heads, seq, head_dim)
    o, lse = attune.attention(q, k, v, layout="bshd", return_lse=True)

Gradients flow to q, k and v. torch.autocast casts them as it does those of PyTorch's own attention; torch.compile breaks its graph at the
call. libattune.so is taken from $ATTUNE_LIBRARY, else from the folders that a build leaves it in, else from the loader's path.

What the library says beside its answers (a database that is damaged, a cache that cannot be used) goes to the logger "attune" of Python's
logging, unless set_log_callback() names another place.
"""

import ctypes
import functools
import os

import torch
from torch.autograd import forward_ad

from . import _library
from ._library import AttuneError, set_log_callback

__all__ = ["AttuneError", "Prepared", "PreparedBackward", "attention", "backward", "digest", "load_pack", "prepare", "prepare_backward",
           "set_log_callback", "version"]

_DTYPES = {torch.float16: _library.FP16, torch.bfloat16: _library.BF16}
_LAYOUTS = {"bhsd": _library.LAYOUT_BHSD, "bshd": _library.LAYOUT_BSHD}


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


def digest(device=None):
    """32 hexadecimal digits that are equal on processes that pick equally on such a GPU: compare them between ranks once packs are loaded.

    device: what torch.device() takes of type cuda, or an ordinal; the current one if None. docs/packs.md lists what goes in. Raises
    ValueError, AttuneError.
    """
    device = torch.device("cuda", device) if isinstance(device, int) else torch.device("cuda" if device is None else device)
    if device.type != "cuda":
        raise ValueError(f"device is {device}: kernels run on cuda devices")
    ordinal = torch.cuda.current_device() if device.index is None else device.index
    library, text = _library.load(), ctypes.create_string_buffer(64)
    _library.check(library.attune_digest(ordinal + 1, text, ctypes.sizeof(text), None))
    return text.value.decode()


def _outside_graphs(function):
    """torch.compile calls `function` between two graphs and never looks inside: what is there are pointers of real tensors.

    torch.compiler.disable() would load the compiler into every process that imports this module; so it waits for one that compiles."""

    @functools.wraps(function)
    def call(*arguments, **options):
        if torch.compiler.is_compiling():
            from ._uncompiled import run

            return run(function, *arguments, **options)
        return function(*arguments, **options)

    return call


@_outside_graphs
def attention(
    q, k, v, *, causal=False, scale=None, layout="bhsd", top_left=False, window=None, return_lse=False, out=None, deterministic=None
):
    """softmax(scale * q k^T + mask) v, differentiable once with respect to q, k and v.

    q, out: (batch, heads, seq, head_dim) or, with layout="bshd", (batch, seq, heads, head_dim); k, v: the same with their own heads (a
    divisor of q's) and length. float16 or bfloat16 on one CUDA device; any strides, the last dimension contiguous. Under torch.autocast
    they are cast to its dtype first, as by torch.nn.functional.scaled_dot_product_attention, and gradients come in the dtype of the tensor.
    causal: a query attends to keys up to its own position, the last query to all of them; with top_left, the first query to one key, as
    PyTorch's is_causal has it (the same where lengths are equal). window: (left, right), as FlashAttention counts it: of the keys only so
    many on both sides of the diagonal that ends at the last key; None or -1 for all of a side; with causal, none on the right. scale: 1/sqrt(head_dim) if None.
    Returns out, or (out, lse): lse is (batch, heads, seq) float32, natural logarithm, -inf where a query attends to nothing; a loss may
    depend on both. A tensor given as out takes the result; then nothing may require a gradient. Without keys out is 0 and lse -inf; without
    queries, heads or batch both are empty.
    deterministic: gradients have the same bits on each run (out and lse always have), which may be slower; None: if
    torch.are_deterministic_algorithms_enabled() in the backward pass.
    Runs on the device's current stream. Raises ValueError, TypeError or AttuneError, and NotImplementedError under torch.func's transforms
    and forward-mode differentiation.
    """
    q, k, v = _as_autocast_has_them(q, k, v)
    _refuse_transforms(q, k, v)
    options = (causal, scale, layout, top_left, window, deterministic)
    if _needs_grad(q, k, v, out):
        if out is not None:
            raise ValueError("a result in out cannot be differentiated: leave out away, or call under torch.no_grad()")
        out, lse = _Attention.apply(q, k, v, options)
    else:
        out, lse = _Call(q, k, v, options).forward(out, return_lse)
    return (out, lse) if return_lse else out


class _Attention(torch.autograd.Function):
    """attention() of which a gradient is wanted: keeps out and lse, from which backward finds the probabilities again."""

    @staticmethod
    def forward(ctx, q, k, v, options):
        out, lse = _Call(q, k, v, options).forward(None, True)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.set_materialize_grads(False)
        ctx.options = options
        return out, lse

    @staticmethod
    @_outside_graphs
    def backward(ctx, grad_out, grad_lse):
        differentiate = _Gradients.apply if torch.is_grad_enabled() else functools.partial(_Gradients.forward, None)
        grads = differentiate(grad_out, grad_lse, *ctx.saved_tensors, ctx.options)
        return (*(grad if needed else None for grad, needed in zip(grads, ctx.needs_input_grad)), None)


class _Gradients(torch.autograd.Function):
    """The backward pass of attention(), as a function that says why it has no gradient of its own."""

    @staticmethod
    def forward(ctx, grad_out, grad_lse, q, k, v, out, lse, options):
        if grad_out is None:
            grad_out = torch.zeros_like(out)
        elif grad_out.stride(3) != 1:
            grad_out = grad_out.contiguous()
        if grad_lse is not None:
            grad_lse = grad_lse.contiguous()
        return _Call(q, k, v, options, pass_=_library.BACKWARD).backward(grad_out, out, lse, grad_lse, None)

    @staticmethod
    def backward(ctx, *_):
        raise NotImplementedError(
            "attune.attention is differentiable once: its gradients have none of their own. For second derivatives use "
            "torch.nn.functional.scaled_dot_product_attention under torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"
        )


@_outside_graphs
def backward(
    grad_out,
    q,
    k,
    v,
    out,
    lse,
    *,
    grad_lse=None,
    causal=False,
    scale=None,
    layout="bhsd",
    top_left=False,
    window=None,
    grads=None,
    deterministic=None,
):
    """Gradients of a loss with respect to q, k and v, from those with respect to out and lse. attention() needs no such call: autograd
    makes it.

    q, k, v and the options are those of the call of attention() that returned out and lse; nothing is cast here, so that after a call under
    torch.autocast they are what it cast them to. grad_out is like out; grad_lse like lse, or None if the loss does not depend on it. Tensors
    given as grads, like q, k and v, take the result.
    Returns (grad_q, grad_k, grad_v). Runs on the device's current stream. Raises ValueError, TypeError or AttuneError.
    """
    call = _Call(q, k, v, (causal, scale, layout, top_left, window, deterministic), pass_=_library.BACKWARD)
    return call.backward(grad_out, out, lse, grad_lse, grads)


@_outside_graphs
def prepare(q, k, v, *, causal=False, scale=None, layout="bhsd", top_left=False, window=None, config=None):
    """Compiles for tensors like these ahead of the first call, which a capture into a CUDA graph needs. Threads that prepare different
    kernels compile side by side.

    config: the text of one, such as "sm80 q128 kv64 w4 st2", instead of the one that attention() would pick.
    """
    q, k, v = _as_autocast_has_them(q, k, v)
    return Prepared(_Call(q, k, v, (causal, scale, layout, top_left, window, None)), config)


@_outside_graphs
def prepare_backward(
    q, k, v, *, causal=False, scale=None, layout="bhsd", top_left=False, window=None, config=None, deterministic=None
):
    """The same for backward(), which attention() too runs in its backward pass."""
    q, k, v = _as_autocast_has_them(q, k, v)
    options = (causal, scale, layout, top_left, window, deterministic)
    return PreparedBackward(_Call(q, k, v, options, pass_=_library.BACKWARD), config)


class _PreparedPass:
    def __init__(self, call, config):
        if call.is_empty:
            raise ValueError(f"q has shape {tuple(call.q.shape)} and k {tuple(call.k.shape)}: nothing is launched for these, nothing can be "
                             "prepared")
        self._library = call.library
        self._handle = ctypes.c_void_p()
        self._options = call.options
        text = None if config is None else config.encode()
        _library.check(self._library.attune_prepare(call.problem, text, ctypes.byref(self._handle)))
        if config is None:
            self.config, self.origin, self.detail, self.tune_command = _describe(call)
        else:
            self.config, self.origin, self.detail, self.tune_command = config, "given", "", ""

    def __del__(self):
        if getattr(self, "_handle", None):
            self._library.attune_release(self._handle)


class Prepared(_PreparedPass):
    """A compiled kernel. Calling it launches it, on tensors that differ from the prepared ones at most in batch, heads and lengths. Its
    result cannot be differentiated."""

    @_outside_graphs
    def __call__(self, q, k, v, *, out=None, return_lse=False):
        q, k, v = _as_autocast_has_them(q, k, v)
        _refuse_transforms(q, k, v)
        if _needs_grad(q, k, v, out):
            raise ValueError("a prepared call cannot be differentiated: use attention(), or call under torch.no_grad()")
        out, lse = _Call(q, k, v, self._options).forward(out, return_lse, self._handle)
        return (out, lse) if return_lse else out


class PreparedBackward(_PreparedPass):
    """The compiled kernels of a backward pass; called as backward() is, on tensors that differ from the prepared ones at most in batch,
    heads and lengths."""

    @_outside_graphs
    def __call__(self, grad_out, q, k, v, out, lse, *, grad_lse=None, grads=None):
        call = _Call(q, k, v, self._options, pass_=_library.BACKWARD)
        return call.backward(grad_out, out, lse, grad_lse, grads, self._handle)


def _describe(call):
    needed = ctypes.c_size_t()
    _library.check(call.library.attune_describe(call.problem, None, 0, ctypes.byref(needed)))
    text = ctypes.create_string_buffer(needed.value)
    _library.check(call.library.attune_describe(call.problem, text, needed, None))
    config, origin, detail, tune_command = text.value.decode().split("\n")
    return config, origin, detail, tune_command


class _Call:
    """Arguments that were checked, as the C interface takes them."""

    def __init__(self, q, k, v, options, pass_=_library.FORWARD):
        self.options = options
        causal, scale, layout, top_left, window, deterministic = options
        if deterministic is None:
            deterministic = torch.are_deterministic_algorithms_enabled()
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
        rounded = 1 if scale is None else ctypes.c_float(scale).value
        if not 0 < rounded < float("inf"):
            raise ValueError(f"scale is {scale}: it must be positive and finite, also as a float32 (where it is {rounded})")
        self.is_empty = q.numel() == 0 or k.numel() == 0
        if self.is_empty:
            self._check_what_the_library_is_not_asked()
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
            mask=_mask(causal, top_left) if window is None else _library.MASK_WINDOW,
            softmax_scale=0.0 if scale is None else scale,
            layout=_LAYOUTS[layout],
            device=q.device.index + 1,
            pass_=pass_,
            deterministic=bool(deterministic),
        )
        if window is not None:
            self.problem.window_left, self.problem.window_right = _sides(window, causal, top_left)
        self._note_alignment(q, k, v)

    def forward(self, out, return_lse, prepared=None):
        """Launches forward, the prepared one if there is one. Returns out, allocated if it is None, and lse or None."""
        if out is None:
            out = _empty_like(self.q)
        else:
            _check_like("out", out, "q", self.q)
        lse = None
        if return_lse:
            lse = torch.empty(self._lse_shape(), dtype=torch.float32, device=self.q.device)
        if self.is_empty:
            out.zero_()
            if lse is not None:
                lse.fill_(float("-inf"))
            return out, lse
        tensors = self.tensors(out, lse)
        if prepared is None:
            self._launch(self.library.attune_forward, self.problem, tensors)
        else:
            self._launch(self.library.attune_launch, prepared, self.problem, tensors)
        return out, lse

    def backward(self, grad_out, out, lse, grad_lse, grads, prepared=None):
        """Launches backward, the prepared one if there is one. Returns the gradients of q, k and v, allocated if grads is None."""
        _check_like("grad_out", grad_out, "q", self.q)
        _check_like("out", out, "q", self.q)
        self._check_lse("lse", lse)
        if grad_lse is not None:
            self._check_lse("grad_lse", grad_lse)
        if grads is None:
            grads = tuple(_empty_like(tensor) for tensor in (self.q, self.k, self.v))
        else:
            if len(grads) != 3:
                raise ValueError(f"grads has {len(grads)} elements: it must have 3, the gradients of q, k and v")
            _check_like("grads[0]", grads[0], "q", self.q)
            _check_like("grads[1]", grads[1], "k", self.k)
            _check_like("grads[2]", grads[2], "v", self.v)
        if _needs_grad(grad_out, self.q, self.k, self.v, out, lse, grad_lse, *grads):
            raise ValueError("backward() cannot be differentiated: call it under torch.no_grad(), or use attention()")
        if self.is_empty:
            for grad in grads:
                grad.zero_()
            return grads
        tensors, gradients = self.tensors(out, lse), self.gradients(grad_out, grad_lse, grads)
        if prepared is None:
            self._launch(self.library.attune_backward, self.problem, tensors, gradients)
        else:
            self._launch(self.library.attune_launch_backward, prepared, self.problem, tensors, gradients)
        return grads

    def tensors(self, out, lse):
        self._note_alignment(out)
        return _library.Tensors(
            struct_size=ctypes.sizeof(_library.Tensors),
            q=self._view(self.q),
            k=self._view(self.k),
            v=self._view(self.v),
            o=self._view(out),
            lse=_pointer(lse),
        )

    def gradients(self, grad_out, grad_lse, grads):
        self._note_alignment(grad_out, *grads)
        d_q, d_k, d_v = map(self._view, grads)
        return _library.Gradients(
            struct_size=ctypes.sizeof(_library.Gradients),
            d_o=self._view(grad_out),
            d_q=d_q,
            d_k=d_k,
            d_v=d_v,
            d_lse=_pointer(grad_lse),
        )

    def _launch(self, function, *arguments):
        needed = ctypes.c_size_t()
        _library.check(self.library.attune_workspace_bytes(self.problem, ctypes.byref(needed)))
        workspace = torch.empty(needed.value, dtype=torch.uint8, device=self.q.device) if needed.value else None
        stream = ctypes.c_void_p(torch.cuda.current_stream(self.q.device).cuda_stream)
        _library.check(function(*arguments, _pointer(workspace), needed, stream))

    def _check_what_the_library_is_not_asked(self):
        head_dim, heads_q, heads_kv = self.q.shape[3], self.q.shape[self.head_axis], self.k.shape[self.head_axis]
        if head_dim % 8 != 0 or not 8 <= head_dim <= 256:
            raise ValueError(f"q has shape {tuple(self.q.shape)}: head_dim must be a multiple of 8 from 8 to 256")
        if heads_q % heads_kv != 0 if heads_kv else heads_q > 0:
            raise ValueError(f"q has {heads_q} heads and k {heads_kv}: those of k must divide those of q")

    def _note_alignment(self, *tensors):
        aligned = self.problem.alignment != 2 and all(map(_is_aligned, tensors))
        self.problem.alignment = 16 if aligned else 2

    def _lse_shape(self):
        return self.q.shape[0], self.q.shape[self.head_axis], self.q.shape[self.seq_axis]

    def _check_lse(self, name, tensor):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}: it must be a torch.Tensor, as attention(return_lse=True) returns it")
        if tensor.device != self.q.device:
            raise ValueError(f"{name} is on {tensor.device} and q on {self.q.device}: they must be on one device")
        if tensor.dtype != torch.float32:
            raise TypeError(f"{name} is {tensor.dtype}: it must be torch.float32")
        if tuple(tensor.shape) != self._lse_shape():
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}: it must have {self._lse_shape()}, (batch, heads, seq)")
        if not tensor.is_contiguous():
            raise ValueError(f"{name} is not contiguous: call {name}.contiguous()")

    def _view(self, tensor):
        return _library.Tensor(
            tensor.data_ptr(), tensor.stride(0), tensor.stride(self.head_axis), tensor.stride(self.seq_axis)
        )


def _as_autocast_has_them(*tensors):
    """Under torch.autocast what its casts make of the arguments of PyTorch's own attention; gradients go back through the casts."""
    if not torch.is_autocast_enabled("cuda"):
        return tensors
    dtype = torch.get_autocast_dtype("cuda")

    def cast(tensor):
        is_cast = isinstance(tensor, torch.Tensor) and tensor.is_cuda and tensor.is_floating_point() and tensor.dtype != torch.float64
        return tensor.to(dtype) if is_cast else tensor

    return tuple(map(cast, tensors))


def _refuse_transforms(*tensors):
    """Where PyTorch would differentiate or batch without autograd's tape, a kernel would compute something else in silence."""
    if torch._C._are_functorch_transforms_active():
        raise NotImplementedError(
            "attune does not run under the transforms of torch.func (vmap, grad, jvp, ...): call it outside of them. Batches go into the "
            "first dimension, gradients come by autograd: backward() or torch.autograd.grad"
        )
    if forward_ad._current_level >= 0 and any(
        isinstance(tensor, torch.Tensor) and forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors
    ):
        raise NotImplementedError(
            "attune.attention has no forward-mode derivative: use backward() or torch.autograd.grad, or "
            "torch.nn.functional.scaled_dot_product_attention under torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"
        )


def _needs_grad(*tensors):
    return torch.is_grad_enabled() and any(getattr(tensor, "requires_grad", False) for tensor in tensors)


def _empty_like(tensor):
    empty = torch.empty_like(tensor)  # keeps the strides of a dense tensor
    return empty if empty.stride(3) == 1 else torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _check_like(name, tensor, other_name, other):
    _check_tensor(name, tensor, other)
    if tensor.shape != other.shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}: it must have that of {other_name}, {tuple(other.shape)}")


def _check_tensor(name, tensor, q):
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}: it must be a torch.Tensor")
    if tensor.is_nested:
        raise TypeError(f"{name} is a nested tensor: attune takes dense ones. Pad it (torch.nested.to_padded_tensor), or make one call for "
                        "each sequence")
    if tensor.layout != torch.strided:
        raise TypeError(f"{name} has the layout {tensor.layout}: attune takes dense tensors, such as {name}.to_dense()")
    if tensor.device.type != "cuda":
        without_data = ", which holds no data" if tensor.device.type == "meta" else ""
        raise ValueError(f"{name} is on {tensor.device}{without_data}: it must be on a CUDA device")
    if tensor.device != q.device:
        raise ValueError(f"{name} is on {tensor.device} and q on {q.device}: they must be on one device")
    if tensor.dtype not in _DTYPES:
        raise TypeError(f"{name} is {tensor.dtype}: it must be torch.float16 or torch.bfloat16, by {name}.to(...) or under torch.autocast")
    if tensor.dtype != q.dtype:
        raise TypeError(f"{name} is {tensor.dtype} and q {q.dtype}: they must be equal")
    if tensor.dim() != 4:
        raise ValueError(f"{name} has {tensor.dim()} dimensions: it must have 4")
    if tensor.numel() == 0:
        return
    if tensor.stride(3) != 1 and tensor.shape[3] != 1:
        raise ValueError(f"the last dimension of {name} is not contiguous: call {name}.contiguous()")
    if not _has_memory(tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__} without memory of its own: attune runs on real tensors, not on fake or traced "
                        "ones")


def _has_memory(tensor):
    try:
        return tensor.data_ptr() != 0
    except RuntimeError:  # as of a FakeTensor
        return False


def _mask(causal, top_left):
    if not causal:
        return _library.MASK_NONE
    return _library.MASK_CAUSAL_TOP_LEFT if top_left else _library.MASK_CAUSAL


def _sides(window, causal, top_left):
    """Keys on both sides of the diagonal, -1 for all of them."""
    if top_left:
        raise ValueError("a window lies about the diagonal that ends at the last key: leave top_left out")
    sides = tuple(window)
    if len(sides) != 2 or any(side is not None and (isinstance(side, bool) or int(side) != side) for side in sides):
        raise ValueError(f"window is {window!r}: it must be (left, right), numbers of keys, or None for all of a side")
    left, right = (-1 if side is None or side < 0 else int(side) for side in sides)
    return left, 0 if causal else right


def _is_aligned(tensor):
    elements = 16 // tensor.element_size()
    return tensor.data_ptr() % 16 == 0 and all(
        size == 1 or stride % elements == 0 for size, stride in zip(tensor.shape[:3], tensor.stride()[:3])
    )


def _pointer(tensor):
    return None if tensor is None else tensor.data_ptr()

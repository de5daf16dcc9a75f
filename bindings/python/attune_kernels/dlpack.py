"""Attention on arrays of any library that speaks DLPack (CuPy, JAX outside of jax.jit, and others), without PyTorch.

    import cupy
    from attune_kernels import dlpack

    stream = cupy.cuda.get_current_stream().ptr or 1                 # 1: the default stream
    out = dlpack.attention(q, k, v, causal=True, stream=stream, empty=cupy.empty)

Inputs are objects with __dlpack__() and __dlpack_device__() on one CUDA device. Results are written to arrays that the caller gives, or that
`empty` makes: a function of a shape and of a type's name, such as empty((2, 8, 100, 64), "float16"), that returns such an object. Options mean
what they mean in attune_kernels.attention(), whose table they come from. Nothing here is differentiable: backward() gives the gradients.

stream: the number of the CUDA stream that the kernels are put on, as DLPack counts: 1 is the legacy default stream, 2 the default stream of the
thread, and others are handles (a cudaStream_t). Producers make it wait for what they still write. Memory must not be given to others before the
stream has done the work: allocators that are ordered by it, as CuPy's is by the current stream, see to that.
"""

import ctypes
import inspect

from . import _checked, _library
from ._dlpack_arrays import BYTES, Arrays, take
from ._library import AttuneError
from ._options import OPTIONS, TERMS, Options, Terms, terms_of

__all__ = ["AttuneError", "attention", "backward", "workspace_bytes"]


class _Checked(_checked.Checked):
    arrays = Arrays


def _with_options(function):
    """Shows the options and terms, which `function` takes as **options, in its signature."""
    signature = inspect.signature(function)
    given = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    options = [inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=getattr(one, "default", None)) for one in (*OPTIONS, *TERMS)]
    function.__signature__ = signature.replace(parameters=[*given, *options])
    return function


@_with_options
def attention(q, k, v, *, stream, out=None, lse=None, return_lse=False, workspace=None, empty=None, **options):
    """softmax(scale * q k^T + mask) v, on `stream`. Returns out, or (out, lse) with return_lse or where lse is given.

    q, k, v and the options are those of attune_kernels.attention(): (batch, heads, seq, head_dim) of float16 or bfloat16, any strides, the last
    dimension contiguous. Tensors among the options are arrays, too: sinks and alibi_slopes of float32 here, and dropout_state is always given
    with dropout_p. deterministic and invariant are False if None.
    out: an array like q. lse: (batch, heads, seq) of float32. workspace: an array of workspace_bytes() bytes that starts at a multiple of 256, as
    what cudaMalloc returns does. Each of them is what `empty` makes where it is None.
    Raises ValueError, TypeError or AttuneError.
    """
    return_lse = return_lse or lse is not None
    q, k, v = _inputs(stream, q=q, k=k, v=v)
    options, terms = _taken(options, stream)
    is_packed = _is_packed(terms)
    checked = _Checked(*_in_batch_entries(is_packed, q=q, k=k, v=v), options, _library.FORWARD, terms=terms)
    checked.require_state_of_dropout()
    lse_shape = checked.lse_shape[1:] if is_packed else checked.lse_shape
    out, o = _result("out", out, q.shape, q.dtype, stream, empty)
    lse, l = _result("lse", lse, lse_shape, "float32", stream, empty) if return_lse else (None, None)
    o, l = _in_batch_entries(is_packed, out=o, lse=l)
    checked.check_like("out", o, "q", checked.q)
    if l is not None:
        checked.check_lse("lse", l)
    if _has_work(checked, o, l):
        checked.note_alignment(o)
        _launch("attune_forward", checked, checked.operands(o), {_library.O: o, _library.LSE: l}, stream, workspace, empty)
    return (out, lse) if return_lse else out


@_with_options
def backward(grad_out, q, k, v, out, lse, *, stream, grad_lse=None, grads=None, bias_gradient=False, workspace=None, empty=None, **options):
    """Gradients of a loss with respect to q, k and v, from those with respect to out and lse, on `stream`.

    q, k, v and the options are those of the call of attention() that returned out and lse. grad_out is like out; grad_lse like lse, or None if the
    loss does not depend on it. grads: arrays like q, k and v, then one like sinks if there are some, then one like bias with bias_gradient;
    what `empty` makes if None. Returns them. workspace: as in attention(), of workspace_bytes(..., backward=True).
    Raises ValueError, TypeError or AttuneError.
    """
    grad_out, q, k, v, out, lse = _inputs(stream, grad_out=grad_out, q=q, k=k, v=v, out=out, lse=lse)
    grad_lse = take("grad_lse", grad_lse, stream)
    options, terms = _taken(options, stream)
    is_packed = _is_packed(terms)
    checked = _Checked(*_in_batch_entries(is_packed, q=q, k=k, v=v), options, _library.BACKWARD, terms=terms, bias_gradient=bias_gradient)
    checked.require_state_of_dropout()
    _refuse_repeats(checked.differentiated_bias)
    wanted = [(_library.D_Q, q), (_library.D_K, k), (_library.D_V, v)]
    wanted += [(_library.D_SINKS, checked.sinks)] * (checked.sinks is not None)
    wanted += [(_library.D_BIAS, checked.differentiated_bias)] * (checked.differentiated_bias is not None)
    if grads is not None and len(grads) != len(wanted):
        raise ValueError(f"grads has {len(grads)} elements: it must have {len(wanted)}, the gradients of q, k, v"
                         + ", sinks" * (checked.sinks is not None) + ", bias" * (checked.differentiated_bias is not None))
    results = [_result(f"grads[{index}]", None if grads is None else grads[index], of.shape, of.dtype, stream, empty)
               for index, (_, of) in enumerate(wanted)]
    written = [array for _, array in results]
    written[:3] = _in_batch_entries(is_packed, **{"grads[0]": written[0], "grads[1]": written[1], "grads[2]": written[2]})
    grad_out, out = _in_batch_entries(is_packed, grad_out=grad_out, out=out)
    lse, grad_lse = _in_batch_entries(is_packed, lse=lse, grad_lse=grad_lse)
    checked.check_backward(grad_out, out, lse, grad_lse, written)
    if _has_work(checked, *written):
        checked.note_alignment(out, grad_out, *written[:3])
        tensors = {_library.O: out, _library.LSE: lse, _library.D_O: grad_out, _library.D_LSE: grad_lse}
        tensors |= {name: array for (name, _), array in zip(wanted, written)}
        _launch("attune_backward", checked, checked.operands(out, grad_out, written), tensors, stream, workspace, empty)
    return tuple(array for array, _ in results)


@_with_options
def workspace_bytes(q, k, v, *, stream, backward=False, bias_gradient=False, **options):
    """How many bytes `workspace` must have in a call of attention(), or of backward(), on such arrays; 0: it needs none."""
    q, k, v = _inputs(stream, q=q, k=k, v=v)
    options, terms = _taken(options, stream)
    q, k, v = _in_batch_entries(_is_packed(terms), q=q, k=k, v=v)
    checked = _Checked(q, k, v, options, _library.BACKWARD if backward else _library.FORWARD, terms=terms, bias_gradient=bias_gradient)
    return 0 if checked.is_empty else _bytes_of(checked)


def _inputs(stream, **arrays):
    if isinstance(stream, bool) or not isinstance(stream, int):
        raise TypeError(f"stream is a {type(stream).__name__}: it must be the number of a CUDA stream, such as stream.ptr of CuPy's")
    if stream <= 0:
        raise ValueError(f"stream is {stream}: it must be 1, the legacy default stream, 2, that of the thread, or the handle of a stream")
    return [take(name, array, stream) for name, array in arrays.items()]


def _taken(given, stream):
    """Options as a tuple, and Terms or None."""
    unknown = [name for name in given if name not in Options._fields and name not in Terms._fields]
    if unknown:
        raise TypeError(f"there is no option {unknown[0]!r}: there are {', '.join((*Options._fields, *Terms._fields))}")
    terms = terms_of(*(take(name, given.get(name), stream) for name in Terms._fields))
    return tuple(Options(**{name: value for name, value in given.items() if name in Options._fields})), terms


def _is_packed(terms):
    return terms is not None and (terms.cu_seqlens_q is not None or terms.cu_seqlens_kv is not None)


def _in_batch_entries(is_packed, **arrays):
    """As they are, but those of packed sequences, which lie in one batch entry."""
    if not is_packed:
        return list(arrays.values())
    for name, array in arrays.items():
        dimensions = 2 if name in ("lse", "grad_lse") else 3
        if array is not None and array.dim() != dimensions:
            what = "(heads, tokens)" if dimensions == 2 else "(heads, tokens, head_dim) or, with layout='bshd', (tokens, heads, head_dim)"
            raise ValueError(f"{name} has shape {array.shape}: with cu_seqlens_q and cu_seqlens_kv it must be {what}")
    return [None if array is None else array.in_one_batch_entry() for array in arrays.values()]


def _result(name, given, shape, dtype, stream, empty):
    """An array that is written to, as its library has it and as an Array."""
    if given is None:
        if empty is None:
            raise ValueError(f"{name} is missing: give an array of shape {tuple(shape)} and {dtype} that takes it, or a function that makes one as "
                             "empty, such as cupy.empty")
        given = empty(tuple(shape), dtype)
    return given, take(name, given, stream, is_written=True)


def _refuse_repeats(bias):
    if bias is not None and any(stride == 0 and size > 1 for size, stride in zip(bias.shape, bias.stride())):
        raise ValueError("bias has a stride of 0, along which its gradient cannot be summed: pass it with 1 element of that dimension")


def _has_work(checked, *written):
    """Whether there is something to launch. What nothing would be launched for must have no elements, either."""
    if checked.is_empty and any(array is not None and array.numel() != 0 for array in written):
        raise ValueError(f"q has shape {checked.q.shape} and k {checked.k.shape}: nothing is launched for these, so that nothing would be written to "
                         "the results. Without keys, out and gradients are 0, and lse is -inf or the head's sink: fill them in")
    return not checked.is_empty


def _bytes_of(checked):
    needed = ctypes.c_size_t()
    _library.check(checked.library.attune_workspace_bytes(checked.problem, ctypes.byref(needed)))
    return needed.value


def _launch(function, checked, operands, tensors, stream, workspace, empty):
    """tensors: the arrays of operands that Checked.operands() gives no pointer, or another one than those of q, k and v."""
    tensors |= {term.operand: array for term, array in zip(TERMS, checked.terms or ())}
    for operand in operands:
        array = tensors.get(operand.name)
        if array is not None:
            operand.tensor.data = array.data_ptr()
    needed, address, keeper = _bytes_of(checked), None, None
    if needed:
        keeper, array = _result("workspace", workspace, (needed,), "uint8", stream, empty)
        address = _checked_workspace(checked, array, needed)
    # The driver takes 1 and 2 as DLPack means them.
    _library.check(checked.library[function](ctypes.byref(checked.problem), operands, ctypes.c_size_t(len(operands)), ctypes.c_void_p(address),
                                             ctypes.c_size_t(needed), ctypes.c_void_p(stream)))
    del keeper  # lives until the launch is on its stream


def _checked_workspace(checked, array, needed):
    given = array.numel() * BYTES.get(array.dtype, 1)
    if array.device != checked.q.device:
        raise ValueError(f"workspace is on {array.device} and q on {checked.q.device}: they must be on one device")
    if not array.is_contiguous():
        raise ValueError("workspace is not contiguous: pass one dimension of bytes")
    if given < needed:
        raise ValueError(f"workspace has {given} bytes: it must have {needed}, as workspace_bytes() says")
    if array.data_ptr() % 256:
        raise ValueError("workspace must start at a multiple of 256 bytes, as what cudaMalloc returns does")
    return array.data_ptr()

"""Attention for JAX, differentiable and inside of jax.jit, without PyTorch.

    import jax
    import attune_kernels.jax as attune

    @jax.jit
    def loss(q, k, v):                                               # (batch, heads, seq, head_dim), float16 or bfloat16
        return attune.attention(q, k, v, causal=True).astype("float32").sum()

    gradients = jax.grad(loss, argnums=(0, 1, 2))(q, k, v)

A call is a custom call of XLA's foreign function interface, also outside of jax.jit: XLA allocates its results and its workspace, and calls
libattune on its own stream. What XLA calls is built at the first call, by a C compiler, against the header that jaxlib brings along.
"""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy

from . import _checked, _jax_handlers, _library
from ._dlpack_arrays import Array, Arrays
from ._library import AttuneError
from ._options import OPTIONS, TERMS, Options, Terms, terms_of

__all__ = ["AttuneError", "attention"]


class _Arrays(Arrays):
    a_tensor = "an array"


class _Checked(_checked.Checked):
    arrays = _Arrays


def attention(q, k, v, *, return_lse=False, **options):
    """softmax(scale * q k^T + mask) v, differentiable once with respect to q, k and v, and to sinks and bias. Returns out, or (out, lse).

    Arguments mean what they mean in attune_kernels.attention(), whose tables they come from, but for these: options are plain numbers and words,
    known when a function is traced; deterministic is False if None; without keys nothing is launched, and out is 0; and dropout_state, which is
    always given with dropout_p, may be (4,) uint32, such as jax.random.bits(key, (4,), "uint32"), since JAX has no int64 unless jax_enable_x64
    is set. alibi_slopes get no gradient, and a call that would need it is refused: pass jax.lax.stop_gradient(alibi_slopes).
    jax.vmap makes a call for each element, one after the other. Arrays that lie on several devices are gathered by jax.jit; jax.shard_map(...,
    check_vma=False) calls on each device for its part. Raises ValueError and TypeError when it is traced; what libattune refuses is an error of XLA's run.
    """
    unknown = [name for name in options if name not in Options._fields and name not in Terms._fields]
    if unknown:
        raise TypeError(f"there is no option {unknown[0]!r}: there are {', '.join((*Options._fields, *Terms._fields))}")
    plain = _plain_options({name: value for name, value in options.items() if name in Options._fields})
    tensors = {"q": _array("q", q), "k": _array("k", k), "v": _array("v", v)}
    for name in Terms._fields:
        if options.get(name) is not None:
            tensors[name] = _as_kernels_take_it(name, _array(name, options[name]))
    return _attend(plain, bool(return_lse), tensors)


attention.__signature__ = inspect.signature(attention).replace(parameters=[
    *[one for one in inspect.signature(attention).parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD],
    *[inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=getattr(one, "default", None)) for one in (*OPTIONS, *TERMS)]])


def _plain_options(given):
    """As a tuple that can be hashed."""
    for name, value in given.items():
        if isinstance(value, jax.Array):
            raise TypeError(f"{name} is an array, or traced: it must be a plain value, which under jax.jit an argument of static_argnames is")
    if given.get("window") is not None:
        given["window"] = tuple(given["window"])
    return tuple(Options(**given))


def _array(name, array):
    if not isinstance(array, (jax.Array, numpy.ndarray)):
        raise TypeError(f"{name} is a {type(array).__name__}: it must be an array")
    return jnp.asarray(array)


def _as_kernels_take_it(name, array):
    """Gradients go back through the cast."""
    if name in ("sinks", "alibi_slopes") and array.dtype in (jnp.float16, jnp.bfloat16):
        return array.astype(jnp.float32)
    return array


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attend(options, return_lse, tensors):
    out, lse = _forward(options, tensors, return_lse)
    return (out, lse) if return_lse else out


def _attend_and_keep(options, return_lse, tensors):
    """The forward pass of a call that is differentiated. What decides how backward runs is kept by the residuals' structure, which is static."""
    perturbed = {name for name, one in tensors.items() if one.perturbed}
    if "alibi_slopes" in perturbed:
        raise ValueError("alibi_slopes is differentiated, and slopes get no gradient: pass jax.lax.stop_gradient(alibi_slopes)")
    tensors = {name: one.value for name, one in tensors.items()}
    out, lse = _forward(options, tensors, True)
    return (out, lse) if return_lse else out, (tensors, out, lse, () if "bias" in perturbed else None)


def _gradients(options, return_lse, kept, of_results):
    tensors, out, lse, bias_is_differentiated = kept
    grad_out, grad_lse = of_results if return_lse else (of_results, None)
    if isinstance(grad_out, jax.custom_derivatives.SymbolicZero):
        grad_out = jnp.zeros_like(out)
    if isinstance(grad_lse, jax.custom_derivatives.SymbolicZero):
        grad_lse = None
    found = _backward(options, tensors, out, lse, grad_out, grad_lse, bias_is_differentiated is not None)
    return ({name: found.get(name) for name in tensors},)


_attend.defvjp(_attend_and_keep, _gradients, symbolic_zeros=True)


def _described(name, array):
    """What _checked.py asks about. XLA's arrays are contiguous and begin at multiples of 256 bytes."""
    if name == "dropout_state" and array.dtype == jnp.uint32 and array.shape == (4,):
        return Array((2,), "int64")
    return Array(array.shape, array.dtype.name)


def _check(options, tensors, pass_, bias_gradient=False):
    described = {name: _described(name, array) for name, array in tensors.items()}
    terms = terms_of(*(described.get(name) for name in Terms._fields))
    q, k, v = (described[name] for name in "qkv")
    if terms is not None and (terms.cu_seqlens_q is not None or terms.cu_seqlens_kv is not None):
        for name in "qkv":
            if described[name].dim() != 3:
                raise ValueError(f"{name} has shape {described[name].shape}: with cu_seqlens_q and cu_seqlens_kv it must be (heads, tokens, head_dim) "
                                 "or, with layout='bshd', (tokens, heads, head_dim)")
        q, k, v = (array.in_one_batch_entry() for array in (q, k, v))
    checked = _Checked(q, k, v, options, pass_, traced=True, terms=terms, bias_gradient=bias_gradient)
    checked.require_state_of_dropout()
    checked.make_problem()
    return checked


def _forward(options, tensors, needs_lse):
    checked = _check(options, tensors, _library.FORWARD)
    q = tensors["q"]
    lse_shape = checked.lse_shape[1:] if checked.is_packed else checked.lse_shape
    if q.size == 0 or tensors["k"].size == 0:
        of_nothing = jnp.full(lse_shape, -jnp.inf, jnp.float32)
        if "sinks" in tensors:
            of_nothing = jnp.broadcast_to(tensors["sinks"][:, None], lse_shape)
        return jnp.zeros_like(q), of_nothing
    results = {_library.O: jax.ShapeDtypeStruct(q.shape, q.dtype)}
    if needs_lse:
        results[_library.LSE] = jax.ShapeDtypeStruct(lse_shape, jnp.float32)
    out, *lse = _call(_jax_handlers.FORWARD, checked, checked.operands(checked.q), _arguments(tensors), results)
    return out, lse[0] if needs_lse else None


def _backward(options, tensors, out, lse, grad_out, grad_lse, bias_gradient):
    """Gradients by the tensors' names."""
    checked = _check(options, tensors, _library.BACKWARD, bias_gradient)
    names = ["q", "k", "v", *(["sinks"] if "sinks" in tensors else []), *(["bias"] if bias_gradient else [])]
    if tensors["q"].size == 0 or tensors["k"].size == 0:
        found = {name: jnp.zeros_like(tensors[name]) for name in names}
        if "sinks" in found and {"seqused_q", "cu_seqlens_q"} & set(tensors):
            raise ValueError("without keys, sinks of sequences that have lengths of their own get no gradient: pass jax.lax.stop_gradient(sinks)")
        if "sinks" in found and grad_lse is not None:  # lse of a query without keys is the sink
            found["sinks"] = grad_lse.sum(tuple(axis for axis in range(grad_lse.ndim) if axis != grad_lse.ndim - 2))
        return found
    numbers = {"q": _library.D_Q, "k": _library.D_K, "v": _library.D_V, "sinks": _library.D_SINKS, "bias": _library.D_BIAS}
    results = {numbers[name]: jax.ShapeDtypeStruct(tensors[name].shape, tensors[name].dtype) for name in names}
    arguments = _arguments(tensors) | {_library.O: out, _library.LSE: lse, _library.D_O: grad_out}
    if grad_lse is not None:
        arguments[_library.D_LSE] = grad_lse
    operands = checked.operands(checked.q, checked.q, [checked.q, checked.k, checked.v])
    return dict(zip(names, _call(_jax_handlers.BACKWARD, checked, operands, arguments, results)))


def _arguments(tensors):
    """By the numbers of their operands."""
    numbers = {"q": _library.Q, "k": _library.K, "v": _library.V} | {term.name: term.operand for term in TERMS}
    return {numbers[name]: array for name, array in tensors.items()}


def _call(target, checked, operands, arguments, results):
    """What libattune writes, in the order of `results`. Both are by the numbers of operands."""
    _jax_handlers.register()
    order = [*arguments, *results]
    buffers = numpy.array([order.index(operand.name) if operand.name in order else -1 for operand in operands], numpy.int32)
    call = jax.ffi.ffi_call(target, tuple(results.values()), vmap_method="sequential")
    return call(*arguments.values(), problem=numpy.frombuffer(bytes(checked.problem), numpy.uint8),
                operands=numpy.frombuffer(bytes(operands), numpy.uint8), buffers=buffers)

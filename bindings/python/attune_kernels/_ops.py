"""attention() as operators of PyTorch, for everything that works on graphs of operators: torch.compile, torch.export, selective checkpoints.

    torch.ops.attune_kernels.forward(q, k, v, causal, scale, layout, top_left, window, deterministic, invariant, softcap, dropout_p) -> (out, lse)
    torch.ops.attune_kernels.backward(grad_out, q, k, v, out, lse, grad_lse, causal, ...) -> (grad_q, grad_k, grad_v)
    torch.ops.attune_kernels.forward_with_terms(q, k, v, sinks, seqused_q, seqused_kv, alibi_slopes, bias, attention_mask, cu_seqlens_q, cu_seqlens_kv, dropout_state,
        causal, ...) -> (out, lse)
    torch.ops.attune_kernels.backward_with_terms(grad_out, q, k, v, sinks, seqused_q, seqused_kv, alibi_slopes, bias, attention_mask, cu_seqlens_q, cu_seqlens_kv, dropout_state, out, lse,
        grad_lse, bias_gradient, causal, ...) -> (grad_q, grad_k, grad_v, grad_sinks, grad_bias)

Without sinks grad_sinks is empty, and so is grad_bias unless bias_gradient asks for it.

Options have the defaults of attention(); window is a list of two numbers, -1 for all of a side. Both return new tensors. A call through the
dispatcher costs more host time than attention(), which therefore takes this way only where somebody watches operators.
"""

import torch

from . import _calls, _checked, _library
from ._options import CONTIGUOUS, SCHEMA, TERM_SCHEMA, TERMS, Options, Terms

_SCHEMAS = {
    "forward": f"(Tensor q, Tensor k, Tensor v, {SCHEMA}) -> (Tensor out, Tensor lse)",
    "backward": f"(Tensor grad_out, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor? grad_lse=None, {SCHEMA}) "
                "-> (Tensor grad_q, Tensor grad_k, Tensor grad_v)",
    "forward_with_terms": f"(Tensor q, Tensor k, Tensor v, {TERM_SCHEMA}, {SCHEMA}) -> (Tensor out, Tensor lse)",
    "backward_with_terms": f"(Tensor grad_out, Tensor q, Tensor k, Tensor v, {TERM_SCHEMA}, Tensor out, Tensor lse, Tensor? grad_lse=None, "
                           f"bool bias_gradient=False, {SCHEMA}) -> (Tensor grad_q, Tensor grad_k, Tensor grad_v, Tensor grad_sinks, "
                           "Tensor grad_bias)",
}


def forward(q, k, v, options, terms=None):
    """(out, lse) by the operator; options as attention() has them. terms: Terms as kernels take them, or None."""
    options = _as_schema_has_them(options)
    if terms is not None:
        run = _TransformedForwardWithTerms.apply if torch._C._are_functorch_transforms_active() else \
            torch.ops.attune_kernels.forward_with_terms
        return run(q, k, v, *terms, *options)
    if torch._C._are_functorch_transforms_active():
        return _TransformedForward.apply(q, k, v, *options)
    return torch.ops.attune_kernels.forward(q, k, v, *options)


def backward(grad_out, q, k, v, out, lse, grad_lse, options, terms=None, bias_gradient=False):
    """(grad_q, grad_k, grad_v) by the operator, and behind them the gradient of sinks, if there are some, and with bias_gradient that of the
    bias."""
    options = _as_schema_has_them(options)
    if terms is not None:
        *grads, of_sinks, of_bias = _backward_with_terms(grad_out, q, k, v, terms, out, lse, grad_lse, bias_gradient, options)
        return (*grads, *(() if terms.sinks is None else (of_sinks,)), *((of_bias,) if bias_gradient else ()))
    if is_of_batch(grad_out, grad_lse):
        return _backward_of_batch(grad_out, q, k, v, out, lse, grad_lse, options)
    if torch._C._are_functorch_transforms_active():
        return _TransformedBackward.apply(grad_out, q, k, v, out, lse, grad_lse, *options)
    return torch.ops.attune_kernels.backward(grad_out, q, k, v, out, lse, grad_lse, *options)


def _backward_with_terms(grad_out, q, k, v, terms, out, lse, grad_lse, bias_gradient, options):
    options = (bias_gradient, *options)
    tensors = (grad_out, q, k, v, *terms, out, lse, grad_lse)
    operator = torch.ops.attune_kernels.backward_with_terms
    if is_of_batch(grad_out, grad_lse):
        level, whole, dims = _without_batch(tensors)
        grads, _ = _map_one_by_one(operator, _size_of_batch(whole, dims), dims, whole, options)
        return tuple(torch._add_batch_dim(grad, 0, level) for grad in grads)
    if torch._C._are_functorch_transforms_active():
        operator = _TransformedBackwardWithTerms.apply
    return operator(*tensors, *options)


def is_of_batch(*gradients):
    """Whether one of them is a batch of gradients in one, as torch.autograd.grad(is_grads_batched=True) makes it. It is no tensor of
    torch.func's, and no transform is active."""
    if torch.compiler.is_compiling():  # whose graphs hold no such tensor, and cannot ask
        return False
    return any(gradient is not None and _is_of_batch(gradient) for gradient in gradients)


_MOST_LEVELS = 64  # of PyTorch
_is_of_batch = getattr(getattr(torch._C, "_functorch", None), "is_legacy_batchedtensor", lambda _: False)


def _backward_of_batch(grad_out, q, k, v, out, lse, grad_lse, options):
    level, whole, dims = _without_batch((grad_out, q, k, v, out, lse, grad_lse))
    size = _size_of_batch(whole, dims)
    grads = torch.ops.attune_kernels.backward(*_fold(size, dims, whole), *options)
    return tuple(torch._add_batch_dim(grad, 0, level) for grad in _unfold(size, grads))


def _without_batch(tensors):
    """The level of the batch, the tensors with it as a dimension in front where they have it, and those dimensions."""
    level = next(_level_of(one) for one in tensors if one is not None and _is_of_batch(one))
    whole = [torch._remove_batch_dim(one, level, 1, 0) if one is not None and _is_of_batch(one) else one for one in tensors]
    return level, whole, [0 if one is not None and _is_of_batch(one) else None for one in tensors]


def _size_of_batch(whole, dims):
    return next(one.shape[0] for one, dim in zip(whole, dims) if dim == 0)


def _level_of(gradient):
    """The level of a batch that is in no other. A thread's own count does not tell it: gradients on a GPU are computed by another thread than
    the one that has made the batch."""
    for level in range(1, _MOST_LEVELS + 1):
        if not _is_of_batch(torch._remove_batch_dim(gradient, level, 1, 0)):
            return level
    raise RuntimeError("gradients of attention() are served in one batch (is_grads_batched), not in a batch of batches: call "
                       "torch.autograd.grad() once for each gradient of the outer one")


def _as_schema_has_them(options):
    options = Options._make(options)
    window = options.window
    if window is not None:
        window = list(_checked.window_sides(window, options.causal, options.top_left))
    return tuple(options._replace(causal=bool(options.causal), top_left=bool(options.top_left), window=window,
                                  invariant=bool(options.invariant), softcap=float(options.softcap),
                                  dropout_p=float(options.dropout_p)))


def _options(*given):
    options = Options(*given)
    return tuple(options if options.window is None else options._replace(window=tuple(options.window)))


def _run_forward(q, k, v, *options):
    return _calls.forward(q, k, v, _options(*options), return_lse=True)


def _run_backward(grad_out, q, k, v, out, lse, grad_lse=None, *options):
    if grad_out.stride(3) != 1:
        grad_out = grad_out.contiguous()
    if grad_lse is not None:
        grad_lse = grad_lse.contiguous()
    # lse is a view of one for all, where a transform has repeated it for each gradient of a batch.
    return _calls.backward(grad_out, q, k, v, out, lse.contiguous(), grad_lse, _options(*options))


def contiguous_terms(tensors):
    """Terms of tensors that may have any strides: those that must be contiguous are made so."""
    return Terms(*(tensor if tensor is None or term.lies != CONTIGUOUS else tensor.contiguous() for term, tensor in zip(TERMS, tensors)))


def _split(given):
    """The Terms at the front of an operator's arguments, as kernels take them, and what follows."""
    return contiguous_terms(given), given[len(TERMS):]


def _run_forward_with_terms(q, k, v, *given):
    terms, options = _split(given)
    return _calls.forward(q, k, v, _options(*options), return_lse=True, terms=terms)


def _run_backward_with_terms(grad_out, q, k, v, *given):
    terms, (out, lse, *rest) = _split(given)
    grad_lse, bias_gradient, *options = (*rest, None, False)[:2] if len(rest) < 2 else rest
    if grad_out.stride(3) != 1:
        grad_out = grad_out.contiguous()
    if grad_lse is not None:
        grad_lse = grad_lse.contiguous()
    grads = list(_calls.backward(grad_out, q, k, v, out, lse.contiguous(), grad_lse, _options(*options), terms=terms,
                                 bias_gradient=bias_gradient))
    if terms.sinks is None:
        grads.insert(3, lse.new_empty(0))
    return tuple(grads) if bias_gradient else (*grads, lse.new_empty(0))


def _trace_forward_with_terms(q, k, v, *given):
    terms, options = _split(given)
    checked = _calls.Checked(q, k, v, _options(*options), _library.FORWARD, traced=True, terms=terms)
    return _calls.empty_like(q), torch.empty(checked.lse_shape, dtype=torch.float32, device=q.device)


def _trace_backward_with_terms(grad_out, q, k, v, *given):
    terms, (out, lse, *rest) = _split(given)
    bias_gradient = len(rest) > 1 and rest[1]
    _calls.Checked(q, k, v, _options(*rest[2:]), _library.BACKWARD, traced=True, terms=terms, bias_gradient=bias_gradient)
    grad_bias = torch.empty(terms.bias.shape, dtype=terms.bias.dtype, device=q.device) if bias_gradient else lse.new_empty(0)
    grad_sinks = lse.new_empty(0) if terms.sinks is None else torch.empty_like(terms.sinks, memory_format=torch.contiguous_format)
    return _calls.empty_like(q), _calls.empty_like(k), _calls.empty_like(v), grad_sinks, grad_bias


def _keep_for_backward_with_terms(ctx, inputs, output):
    q, k, v, *given = inputs
    ctx.options = given[len(TERMS):]
    ctx.save_for_backward(q, k, v, *given[:len(TERMS)], *output)
    ctx.set_materialize_grads(False)


def _differentiate_forward_with_terms(ctx, grad_out, grad_lse):
    nothing = (None,) * len(ctx.options)
    q, k, v, *terms, out, lse = ctx.saved_tensors
    terms = Terms(*terms)
    if grad_out is None:
        if grad_lse is None:
            return (None, None, None, *([None] * len(TERMS)), *nothing)
        grad_out = torch.zeros_like(out)
    bias_gradient = ctx.needs_input_grad[3 + Terms._fields.index("bias")]
    grads = backward(grad_out, q, k, v, out, lse, grad_lse, ctx.options, terms, bias_gradient)
    of_terms = dict(sinks=grads[3] if terms.sinks is not None else None, bias=grads[-1] if bias_gradient else None)
    grads = (*grads[:3], *map(of_terms.get, Terms._fields))
    return (*(grad if needed else None for grad, needed in zip(grads, ctx.needs_input_grad)), *nothing)


def _trace_forward(q, k, v, *options):
    checked = _calls.Checked(q, k, v, _options(*options), _library.FORWARD, traced=True)
    return _calls.empty_like(q), torch.empty(checked.lse_shape, dtype=torch.float32, device=q.device)


def _trace_backward(grad_out, q, k, v, out, lse, grad_lse=None, *options):
    _calls.Checked(q, k, v, _options(*options), _library.BACKWARD, traced=True)
    return _calls.empty_like(q), _calls.empty_like(k), _calls.empty_like(v)


def _keep_for_backward(ctx, inputs, output):
    q, k, v, *ctx.options = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.set_materialize_grads(False)


def _differentiate_forward(ctx, grad_out, grad_lse):
    nothing = (None,) * len(ctx.options)
    q, k, v, out, lse = ctx.saved_tensors
    if grad_out is None:
        if grad_lse is None:
            return (None, None, None, *nothing)
        grad_out = torch.zeros_like(out)
    grads = backward(grad_out, q, k, v, out, lse, grad_lse, ctx.options)
    return (*(grad if needed else None for grad, needed in zip(grads, ctx.needs_input_grad)), *nothing)


def _refuse_second_derivative(ctx, *_):
    raise NotImplementedError(
        "attune.attention is differentiable once: its gradients have none of their own. For second derivatives use "
        "torch.nn.functional.scaled_dot_product_attention under torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"
    )


def refuse_forward_mode(*_):
    raise NotImplementedError(
        "attune.attention has no forward-mode derivative: use backward() or torch.autograd.grad, or "
        "torch.nn.functional.scaled_dot_product_attention under torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"
    )


class _TransformedForward(torch.autograd.Function):
    """The operator with its derivative as torch.func wants it, which what register_autograd() makes is not."""

    generate_vmap_rule = True

    @staticmethod
    def forward(q, k, v, causal, scale, layout, top_left, window, deterministic, invariant, softcap, dropout_p):  # each by name, which torch.compile counts
        return torch.ops.attune_kernels.forward(q, k, v, causal, scale, layout, top_left, window, deterministic, invariant, softcap, dropout_p)

    setup_context = staticmethod(_keep_for_backward)
    backward = staticmethod(_differentiate_forward)
    jvp = staticmethod(refuse_forward_mode)  # jacfwd, hessian


class _TransformedBackward(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(grad_out, q, k, v, out, lse, grad_lse, causal, scale, layout, top_left, window, deterministic, invariant,
                softcap, dropout_p):
        return torch.ops.attune_kernels.backward(
            grad_out, q, k, v, out, lse, grad_lse, causal, scale, layout, top_left, window, deterministic, invariant, softcap, dropout_p)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    backward = staticmethod(_refuse_second_derivative)
    jvp = staticmethod(refuse_forward_mode)


class _TransformedForwardWithTerms(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(q, k, v, sinks, seqused_q, seqused_kv, alibi_slopes, bias, attention_mask, cu_seqlens_q, cu_seqlens_kv, dropout_state, causal, scale, layout, top_left, window, deterministic,
                invariant, softcap, dropout_p):
        return torch.ops.attune_kernels.forward_with_terms(q, k, v, sinks, seqused_q, seqused_kv, alibi_slopes, bias, attention_mask, cu_seqlens_q, cu_seqlens_kv, dropout_state, causal, scale,
                                                           layout, top_left, window, deterministic, invariant, softcap, dropout_p)

    setup_context = staticmethod(_keep_for_backward_with_terms)
    backward = staticmethod(_differentiate_forward_with_terms)
    jvp = staticmethod(refuse_forward_mode)


class _TransformedBackwardWithTerms(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(grad_out, q, k, v, sinks, seqused_q, seqused_kv, alibi_slopes, bias, attention_mask, cu_seqlens_q, cu_seqlens_kv, dropout_state, out, lse, grad_lse, bias_gradient, causal,
                scale, layout, top_left, window, deterministic, invariant, softcap, dropout_p):
        return torch.ops.attune_kernels.backward_with_terms(
            grad_out, q, k, v, sinks, seqused_q, seqused_kv, alibi_slopes, bias, attention_mask, cu_seqlens_q, cu_seqlens_kv, dropout_state, out, lse, grad_lse, bias_gradient, causal, scale,
            layout, top_left, window, deterministic, invariant, softcap, dropout_p)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    backward = staticmethod(_refuse_second_derivative)
    jvp = staticmethod(refuse_forward_mode)


def _cast_and_run_forward_with_terms(q, k, v, sinks, *given):
    q, k, v = as_autocast_has_them(q, k, v)
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)):
        return torch.ops.attune_kernels.forward_with_terms(q, k, v, None if sinks is None else sinks.float(), *given)


def _cast_and_run_forward(q, k, v, *options):
    """Under torch.autocast."""
    q, k, v = as_autocast_has_them(q, k, v)
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)):
        return torch.ops.attune_kernels.forward(q, k, v, *options)


def as_autocast_has_them(*tensors):
    """Under torch.autocast what its casts make of the arguments of PyTorch's own attention; gradients go back through the casts."""
    if not torch.is_autocast_enabled("cuda"):
        return tensors
    dtype = torch.get_autocast_dtype("cuda")

    def cast(tensor):
        is_cast = isinstance(tensor, torch.Tensor) and tensor.is_cuda and tensor.is_floating_point() and tensor.dtype != torch.float64
        return tensor.to(dtype) if is_cast else tensor

    return tuple(map(cast, tensors))


def _fold(size, dims, tensors):
    """Tensors with the dimension that torch.vmap maps over made part of the batch: (size * batch, ...)."""
    return [
        None if tensor is None else
        (tensor.movedim(dim, 0) if dim is not None else tensor.expand(size, *tensor.shape)).flatten(0, 1)
        for tensor, dim in zip(tensors, dims)
    ]


def _unfold(size, results):
    return tuple(result.unflatten(0, (size, result.shape[0] // size)) for result in results)


def _map_forward(info, in_dims, q, k, v, *options):
    size = info.batch_size
    results = torch.ops.attune_kernels.forward(*_fold(size, in_dims, (q, k, v)), *options)
    return _unfold(size, results), (0, 0)


def _map_backward(info, in_dims, grad_out, q, k, v, out, lse, grad_lse=None, *options):
    size = info.batch_size
    results = torch.ops.attune_kernels.backward(*_fold(size, in_dims, (grad_out, q, k, v, out, lse, grad_lse)), *options)
    return _unfold(size, results), (0, 0, 0)


def _map_one_by_one(operator, size, dims, tensors, options):
    """A call for each index of the dimension that is mapped over: sinks are those of a whole call, and so is their gradient."""
    results = [operator(*(one if dim is None else one.select(dim, index) for one, dim in zip(tensors, dims)), *options)
               for index in range(size)]
    return tuple(torch.stack(parts) for parts in zip(*results)), (0,) * len(results[0])


def _map_forward_with_terms(info, in_dims, q, k, v, *given):
    tensors = (q, k, v, *given[:len(TERMS)])
    return _map_one_by_one(torch.ops.attune_kernels.forward_with_terms, info.batch_size, in_dims, tensors, given[len(TERMS):])


def _map_backward_with_terms(info, in_dims, grad_out, q, k, v, *given):
    count = len(TERMS) + 3  # out, lse and grad_lse follow
    tensors = (grad_out, q, k, v, *given[:count])
    return _map_one_by_one(torch.ops.attune_kernels.backward_with_terms, info.batch_size, in_dims, tensors, given[count:])


_OF_PLAIN = dict(run_forward=_run_forward, run_backward=_run_backward, cast_and_run_forward=_cast_and_run_forward,
                 trace_forward=_trace_forward, trace_backward=_trace_backward, keep_for_backward=_keep_for_backward,
                 differentiate_forward=_differentiate_forward, map_forward=_map_forward, map_backward=_map_backward)
_OF_TERMS = dict(run_forward=_run_forward_with_terms, run_backward=_run_backward_with_terms,
                 cast_and_run_forward=_cast_and_run_forward_with_terms, trace_forward=_trace_forward_with_terms,
                 trace_backward=_trace_backward_with_terms, keep_for_backward=_keep_for_backward_with_terms,
                 differentiate_forward=_differentiate_forward_with_terms, map_forward=_map_forward_with_terms,
                 map_backward=_map_backward_with_terms)


def _define():
    library = torch.library.Library("attune_kernels", "DEF")
    # A graph's compiler may choose strides: kernels take any, but results follow those of q, k and v as they were traced.
    tags = [torch.Tag.pt2_compliant_tag, getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)]
    for name, schema in _SCHEMAS.items():
        library.define(name + schema, tags=tags)
    for suffix, of in (("", _OF_PLAIN), ("_with_terms", _OF_TERMS)):
        forward, backward = "forward" + suffix, "backward" + suffix
        library.impl(forward, of["run_forward"], "CUDA")
        library.impl(backward, of["run_backward"], "CUDA")
        library.impl(forward, of["cast_and_run_forward"], "AutocastCUDA")
        forward, backward = "attune_kernels::" + forward, "attune_kernels::" + backward
        torch.library.register_fake(forward, of["trace_forward"], lib=library)
        torch.library.register_fake(backward, of["trace_backward"], lib=library)
        torch.library.register_autograd(forward, of["differentiate_forward"], setup_context=of["keep_for_backward"], lib=library)
        torch.library.register_autograd(backward, _refuse_second_derivative, lib=library)
        if hasattr(torch.library, "register_vmap"):  # PyTorch 2.5
            torch.library.register_vmap(forward, of["map_forward"], lib=library)
            torch.library.register_vmap(backward, of["map_backward"], lib=library)
    return library


_defined = _define()  # the operators live as long as this

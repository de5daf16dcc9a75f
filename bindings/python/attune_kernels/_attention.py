"""What attune_kernels does with torch tensors: attention(), what is differentiated and prepared of it, and questions about it."""

import ctypes
import functools

import torch
from torch.autograd import forward_ad

from . import _calls, _library, _operators, _ops
from ._dropout import new_dropout_state
from ._options import Options, Terms, terms_of, without_repeats
from ._reasons import tell_once


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
    """torch.compile calls `function` between two graphs and never looks inside: what is there are kernels that were prepared, or tensors of
    the caller's that are written to.

    torch.compiler.disable() would load the compiler into every process that imports this module; so it waits for one that compiles."""

    @functools.wraps(function)
    def call(*arguments, **options):
        if torch.compiler.is_compiling():
            from ._uncompiled import run

            return run(function, *arguments, **options)
        return function(*arguments, **options)

    return call


def attention(
    q, k, v, *, causal=False, scale=None, layout="bhsd", top_left=False, window=None, return_lse=False, out=None, deterministic=None,
    invariant=False, softcap=0.0, sinks=None, seqused_q=None, seqused_kv=None, alibi_slopes=None, bias=None, attention_mask=None, cu_seqlens_q=None,
    cu_seqlens_kv=None, dropout_p=0.0, dropout_state=None
):
    """softmax(scale * q k^T + mask) v, differentiable once with respect to q, k and v, and to sinks and bias.

    q, out: (batch, heads, seq, head_dim) or, with layout="bshd", (batch, seq, heads, head_dim); k, v: the same with their own heads (a
    divisor of q's) and length. float16 or bfloat16 on one CUDA device; any strides, the last dimension contiguous. Under torch.autocast
    they are cast to its dtype first, as by torch.nn.functional.scaled_dot_product_attention, and gradients come in the dtype of the tensor.
    causal: a query attends to keys up to its own position, the last query to all of them; with top_left, the first query to one key, as
    PyTorch's is_causal has it (the same where lengths are equal). window: (left, right), as FlashAttention counts it: of the keys only so
    many on both sides of the diagonal that ends at the last key; None or -1 for all of a side; with causal, none on the right.
    scale: 1/sqrt(head_dim) if None.
    Returns out, or (out, lse): lse is (batch, heads, seq) float32, natural logarithm, -inf where a query attends to nothing; a loss may
    depend on both. A tensor given as out takes the result; then nothing may require a gradient. Without keys out is 0 and lse -inf; without
    queries, heads or batch both are empty.
    deterministic: gradients have the same bits on each run (out and lse always have), which may be slower; None: if
    torch.are_deterministic_algorithms_enabled() in the backward pass.
    invariant: the bits of a row (a query's of out and lse, and of the gradients) are the same alone and in a batch, with any number of heads,
    and, of a query, in a chunk of the sequence and in the whole of it, such as a prompt and its tokens one by one; gradients are
    deterministic, too. It may be slower: docs/performance.md says by how much.
    softcap: scores are softcap * tanh(scale * q k^T / softcap) before the mask; 0: they are not capped.
    sinks: (heads,) of q, float32, float16 or bfloat16, a number that counts in the softmax of each query of its head as one more score does,
    neither scaled nor capped, and has no value: lse is ln(exp(sink) + ...), and the sink where a query attends to nothing. Gradients flow to
    them, and have the same bits on each run.
    seqused_q, seqused_kv: (batch,) int32 on the device, which the host never reads: of each batch entry so many queries and keys, the first
    ones, are its sequence; all where one is None. What lies behind is read into no result, whatever it holds: there out and gradients are 0,
    and lse is that of a query that attends to nothing. The diagonal of causal and window ends at the last query and key of each sequence; with
    top_left it begins at the first ones.
    alibi_slopes: (heads,) of q or (batch, heads), float32 or 16 bits, as flash-attn has them: a score loses its head's slope times
    abs(i + seq_kv - seq_q - j), of query i and key j, after the softcap and before the mask; with seqused_q and seqused_kv by those lengths.
    Slopes get no gradient.
    bias: (batch, heads, seq, seq_kv) of q's type or float32, or one that broadcasts to it as PyTorch's do, but for the last dimension: added to
    scores, after the softcap and before the mask; -inf hides a key. Gradients flow to it, summed over what it repeats along, and have the same
    bits on each run. Where all keys of a query have the least finite number, so that nothing is left of its scores, out is the mean of their
    values, as in PyTorch, and the query has no gradient.
    attention_mask: the same of bool: a query attends to a key, of those that the mask leaves, where it is True.
    cu_seqlens_q, cu_seqlens_kv: (sequences + 1,) int32 on the device, which the host never reads: the sequences lie one behind the other, the
    first from row cu_seqlens_q[0] up to cu_seqlens_q[1], and keys likewise. q, k, v and out lack the batch then, lse is (heads, tokens), and
    batch above means sequences. No call needs their longest length. What lies behind the last sequence is read into no result, either: there
    out and gradients are 0. Rows before the first one, where cu_seqlens_q[0] is not 0, are not written. bias and attention_mask, which are alike
    in their queries and keys then, have elements for the first ones of each sequence, as many as the longest one has: what a sequence has more does
    not count. There is no invariance.
    dropout_p: elements of the softmax are dropped with this probability, at least 0 and less than 1, and those that are kept divided by the share
    of them, 1 - dropout_p; lse does not know of it. It is always in force: pass 0.0 where a model is not trained.
    dropout_state: (2,) int64 on the device, a seed and an offset, from which and from the batch entry (or sequence), head, query and key follows
    what is dropped; dropout_mask() shows it. None: a new one is drawn from PyTorch's generator of the device, so that torch.manual_seed()
    reproduces it, checkpoints replay it, and each replay of a CUDA graph drops other elements.
    Runs on the device's current stream. Under torch.compile with out given, the graph breaks at the call. Under torch.func, vmap and grad
    work as on PyTorch's own attention. Raises ValueError, TypeError or AttuneError, and NotImplementedError for forward-mode
    differentiation.
    """
    if dropout_p or dropout_state is not None:
        dropout_state = _state_of_dropout(dropout_p, dropout_state, q)
    if cu_seqlens_q is not None or cu_seqlens_kv is not None:
        return _attention_of_packed(q, k, v, (causal, scale, layout, top_left, window, deterministic, invariant, softcap, dropout_p), out, return_lse,
                                    (sinks, seqused_q, seqused_kv, alibi_slopes, bias, attention_mask, cu_seqlens_q, cu_seqlens_kv, dropout_state))
    if torch.compiler.is_compiling():
        if out is not None:
            return _outside_graphs(attention)(q, k, v, causal=causal, scale=scale, layout=layout, top_left=top_left, window=window,
                                              return_lse=return_lse, out=out, deterministic=deterministic, invariant=invariant,
                                              softcap=softcap, sinks=sinks, seqused_q=seqused_q, seqused_kv=seqused_kv,
                                              alibi_slopes=alibi_slopes, bias=bias, attention_mask=attention_mask,
                                              dropout_p=dropout_p, dropout_state=dropout_state)
        q, k, v = _ops.as_autocast_has_them(q, k, v)
        terms = _terms_of_kernels(sinks, seqused_q, seqused_kv, alibi_slopes, bias, attention_mask, dropout_state=dropout_state)
        out, lse = _ops.forward(q, k, v, (causal, scale, layout, top_left, window, deterministic, invariant, softcap, dropout_p), terms)
        return (out, lse) if return_lse else out
    if torch.is_autocast_enabled("cuda"):
        q, k, v = _ops.as_autocast_has_them(q, k, v)
    if forward_ad._current_level >= 0:
        _refuse_forward_mode(q, k, v, sinks, bias)
    options = (causal, scale, layout, top_left, window, deterministic, invariant, softcap, dropout_p)
    is_differentiated = torch.is_grad_enabled() and _calls.needs_grad(q, k, v, out, sinks, bias)
    if out is not None and is_differentiated:
        raise ValueError("a result in out cannot be differentiated: leave out away, or call under torch.no_grad()")
    if any(term is not None for term in (sinks, seqused_q, seqused_kv, alibi_slopes, bias, attention_mask, dropout_state)):
        terms = _terms_of_kernels(sinks, seqused_q, seqused_kv, alibi_slopes, bias, attention_mask, dropout_state=dropout_state)
        if out is None and _operators_are_watched():
            out, lse = _ops.forward(q, k, v, options, terms)
        elif is_differentiated:
            out, lse = _apply_attention_with_terms(q, k, v, options, *terms)
        else:
            out, lse = _calls.forward(q, k, v, options, out, return_lse, terms=terms)
    elif out is None and _operators_are_watched():
        out, lse = _ops.forward(q, k, v, options)
    elif is_differentiated and not return_lse:
        out = None if _attend is None else _attend(q, k, v, options)
        return _apply_attention(q, k, v, options) if out is None else out
    elif is_differentiated:
        out, lse = _apply_attention_with_lse(q, k, v, options)
    else:
        out, lse = _calls.forward(q, k, v, options, out, return_lse)
    return (out, lse) if return_lse else out


def _state_of_dropout(dropout_p, state, q):
    """Of a call that may lack one, or has one in vain."""
    if not dropout_p:
        return None
    return new_dropout_state(q.device) if state is None and isinstance(q, torch.Tensor) else state


def _as_kernels_take_them(numbers):
    """In float32: gradients go back through the cast."""
    if not isinstance(numbers, torch.Tensor) or numbers.dtype not in (torch.float16, torch.bfloat16):
        return numbers  # what it should be is said where calls are checked
    return numbers.float()


def _attention_of_packed(q, k, v, options, out, return_lse, terms):
    """attention() of sequences that lie one behind the other."""
    sinks, bias = terms[0], terms[4]
    if torch._C._are_functorch_transforms_active():
        raise NotImplementedError("packed sequences do not run under the transforms of torch.func (vmap, grad, jvp, ...): call outside of them")
    _refuse_forward_mode(q, k, v, sinks, bias)
    is_differentiated = torch.is_grad_enabled() and _calls.needs_grad(q, k, v, out, sinks, bias)
    if out is not None and is_differentiated:
        raise ValueError("a result in out cannot be differentiated: leave out away, or call under torch.no_grad()")
    q, k, v = _in_batch_entries(True, q, k, v)
    q, k, v = _ops.as_autocast_has_them(q, k, v)
    terms = _terms_of_kernels(*terms)
    if out is None and (torch.compiler.is_compiling() or _operators_are_watched()):
        out, lse = _ops.forward(q, k, v, options, terms)
    elif is_differentiated:
        out, lse = _apply_attention_with_terms(q, k, v, options, *terms)
    else:
        out, lse = _packed_outside_graphs(q, k, v, options, out if out is None else _in_one_batch_entry("out", out), return_lse, terms)
    return (out[0], lse[0]) if return_lse else out[0]


def _in_batch_entries(is_packed, q, k, v):
    """Tensors with a batch, as they are but those of packed sequences."""
    if not is_packed:
        return q, k, v
    return tuple(_in_one_batch_entry(name, tensor) for name, tensor in (("q", q), ("k", k), ("v", v)))


def _in_one_batch_entry(name, tensor):
    if not isinstance(tensor, torch.Tensor) or tensor.dim() != 3:
        what = f"has shape {tuple(tensor.shape)}" if isinstance(tensor, torch.Tensor) else f"is a {type(tensor).__name__}"
        raise ValueError(f"{name} {what}: with cu_seqlens_q and cu_seqlens_kv it must be a tensor of (heads, tokens, head_dim) or, with "
                         "layout='bshd', (tokens, heads, head_dim)")
    return tensor.unsqueeze(0)


@_outside_graphs
def _packed_outside_graphs(q, k, v, options, out, return_lse, terms):
    return _calls.forward(q, k, v, options, out, return_lse, terms=terms)


def _terms_of_kernels(sinks, seqused_q, seqused_kv, alibi_slopes, bias, attention_mask, cu_seqlens_q=None, cu_seqlens_kv=None, dropout_state=None):
    """What requires a gradient must not miss it in silence."""
    if isinstance(alibi_slopes, torch.Tensor) and alibi_slopes.requires_grad and torch.is_grad_enabled():
        raise ValueError("alibi_slopes requires a gradient, and slopes get none: pass alibi_slopes.detach()")
    return terms_of(_as_kernels_take_them(sinks), seqused_q, seqused_kv, _as_kernels_take_them(alibi_slopes), _pairs_of_kernels("bias", bias),
                    _pairs_of_kernels("attention_mask", attention_mask), cu_seqlens_q, cu_seqlens_kv, dropout_state)


def _pairs_of_kernels(name, tensor):
    """A tensor of pairs whose keys lie one after the other, without the dimensions that it repeats along: its gradient goes back to where expand()
    has taken it from."""
    if not isinstance(tensor, torch.Tensor) or tensor.dim() == 0:
        return tensor
    tensor = without_repeats(tensor)
    if tensor.shape[-1] <= 1 or tensor.stride(-1) == 1:
        return tensor
    tell_once(f"{name} whose elements of keys do not lie one after the other", "it is copied")
    return tensor.contiguous()


def _operators_are_watched():
    """Whether a mode of PyTorch (a tracer, fake tensors, a selective checkpoint) or a transform of torch.func waits for operators."""
    return torch._C._len_torch_dispatch_stack() > 0 or torch._C._are_functorch_transforms_active()


class _Attention(torch.autograd.Function):
    """attention() of which a gradient is wanted: keeps out and lse, from which backward finds the probabilities again."""

    @staticmethod
    def forward(ctx, q, k, v, options):
        out, lse = _calls.forward(q, k, v, options, None, True)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.options = options
        return out

    @staticmethod
    def backward(ctx, grad_out):
        return _gradients_of(ctx, grad_out, None)


class _AttentionWithLse(torch.autograd.Function):
    """The same where lse is wanted, too, on which a loss may depend."""

    @staticmethod
    def forward(ctx, q, k, v, options):
        ctx.set_materialize_grads(False)
        out, lse = _calls.forward(q, k, v, options, None, True)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.options = options
        return out, lse

    @staticmethod
    def backward(ctx, grad_out, grad_lse):
        return _gradients_of(ctx, grad_out, grad_lse)


class _AttentionWithTerms(torch.autograd.Function):
    """The same of a call with Terms, of which sinks and a bias have gradients."""

    @staticmethod
    def forward(ctx, q, k, v, options, *terms):
        ctx.set_materialize_grads(False)
        terms = _ops.contiguous_terms(terms)
        out, lse = _calls.forward(q, k, v, options, None, True, terms=terms)
        ctx.save_for_backward(q, k, v, *terms, out, lse)
        ctx.options = options
        return out, lse

    @staticmethod
    def backward(ctx, grad_out, grad_lse):
        q, k, v, *terms, out, lse = ctx.saved_tensors
        if grad_out is None:  # the loss depends on lse alone
            grad_out = torch.zeros_like(out)
        terms, needed_of_terms = Terms._make(terms), Terms._make(ctx.needs_input_grad[4:])
        needs_bias = needed_of_terms.bias
        if torch.compiler.is_compiling() or torch.is_grad_enabled() or _operators_are_watched() or _ops.is_of_batch(grad_out, grad_lse):
            grads = _ops.backward(grad_out, q, k, v, out, lse, grad_lse, ctx.options, terms, needs_bias)
        else:
            grads = _calls.backward_of_graph(grad_out, q, k, v, out, lse, grad_lse, ctx.options, terms=terms, bias_gradient=needs_bias)
        of_terms = Terms(*(None for _ in terms))._replace(sinks=grads[3] if needed_of_terms.sinks else None, bias=grads[-1] if needs_bias else None)
        return (*(grad if needed else None for grad, needed in zip(grads, ctx.needs_input_grad[:3])), None, *of_terms)


def _gradients_of(ctx, grad_out, grad_lse):
    q, k, v, out, lse = ctx.saved_tensors
    if grad_out is None:  # the loss depends on lse alone
        grad_out = torch.zeros_like(out)
    grads = _differentiate(grad_out, q, k, v, out, lse, grad_lse, ctx.options)
    if ctx.needs_input_grad == (True, True, True, False):
        return (*grads, None)
    return (*(grad if needed else None for grad, needed in zip(grads, ctx.needs_input_grad)), None)


def _differentiate(grad_out, q, k, v, out, lse, grad_lse, options):
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or _operators_are_watched() or _ops.is_of_batch(grad_out, grad_lse):
        return _ops.backward(grad_out, q, k, v, out, lse, grad_lse, options)
    return _calls.backward_of_graph(grad_out, q, k, v, out, lse, grad_lse, options)


# Function.apply() makes ready for transforms of torch.func, which attention() sends another way, and then calls this.
_apply_attention = super(torch.autograd.Function, _Attention).apply
_apply_attention_with_lse = super(torch.autograd.Function, _AttentionWithLse).apply
_apply_attention_with_terms = super(torch.autograd.Function, _AttentionWithTerms).apply

# A tape without Python code for calls of a kind that was made before, or None.
_attend = _operators.record_attention(lambda grad_out, q, k, v, out, lse, options: _differentiate(grad_out, q, k, v, out, lse, None, options))


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
    invariant=False,
    softcap=0.0,
    sinks=None,
    seqused_q=None,
    seqused_kv=None,
    alibi_slopes=None,
    bias=None,
    attention_mask=None,
    cu_seqlens_q=None,
    cu_seqlens_kv=None,
    dropout_p=0.0,
    dropout_state=None,
    bias_gradient=False,
):
    """Gradients of a loss with respect to q, k and v, from those with respect to out and lse. attention() needs no such call: autograd
    makes it.

    q, k, v and the options are those of the call of attention() that returned out and lse; nothing is cast here, so that after a call under
    torch.autocast they are what it cast them to. grad_out is like out; grad_lse like lse, or None if the loss does not depend on it. Tensors
    given as grads, like q, k and v, take the result.
    With sinks, float32 here, grads has a fourth tensor like them, and so has what is returned; with bias_gradient one more, like bias.
    Returns (grad_q, grad_k, grad_v). Runs on the device's current stream. Raises ValueError, TypeError or AttuneError.
    """
    options = (causal, scale, layout, top_left, window, deterministic, invariant, softcap, dropout_p)
    terms = terms_of(sinks, seqused_q, seqused_kv, alibi_slopes, bias, attention_mask, cu_seqlens_q, cu_seqlens_kv, dropout_state)
    if cu_seqlens_q is not None or cu_seqlens_kv is not None:
        return _backward_of_packed(grad_out, q, k, v, out, lse, grad_lse, options, grads, terms)
    if grads is None and (torch.compiler.is_compiling() or _operators_are_watched()):
        return _ops.backward(grad_out, q, k, v, out, lse, grad_lse, options, terms, bias_gradient)
    return _backward_outside_graphs(grad_out, q, k, v, out, lse, grad_lse, options, grads, None, terms, bias_gradient)


def _backward_of_packed(grad_out, q, k, v, out, lse, grad_lse, options, grads, terms, prepared=None):
    """backward() of sequences that lie one behind the other, by the prepared kernels if there are some."""
    q, k, v = _in_batch_entries(True, q, k, v)
    grad_out, out = (_in_one_batch_entry(name, tensor) for name, tensor in (("grad_out", grad_out), ("out", out)))
    lse, grad_lse = (_lse_in_one_batch_entry(name, tensor) for name, tensor in (("lse", lse), ("grad_lse", grad_lse)))
    given = grads if grads is None else (*(_in_one_batch_entry(f"grads[{place}]", grad) for place, grad in enumerate(grads[:3])), *grads[3:])
    if prepared is None and grads is None and (torch.compiler.is_compiling() or _operators_are_watched()):
        found = _ops.backward(grad_out, q, k, v, out, lse, grad_lse, options, terms, False)
    else:
        found = _backward_outside_graphs(grad_out, q, k, v, out, lse, grad_lse, options, given, prepared, terms, False)
    return grads if grads is not None else (*(grad[0] for grad in found[:3]), *found[3:])


def _lse_in_one_batch_entry(name, tensor):
    if tensor is None:
        return None
    if not isinstance(tensor, torch.Tensor) or tensor.dim() != 2:
        what = f"has shape {tuple(tensor.shape)}" if isinstance(tensor, torch.Tensor) else f"is a {type(tensor).__name__}"
        raise ValueError(f"{name} {what}: with cu_seqlens_q and cu_seqlens_kv it must be a tensor of (heads, tokens)")
    return tensor.unsqueeze(0)


@_outside_graphs
def unsupported(
    q, k, v, *, causal=False, scale=None, layout="bhsd", top_left=False, window=None, deterministic=None, invariant=False, softcap=0.0,
    sinks=None, seqused_q=None, seqused_kv=None, alibi_slopes=None, bias=None, attention_mask=None, cu_seqlens_q=None, cu_seqlens_kv=None,
    dropout_p=0.0, dropout_state=None
):
    """Why attention() does not serve tensors like these, in a sentence that says what to do; None if it does, and so does its backward pass
    where one of them requires a gradient. For programs that have another way. Nothing is compiled or launched. Raises AttuneError where the
    question cannot be answered, and OSError without the library."""
    options = (causal, scale, layout, top_left, window, deterministic, invariant, softcap, dropout_p)
    try:
        terms = _terms_of_kernels(sinks, seqused_q, seqused_kv, alibi_slopes, bias, attention_mask, cu_seqlens_q, cu_seqlens_kv, dropout_state)
        q, k, v = _in_batch_entries(cu_seqlens_q is not None or cu_seqlens_kv is not None, q, k, v)
    except ValueError as error:
        return str(error)
    passes = [_library.FORWARD] + [_library.BACKWARD] * (torch.is_grad_enabled() and _calls.needs_grad(q, k, v, sinks, bias))
    for pass_ in passes:
        try:
            checked = _calls.Checked(q, k, v, options, pass_, terms=terms, bias_gradient=_calls.needs_grad(bias) and torch.is_grad_enabled())
        except (TypeError, ValueError) as error:
            return str(error)
        reason = "" if checked.is_empty else _library.text_of(checked.library.attune_unsupported, checked.problem)
        if reason:
            return reason
    return None


@_outside_graphs
def _backward_outside_graphs(*arguments):
    return _calls.backward(*arguments)


@_outside_graphs
def prepare(q, k, v, *, causal=False, scale=None, layout="bhsd", top_left=False, window=None, config=None, invariant=False,
            softcap=0.0, sinks=None, seqused_q=None, seqused_kv=None, alibi_slopes=None, bias=None, attention_mask=None,
            cu_seqlens_q=None, cu_seqlens_kv=None, dropout_p=0.0, dropout_state=None):
    """Compiles for tensors like these ahead of the first call, which a capture into a CUDA graph needs. Threads that prepare different
    kernels compile side by side.

    config: the text of one, such as "sm80 q128 kv64 w4 st2", instead of the one that attention() would pick.
    """
    q, k, v = _in_batch_entries(cu_seqlens_q is not None or cu_seqlens_kv is not None, q, k, v)
    q, k, v = _ops.as_autocast_has_them(q, k, v)
    options = (causal, scale, layout, top_left, window, None, invariant, softcap, dropout_p)
    terms = _terms_of_kernels(sinks, seqused_q, seqused_kv, alibi_slopes, bias, attention_mask, cu_seqlens_q, cu_seqlens_kv, dropout_state)
    return Prepared(_calls.Checked(q, k, v, options, _library.FORWARD, terms=terms), config)


@_outside_graphs
def prepare_backward(
    q, k, v, *, causal=False, scale=None, layout="bhsd", top_left=False, window=None, config=None, deterministic=None, invariant=False,
    softcap=0.0, sinks=None, seqused_q=None, seqused_kv=None, alibi_slopes=None, bias=None, attention_mask=None,
    cu_seqlens_q=None, cu_seqlens_kv=None, dropout_p=0.0, dropout_state=None, bias_gradient=False
):
    """The same for backward(), which attention() too runs in its backward pass: with bias_gradient where bias requires a gradient."""
    q, k, v = _in_batch_entries(cu_seqlens_q is not None or cu_seqlens_kv is not None, q, k, v)
    q, k, v = _ops.as_autocast_has_them(q, k, v)
    options = (causal, scale, layout, top_left, window, deterministic, invariant, softcap, dropout_p)
    terms = _terms_of_kernels(sinks, seqused_q, seqused_kv, alibi_slopes, bias, attention_mask, cu_seqlens_q, cu_seqlens_kv, dropout_state)
    return PreparedBackward(_calls.Checked(q, k, v, options, _library.BACKWARD, terms=terms, bias_gradient=bias_gradient), config,
                            bias_gradient)


class _PreparedPass:
    def __init__(self, checked, config):
        if checked.is_empty:
            raise ValueError(f"q has shape {tuple(checked.q.shape)} and k {tuple(checked.k.shape)}: nothing is launched for these, nothing "
                             "can be prepared")
        self._library = checked.library
        self._handle = ctypes.c_void_p()
        self._options = checked.options
        text = None if config is None else config.encode()
        _library.check(self._library.attune_prepare(checked.problem, text, ctypes.byref(self._handle)))
        if config is None:
            self.config, self.origin, self.detail, self.tune_command = _describe(checked)
        else:
            self.config, self.origin, self.detail, self.tune_command = config, "given", "", ""

    def __del__(self):
        if getattr(self, "_handle", None):
            self._library.attune_release(self._handle)


class Prepared(_PreparedPass):
    """A compiled kernel. Calling it launches it, on tensors that differ from the prepared ones at most in batch, heads and lengths. Its
    result cannot be differentiated."""

    @_outside_graphs
    def __call__(self, q, k, v, *, out=None, return_lse=False, sinks=None, seqused_q=None, seqused_kv=None, alibi_slopes=None,
                 bias=None, attention_mask=None, cu_seqlens_q=None, cu_seqlens_kv=None, dropout_state=None):
        is_packed = cu_seqlens_q is not None or cu_seqlens_kv is not None
        q, k, v = _in_batch_entries(is_packed, q, k, v)
        if is_packed and out is not None:
            out = _in_one_batch_entry("out", out)
        q, k, v = _ops.as_autocast_has_them(q, k, v)
        _refuse_transforms()
        _refuse_forward_mode(q, k, v, sinks, bias)
        if torch.is_grad_enabled() and _calls.needs_grad(q, k, v, out, sinks, bias):
            raise ValueError("a prepared call cannot be differentiated: use attention(), or call under torch.no_grad()")
        dropout_state = _state_of_dropout(Options._make(self._options).dropout_p, dropout_state, q)
        terms = _terms_of_kernels(sinks, seqused_q, seqused_kv, alibi_slopes, bias, attention_mask, cu_seqlens_q, cu_seqlens_kv, dropout_state)
        out, lse = _calls.forward(q, k, v, self._options, out, return_lse, self._handle, terms)
        if is_packed:
            out, lse = out[0], lse[0] if return_lse else None
        return (out, lse) if return_lse else out


class PreparedBackward(_PreparedPass):
    """The compiled kernels of a backward pass; called as backward() is, on tensors that differ from the prepared ones at most in batch,
    heads and lengths."""

    def __init__(self, checked, config, bias_gradient):
        super().__init__(checked, config)
        self._bias_gradient = bias_gradient

    @_outside_graphs
    def __call__(self, grad_out, q, k, v, out, lse, *, grad_lse=None, grads=None, sinks=None, seqused_q=None, seqused_kv=None, alibi_slopes=None,
                 bias=None, attention_mask=None, cu_seqlens_q=None, cu_seqlens_kv=None, dropout_state=None):
        _refuse_transforms()
        terms = terms_of(sinks, seqused_q, seqused_kv, alibi_slopes, bias, attention_mask, cu_seqlens_q, cu_seqlens_kv, dropout_state)
        if cu_seqlens_q is not None or cu_seqlens_kv is not None:
            return _backward_of_packed(grad_out, q, k, v, out, lse, grad_lse, self._options, grads, terms, self._handle)
        return _calls.backward(grad_out, q, k, v, out, lse, grad_lse, self._options, grads, self._handle, terms, self._bias_gradient)


def _describe(checked):
    config, origin, detail, tune_command = _library.text_of(checked.library.attune_describe, checked.problem).split("\n")
    return config, origin, detail, tune_command


def _refuse_transforms():
    """What was prepared is no operator: under a transform it would compute something else in silence."""
    if torch._C._are_functorch_transforms_active():
        raise NotImplementedError(
            "a prepared call does not run under the transforms of torch.func (vmap, grad, jvp, ...): use attention(), or call it outside of "
            "them"
        )


def _refuse_forward_mode(*tensors):
    """Where PyTorch would carry tangents along without autograd's tape, a kernel would drop them in silence."""
    if forward_ad._current_level >= 0 and any(
        isinstance(tensor, torch.Tensor) and forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors
    ):
        _ops.refuse_forward_mode()

"""PyTorch's operators of attention whose sequences lie one behind the other (varlen_attn, nested tensors), as enable_sdpa() replaces them: FlashAttention's and
cuDNN's, with cum_seq_q and cum_seq_k. Each takes what the operator takes, and returns what it returns, or None for what goes on to PyTorch's kernels.

Tensors are (tokens, heads, head_dim), LSE is (heads, tokens). Maximum lengths are hints that nothing depends on.
"""

from ._options import Options, Terms
from ._sdpa_calls import backward, forward, is_pytorchs, leave, random_state, seed_and_offset, state_of


def flash_forward(q, k, v, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, return_debug_mask, *, scale=None, window_size_left=None,
                  window_size_right=None, seqused_k=None, alibi_slopes=None, block_table=None, num_splits=None):
    options = _options(is_causal, scale, dropout_p, window_size_left, window_size_right)
    served = _run(q, k, v, cum_seq_q, cum_seq_k, return_debug_mask, options, seqused_k, block_table, alibi_slopes)
    if served is None:
        return None
    out, lse, state = served
    return out, lse, *random_state(q, state), q.new_empty(0)


def flash_forward_into(out, q, k, v, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, return_debug_mask, *, scale=None,
                       window_size_left=None, window_size_right=None, seqused_k=None, alibi_slopes=None, block_table=None, num_splits=None):
    if dropout_p != 0.0:
        return leave("dropout in a tensor of results that is given")  # the operator returns no seed
    options = _options(is_causal, scale, dropout_p, window_size_left, window_size_right)
    served = _run(q, k, v, cum_seq_q, cum_seq_k, return_debug_mask, options, seqused_k, block_table, alibi_slopes, out)
    return None if served is None else served[1]


def flash_backward(grad_out, q, k, v, out, lse, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, rng_state, unused, *, scale=None,
                   window_size_left=None, window_size_right=None):
    options = _options(is_causal, scale, dropout_p, window_size_left, window_size_right)
    return _run_backward(grad_out, q, k, v, out, lse, cum_seq_q, cum_seq_k, rng_state, unused, options)


def cudnn_forward(q, k, v, attn_bias, cum_seq_q, cum_seq_k, max_q, max_k, compute_log_sumexp, dropout_p=0.0, is_causal=False,
                  return_debug_mask=False, *, scale=None, seqused_k=None, block_table=None):
    if attn_bias is not None:
        return None if cum_seq_q is None else leave("a mask of packed sequences")
    # cuDNN's diagonal begins top left, but beside a cache.
    options = _options(is_causal, scale, dropout_p, top_left=is_causal and seqused_k is None)
    served = _run(q, k, v, cum_seq_q, cum_seq_k, return_debug_mask, options, seqused_k, block_table)
    if served is None:
        return None
    out, lse, state = served
    return out, lse, cum_seq_q, cum_seq_k, max_q, max_k, *seed_and_offset(q, state), None


def cudnn_backward(grad_out, q, k, v, out, lse, seed, offset, attn_bias, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, *, scale=None):
    if attn_bias is not None:
        return None
    options = _options(is_causal, scale, dropout_p, top_left=is_causal)
    return _run_backward(grad_out, q, k, v, out, lse, cum_seq_q, cum_seq_k, seed, offset, options)


def _run(q, k, v, cum_seq_q, cum_seq_k, return_debug_mask, options, seqused_k, block_table, alibi_slopes=None, out=None):
    """(out, lse, the state of dropout), or None."""
    if cum_seq_q is None:  # dense tensors come by another operator
        return None
    for is_given, what in ((return_debug_mask, "return_debug_mask=True"),
                           (block_table is not None or cum_seq_k is None, "a cache of keys and values"),
                           (alibi_slopes is not None, "alibi_slopes of PyTorch's operator, which has no gradients with them")):
        if is_given:
            return leave(what)
    terms = Terms(seqused_kv=seqused_k, **_begins(cum_seq_q, cum_seq_k))
    served = forward(*_with_batch(q, k, v), tuple(options), terms, None if out is None else out.unsqueeze(0))
    return None if served is None else (served[0][0], served[1][0], served[2])


def _run_backward(grad_out, q, k, v, out, lse, cum_seq_q, cum_seq_k, seed, offset, options):
    if cum_seq_q is None or cum_seq_q.numel() == 0:
        return None
    if is_pytorchs(options.dropout_p, seed):
        return None
    state = state_of(options.dropout_p, seed, offset)
    if lse.dim() == 3:  # (tokens, heads, 1), of a forward by cuDNN
        lse = lse.squeeze(2).transpose(0, 1)
    terms = Terms(dropout_state=state, **_begins(cum_seq_q, cum_seq_k))
    grads = backward(*_with_batch(grad_out, q, k, v, out, lse), tuple(options), terms)
    return None if grads is None else tuple(grad[0] for grad in grads)


def _with_batch(*tensors):
    return [tensor.unsqueeze(0) for tensor in tensors]


def _begins(cum_seq_q, cum_seq_k):
    return {"cu_seqlens_q": cum_seq_q.contiguous(), "cu_seqlens_kv": cum_seq_k.contiguous()}


def _options(is_causal, scale, dropout_p, left=None, right=None, top_left=False):
    """left, right: of a window, negative or None for all of a side."""
    left, right = (None if side is None or side < 0 else side for side in (left, right))
    if is_causal or right == 0:
        is_causal, right = True, None
    window = None if left is None and right is None else (left, right)
    return Options(causal=is_causal, scale=scale, layout="bshd", top_left=top_left, window=window, dropout_p=dropout_p)


IMPLEMENTATIONS = {
    "_flash_attention_forward": flash_forward,
    "_flash_attention_forward_no_dropout_inplace": flash_forward_into,
    "_flash_attention_backward": flash_backward,
    "_cudnn_attention_forward": cudnn_forward,
    "_cudnn_attention_backward": cudnn_backward,
}

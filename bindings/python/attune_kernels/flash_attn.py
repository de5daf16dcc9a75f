"""flash-attn's functions, served by Attune: in a program that was written for flash-attn 2.8

    from attune_kernels.flash_attn import flash_attn_func

stands where `from flash_attn import flash_attn_func` did. Names, arguments, their order and defaults, shapes of results and kinds of errors
are those of flash-attn. Tensors are (batch, seq, heads, head_dim); a causal mask ends at the last query and the last key; head dimensions up
to 256 are served, whether or not they are multiples of 8.

What Attune has no kernels for (key/value caches) raises NotServed, a NotImplementedError that names it, and never computes something else.
Dropout drops as often as dropout_p says, up to 2 % of it, and other elements than flash-attn's kernels would from the same seed. Two things are more than flash-attn gives: a loss may depend on
softmax_lse, whose gradient flash-attn drops, and torch.autocast casts the arguments.
"""

import torch

from ._drop_in import NotServed, attend, dropout_of, not_served, sees_nothing, signed_exponentials, with_batch

__all__ = ["NotServed", "flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
           "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func", "flash_attn_with_kvcache"]

__version__ = "2.8.3"  # of flash-attn's interface: programs ask for it


def flash_attn_func(
    q,
    k,
    v,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    """softmax(softmax_scale * q k^T + mask) v, differentiable; with a positive softcap of softcap * tanh(softmax_scale * q k^T / softcap).

    q, out: (batch, seq_q, heads, head_dim); k, v: (batch, seq_k, heads_k, head_dim) where heads_k divides heads; float16 or bfloat16 on one
    CUDA device. softmax_scale: 1/sqrt(head_dim) if None. window_size: query i attends to keys i + seq_k - seq_q - left to
    i + seq_k - seq_q + right, -1 for all of a side. alibi_slopes: (heads,) or (batch, heads) float32, by which scores fall with the distance
    of key j from i + seq_k - seq_q; they get no gradient. deterministic: gradients have the same bits on each run.
    dropout_p: elements of the softmax are dropped with this probability, by PyTorch's generator.
    Returns out or, with return_attn_probs, (out, softmax_lse, exponentials): softmax_lse is (batch, heads, seq_q) float32, +inf where a query
    attends to nothing; exponentials are empty without dropout and else (batch, heads, seq_q, seq_k), what the softmax has before the row is divided
    by its sum, negative where an element was dropped. PyTorch's operations compute them: they are for tests.
    Raises RuntimeError, ValueError, TypeError and NotServed.
    """
    dropout = dropout_of(dropout_p, q)
    out, lse = attend(q, k, v, softmax_scale, causal, window_size, softcap, deterministic, return_attn_probs, alibi_slopes, **dropout)
    if not return_attn_probs:
        return out
    exponentials = torch.empty((0,), dtype=out.dtype, device=out.device) if not dropout else signed_exponentials(
        q, k, softmax_scale, causal, window_size, softcap, alibi_slopes, None, **dropout)
    if sees_nothing(q, k, causal, window_size):
        lse = lse.masked_fill(lse == -torch.inf, torch.inf)
    return out, lse, exponentials


def flash_attn_qkvpacked_func(
    qkv,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    """flash_attn_func() of the parts of qkv, (batch, seq, 3, heads, head_dim)."""
    q, k, v = _parts("qkv", qkv, 3)
    return flash_attn_func(
        q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs
    )


def flash_attn_kvpacked_func(
    q,
    kv,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    """flash_attn_func() of q and the parts of kv, (batch, seq_k, 2, heads_k, head_dim)."""
    k, v = _parts("kv", kv, 2)
    return flash_attn_func(
        q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs
    )


def _parts(name, packed, number):
    if packed.dim() != 5 or packed.shape[2] != number:
        raise RuntimeError(f"{name} has shape {tuple(packed.shape)}: it must be (batch, seq, {number}, heads, head_dim)")
    return packed.unbind(2)


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
    block_table=None,
):
    """flash_attn_func() of sequences that lie one behind the other in q, (tokens_q, heads, head_dim), and in k and v, (tokens_k, heads_k, head_dim):
    sequence b is the queries from cu_seqlens_q[b] up to cu_seqlens_q[b + 1], and keys likewise; (sequences + 1,) int32 on the device, which the
    host never reads. Windows, diagonals and slopes are those of each sequence. max_seqlen_q and max_seqlen_k are hints, on
    which only the extents of exponentials depend, (sequences, heads, max_seqlen_q, max_seqlen_k). Out is like q, and 0 behind the last sequence;
    softmax_lse is (heads, tokens_q)."""
    if block_table is not None:
        raise not_served("a cache of keys and values")
    dropout = dropout_of(dropout_p, q)
    out, lse = attend(q, k, v, softmax_scale, causal, window_size, softcap, deterministic, return_attn_probs, alibi_slopes,
                      (cu_seqlens_q, cu_seqlens_k), **dropout)
    if not return_attn_probs:
        return out
    lse = lse.masked_fill(lse == -torch.inf, torch.inf)
    exponentials = torch.empty((0,), dtype=out.dtype, device=out.device) if not dropout else signed_exponentials(
        with_batch(q, cu_seqlens_q, max_seqlen_q), with_batch(k, cu_seqlens_k, max_seqlen_k), softmax_scale, causal, window_size, softcap,
        alibi_slopes, (cu_seqlens_q.diff(), cu_seqlens_k.diff()), **dropout)
    return out, lse, exponentials


def flash_attn_varlen_qkvpacked_func(
    qkv,
    cu_seqlens,
    max_seqlen,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    """flash_attn_varlen_func() of the parts of qkv, (tokens, 3, heads, head_dim)."""
    q, k, v = _parts_of_packed("qkv", qkv, 3)
    return flash_attn_varlen_func(
        q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
        return_attn_probs
    )


def flash_attn_varlen_kvpacked_func(
    q,
    kv,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    """flash_attn_varlen_func() of q and the parts of kv, (tokens_k, 2, heads_k, head_dim)."""
    k, v = _parts_of_packed("kv", kv, 2)
    return flash_attn_varlen_func(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
        deterministic, return_attn_probs
    )


def _parts_of_packed(name, packed, number):
    if packed.dim() != 4 or packed.shape[1] != number:
        raise RuntimeError(f"{name} has shape {tuple(packed.shape)}: it must be (tokens, {number}, heads, head_dim)")
    return packed.unbind(1)


def flash_attn_with_kvcache(
    q,
    k_cache,
    v_cache,
    k=None,
    v=None,
    rotary_cos=None,
    rotary_sin=None,
    cache_seqlens=None,
    cache_batch_idx=None,
    cache_leftpad=None,
    block_table=None,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    rotary_interleaved=True,
    alibi_slopes=None,
    num_splits=0,
    return_softmax_lse=False,
):
    """Raises NotServed."""
    raise not_served("a cache of keys and values")

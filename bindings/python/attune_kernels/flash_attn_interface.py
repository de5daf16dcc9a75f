"""FlashAttention-3's functions, served by Attune: in a program that was written for its flash_attn_interface

    from attune_kernels.flash_attn_interface import flash_attn_func

stands where `from flash_attn_interface import flash_attn_func` did. All that attune_kernels.flash_attn says of flash-attn's functions holds
for these. num_splits and pack_gqa tell FlashAttention how to go about its work; they are taken and have no effect, for Attune picks a
kernel by itself.
"""

import torch

from ._drop_in import NotServed, attend, not_served

__all__ = ["NotServed", "flash_attn_combine", "flash_attn_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
           "flash_attn_with_kvcache", "get_scheduler_metadata"]

__version__ = "3.0.0"  # of flash-attn-3's interface: programs ask for it


def flash_attn_func(
    q,
    k,
    v,
    softmax_scale=None,
    causal=False,
    qv=None,
    q_descale=None,
    k_descale=None,
    v_descale=None,
    window_size=(-1, -1),
    attention_chunk=0,
    softcap=0.0,
    num_splits=1,
    pack_gqa=None,
    deterministic=False,
    sm_margin=0,
    return_attn_probs=False,
):
    """softmax(softmax_scale * q k^T + mask) v, differentiable; with a positive softcap of softcap * tanh(softmax_scale * q k^T / softcap).

    q, out: (batch, seq_q, heads, head_dim); k, v: (batch, seq_k, heads_k, head_dim) where heads_k divides heads; float16 or bfloat16 on one
    CUDA device. softmax_scale: 1/sqrt(head_dim) if None. window_size: query i attends to keys i + seq_k - seq_q - left to
    i + seq_k - seq_q + right, -1 for all of a side. deterministic: gradients have the same bits on each run.
    Returns out or, with return_attn_probs, (out, softmax_lse): (batch, heads, seq_q) float32, -inf where a query attends to nothing.
    Raises RuntimeError, ValueError, TypeError and NotServed.
    """
    _refuse(q, (q_descale, k_descale, v_descale), qv, attention_chunk, sm_margin)
    out, lse = attend(q, k, v, softmax_scale, causal, window_size, softcap, deterministic, return_attn_probs)
    return (out, lse) if return_attn_probs else out


def flash_attn_qkvpacked_func(
    qkv,
    softmax_scale=None,
    causal=False,
    q_descale=None,
    k_descale=None,
    v_descale=None,
    window_size=(-1, -1),
    attention_chunk=0,
    softcap=0.0,
    deterministic=False,
    num_heads_q=None,
    sm_margin=0,
    return_attn_probs=False,
):
    """flash_attn_func() of the parts of qkv: (batch, seq, 3, heads, head_dim) or, with num_heads_q, (batch, seq, heads, head_dim), whose
    heads are those of q, then those of k, then as many of v."""
    if qkv.dim() == 5:
        assert qkv.shape[2] == 3, f"qkv has shape {tuple(qkv.shape)}: it must be (batch, seq, 3, heads, head_dim)"
        q, k, v = qkv.unbind(2)
    else:
        assert qkv.dim() == 4, f"qkv has shape {tuple(qkv.shape)}: it must have 5 dimensions, or 4"
        assert num_heads_q is not None, "qkv has 4 dimensions: num_heads_q must say how many heads are q's"
        heads_kv = (qkv.shape[2] - num_heads_q) // 2
        assert num_heads_q + 2 * heads_kv == qkv.shape[2], f"qkv has {qkv.shape[2]} heads, {num_heads_q} of them q's: the others cannot be halved"
        q, k, v = qkv.split([num_heads_q, heads_kv, heads_kv], 2)
    return flash_attn_func(
        q,
        k,
        v,
        softmax_scale,
        causal,
        None,
        q_descale,
        k_descale,
        v_descale,
        window_size,
        attention_chunk,
        softcap,
        deterministic=deterministic,
        sm_margin=sm_margin,
        return_attn_probs=return_attn_probs,
    )


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    seqused_q=None,
    seqused_k=None,
    softmax_scale=None,
    causal=False,
    qv=None,
    q_descale=None,
    k_descale=None,
    v_descale=None,
    window_size=(-1, -1),
    attention_chunk=0,
    softcap=0.0,
    num_splits=1,
    pack_gqa=None,
    deterministic=False,
    sm_margin=0,
    return_attn_probs=False,
):
    """flash_attn_func() of sequences that lie one behind the other in q, (tokens_q, heads, head_dim), and in k and v, (tokens_k, heads_k, head_dim):
    sequence b is the queries from cu_seqlens_q[b] up to cu_seqlens_q[b + 1], and keys likewise, of which the first seqused_q[b] and seqused_k[b]
    count; (sequences + 1,) and (sequences,) int32 on the device, which the host never reads. Windows and diagonals are those of each sequence.
    max_seqlen_q and max_seqlen_k are hints that nothing depends on. Out is like q, and 0 where queries do not count; softmax_lse is (heads,
    tokens_q)."""
    _refuse(q, (q_descale, k_descale, v_descale), qv, attention_chunk, sm_margin)
    if cu_seqlens_q is None or cu_seqlens_k is None:
        raise not_served("packed queries beside keys that are not, or the other way about")
    used = {name: tensor for name, tensor in (("seqused_q", seqused_q), ("seqused_kv", seqused_k)) if tensor is not None}
    out, lse = attend(q, k, v, softmax_scale, causal, window_size, softcap, deterministic, return_attn_probs, begins=(cu_seqlens_q, cu_seqlens_k), **used)
    return (out, lse) if return_attn_probs else out


def flash_attn_combine(out_partial, lse_partial, out=None, out_dtype=None):
    """Raises NotServed."""
    raise not_served("combining results of parts of the keys")


def flash_attn_with_kvcache(
    q,
    k_cache,
    v_cache,
    k=None,
    v=None,
    qv=None,
    rotary_cos=None,
    rotary_sin=None,
    cache_seqlens=None,
    cache_batch_idx=None,
    cache_leftpad=None,
    page_table=None,
    cu_seqlens_q=None,
    cu_seqlens_k_new=None,
    max_seqlen_q=None,
    rotary_seqlens=None,
    q_descale=None,
    k_descale=None,
    v_descale=None,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    attention_chunk=0,
    softcap=0.0,
    rotary_interleaved=True,
    scheduler_metadata=None,
    num_splits=0,
    pack_gqa=None,
    sm_margin=0,
    return_softmax_lse=False,
):
    """Raises NotServed."""
    raise not_served("a cache of keys and values")


def get_scheduler_metadata(
    batch_size,
    max_seqlen_q,
    max_seqlen_k,
    num_heads_q,
    num_heads_kv,
    headdim,
    cache_seqlens,
    qkv_dtype=torch.bfloat16,
    headdim_v=None,
    cu_seqlens_q=None,
    cu_seqlens_k_new=None,
    cache_leftpad=None,
    page_size=None,
    max_seqlen_k_new=0,
    causal=False,
    window_size=(-1, -1),
    attention_chunk=0,
    has_softcap=False,
    num_splits=0,
    pack_gqa=None,
    sm_margin=0,
):
    """Raises NotServed."""
    raise not_served("a cache of keys and values")


def _refuse(q, descale_factors, qv, attention_chunk, sm_margin):
    if getattr(q, "dtype", None) in _FP8 or any(factor is not None for factor in descale_factors):
        raise not_served("FP8")
    if qv is not None:
        raise not_served("qv")
    if attention_chunk != 0:
        raise not_served("attention_chunk")
    if sm_margin != 0:
        raise not_served("sm_margin")


_FP8 = tuple(getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name))

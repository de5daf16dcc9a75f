"""FlashAttention-4's functions, served by Attune: in a program that was written for its flash_attn.cute

    from attune_kernels.cute import flash_attn_func

stands where `from flash_attn.cute import flash_attn_func` did. All that attune_kernels.flash_attn says of flash-attn's functions holds for these,
but that they return a pair. num_splits and pack_gqa tell FlashAttention how to go about its work; they are taken and have no effect, for Attune
picks a kernel by itself. What only its kernels take is refused by name.
"""

import torch

from ._drop_in import NotServed, attend, not_served

__all__ = ["NotServed", "flash_attn_func", "flash_attn_varlen_func"]


def flash_attn_func(
    q,
    k,
    v,
    qv=None,
    gather_kv_indices=None,
    softmax_scale=None,
    causal=False,
    window_size=(None, None),
    learnable_sink=None,
    softcap=0.0,
    num_splits=1,
    pack_gqa=None,
    deterministic=False,
    score_mod=None,
    score_mod_bwd=None,
    mask_mod=None,
    aux_tensors=None,
    aux_scalars=None,
    block_sparse_tensors=None,
    block_sparse_tensors_bwd=None,
    return_lse=False,
    gather_bwd_recompute_p=False,
    gather_bwd_token_chunk=None,
):
    """softmax(softmax_scale * q k^T + mask) v, differentiable; with a positive softcap of softcap * tanh(softmax_scale * q k^T / softcap).

    q, out: (batch, seq_q, heads, head_dim); k, v: (batch, seq_k, heads_k, head_dim) where heads_k divides heads; float16 or bfloat16 on one
    CUDA device. softmax_scale: 1/sqrt(head_dim) if None. window_size: query i attends to keys i + seq_k - seq_q - left to
    i + seq_k - seq_q + right, None for all of a side. learnable_sink: (heads,), float16, bfloat16 or float32, a number that counts in the
    softmax of each query of its head and has no value; gradients flow to it. deterministic: gradients have the same bits on each run.
    Returns (out, lse): lse is (batch, heads, seq_q) float32 with return_lse or where a gradient is wanted, else None.
    Raises RuntimeError, ValueError, TypeError and NotServed.
    """
    _refuse(qv=qv, gather_kv_indices=gather_kv_indices, score_mod=score_mod, score_mod_bwd=score_mod_bwd, mask_mod=mask_mod, aux_tensors=aux_tensors,
            aux_scalars=aux_scalars, block_sparse_tensors=block_sparse_tensors, block_sparse_tensors_bwd=block_sparse_tensors_bwd,
            gather_bwd_recompute_p=gather_bwd_recompute_p or None, gather_bwd_token_chunk=gather_bwd_token_chunk)
    return _attend(q, k, v, softmax_scale, causal, window_size, softcap, deterministic, return_lse, learnable_sink)


def flash_attn_varlen_func(
    q,
    k,
    v,
    qv=None,
    cu_seqlens_q=None,
    cu_seqlens_k=None,
    max_seqlen_q=None,
    max_seqlen_k=None,
    min_seqlen_k=None,
    seqused_q=None,
    seqused_k=None,
    gather_kv_indices=None,
    page_table=None,
    softmax_scale=None,
    causal=False,
    window_size=(None, None),
    learnable_sink=None,
    softcap=0.0,
    num_splits=1,
    pack_gqa=None,
    deterministic=False,
    score_mod=None,
    score_mod_bwd=None,
    mask_mod=None,
    block_sparse_tensors=None,
    aux_tensors=None,
    aux_scalars=None,
    return_lse=False,
    scheduler_metadata=None,
    seqlen_k_per_split=None,
    disable_scheduler_metadata=False,
    gather_bwd_recompute_p=False,
    gather_bwd_token_chunk=None,
):
    """flash_attn_func() of sequences that are the first seqused_q queries and seqused_k keys of their batch entries, (batch,) int32: rows behind
    them are read into no result, and get 0. With cu_seqlens_q and cu_seqlens_k, (sequences + 1,) int32, the sequences lie one behind the other in
    q, (tokens_q, heads, head_dim), and in k and v: sequence b is the queries from cu_seqlens_q[b] up to cu_seqlens_q[b + 1], and keys likewise; lse
    is (heads, tokens_q). max_seqlen_q and its like are hints that nothing depends on."""
    if (cu_seqlens_q is None) != (cu_seqlens_k is None):
        raise not_served("packed queries beside keys that are not, or the other way about")
    if page_table is not None:
        raise not_served("a cache of keys and values")
    _refuse(qv=qv, gather_kv_indices=gather_kv_indices, score_mod=score_mod, score_mod_bwd=score_mod_bwd, mask_mod=mask_mod, aux_tensors=aux_tensors,
            aux_scalars=aux_scalars, block_sparse_tensors=block_sparse_tensors, gather_bwd_recompute_p=gather_bwd_recompute_p or None,
            gather_bwd_token_chunk=gather_bwd_token_chunk)
    return _attend(q, k, v, softmax_scale, causal, window_size, softcap, deterministic, return_lse, learnable_sink,
                   {name: tensor for name, tensor in (("seqused_q", seqused_q), ("seqused_kv", seqused_k)) if tensor is not None},
                   None if cu_seqlens_q is None else (cu_seqlens_q, cu_seqlens_k))


# What an argument asks for, where its name alone does not tell.
_FEATURES = {"score_mod_bwd": "score_mod", "aux_tensors": "score_mod", "aux_scalars": "score_mod", "block_sparse_tensors_bwd": "block_sparse_tensors",
             "gather_bwd_recompute_p": "gather_kv_indices", "gather_bwd_token_chunk": "gather_kv_indices"}


def _refuse(**given):
    for name, value in given.items():
        if value is not None:
            raise not_served(_FEATURES.get(name, name))


def _attend(q, k, v, softmax_scale, causal, window_size, softcap, deterministic, return_lse, sinks, lengths={}, begins=None):
    left, right = window_size
    if (left or 0) < 0 or (right or 0) < 0:
        if not ((left or 0) < 0 and (right or 0) < 0):
            raise not_served("a window that ends before the diagonal or begins behind it")
        left = right = None
    terms = lengths if sinks is None else {"sinks": sinks, **lengths}
    is_differentiated = torch.is_grad_enabled() and any(getattr(tensor, "requires_grad", False) for tensor in (q, k, v, sinks))
    return attend(q, k, v, softmax_scale, causal, (-1 if left is None else left, -1 if right is None else right), softcap, deterministic,
                  return_lse or is_differentiated, begins=begins, **terms)

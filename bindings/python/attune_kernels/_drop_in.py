"""What the interfaces of flash-attn have in common: how their arguments are meant, and what Attune does not serve of them."""

import torch

from . import attention, dropout_mask, new_dropout_state


class NotServed(NotImplementedError):
    """A call of another library's interface asks for something that Attune has no kernels for: NotServed(feature, instead), what it is in a
    few words, and what to do instead."""

    # torch.compile raises it as it is for want of an __init__ of its own.
    @property
    def feature(self):
        return self.args[0]

    def __str__(self):
        return f"attune does not serve {self.args[0]}: {self.args[1]}"


_INSTEAD = {
    "FP8": "cast q, k and v to torch.bfloat16 and leave the descale factors out",
    "qv": "pass qv=None; where both head dims add up to at most 256, concatenate qv to q and v to k, and pad v with zeros",
    "attention_chunk": "pass attention_chunk=0, or make one call for each chunk",
    "sm_margin": "pass sm_margin=0; kernels take all multiprocessors of the GPU",
    "a head_dim of v unlike that of q": "pad v with zeros to the head_dim of q, and cut the result",
    "packed queries beside keys that are not, or the other way about": "pass both cu_seqlens_q and cu_seqlens_k, or neither and seqused_q and seqused_k",
    "a cache of keys and values": "write new keys and values into the cache by tensor operations, and call flash_attn_func on its filled part",
    "gather_kv_indices": "gather the keys and values of each query by torch.gather, and make a call for each query",
    "score_mod": "attune_kernels.attention() has softcap, alibi_slopes and bias, a tensor that is added to scores",
    "mask_mod": "attune_kernels.attention() has attention_mask, a tensor of booleans",
    "block_sparse_tensors": "attune_kernels.attention() has attention_mask, a tensor of booleans; it skips no block",
    "a window that ends before the diagonal or begins behind it": "pass attention_mask of attune_kernels.attention(), a tensor of booleans",
    "combining results of parts of the keys": "call flash_attn_func on all keys: Attune splits them itself where rows of queries are few",
}


def not_served(feature):
    return NotServed(feature, _INSTEAD[feature])


def attend(q, k, v, softmax_scale, causal, window_size, softcap, deterministic, wants_lse, alibi_slopes=None, begins=None, **terms):
    """(out, lse or None) of tensors (batch, seq, heads, head_dim) or, with begins, (cu_seqlens_q, cu_seqlens_k), of packed ones (tokens, heads,
    head_dim), whose lse is (heads, tokens). causal and window_size are aligned bottom right, -1 opens a side of the
    window, a softcap that is not positive is none, and a head_dim that is no multiple of 8 is padded with zeros, as flash-attn has them. lse is
    -inf where a query sees nothing. terms: others of attention()'s arguments."""
    head_dim, batch = _check(q, k, v, begins)
    if softmax_scale is None:
        softmax_scale = head_dim**-0.5
    q, k, v = (tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in (q, k, v))
    missing = -head_dim % 8
    if missing:
        q, k, v = (torch.nn.functional.pad(tensor, (0, missing)) for tensor in (q, k, v))
    left, right = sides(q, k, causal, window_size)
    is_causal = left is None and right == 0
    if isinstance(alibi_slopes, torch.Tensor):
        _check_slopes(batch, q.shape[-2], alibi_slopes)
        alibi_slopes = alibi_slopes.detach()  # they get no gradient there, either
    result = attention(
        q,
        k,
        v,
        causal=is_causal,
        scale=softmax_scale,
        layout="bshd",
        window=None if is_causal or (left is None and right is None) else (left, right),
        softcap=softcap if softcap > 0 else 0.0,
        alibi_slopes=alibi_slopes,
        **({} if begins is None else dict(zip(("cu_seqlens_q", "cu_seqlens_kv"), begins))),
        **terms,
        return_lse=wants_lse,
        deterministic=True if deterministic else None,  # None: as torch.use_deterministic_algorithms() says
    )
    out, lse = result if wants_lse else (result, None)
    return (out[..., :head_dim] if missing else out), lse


def dropout_of(dropout_p, q):
    """attention()'s arguments, with a new state; none without dropout. Raises RuntimeError as flash-attn does."""
    if dropout_p == 0:
        return {}
    if not 0 < dropout_p < 1:
        raise RuntimeError(f"dropout_p is {dropout_p}: it must be at least 0 and less than 1")
    if not isinstance(q, torch.Tensor) or q.device.type != "cuda":
        return {"dropout_p": dropout_p}  # what is wrong is said where tensors are checked
    return {"dropout_p": dropout_p, "dropout_state": new_dropout_state(q.device)}


def signed_exponentials(q, k, softmax_scale, causal, window_size, softcap, alibi_slopes, lengths, dropout_p, dropout_state):
    """exp(score - the row's largest one) of (batch, seq, heads, head_dim), in q's type, of which dropped elements are negative; 0 where a key is
    hidden. lengths: None, or the queries and the keys that each batch entry has, the first ones."""
    batch, queries, heads, head_dim = q.shape
    keys, group = k.shape[1], heads // k.shape[2]
    scores = torch.einsum("bihd,bjhd->bhij", q.detach().float(), k.detach().float().repeat_interleave(group, 2))
    scores *= head_dim**-0.5 if softmax_scale is None else softmax_scale
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    i, j = torch.arange(queries, device=q.device)[:, None], torch.arange(keys, device=q.device)
    of_queries, of_keys = (queries, keys) if lengths is None else (one.view(-1, 1, 1, 1) for one in lengths)
    distance = j - i - (of_keys - of_queries)
    if alibi_slopes is not None:
        scores -= alibi_slopes.reshape(-1, heads, 1, 1) * distance.abs()
    left, right = (int(side) for side in window_size)
    hidden = (i >= of_queries) | (j >= of_keys)
    if left >= 0:
        hidden = hidden | (distance < -left)
    if causal or right >= 0:
        hidden = hidden | (distance > (0 if causal else right))
    scores.masked_fill_(hidden, -torch.inf)
    exponentials = torch.exp(scores - scores.amax(-1, keepdim=True)).nan_to_num_(0).to(q.dtype)
    return torch.where(dropout_mask(dropout_p, dropout_state, (batch, heads, queries, keys)), exponentials, -exponentials)


def with_batch(packed, begins, longest):
    """Packed rows (tokens, heads, head_dim) as (sequences, longest, heads, head_dim), with anything behind those of a sequence."""
    rows = begins[:-1, None].long() + torch.arange(longest, device=packed.device)
    return packed[rows.clamp_(max=max(0, packed.shape[0] - 1))]


def _check_slopes(batch, heads, slopes):
    if slopes.dtype != torch.float32:
        raise RuntimeError(f"alibi_slopes is {slopes.dtype}: it must be torch.float32")
    if slopes.stride(-1) != 1 or tuple(slopes.shape) not in ((heads,), (batch, heads)):
        raise RuntimeError(f"alibi_slopes has shape {tuple(slopes.shape)}: it must be (heads,) or (batch, heads), with a contiguous last dimension")


def sides(q, k, causal, window_size):
    """(left, right) of the window that flash-attn's arguments stand for: None where no key is out of reach."""
    left, right = (int(side) for side in window_size)
    if causal:
        right = 0
    return None if left < 0 or left >= k.shape[-3] - 1 else left, None if right < 0 or right >= q.shape[-3] - 1 else right


def sees_nothing(q, k, causal, window_size):
    """Whether some query attends to no key. The first one does where any does: the window reaches its key only from the left."""
    right = sides(q, k, causal, window_size)[1]
    return k.shape[1] == 0 or (right is not None and k.shape[1] - q.shape[1] + right < 0)


def _check(q, k, v, begins):
    """The head_dim and the number of sequences; raises RuntimeError for what flash-attn refuses so. What remains is attention()'s to check."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}: it must be a torch.Tensor")
        if tensor.dim() != (4 if begins is None else 3):
            shape = "(batch, seq, heads, head_dim)" if begins is None else "(tokens, heads, head_dim)"
            raise RuntimeError(f"{name} has shape {tuple(tensor.shape)}: it must be {shape}")
        if tensor.device.type != "cuda":
            raise RuntimeError(f"{name} is on {tensor.device}: it must be on a CUDA device")
        if tensor.dtype not in (torch.float16, torch.bfloat16) and not torch.is_autocast_enabled("cuda"):
            raise RuntimeError(f"{name} is {tensor.dtype}: only torch.float16 and torch.bfloat16 are served")
    if not torch.is_autocast_enabled("cuda") and not q.dtype == k.dtype == v.dtype:
        raise RuntimeError(f"q is {q.dtype}, k {k.dtype} and v {v.dtype}: they must be equal")
    *batch, _, heads, head_dim = q.shape
    if not 0 < head_dim <= 256:
        raise RuntimeError(f"head_dim is {head_dim}: it must be at most 256")
    if list(k.shape[:-3]) != batch or k.shape[-1] != head_dim or v.shape[:-1] != k.shape[:-1]:
        raise RuntimeError(f"q has shape {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)}: batch and head_dim must be equal, and "
                           "k and v of one length and number of heads")
    if v.shape[-1] != head_dim:
        raise not_served("a head_dim of v unlike that of q")
    heads_kv = k.shape[-2]
    if heads_kv == 0 or heads % heads_kv != 0:
        raise RuntimeError(f"q has {heads} heads and k {heads_kv}: those of k must divide those of q")
    return head_dim, batch[0] if begins is None else _sequences_of(*begins)


def _sequences_of(*begins):
    """As many as cu_seqlens_q and cu_seqlens_k name."""
    for name, tensor in zip(("cu_seqlens_q", "cu_seqlens_k"), begins):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}: it must be a torch.Tensor")
        if tensor.dtype != torch.int32:
            raise RuntimeError(f"{name} is {tensor.dtype}: it must be torch.int32")
        if tensor.dim() != 1 or tensor.shape[0] < 2 or tensor.shape != begins[0].shape:
            raise RuntimeError(f"{name} has shape {tuple(tensor.shape)}: it must be (sequences + 1,), and as long as cu_seqlens_q")
    return begins[0].shape[0] - 1

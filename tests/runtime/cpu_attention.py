"""attention() on tensors of the CPU: the library's calls are made by PyTorch's operations. `calls` holds what was asked for, and `terms_of_calls` the
Terms of each forward pass, or None."""

import unittest.mock

import torch

import attune_kernels as attune
from attune_kernels import _attention, _calls, _checked, _library, _ops
from attune_kernels._options import Options, Terms

calls, terms_of_calls = [], []


def install():
    """From now on, until the process ends."""
    for name, function in (("forward", _forward), ("backward", _backward), ("_known_calls", None)):
        unittest.mock.patch.object(_calls, name, function).start()
    unittest.mock.patch.object(_calls.Checked, "check_tensor", lambda *_: None).start()
    unittest.mock.patch.object(_attention, "_attend", None).start()
    unittest.mock.patch.object(_library, "text_of", lambda *_: "").start()  # which asks for a device
    for name, function in (("forward", _ops._run_forward), ("backward", _ops._run_backward),
                           ("forward_with_terms", _ops._run_forward_with_terms), ("backward_with_terms", _ops._run_backward_with_terms)):
        _ops._defined.impl(name, function, "CPU")


def hidden(rows, keys, causal=False, top_left=False, window=None):
    """Which keys a row does not see."""
    row = torch.arange(rows)[:, None] + (0 if top_left else keys - rows)
    column = torch.arange(keys)
    unseen = (column > row) if causal else torch.zeros(rows, keys, dtype=torch.bool)
    if window is not None:
        left, right = _checked.window_sides(window, causal, top_left)
        if left >= 0:
            unseen = unseen | (column < row - left)
        if right >= 0:
            unseen = unseen | (column > row + right)
    return unseen


def _as_bhsd(layout, *tensors):
    return tensors if layout == "bhsd" else [tensor.transpose(1, 2) for tensor in tensors]


def _lengths(lengths, tensor):
    return [tensor.shape[2]] * tensor.shape[0] if lengths is None else lengths.tolist()


def _used(terms, of_queries, of_keys):
    """Tensors with zeros behind the used rows."""
    if terms is None:
        return *of_queries, *of_keys
    results = []
    for lengths, tensors in ((terms.seqused_q, of_queries), (terms.seqused_kv, of_keys)):
        for tensor in tensors:
            count = torch.tensor(_lengths(lengths, tensor))[:, None, None, None]
            results.append(tensor.masked_fill(torch.arange(tensor.shape[2])[:, None] >= count, 0))
    return tuple(results)


def _products(q, k, options):
    """Scores before terms and mask."""
    scale, softcap = Options._make(options).scale, Options._make(options).softcap
    scaled = q.float() @ k.float().transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    return softcap * torch.tanh(scaled / softcap) if softcap > 0 else scaled


def _scores(q, k, options, terms=None):
    causal, _, _, top_left, window, *_ = options
    scores = _products(q, k, options)
    if terms is not None and terms.alibi_slopes is not None:
        ends = [torch.tensor(_lengths(lengths, one)) for lengths, one in ((terms.seqused_q, q), (terms.seqused_kv, k))]
        apart = (torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])) + (ends[1] - ends[0])[:, None, None, None]
        scores = scores - terms.alibi_slopes.expand(q.shape[0], -1)[:, :, None, None] * apart.abs()
    if terms is not None and terms.bias is not None:
        scores = scores + terms.bias.float()
    if terms is not None and terms.attention_mask is not None:
        scores = scores.masked_fill(~terms.attention_mask, -torch.inf)
    if terms is None or (terms.seqused_q is None and terms.seqused_kv is None):
        return scores.masked_fill(hidden(q.shape[2], k.shape[2], causal, top_left, window), -torch.inf)
    unseen = torch.ones(q.shape[0], 1, q.shape[2], k.shape[2], dtype=torch.bool)
    for batch, (rows, keys) in enumerate(zip(_lengths(terms.seqused_q, q), _lengths(terms.seqused_kv, k))):
        unseen[batch, 0, :rows, :keys] = hidden(rows, keys, causal, top_left, window)
    return scores.masked_fill(unseen, -torch.inf)


def _kept(q, k, options, terms):
    """What each element of the softmax of (batch, heads, seq, head_dim) counts under dropout."""
    dropout_p = Options._make(options).dropout_p
    if dropout_p == 0:
        return 1
    sequence = getattr(terms, "sequence", 0)  # of packed ones
    mask = attune.dropout_mask(dropout_p, terms.dropout_state, (sequence + q.shape[0], q.shape[1], q.shape[2], k.shape[2]))
    return mask[sequence:] / (1 - dropout_p)


class _Alone(Terms):
    """Those of one packed sequence, which is the only one of its call."""

    sequence = 0


def _require_real(**tensors):
    """As the library takes them: real memory, a contiguous last dimension, lse contiguous."""
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor) or not tensor.data_ptr():
            raise TypeError(f"{name} is a {type(tensor).__name__} without memory of its own")
        if tensor.stride(-1) != 1 or ("lse" in name and not tensor.is_contiguous()):
            raise ValueError(f"{name} is not contiguous")


@torch.no_grad()
def _forward(q, k, v, options, out=None, return_lse=False, prepared=None, terms=None):
    sinks = None if terms is None else terms.sinks
    _require_real(q=q, k=k, v=v, sinks=sinks, out=out, bias=None if terms is None else terms.bias)
    calls.append(("forward", tuple(q.shape), tuple(k.shape), options))
    terms_of_calls.append(terms)
    layout = options[2]
    if terms is not None and terms.cu_seqlens_q is not None:
        return _forward_of_packed(q, k, v, options, out, return_lse, terms)
    q, k, v = _as_bhsd(layout, q, k, v)
    group = q.shape[1] // k.shape[1]
    q, k, v = _used(terms, (q,), (k, v))
    scores = _scores(q, k.repeat_interleave(group, 1), options, terms)
    if sinks is not None:
        scores = torch.cat([scores, sinks[None, :, None, None].expand(*scores.shape[:3], 1)], -1)
    result = ((torch.softmax(scores, -1).nan_to_num(0)[..., :k.shape[2]] * _kept(q, k, options, terms)) @ v.repeat_interleave(group, 1).float()).to(q.dtype)
    result = _as_bhsd(layout, result)[0]
    return result.contiguous() if out is None else out.copy_(result), torch.logsumexp(scores, -1) if return_lse else None


def pairs_of_sequence(tensor, sequence, queries, keys):
    """What a tensor of pairs has for one of packed sequences."""
    if tensor.dim() == 4 and tensor.shape[0] > 1:
        tensor = tensor[sequence:sequence + 1]
    rows = tensor.shape[-2] if tensor.dim() > 1 else 1
    return tensor[..., :keys] if rows == 1 else tensor[..., :queries, :keys]


def _sequences_of(terms, options):
    """Of each packed sequence a function that takes its rows of a tensor, of queries or of keys, and its terms alone."""
    tokens = 2 if options[2] == "bhsd" else 1
    begins = [cumulative.tolist() for cumulative in (terms.cu_seqlens_q, terms.cu_seqlens_kv)]
    for sequence, (query, end, key, last) in enumerate(zip(begins[0], begins[0][1:], begins[1], begins[1][1:])):
        alone = _Alone(*terms)._replace(cu_seqlens_q=None, cu_seqlens_kv=None, **{
            name: None if getattr(terms, name) is None else getattr(terms, name)[sequence:sequence + 1] for name in ("seqused_q", "seqused_kv")})
        if terms.alibi_slopes is not None and terms.alibi_slopes.dim() == 2:
            alone = alone._replace(alibi_slopes=terms.alibi_slopes[sequence])
        for name in ("bias", "attention_mask"):
            if getattr(terms, name) is not None:
                alone = alone._replace(**{name: pairs_of_sequence(getattr(terms, name), sequence, end - query, last - key)})
        alone.sequence = sequence

        def queries(tensor, axis=tokens, query=query, end=end):
            return tensor.narrow(axis, query, end - query)

        def keys(tensor, key=key, last=last):
            return tensor.narrow(tokens, key, last - key)

        yield queries, keys, alone


def _forward_of_packed(q, k, v, options, out, return_lse, terms):
    """Of each sequence alone."""
    out, lse = torch.zeros_like(q) if out is None else out, q.new_full(_as_bhsd(options[2], q)[0].shape[:3], -torch.inf, dtype=torch.float32)
    for queries, keys, alone in _sequences_of(terms, options):
        if not keys(k).numel():
            queries(out).zero_()
            if terms.sinks is not None:
                queries(lse, 2).copy_(terms.sinks[None, :, None].expand(queries(lse, 2).shape))
        elif queries(q).numel():
            result, statistics = _forward(*(one.contiguous() for one in (queries(q), keys(k), keys(v))), options, None, True, None, alone)
            queries(out).copy_(result)
            queries(lse, 2).copy_(statistics)
    return out, lse if return_lse else None


def _backward_of_packed(grad_out, q, k, v, out, lse, grad_lse, options, grads, terms, bias_gradient):
    """The same."""
    of_bias = torch.zeros_like(terms.bias) if bias_gradient else None
    grads = [torch.zeros_like(one) for one in (q, k, v)] if grads is None else grads
    of_sinks = None if terms.sinks is None else torch.zeros_like(terms.sinks)
    for sequence, (queries, keys, alone) in enumerate(_sequences_of(terms, options)):
        if not queries(q).numel() or not keys(k).numel():
            queries(grads[0]).zero_(), keys(grads[1]).zero_(), keys(grads[2]).zero_()
            if of_sinks is not None and grad_lse is not None:
                of_sinks += queries(grad_lse, 2).sum((0, 2))  # lse is the sink
            continue
        given = [one.contiguous() for one in (queries(grad_out), queries(q), keys(k), keys(v), queries(out), queries(lse, 2))]
        found = _backward(*given, None if grad_lse is None else queries(grad_lse, 2).contiguous(), options, terms=alone, bias_gradient=bias_gradient)
        if bias_gradient:
            pairs_of_sequence(of_bias, sequence, found[-1].shape[-2], found[-1].shape[-1]).add_(found[-1])
        for to, one in zip((queries(grads[0]), keys(grads[1]), keys(grads[2])), found):
            to.copy_(one)
        if of_sinks is not None:
            of_sinks += found[3]
    return (*grads[:3], *(() if of_sinks is None else (of_sinks,)), *(() if of_bias is None else (of_bias,)))


@torch.no_grad()
def _backward(grad_out, q, k, v, out, lse, grad_lse, options, grads=None, prepared=None, terms=None, bias_gradient=False):
    sinks = None if terms is None else terms.sinks
    _require_real(grad_out=grad_out, q=q, k=k, v=v, out=out, lse=lse, grad_lse=grad_lse, sinks=sinks, bias=None if terms is None else terms.bias)
    if bias_gradient and any(size > 1 and stride == 0 for size, stride in zip(terms.bias.shape, terms.bias.stride())):
        raise ValueError("a gradient of elements that share memory")
    calls.append(("backward", tuple(q.shape), tuple(k.shape), options))
    if terms is not None and terms.cu_seqlens_q is not None:
        return _backward_of_packed(grad_out, q, k, v, out, lse, grad_lse, options, grads, terms, bias_gradient)
    layout, scale, dtype = options[2], options[1], q.dtype
    grad_out, q, k, v, out = _as_bhsd(layout, grad_out.float(), q.float(), k.float(), v.float(), out.float())
    grad_out, q, out, k, v = _used(terms, (grad_out, q, out), (k, v))
    kv_heads, group = k.shape[1], q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    p = torch.exp(_scores(q, k, options, terms) - lse[..., None]).nan_to_num(0)
    delta = (grad_out * out).sum(-1, keepdim=True) - (0 if grad_lse is None else grad_lse[..., None])
    kept = _kept(q, k, options, terms)
    ds = p * (kept * (grad_out @ v.transpose(-1, -2)) - delta)
    of_bias = (ds.sum_to_size(terms.bias.shape).to(terms.bias.dtype),) if bias_gradient else ()
    softcap = Options._make(options).softcap
    if softcap > 0:
        ds = ds * (1 - (_products(q, k, options) / softcap).square())
    ds = ds * (q.shape[-1] ** -0.5 if scale is None else scale)
    sums = [one.unflatten(1, (kv_heads, group)).sum(2) for one in (ds.transpose(-1, -2) @ q, (p * kept).transpose(-1, -2) @ grad_out)]
    of_sinks = () if sinks is None else (-(torch.exp(sinks[None, :, None] - lse) * delta[..., 0]).sum((0, 2)),)
    results = (*(one.to(dtype).contiguous() for one in _as_bhsd(layout, ds @ k, *sums)), *of_sinks, *of_bias)
    return results if grads is None else tuple(given.copy_(one) for given, one in zip(grads, results, strict=True))

"""FlashAttention's own operators: those of -2 that PyTorch has for packed sequences, and those of -3, which a library registers."""

from .inputs import as_attune_takes_it, as_seen


def check_mask(problem):
    """Raises RuntimeError for what FlashAttention's masks are not."""
    if problem.is_causal and not problem.is_bottom_right:
        raise RuntimeError("has causal masks that are aligned bottom right")
    if problem.sink:
        raise RuntimeError("has no sinks")
    if problem.dropout != 0:
        raise RuntimeError("has no dropout here")
    if problem.bias or problem.attention_mask:
        raise RuntimeError("has no tensors of pairs")


def packed_attention_2(torch, problem, terms):
    """A function of (q, k, v). Raises RuntimeError if the operator does not serve the problem."""

    def function(q, k, v):
        check_mask(problem)
        if problem.softcap != 0 or problem.alibi:
            raise RuntimeError("has no softcap and no ALiBi here")
        q, k, v = (as_attune_takes_it(problem, tensor) for tensor in (q, k, v))
        if problem.layout == "bhsd":
            q, k, v = (tensor.transpose(0, 1) for tensor in (q, k, v))
        left, right = problem.window or (-1, -1)
        longest = [max(lengths) for lengths in zip(*problem.sequence_lengths())]
        out = torch.ops.aten._flash_attention_forward(q, k, v, terms["cu_seqlens_q"], terms["cu_seqlens_kv"], *longest, 0.0, problem.is_causal, False,
                                                      scale=problem.softmax_scale, window_size_left=left, window_size_right=right)[0]
        return as_seen(problem, out.transpose(0, 1) if problem.layout == "bhsd" else out)

    return function


def load_attention_3(torch, path):
    """Has PyTorch know flash_attn_3::fwd and ::bwd, which a library registers. Raises OSError or RuntimeError."""
    torch.ops.load_library(str(path))
    if not hasattr(torch.ops.flash_attn_3, "fwd") or not hasattr(torch.ops.flash_attn_3, "bwd"):
        raise RuntimeError("it registers no operators flash_attn_3::fwd and flash_attn_3::bwd")


def attention_3(torch, problem, terms):
    """A function of (q, k, v) by FlashAttention-3's operators, with gradients."""
    longest = [max(lengths) for lengths in zip(*problem.sequence_lengths())] if problem.packed else [None, None]
    left, right = problem.window or (-1, -1)
    begins = (terms.get("cu_seqlens_q"), terms.get("cu_seqlens_kv"))
    shared = {"softmax_scale": problem.softmax_scale, "is_causal": problem.is_causal, "window_size_left": left, "window_size_right": right,
              "softcap": problem.softcap}

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(context, q, k, v):
            out, lse, *_ = torch.ops.flash_attn_3.fwd(q, k, v, cu_seqlens_q=begins[0], cu_seqlens_k=begins[1], max_seqlen_q=longest[0],
                                                      max_seqlen_k=longest[1], **shared)
            context.save_for_backward(q, k, v, out, lse)
            return out

        @staticmethod
        def backward(context, grad_out):
            q, k, v, out, lse = context.saved_tensors
            return tuple(torch.ops.flash_attn_3.bwd(grad_out, q, k, v, out, lse, cu_seqlens_q=begins[0], cu_seqlens_k=begins[1], max_seqlen_q=longest[0],
                                                    max_seqlen_k=longest[1], **shared)[:3])

    def function(*tensors):
        check_mask(problem)
        if problem.alibi:
            raise RuntimeError("has no ALiBi")
        turned = -3 if problem.layout == "bhsd" else None
        rows_first = [as_attune_takes_it(problem, tensor) if turned is None else as_attune_takes_it(problem, tensor).transpose(-3, -2) for tensor in tensors]
        out = Function.apply(*rows_first)
        return as_seen(problem, out if turned is None else out.transpose(-3, -2))

    return function

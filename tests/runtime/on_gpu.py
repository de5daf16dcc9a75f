"""What the Python binding's tests on a GPU have in common: PyTorch, a reference in double precision, and how they end.

Such a program is run with UNITTEST_ARGUMENTs. The module is taken from bindings/python two folders up, libattune.so from where the module finds
it. It ends as test_* programs do: a line "attune-tests: N passed, N failed, N skipped", exit status 77 where there is no PyTorch with a GPU.
"""

import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
BINDING = pathlib.Path(__file__).resolve().parents[2] / "bindings" / "python"
sys.path.insert(0, str(BINDING))


def skip(why):
    print(f"attune-tests: 0 passed, 0 failed, 1 skipped: {why}")
    sys.exit(77)


try:
    import torch
except ImportError:
    skip("PyTorch is not installed")
if not torch.cuda.is_available():
    skip("PyTorch sees no GPU")

DEVICE = "cuda"
BF16, FP16 = torch.bfloat16, torch.float16
# Norm of the error over norm of the reference.
OUTPUT_BOUND = {BF16: 3e-3, FP16: 4e-4}
GRADIENT_BOUND = {BF16: 4e-3, FP16: 6e-4}
LSE_BOUND = 1e-4


def normal(*shape, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype).to(DEVICE)


def inputs(dtype, batch, heads_q, heads_kv, seq_q, seq_kv, head_dim, layout="bhsd"):
    """q, k, v, and the gradients of out and lse."""
    def tensor(heads, seq, seed):
        shape = (batch, heads, seq, head_dim) if layout == "bhsd" else (batch, seq, heads, head_dim)
        return normal(*shape, dtype=dtype, seed=seed)

    grad_lse = normal(batch, heads_q, seq_q, dtype=torch.float32, seed=5)
    return tensor(heads_q, seq_q, 1), tensor(heads_kv, seq_kv, 2), tensor(heads_kv, seq_kv, 3), tensor(heads_q, seq_q, 4), grad_lse


def attended(seq_q, seq_kv, causal=False, top_left=False, window=None, **_):
    """Which query sees which key."""
    queries, keys = torch.arange(seq_q, device=DEVICE)[:, None], torch.arange(seq_kv, device=DEVICE)[None, :]
    after = keys - queries - (0 if top_left else seq_kv - seq_q)  # of the diagonal
    seen = torch.ones_like(after, dtype=torch.bool)
    if causal:
        seen &= after <= 0
    if window is not None:
        left, right = window
        if left is not None:
            seen &= after >= -left
        if right is not None:
            seen &= after <= right
    return seen


def reference(q, k, v, causal=False, scale=None, layout="bhsd", top_left=False, window=None, softcap=0.0, sinks=None, alibi_slopes=None, bias=None,
              attention_mask=None, kept=None):
    """(out, lse) of tensors in double precision; autograd knows their gradients. kept: what each element of the softmax counts, (batch, heads, seq, seq_kv)."""
    if layout == "bshd":
        out, lse = reference(*(tensor.transpose(1, 2) for tensor in (q, k, v)), causal, scale, "bhsd", top_left, window, softcap, sinks, alibi_slopes, bias,
                             attention_mask, kept)
        return out.transpose(1, 2), lse
    k, v = (tensor.repeat_interleave(q.shape[1] // tensor.shape[1], 1) for tensor in (k, v))
    mask = attended(q.shape[2], k.shape[2], causal, top_left, window)
    mask = mask.expand(q.shape[0], q.shape[1], *mask.shape)
    if attention_mask is not None:
        mask = mask & attention_mask
    if bias is not None:
        mask = mask & (bias != -torch.inf)
    blind, kept = ~mask.any(3), 1 if kept is None else kept
    scores = q @ k.transpose(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    if alibi_slopes is not None:
        rows, keys = torch.arange(q.shape[2], device=q.device), torch.arange(k.shape[2], device=q.device)
        distance = (rows[:, None] + k.shape[2] - q.shape[2] - keys).abs()
        scores = scores - alibi_slopes.double().expand(q.shape[0], -1)[:, :, None, None] * distance
    if bias is not None:
        scores = scores + bias.double().masked_fill(bias == -torch.inf, 0)
    if sinks is not None:  # one more key, of no value
        scores = torch.cat([scores.masked_fill(~mask, -torch.inf), sinks[None, :, None, None].expand(*scores.shape[:3], 1)], 3)
        return (scores.softmax(3)[..., :-1] * kept) @ v, scores.logsumexp(3)
    scores = scores.masked_fill(~mask, -torch.inf).masked_fill(blind[..., None], 0)
    out = ((scores.softmax(3) * kept) @ v).masked_fill(blind[..., None], 0)
    return out, scores.logsumexp(3).masked_fill(blind, -torch.inf)


def reference_gradients(q, k, v, grad_out, grad_lse, sinks=None, **options):
    """(out, lse), and the gradients of q, k and v, and of sinks if there are some, of a loss that depends on lse unless grad_lse is None."""
    leaves = [tensor.detach().double().requires_grad_() for tensor in (q, k, v, *([] if sinks is None else [sinks]))]
    out, lse = reference(*leaves[:3], sinks=None if sinks is None else leaves[3], **options)
    loss = (out * grad_out.double()).sum()
    if grad_lse is not None:
        loss = loss + (lse * grad_lse.double()).masked_fill(lse.isinf(), 0).sum()
    return (out.detach(), lse.detach()), torch.autograd.grad(loss, leaves)


def with_gradients(*tensors):
    return [tensor.clone().requires_grad_() for tensor in tensors]


class OnGpu(unittest.TestCase):
    def assert_close(self, name, tensor, expected, bound):
        self.assertEqual(tensor.shape, expected.shape, name)
        error = (tensor.double() - expected).norm() / expected.norm()
        self.assertLessEqual(error.item(), bound, f"relative error of {name}")

    def assert_gradients(self, gradients, expected, dtype):
        for name, gradient, exact in zip(("dQ", "dK", "dV"), gradients, expected):
            self.assertEqual(gradient.dtype, dtype)
            self.assert_close(name, gradient, exact, GRADIENT_BOUND[dtype])

    def assert_same(self, tensors, expected):
        for tensor, other in zip(tensors, expected):
            self.assertTrue(torch.equal(tensor, other))


def run_tests(**options):
    """Those of the program, with options of unittest.main(); ends it."""
    result = unittest.main(module="__main__", exit=False, **options).result
    failed, skipped = len({case.id().split(" ")[0] for case, _ in result.failures + result.errors}), len(result.skipped)
    print(f"attune-tests: {result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
    sys.exit(0 if result.wasSuccessful() else 1)

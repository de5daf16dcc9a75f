"""What the tests of the Python binding inside PyTorch share, on a GPU: inputs, gradients and PyTorch's own attention in double precision."""

import unittest

# First: it finds the module, and ends a program that has no GPU.
from on_gpu import BF16, DEVICE, torch

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

import attune_kernels as attune

BOUND = 1.2e-2  # norm of the error over norm of the expected: what is compared was rounded to bf16 several times


def tensors(seq_q=96, seq_kv=None, heads=(4, 2), batch=2, head_dim=64, dtype=BF16, seed=1, grad=True, layout="bhsd"):
    """q, k and v, leaves that require gradients."""
    generator = torch.Generator().manual_seed(seed)

    def tensor(heads, seq):
        shape = (batch, heads, seq, head_dim) if layout == "bhsd" else (batch, seq, heads, head_dim)
        return torch.randn(shape, generator=generator).to(DEVICE, dtype).requires_grad_(grad)

    seq_kv = seq_kv or seq_q
    return tensor(heads[0], seq_q), tensor(heads[1], seq_kv), tensor(heads[1], seq_kv)


def with_gradients(function, leaves):
    """The result, and the gradients of the sum of its elements, weighted so that no two count alike."""
    result = function(*leaves)
    weights = torch.linspace(-1, 1, result.numel(), device=result.device).view(result.shape)
    return result.detach(), *torch.autograd.grad((result.float() * weights).sum(), leaves)


def exact(q, k, v, scale=None, causal=True):
    """PyTorch's own attention, in double precision by its operations. The diagonal begins top left."""
    wide = [tensor.double() for tensor in (q, k, v)]
    wide[1:] = (tensor.repeat_interleave(q.shape[1] // tensor.shape[1], 1) for tensor in wide[1:])
    with sdpa_kernel(SDPBackend.MATH):
        return sdpa(*wide, is_causal=causal, scale=scale)


class InTorch(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        self.addCleanup(torch._dynamo.reset)
        self.addCleanup(attune.disable_sdpa)
        self.addCleanup(torch.use_deterministic_algorithms, False)

    def shortDescription(self):
        return None  # a line for each test

    def assert_close(self, results, expected, bound=BOUND):
        self.assertEqual(len(results), len(expected))
        for number, (result, other) in enumerate(zip(results, expected)):
            self.assertEqual(result.shape, other.shape)
            error = (result.double() - other.double()).norm() / other.double().norm().clamp_min(1e-9)
            self.assertLessEqual(error.item(), bound, f"relative error of result {number}")

    def assert_same(self, results, expected):
        self.assertEqual(len(results), len(expected))
        for number, (result, other) in enumerate(zip(results, expected)):
            self.assertTrue(torch.equal(result, other), f"result {number} differs")

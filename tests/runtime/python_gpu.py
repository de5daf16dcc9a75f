"""The Python binding on a GPU: outputs, log-sum-exp and gradients beside PyTorch's own in double precision.

usage: python_gpu.py [UNITTEST_ARGUMENT...]

The module is taken from bindings/python two folders up, libattune.so from where the module finds it. Ends as test_* programs do: a line
"attune-tests: N passed, N failed, N skipped", exit status 77 where there is no PyTorch with a GPU.
"""

import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings" / "python"))


def skip(why):
    print(f"attune-tests: 0 passed, 0 failed, 1 skipped: {why}")
    sys.exit(77)


try:
    import torch
except ImportError:
    skip("PyTorch is not installed")
if not torch.cuda.is_available():
    skip("PyTorch sees no GPU")

import attune  # noqa: E402

DEVICE = "cuda"
BF16, FP16 = torch.bfloat16, torch.float16
# Norm of the error over norm of the reference.
OUTPUT_BOUND = {BF16: 3e-3, FP16: 4e-4}
GRADIENT_BOUND = {BF16: 4e-3, FP16: 6e-4}
LSE_BOUND = 1e-4

# dtype, batch, heads_q, heads_kv, seq_q, seq_kv, head_dim, options
CASES = [
    (BF16, 2, 4, 4, 128, 128, 64, {}),
    (BF16, 1, 2, 2, 65, 65, 256, {"causal": True}),
    (FP16, 2, 2, 2, 50, 50, 8, {"causal": True}),
    (FP16, 1, 4, 2, 100, 70, 64, {"causal": True, "layout": "bshd"}),  # queries that see nothing
    (BF16, 1, 6, 2, 40, 130, 72, {"causal": True, "top_left": True}),  # keys that nobody sees
    (FP16, 1, 3, 1, 33, 190, 128, {"scale": 0.3, "layout": "bshd"}),
    (BF16, 1, 8, 2, 1024, 1024, 128, {"causal": True}),
]


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


def attended(seq_q, seq_kv, causal, top_left):
    """Which query sees which key."""
    queries, keys = torch.arange(seq_q, device=DEVICE)[:, None], torch.arange(seq_kv, device=DEVICE)[None, :]
    return keys <= queries + (0 if top_left else seq_kv - seq_q) if causal else (keys >= 0).expand(seq_q, seq_kv)


def reference(q, k, v, causal=False, scale=None, layout="bhsd", top_left=False):
    """(out, lse) of tensors in double precision; autograd knows their gradients."""
    if layout == "bshd":
        out, lse = reference(*(tensor.transpose(1, 2) for tensor in (q, k, v)), causal, scale, "bhsd", top_left)
        return out.transpose(1, 2), lse
    k, v = (tensor.repeat_interleave(q.shape[1] // tensor.shape[1], 1) for tensor in (k, v))
    mask = attended(q.shape[2], k.shape[2], causal, top_left)
    blind = ~mask.any(1)
    scores = q @ k.transpose(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    scores = scores.masked_fill(~mask, -torch.inf).masked_fill(blind[:, None], 0)
    out = (scores.softmax(3) @ v).masked_fill(blind[:, None], 0)
    return out, scores.logsumexp(3).masked_fill(blind, -torch.inf)


def reference_gradients(q, k, v, grad_out, grad_lse, **options):
    """(out, lse), and the gradients of q, k and v, of a loss that depends on lse unless grad_lse is None."""
    leaves = [tensor.detach().double().requires_grad_() for tensor in (q, k, v)]
    out, lse = reference(*leaves, **options)
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


class Values(OnGpu):
    def test_the_reference_agrees_with_pytorch(self):
        for dtype, *sizes, options in CASES:
            q, k, v, grad_out, _ = inputs(dtype, *sizes)
            options = {name: value for name, value in options.items() if name != "layout"}
            (out, lse), gradients = reference_gradients(q, k, v, grad_out, None, **options)
            if lse.isinf().any():
                continue  # queries that see nothing: PyTorch's versions differ
            leaves = [tensor.double().requires_grad_() for tensor in (q, k, v)]
            wide = [leaf.repeat_interleave(q.shape[1] // leaf.shape[1], 1) for leaf in leaves]
            mask = attended(q.shape[2], k.shape[2], options.get("causal", False), options.get("top_left", False))
            theirs = torch.nn.functional.scaled_dot_product_attention(*wide, attn_mask=mask, scale=options.get("scale"))
            self.assert_close("O", out, theirs.detach(), 1e-12)
            for ours, exact in zip(gradients, torch.autograd.grad(theirs, leaves, grad_out.double())):
                self.assert_close("gradient", ours, exact, 1e-12)

    def assert_zero_where_nothing_is_seen(self, d_q, d_k, d_v, causal=False, top_left=False, layout="bhsd", **_):
        if layout == "bshd":
            d_q, d_k, d_v = (gradient.transpose(1, 2) for gradient in (d_q, d_k, d_v))
        mask = attended(d_q.shape[2], d_k.shape[2], causal, top_left)
        self.assertTrue((d_q[:, :, ~mask.any(1)] == 0).all(), "dQ of queries that see nothing")
        for gradient in (d_k, d_v):
            self.assertTrue((gradient[:, :, ~mask.any(0)] == 0).all(), "dK and dV of keys that nobody sees")

    def test_outputs_and_gradients(self):
        for dtype, *sizes, options in CASES:
            q, k, v, grad_out, grad_lse = inputs(dtype, *sizes, options.get("layout", "bhsd"))
            for given, deterministic in ((None, False), (grad_lse, False), (grad_lse, True)):
                with self.subTest(dtype=dtype, sizes=sizes, of_lse=given is not None, deterministic=deterministic, **options):
                    (exact_out, exact_lse), exact = reference_gradients(q, k, v, grad_out, given, **options)
                    leaves = with_gradients(q, k, v)
                    out, lse = attune.attention(*leaves, return_lse=True, deterministic=deterministic, **options)
                    self.assert_close("O", out, exact_out, OUTPUT_BOUND[dtype])
                    self.assertTrue(torch.equal(lse.isinf(), exact_lse.isinf()))
                    self.assertLess((lse - exact_lse).masked_fill(lse.isinf(), 0).abs().max().item(), LSE_BOUND)
                    results, grads = ((out,), (grad_out,)) if given is None else ((out, lse), (grad_out, given))
                    gradients = torch.autograd.grad(results, leaves, grads)
                    self.assert_gradients(gradients, exact, dtype)
                    self.assert_zero_where_nothing_is_seen(*gradients, **options)


class Strides(OnGpu):
    def check(self, q, k, v, leaves, grad_out, **options):
        """q, k, v: views of the leaves."""
        out = attune.attention(q, k, v, **options)
        ours = torch.autograd.grad(out, leaves, grad_out, retain_graph=True)
        doubles = [leaf.detach().double().requires_grad_() for leaf in leaves]
        return ours, doubles

    def test_views_of_one_packed_tensor(self):
        packed = normal(2, 90, 3, 4, 64, dtype=BF16, seed=1).requires_grad_()
        grad_out = normal(2, 90, 4, 64, dtype=BF16, seed=2)
        ours, (double,) = self.check(*packed.unbind(2), [packed], grad_out, layout="bshd", causal=True)
        exact = torch.autograd.grad(reference(*double.unbind(2), layout="bshd", causal=True)[0], double, grad_out.double())
        self.assert_close("gradient", ours[0], exact[0], GRADIENT_BOUND[BF16])

    def test_rows_that_are_not_aligned(self):
        wide = normal(3, 1, 2, 60, 65, dtype=FP16, seed=1).requires_grad_()
        grad_out = normal(1, 2, 60, 64, dtype=FP16, seed=2)
        ours, (double,) = self.check(*wide[..., 1:], [wide], grad_out)
        exact = torch.autograd.grad(reference(*double[..., 1:])[0], double, grad_out.double())
        self.assert_close("gradient", ours[0], exact[0], GRADIENT_BOUND[FP16])

    def test_heads_that_are_one(self):
        q, k = (normal(2, heads, 70, 32, dtype=BF16, seed=heads).requires_grad_() for heads in (4, 1))
        grad_out = normal(2, 4, 70, 32, dtype=BF16, seed=2)
        ours, doubles = self.check(q, k.expand(2, 4, 70, 32), k.expand(2, 4, 70, 32), [q, k], grad_out)
        wide = doubles[1].expand(2, 4, 70, 32)
        exact = torch.autograd.grad(reference(doubles[0], wide, wide)[0], doubles, grad_out.double())
        for gradient, expected in zip(ours, exact):
            self.assert_close("gradient", gradient, expected, 2 * GRADIENT_BOUND[BF16])  # PyTorch adds the heads in bfloat16

    def test_gradients_of_any_strides(self):
        q, k, v, grad_out, grad_lse = inputs(BF16, 2, 4, 4, 60, 60, 64)
        leaves = with_gradients(q, k, v)
        out, lse = attune.attention(*leaves, return_lse=True, deterministic=True)
        expected = torch.autograd.grad((out, lse), leaves, (grad_out, grad_lse), retain_graph=True)
        turned = grad_out.transpose(2, 3).contiguous().transpose(2, 3), grad_lse.transpose(1, 2).contiguous().transpose(1, 2)
        self.assert_same(torch.autograd.grad((out, lse), leaves, turned, retain_graph=True), expected)
        ones = torch.autograd.grad(out, leaves, torch.ones_like(out), retain_graph=True)
        self.assert_same(torch.autograd.grad(out.sum(), leaves), ones)  # of stride 0 everywhere


class Autograd(OnGpu):
    def setUp(self):
        self.q, self.k, self.v, self.grad_out, self.grad_lse = inputs(BF16, 1, 2, 2, 80, 80, 64)

    def test_only_some_inputs_require_a_gradient(self):
        leaves = with_gradients(self.q, self.k, self.v)
        expected = torch.autograd.grad(attune.attention(*leaves, deterministic=True), leaves, self.grad_out)
        for i in range(3):
            tensors = [self.q, self.k, self.v]
            tensors[i] = tensors[i].clone().requires_grad_()
            attune.attention(*tensors, deterministic=True).backward(self.grad_out)
            self.assert_same([tensors[i].grad], [expected[i]])
            self.assertTrue(all(tensor.grad is None for j, tensor in enumerate(tensors) if j != i))

    def test_a_loss_of_lse_alone(self):
        leaves = with_gradients(self.q, self.k, self.v)
        lse = attune.attention(*leaves, return_lse=True)[1]
        d_q, d_k, d_v = torch.autograd.grad(lse, leaves, self.grad_lse)
        _, exact = reference_gradients(self.q, self.k, self.v, torch.zeros_like(self.q), self.grad_lse)
        self.assert_gradients((d_q, d_k), exact[:2], BF16)
        self.assertEqual(d_v.abs().max().item(), 0)

    def test_a_second_derivative_is_refused(self):
        leaves = with_gradients(self.q, self.k, self.v)
        gradient = torch.autograd.grad(attune.attention(*leaves).square().sum(), leaves, create_graph=True)[0]
        with self.assertRaisesRegex(RuntimeError, "once_differentiable"):
            gradient.sum().backward()

    def test_inputs_that_were_overwritten_are_noticed(self):
        leaves = with_gradients(self.q, self.k, self.v)
        out = attune.attention(*leaves)
        with torch.no_grad():
            leaves[1].zero_()
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            out.backward(self.grad_out)

    def test_without_gradients(self):
        leaves = with_gradients(self.q, self.k, self.v)
        with torch.no_grad():
            out = attune.attention(*leaves)
        self.assertFalse(out.requires_grad)
        self.assert_same([attune.attention(*leaves).detach()], [out])
        with self.assertRaisesRegex(ValueError, "leave out away"):
            attune.attention(*leaves, out=out)


class RawBackward(OnGpu):
    def setUp(self):
        self.options = {"causal": True, "deterministic": True}
        self.q, self.k, self.v, self.grad_out, self.grad_lse = inputs(FP16, 2, 4, 2, 90, 110, 96)
        leaves = with_gradients(self.q, self.k, self.v)
        out, lse = attune.attention(*leaves, return_lse=True, **self.options)
        self.expected = torch.autograd.grad((out, lse), leaves, (self.grad_out, self.grad_lse))
        self.tensors = (self.grad_out, self.q, self.k, self.v, out.detach(), lse.detach())

    def test_it_is_what_autograd_runs(self):
        self.assert_same(attune.backward(*self.tensors, grad_lse=self.grad_lse, **self.options), self.expected)

    def test_prepared(self):
        prepared = attune.prepare_backward(self.q, self.k, self.v, **self.options)
        self.assert_same(prepared(*self.tensors, grad_lse=self.grad_lse), self.expected)
        again = attune.prepare_backward(self.q, self.k, self.v, config=prepared.config, **self.options)
        self.assertEqual((again.config, again.origin), (prepared.config, "given"))
        self.assert_same(again(*self.tensors, grad_lse=self.grad_lse), self.expected)
        with self.assertRaisesRegex(attune.AttuneError, "no forward problem"):
            attune.Prepared.__call__(prepared, self.q, self.k, self.v)

    def test_gradients_into_given_tensors(self):
        spaces = [torch.full((*tensor.shape[:3], 98), torch.nan, dtype=FP16, device=DEVICE) for tensor in (self.q, self.k, self.v)]
        given = tuple(space[..., 1:97] for space in spaces)  # rows that are not aligned
        returned = attune.backward(*self.tensors, grad_lse=self.grad_lse, grads=given, **self.options)
        for one, other, expected, space in zip(returned, given, self.expected, spaces):
            self.assertIs(one, other)
            self.assert_close("gradient", one, expected.double(), GRADIENT_BOUND[FP16])
            self.assertTrue(space[..., [0, 97]].isnan().all(), "written beside the gradient")

    def test_deterministic_gradients_have_the_same_bits_on_each_run(self):
        *tensors, grad_out, _ = inputs(BF16, 1, 8, 2, 1500, 1500, 64)
        with torch.no_grad():
            out, lse = attune.attention(*tensors, return_lse=True, causal=True)
        first, *others = (attune.backward(grad_out, *tensors, out, lse, **self.options) for _ in range(8))
        for other in others:
            self.assert_same(other, first)


class Streams(OnGpu):
    def step(self, q, k, v, grad_out):
        out = attune.attention(q, k, v, causal=True)
        return out, *torch.autograd.grad(out, (q, k, v), grad_out)

    def assert_agree(self, results, expected):
        for result, other in zip(results, expected):
            self.assert_close("result", result.detach(), other.detach().double(), GRADIENT_BOUND[BF16])

    def test_the_current_stream_is_used(self):
        *tensors, grad_out, _ = inputs(BF16, 2, 4, 4, 512, 512, 64)
        leaves = with_gradients(*tensors)
        expected = self.step(*leaves, grad_out)
        stream = torch.cuda.Stream()
        late = torch.zeros_like(grad_out)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(100_000_000)
            late.copy_(grad_out)
            results = self.step(*leaves, late)
        stream.synchronize()
        self.assert_agree(results, expected)

    def test_a_training_step_in_a_graph(self):
        *tensors, grad_out, _ = inputs(BF16, 2, 4, 4, 256, 256, 64)
        leaves = with_gradients(*tensors)
        attune.prepare(*leaves, causal=True)
        attune.prepare_backward(*leaves, causal=True)
        expected = self.step(*leaves, grad_out)
        given = torch.zeros_like(grad_out)
        leaves = with_gradients(*tensors)  # PyTorch ties a leaf to the stream of its first use, here that of the capture
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = self.step(*leaves, given)
        given.copy_(grad_out)
        for _ in range(2):
            graph.replay()
        torch.cuda.synchronize()
        self.assert_agree(results, expected)


result = unittest.main(exit=False).result
failed, skipped = len({case.id().split(" ")[0] for case, _ in result.failures + result.errors}), len(result.skipped)
print(f"attune-tests: {result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
sys.exit(0 if result.wasSuccessful() else 1)

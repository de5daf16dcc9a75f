"""The Python binding on a GPU: outputs, log-sum-exp and gradients beside PyTorch's own in double precision.

usage: python_gpu.py [UNITTEST_ARGUMENT...]

The module is taken from bindings/python two folders up, libattune.so from where the module finds it. Ends as test_* programs do: a line
"attune-tests: N passed, N failed, N skipped", exit status 77 where there is no PyTorch with a GPU.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

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

import attune_kernels as attune  # noqa: E402
from comparison.inputs import SUITE, make_inputs  # noqa: E402
from comparison.problems import parse_problem  # noqa: E402
from comparison.references import GradientReference, Reference  # noqa: E402

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
    (BF16, 1, 4, 2, 300, 420, 128, {"window": (64, 16)}),
    (FP16, 2, 2, 2, 200, 200, 64, {"causal": True, "window": (50, None)}),
    (BF16, 1, 2, 1, 150, 90, 64, {"window": (3, None)}),  # queries that see nothing
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


def reference(q, k, v, causal=False, scale=None, layout="bhsd", top_left=False, window=None):
    """(out, lse) of tensors in double precision; autograd knows their gradients."""
    if layout == "bshd":
        out, lse = reference(*(tensor.transpose(1, 2) for tensor in (q, k, v)), causal, scale, "bhsd", top_left, window)
        return out.transpose(1, 2), lse
    k, v = (tensor.repeat_interleave(q.shape[1] // tensor.shape[1], 1) for tensor in (k, v))
    mask = attended(q.shape[2], k.shape[2], causal, top_left, window)
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
            mask = attended(q.shape[2], k.shape[2], **options)
            theirs = torch.nn.functional.scaled_dot_product_attention(*wide, attn_mask=mask, scale=options.get("scale"))
            self.assert_close("O", out, theirs.detach(), 1e-12)
            for ours, exact in zip(gradients, torch.autograd.grad(theirs, leaves, grad_out.double())):
                self.assert_close("gradient", ours, exact, 1e-12)

    def assert_zero_where_nothing_is_seen(self, d_q, d_k, d_v, layout="bhsd", **options):
        if layout == "bshd":
            d_q, d_k, d_v = (gradient.transpose(1, 2) for gradient in (d_q, d_k, d_v))
        mask = attended(d_q.shape[2], d_k.shape[2], **options)
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


class KindsOfData(OnGpu):
    """Every kind of data within the bounds of each element and by FlashAttention's rule, beside attention in PyTorch's operations, and for
    gradients beside the larger error of that and of the same with the delta of a saved O."""

    SIZES = ("b1 hq4 hkv2 sq700 skv1000 d64", "b1 hq4 hkv2 sq500 d128")

    def errors_of(self, problem, data, seed, damage=lambda tensor: tensor):
        tensors = make_inputs(torch, problem, seed, data)
        leaves, grad_out = with_gradients(*tensors[:3]), tensors[3]
        options = {"causal": problem.is_causal, "layout": "bhsd"}
        out, lse = attune.attention(*leaves, return_lse=True, **options)
        gradients = torch.autograd.grad(out, leaves, grad_out)
        forward = Reference(torch, problem, *tensors[:3], seed).errors(damage(out.detach()), lse.detach(), data)
        backward = GradientReference(torch, problem, *tensors).errors([damage(one) for one in gradients], data)
        return forward, backward

    def test_outputs_and_gradients(self):
        for dtype in ("bf16", "fp16"):
            for sizes in self.SIZES:
                for mask in ("", " causal"):
                    problem = parse_problem(f"forward {dtype} {sizes}{mask} bhsd")
                    for data in SUITE:
                        with self.subTest(problem=problem.text(), data=data.text()):
                            forward, backward = self.errors_of(problem, data, 1)
                            self.assertTrue(forward["within"], f"O and LSE: {forward}")
                            self.assertLessEqual(backward["worst_over_bound"], 1, f"gradients: {backward}")
                            self.assertLessEqual(backward["error_over_rule_of_saved_o"], 1, f"gradients: {backward}")
                            if data == SUITE[0]:  # as a whole, too
                                self.assertTrue(backward["within"], f"gradients: {backward}")

    def test_errors_beyond_the_rule_are_seen(self):
        problem = parse_problem("forward bf16 b1 hq2 sq200 d64 causal bhsd")
        for data in (SUITE[0], SUITE[2]):
            for damage in (lambda tensor: (tensor * 1.02).to(tensor.dtype), lambda tensor: tensor.masked_fill(tensor > 3 * tensor.std(), torch.nan)):
                for errors in self.errors_of(problem, data, 1, damage):
                    self.assertGreater(errors["error_over_rule"], 1)
                    self.assertFalse(errors["within"])

    def test_scores_are_as_the_kinds_say(self):
        problem = parse_problem("forward bf16 b1 hq2 hkv1 sq60 skv2000 d64 bhsd")
        for data in SUITE:
            with self.subTest(data=data.text()):
                q, k, _, _ = (tensor.double() for tensor in make_inputs(torch, problem, 1, data))
                scores = problem.softmax_scale * q @ k.transpose(2, 3)
                offsets = torch.tensor([data.offset_of_key(key, 2000) for key in range(2000)], dtype=torch.float64, device=DEVICE)
                rest = scores - offsets  # the rounding of an offset costs 139 * 2^-8 at most
                if data.kind in ("equal", "dominant"):
                    self.assertLess((rest - rest[..., :1]).abs().max().item(), 0.1)
                else:
                    deviation = rest.std().item() / (data.parameter if data.kind in ("normal", "t3") else 1)
                    least, most = (0.5, 2) if data.kind == "t3" else (0.9, 1.1)  # t3 has no fourth moment, and converges slowly
                    self.assertTrue(least < deviation < most, deviation)


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
        self.assertTrue(gradient.requires_grad)
        with self.assertRaisesRegex(NotImplementedError, "differentiable once"):
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


    def test_nothing_is_kept_without_gradients(self):
        leaves = with_gradients(self.q, self.k, self.v)
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
            with torch.no_grad():
                attune.attention(*leaves)
            with torch.inference_mode():
                attune.attention(self.q, self.k, self.v)
            attune.attention(self.q, self.k, self.v)
            self.assertEqual(len(kept), 0)
            attune.attention(*leaves)
            self.assertEqual(len(kept), 5)  # q, k, v, out, lse

    def test_checkpoints(self):
        leaves = with_gradients(self.q, self.k, self.v)
        expected = torch.autograd.grad(attune.attention(*leaves, causal=True, deterministic=True), leaves, self.grad_out)
        for reentrant in (False, True):
            leaves = with_gradients(self.q, self.k, self.v)
            out = torch.utils.checkpoint.checkpoint(
                lambda *tensors: attune.attention(*tensors, causal=True, deterministic=True), *leaves, use_reentrant=reentrant)
            out.backward(self.grad_out)
            self.assert_same([leaf.grad for leaf in leaves], expected)

    def test_kept_tensors_may_wait_on_the_host(self):
        leaves = with_gradients(self.q, self.k, self.v)
        expected = torch.autograd.grad(attune.attention(*leaves, deterministic=True), leaves, self.grad_out)
        with torch.autograd.graph.save_on_cpu():
            out = attune.attention(*leaves, deterministic=True)
        self.assert_same(torch.autograd.grad(out, leaves, self.grad_out), expected)


class Empty(OnGpu):
    """PyTorch's own attention is asked for the shapes; where there are no keys, its backends differ in their values."""

    def test_results_and_gradients(self):
        for batch, heads, seq_q, seq_kv in ((0, 4, 10, 12), (2, 4, 0, 12), (2, 4, 10, 0), (2, 0, 10, 12)):
            for layout in ("bhsd", "bshd"):
                with self.subTest(batch=batch, heads=heads, seq_q=seq_q, seq_kv=seq_kv, layout=layout):
                    q, k, v, grad_out, grad_lse = inputs(BF16, batch, heads, heads // 2, seq_q, seq_kv, 64, layout)
                    leaves = with_gradients(q, k, v)
                    out, lse = attune.attention(*leaves, causal=True, layout=layout, return_lse=True)
                    self.assertEqual((out.shape, out.dtype, out.device), (q.shape, BF16, q.device))
                    self.assertEqual((lse.shape, lse.dtype, lse.device), (grad_lse.shape, torch.float32, q.device))
                    self.assertTrue((out == 0).all() and (lse == -torch.inf).all())
                    for gradient, leaf in zip(torch.autograd.grad((out, lse), leaves, (grad_out, grad_lse)), leaves):
                        self.assertEqual((gradient.shape, gradient.dtype), (leaf.shape, BF16))
                        self.assertTrue((gradient == 0).all())

    def test_a_prepared_kernel_takes_them(self):
        q, k, v, *_ = inputs(BF16, 2, 4, 4, 64, 64, 64)
        prepared = attune.prepare(q, k, v)
        out, lse = prepared(q[:, :, :0], k, v, return_lse=True)
        self.assertEqual((tuple(out.shape), tuple(lse.shape)), ((2, 4, 0, 64), (2, 4, 0)))
        self.assertEqual(tuple(prepared(q[:0], k[:0], v[:0]).shape), (0, 4, 64, 64))
        with self.assertRaisesRegex(ValueError, "nothing can be prepared"):
            attune.prepare(q[:0], k[:0], v[:0])

    def test_rows_beside_them_are_untouched(self):
        space = torch.full((2, 4, 12, 64), 7.0, dtype=BF16, device=DEVICE)
        k = torch.empty(2, 4, 0, 64, dtype=BF16, device=DEVICE)
        attune.attention(space[:, :, 1:11], k, k, out=space[:, :, 1:11])
        self.assertTrue((space[:, :, 1:11] == 0).all() and (space[:, :, [0, 11]] == 7).all())


class OtherKindsOfTensors(OnGpu):
    """Each is refused by a sentence of its own; none crashes."""

    def refused(self, error, words, *arguments, **options):
        with self.assertRaisesRegex(error, words):
            attune.attention(*arguments, **options)

    def setUp(self):
        self.q, self.k, self.v, *_ = inputs(BF16, 2, 4, 4, 16, 16, 64)

    def test_kinds_and_places(self):
        q, k, v = self.q, self.k, self.v
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's of nested tensors and of sparse ones
            nested = torch.nested.nested_tensor([q[0], q[1, :, :9]])
            jagged = torch.nested.nested_tensor([q[0].transpose(0, 1), q[1, :, :9].transpose(0, 1)], layout=torch.jagged)
            self.refused(TypeError, "q is a nested tensor", nested, nested, nested)
            self.refused(TypeError, "q is a nested tensor", jagged, jagged, jagged)
            sparse = torch.empty(k.shape, dtype=BF16, device=DEVICE, layout=torch.sparse_coo)
            self.refused(TypeError, "k has the layout torch.sparse_coo", q, sparse, v)
        self.refused(ValueError, "q is on meta, which holds no data", *(tensor.to("meta") for tensor in (q, k, v)))
        self.refused(ValueError, "v is on cpu: it must be on a CUDA device", q, k, v.cpu())
        self.refused(ValueError, "q is on cpu: it must be on a CUDA device", q.cpu(), k, v)

    def test_types(self):
        q, k, v = self.q, self.k, self.v
        self.refused(TypeError, "q is torch.complex64", *(tensor.to(torch.complex64) for tensor in (q, k, v)))
        self.refused(TypeError, "q is torch.float32.*under torch.autocast", q.float(), k.float(), v.float())
        self.refused(TypeError, "q is torch.float64", q.double(), k.double(), v.double())
        self.refused(TypeError, "q is torch.int8", q.to(torch.int8), k, v)
        self.refused(TypeError, "v is torch.float16 and q torch.bfloat16", q, k, v.half())
        self.refused(TypeError, "k is torch.float32", q, k.float(), v)

    def test_fake_tensors(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode() as mode:
            fake = [mode.from_tensor(tensor) for tensor in (self.q, self.k, self.v)]
            out, lse = attune.attention(*fake, return_lse=True)
            self.assertEqual((out.shape, out.stride(), out.dtype, out.device), (self.q.shape, self.q.stride(), BF16, self.q.device))
            self.assertEqual((lse.shape, lse.dtype), (self.q.shape[:3], torch.float32))
            self.refused(ValueError, "scale is -1", *fake, scale=-1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's, of a data pointer that was asked for
            self.refused(TypeError, "q is a FakeTensor without memory of its own", *fake)  # out of their mode

    def test_transforms(self):
        q, k, v = self.q, self.k, self.v
        prepared = attune.prepare(q, k, v)
        with self.assertRaisesRegex(NotImplementedError, "transforms of torch.func"):
            torch.func.vmap(lambda q: prepared(q, k, v))(torch.stack([q, q]))
        with self.assertRaisesRegex(NotImplementedError, "no forward-mode derivative"):
            torch.func.jvp(lambda q: attune.attention(q, k, v), (q,), (q,))
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(q, torch.ones_like(q))
            self.refused(NotImplementedError, "no forward-mode derivative", dual, k, v)
            self.assertEqual(attune.attention(q, k, v).shape, q.shape)  # of tensors without tangents

    def test_scales_that_are_no_float32(self):
        for scale in (1e-46, 1e39, -0.0, float("inf")):
            self.refused(ValueError, "positive and finite", self.q, self.k, self.v, scale=scale)


class Autocast(OnGpu):
    """Beside torch.nn.functional.scaled_dot_product_attention in the same autocast region."""

    def both(self, leaves):
        ours = attune.attention(*leaves, causal=True)
        theirs = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)
        return ours, theirs

    def test_types_of_results_and_gradients(self):
        for cast in (BF16, FP16):
            for types in ([torch.float32] * 3, [torch.float32, BF16, FP16], [FP16] * 3, [BF16] * 3):
                with self.subTest(cast=cast, types=types):
                    tensors = [normal(2, 4, 64, 64, dtype=dtype, seed=seed) for seed, dtype in enumerate(types)]
                    results = []
                    for number in range(2):
                        leaves = with_gradients(*tensors)
                        with torch.autocast("cuda", dtype=cast):
                            out = self.both(leaves)[number]
                        self.assertEqual(out.dtype, cast)
                        results.append((out.detach(), torch.autograd.grad(out.float().square().sum(), leaves)))
                    (ours, gradients), (theirs, their_gradients) = results
                    self.assert_close("O", ours, theirs.double(), 2 * OUTPUT_BOUND[cast])
                    self.assertEqual([gradient.dtype for gradient in gradients], types)
                    self.assertEqual([gradient.dtype for gradient in their_gradients], types)
                    for name, gradient, other in zip(("dQ", "dK", "dV"), gradients, their_gradients):
                        self.assert_close(name, gradient, other.double(), 4 * GRADIENT_BOUND[BF16])  # rounded to bf16 on the way, some of them

    def test_backward_inside_the_region(self):
        leaves = with_gradients(*(normal(1, 2, 80, 64, dtype=torch.float32, seed=seed) for seed in range(3)))
        with torch.autocast("cuda", dtype=BF16):
            out = attune.attention(*leaves, deterministic=True)
            inside = torch.autograd.grad(out.float().square().sum(), leaves, retain_graph=True)
        outside = torch.autograd.grad(out.float().square().sum(), leaves)
        self.assert_same(inside, outside)

    def test_what_it_leaves_alone(self):
        tensors = [normal(1, 2, 80, 64, dtype=torch.float32, seed=seed) for seed in range(3)]
        with torch.autocast("cuda", dtype=BF16):
            with torch.autocast("cuda", enabled=False), self.assertRaisesRegex(TypeError, "q is torch.float32"):
                attune.attention(*tensors)
            with self.assertRaisesRegex(TypeError, "q is torch.float64"):
                attune.attention(*(tensor.double() for tensor in tensors))
            prepared = attune.prepare(*tensors)
            self.assert_same([prepared(*tensors)], [attune.attention(*tensors)])
        with torch.autocast("cpu", dtype=BF16), self.assertRaisesRegex(TypeError, "q is torch.float32"):
            attune.attention(*tensors)


class Compiled(OnGpu):
    """A call is one operator of the graph; python_torch_gpu.py asks for whole graphs."""

    def step(self, q, k, v, **options):
        out = attune.attention(q * 1.5, k, v, causal=True, deterministic=True, **options)
        return torch.nn.functional.gelu(out) + 1

    def setUp(self):
        torch._dynamo.reset()
        self.addCleanup(torch._dynamo.reset)

    def check(self, compiled, batch, seq):
        tensors = inputs(BF16, batch, 4, 2, seq, seq, 64)[:3]
        results = []
        for function in (self.step, compiled):
            leaves = with_gradients(*tensors)
            out = function(*leaves)
            results.append((out.detach(), *torch.autograd.grad(out, leaves, torch.ones_like(out))))
        for name, ours, theirs in zip(("result", "dQ", "dK", "dV"), *results):
            self.assertEqual(ours.shape, theirs.shape)
            if ours.numel() > 0:
                self.assert_close(name, theirs, ours.double(), GRADIENT_BOUND[BF16])  # the compiler rounds less often

    def test_forward_and_backward_of_several_shapes(self):
        for backend, dynamic in (("eager", None), ("aot_eager", None), ("aot_eager", True), ("aot_eager", False), ("inductor", None)):
            with self.subTest(backend=backend, dynamic=dynamic):
                torch._dynamo.reset()
                compiled = torch.compile(self.step, backend=backend, dynamic=dynamic)
                for batch, seq in ((2, 64), (2, 64), (2, 100), (3, 70), (1, 0)):
                    self.check(compiled, batch, seq)

    def test_without_gradients_and_with_a_mode(self):
        compiled = torch.compile(self.step)
        q, k, v, *_ = inputs(BF16, 2, 4, 2, 128, 128, 64)
        with torch.no_grad():
            self.assert_close("result", compiled(q, k, v), self.step(q, k, v).double(), GRADIENT_BOUND[BF16])
        with torch.autocast("cuda", dtype=BF16):
            wide = [tensor.float() for tensor in (q, k, v)]
            self.assert_close("result", compiled(*wide), self.step(*wide).double(), GRADIENT_BOUND[BF16])

    def test_other_calls(self):
        q, k, v, grad_out, _ = inputs(BF16, 1, 2, 2, 64, 64, 64)
        prepared, prepared_backward = attune.prepare(q, k, v), attune.prepare_backward(q, k, v, deterministic=True)

        def step(q, k, v):
            out, lse = prepared(q + 0, k, v, return_lse=True)
            raw = attune.backward(grad_out, q, k, v, out, lse, deterministic=True)
            return out * 2, raw, prepared_backward(grad_out, q, k, v, out, lse)

        out, raw, of_prepared = torch.compile(step, backend="aot_eager")(q, k, v)
        exact_out, exact, _ = step(q, k, v)
        self.assert_same([out, *raw, *of_prepared], [exact_out, *exact, *exact])

    def test_a_result_in_a_given_tensor_breaks_the_graph(self):
        q, k, v, *_ = inputs(BF16, 1, 2, 2, 64, 64, 64)

        def step(q, k, v, out):
            return attune.attention(q, k, v, out=out) + 1

        out = torch.empty_like(q)
        self.assert_same([torch.compile(step, backend="eager")(q, k, v, out), out], [attune.attention(q, k, v) + 1, attune.attention(q, k, v)])
        torch._dynamo.reset()
        with self.assertRaisesRegex(Exception, "torch.compiler.disable"):
            torch.compile(step, backend="eager", fullgraph=True)(q, k, v, out)

    def test_a_module_that_is_trained(self):
        class Layer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.project, self.join = torch.nn.Linear(128, 384), torch.nn.Linear(128, 128)

            def forward(self, x):
                q, k, v = self.project(x).unflatten(-1, (3, 2, 64)).unbind(2)
                return x + self.join(attune.attention(q, k, v, causal=True, layout="bshd").flatten(2))

        torch.manual_seed(3)
        layer, x = Layer().to(DEVICE), normal(2, 50, 128, dtype=torch.float32, seed=1)
        compiled, losses = torch.compile(layer), []
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(4):
            with torch.autocast("cuda", dtype=BF16):
                loss = (compiled(x) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertTrue(all(after < before for before, after in zip(losses, losses[1:])), losses)

    def test_an_import_does_not_load_the_compiler(self):
        program = ("import sys; sys.path.insert(0, sys.argv[1]); import torch, attune_kernels as attune; q = torch.ones(1, 1, 8, 8, device='cuda').half(); "
                   "attune.attention(q, q, q); sys.exit('torch._dynamo' in sys.modules)")
        ended = subprocess.run([sys.executable, "-c", program, str(BINDING)], capture_output=True, text=True)
        self.assertEqual(ended.returncode, 0, ended.stderr)


class Messages(OnGpu):
    """A tuning database that is none: the library says so, and runs."""

    PROGRAM = """
import logging, sys
sys.path.insert(0, sys.argv[1])
import torch, attune_kernels as attune
how = sys.argv[2]
if how == "logging":
    logging.basicConfig(format="%(name)s %(levelname)s %(message)s")
elif how == "callback":
    attune.set_log_callback(lambda level, message: print("heard", level, message), "info")
q = torch.randn(1, 2, 64, 64, device="cuda").half()
print("ran", bool(attune.attention(q, q, q).isfinite().all()))
"""

    def test_a_damaged_database_is_said_and_the_call_runs(self):
        cases = [("nothing", None), ("logging", None), ("callback", None), ("nothing", "off"), ("nothing", "warning")]
        said = {}
        with tempfile.TemporaryDirectory() as folder:
            started = []
            for number, (how, level) in enumerate(cases):
                database = pathlib.Path(folder) / str(number) / "tuning.db"
                database.parent.mkdir()
                database.write_bytes(b"SQLite format 3\0" + b"\xff" * 8000)
                environment = {name: value for name, value in os.environ.items() if name != "ATTUNE_LOG"}
                environment.update({"ATTUNE_DATABASE": str(database)} if level is None else {"ATTUNE_DATABASE": str(database), "ATTUNE_LOG": level})
                started.append(subprocess.Popen([sys.executable, "-c", self.PROGRAM, str(BINDING), how], stdout=subprocess.PIPE,
                                                stderr=subprocess.PIPE, text=True, env=environment))
            for case, process in zip(cases, started):
                said[case] = process.communicate()
                self.assertEqual(process.returncode, 0, said[case])
                self.assertIn("ran True", said[case][0])
        self.assertIn("tuning.db", said["nothing", None][1])
        self.assertRegex(said["logging", None][1], r"attune WARNING .*tuning\.db")
        self.assertRegex(said["callback", None][0], r"heard warning .*tuning\.db")
        self.assertNotIn("tuning.db", said["callback", None][1])
        self.assertNotIn("tuning.db", said["nothing", "off"][1])
        self.assertRegex(said["nothing", "warning"][1], r"attune: warning: .*tuning\.db")


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


    def test_a_decoding_step_in_a_graph(self):
        """Its keys are split: a graph of two launches, with a workspace between them, is replayed on other values; keys then grow."""
        options = {"causal": True}
        q, k, v, *_ = inputs(BF16, 1, 32, 4, 1, 4000, 128)
        prepared = attune.prepare(q, k, v, **options)
        self.assertIn("parts", prepared.config)
        given = torch.zeros_like(q)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out, lse = attune.attention(given, k, v, return_lse=True, **options)
        for seed in (1, 9):
            given.copy_(normal(1, 32, 1, 128, dtype=BF16, seed=seed))
            graph.replay()
            torch.cuda.synchronize()
            expected, expected_lse = reference(given.double(), k.double(), v.double(), **options)
            self.assert_close("O", out, expected, OUTPUT_BOUND[BF16])
            self.assertLessEqual((lse.double() - expected_lse).abs().max().item(), LSE_BOUND)
        for keys in range(3073, 4001, 103):
            tensors = q, k[:, :, :keys], v[:, :, :keys]
            expected, _ = reference(*(tensor.double() for tensor in tensors), **options)
            self.assert_close("O", attune.attention(*tensors, **options), expected, OUTPUT_BOUND[BF16])


class ComparisonWithPyTorch(OnGpu):
    """compare_with_torch.py: figures are for people; here it is that every part of it runs and that outputs are right."""

    def compare(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            shapes, document, table = (pathlib.Path(folder) / name for name in ("shapes.json", "out.json", "out.md"))
            shapes.write_text(json.dumps(["forward bf16 b2 hq4 hkv2 sq300 d64 causal", "forward fp16 b1 hq2 sq100 skv260 d72 causal",
                                          "forward bf16 b1 hq2 sq200 d64 causal-top-left scale0.2 bhsd", "backward bf16 b1 hq4 hkv2 sq200 d64 causal",
                                          "backward bf16 b1 hq4 hkv2 sq200 d64 causal deterministic"]))
            ended = subprocess.run([sys.executable, str(BINDING / "compare_with_torch.py"), "--shapes", str(shapes), "--seconds", "0.05",
                                    "--json", str(document), "--markdown", str(table), *arguments], capture_output=True, text=True)
            self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
            return json.loads(document.read_text()), table.read_text()

    def test_a_table(self):
        document, table = self.compare("--spread", "1", "--data", "sink:12", "--no-stored")
        self.assertEqual(len(document["rows"]), 8)
        for row in document["rows"]:
            self.assertGreater(row["contenders"]["attune"]["tflops"], 0)
            self.assertIn("sm_clock_mhz", row)
            for name in ("attune", "fa2"):
                self.assertLessEqual(row["contenders"][name]["worst_over_bound"], 1, row)
                if row["data"] == "normal:1":
                    self.assertLess(row["contenders"][name]["relative_error"], 2e-2, row)
        self.assertIn("deterministic", document["rows"][3]["contenders"])
        self.assertEqual({row["data"] for row in document["rows"]}, {"normal:1", "sink:12"})
        self.assertIn("Backward, data sink:12: key 0, which kernels walk last, is 12 above the rest", table)

    def test_ways_of_timing(self):
        document, table = self.compare("--why-stored-differs", "--protocol", "sustained", "--no-stored", "--pass", "forward")
        self.assertIn("led by a launch of the same kernel", document["protocol"])
        ways = {"table", "alone", "no LSE", "other layout", "graph", "warm L2", "rested", "sustained"}
        self.assertEqual(set(document["rows"][0]["variants"]), ways)
        self.assertIn("| sustained |", table)


result = unittest.main(exit=False).result
failed, skipped = len({case.id().split(" ")[0] for case, _ in result.failures + result.errors}), len(result.skipped)
print(f"attune-tests: {result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
sys.exit(0 if result.wasSuccessful() else 1)

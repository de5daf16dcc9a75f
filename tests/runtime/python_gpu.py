"""The Python binding on a GPU: outputs, log-sum-exp and gradients beside PyTorch's own in double precision."""

import unittest
import unittest.mock
import warnings

# First: it finds the module, and ends a program that has no GPU.
from on_gpu import (BF16, DEVICE, FP16, GRADIENT_BOUND, LSE_BOUND, OUTPUT_BOUND, OnGpu, attended, inputs, normal, reference,
                    reference_gradients, run_tests, torch, with_gradients)

import attune_kernels as attune
from attune_kernels import _calls
from comparison.inputs import SUITE, make_inputs
from comparison.problems import parse_problem
from comparison.references import GradientReference, Reference

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


class Invariance(OnGpu):
    """A prompt as a whole, beside others, in chunks and token by token."""

    def test_outputs(self):
        for dtype, head_dim in ((BF16, 128), (FP16, 64), (BF16, 256)):
            q, k, v, *_ = inputs(dtype, 3, 8, 2, 4500, 4500, head_dim)
            whole = attune.attention(q, k, v, causal=True, return_lse=True, invariant=True)
            for begin, end in ((0, 1), (0, 300), (300, 2049), (2049, 4500), (4499, 4500), (2100, 2101)):
                with self.subTest(dtype=dtype, head_dim=head_dim, begin=begin, end=end):
                    chunk = attune.attention(q[1:2, :, begin:end], k[1:2, :, :end], v[1:2, :, :end], causal=True, return_lse=True, invariant=True)
                    self.assert_same(chunk, [one[1:2, :, begin:end] for one in whole])

    def test_gradients(self):
        q, k, v, grad_out, _ = inputs(BF16, 3, 8, 2, 700, 700, 128)
        found = []
        for batch in (slice(0, 3), slice(1, 2)):
            leaves = with_gradients(*(one[batch] for one in (q, k, v)))
            grads = torch.autograd.grad(attune.attention(*leaves, causal=True, invariant=True), leaves, grad_out[batch])
            found.append([grad[1:2] if len(grad) == 3 else grad for grad in grads])
        self.assert_same(found[0], found[1])


class Unsupported(OnGpu):
    def test_what_is_served_and_what_is_not(self):
        q, k, v, *_ = inputs(BF16, 1, 4, 2, 50, 70, 64)
        self.assertIsNone(attune.unsupported(*with_gradients(q, k, v), causal=True, window=(7, None), invariant=True))
        self.assertIn("head dim 60", attune.unsupported(*(one[..., :60].contiguous() for one in (q, k, v))))
        self.assertIn("float32", attune.unsupported(q.float(), k, v))


@unittest.skipIf(_calls._known_calls is None, "without the extension")
class KnownCalls(OnGpu):
    """Calls that the extension serves."""

    def run_by_python(self, call):
        with unittest.mock.patch.object(_calls, "_known_calls", None), unittest.mock.patch.object(_calls, "_forward_launchers", {}), \
                unittest.mock.patch.object(_calls, "_backward_launchers", {}):
            return call()

    def run_by_extension(self, call):
        call()
        with unittest.mock.patch.object(_calls._Launcher, "run", side_effect=AssertionError("a call of a known kind was made by Python code")):
            return call()

    def test_results_have_the_bits_of_those_of_the_python_code(self):
        for dtype, *sizes, options in CASES:
            q, k, v, *grads = inputs(dtype, *sizes, options.get("layout", "bhsd"))

            def call():
                leaves = with_gradients(q, k, v)
                results = attune.attention(*leaves, return_lse=True, deterministic=True, **options)
                return [one.detach() for one in results] + list(torch.autograd.grad(results, leaves, grads))

            with self.subTest(dtype=dtype, sizes=sizes, **options):
                self.assert_same(self.run_by_extension(call), self.run_by_python(call))

    def test_they_run_on_the_current_stream(self):
        q, k, v, _, _ = inputs(BF16, 1, 2, 2, 80, 80, 64)
        expected = self.run_by_python(lambda: attune.attention(q, k, v))
        late, stream = torch.zeros_like(q), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())

        def call():
            with torch.cuda.stream(stream):
                late.zero_()
                torch.cuda._sleep(10 ** 8)
                late.copy_(q)
                return attune.attention(late, k, v)

        out = self.run_by_extension(call)
        stream.synchronize()
        self.assert_same([out], [expected])

    def test_they_can_be_captured(self):
        q, k, v, other, _ = inputs(BF16, 1, 2, 2, 80, 80, 64)
        expected = self.run_by_python(lambda: attune.attention(other, k, v))
        self.run_by_extension(lambda: attune.attention(q, k, v))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = attune.attention(q, k, v)
        q.copy_(other)
        graph.replay()
        self.assert_same([out], [expected])


if __name__ == "__main__":
    run_tests()

"""What changes scores, rows and the softmax, through the Python binding on a GPU: softcaps, sinks, ALiBi, biases, attention masks and dropout."""

# First: it finds the module, and ends a program that has no GPU.
from on_gpu import BF16, FP16, GRADIENT_BOUND, LSE_BOUND, OUTPUT_BOUND, OnGpu, inputs, reference, reference_gradients, run_tests, torch, with_gradients

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import checkpoint

import attune_kernels as attune


class Softcap(OnGpu):
    """Scores of standard deviation 4 of which a cap of 3 reaches most, and one of 50 hardly any."""

    def test_values_and_gradients(self):
        for dtype, head_dim, softcap, options in ((BF16, 128, 3.0, {"causal": True}), (FP16, 64, 50.0, {}), (BF16, 256, 3.0, {"window": (90, 5)}),
                                                  (FP16, 40, 3.0, {"causal": True, "deterministic": True})):
            q, k, v, grad_out, grad_lse = inputs(dtype, 2, 4, 2, 300, 400, head_dim)
            options = {"scale": 4 * head_dim**-0.5, "softcap": softcap, **options}
            known = {name: value for name, value in options.items() if name != "deterministic"}
            (exact_out, exact_lse), exact = reference_gradients(q, k, v, grad_out, grad_lse, **known)
            for compiled in (False, True):
                with self.subTest(dtype=dtype, head_dim=head_dim, compiled=compiled, **options):
                    function = torch.compile(attune.attention, backend="aot_eager") if compiled else attune.attention
                    leaves = with_gradients(q, k, v)
                    out, lse = function(*leaves, return_lse=True, **options)
                    self.assert_close("O", out, exact_out, 2 * OUTPUT_BOUND[dtype])
                    self.assertLess((lse - exact_lse).abs().max().item(), LSE_BOUND + 2**-16 * softcap)
                    self.assert_gradients(torch.autograd.grad((out, lse), leaves, (grad_out, grad_lse)), exact, dtype)

    def test_scores_of_any_size_are_capped(self):
        q, k, v, grad_out, _ = inputs(BF16, 1, 2, 2, 100, 100, 64)
        leaves = with_gradients(1000 * q, 1000 * k, v)
        out = attune.attention(*leaves, causal=True, softcap=20.0)
        (exact_out, _), exact = reference_gradients(1000 * q, 1000 * k, v, grad_out, None, causal=True, softcap=20.0)
        self.assert_close("O", out, exact_out, OUTPUT_BOUND[BF16])
        self.assert_close("dV", torch.autograd.grad(out, leaves, grad_out)[2], exact[2], GRADIENT_BOUND[BF16])


class Sinks(OnGpu):
    def inputs(self, dtype, head_dim, seq_q=300, seq_kv=400):
        q, k, v, grad_out, grad_lse = inputs(dtype, 2, 4, 2, seq_q, seq_kv, head_dim)
        return q, k, v, grad_out, grad_lse, torch.tensor([2.0, 6.0, -torch.inf, 8.0], device=q.device)

    def test_values_and_gradients(self):
        for dtype, head_dim, options in ((BF16, 128, {"causal": True}), (FP16, 64, {"softcap": 3.0}), (BF16, 64, {"window": (90, 5)}),
                                         (FP16, 256, {"causal": True, "deterministic": True}), (BF16, 40, {"invariant": True})):
            q, k, v, grad_out, grad_lse, sinks = self.inputs(dtype, head_dim)
            known = {name: value for name, value in options.items() if name not in ("deterministic", "invariant")}
            (exact_out, exact_lse), exact = reference_gradients(q, k, v, grad_out, grad_lse, sinks, **known)
            for compiled in (False, True):
                with self.subTest(dtype=dtype, head_dim=head_dim, compiled=compiled, **options):
                    function = torch.compile(attune.attention, backend="aot_eager") if compiled else attune.attention
                    leaves, of_sinks = with_gradients(q, k, v), sinks.clone().requires_grad_()
                    out, lse = function(*leaves, return_lse=True, sinks=of_sinks, **options)
                    self.assert_close("O", out, exact_out, 2 * OUTPUT_BOUND[dtype])
                    self.assertLess((lse - exact_lse).abs().max().item(), LSE_BOUND)
                    *gradients, of_sinks = torch.autograd.grad((out, lse), (*leaves, of_sinks), (grad_out, grad_lse))
                    self.assert_gradients(gradients, exact, dtype)
                    self.assert_close("d sinks", of_sinks, exact[3], GRADIENT_BOUND[dtype])
                    with torch.no_grad():
                        again = attune.attention(q, k, v, sinks=sinks, out=torch.empty_like(q), **options)
                        self.assertTrue(torch.equal(again, attune.attention(q, k, v, sinks=sinks, **options)))

    def test_rows_that_see_nothing_have_the_sink(self):
        q, k, v, grad_out, grad_lse, sinks = self.inputs(BF16, 64, 100, 60)
        leaves, of_sinks = with_gradients(q, k, v), sinks.clone().requires_grad_()
        out, lse = attune.attention(*leaves, causal=True, return_lse=True, sinks=of_sinks)
        self.assertEqual(out[:, :, :40].abs().max().item(), 0)
        self.assertTrue(torch.equal(lse[:, :, :40], sinks[None, :, None].expand(2, 4, 40)))
        of_sinks, = torch.autograd.grad((out, lse), of_sinks, (grad_out, grad_lse))
        _, exact = reference_gradients(q, k, v, grad_out, grad_lse.masked_fill(sinks.isinf()[None, :, None], 0), sinks.clamp_min(-1e4), causal=True)
        self.assert_close("d sinks", of_sinks, exact[3], GRADIENT_BOUND[BF16])
        out, lse = attune.attention(q, k[:, :, :0], v[:, :, :0], return_lse=True, sinks=sinks)
        self.assertTrue(torch.equal(lse, sinks[None, :, None].expand(lse.shape)))
        self.assertEqual(out.abs().max().item(), 0)

    def test_sinks_of_16_bits_and_under_autocast(self):
        q, k, v, *_, sinks = self.inputs(BF16, 64)
        narrow = sinks.bfloat16().requires_grad_()
        out = attune.attention(q, k, v, sinks=narrow)
        self.assertTrue(torch.equal(out, attune.attention(q, k, v, sinks=sinks)))
        gradient, = torch.autograd.grad(out.float().square().sum(), narrow)
        self.assertEqual(gradient.dtype, BF16)
        with torch.autocast("cuda", dtype=BF16):
            self.assertTrue(torch.equal(out, attune.attention(q.float(), k.float(), v.float(), sinks=sinks)))

    def test_prepared_and_bare(self):
        q, k, v, grad_out, grad_lse, sinks = self.inputs(BF16, 64)
        with torch.no_grad():
            out, lse = attune.prepare(q, k, v, causal=True, sinks=sinks)(q, k, v, return_lse=True, sinks=sinks)
            self.assert_same((out, lse), attune.attention(q, k, v, causal=True, return_lse=True, sinks=sinks))
            options = {"grad_lse": grad_lse, "sinks": sinks}
            bare = attune.backward(grad_out, q, k, v, out, lse, causal=True, deterministic=True, **options)
            prepared = attune.prepare_backward(q, k, v, causal=True, deterministic=True, sinks=sinks)
            self.assert_same(bare, prepared(grad_out, q, k, v, out, lse, **options))
            self.assertEqual(len(bare), 4)
        self.assertIsNone(attune.unsupported(q, k, v, sinks=sinks))
        self.assertIn("a number for each head", attune.unsupported(q, k, v, sinks=sinks[:3]))
        with self.assertRaisesRegex(TypeError, "sinks is torch.float64"):
            attune.attention(q, k, v, sinks=sinks.double())


class Slopes(OnGpu):
    def test_values_and_gradients(self):
        for dtype, head_dim, options in ((BF16, 128, {"causal": True}), (FP16, 64, {"softcap": 3.0}), (BF16, 64, {"window": (90, 50)}), (BF16, 128, {}),
                                         (FP16, 256, {"causal": True, "deterministic": True}), (BF16, 40, {"invariant": True}),
                                         (BF16, 64, {"causal": True, "top_left": True})):
            for seq_q, seq_kv in (300, 400), (500, 200):
                q, k, v, grad_out, grad_lse = inputs(dtype, 2, 4, 2, seq_q, seq_kv, head_dim)
                known = {name: value for name, value in options.items() if name not in ("deterministic", "invariant")}
                slopes = torch.tensor([[0.5, 0.06, 0.004, 0.0], [0.25, -0.01, 1.5, 0.1]], device=q.device)
                for given in slopes, slopes[0]:
                    (exact_out, exact_lse), exact = reference_gradients(q, k, v, grad_out, grad_lse, alibi_slopes=given, **known)
                    with self.subTest(dtype=dtype, head_dim=head_dim, seq_q=seq_q, dim=given.dim(), **options):
                        leaves = with_gradients(q, k, v)
                        out, lse = attune.attention(*leaves, return_lse=True, alibi_slopes=given, **options)
                        self.assert_close("O", out, exact_out, 2 * OUTPUT_BOUND[dtype])
                        self.assertLess((lse - exact_lse).nan_to_num(0).abs().max().item(), LSE_BOUND)
                        gradients = torch.autograd.grad((out, lse), leaves, (grad_out, grad_lse.masked_fill(lse == -torch.inf, 0)))
                        self.assert_gradients(gradients, exact, dtype)


class Dropout(OnGpu):
    @staticmethod
    def kept(dropout_p, state, shape):
        return attune.dropout_mask(dropout_p, state, shape).double() / (1 - dropout_p)

    def test_values_and_gradients(self):
        for dtype, head_dim, dropout_p, options in ((BF16, 128, 0.1, {"causal": True}), (FP16, 64, 0.01, {"softcap": 3.0}), (BF16, 64, 0.9, {"window": (90, 5)}),
                                                    (FP16, 256, 0.3, {"causal": True, "deterministic": True}), (BF16, 40, 0.1, {})):
            for seq_q, seq_kv in (300, 400), (1, 1500):
                q, k, v, grad_out, grad_lse = inputs(dtype, 2, 4, 2, seq_q, seq_kv, head_dim)
                known = {name: value for name, value in options.items() if name != "deterministic"}
                for compiled in (False, True):
                    with self.subTest(dtype=dtype, head_dim=head_dim, seq_q=seq_q, compiled=compiled, **options):
                        state = attune.new_dropout_state()
                        kept = self.kept(dropout_p, state, (2, 4, seq_q, seq_kv))
                        (exact_out, exact_lse), exact = reference_gradients(q, k, v, grad_out, grad_lse, kept=kept, **known)
                        function = torch.compile(attune.attention, backend="aot_eager") if compiled else attune.attention
                        leaves = with_gradients(q, k, v)
                        out, lse = function(*leaves, return_lse=True, dropout_p=dropout_p, dropout_state=state, **options)
                        self.assert_close("O", out, exact_out, 2 * OUTPUT_BOUND[dtype])
                        self.assertLess((lse - exact_lse).abs().max().item(), LSE_BOUND)
                        self.assert_gradients(torch.autograd.grad((out, lse), leaves, (grad_out, grad_lse)), exact, dtype)

    def test_pytorchs_generator_gives_the_state(self):
        q, k, v, grad_out, _ = inputs(BF16, 2, 4, 2, 300, 400, 64)

        def run(*leaves):
            return attune.attention(*leaves, dropout_p=0.2, deterministic=True)

        def results(function):
            torch.manual_seed(5)
            leaves = with_gradients(q, k, v)
            out = function(*leaves)
            return out, *torch.autograd.grad(out, leaves, grad_out)

        first = results(run)
        self.assert_same(results(run), first)
        self.assert_same(results(lambda *leaves: checkpoint.checkpoint(run, *leaves, use_reentrant=False)), first)
        self.assertFalse(torch.equal(run(q, k, v), first[0]))
        torch.manual_seed(5)
        self.assertTrue(torch.equal(attune.attention(q, k, v, dropout_p=0.2, dropout_state=attune.new_dropout_state()), first[0]))

    def test_a_graph_draws_anew_at_each_replay(self):
        q, k, v, grad_out, _ = inputs(BF16, 1, 2, 2, 300, 300, 64)
        leaves = with_gradients(q, k, v)

        def step():
            state = attune.new_dropout_state()
            out = attune.attention(*leaves, dropout_p=0.3, dropout_state=state)
            return state, out, torch.autograd.grad(out, leaves, grad_out)

        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            state, out, gradients = step()
        seen = set()
        for _ in range(3):
            graph.replay()
            seen.add(tuple(state.tolist()))
            (exact_out, _), exact = reference_gradients(q, k, v, grad_out, None, kept=self.kept(0.3, state, (1, 2, 300, 300)))
            self.assert_close("O", out, exact_out, 2 * OUTPUT_BOUND[BF16])
            self.assert_gradients(gradients, exact, BF16)
        self.assertEqual(len(seen), 3)


class TensorsOfPairs(OnGpu):
    def test_values_and_gradients(self):
        """Rows of any length, 16 and 32 bits, repeated along any dimensions; hidden keys and the least finite number in whole rows."""
        for dtype, head_dim, options in ((BF16, 128, {"causal": True}), (FP16, 64, {"softcap": 3.0}), (BF16, 64, {"window": (90, 50)}), (BF16, 128, {}),
                                         (FP16, 256, {"causal": True, "deterministic": True}), (BF16, 40, {"invariant": True})):
            for seq_q, seq_kv in (300, 400), (500, 197):
                q, k, v, grad_out, grad_lse = inputs(dtype, 2, 4, 2, seq_q, seq_kv, head_dim)
                known = {name: value for name, value in options.items() if name not in ("deterministic", "invariant")}
                for shape in (2, 4, seq_q, seq_kv), (1, 4, seq_q, seq_kv), (2, 1, 1, seq_kv), (seq_q, seq_kv):
                    bias = torch.randn(shape, device=q.device, dtype=dtype)
                    bias[torch.rand(shape, device=q.device) < 0.1] = -torch.inf
                    mask = torch.rand(shape, device=q.device) < 0.7
                    for terms in (dict(bias=bias), dict(bias=bias.float()), dict(attention_mask=mask), dict(bias=bias, attention_mask=mask)):
                        (exact_out, exact_lse), exact = reference_gradients(q, k, v, grad_out, grad_lse, **terms, **known)
                        with self.subTest(dtype=dtype, head_dim=head_dim, seq_q=seq_q, shape=shape, terms=list(terms), **options):
                            leaves = with_gradients(q, k, v)
                            out, lse = attune.attention(*leaves, return_lse=True, **terms, **options)
                            self.assert_close("O", out, exact_out, 2 * OUTPUT_BOUND[dtype])
                            self.assertLess((lse - exact_lse).nan_to_num(0).abs().max().item(), LSE_BOUND)
                            gradients = torch.autograd.grad((out, lse), leaves, (grad_out, grad_lse.masked_fill(lse == -torch.inf, 0)))
                            self.assert_gradients(gradients, exact, dtype)

    def test_the_gradient_of_a_bias(self):
        for dtype, head_dim, options in (BF16, 128, {"causal": True}), (FP16, 64, {"softcap": 3.0}), (BF16, 256, {}), (FP16, 40, {"window": (90, 5)}):
            q, k, v, grad_out, _ = inputs(dtype, 3, 4, 2, 300, 197, head_dim)
            for shape in (3, 4, 300, 197), (1, 4, 300, 197), (4, 300, 197), (3, 1, 1, 197), (300, 197):
                for of in dtype, torch.float32:
                    bias = torch.randn(shape, device=q.device, dtype=of)
                    exact = [tensor.detach().double().requires_grad_() for tensor in (q, k, v, bias)]
                    exact_out, _ = reference(*exact[:3], bias=exact[3], **options)
                    wanted = torch.autograd.grad((exact_out * grad_out.double()).sum(), exact)
                    with self.subTest(dtype=dtype, of=of, shape=shape, **options):
                        leaves = with_gradients(q, k, v, bias)
                        out = attune.attention(*leaves[:3], bias=leaves[3], **options)
                        *gradients, of_bias = torch.autograd.grad(out, leaves, grad_out, retain_graph=True)
                        self.assert_gradients(gradients, wanted[:3], dtype)
                        self.assertEqual((of_bias.shape, of_bias.dtype), (bias.shape, of))
                        self.assert_close("the bias's gradient", of_bias, wanted[3], 2 * OUTPUT_BOUND[dtype])
                        self.assertTrue(torch.equal(of_bias, torch.autograd.grad(out, leaves[3], grad_out)[0]))

    def test_the_least_finite_number_hides_as_in_pytorch(self):
        for dtype in BF16, FP16:
            q, k, v, grad_out, _ = inputs(dtype, 2, 4, 4, 200, 300, 64)
            bias = torch.zeros(2, 1, 200, 300, device=q.device, dtype=dtype)
            bias[:, :, :, 250:] = torch.finfo(dtype).min
            bias[1, :, 7] = torch.finfo(dtype).min
            with sdpa_kernel(SDPBackend.MATH):  # on a GPU its other kernels multiply the number by log2(e) and hide such rows whole
                expected = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), attn_mask=bias.float())
            leaves = with_gradients(q, k, v)
            out = attune.attention(*leaves, bias=bias)
            torch.testing.assert_close(out.float(), expected, atol=1e-2, rtol=1e-2)
            for gradient in torch.autograd.grad(out, leaves, grad_out):
                self.assertTrue(gradient.isfinite().all())


if __name__ == "__main__":
    run_tests()

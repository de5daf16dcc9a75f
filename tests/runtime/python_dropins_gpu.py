"""The drop-ins of the Python binding on a GPU: values and gradients beside double precision, FlashAttention-2 as PyTorch holds it, and
Transformers' own attention.

Tests of Transformers are skipped where it is not installed.
"""

import importlib.util
import sys
import unittest
import unittest.mock

# First: it finds the module, and ends a program that has no GPU.
from on_gpu import BF16, FP16, GRADIENT_BOUND, LSE_BOUND, OUTPUT_BOUND, normal, reference_gradients, run_tests, torch

import attune_kernels as attune
from attune_kernels import flash_attn, flash_attn_interface

# dtype, batch, heads_q, heads_kv, seq_q, seq_k, head_dim, options
CASES = [
    (BF16, 2, 4, 4, 128, 128, 64, {}),
    (FP16, 2, 4, 2, 113, 203, 59, {"causal": True}),
    (BF16, 1, 6, 1, 203, 113, 111, {"causal": True}),  # queries that see nothing
    (BF16, 1, 4, 2, 300, 420, 128, {"window_size": (64, 16)}),
    (FP16, 2, 2, 2, 200, 200, 64, {"causal": True, "window_size": (50, 9)}),
    (BF16, 1, 2, 1, 150, 90, 40, {"window_size": (3, 5)}),  # likewise
    (FP16, 1, 4, 4, 97, 97, 96, {"softmax_scale": 0.3, "deterministic": True}),
    (BF16, 1, 4, 2, 1, 300, 256, {"causal": True}),
    (BF16, 1, 4, 2, 200, 260, 128, {"causal": True, "softcap": 1.5}),
    (FP16, 2, 2, 1, 130, 130, 59, {"window_size": (50, 9), "softcap": 15.0}),
]


def inputs(dtype, batch, heads_q, heads_kv, seq_q, seq_k, head_dim):
    """q, k, v, and the gradient of out."""
    shapes = [(seq_q, heads_q), (seq_k, heads_kv), (seq_k, heads_kv), (seq_q, heads_q)]
    return [normal(batch, seq, heads, head_dim, dtype=dtype, seed=seed) for seed, (seq, heads) in enumerate(shapes)]


def reference(q, k, v, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, deterministic=False, alibi_slopes=None):
    """(out, lse) of tensors (batch, seq, heads, head_dim) in double precision, lse -inf where nothing is seen."""
    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    k, v = (tensor.repeat_interleave(q.shape[1] // tensor.shape[1], 1) for tensor in (k, v))
    left, right = window_size[0], 0 if causal else window_size[1]
    after = torch.arange(k.shape[2], device="cuda") - torch.arange(q.shape[2], device="cuda")[:, None] - (k.shape[2] - q.shape[2])
    seen = torch.ones_like(after, dtype=torch.bool)
    if left >= 0:
        seen &= after >= -left
    if right >= 0:
        seen &= after <= right
    blind = ~seen.any(1)
    scores = q @ k.transpose(2, 3) * (q.shape[3] ** -0.5 if softmax_scale is None else softmax_scale)
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    if alibi_slopes is not None:
        scores = scores - alibi_slopes.double().expand(scores.shape[:2])[:, :, None, None] * after.abs()
    scores = scores.masked_fill(~seen, -torch.inf).masked_fill(blind[:, None], 0)
    out = (scores.softmax(3) @ v).masked_fill(blind[:, None], 0)
    return out.transpose(1, 2), scores.logsumexp(3).masked_fill(blind, -torch.inf)


def doubles(*tensors):
    return [tensor.detach().double().requires_grad_() for tensor in tensors]


def leaves(*tensors):
    return [tensor.clone().requires_grad_() for tensor in tensors]


class OnGpu(unittest.TestCase):
    def assert_close(self, name, tensor, expected, bound):
        self.assertEqual(tensor.shape, expected.shape, name)
        error = ((tensor.double() - expected).norm() / expected.norm()).item()
        self.assertLessEqual(error, bound, f"relative error of {name}")

    def assert_gradients(self, gradients, expected, dtype):
        for i, (gradient, exact) in enumerate(zip(gradients, expected)):
            self.assertEqual(gradient.dtype, dtype)
            self.assert_close(f"gradient {i}", gradient, exact, GRADIENT_BOUND[dtype])

    def assert_lse(self, lse, expected, blind):
        """blind: what lse is where nothing is seen."""
        self.assertEqual(lse.dtype, torch.float32)
        self.assertTrue(torch.equal(lse == blind, expected == -torch.inf))
        self.assertLess((lse - expected).masked_fill(expected.isinf(), 0).abs().max().item(), LSE_BOUND)


class FlashAttention(OnGpu):
    def test_values_and_gradients(self):
        for dtype, *sizes, options in CASES:
            q, k, v, grad_out = inputs(dtype, *sizes)
            exact = doubles(q, k, v)
            exact_out, exact_lse = reference(*exact, **options)
            exact_gradients = torch.autograd.grad(exact_out, exact, grad_out.double())
            for module, blind in ((flash_attn, torch.inf), (flash_attn_interface, -torch.inf)):
                with self.subTest(module=module.__name__, dtype=dtype, sizes=sizes, **options):
                    given = leaves(q, k, v)
                    out, lse, *rest = module.flash_attn_func(*given, return_attn_probs=True, **options)
                    self.assert_close("O", out, exact_out.detach(), OUTPUT_BOUND[dtype])
                    self.assert_lse(lse.detach(), exact_lse.detach(), blind)
                    self.assertEqual([tuple(tensor.shape) for tensor in rest], [(0,)] if module is flash_attn else [])
                    self.assert_gradients(torch.autograd.grad(out, given, grad_out), exact_gradients, dtype)
                    self.assertTrue(torch.equal(module.flash_attn_func(q, k, v, **options), out))

    def test_slopes(self):
        for dtype, head_dim, options in (BF16, 128, {"causal": True}), (FP16, 59, {}), (BF16, 64, {"window_size": (50, 9), "softcap": 15.0}):
            q, k, v, grad_out = inputs(dtype, 2, 4, 2, 200, 260, head_dim)
            slopes = torch.rand(2, 4, device="cuda")
            for given_slopes in slopes, slopes[1].clone().requires_grad_():
                given, exact = leaves(q, k, v), doubles(q, k, v)
                out = flash_attn.flash_attn_func(*given, alibi_slopes=given_slopes, **options)
                exact_out = reference(*exact, alibi_slopes=given_slopes.detach(), **options)[0]
                with self.subTest(dtype=dtype, head_dim=head_dim, **options):
                    self.assert_close("O", out, exact_out.detach(), OUTPUT_BOUND[dtype])
                    self.assert_gradients(torch.autograd.grad(out, given, grad_out), torch.autograd.grad(exact_out, exact, grad_out.double()), dtype)

    def test_packed_tensors(self):
        qkv, kv, q = normal(2, 90, 3, 4, 64, dtype=BF16, seed=1), normal(2, 90, 2, 2, 59, dtype=BF16, seed=2), normal(2, 70, 4, 59, dtype=BF16, seed=3)
        for function, tensors, parts in [
            (flash_attn.flash_attn_qkvpacked_func, [qkv], lambda qkv: qkv.unbind(2)),
            (flash_attn_interface.flash_attn_qkvpacked_func, [qkv], lambda qkv: qkv.unbind(2)),
            (flash_attn.flash_attn_kvpacked_func, [q, kv], lambda q, kv: (q, *kv.unbind(2))),
        ]:
            given, exact = leaves(*tensors), doubles(*tensors)
            out, exact_out = function(*given, causal=True), reference(*parts(*exact), causal=True)[0]
            grad_out = normal(*out.shape, dtype=BF16, seed=4)
            self.assert_close("O", out, exact_out.detach(), OUTPUT_BOUND[BF16])
            self.assert_gradients(torch.autograd.grad(out, given, grad_out), torch.autograd.grad(exact_out, exact, grad_out.double()), BF16)
        heads = normal(2, 90, 8, 64, dtype=BF16, seed=5)  # 4 of q, 2 of k, 2 of v
        out = flash_attn_interface.flash_attn_qkvpacked_func(heads, num_heads_q=4)
        self.assert_close("O", out, reference(*heads.double().split([4, 2, 2], 2))[0], OUTPUT_BOUND[BF16])

    def test_sequences_one_behind_the_other(self):
        lengths = [70, 0, 1, 129, 200], [90, 33, 0, 129, 120]
        begins, of_keys = (torch.tensor([0, *torch.tensor(one).cumsum(0).tolist()], dtype=torch.int32, device="cuda") for one in lengths)
        slopes = torch.rand(5, 4, device="cuda")
        for dtype, head_dim, options in ((BF16, 64, {"causal": True}), (FP16, 59, {"window_size": (50, 9), "softcap": 3.0}), (BF16, 128, {"causal": True, "alibi": True})):
            q, k, v = (normal(sum(rows), heads, head_dim, dtype=dtype, seed=seed) for seed, (rows, heads) in
                       enumerate(((lengths[0], 4), (lengths[1], 2), (lengths[1], 2))))
            grad_out = normal(*q.shape, dtype=dtype, seed=9)
            alibi, options = options.get("alibi"), {name: value for name, value in options.items() if name != "alibi"}
            modules = [flash_attn] if alibi else [flash_attn, flash_attn_interface]
            for module in modules:
                given, exact = leaves(q, k, v), doubles(q, k, v)
                of_call = {**options, "alibi_slopes": slopes} if alibi else options
                out = module.flash_attn_varlen_func(*given, begins, of_keys, 200, 129, **of_call)
                parts = []
                for sequence, (rows, keys) in enumerate(zip(*(one.tolist() for one in (begins.diff(), of_keys.diff())))):
                    first, of_key = int(begins[sequence]), int(of_keys[sequence])
                    one = [tensor[None, place:place + count] for tensor, place, count in zip(exact, (first, of_key, of_key), (rows, keys, keys))]
                    if not rows or not keys:
                        parts.append(one[0] * 0)
                        continue
                    parts.append(reference(*one, alibi_slopes=slopes[sequence:sequence + 1] if alibi else None, **options)[0])
                exact_out = torch.cat(parts, 1)[0]
                with self.subTest(module=module.__name__, dtype=dtype, head_dim=head_dim, **options):
                    self.assert_close("O", out, exact_out.detach(), OUTPUT_BOUND[dtype])
                    self.assert_gradients(torch.autograd.grad(out, given, grad_out), torch.autograd.grad(exact_out, exact, grad_out.double()), dtype)
        qkv = normal(400, 3, 4, 64, dtype=BF16, seed=1)
        packed = flash_attn.flash_attn_varlen_qkvpacked_func(qkv, begins, 200, causal=True)
        self.assertTrue(torch.equal(packed, flash_attn.flash_attn_varlen_func(*qkv.unbind(1), begins, begins, 200, 200, causal=True)))

    def test_a_last_dimension_of_any_stride(self):
        q, k, v, grad_out = inputs(BF16, 1, 2, 2, 80, 80, 64)
        turned = v.transpose(1, 3).contiguous().transpose(1, 3)
        self.assertNotEqual(turned.stride(3), 1)
        for module in (flash_attn, flash_attn_interface):
            self.assertTrue(torch.equal(module.flash_attn_func(q, k, turned), module.flash_attn_func(q, k, v)))
            given = leaves(q, k, v)
            out = module.flash_attn_func(*given, deterministic=True)
            expected = torch.autograd.grad(out, given, grad_out, retain_graph=True)
            for gradient, other in zip(torch.autograd.grad(out, given, grad_out.transpose(1, 3).contiguous().transpose(1, 3)), expected):
                self.assertTrue(torch.equal(gradient, other))

    def test_a_loss_may_depend_on_lse(self):
        q, k, v, _ = inputs(BF16, 1, 2, 2, 90, 70, 64)
        weights = normal(1, 2, 90, dtype=torch.float32, seed=9)
        given, exact = leaves(q, k, v), doubles(q, k, v)
        lse, exact_lse = flash_attn.flash_attn_func(*given, causal=True, return_attn_probs=True)[1], reference(*exact, causal=True)[1]
        ours = torch.autograd.grad((lse * weights).masked_fill(lse.isinf(), 0).sum(), given[:2])
        theirs = torch.autograd.grad((exact_lse * weights).masked_fill(exact_lse.isinf(), 0).sum(), exact[:2])
        self.assert_gradients(ours, theirs, BF16)

    def test_results_are_those_of_pytorchs_flash_attention(self):
        for dtype, batch, heads_q, heads_kv, seq_q, seq_k, head_dim, options in CASES:
            if head_dim % 8 != 0 or "softcap" in options:  # which PyTorch's has not
                continue
            q, k, v, _ = inputs(dtype, batch, heads_q, heads_kv, seq_q, seq_k, head_dim)
            k, v = (tensor.repeat_interleave(heads_q // heads_kv, 2) for tensor in (k, v))
            window = {} if "window_size" not in options else dict(zip(("window_size_left", "window_size_right"), options["window_size"]))
            with self.subTest(dtype=dtype, sizes=(seq_q, seq_k, head_dim), **options):
                theirs = torch.ops.aten._flash_attention_forward(q, k, v, None, None, seq_q, seq_k, 0.0, options.get("causal", False), False,
                                                                 scale=options.get("softmax_scale"), **window)
                out, lse, _ = flash_attn.flash_attn_func(q, k, v, return_attn_probs=True, **options)
                self.assert_close("O", out, theirs[0].double(), 2 * OUTPUT_BOUND[dtype])
                self.assertTrue(torch.equal(lse == torch.inf, theirs[1] == torch.inf), "where lse is +inf")
                self.assertLess((lse - theirs[1]).masked_fill(lse.isinf(), 0).abs().max().item(), LSE_BOUND)

    def test_deterministic_gradients(self):
        q, k, v, grad_out = inputs(BF16, 2, 8, 2, 600, 600, 128)
        given = leaves(q, k, v)
        out = flash_attn.flash_attn_func(*given, causal=True, deterministic=True)
        first = torch.autograd.grad(out, given, grad_out, retain_graph=True)
        for _ in range(20):
            for gradient, other in zip(torch.autograd.grad(out, given, grad_out, retain_graph=True), first):
                self.assertTrue(torch.equal(gradient, other))

    def test_compiled_programs(self):
        q, k, v, grad_out = inputs(BF16, 1, 4, 2, 128, 128, 59)
        results = []
        for function in (flash_attn.flash_attn_func, torch.compile(flash_attn.flash_attn_func, backend="aot_eager")):
            given = leaves(q, k, v)
            out = function(*given, causal=True, deterministic=True)
            results.append((out, *torch.autograd.grad(out, given, grad_out)))
        for tensor, other in zip(*results):
            self.assertTrue(torch.equal(tensor, other))

    def test_no_keys(self):
        q, k = normal(1, 5, 2, 64, dtype=BF16, seed=1), torch.empty(1, 0, 2, 64, dtype=BF16, device="cuda")
        out, lse, _ = flash_attn.flash_attn_func(q, k, k, return_attn_probs=True)
        self.assertTrue((out == 0).all() and (lse == torch.inf).all())
        self.assertTrue((flash_attn_interface.flash_attn_func(q, k, k, return_attn_probs=True)[1] == -torch.inf).all())

    def test_dropout(self):
        """What was dropped has the sign of flash-attn's return_attn_probs; its exponentials are those of scores."""
        for function, causal, p in (flash_attn.flash_attn_func, True, 0.17), (flash_attn.flash_attn_func, False, 0.01):
            q, k, v, grad_out = inputs(BF16, 2, 4, 2, 130, 130, 64)
            given = leaves(q, k, v)
            out, lse, signed = function(*given, dropout_p=p, causal=causal, return_attn_probs=True)
            kept = (~signed.signbit()).double() / (1 - p)
            (exact_out, _), exact = reference_gradients(q, k, v, grad_out, None, causal=causal, layout="bshd", kept=kept)
            self.assert_close("O", out, exact_out, 2 * OUTPUT_BOUND[BF16])
            for name, gradient, other in zip(("dQ", "dK", "dV"), torch.autograd.grad(out, given, grad_out), exact):
                self.assert_close(name, gradient, other, GRADIENT_BOUND[BF16])

    def test_what_is_not_served_is_refused(self):
        q, k, v, _ = inputs(BF16, 1, 2, 2, 40, 40, 64)
        wide = normal(1, 40, 2, 128, dtype=BF16, seed=1)
        for feature, function, arguments, options in [
            ("FP8", flash_attn_interface.flash_attn_func, [tensor.to(torch.float8_e4m3fn) for tensor in (q, k, v)], {}),
            ("a head_dim of v", flash_attn_interface.flash_attn_func, (q, k, wide), {}),
        ]:
            with self.assertRaisesRegex(flash_attn.NotServed, feature):
                function(*arguments, **options)


@unittest.skipUnless(importlib.util.find_spec("transformers"), "Transformers is not installed")
class Transformers(OnGpu):
    """A small model of random weights."""

    def setUp(self):
        from transformers import LlamaConfig, LlamaForCausalLM

        import attune_kernels.transformers

        attune_kernels.transformers.register()
        config = LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2, head_dim=64,
                             vocab_size=500, max_position_embeddings=512)
        torch.manual_seed(0)
        self.model = LlamaForCausalLM(config).cuda()
        self.tokens = torch.randint(0, 500, (2, 200), device="cuda")
        self.calls = []
        ours = attune_kernels.transformers.attention
        attune_kernels.transformers.attention = lambda *tensors, **options: self.calls.append(options) or ours(*tensors, **options)
        self.addCleanup(setattr, attune_kernels.transformers, "attention", ours)

    def step(self, implementation, dtype=BF16, **options):
        """(logits, gradients), in double precision."""
        import copy

        model = copy.deepcopy(self.model).to(dtype)
        model.set_attn_implementation(implementation)
        answer = model(self.tokens, **{"labels": self.tokens, **options})
        answer.loss.backward()
        return answer.logits.detach().double(), [parameter.grad.double() for parameter in model.parameters()]

    def errors(self, step, exact):
        error = [((ours - theirs).norm() / theirs.norm()).item() for ours, theirs in zip([step[0], *step[1]], [exact[0], *exact[1]])]
        return error[0], max(error[1:])

    def test_forward_and_backward_beside_sdpa(self):
        # Both beside the same model in double precision.
        exact = self.step("sdpa", torch.float64)
        self.assertEqual(len(self.calls), 0)
        ours = self.errors(self.step("attune"), exact)
        self.assertEqual([call["causal"] for call in self.calls], [True] * 3)
        theirs = self.errors(self.step("sdpa"), exact)
        print(f"errors of logits {ours[0]:.2e} and gradients {ours[1]:.2e}, SDPA's {theirs[0]:.2e} and {theirs[1]:.2e} ... ", end="", file=sys.stderr)
        for error, other in zip(ours, theirs):
            self.assertLess(error, 1.5 * other)  # most of both is rounded by the rest of the model
            self.assertLess(error, 5e-2)

    def test_compiled_models_reach_attune(self):
        from attune_kernels import _calls

        self.model.to(BF16)
        self.model.set_attn_implementation("attune")
        for options in {"use_cache": False}, {"attention_mask": torch.ones_like(self.tokens)}:
            torch._dynamo.reset()
            with torch.no_grad(), unittest.mock.patch.object(_calls, "forward", wraps=_calls.forward) as ran:
                compiled = torch.compile(self.model, backend="aot_eager")(self.tokens, **options).logits
                self.assertEqual(ran.call_count, 3)
                self.assert_close("logits", compiled, self.model(self.tokens, **options).logits.double(), 1e-2)

    def test_gemma_2_caps_scores(self):
        # Beside the same model in double precision, whose eager attention caps, too; windows and full attention by turns.
        from transformers import Gemma2Config, Gemma2ForCausalLM

        config = Gemma2Config(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
                              vocab_size=500, max_position_embeddings=512, sliding_window=64, query_pre_attn_scalar=1, attn_logit_softcapping=2.0)
        torch.manual_seed(0)
        self.model = Gemma2ForCausalLM(config).cuda()
        exact, theirs, ours = self.step("eager", torch.float64), self.step("eager"), self.step("attune")
        self.assertEqual([call["softcap"] for call in self.calls], [2.0, 2.0])
        self.assertEqual({call["window"] for call in self.calls if "window" in call} - {None}, {(63, None)})
        for error, other in zip(self.errors(ours, exact), self.errors(theirs, exact)):
            self.assertLess(error, 1.5 * other)

    def test_gpt_oss_has_sinks(self):
        # Beside the same model in double precision; windows and full attention by turns.
        from transformers import GptOssConfig, GptOssForCausalLM

        config = GptOssConfig(hidden_size=128, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
                              vocab_size=500, max_position_embeddings=512, sliding_window=64, num_local_experts=2, num_experts_per_tok=2,
                              rope_parameters={"rope_type": "default", "rope_theta": 1e4})
        torch.manual_seed(0)
        self.model = GptOssForCausalLM(config).cuda()
        for layer in self.model.model.layers:
            torch.nn.init.normal_(layer.self_attn.sinks, 3)
        self.model.set_experts_implementation("eager")  # others know no double precision
        exact, theirs, ours = self.step("eager", torch.float64), self.step("eager"), self.step("attune")
        self.assertEqual([call["sinks"].shape for call in self.calls], [(4,)] * 2)
        self.assertEqual({call["window"] for call in self.calls if "window" in call} - {None}, {(63, None)})
        for error, other in zip(self.errors(ours, exact), self.errors(theirs, exact)):
            self.assertLess(error, 1.5 * other)

    def test_padding_beside_sdpa(self):
        # On either side. Both beside the same model in double precision, of tokens that count.
        mask = torch.ones_like(self.tokens)
        mask[0, :30] = mask[1, 150:] = 0
        options = {"attention_mask": mask, "labels": self.tokens.masked_fill(mask == 0, -100)}
        results = []
        for implementation, dtype in ("sdpa", torch.float64), ("sdpa", BF16), ("attune", BF16):
            logits, gradients = self.step(implementation, dtype, **options)
            self.assertTrue(logits.isfinite().all())
            results.append((logits[mask.bool()], gradients))
        exact, theirs, ours = results
        self.assertEqual([(call["attention_mask"].dtype, call["bias"]) for call in self.calls], [(torch.bool, None)] * 3)
        for error, other in zip(self.errors(ours, exact), self.errors(theirs, exact)):
            self.assertLess(error, 1.5 * other)
            self.assertLess(error, 5e-2)

    def test_packed_sequences_are_as_padded_ones(self):
        # The same sequences one behind the other, as a collator that flattens batches has them, and as rows of a padded batch.
        lengths = [200, 77, 130]
        tokens = torch.randint(0, 500, (3, 200), device="cuda")
        mask = torch.arange(200, device="cuda") < torch.tensor(lengths, device="cuda")[:, None]
        begins = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device="cuda")
        positions = torch.cat([torch.arange(length, device="cuda") for length in lengths])[None]
        labels = tokens.masked_fill(~mask, -100)
        labels[:, 0] = -100  # which no token of the same sequence precedes
        packed = {"attention_mask": None, "position_ids": positions, "cu_seq_lens_q": begins, "cu_seq_lens_k": begins, "max_length_q": 200,
                  "max_length_k": 200, "labels": labels[mask][None]}
        padded = {"attention_mask": mask.long(), "labels": labels}
        results = []
        for implementation, dtype, options, given in ("sdpa", torch.float64, padded, tokens), ("attune", BF16, padded, tokens), ("attune", BF16, packed, tokens[mask][None]):
            self.tokens = given
            logits, gradients = self.step(implementation, dtype, **options)
            results.append((logits[0] if options is packed else logits[mask], gradients))
        exact, of_padded, of_packed = results
        for error, other in zip(self.errors(of_packed, exact), self.errors(of_padded, exact)):
            self.assertLess(error, 1.5 * other)

    def test_generated_tokens(self):
        # The steps of decoding are a query each, over a cache that grows.
        self.model.half().eval()
        generated = []
        for implementation in ("attune", "sdpa"):
            self.model.set_attn_implementation(implementation)
            with torch.no_grad():
                scores = self.model.generate(self.tokens, attention_mask=torch.ones_like(self.tokens), max_new_tokens=6, min_new_tokens=6, do_sample=False,
                                             output_logits=True, return_dict_in_generate=True, pad_token_id=0).logits
            generated.append(torch.stack(scores).double())
        self.assertGreaterEqual(len(self.calls), 3 * 6)
        self.assertFalse(self.calls[-1]["causal"])
        for ours, theirs in zip(*generated):
            self.assert_close("logits", ours, theirs, 1e-2)
            if not torch.equal(ours.argmax(1), theirs.argmax(1)):
                break  # a tie: from here on the texts differ


if __name__ == "__main__":
    run_tests(verbosity=2)

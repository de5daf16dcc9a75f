"""Models of Hugging Face's Transformers by attn_implementation="attune", with and without torch.compile: which calls reach Attune, that results
are those of sdpa (or eager, of models whose softcap or sinks sdpa does not take), and that whatever falls back is said once. Models are tiny and
random, on the CPU.

usage: python_transformers.py REPOSITORY LIBATTUNE

Ends as test_* programs do: a line "attune-tests: N passed, N failed, N skipped", exit status 77 where PyTorch or Transformers 5 is missing.
"""

import contextlib
import copy
import os
import pathlib
import subprocess
import sys
import unittest
import unittest.mock
import warnings

REPOSITORY, LIBRARY = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
BINDING = str(REPOSITORY / "bindings" / "python")
os.environ.update(ATTUNE_LIBRARY=LIBRARY, CUDA_VISIBLE_DEVICES="")
sys.dont_write_bytecode = True
sys.path.insert(0, BINDING)

try:
    import torch
    import transformers as hf

    if int(hf.__version__.partition(".")[0]) < 5:
        raise ImportError
except ImportError:
    print("attune-tests: 0 passed, 0 failed, 1 skipped: PyTorch or Transformers 5 is not installed")
    sys.exit(77)

import cpu_attention  # noqa: E402
from attune_kernels import _options, _reasons  # noqa: E402
from attune_kernels import transformers as attune_transformers  # noqa: E402

cpu_attention.install()
hf.logging.set_verbosity_error()
warnings.filterwarnings("ignore", category=FutureWarning)
LAYERS, LENGTH, WINDOW = 2, 12, 5
_small = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": 4}
_grouped = {**_small, "intermediate_size": 64, "num_key_value_heads": 2, "head_dim": 8}
FAMILIES = {
    "Llama": (hf.LlamaForCausalLM, hf.LlamaConfig(**_grouped)),
    "Mistral": (hf.MistralForCausalLM, hf.MistralConfig(**_grouped, sliding_window=WINDOW)),
    "Gemma3": (hf.Gemma3ForCausalLM, hf.Gemma3TextConfig(**_grouped, sliding_window=WINDOW, layer_types=["sliding_attention", "full_attention"])),
    "GPT-2": (hf.GPT2LMHeadModel, hf.GPT2Config(vocab_size=99, n_embd=32, n_layer=LAYERS, n_head=4, attn_pdrop=0.0)),
    "Gemma2": (hf.Gemma2ForCausalLM, hf.Gemma2Config(**_grouped, sliding_window=WINDOW, layer_types=["sliding_attention", "full_attention"],
                                                     attn_logit_softcapping=5.0, query_pre_attn_scalar=8)),
    "GPT-OSS": (hf.GptOssForCausalLM, hf.GptOssConfig(**_grouped, sliding_window=WINDOW, layer_types=["sliding_attention", "full_attention"],
                                                      num_local_experts=4, num_experts_per_tok=2)),
    "BERT": (hf.BertModel, hf.BertConfig(**_small, intermediate_size=64, attention_probs_dropout_prob=0.0)),
    "Falcon": (hf.FalconForCausalLM, hf.FalconConfig(**_small)),
    "T5": (hf.T5ForConditionalGeneration, hf.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=LAYERS, num_heads=4)),
}
WITHOUT_SDPA = "Gemma2", "GPT-OSS"
TOKENS = torch.randint(1, 98, (2, LENGTH), generator=torch.Generator().manual_seed(3))
ONES = torch.ones_like(TOKENS)
PADDED = ONES.index_fill(1, torch.arange(3), 0)
PADDED_RIGHT = torch.stack([ONES[0], ONES[1].index_fill(0, torch.arange(7, LENGTH), 0)])
PACKED = {"position_ids": torch.cat([torch.arange(6), torch.arange(6)])[None].expand(2, -1), "use_cache": False}
NUMBERS = torch.zeros(2, 1, LENGTH, LENGTH, dtype=torch.bfloat16).masked_fill(torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1),
                                                                              torch.finfo(torch.bfloat16).min)


def model_of(family, implementation, dtype=torch.bfloat16):
    model_class, config = FAMILIES[family]
    torch.manual_seed(0)
    config = copy.deepcopy(config)
    config._attn_implementation = implementation
    return model_class(config).to(dtype).eval()


class Models(unittest.TestCase):
    def setUp(self):
        patch = unittest.mock.patch.object(attune_transformers, "_DEVICE", "cpu")
        patch.start()
        self.addCleanup(patch.stop)
        attune_transformers.register()
        torch._dynamo.reset()
        _reasons.forget()
        cpu_attention.calls.clear()

    def run_model(self, family, compiled=False, fullgraph=False, dtype=torch.bfloat16, **inputs):
        """How many calls of Attune's a forward pass made, whose result is that of sdpa."""
        if family == "T5":
            inputs["decoder_input_ids"] = TOKENS
        with torch.no_grad():
            expected = model_of(family, "eager" if family in WITHOUT_SDPA else "sdpa", dtype)(input_ids=TOKENS, **inputs)[0]
            model = model_of(family, "attune", dtype)
            cpu_attention.calls.clear()
            cpu_attention.terms_of_calls.clear()
            result = (torch.compile(model, backend="eager", fullgraph=fullgraph) if compiled else model)(input_ids=TOKENS, **inputs)[0]
        kept = inputs.get("attention_mask", ONES)
        kept = kept.bool() if kept.dim() == 2 else ONES.bool()
        self.assertTrue(result.isfinite().all())
        torch.testing.assert_close(result[kept].float(), expected[kept].float(), atol=0.1, rtol=0.05)
        return len(cpu_attention.calls)

    def told(self, call):
        """What the logger was told meanwhile, in one text, and what the call returned."""
        with self.assertLogs("attune") as logs:
            result = call()
        return "\n".join(logs.output), result

    def test_each_layer_reaches_attune(self):
        for family in "Llama", "Mistral", "Gemma3", "GPT-2", "BERT":
            for compiled in False, True:
                for inputs in {}, {"attention_mask": ONES}, {"use_cache": False}:
                    if family == "BERT" and "use_cache" in inputs or compiled and family != "Llama" and "attention_mask" not in inputs:
                        continue
                    with self.subTest(family=family, compiled=compiled, inputs=list(inputs)), self.assertNoLogs("attune"):
                        torch._dynamo.reset()
                        self.assertEqual(self.run_model(family, compiled, **inputs), LAYERS)

    def masks(self):
        """Their shapes, of the calls of the last model."""
        return [None if terms is None or terms.attention_mask is None else tuple(terms.attention_mask.shape) for terms in cpu_attention.terms_of_calls]

    def test_masks_as_tensors_reach_attune(self):
        of_pairs = (2, 1, LENGTH, LENGTH)
        cases = [
            ("Llama", {"attention_mask": PADDED}, of_pairs), ("Llama", {"attention_mask": PADDED_RIGHT}, of_pairs), ("Llama", PACKED, of_pairs),
            ("Mistral", {"attention_mask": PADDED}, of_pairs), ("Mistral", PACKED, of_pairs), ("Gemma3", {"attention_mask": PADDED}, of_pairs),
            ("GPT-2", {"attention_mask": PADDED}, of_pairs), ("BERT", {"attention_mask": PADDED}, of_pairs),
            ("BERT", {"attention_mask": PADDED_RIGHT}, of_pairs), ("Gemma2", {"attention_mask": PADDED}, of_pairs), ("Gemma2", PACKED, of_pairs),
            ("GPT-OSS", {"attention_mask": PADDED}, of_pairs), ("GPT-OSS", {"attention_mask": PADDED_RIGHT}, of_pairs), ("GPT-OSS", {}, None), ("Gemma2", {}, None),
        ]
        for family, inputs, shape in cases:
            for compiled in (False, True) if family in ("Llama", "GPT-OSS") else (False,):
                with self.subTest(family=family, inputs=list(inputs), compiled=compiled), self.assertNoLogs("attune"):
                    torch._dynamo.reset()
                    self.assertEqual(self.run_model(family, compiled, **inputs), LAYERS)
                    self.assertEqual(self.masks(), LAYERS * [shape])

    def test_masks_of_numbers(self):
        for mask in NUMBERS, NUMBERS.index_fill(2, torch.tensor([4]), torch.finfo(torch.bfloat16).min):
            with self.assertNoLogs("attune"):
                self.assertEqual(self.run_model("Llama", attention_mask=mask), LAYERS)
            self.assertEqual([terms.bias.shape for terms in cpu_attention.terms_of_calls], LAYERS * [mask.shape])

    def test_position_biases(self):
        """Of T5: its tensor lies so that keys are not one after the other."""
        for inputs in {}, {"attention_mask": PADDED}:
            for compiled in False, True:
                with self.subTest(inputs=list(inputs), compiled=compiled):
                    torch._dynamo.reset()
                    _reasons.forget()
                    text, calls = self.told(lambda: self.run_model("T5", compiled, **inputs))
                    self.assertEqual(calls, 3 * LAYERS)
                    self.assertRegex(text, "^[^\n]*bias whose elements of keys do not lie one after the other; it is copied[^\n]*$")
                    self.assertEqual(sum(terms is not None and terms.bias is not None for terms in cpu_attention.terms_of_calls), 3 * LAYERS)

    def test_gradients_with_masks(self):
        for family, inputs in (("Llama", {"attention_mask": PADDED}), ("Mistral", PACKED), ("GPT-OSS", {"attention_mask": PADDED}),
                               ("T5", {"attention_mask": PADDED_RIGHT})):
            gradients = []
            for implementation in "eager" if family in WITHOUT_SDPA else "sdpa", "attune":
                model = model_of(family, implementation)
                cpu_attention.calls.clear()
                of_decoder = {"decoder_input_ids": TOKENS} if family == "T5" else {}
                model(input_ids=TOKENS, labels=TOKENS.masked_fill(PADDED == 0, -100), **inputs, **of_decoder).loss.backward()
                gradients.append({name: one.grad for name, one in model.named_parameters() if one.grad is not None})
            self.assertEqual([name for name, *_ in cpu_attention.calls].count("backward"), LAYERS * (3 if family == "T5" else 1))
            for name, gradient in gradients[0].items():
                with self.subTest(family=family, name=name):
                    torch.testing.assert_close(gradients[1][name], gradient, atol=0.05, rtol=0.1)

    def test_windows(self):
        self.run_model("Gemma3")
        self.assertEqual({options[4] for *_, options in cpu_attention.calls}, {(WINDOW - 1, None), None})

    def test_gradients_of_compiled_models(self):
        for family in "Llama", "Mistral":
            model = model_of(family, "attune").train()
            torch.compile(model, backend="aot_eager")(input_ids=TOKENS, labels=TOKENS, use_cache=False).loss.backward()
            self.assertEqual([name for name, *_ in cpu_attention.calls].count("backward"), LAYERS)
            expected = model_of(family, "sdpa").train()
            expected(input_ids=TOKENS, labels=TOKENS, use_cache=False).loss.backward()
            for one, other in zip(model.parameters(), expected.parameters()):
                torch.testing.assert_close(one.grad, other.grad, atol=0.05, rtol=0.1)
            cpu_attention.calls.clear()

    def test_a_graph_that_may_not_break(self):
        self.assertEqual(self.run_model("Llama", compiled=True, fullgraph=True), LAYERS)
        torch._dynamo.reset()
        with self.assertNoLogs("attune"):
            self.assertEqual(self.run_model("Llama", compiled=True, fullgraph=True, attention_mask=ONES), LAYERS)
        self.assertEqual(self.masks(), LAYERS * [(2, 1, LENGTH, LENGTH)])

    def test_decoding_step_by_step(self):
        for family, cache_of, masks in (("Llama", hf.DynamicCache, 0), ("Mistral", hf.DynamicCache, 0), ("Llama", hf.StaticCache, 3)):
            for compiled in False, True:
                with self.subTest(family=family, cache=cache_of.__name__, compiled=compiled):
                    torch._dynamo.reset()
                    results = []
                    for implementation in "sdpa", "attune":
                        model = model_of(family, implementation)
                        run = torch.compile(model, backend="eager", dynamic=True) if compiled and implementation == "attune" else model
                        cache = cache_of(config=model.config, **({"max_cache_len": 24} if cache_of is hf.StaticCache else {}))
                        cpu_attention.calls.clear()
                        cpu_attention.terms_of_calls.clear()
                        with torch.no_grad():
                            steps = [run(input_ids=tokens, past_key_values=cache, use_cache=True).logits[:, -1]
                                     for tokens in (TOKENS, TOKENS[:, :1], TOKENS[:, 2:5], TOKENS[:, 5:6])]
                        results.append(torch.stack(steps).float())
                    torch.testing.assert_close(*results, atol=0.1, rtol=0.05)
                    self.assertEqual(len(cpu_attention.calls), LAYERS * 4)
                    self.assertEqual(len([shape for shape in self.masks() if shape is not None]), LAYERS * masks)

    def test_what_falls_back_is_said_once(self):
        for family, inputs in ("Llama", {"attention_mask": PADDED}), ("Mistral", {}), ("T5", {}):
            for compiled in False, True:
                with self.subTest(family=family, compiled=compiled):
                    torch._dynamo.reset()
                    _reasons.forget()
                    text, calls = self.told(lambda: self.run_model(family, compiled, dtype=torch.float32, **inputs))
                    self.assertEqual(calls, 0)
                    self.assertIn("Attune does not serve torch.float32; Transformers' sdpa attention answers instead", text)
                    self.assertEqual(len(text.splitlines()), 1)
                    with self.assertNoLogs("attune"):
                        self.run_model(family, compiled, dtype=torch.float32, **inputs)

    def test_tensors_that_are_left_to_sdpa(self):
        q, k = torch.zeros(2, 4, 3, 8).bfloat16(), torch.zeros(2, 2, 5, 8).bfloat16()
        cases = [
            ({"attention_mask": torch.ones(2, 1, 2, 5).bool()}, "a mask of the shape .* beside 3 queries and 5 keys"),
            ({"attention_mask": torch.ones(2, 1, 3, 4).bool()}, "a mask of the shape"), ({"attention_mask": torch.ones(1, 2, 1, 3, 5).bool()}, "a mask of the shape"),
            ({"attention_mask": torch.zeros(2, 1, 3, 5).half()}, "a mask of torch.float16 beside torch.bfloat16"),
            ({"attention_mask": torch.zeros(2, 1, 3, 5).long()}, "a mask of torch.int64"), ({"attention_mask": ["a mask"]}, "a mask that is a list"),
            ({"attention_mask": None, "position_bias": torch.zeros(1, 4, 3, 6).bfloat16()}, "a position_bias of the shape"),
            ({"attention_mask": None, "position_bias": torch.zeros(1, 4, 3, 5).double()}, "a position_bias of torch.float64"),
        ]
        for options, words in cases:
            given = []
            _reasons.forget()
            with self.assertLogs("attune") as logs:
                answer = attune_transformers.attention_forward(lambda *arguments, **options: given.append((arguments, options)), None, q, k, k, **options)
            self.assertIsNone(answer)
            self.assertIs(given[0][0][4], options["attention_mask"])
            self.assertIs(given[0][1].get("position_bias"), options.get("position_bias"))
            self.assertRegex(logs.output[0], f"Attune does not serve {words}.*; Transformers' sdpa attention answers instead")
            for unseen in {"s_aux": torch.zeros(4)}, {"softcap": 3.0}:
                with self.assertRaisesRegex(attune_transformers.NotServed, f"(softcap|sinks).* with {words}"):
                    attune_transformers.attention_forward(None, None, q, k, k, **options, **unseen)
        self.assertEqual(cpu_attention.calls, [])

    def test_terms_together(self):
        """A mask of booleans or numbers, a position bias and sinks, and a mask that is longer than the keys, as before Transformers 5."""
        generator = torch.Generator().manual_seed(1)
        q, k, v, bias = (torch.randn(shape, generator=generator).bfloat16() for shape in ((2, 4, 3, 8), (2, 2, 5, 8), (2, 2, 5, 8), (1, 4, 3, 5)))
        seen, sinks = torch.rand(2, 1, 3, 7, generator=generator) > 0.4, torch.randn(4, generator=generator)
        module = torch.nn.Module()
        for position_bias in None, bias:
            scores = q.float() @ k.repeat_interleave(2, 1).float().transpose(2, 3) * 0.3 + (0 if position_bias is None else position_bias.float())
            scores = torch.cat([scores.masked_fill(~seen[..., :5], -torch.inf), sinks[None, :, None, None].expand(2, 4, 3, 1)], 3)
            expected = (scores.softmax(3)[..., :5] @ v.repeat_interleave(2, 1).float()).transpose(1, 2)
            for mask in seen, torch.where(seen, 0.0, -torch.inf), torch.where(seen, 0.0, torch.finfo(torch.bfloat16).min).bfloat16()[..., :5]:
                out, _ = attune_transformers.attention_forward(None, module, q, k, v, mask, scaling=0.3, s_aux=sinks, position_bias=position_bias)
                torch.testing.assert_close(out.float(), expected, atol=2e-2, rtol=2e-2)
        window = torch.empty(1, 1, 0, 2, dtype=torch.bool)
        scores = q.float() @ k.repeat_interleave(2, 1).float().transpose(2, 3) * 0.3 + bias.float()
        scores = scores.masked_fill(cpu_attention.hidden(3, 5, True, window=(1, None)), -torch.inf)
        out, _ = attune_transformers.attention_forward(None, module, q, k, v, window, scaling=0.3, position_bias=bias)
        torch.testing.assert_close(out.float(), (scores.softmax(3) @ v.repeat_interleave(2, 1).float()).transpose(1, 2), atol=2e-2, rtol=2e-2)

    def test_dropout(self):
        model = model_of("GPT-2", "attune").train()
        for block in model.transformer.h:
            block.attn.attn_dropout.p = 0.5

        def logits(seed):
            torch.manual_seed(seed)
            return model(input_ids=TOKENS).logits

        first, again, other = map(logits, (1, 1, 2))
        self.assertTrue(torch.equal(first, again))
        self.assertFalse(torch.equal(first, other))
        model.eval()
        self.assertTrue(torch.equal(logits(1), logits(2)))
        asked = [_options.Options._make(options).dropout_p for _, _, _, options in cpu_attention.calls]
        layers = len(model.transformer.h)
        self.assertEqual(asked, [0.5] * 3 * layers + [0.0] * 2 * layers)

    def test_models_with_attention_classes_of_their_own(self):
        text, calls = self.told(lambda: self.run_model("Falcon"))
        self.assertEqual(calls, 0)
        for words in "FalconForCausalLM", "attention classes of its own", "attn_implementation='sdpa'", "enable_sdpa()":
            self.assertIn(words, text)
        config = copy.deepcopy(FAMILIES["Falcon"][1])
        model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="attune")
        self.assertEqual(model.config._attn_implementation, "sdpa")

    def test_every_class_table_of_transformers_has_an_answer(self):
        """Ten modules of Transformers 5.24 index a table of classes by the name of the attention."""
        for name, model_class, config in (("gpt_neo", "GPTNeoModel", {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global"], 2]]}),
                                          ("git", "GitModel", {**_small, "intermediate_size": 64, "vision_config": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}})):
            with self.subTest(name=name):
                config_class = getattr(hf, model_class.replace("Model", "Config"))
                model = getattr(hf, model_class)._from_config(config_class(**config), attn_implementation="attune")
                self.assertIn(model.config._attn_implementation, ("sdpa", "eager"))

    def test_an_import_does_not_load_the_compiler(self):
        program = "import sys; sys.path.insert(0, sys.argv[1]); import attune_kernels.transformers; sys.exit('torch._dynamo' in sys.modules)"
        ended = subprocess.run([sys.executable, "-c", program, BINDING], capture_output=True, text=True)
        self.assertEqual(ended.returncode, 0, ended.stderr)


class PackedModels(unittest.TestCase):
    """Small models of random weights on sequences that lie one behind the other, beside Transformers' own attention in double precision."""

    LENGTHS = [20, 1, 7, 13]

    def setUp(self):
        attune_transformers.register()
        self.calls, ours = [], attune_transformers.attention
        for name, value in ("attention", lambda *tensors, **options: self.calls.append(options) or ours(*tensors, **options)), ("_DEVICE", "cpu"):
            patch = unittest.mock.patch.object(attune_transformers, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def models(self):
        for family, window in ("Llama", None), ("Mistral", WINDOW):
            yield model_of(family, "sdpa", torch.float32), window

    def step(self, model, implementation, dtype, **options):
        model = copy.deepcopy(model).to(dtype)
        model.set_attn_implementation(implementation)
        self.calls.clear()
        answer = model(self.tokens, position_ids=self.positions, labels=self.tokens, use_cache=False, **options)
        answer.loss.backward()
        return answer.logits.detach().double(), *(parameter.grad.double() for parameter in model.parameters())

    def error(self, step, exact):
        return max(((mine - one).norm() / one.norm()).item() for mine, one in zip(step, exact, strict=True))

    def test_positions_and_lengths_tell_of_sequences(self):
        self.positions = torch.cat([torch.arange(length) for length in self.LENGTHS])[None]
        self.tokens = torch.randint(1, 98, self.positions.shape, generator=torch.Generator().manual_seed(1))
        begins = torch.tensor([0, 20, 21, 28, 41], dtype=torch.int32)
        for model, window in self.models():
            exact, theirs = (self.step(model, "sdpa", dtype) for dtype in (torch.float64, torch.float16))
            for options in {}, {"cu_seq_lens_q": begins, "cu_seq_lens_k": begins, "max_length_q": 20, "max_length_k": 20}:
                ours = self.step(model, "attune", torch.float16, **options)
                self.assertLess(self.error(ours, exact), 1.5 * self.error(theirs, exact))
                self.assertEqual([(call["cu_seqlens_q"].tolist(), call["causal"], call["window"], "attention_mask" in call) for call in self.calls],
                                 [(begins.tolist(), True, None if window is None else (window - 1, None), False)] * LAYERS)

    def test_flash_attention_2_is_provided(self):
        import attune_kernels
        from attune_kernels import _drop_in
        from transformers import modeling_flash_attention_utils
        from transformers.utils import import_utils

        def forget():
            for name in "_package_distribution_mapping", "_is_package_available", "is_flash_attn_2_available", "is_flash_attn_3_available", "is_flash_attn_4_available":
                getattr(getattr(import_utils, name, None), "cache_clear", lambda: None)()
            modeling_flash_attention_utils._loaded_implementation = None

        self.addCleanup(forget)
        calls, ours = [], _drop_in.attention
        patches = [unittest.mock.patch.object(import_utils, "is_torch_cuda_available", lambda: True),
                   unittest.mock.patch.object(hf.PreTrainedModel, "_flash_attn_can_dispatch", lambda *_, **__: True),
                   unittest.mock.patch.object(_drop_in, "_check", lambda q, k, v, begins: (q.shape[-1], 1)),
                   unittest.mock.patch.object(_drop_in, "attention", lambda *tensors, **options: calls.append(options) or ours(*tensors, **options)),
                   attune_kernels.provide_flash_attn()]
        with contextlib.ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch)
            forget()
            padding = torch.ones(3, 12, dtype=torch.long)
            padding[1, 5:] = padding[2, :4] = 0
            tokens = torch.randint(1, 98, padding.shape, generator=torch.Generator().manual_seed(1))
            for model, _ in self.models():
                results = []
                for implementation, dtype in ("sdpa", torch.float64), ("sdpa", torch.float16), ("flash_attention_2", torch.float16):
                    one = copy.deepcopy(model).to(dtype)
                    one.set_attn_implementation(implementation)
                    calls.clear()
                    answer = one(tokens, attention_mask=padding, labels=tokens.masked_fill(padding == 0, -100), use_cache=False)
                    answer.loss.backward()
                    results.append([answer.logits.detach()[padding.bool()].double(), *(parameter.grad.double() for parameter in one.parameters())])
                exact, theirs, ours_of_model = results
                self.assertEqual([call["cu_seqlens_q"].tolist() for call in calls], [[0, 12, 17, 25]] * LAYERS)
                self.assertLess(self.error(ours_of_model, exact), 1.5 * self.error(theirs, exact))

    def test_what_is_not_served_gets_the_mask_of_the_sequences(self):
        self.positions = torch.cat([torch.arange(length) for length in self.LENGTHS])[None]
        self.tokens = torch.randint(1, 98, self.positions.shape, generator=torch.Generator().manual_seed(1))
        for model, _ in self.models():
            exact = self.step(model, "sdpa", torch.float64)
            with unittest.mock.patch.object(attune_transformers, "_left_to_sdpa", lambda *_: "a test"):
                ours = self.step(model, "attune", torch.float64)
            self.assertEqual(self.calls, [])
            self.assertLess(self.error(ours, exact), 1e-10)

    def test_several_batch_entries_have_a_mask(self):
        self.positions = torch.stack([torch.arange(41), torch.cat([torch.arange(length) for length in self.LENGTHS])])
        self.tokens = torch.randint(1, 98, self.positions.shape, generator=torch.Generator().manual_seed(1))
        for model, _ in self.models():
            exact, theirs, ours = (self.step(model, *of) for of in (("sdpa", torch.float64), ("sdpa", torch.float16), ("attune", torch.float16)))
            self.assertTrue(all(call["attention_mask"] is not None for call in self.calls))
            self.assertLess(self.error(ours, exact), 1.5 * self.error(theirs, exact))


result = unittest.main(exit=False).result
failed, skipped = len({case.id().split(" ")[0] for case, _ in result.failures + result.errors}), len(result.skipped)
print(f"attune-tests: {result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
sys.exit(0 if result.wasSuccessful() else 1)

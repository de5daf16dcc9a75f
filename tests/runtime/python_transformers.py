"""Models of Hugging Face's Transformers by attn_implementation="attune", with and without torch.compile: which calls reach Attune, that results
are those of sdpa, and that whatever falls back is said once. Models are tiny and random, on the CPU.

usage: python_transformers.py REPOSITORY LIBATTUNE

Ends as test_* programs do: a line "attune-tests: N passed, N failed, N skipped", exit status 77 where PyTorch or Transformers 5 is missing.
"""

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
from attune_kernels import _reasons  # noqa: E402
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
    "BERT": (hf.BertModel, hf.BertConfig(**_small, intermediate_size=64, attention_probs_dropout_prob=0.0)),
    "Falcon": (hf.FalconForCausalLM, hf.FalconConfig(**_small)),
    "T5": (hf.T5ForConditionalGeneration, hf.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=LAYERS, num_heads=4)),
}
TOKENS = torch.randint(1, 98, (2, LENGTH), generator=torch.Generator().manual_seed(3))
ONES = torch.ones_like(TOKENS)
PADDED = ONES.index_fill(1, torch.arange(3), 0)


def model_of(family, implementation):
    model_class, config = FAMILIES[family]
    torch.manual_seed(0)
    config = copy.deepcopy(config)
    config._attn_implementation = implementation
    return model_class(config).to(torch.bfloat16).eval()


class Models(unittest.TestCase):
    def setUp(self):
        patch = unittest.mock.patch.object(attune_transformers, "_DEVICE", "cpu")
        patch.start()
        self.addCleanup(patch.stop)
        attune_transformers.register()
        torch._dynamo.reset()
        _reasons.forget()
        cpu_attention.calls.clear()

    def run_model(self, family, compiled=False, fullgraph=False, **inputs):
        """How many calls of Attune's a forward pass made, whose result is that of sdpa."""
        if family == "T5":
            inputs["decoder_input_ids"] = TOKENS
        with torch.no_grad():
            expected = model_of(family, "sdpa")(input_ids=TOKENS, **inputs)[0]
            model = model_of(family, "attune")
            cpu_attention.calls.clear()
            result = (torch.compile(model, backend="eager", fullgraph=fullgraph) if compiled else model)(input_ids=TOKENS, **inputs)[0]
        kept = inputs.get("attention_mask", ONES).bool()
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
        text, calls = self.told(lambda: self.run_model("Llama", compiled=True, fullgraph=True, attention_mask=ONES))
        self.assertEqual(calls, 0)
        self.assertIn("a graph that may not break", text)

    def test_decoding_step_by_step(self):
        for family, cache_of, served in (("Llama", hf.DynamicCache, 4), ("Mistral", hf.DynamicCache, 4), ("Llama", hf.StaticCache, 1)):
            for compiled in False, True:
                with self.subTest(family=family, cache=cache_of.__name__, compiled=compiled):
                    torch._dynamo.reset()
                    results = []
                    for implementation in "sdpa", "attune":
                        model = model_of(family, implementation)
                        run = torch.compile(model, backend="eager", dynamic=True) if compiled and implementation == "attune" else model
                        cache = cache_of(config=model.config, **({"max_cache_len": 24} if cache_of is hf.StaticCache else {}))
                        cpu_attention.calls.clear()
                        with torch.no_grad():
                            steps = [run(input_ids=tokens, past_key_values=cache, use_cache=True).logits[:, -1]
                                     for tokens in (TOKENS, TOKENS[:, :1], TOKENS[:, 2:5], TOKENS[:, 5:6])]
                        results.append(torch.stack(steps).float())
                    torch.testing.assert_close(*results, atol=0.1, rtol=0.05)
                    self.assertEqual(len(cpu_attention.calls), LAYERS * served)

    def test_what_falls_back_is_said_once(self):
        for family, inputs, words in (("Llama", {"attention_mask": PADDED}, "padding"), ("T5", {}, "position_bias"),
                                      ("Llama", {"position_ids": torch.cat([torch.arange(6), torch.arange(6)])[None], "use_cache": False}, "packed sequences")):
            for compiled in False, True:
                with self.subTest(words=words, compiled=compiled):
                    torch._dynamo.reset()
                    _reasons.forget()
                    text, calls = self.told(lambda: self.run_model(family, compiled, **inputs))
                    self.assertEqual(calls, 0)
                    self.assertIn(words, text)
                    self.assertEqual(len(set(text.splitlines())), len(text.splitlines()), "the same twice")
                    with self.assertNoLogs("attune"):
                        self.run_model(family, compiled, **inputs)

    def test_dropout(self):
        model = model_of("GPT-2", "attune").train()
        for block in model.transformer.h:
            block.attn.attn_dropout.p = 0.5
        text, _ = self.told(lambda: model(input_ids=TOKENS))
        self.assertIn("dropout", text)
        self.assertEqual(cpu_attention.calls, [])

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


result = unittest.main(exit=False).result
failed, skipped = len({case.id().split(" ")[0] for case, _ in result.failures + result.errors}), len(result.skipped)
print(f"attune-tests: {result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
sys.exit(0 if result.wasSuccessful() else 1)

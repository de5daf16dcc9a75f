"""The Python binding on a GPU in whole programs: compiled ones, ones whose database is damaged, streams and captured graphs, and the comparison
with PyTorch.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

# First: it finds the module, and ends a program that has no GPU.
from on_gpu import (BF16, BINDING, DEVICE, GRADIENT_BOUND, LSE_BOUND, OUTPUT_BOUND, OnGpu, inputs, normal, reference, run_tests, torch,
                    with_gradients)

import attune_kernels as attune


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


if __name__ == "__main__":
    run_tests()

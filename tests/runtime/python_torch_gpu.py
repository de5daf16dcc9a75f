"""The Python binding inside PyTorch, on a GPU: its operators under torch.compile, torch.export, checkpoints, graphs and torch.func.

Prints a line for each test.
"""

import functools
import os
import threading
import unittest
import unittest.mock

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # a pool of processes takes longer to start than these graphs to compile

# First: it finds the module, and ends a program that has no GPU.
from torch_on_gpu import BOUND, InTorch, exact, tensors, with_gradients  # noqa: E402
from on_gpu import BF16, DEVICE, FP16, run_tests, torch  # noqa: E402

from torch import nn  # noqa: E402
from torch.utils import checkpoint  # noqa: E402

import attune_kernels as attune  # noqa: E402
from attune_kernels import _attention, _calls  # noqa: E402

OPERATOR = torch.ops.attune_kernels.forward.default


def step(q, k, v, **options):
    """Attention between operations that a compiler works on."""
    return nn.functional.gelu(attune.attention(q * 1.5, k, v, causal=True, deterministic=True, **options)) + 1


class Operators(InTorch):
    def test_opcheck_forward(self):
        q, k, v = tensors()
        torch.library.opcheck(OPERATOR, (q, k, v, True))
        turned = q.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()
        torch.library.opcheck(OPERATOR, (turned, k, v, False, 0.3, "bhsd", False, [10, 20], True))
        with torch.no_grad():
            torch.library.opcheck(OPERATOR, tensors(70, 50, grad=False, layout="bshd") + (True, None, "bshd", True))

    def test_opcheck_backward(self):
        q, k, v = tensors(grad=False)
        out, lse = attune.attention(q, k, v, causal=True, return_lse=True)
        for grad_lse in (None, torch.randn_like(lse)):
            torch.library.opcheck(torch.ops.attune_kernels.backward.default,
                                  (torch.randn_like(out), q, k, v, out, lse, grad_lse, True, None, "bhsd", False, None, True))

    def test_opcheck_with_terms(self):
        q, k, v = tensors()
        sinks = torch.linspace(-1, 5, q.shape[1], device=DEVICE, requires_grad=True)
        used = torch.tensor([q.shape[2] - 3] * q.shape[0], dtype=torch.int32, device=DEVICE)
        slopes = torch.rand(q.shape[0], q.shape[1], device=DEVICE)
        bias = torch.randn(q.shape[1], q.shape[2], k.shape[2], device=DEVICE, dtype=q.dtype, requires_grad=True)
        mask = torch.rand(q.shape[0], 1, 1, k.shape[2], device=DEVICE) > 0.3
        state, dropout = attune.new_dropout_state(), {"dropout_p": 0.1}
        for terms, options in (((sinks, None, None, None, None, None, None, None, None), {}),
                               ((None, used, None, slopes[0], bias, mask, None, None, None), {}),
                               ((sinks, used, used, slopes, None, mask, None, None, state), dropout)):
            torch.library.opcheck(torch.ops.attune_kernels.forward_with_terms.default, (q, k, v, *terms, True), options)
        with torch.no_grad():
            out, lse = attune.attention(q, k, v, causal=True, return_lse=True, sinks=sinks)
            for terms, options in (((sinks.detach(), None, None, None, None, None, None, None, state), dropout),
                                   ((None, used, used, slopes, bias.detach(), mask, None, None, None), {})):
                torch.library.opcheck(torch.ops.attune_kernels.backward_with_terms.default,
                                      (torch.randn_like(out), *(one.detach() for one in (q, k, v)), *terms, out, lse, None, terms[4] is not None, True,
                                       None, "bhsd", False, None, True), options)

    def test_sinks_under_vmap_grad_and_batches_of_gradients(self):
        leaves = [tensors(seed=seed, grad=False) for seed in (1, 2)]
        sinks = torch.linspace(-1, 5, leaves[0][0].shape[1], device=DEVICE)
        stacked = [torch.stack(each) for each in zip(*leaves)]

        def loss(q, k, v, sinks):
            return attune.attention(q, k, v, causal=True, deterministic=True, sinks=sinks).float().square().sum()

        gradients = torch.func.vmap(torch.func.grad(loss, argnums=(0, 3)), in_dims=(0, 0, 0, None))(*stacked, sinks)
        for number, each in enumerate(leaves):
            ones = [tensor.clone().requires_grad_() for tensor in (*each, sinks)]
            expected = torch.autograd.grad(loss(*ones), (ones[0], ones[3]))
            self.assert_same([gradient[number] for gradient in gradients], expected)
        ones = [tensor.clone().requires_grad_() for tensor in (*leaves[0], sinks)]
        out = attune.attention(*ones[:3], causal=True, deterministic=True, sinks=ones[3])
        grads = torch.randn(2, *out.shape, device=DEVICE).to(out.dtype)
        batched = torch.autograd.grad(out, ones, grads, is_grads_batched=True, retain_graph=True)
        for number in range(2):
            self.assert_same([gradient[number] for gradient in batched], torch.autograd.grad(out, ones, grads[number], retain_graph=True))

    def test_it_computes_what_attention_does(self):
        leaves = tensors()
        ours = with_gradients(lambda *each: OPERATOR(*each, True, None, "bhsd", False, None, True)[0], leaves)
        self.assert_same(ours, with_gradients(functools.partial(attune.attention, causal=True, deterministic=True), leaves))
        self.assert_close(ours, with_gradients(exact, leaves))

    def test_autocast(self):
        leaves = tensors(dtype=torch.float32)
        with torch.autocast(DEVICE, dtype=FP16):
            expected = with_gradients(lambda *each: attune.attention(*each, deterministic=True), leaves)
            ours = with_gradients(lambda *each: OPERATOR(*each, False, None, "bhsd", False, None, True)[0], leaves)
        self.assertEqual([one.dtype for one in ours], [FP16, torch.float32, torch.float32, torch.float32])
        self.assert_same(ours, expected)

    def test_vmap_and_grad(self):
        leaves = [tensors(seed=seed, grad=False) for seed in (1, 2, 3)]
        stacked = [torch.stack(each) for each in zip(*leaves)]
        call = functools.partial(attune.attention, causal=True, deterministic=True)

        def loss(q, k, v):
            return call(q, k, v).float().square().sum()

        self.assert_same(list(torch.func.vmap(call)(*stacked)), [call(*each) for each in leaves])
        shared = torch.func.vmap(call, in_dims=(0, None, None))(stacked[0], *leaves[0][1:])
        self.assert_same(list(shared), [call(each[0], *leaves[0][1:]) for each in leaves])
        gradients = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1, 2)))(*stacked)
        for number, each in enumerate(leaves):
            ones = [tensor.clone().requires_grad_() for tensor in each]
            self.assert_same([gradient[number] for gradient in gradients], torch.autograd.grad(loss(*ones), ones))

    def test_batches_of_gradients_and_jacobians(self):
        leaves = tensors(seed=1)
        options = {"causal": True, "deterministic": True}
        for return_lse in False, True:
            results = attune.attention(*leaves, return_lse=return_lse, **options)
            results = results if return_lse else (results,)
            batch = [torch.stack([one.detach() * number for number in (1, -2, 3)]).nan_to_num(0, 0, 0) for one in results]
            found = torch.autograd.grad(results, leaves, batch, is_grads_batched=True, retain_graph=True)
            for number in range(3):
                expected = torch.autograd.grad(results, leaves, [one[number] for one in batch], retain_graph=True)
                for one, other in zip(found, expected):
                    torch.testing.assert_close(one[number], other, atol=2e-2, rtol=2e-2)
        q, k, v = (one.detach()[:1, :, :3] for one in leaves)
        jacobian = torch.func.jacrev(lambda one: attune.attention(one, k, v, **options)[0, 0, 0])(q)
        row = torch.autograd.functional.jacobian(lambda one: attune.attention(one, k, v, **options)[0, 0, 0], q)
        torch.testing.assert_close(jacobian, row, atol=2e-2, rtol=2e-2)


class Compiled(InTorch):
    """torch.compile(fullgraph=True) against eager."""

    def check(self, function, *leaves, **compiling):
        compiled = torch.compile(function, fullgraph=True, **compiling)
        for each in leaves:
            self.assert_close(with_gradients(compiled, each), with_gradients(function, each))

    def test_aot_eager(self):
        for dynamic in (None, True):
            with self.subTest(dynamic=dynamic):
                torch._dynamo.reset()
                self.check(step, tensors(), tensors(70, 110), tensors(33), backend="aot_eager", dynamic=dynamic)

    def test_inductor(self):
        self.check(step, tensors(), tensors(70), tensors(100))

    def test_inductor_of_packed_projections(self):
        """q, k and v are views of one tensor, with lengths before heads; the loss depends on lse."""
        def function(packed, scale):
            out, lse = attune.attention(*packed.unbind(2), causal=True, layout="bshd", return_lse=True, deterministic=True)
            return (out.flatten(2) * scale).float().sum(-1) + lse.sum(1)

        packed = torch.stack(tensors(64, heads=(4, 4), layout="bshd"), 2).detach().requires_grad_()
        self.check(function, (packed, torch.randn(256, device=DEVICE, dtype=BF16).requires_grad_()))

    def test_autocast(self):
        def function(q, k, v):
            with torch.autocast(DEVICE, dtype=BF16):
                return attune.attention(q, k, v, window=(20, 0), deterministic=True)

        self.check(function, tensors(dtype=torch.float32), backend="aot_eager")

    def test_without_gradients(self):
        compiled = torch.compile(step, fullgraph=True)
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                self.assert_close([compiled(*tensors())], [step(*tensors())])

    def test_cuda_graphs(self):
        """mode="reduce-overhead" replays a graph from the third call on."""
        leaves = tensors(grad=True)
        attune.attention(*leaves, causal=True, deterministic=True).sum().backward()
        compiled = torch.compile(step, fullgraph=True, mode="reduce-overhead")
        for seed in range(5):
            leaves = tensors(seed=seed)
            torch.compiler.cudagraph_mark_step_begin()
            results = [tensor.clone() for tensor in with_gradients(compiled, leaves)]
            self.assert_close(results, with_gradients(step, leaves))

    def test_checkpoints(self):
        def function(q, k, v):
            return checkpoint.checkpoint(step, q, k, v, use_reentrant=False)

        self.check(function, tensors(), backend="aot_eager")

    def test_deterministic_mode(self):
        """Gradients have the same bits on each run, though the call does not ask for that."""
        leaves = tensors(1500, heads=(8, 2), batch=1)
        torch.use_deterministic_algorithms(True)
        compiled = torch.compile(functools.partial(attune.attention, causal=True), fullgraph=True, backend="aot_eager")
        first = with_gradients(compiled, leaves)
        for _ in range(4):
            self.assert_same(with_gradients(compiled, leaves), first)
        torch.use_deterministic_algorithms(False)
        self.assert_same(first, with_gradients(functools.partial(attune.attention, causal=True, deterministic=True), leaves))

    def test_backward_in_a_graph(self):
        def function(q, k, v):
            out, lse = attune.attention(q, k, v, return_lse=True)
            return attune.backward(out, q, k, v, out, lse, deterministic=True)

        q, k, v = tensors(grad=False)
        self.assert_close(torch.compile(function, fullgraph=True, backend="aot_eager")(q, k, v), function(q, k, v))

    def test_wrong_options_are_named(self):
        with self.assertRaisesRegex(Exception, "scale is -1.0: it must be positive"):
            torch.compile(functools.partial(step, scale=-1.0), fullgraph=True, backend="aot_eager")(*tensors())


class Exported(InTorch):
    class Model(nn.Module):
        def forward(self, q, k, v):
            return attune.attention(q, k, v, causal=True) * 2

    def test_lengths_that_vary(self):
        length = torch.export.Dim("length", min=2, max=4096)
        program = torch.export.export(self.Model(), tensors(grad=False), dynamic_shapes=3 * ({2: length},))
        self.assertEqual([node.target for node in program.graph.nodes].count(OPERATOR), 1)
        for seq in (50, 96, 200):
            each = tensors(seq, grad=False)
            self.assert_close([program.module()(*each)], [self.Model()(*each)])

    def test_not_strict(self):
        each = tensors(grad=False)
        program = torch.export.export(self.Model(), each, strict=False).run_decompositions()
        self.assert_close([program.module()(*each)], [self.Model()(*each)])


class Eager(InTorch):
    def test_selective_checkpoints_see_the_operator(self):
        """A policy that keeps it runs forward once and backward once."""
        def policy(context, operator, *_, **__):
            keeps = operator == OPERATOR
            return checkpoint.CheckpointPolicy.MUST_SAVE if keeps else checkpoint.CheckpointPolicy.PREFER_RECOMPUTE

        leaves = tensors()
        contexts = functools.partial(checkpoint.create_selective_checkpoint_contexts, policy)
        with unittest.mock.patch.object(_calls, "forward", wraps=_calls.forward) as forward:
            kept = with_gradients(lambda *each: checkpoint.checkpoint(step, *each, use_reentrant=False, context_fn=contexts), leaves)
            self.assertEqual(forward.call_count, 1)
        self.assert_same(kept, with_gradients(step, leaves))

    def test_an_operator_in_a_cuda_graph(self):
        q, k, v = tensors(grad=False)
        attune.prepare(q, k, v, causal=True)
        given, graph = torch.zeros_like(q), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out, _ = OPERATOR(given, k, v, True)
        for seed in (1, 2):
            given.copy_(tensors(seed=seed, grad=False)[0])
            graph.replay()
            self.assert_close([out], [exact(given, k, v)])

    def test_threads(self):
        """Calls of one kind at the same time, on streams of their own."""
        wrong, ended = [], []
        inputs = [tensors(seed=seed) for seed in range(4)]
        outputs = [with_gradients(exact, leaves) for leaves in inputs]  # here: which backend PyTorch takes is a matter of the process
        torch.cuda.synchronize()

        def work(seed):
            leaves, expected = inputs[seed], outputs[seed]
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(50):
                    results = with_gradients(functools.partial(attune.attention, causal=True), leaves)
                    for result, other in zip(results, expected):
                        if not (result.double() - other.double()).norm() <= BOUND * other.double().norm():
                            wrong.append(seed)
            ended.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((wrong, sorted(ended)), ([], [0, 1, 2, 3]))


@unittest.skipIf(_attention._attend is None, "the extension does not implement PyTorch's operators")
class Recorded(InTorch):
    """attention() of a kind that was called before, which autograd records in C++."""

    KIND = "ScaledDotProductFusedAttentionOverrideableBackward0"

    def results(self, leaves, is_recorded=True, **options):
        options = {"deterministic": True, **options}
        call = functools.partial(attune.attention, **options)
        if not is_recorded:
            with unittest.mock.patch.object(_attention, "_attend", None):
                return with_gradients(call, leaves)
        with_gradients(call, leaves)
        self.assertEqual(type(call(*leaves).grad_fn).__name__, self.KIND)
        before = _calls._known_calls.served()
        with unittest.mock.patch.object(_calls._Launcher, "run", side_effect=AssertionError("a call of a known kind was made by Python code")):
            results = with_gradients(call, leaves)
        self.assertEqual([now - one for now, one in zip(_calls._known_calls.served(), before)], [1, 1])
        return results

    def test_results_are_those_of_python_code(self):
        for options in ({}, {"causal": True}, {"causal": True, "top_left": True}, {"scale": 0.3}, {"window": (20, 7)},
                        {"window": (33, None), "causal": True, "scale": 0.2}, {"layout": "bshd", "causal": True}):
            for kind in ({}, {"seq_q": 70, "seq_kv": 150}, {"head_dim": 128, "heads": (6, 2)}, {"dtype": FP16}):
                with self.subTest(options=options, kind=kind):
                    leaves = tensors(**kind, layout=options.get("layout", "bhsd"))
                    self.assert_same(self.results(leaves, **options), self.results(leaves, is_recorded=False, **options))

    def test_strides(self):
        packed = torch.randn(2, 96, 3, 4, 64, device=DEVICE, dtype=BF16)
        leaves = [one.transpose(1, 2).detach().requires_grad_() for one in packed.unbind(2)]
        self.assert_same(self.results(leaves, causal=True), self.results(leaves, is_recorded=False, causal=True))

    def test_nothing_is_recorded_twice_in_a_cuda_graph(self):
        leaves = tensors()
        self.results(leaves, causal=True)
        grad_out = torch.randn_like(leaves[0])
        expected = [torch.autograd.grad(attune.attention(*leaves, causal=True, deterministic=True), leaves, scale * grad_out) for scale in (1, 2)]
        given, graph, stream = torch.zeros_like(grad_out), torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        before = _calls._known_calls.served()
        with torch.cuda.graph(graph, stream=stream):
            grads = torch.autograd.grad(attune.attention(*leaves, causal=True, deterministic=True), leaves, given)
        self.assertEqual([now - one for now, one in zip(_calls._known_calls.served(), before)], [1, 1])
        for scale, others in zip((1, 2), expected):
            given.copy_(scale * grad_out)
            graph.replay()
            self.assert_same(grads, others)

    def test_the_stream_of_the_forward_pass(self):
        """Autograd runs backward on it, in a thread of its own."""
        leaves = tensors(512)
        expected, stream = self.results(leaves), torch.cuda.Stream()
        late = [torch.zeros_like(leaf).requires_grad_() for leaf in leaves]
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            with torch.no_grad():
                for one, leaf in zip(late, leaves):
                    one.copy_(leaf)
            results = with_gradients(functools.partial(attune.attention, deterministic=True), late)
        stream.synchronize()
        self.assert_same(results, expected)

    @unittest.skipIf(torch.cuda.device_count() < 2, "a single GPU")
    def test_another_device(self):
        leaves = [leaf.detach().to("cuda:1").requires_grad_() for leaf in tensors()]
        self.assert_same(self.results(leaves, causal=True), self.results(leaves, is_recorded=False, causal=True))
        self.assert_close(self.results(leaves, causal=True), [one.to("cuda:1") for one in with_gradients(exact, tensors())])

    def test_autocast(self):
        leaves = tensors(dtype=torch.float32)
        with torch.autocast(DEVICE, dtype=BF16):
            ours, others = self.results(leaves), self.results(leaves, is_recorded=False)
        self.assertEqual([one.dtype for one in ours], [BF16] + [torch.float32] * 3)
        self.assert_same(ours, others)

    def test_no_memory(self):
        leaves = tensors(4096, heads=(16, 16))
        call = functools.partial(attune.attention, deterministic=True)
        with_gradients(call, leaves)
        out, grad_out = call(*leaves), torch.ones_like(leaves[0])
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.addCleanup(torch.cuda.set_per_process_memory_fraction, 1.0)
        torch.cuda.set_per_process_memory_fraction(1e-6)
        for fails in (lambda: call(*leaves), lambda: torch.autograd.grad(out, leaves, grad_out, retain_graph=True)):
            with self.assertRaises(torch.OutOfMemoryError):
                fails()
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.autograd.grad(out, leaves, grad_out)

    def test_inference_tensors_are_refused_as_elsewhere(self):
        q, k, v = tensors()
        self.results((q, k, v))
        with torch.inference_mode():
            k = k.detach().clone()
        for is_recorded in (True, False):
            with unittest.mock.patch.object(_attention, "_attend", _attention._attend if is_recorded else None), \
                    self.assertRaisesRegex(RuntimeError, "[Ii]nference tensors cannot be saved"):
                attune.attention(q, k, v, deterministic=True)

    def test_compiled_autograd(self):
        leaves = tensors()
        expected = self.results(leaves)
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
            results = with_gradients(functools.partial(attune.attention, deterministic=True), leaves)
        self.assert_same(results, expected)


if __name__ == "__main__":
    run_tests(verbosity=2, warnings="ignore")

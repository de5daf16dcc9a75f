"""The Python binding inside PyTorch, on a GPU: its operators under torch.compile, torch.export, checkpoints, graphs and torch.func, and its kernels
under torch.nn.functional.scaled_dot_product_attention.

Prints a line for each test.
"""

import contextlib
import functools
import os
import threading
import unittest
import unittest.mock

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # a pool of processes takes longer to start than these graphs to compile

# First: it finds the module, and ends a program that has no GPU.
from on_gpu import BF16, DEVICE, FP16, run_tests, torch  # noqa: E402

from torch import nn  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as sdpa  # noqa: E402
from torch.utils import checkpoint  # noqa: E402

import attune_kernels as attune  # noqa: E402
from attune_kernels import _calls, _sdpa  # noqa: E402

BOUND = 1.2e-2  # norm of the error over norm of the expected: what is compared was rounded to bf16 several times
OPERATOR = torch.ops.attune_kernels.forward.default


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


class OnGpu(unittest.TestCase):
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


def step(q, k, v, **options):
    """Attention between operations that a compiler works on."""
    return nn.functional.gelu(attune.attention(q * 1.5, k, v, causal=True, deterministic=True, **options)) + 1


class Operators(OnGpu):
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
        for terms in ((sinks, None, None, None, None, None), (None, used, None, slopes[0], bias, mask), (sinks, used, used, slopes, None, mask)):
            torch.library.opcheck(torch.ops.attune_kernels.forward_with_terms.default, (q, k, v, *terms, True))
        with torch.no_grad():
            out, lse = attune.attention(q, k, v, causal=True, return_lse=True, sinks=sinks)
            for terms in (sinks.detach(), None, None, None, None, None), (None, used, used, slopes, bias.detach(), mask):
                torch.library.opcheck(torch.ops.attune_kernels.backward_with_terms.default,
                                      (torch.randn_like(out), *(one.detach() for one in (q, k, v)), *terms, out, lse, None, terms[4] is not None, True,
                                       None, "bhsd", False, None, True))

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


class Compiled(OnGpu):
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


class Exported(OnGpu):
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


class Eager(OnGpu):
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


@unittest.skipIf(attune._attend is None, "the extension does not implement PyTorch's operators")
class Recorded(OnGpu):
    """attention() of a kind that was called before, which autograd records in C++."""

    KIND = "ScaledDotProductFusedAttentionOverrideableBackward0"

    def results(self, leaves, is_recorded=True, **options):
        options = {"deterministic": True, **options}
        call = functools.partial(attune.attention, **options)
        if not is_recorded:
            with unittest.mock.patch.object(attune, "_attend", None):
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
            with unittest.mock.patch.object(attune, "_attend", attune._attend if is_recorded else None), \
                    self.assertRaisesRegex(RuntimeError, "[Ii]nference tensors cannot be saved"):
                attune.attention(q, k, v, deterministic=True)

    def test_compiled_autograd(self):
        leaves = tensors()
        expected = self.results(leaves)
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
            results = with_gradients(functools.partial(attune.attention, deterministic=True), leaves)
        self.assert_same(results, expected)


class Ran:
    """How often Attune's forward and backward have run for PyTorch's operators: by Python code, and by the extension."""

    def __init__(self):
        self.by_python, self.before, self.ended = [0, 0], self.in_c(), None

    @staticmethod
    def in_c():
        return _calls._known_calls.served() if _calls._known_calls else (0, 0)

    def __iter__(self):
        return iter(self.ended or [python + now - before for python, now, before in zip(self.by_python, self.in_c(), self.before)])

    def __eq__(self, other):
        return list(self) == other

    def __repr__(self):
        return repr(list(self))


@contextlib.contextmanager
def counted():
    ran = Ran()

    def counting(function, place):
        def call(*arguments):
            result = function(*arguments)
            ran.by_python[place] += result is not None
            return result

        return call

    with unittest.mock.patch.object(_sdpa, "_forward", counting(_sdpa._forward, 0)), \
            unittest.mock.patch.object(_sdpa, "_backward", counting(_sdpa._backward, 1)):
        yield ran
    ran.ended = list(ran)


SERVES_MASKS = hasattr(torch.library, "get_kernel")  # by the operators whose implementations must be asked for


def exact_of_mask(q, k, v, attn_mask):
    """PyTorch's own attention, in double precision by its operations."""
    with sdpa_kernel(SDPBackend.MATH):
        return sdpa(*(one.double() for one in (q, k, v)), attn_mask=attn_mask if attn_mask.dtype == torch.bool else attn_mask.double())


def causal_sdpa(q, k, v):
    return sdpa(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


class Sdpa(OnGpu):
    """enable_sdpa()."""

    def test_by_each_backend(self):
        for backend, is_ours in ((SDPBackend.FLASH_ATTENTION, True), (SDPBackend.CUDNN_ATTENTION, True),
                                 (SDPBackend.EFFICIENT_ATTENTION, SERVES_MASKS), (SDPBackend.MATH, False), (None, True)):
            with self.subTest(backend=backend):
                leaves = tensors(128, heads=(4, 4))
                try:
                    with contextlib.nullcontext() if backend is None else sdpa_kernel(backend):
                        expected = with_gradients(causal_sdpa, leaves)
                        with attune.enable_sdpa(), counted() as ran:
                            ours = with_gradients(causal_sdpa, leaves)
                        after = with_gradients(causal_sdpa, leaves)
                except RuntimeError as error:
                    if "No available kernel" not in str(error):
                        raise
                    continue  # this PyTorch has no such backend for this GPU
                self.assertEqual(ran, [1, 1] if is_ours else [0, 0])
                self.assert_close(ours, with_gradients(exact, leaves))
                self.assert_close(after, expected)
                self.assertEqual(ours[0].stride(), expected[0].stride())

    def test_kinds_of_calls(self):
        """Served or not, results are PyTorch's own."""
        q, k, v = tensors(128, heads=(4, 4))
        mask = torch.ones(128, 128, dtype=torch.bool, device=DEVICE).tril()
        turned = tuple(one.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for one in (q, k, v))
        wide = [one.detach().float().requires_grad_() for one in (q, k, v)]
        half_v = v.detach()[..., :32].contiguous().requires_grad_()
        cases = {  # leaves, options, whether it must be served; None where that is PyTorch's choice
            "plain": ((q, k, v), {}, True),
            "scale": ((q, k, v), {"scale": 0.2}, True),
            "lengths before heads": (turned, {"is_causal": True}, True),
            "other lengths": (tensors(100, 150, heads=(4, 4)), {}, True),
            "other lengths, causal": (tensors(100, 150, heads=(4, 4)), {"is_causal": True}, SERVES_MASKS),
            "grouped heads": (tensors(128), {"is_causal": True, "enable_gqa": True}, True),
            "head dim 60": (tensors(128, heads=(4, 4), head_dim=60), {"is_causal": True}, None),
            "head dim 256": (tensors(128, heads=(4, 4), head_dim=256), {"is_causal": True}, True),
            "mask": ((q, k, v), {"attn_mask": mask}, SERVES_MASKS),
            "mask of numbers": ((q, k, v), {"attn_mask": torch.randn(2, 1, 128, 128, device=DEVICE, dtype=BF16)}, SERVES_MASKS),
            "dropout": ((q, k, v), {"dropout_p": 0.25}, False),
            "float32": (wide, {"is_causal": True}, False),
            "v of other head dim": ((q, k, half_v), {"is_causal": True}, False),
            "one query": (tensors(1, 300, heads=(4, 4)), {}, True),
        }
        for name, (leaves, options, is_served) in cases.items():
            with self.subTest(name):
                call = functools.partial(sdpa, **options)
                torch.manual_seed(3)
                expected = with_gradients(call, leaves)
                torch.manual_seed(3)
                with attune.enable_sdpa(), counted() as ran:
                    ours = with_gradients(call, leaves)
                if is_served is not None:
                    self.assertEqual(ran, [1, 1] if is_served else [0, 0])
                self.assert_close(ours, expected)

    @unittest.skipUnless(SERVES_MASKS, "this PyTorch has no torch.library.get_kernel")
    def test_masks(self):
        """Rows of 77 keys are padded by PyTorch; a mask that requires a gradient goes to its memory-efficient backend, also of a compiled graph."""
        leaves = tensors(100, 77, heads=(4, 4))
        kept = torch.arange(77, device=DEVICE) < torch.tensor([77, 30], device=DEVICE)[:, None, None, None]
        for backend in (SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION):
            for mask in (kept, torch.randn(100, 77, device=DEVICE, dtype=BF16), torch.randn(2, 1, 100, 77, device=DEVICE, dtype=BF16)):
                with self.subTest(backend=backend, mask=mask.dtype, shape=mask.shape):
                    try:
                        with sdpa_kernel(backend), attune.enable_sdpa(), counted() as ran:
                            ours = with_gradients(functools.partial(sdpa, attn_mask=mask), leaves)
                    except RuntimeError as error:
                        if "No available kernel" not in str(error):
                            raise
                        continue
                    self.assertEqual(ran, [1, 1])
                    self.assert_close(ours, with_gradients(functools.partial(exact_of_mask, attn_mask=mask), leaves))
        for shape in ((100, 77), (1, 4, 100, 77), (2, 1, 1, 77)):
            mask = torch.randn(shape, device=DEVICE, dtype=BF16, requires_grad=True)
            expected = with_gradients(exact_of_mask, (*leaves, mask))
            for call in (sdpa, torch.compile(lambda q, k, v, mask: sdpa(q, k, v, attn_mask=mask), fullgraph=True)):
                with self.subTest(shape=shape, compiled=call is not sdpa), attune.enable_sdpa(), counted() as ran:
                    self.assert_close(with_gradients(call, (*leaves, mask)), expected)
                self.assertEqual(ran, [1, 1])

    @unittest.skipUnless(SERVES_MASKS, "this PyTorch has no torch.library.get_kernel")
    def test_queries_of_which_a_mask_hides_everything(self):
        leaves, mask = tensors(128, heads=(4, 4)), torch.ones(2, 1, 128, 128, dtype=torch.bool, device=DEVICE)
        mask[1, :, 5:9] = False
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION), attune.enable_sdpa(), counted() as ran:
            out, *grads = with_gradients(functools.partial(sdpa, attn_mask=mask), leaves)
        self.assertEqual(ran, [1, 1])
        self.assertEqual([one[1, :, 5:9].count_nonzero().item() for one in (out, grads[0])], [0, 0])
        self.assertTrue(all(one.isfinite().all() for one in (out, *grads)))

    @unittest.skipIf(attune._attend is None, "the extension does not implement PyTorch's operators")
    def test_known_kinds_are_served_in_c(self):
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
            with self.subTest(backend=backend), sdpa_kernel(backend), attune.enable_sdpa():
                leaves = tensors(128, heads=(4, 4))
                torch.use_deterministic_algorithms(True)
                try:
                    first = with_gradients(causal_sdpa, leaves)
                except RuntimeError as error:
                    if "No available kernel" not in str(error):
                        raise
                    continue
                before = _calls._known_calls.served()
                self.assert_same(with_gradients(causal_sdpa, leaves), first)
                self.assertEqual([now - one for now, one in zip(_calls._known_calls.served(), before)], [1, 1])

    def test_turned_on_and_off_between_forward_and_backward(self):
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, *([SDPBackend.EFFICIENT_ATTENTION] if SERVES_MASKS else [])):
            for first, second in ((True, False), (False, True)):
                with self.subTest(backend=backend, forward=first, backward=second):
                    leaves = tensors(128, heads=(4, 4))
                    try:
                        with attune.enable_sdpa() if first else contextlib.nullcontext(), sdpa_kernel(backend):
                            out = causal_sdpa(*leaves)
                    except RuntimeError as error:
                        if "No available kernel" not in str(error):
                            raise
                        continue
                    weights = torch.linspace(-1, 1, out.numel(), device=DEVICE).view(out.shape)
                    with attune.enable_sdpa() if second else contextlib.nullcontext(), counted() as ran:
                        gradients = torch.autograd.grad((out.float() * weights).sum(), leaves)
                    self.assertEqual(ran, [0, int(second)])
                    self.assert_close(gradients, with_gradients(exact, leaves)[1:])

    def test_a_graph_that_was_compiled_before(self):
        def function(q, k, v):
            return nn.functional.gelu(causal_sdpa(q * 1.5, k, v))

        leaves, compiled = tensors(128, heads=(4, 4)), torch.compile(function, fullgraph=True)
        expected = with_gradients(compiled, leaves)
        with attune.enable_sdpa(), counted() as ran:
            ours = with_gradients(compiled, leaves)
            self.assertEqual(ran, [1, 1])
            torch._dynamo.reset()
            again = with_gradients(torch.compile(function, fullgraph=True), leaves)
            self.assertEqual(ran, [2, 2])
        with counted() as ran:
            with_gradients(compiled, leaves)
            self.assertEqual(ran, [0, 0])
        self.assert_close(ours, expected)
        self.assert_close(again, expected)

    def test_checkpoints_and_autocast(self):
        leaves = tensors(128, heads=(4, 4), dtype=torch.float32)

        def function(q, k, v):
            with torch.autocast(DEVICE, dtype=BF16):
                return checkpoint.checkpoint(causal_sdpa, q, k, v, use_reentrant=False)

        expected = with_gradients(function, leaves)
        with attune.enable_sdpa(), counted() as ran:
            self.assert_close(with_gradients(function, leaves), expected)
        self.assertEqual(ran, [2, 1])

    def test_deterministic_mode(self):
        leaves = tensors(1500, heads=(8, 8), batch=1)
        torch.use_deterministic_algorithms(True)
        with attune.enable_sdpa(), counted() as ran:
            first = with_gradients(causal_sdpa, leaves)
            for _ in range(4):
                self.assert_same(with_gradients(causal_sdpa, leaves), first)
        self.assertEqual(ran, [5, 5])

    def test_a_cuda_graph(self):
        q, k, v = tensors(128, heads=(4, 4), grad=False)
        with attune.enable_sdpa(), torch.no_grad():
            causal_sdpa(q, k, v)
            given, graph = torch.zeros_like(q), torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph), counted() as ran:
                out = causal_sdpa(given, k, v)
        self.assertEqual(ran, [1, 0])
        given.copy_(q)
        graph.replay()
        self.assert_close([out], [exact(q, k, v)])

    def test_modules_of_pytorch(self):
        torch.manual_seed(1)
        layer, x = nn.MultiheadAttention(256, 4, batch_first=True, device=DEVICE, dtype=BF16), torch.randn(2, 128, 256, device=DEVICE, dtype=BF16)

        def function(x):
            return layer(x, x, x, need_weights=False)[0]

        expected = with_gradients(function, (x.requires_grad_(),))
        with attune.enable_sdpa(), counted() as ran:
            self.assert_close(with_gradients(function, (x,)), expected, 2 * BOUND)
        self.assertEqual(ran, [1, 1])

    @unittest.skipUnless(hasattr(torch.nn.attention, "activate_flash_attention_impl"), "this PyTorch has no registry of implementations")
    def test_the_registry_of_pytorch(self):
        attention = torch.nn.attention
        self.assertIn("attune", attention.list_flash_attention_impls())
        attention.activate_flash_attention_impl("attune")
        with counted() as ran, sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            causal_sdpa(*tensors(128, heads=(4, 4)))
        self.assertEqual(ran, [1, 0])
        with attune.enable_sdpa():
            self.assertEqual(attention.current_flash_attention_impl(), "attune")
        self.assertEqual(attention.current_flash_attention_impl(), "attune")
        attune.disable_sdpa()
        self.assertIsNone(attention.current_flash_attention_impl())


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.before, self.between = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.before(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.join(sdpa(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.between(x))


class Training(OnGpu):
    """A small transformer learns to go on with a phrase that repeats: losses beside PyTorch's own, step by step."""

    def losses(self, steps, compiled):
        torch.manual_seed(4)
        words, width, length = 32, 128, 128
        model = nn.Sequential(nn.Embedding(words, width), Block(width, 2), Block(width, 2), nn.LayerNorm(width), nn.Linear(width, words))
        model = model.to(DEVICE)
        position = torch.randn(length, width, device=DEVICE) * 0.3
        run = torch.compile(model[1:], fullgraph=True) if compiled else model[1:]
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        losses = []
        for _ in range(steps):
            phrase = torch.randint(words, (16, 8), device=DEVICE)
            text = phrase.repeat(1, length // 8 + 1)[:, : length + 1]
            with torch.autocast(DEVICE, dtype=BF16):
                logits = run(model[0](text[:, :-1]) + position)
            loss = nn.functional.cross_entropy(logits[:, 8:].flatten(0, 1).float(), text[:, 9:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def test_losses_beside_those_of_pytorch(self):
        for steps, compiled in ((120, False), (20, True)):
            with self.subTest(compiled=compiled):
                theirs = self.losses(steps, compiled)
                with attune.enable_sdpa(), counted() as ran:
                    ours = self.losses(steps, compiled)
                self.assertEqual(ran, [2 * steps, 2 * steps])
                places = range(0, steps, max(1, steps // 6))
                print(f"\n  losses, {'compiled' if compiled else 'eager'}: PyTorch's " + " ".join(f"{theirs[i]:.3f}" for i in places)
                      + "\n" + " " * 14 + "with Attune " + " ".join(f"{ours[i]:.3f}" for i in places), flush=True)
                for number, (one, other) in enumerate(zip(ours[:20], theirs)):
                    self.assertLess(abs(one - other), 0.02 * other, f"loss of step {number}")  # later, rounding has grown
                self.assertLess(ours[-1], ours[0])
                if not compiled:
                    self.assertLess(abs(sum(ours[-10:]) - sum(theirs[-10:])), 0.25 * sum(theirs[-10:]) + 0.5)


if __name__ == "__main__":
    run_tests(verbosity=2, warnings="ignore")

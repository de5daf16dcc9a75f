"""Operators of PyTorch that the extension implements in C, without a GPU: tensors of the CPU pass for those of one.

usage: python_operators.py REPOSITORY LIBATTUNE        where the extension lies beside the library

What they hand over, save and raise is what the Python code does. Ends as test_* programs do: a line "attune-tests: N passed, N failed, N skipped",
exit status 77 where there is no PyTorch, or none in which the extension can implement operators.
"""

import contextlib
import os
import pathlib
import subprocess
import sys
import threading
import unittest
import unittest.mock
import warnings

REPOSITORY, LIBRARY = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
os.environ.update(ATTUNE_LIBRARY=LIBRARY, CUDA_VISIBLE_DEVICES="")
sys.dont_write_bytecode = True
sys.path.insert(0, str(REPOSITORY / "bindings" / "python"))

try:
    import torch
except ImportError:
    print("attune-tests: 0 passed, 0 failed, 1 skipped: PyTorch is not installed")
    sys.exit(77)

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import attune_kernels as attune  # noqa: E402
from attune_kernels import _attention, _calls, _library, _operators, _ops, _reasons, _sdpa, _sdpa_calls  # noqa: E402
from recording_library import RecordingLibrary  # noqa: E402

if not _operators.are_there():
    built = (pathlib.Path(LIBRARY).parent / "attune_kernels" / "_known_calls.abi3.so").exists()
    if built and torch.__version__.startswith("2.11."):
        sys.exit("the extension is there, and finds no functions in a PyTorch that has them")
    print("attune-tests: 0 passed, 0 failed, 1 skipped: without the extension, or in a PyTorch without its functions")
    sys.exit(77)

BF16 = torch.bfloat16
IN_C = "ScaledDotProductFusedAttentionOverrideableBackward0"
SHAPE = (2, 4, 100, 64)

on_the_cpu = [_operators.implement(_operators.ATTENTION, "CPU"), _operators.implement(f"{_operators.ATTENTION}_backward", "AutogradCPU")]


for name, function in (("forward", _ops._run_forward), ("backward", _ops._run_backward)):
    _ops._defined.impl(name, function, "CPU")


def kind_of(out):
    """Of the node by which autograd recorded it."""
    return type(out.grad_fn).__name__


def gradients(out, leaves, **options):
    """Those of a loss whose gradient of out is contiguous: of others the Python code makes a copy."""
    return torch.autograd.grad(out, leaves, torch.ones_like(out), **options)


def tensors(count=3, shape=SHAPE, **options):
    return [torch.randn(shape).to(BF16).requires_grad_(options.get("requires_grad", False)) for _ in range(count)]


class Case(unittest.TestCase):
    def setUp(self):
        self.library, self.by_python = RecordingLibrary(), 0
        run = _calls._Launcher.run

        def counted(launcher, *arguments):
            self.by_python += 1
            return run(launcher, *arguments)

        mock = unittest.mock.patch
        for patch in (mock.object(_library, "load", lambda: self.library), mock.object(_calls._Launcher, "run", counted),
                      mock.object(_calls.Checked, "check_tensor", lambda *_: None), mock.object(torch._C, "_cuda_getCurrentRawStream", lambda _: 0, create=True),
                      mock.object(_calls, "_forward_launchers", {}), mock.object(_calls, "_backward_launchers", {})):
            patch.start()
            self.addCleanup(patch.stop)
        self.forget()
        self.addCleanup(self.forget)
        self.leaves = tensors(requires_grad=True)

    def forget(self):
        """The functions of one library are not there for the next one."""
        for launchers in (_calls._forward_launchers, _calls._backward_launchers):
            launchers.clear()
        _calls._known_calls.forget_forward()
        _calls._known_calls.forget_backward()

    @contextlib.contextmanager
    def assert_no_python(self):
        before = self.by_python
        yield
        self.assertEqual(self.by_python, before)

    def last_launches(self, **tensors):
        """What the last forward and the last backward were given, with the names of tensors in place of their addresses."""
        names = {tensor.data_ptr(): name for name, tensor in tensors.items()}
        found = []
        for is_backward in (False, True):
            _, problem, *structs, has_workspace, workspace_bytes, stream = next(
                one for one in reversed(self.library.launches) if (one[3] is not None) == is_backward)
            named = [struct and {name: names.get(value, "some" if value else None) if "stride" not in name and "." in name else value
                                 for name, value in struct.items() if name != "lse"} for struct in structs]
            found.append((problem, *named, bool(structs[0]["lse"]), has_workspace, workspace_bytes, stream))
        return found


class Attention(Case):
    def call(self, leaves=None, grad_out=None, **options):
        leaves = leaves or self.leaves
        out = attune.attention(*leaves, **options)
        grads = torch.autograd.grad(out, [leaf for leaf in leaves if leaf.requires_grad], torch.ones_like(out) if grad_out is None else grad_out,
                                    retain_graph=True)
        return out, grads

    def known(self, *arguments, **options):
        """out and gradients of a call that was made before."""
        self.call(*arguments, **options)
        before = _calls._known_calls.served()
        with self.assert_no_python():
            out, grads = self.call(*arguments, **options)
        self.assertEqual([now - one for now, one in zip(_calls._known_calls.served(), before)], [1, 1])
        self.assertEqual(kind_of(out), IN_C)
        return out, grads

    def test_arguments(self):
        """They are those that the Python code hands over."""
        packed = torch.randn(2, 100, 3, 4, 64).to(BF16).requires_grad_()
        of_layout = {"bhsd": lambda: self.leaves, "bshd": lambda: [one.detach().requires_grad_() for one in packed.unbind(2)]}
        for options in ({}, {"causal": True}, {"causal": True, "top_left": True}, {"scale": 0.3}, {"window": (3, 4)}, {"window": (None, 4)},
                        {"window": (3, -1), "causal": True}, {"window": (2 ** 40, 5), "scale": 0.1}, {"deterministic": True},
                        {"deterministic": False}, {"invariant": True}, {"layout": "bshd", "causal": True, "scale": 0.2, "window": (7, None)}):
            with self.subTest(options=options):
                leaves = of_layout[options.get("layout", "bhsd")]()
                found = []
                for attend in (None, _attention._attend):
                    with unittest.mock.patch.object(_attention, "_attend", attend):
                        self.call(leaves, **options)
                        grad_out = torch.ones_like(leaves[0])
                        before = self.by_python, _calls._known_calls.served()
                        out, grads = self.call(leaves, grad_out, **options)
                        self.assertEqual((self.by_python, kind_of(out) == IN_C), (before[0], attend is not None))
                        self.assertEqual([now - one for now, one in zip(_calls._known_calls.served(), before[1])], [int(attend is not None)] * 2)
                        self.assertEqual([grad.stride() for grad in grads], [torch.empty_like(leaf).stride() for leaf in leaves])
                        self.assertEqual((out.stride(), out.requires_grad), (torch.empty_like(leaves[0]).stride(), True))
                        found.append(self.last_launches(out=out, grad_out=grad_out, **dict(zip("qkv", leaves)),
                                                        **dict(zip(("d_q", "d_k", "d_v"), grads))))
                self.assertEqual(found[0], found[1])
                self.assertEqual(found[1][1][2]["d_v.data"], "d_v")

    def test_grouped_heads_and_fp16(self):
        leaves = [torch.randn(1, heads, seq, 32).half().requires_grad_() for heads, seq in ((4, 9), (2, 7), (2, 7))]
        _, grads = self.known(leaves, causal=True)
        self.assertEqual([(grad.shape, grad.dtype) for grad in grads], [(leaf.shape, torch.float16) for leaf in leaves])

    def test_deterministic_is_asked_in_the_backward_pass(self):
        self.addCleanup(torch.use_deterministic_algorithms, False)
        for options, expected in (({}, (0, 1)), ({"deterministic": False}, (0, 0)), ({"deterministic": True}, (1, 1))):
            for _ in range(2):
                for is_on in (0, 1):
                    torch.use_deterministic_algorithms(False)
                    out = attune.attention(*self.leaves, **options)
                    torch.use_deterministic_algorithms(bool(is_on))
                    gradients(out, self.leaves)
                    self.assertEqual(self.library.launches[-1][1]["deterministic"], expected[is_on])

    def test_gradients_of_some(self):
        for wanted in ((True, False, False), (False, True, True), (False, False, True)):
            leaves = [one.detach().requires_grad_(is_wanted) for one, is_wanted in zip(self.leaves, wanted)]
            out, grads = self.known(leaves)
            self.assertEqual(len(grads), sum(wanted))
            out.backward(torch.ones_like(out))
            self.assertEqual([leaf.grad is not None for leaf in leaves], list(wanted))

    def test_gradients_of_out_of_all_strides(self):
        for grad_out in (torch.ones(2, 4, 64, 100, dtype=BF16).transpose(2, 3), torch.ones((), dtype=BF16).expand(SHAPE),
                         torch.ones(2, 4, 1, 64, dtype=BF16).expand(SHAPE), torch.ones(2, 100, 4, 64, dtype=BF16).transpose(1, 2)):
            for _ in range(2):
                self.call(grad_out=grad_out)
                handed = self.library.launches[-1][3]
                strides = (grad_out if grad_out.stride(3) == 1 else grad_out.contiguous()).stride()
                self.assertEqual(tuple(handed[f"d_o.stride_{axis}"] for axis in ("batch", "head", "row")), strides[:3])
                if grad_out.stride(3) == 1:
                    self.assertEqual(handed["d_o.data"], grad_out.data_ptr())

    def test_the_graph_is_kept_or_freed(self):
        self.known()
        out = attune.attention(*self.leaves)
        for _ in range(3):
            gradients(out, self.leaves, retain_graph=True)
        gradients(out, self.leaves)
        with self.assertRaisesRegex(RuntimeError, "second time"):
            gradients(out, self.leaves)

    def test_a_saved_tensor_that_was_modified(self):
        self.known()
        for place in (0, 1, 2, None):
            out = attune.attention(*self.leaves)
            with torch.no_grad():
                (out if place is None else self.leaves[place]).add_(0)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                gradients(out, self.leaves)

    def test_second_derivatives_are_refused(self):
        self.known()
        out = attune.attention(*self.leaves)
        self.assertEqual(kind_of(out), IN_C)
        grads = gradients(out, self.leaves, create_graph=True)
        self.assertTrue(all(grad.requires_grad for grad in grads))
        with self.assertRaisesRegex(NotImplementedError, "differentiable once"):
            torch.autograd.grad(grads[0].sum(), self.leaves[0])

    def test_hooks(self):
        self.known()
        seen = []
        out = attune.attention(*self.leaves)
        out.register_hook(lambda grad: seen.append("out") or grad * 2)
        out.grad_fn.register_hook(lambda results, given: seen.append(("node", len(results))))
        self.leaves[1].register_hook(lambda grad: seen.append("k"))
        gradients(out, self.leaves)
        self.assertEqual((seen[0], sorted(seen[1:], key=str)), ("out", [("node", 4), "k"]))

    def test_saved_tensor_hooks_go_the_old_way(self):
        """What a call saves must not depend on whether its kind is known: a checkpoint counts."""
        self.known()
        packed = []
        with torch.autograd.graph.saved_tensors_hooks(lambda one: packed.append(one.shape) or one, lambda one: one):
            out = attune.attention(*self.leaves)
        self.assertEqual((kind_of(out), len(packed)), ("_AttentionBackward", 5))
        self.forget()
        for _ in range(3):
            out = checkpoint(lambda *each: attune.attention(*each) * 1, *self.leaves, use_reentrant=False)
            self.call()
            self.assertEqual(len(gradients(out, self.leaves)), 3)
        out = checkpoint(lambda *each: attune.attention(*each) * 1, *self.leaves, use_reentrant=True)
        with self.assert_no_python():
            out.backward(torch.ones_like(out))
        with torch.autograd.graph.save_on_cpu():
            out = attune.attention(*self.leaves)
        gradients(out, self.leaves)

    def test_unusual_calls_go_the_old_way(self):
        class Derived(torch.Tensor):
            pass

        self.known()
        q, k, v = self.leaves
        others = {"Parameter": (torch.nn.Parameter(q), k, v), "derived": (q, k.as_subclass(Derived), v)}
        for name, each in others.items():
            for _ in range(2):
                self.assertEqual(kind_of(attune.attention(*each)), "_AttentionBackward", name)
        self.assertEqual(kind_of(attune.attention(*self.leaves, scale=1)), "_AttentionBackward")
        out, _ = attune.attention(*self.leaves, return_lse=True)
        self.assertEqual(kind_of(out), "_AttentionWithLseBackward")
        with unittest.mock.patch.object(torch._C, "_is_tracing", lambda: True):
            self.addCleanup(self.record)
            self.record(torch._C._is_tracing)
            self.assertEqual(kind_of(attune.attention(*self.leaves)), "_AttentionBackward")

    def record(self, is_tracing=torch._C._is_tracing, operator=torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default._op):
        _calls._known_calls.record_by(operator, torch._C._autograd._top_saved_tensors_default_hooks, is_tracing)

    def test_kernels_of_somebody_else(self):
        """What they return is thrown away."""
        self.known()
        self.addCleanup(self.record)

        def fail(*_):
            raise NotImplementedError

        for other in (lambda q, *_: (q * 2,) + (None,) * 8, fail):
            self.record(operator=other)
            self.assertEqual(kind_of(attune.attention(*self.leaves)), "_AttentionBackward")
        self.record(operator=lambda *_: sys.exit())
        with self.assertRaises(SystemExit):
            attune.attention(*self.leaves)
        self.record()
        self.known()

    def test_other_tensors_than_those_of_the_call(self):
        """As a mode of torch.overrides could pass on."""
        self.known()
        operator = torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default._op
        self.addCleanup(self.record)
        self.record(operator=lambda q, *others: operator(q.clone(), *others))
        launches = len(self.library.launches)
        self.assertEqual(kind_of(attune.attention(*self.leaves)), "_AttentionBackward")
        self.assertEqual(len(self.library.launches), launches + 1)

    def test_calls_of_others_are_refused(self):
        operator, backward = (getattr(torch.ops.aten, f"{_operators.ATTENTION}{end}") for end in ("", "_backward"))
        q, k, v = (leaf.detach() for leaf in self.leaves)
        self.known()
        for dropout_p in (0.0, 0.5, -0.5, -1.5, -513.0):
            with self.assertRaisesRegex(NotImplementedError, "has no implementation"):
                operator(q, k, v, None, dropout_p)
            with self.assertRaisesRegex(NotImplementedError, "has no implementation"):
                backward(q, q, k, v, None, [True] * 4, q, torch.zeros(2, 4, 100), None, None, 0, 0, dropout_p, False, None, None)
        self.known()

    def test_a_kind_that_was_forgotten_in_between(self):
        self.known()
        out = attune.attention(*self.leaves)
        self.forget()
        grads = gradients(out, self.leaves)
        self.assertEqual([grad.data_ptr() for grad in grads], [self.library.launches[-1][3][f"d_{name}.data"] for name in "qkv"])

    def test_a_status_is_raised(self):
        self.known()
        for _ in range(3):
            self.library.status = -7
            with self.assertRaisesRegex(attune.AttuneError, "status -7 of a test") as raised:
                attune.attention(*self.leaves)
            self.assertEqual(raised.exception.status, -7)
            self.library.status = 0
            out = attune.attention(*self.leaves)
            self.library.status = -7
            with self.assertRaisesRegex(attune.AttuneError, "status -7 of a test") as raised:
                out.backward(torch.ones_like(out))
            self.assertEqual(raised.exception.status, -7)
            self.library.status = 0
        self.known()

    def test_exceptions_keep_their_type(self):
        self.known()
        for error in (torch.OutOfMemoryError("CUDA out of memory"), KeyboardInterrupt(), ZeroDivisionError("of a test")):
            def fail(*_):
                raise error

            out = attune.attention(*self.leaves)
            self.forget()
            with unittest.mock.patch.object(_calls, "backward_of_graph", fail), self.assertRaises(type(error)) as raised:
                gradients(out, self.leaves)
            self.assertIs(raised.exception, error)
            self.known()

    def test_modes_see_an_operator(self):
        seen = []

        class Watch(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, arguments=(), options=None):
                seen.append(function)
                return function(*arguments, **(options or {}))

        self.known()
        out = attune.attention(*self.leaves)
        with Watch():
            gradients(out, self.leaves)
        self.assertIn(torch.ops.attune_kernels.backward.default, seen)

    def test_batches_of_gradients(self):
        self.known()
        out = attune.attention(*self.leaves)
        stacked = torch.ones(3, *SHAPE, dtype=BF16)

        def by_vmap():
            return torch.func.vmap(lambda one: torch.autograd.grad(out, self.leaves, one, retain_graph=True))(stacked)

        def by_autograd():
            return torch.autograd.grad(out, self.leaves, stacked, is_grads_batched=True, retain_graph=True)

        for call, batches in ((by_vmap, [6]), (by_autograd, [2, 2, 2])):
            launches = len(self.library.launches)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                grads = call()
            self.assertEqual([grad.shape for grad in grads], [(3, *SHAPE)] * 3)
            self.assertEqual([one[1]["batch"] for one in self.library.launches[launches:]], batches)

    def test_threads(self):
        wrong = []

        def work(number):
            leaves = tensors(shape=(1, 1 + number % 3, 50, 64), requires_grad=True)
            for _ in range(100):
                out = attune.attention(*leaves)
                grads = gradients(out, leaves)
                launch = next(one for one in reversed(self.library.launches) if one[0] == threading.get_ident() and one[3])
                handed = [launch[2][f"{name}.data"] for name in "qkvo"] + [launch[3][f"d_{name}.data"] for name in "qkv"]
                if handed != [one.data_ptr() for one in (*leaves, out, *grads)]:
                    wrong.append(handed)
                if number == 0:
                    _calls._known_calls.forget_forward()
                    _calls._known_calls.forget_backward()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_nothing_is_kept_of_a_call(self):
        def memory():
            return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096

        leaves = tensors(shape=(1, 4, 1000, 64), requires_grad=True)  # 512 KB each
        self.library.inside = self.library.launches.clear
        for is_ending_well in (True, False):
            self.known(leaves)
            for number in range(400):
                if number == 50:
                    before = memory()
                out = attune.attention(*leaves)
                self.library.status = 0 if is_ending_well else -7
                with contextlib.suppress(attune.AttuneError):
                    gradients(out, leaves)
                self.library.status = 0
            self.assertLess(memory() - before, 60 << 20)


def original(name, calls):
    """Stands for PyTorch's implementation on a GPU."""
    def forward(q, k, v, *arguments, **options):
        calls.append(name)
        seed = torch.empty(2, dtype=torch.uint64)
        return torch.zeros_like(q), torch.zeros(q.shape[:3]), None, None, 12345, 2 ** 40, seed, seed[0], torch.zeros(0)

    def backward(grad_out, q, k, v, *arguments, **options):
        calls.append(name)
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)

    return backward if name.endswith("backward") else forward


class Sdpa(Case):
    FLASH, CUDNN = "_scaled_dot_product_flash_attention", "_scaled_dot_product_cudnn_attention"
    EFFICIENT = "_scaled_dot_product_efficient_attention"

    def efficient(self, q, k, v, *arguments, **options):
        self.calls.append(self.EFFICIENT)
        return torch.zeros_like(q), torch.zeros(q.shape[:3]), torch.zeros(()), torch.zeros(())

    def efficient_backward(self, grad_out, q, k, v, *arguments, **options):
        self.calls.append(f"{self.EFFICIENT}_backward")
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v), None

    def setUp(self):
        super().setUp()
        self.originals, self.calls = torch._C._dispatch_library("IMPL", "aten", "CPU"), []
        for name in (self.FLASH, f"{self.FLASH}_backward", self.CUDNN, f"{self.CUDNN}_backward"):
            self.originals.impl(name, "CPU", original(name, self.calls), False)
        self.originals.impl(self.EFFICIENT, "CPU", self.efficient, False)
        self.originals.impl(f"{self.EFFICIENT}_backward", "CPU", self.efficient_backward, False)
        self.addCleanup(setattr, self, "originals", None)
        self.addCleanup(self.forget_replacements)
        _sdpa._install("CPU")

    @staticmethod
    def forget_replacements():
        _sdpa_calls.has_drawn = False
        _sdpa._remove()

    def run_flash(self, *leaves, dropout=0.0, causal=False, mask=False, scale=0.125):
        return torch.ops.aten._scaled_dot_product_flash_attention(*leaves, dropout, causal, mask, scale=scale)

    def run_cudnn(self, *leaves, bias=None, dropout=0.0, causal=False, mask=False, scale=0.125):
        return torch.ops.aten._scaled_dot_product_cudnn_attention(*leaves, bias, True, dropout, causal, mask, scale=scale)

    def test_results_and_arguments(self):
        """Those of the second call, which C serves, are those of the first."""
        for run in (self.run_flash, self.run_cudnn):
            for options in ({}, {"causal": True}, {"scale": None}, {"causal": True, "scale": 0.5}):
                with self.subTest(run=run.__name__, options=options):
                    self.forget()
                    found = []
                    for is_known in (False, True):
                        before, served = self.by_python, _calls._known_calls.served()
                        results = run(*self.leaves, **options)
                        grads = gradients(results[0], self.leaves)
                        self.assertEqual(self.by_python - before, 0 if is_known else 2)
                        self.assertEqual([now - one for now, one in zip(_calls._known_calls.served(), served)], [int(is_known)] * 2)
                        described = [(one.shape, one.stride(), one.dtype, one.requires_grad) if isinstance(one, torch.Tensor) else one
                                     for one in (*results, *grads)]
                        launches = self.last_launches(out=results[0], lse=results[1], **dict(zip("qkv", self.leaves)),
                                                      **dict(zip(("d_q", "d_k", "d_v"), grads)))
                        self.assertEqual(launches[0][1]["o.data"], "out")
                        self.assertEqual(launches[1][2]["d_k.data"], "d_k")
                        found.append((described, launches))
                    self.assertEqual(found[0], found[1])
                    self.assertEqual(results[4:6], (100, 100))
        self.assertEqual(self.calls, [])

    def test_cudnn_begins_top_left(self):
        for run, mask in ((self.run_flash, _library.MASK_CAUSAL), (self.run_cudnn, _library.MASK_CAUSAL_TOP_LEFT)):
            for _ in range(2):
                run(*self.leaves, causal=True)
                self.assertEqual(self.library.launches[-1][1]["mask"], mask)

    def test_what_is_not_served_goes_on(self):
        for run in self.run_flash, self.run_cudnn:
            with self.subTest(run=run.__name__):
                gradients(run(*self.leaves)[0], self.leaves)
                launches = len(self.library.launches)
                results = run(*self.leaves, mask=True)
                self.assertEqual((len(self.library.launches), results[4:6]), (launches, (12345, 2 ** 40)))
        self.assertEqual(len(self.calls), 2)

    def test_dropout_is_served_by_python_code(self):
        """Also where C serves calls without it, and where PyTorch's kernels are back when gradients are asked for."""
        for run in self.run_flash, self.run_cudnn:
            gradients(run(*self.leaves)[0], self.leaves)
            for is_turned_off in False, True:
                with self.subTest(run=run.__name__, is_turned_off=is_turned_off):
                    with self.assert_no_calls_in_c():
                        results = run(*self.leaves, dropout=0.25)
                        if is_turned_off:
                            _sdpa._remove()
                        gradients(results[0], self.leaves)
                    for _, problem, inputs, *_ in self.library.launches[-2:]:
                        self.assertEqual((problem["dropout"], inputs["dropout_state.data"]), (0.25, results[6].data_ptr()))
            _sdpa._install("CPU")
        self.assertEqual(self.calls, [])
        out = self.run_flash(*self.leaves, dropout=0.25)[0]
        _sdpa._remove()
        plain = self.run_flash(*self.leaves)[0]
        gradients(plain, self.leaves)
        self.assertEqual(self.calls, [self.FLASH, f"{self.FLASH}_backward"])
        launches = len(self.library.launches)
        gradients(out, self.leaves)
        self.assertEqual((len(self.library.launches), len(self.calls)), (launches + 1, 2))
        theirs = self.run_flash(*self.leaves, dropout=0.25)[0]
        _sdpa._install("CPU")
        gradients(theirs, self.leaves)
        self.assertEqual((len(self.library.launches), len(self.calls)), (launches + 1, 4))

    def run_efficient(self, *leaves, bias=None, dropout=0.0, causal=False):
        return torch.ops.aten._scaled_dot_product_efficient_attention(*leaves, bias, True, dropout, causal)

    def test_a_bias_is_served_by_python_code(self):
        """What its kind says is checked once. cuDNN's operator has its implementation in C, which hands such calls over."""
        repeated = torch.zeros(1, 4, 100, 112, dtype=BF16)[..., :100].expand(2, -1, -1, -1)
        learned = torch.zeros(2, 4, 100, 100, dtype=BF16, requires_grad=True)
        for run, bias in ((self.run_cudnn, repeated), (self.run_cudnn, repeated[0, 0]), (self.run_efficient, repeated), (self.run_efficient, learned)):
            with self.subTest(run=run.__name__, shape=bias.shape):
                leaves = [*self.leaves, *([bias] if bias.requires_grad else [])]
                for is_known in (False, True):
                    with unittest.mock.patch.object(_calls, "Checked", wraps=_calls.Checked) as checked, self.assert_no_calls_in_c():
                        results = run(*self.leaves, bias=bias)
                        grads = gradients(results[0], leaves)
                    self.assertEqual(checked.call_count, 0 if is_known else 2)
                    forward, backward = self.last_launches(out=results[0], bias=bias, **dict(zip(("d_q", "d_k", "d_v", "d_bias"), grads)))
                    self.assertEqual((forward[1]["o.data"], forward[1]["bias.data"]), ("out", "bias"))
                    self.assertEqual((forward[1]["bias.stride_batch"], forward[1]["bias.stride_row"]), (40000 if bias.requires_grad else 0, bias.stride(-2)))
                    self.assertEqual([backward[2][f"d_{name}.data"] for name in "qkv"], ["d_q", "d_k", "d_v"])
                    self.assertEqual((backward[2]["d_bias.data"], backward[2]["d_bias.stride_row"]), ("d_bias", 112) if bias.requires_grad else (None, 0))
                    self.assertEqual(backward[0]["bias_gradient"], int(bias.requires_grad))
                if run == self.run_efficient:
                    self.assertEqual([one.stride() for one in (results[0], *grads[:3])], 4 * [(25600, 64, 256, 1)])
        self.assertEqual(self.calls, [])

    @contextlib.contextmanager
    def assert_no_calls_in_c(self):
        before = _calls._known_calls.served()
        yield
        self.assertEqual(_calls._known_calls.served(), before)

    def test_what_goes_on_is_said_once(self):
        wide = [one.detach().float() for one in self.leaves]
        q, k, v = (one.detach() for one in self.leaves)
        cases = (("dropout_p is 1.0", lambda: self.run_flash(q, k, v, dropout=1.0)), ("torch.float32", lambda: self.run_efficient(*wide)),
                 ("another head_dim", lambda: self.run_efficient(q, k, v[..., :32])),
                 ("bias is torch.int8", lambda: self.run_efficient(q, k, v, bias=torch.zeros(2, 4, 100, 100, dtype=torch.int8))))
        for words, call in cases:
            with self.subTest(words=words):
                _reasons.forget()
                with self.assertLogs("attune", "WARNING") as logged:
                    call()
                    call()
                self.assertEqual(len(logged.output), 1)
                self.assertRegex(logged.output[0], f"Attune does not serve .*{words}.*PyTorch's own kernels")
        self.assertEqual(self.calls.count(self.EFFICIENT), 6)
        short = tensors(shape=(2, 4, 50, 64))
        with self.assertNoLogs("attune", "WARNING"):
            self.run_efficient(q, k, v)
            self.run_efficient(q, short[0], short[1], causal=True)
        self.assertEqual(self.library.launches[-1][1]["mask"], _library.MASK_CAUSAL_TOP_LEFT)
        self.assertEqual(self.calls.count(self.EFFICIENT), 6)

    def test_statuses(self):
        for run in (self.run_flash, self.run_cudnn):
            gradients(run(*self.leaves)[0], self.leaves)
            out = run(*self.leaves)[0]
            self.library.status = -7
            for call in (lambda: run(*self.leaves), lambda: out.backward(torch.ones_like(out))):
                with self.assertRaisesRegex(attune.AttuneError, "status -7 of a test") as raised:
                    call()
                self.assertEqual(raised.exception.status, -7)
            self.library.status = -2
            self.assertEqual(run(*self.leaves)[4], 12345)
            self.library.status = 0

    def test_gradients_of_other_strides(self):
        out = self.run_flash(*self.leaves)[0]
        for _ in range(2):
            torch.autograd.grad(out, self.leaves, torch.ones(2, 4, 64, 100, dtype=BF16).transpose(2, 3), retain_graph=True)
            self.assertEqual(self.library.launches[-1][3]["d_o.stride_row"], 64)

    def test_off(self):
        self.run_flash(*self.leaves)
        _sdpa._remove()
        launches = len(self.library.launches)
        self.assertEqual(self.run_flash(*self.leaves)[4], 12345)
        self.assertEqual(len(self.library.launches), launches)
        _sdpa._install("CPU")
        self.run_flash(*self.leaves)
        self.assertEqual(len(self.library.launches), launches + 1)


CHANGED = """
import sys, torch
sys.path.insert(0, sys.argv[1])
def fail(a, b, c): pass
owner, name = (torch._C._autograd, "_top_saved_tensors_default_hooks") if sys.argv[2] == "_autograd" else (torch._C, sys.argv[2])
delattr(owner, name) if sys.argv[3] == "none" else setattr(owner, name, fail)
"""


class Functions(unittest.TestCase):
    def test_one_that_is_missing(self):
        addresses = _operators._addresses()
        self.addCleanup(_calls._known_calls.use_shims, addresses)
        for name in _operators._FUNCTIONS:
            if name != "aoti_torch_get_current_cuda_stream":
                self.assertFalse(_calls._known_calls.use_shims({one: where for one, where in addresses.items() if one != name}), name)
        self.assertRaises(RuntimeError, _operators.implement, _operators.ATTENTION, "CPU")
        q, k, v = tensors()
        self.assertIsNone(_calls._known_calls.attend(q, k, v, (False, None, "bhsd", False, None, None, False, 0.0, 0.0)))
        with self.assertRaises(TypeError):
            _calls._known_calls.use_shims(None)

    def test_an_operator_with_other_arguments(self):
        with unittest.mock.patch.dict(_operators._SCHEMAS, {_operators.ATTENTION: "() -> ()"}):
            self.assertIsNone(_operators.record_attention(None))

    def test_an_operator_that_is_somebody_elses(self):
        self.assertIsNone(_operators.record_attention(None))  # it has kernels by now

    def test_a_pytorch_of_another_kind(self):
        """Whose undocumented functions are others: the module can be imported, and Python code serves all calls."""
        changes = (["_autograd", "hooks"], ["_is_tracing", "none"], ["_is_tracing", "arguments"])
        for change in changes:
            program = CHANGED + "from attune_kernels import _attention\nimport attune_kernels as attune\nassert _attention._attend is None\nattune.enable_sdpa()"
            ended = subprocess.run([sys.executable, "-c", program, str(REPOSITORY / "bindings" / "python"), *change], capture_output=True, text=True)
            self.assertEqual(ended.returncode, 0, ended.stderr)

    def test_an_unknown_operator(self):
        with self.assertRaisesRegex(RuntimeError, "cannot be implemented"):
            _operators.implement("add", "CPU")


result = unittest.main(exit=False).result
failed, skipped = len({case.id().split(" ")[0] for case, _ in result.failures + result.errors}), len(result.skipped)
print(f"attune-tests: {result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
sys.exit(0 if result.wasSuccessful() else 1)

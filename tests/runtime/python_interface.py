"""The Python binding without a GPU and without PyTorch: structs, the library's errors, the checks of tensors.

usage: python_interface.py REPOSITORY LIBATTUNE
"""

import ctypes
import ctypes.util
import os
import pathlib
import subprocess
import sys
import types
import unittest
import unittest.mock

REPOSITORY, LIBRARY = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
os.environ.update(ATTUNE_LIBRARY=LIBRARY, CUDA_VISIBLE_DEVICES="")  # pointers here are made up: no GPU may see them
sys.dont_write_bytecode = True
sys.path.insert(0, str(REPOSITORY / "bindings" / "python"))

import fake_torch  # noqa: E402
from fake_torch import Tensor  # noqa: E402

fake_torch.install()
import attune_kernels as attune  # noqa: E402
from attune_kernels import _attention, _calls, _library, _ops, _reasons, _sdpa  # noqa: E402

NO_DEVICE = -4


def tensors(**options):
    return [Tensor((2, 4, 100, 64), **options) for _ in range(3)]


class Structs(unittest.TestCase):
    def test_they_have_the_sizes_of_the_header(self):
        self.assertEqual(ctypes.sizeof(_library.Problem), 184)
        self.assertEqual(ctypes.sizeof(_library.Operand), 40)

    def test_the_library_reads_their_fields(self):
        cases = [({"dtype": 9}, "dtype 9"), ({"mask": 7}, "mask 7"), ({"layout": 5}, "layout 5"), ({"device": -3}, "device -3"),
                 ({"head_dim": 60}, "60"), ({"batch": -2}, "-2"), ({"heads_kv": 3}, "3"), ({"alignment": 4}, "4"),
                 ({"softmax_scale": -0.5}, "-0.5"), ({"pass_": 2}, "pass 2"), ({"deterministic": 2}, "deterministic 2"), ({"invariant": 2}, "invariant 2"), ({"softcap": -3}, "softcap -3")]
        for fields, words in cases:
            problem = _library.Problem(struct_size=ctypes.sizeof(_library.Problem), dtype=1, batch=1, heads_q=4, seq_q=8, head_dim=64)
            for name, value in fields.items():
                setattr(problem, name, value)
            with self.subTest(fields=fields), self.assertRaisesRegex(attune.AttuneError, words) as caught:
                _library.check(_library.load().attune_forward(problem, None, 0, None, 0, None))
            self.assertEqual(caught.exception.status, -1)


class Attention(unittest.TestCase):
    def refused(self, error, words, *arguments, **options):
        with self.assertRaisesRegex(error, words):
            attune.attention(*arguments, **options)

    def test_a_valid_call_reaches_the_library(self):
        for options in ({}, {"causal": True, "top_left": True, "return_lse": True}, {"layout": "bshd", "scale": 0.5}):
            with self.assertRaises(attune.AttuneError) as caught:
                attune.attention(*tensors(), **options)
            self.assertEqual(caught.exception.status, NO_DEVICE)
        with self.assertRaises(attune.AttuneError) as caught:
            attune.prepare(*tensors(), config="sm80 q128 nonsense7")
        self.assertIn("nonsense7", str(caught.exception))

    def test_tensors_are_checked(self):
        q, k, v = tensors()
        self.refused(TypeError, "q is a int", 1, k, v)
        self.refused(ValueError, "k is on", q, Tensor(k.shape, device="cpu"), v)
        self.refused(TypeError, "torch.float16 or torch.bfloat16", *tensors(dtype="fp32"))
        self.refused(TypeError, "v is fp16 and q bf16", q, k, Tensor(v.shape, dtype="fp16"))
        self.refused(ValueError, "3 dimensions", Tensor((2, 4, 64)), k, v)
        self.refused(ValueError, "they must be equal", q, k, Tensor((2, 4, 99, 64)))
        self.refused(ValueError, "batch and head_dim", q, Tensor((1, 4, 9, 64)), Tensor((1, 4, 9, 64)))
        self.refused(ValueError, r"call k.contiguous\(\)", q, Tensor(k.shape, strides=(25600, 6400, 1, 100)), v)
        self.refused(ValueError, "out has shape", q, k, v, out=Tensor((2, 4, 100, 32)))

    def test_tensors_of_other_kinds_are_named(self):
        q, k, v = tensors()
        self.refused(TypeError, "q is a nested tensor.*Pad it", *tensors(is_nested=True))
        self.refused(TypeError, r"k has the layout sparse_coo.*k.to_dense\(\)", q, Tensor(k.shape, layout="sparse_coo"), v)
        self.refused(ValueError, "q is on .*, which holds no data", *tensors(device="meta"))
        self.refused(TypeError, "v is a Tensor without memory of its own", q, k, Tensor(v.shape, address=None))
        self.refused(TypeError, "v is a Tensor without memory of its own", q, k, Tensor(v.shape, address=0))

    def test_options_are_checked(self):
        self.refused(ValueError, "layout is 'sbhd'", *tensors(), layout="sbhd")
        self.refused(ValueError, "needs causal=True", *tensors(), top_left=True)
        self.refused(ValueError, "scale is -1", *tensors(), scale=-1)
        self.refused(ValueError, "scale is nan", *tensors(), scale=float("nan"))

    def test_a_scale_that_is_no_float32_is_refused(self):
        self.refused(ValueError, "scale is 1e-46: .* float32 .where it is 0.0", *tensors(), scale=1e-46)
        self.refused(ValueError, "scale is 1e.39: .* float32 .where it is inf", *tensors(), scale=1e39)
        self.refused(ValueError, "scale is -0.0", *tensors(), scale=-0.0)

    def test_forward_mode_is_refused(self):
        duals = types.SimpleNamespace(_current_level=0, unpack_dual=lambda tensor: types.SimpleNamespace(tangent=tensor))
        with unittest.mock.patch.object(_attention, "forward_ad", duals):
            self.refused(NotImplementedError, "no forward-mode derivative", *tensors())

    def test_autocast_casts_as_it_does_for_pytorch(self):
        torch = sys.modules["torch"]
        q, k, v = Tensor((2, 4, 100, 64), "fp32"), Tensor((2, 4, 100, 64), "fp16"), Tensor((2, 4, 100, 64), "bf16")
        self.refused(TypeError, "under torch.autocast", q, k, v)
        with unittest.mock.patch.object(torch, "is_autocast_enabled", lambda device: device == "cuda"):
            cast = _ops.as_autocast_has_them(q, k, v, Tensor((1,), "fp64"), Tensor((1,), "i32"), Tensor((1,), "fp32", device="cpu"), None)
            self.assertEqual([getattr(tensor, "dtype", None) for tensor in cast], ["bf16", "bf16", "bf16", "fp64", "i32", "fp32", None])
            for function in (attune.attention, attune.prepare, attune.prepare_backward):
                with self.assertRaises(attune.AttuneError) as caught:
                    function(q, k, v)
                self.assertEqual(caught.exception.status, NO_DEVICE)

    def test_torch_compile_calls_from_outside_of_its_graphs(self):
        """What is no operator: kernels that were prepared, and tensors of the caller's that are written to."""
        torch, outside = sys.modules["torch"], []

        def disable(function):
            def run(*arguments, **options):
                outside.append(arguments[0].__name__)
                with unittest.mock.patch.object(torch.compiler, "is_compiling", lambda: False):
                    return function(*arguments, **options)

            return run

        q, k, v = tensors()
        with unittest.mock.patch.object(torch.compiler, "is_compiling", lambda: True), \
                unittest.mock.patch.object(torch.compiler, "disable", disable, create=True):
            for call in (lambda: attune.attention(q, k, v, out=q), lambda: attune.prepare(q, k, v), lambda: attune.prepare_backward(q, k, v)):
                with self.assertRaises(attune.AttuneError):
                    call()
        self.assertEqual(outside, ["attention", "prepare", "prepare_backward"])

    def test_problem_and_views_follow_the_layout(self):
        q, k = Tensor((2, 100, 8, 64), address=0x1008), Tensor((2, 300, 4, 64))
        call = _calls.Checked(q, k, k, (True, None, "bshd", False, None, None, False, 0.0, 0.0), _library.FORWARD)
        problem = call.problem
        self.assertEqual((problem.batch, problem.heads_q, problem.heads_kv, problem.seq_q, problem.seq_kv), (2, 8, 4, 100, 300))
        self.assertEqual((problem.mask, problem.alignment, problem.device), (_library.MASK_CAUSAL, 2, 1))
        views = [operand.tensor for operand in call.operands(q)]
        self.assertEqual(len(views), 5)
        for name, strides in (_library.Q, (51200, 64, 512)), (_library.K, (76800, 64, 256)):
            self.assertEqual((views[name].stride_batch, views[name].stride_head, views[name].stride_row), strides)

    def test_sides_of_a_window(self):
        q, k = Tensor((2, 100, 8, 64)), Tensor((2, 300, 4, 64))

        def sides(window, causal=False):
            problem = _calls.Checked(q, k, k, (causal, None, "bshd", False, window, None, False, 0.0, 0.0), _library.FORWARD).problem
            self.assertEqual(problem.mask, _library.MASK_WINDOW)
            return problem.window_left, problem.window_right

        self.assertEqual(sides((10, 20)), (10, 20))
        self.assertEqual(sides((None, 0)), (-1, 0))
        self.assertEqual(sides((10, -1)), (10, -1))
        self.assertEqual(sides((10, 20), causal=True), (10, 0))
        self.refused(ValueError, "leave top_left out", q, k, k, layout="bshd", causal=True, top_left=True, window=(1, 1))
        for window in ((1,), (1, 2, 3), (1.5, 2), (True, 2)):
            self.refused(ValueError, "it must be .left, right.", q, k, k, layout="bshd", window=window)

    def test_a_gradient_is_asked_of_the_library(self):
        q, k, v = tensors()
        with self.assertRaises(attune.AttuneError) as caught:
            attune.attention(q, Tensor(k.shape, requires_grad=True), v)
        self.assertEqual(caught.exception.status, NO_DEVICE)
        self.refused(ValueError, "leave out away", q, k, Tensor(v.shape, requires_grad=True), out=q)
        self.refused(ValueError, "leave out away", q, k, v, out=Tensor(q.shape, requires_grad=True))


class Empty(unittest.TestCase):
    """Nothing is launched, so that there need be no device."""

    def test_results_have_their_shapes(self):
        for batch, heads, seq_q, seq_kv in ((0, 4, 10, 12), (2, 4, 0, 12), (2, 4, 10, 0), (2, 0, 10, 12), (2, 4, 0, 0)):
            for layout in ("bhsd", "bshd"):
                with self.subTest(sizes=(batch, heads, seq_q, seq_kv), layout=layout):
                    def tensor(heads, seq):
                        return Tensor((batch, heads, seq, 64) if layout == "bhsd" else (batch, seq, heads, 64), "fp16")

                    q, k, v = tensor(heads, seq_q), tensor(heads // 2, seq_kv), tensor(heads // 2, seq_kv)
                    out, lse = attune.attention(q, k, v, layout=layout, causal=True, return_lse=True)
                    self.assertEqual((out.shape, out.dtype, out.filled), (q.shape, "fp16", 0))
                    self.assertEqual((lse.shape, lse.dtype, lse.filled), ((batch, heads, seq_q), "fp32", float("-inf")))
                    given = tensor(heads, seq_q)
                    self.assertIs(attune.attention(q, k, v, layout=layout, out=given), given)
                    self.assertEqual(given.filled, 0)
                    grads = attune.backward(q, q, k, v, q, lse, layout=layout)
                    self.assertEqual([(grad.shape, grad.filled) for grad in grads], [(one.shape, 0) for one in (q, k, v)])

    def test_arguments_are_checked_all_the_same(self):
        for error, words, shapes in [(ValueError, "multiple of 8", [(2, 4, 0, 60)] * 3), (ValueError, "multiple of 8", [(2, 4, 9, 0)] * 3),
                                     (ValueError, "q has 4 heads and k 3", [(2, 4, 0, 64), (2, 3, 5, 64), (2, 3, 5, 64)]),
                                     (ValueError, "q has 4 heads and k 0", [(2, 4, 5, 64), (2, 0, 5, 64), (2, 0, 5, 64)]),
                                     (ValueError, "they must be equal", [(2, 4, 5, 64), (2, 4, 0, 64), (2, 4, 5, 64)])]:
            with self.subTest(shapes=shapes), self.assertRaisesRegex(error, words):
                attune.attention(*map(Tensor, shapes))
        with self.assertRaisesRegex(ValueError, "nothing can be prepared"):
            attune.prepare(*(Tensor((0, 4, 8, 64)) for _ in range(3)))


class Loading(unittest.TestCase):
    def test_a_library_of_another_version_is_named(self):
        libc = ctypes.util.find_library("c")
        with unittest.mock.patch.object(_library, "candidates", lambda: ["/nonexistent.so", libc]):
            with self.assertRaisesRegex(OSError, f"(?s)not of this version.*/nonexistent.so: .*{libc}: is not of this module's version: .*attune_"):
                _library.load.__wrapped__()


class Messages(unittest.TestCase):
    """What the library would say is put into the mouth of the function that it is given."""

    def setUp(self):
        _library.load()
        self.addCleanup(attune.set_log_callback, None)

    def say(self, level, text):
        _library._deliver(level, text.encode(), None)

    def test_they_go_to_logging(self):
        with self.assertLogs("attune", "DEBUG") as caught:
            self.say(2, "100 % of it is damaged.")
            self.say(1, "passed over")
            self.say(0, "looked at")
        self.assertEqual(caught.output, ["WARNING:attune:100 % of it is damaged.", "INFO:attune:passed over", "DEBUG:attune:looked at"])

    def test_a_callback_takes_them_from_its_level_on(self):
        heard = []
        for level, expected in (("warning", ["w"]), ("info", ["w", "i"]), ("debug", ["w", "i", "d"])):
            heard.clear()
            attune.set_log_callback(lambda *message: heard.append(message), level)
            with self.assertNoLogs("attune", "DEBUG"):
                for number, text in ((2, "w"), (1, "i"), (0, "d")):
                    self.say(number, text)
            self.assertEqual([text for _, text in heard], expected)
        self.assertEqual(heard, [("warning", "w"), ("info", "i"), ("debug", "d")])
        attune.set_log_callback(None)
        with self.assertLogs("attune", "WARNING"):
            self.say(2, "again")
        self.assertEqual(len(heard), 3)

    def test_arguments_are_checked(self):
        with self.assertRaisesRegex(TypeError, "callback is a str"):
            attune.set_log_callback("print")
        with self.assertRaisesRegex(ValueError, "level is 'loud': it must be one of 'debug', 'info', 'warning'"):
            attune.set_log_callback(print, "loud")

    def in_a_process(self, program, **variables):
        """What a program that imports the binding prints to standard error."""
        environment = {name: value for name, value in os.environ.items() if name != "ATTUNE_LOG"}
        start = "import sys; sys.dont_write_bytecode = True; sys.path.insert(0, sys.argv[1]); import logging, types, importlib.util\n"
        start += "sys.modules['attune_kernels'] = types.ModuleType('attune_kernels')\n"  # the part of it that needs no torch
        start += "spec = importlib.util.spec_from_file_location('attune_kernels._library', sys.argv[1] + '/attune_kernels/_library.py')\n"
        start += "library = importlib.util.module_from_spec(spec); spec.loader.exec_module(library); library.load()\n"
        ended = subprocess.run([sys.executable, "-c", start + program, str(REPOSITORY / "bindings/python")], capture_output=True, text=True,
                               env={**environment, **variables})
        self.assertEqual((ended.returncode, ended.stdout), (0, ""), ended.stderr)
        return ended.stderr

    def test_warnings_reach_standard_error_where_nothing_is_set_up(self):
        say = "library._deliver(2, b'damaged', None); library._deliver(1, b'passed over', None)\n"
        self.assertEqual(self.in_a_process(say), "damaged\n")
        self.assertEqual(self.in_a_process(say, ATTUNE_LOG="info"), "attune: warning: damaged\nattune: info: passed over\n")
        self.assertEqual(self.in_a_process(say, ATTUNE_LOG="warning"), "attune: warning: damaged\n")
        quiet = "logging.basicConfig(level=logging.ERROR)\n" + say
        self.assertEqual(self.in_a_process(quiet, ATTUNE_LOG="info"), "")


class Backward(unittest.TestCase):
    def setUp(self):
        self.q, self.k, self.v = Tensor((2, 4, 100, 64)), Tensor((2, 2, 70, 64)), Tensor((2, 2, 70, 64))
        self.lse = Tensor((2, 4, 100), "fp32")

    def backward(self, grad_out=None, out=None, lse=None, **options):
        return attune.backward(grad_out or self.q, self.q, self.k, self.v, out or self.q, lse or self.lse, **options)

    def refused(self, error, words, *arguments, **options):
        with self.assertRaisesRegex(error, words):
            self.backward(*arguments, **options)

    def test_a_valid_call_reaches_the_library(self):
        for options in ({}, {"causal": True, "top_left": True, "grad_lse": self.lse}, {"scale": 0.5, "grads": (self.q, self.k, self.v)}):
            with self.assertRaises(attune.AttuneError) as caught:
                self.backward(**options)
            self.assertEqual(caught.exception.status, NO_DEVICE)
        with self.assertRaises(attune.AttuneError) as caught:
            attune.prepare_backward(self.q, self.k, self.v, config="sm80 q128 nonsense7")
        self.assertIn("nonsense7", str(caught.exception))

    def test_tensors_are_checked(self):
        self.refused(ValueError, "grad_out has shape", Tensor((2, 4, 99, 64)))
        self.refused(TypeError, "grad_out is fp16", Tensor(self.q.shape, "fp16"))
        self.refused(ValueError, r"call grad_out.contiguous\(\)", Tensor(self.q.shape, strides=(25600, 6400, 1, 100)))
        self.refused(ValueError, "out has shape", out=Tensor((2, 4, 100, 32)))
        self.refused(TypeError, "lse is a str", lse="none")
        self.refused(ValueError, "lse has shape", lse=Tensor((2, 100, 4), "fp32"))
        self.refused(TypeError, "lse is bf16", lse=Tensor((2, 4, 100)))
        self.refused(ValueError, "lse is on", lse=Tensor((2, 4, 100), "fp32", device="cuda:1"))
        self.refused(ValueError, r"call grad_lse.contiguous\(\)", grad_lse=Tensor((2, 4, 100), "fp32", strides=(400, 1, 4)))
        self.refused(ValueError, "grads has 2", grads=(self.q, self.k))
        self.refused(ValueError, r"grads\[2\] has shape", grads=(self.q, self.k, self.q))
        self.refused(ValueError, "cannot be differentiated", Tensor(self.q.shape, requires_grad=True))

    def test_deterministic_is_as_pytorch_says_unless_the_call_does(self):
        def asked(deterministic):
            options = (False, None, "bhsd", False, None, deterministic, False, 0.0, 0.0)
            return _calls.Checked(self.q, self.k, self.v, options, _library.BACKWARD).problem.deterministic

        self.assertEqual([asked(None), asked(False), asked(True)], [0, 0, 1])
        with unittest.mock.patch.object(sys.modules["torch"], "are_deterministic_algorithms_enabled", lambda: True):
            self.assertEqual([asked(None), asked(False), asked(True)], [1, 0, 1])

    def test_views_and_alignment(self):
        call = _calls.Checked(self.q, self.k, self.v, (False, None, "bhsd", False, None, None, False, 0.0, 0.0), _library.BACKWARD)
        self.assertEqual((call.problem.pass_, call.problem.alignment), (1, 16))
        grads = (Tensor(self.q.shape, address=1 << 8), Tensor(self.k.shape, address=2 << 8), Tensor(self.v.shape, address=3 << 8))
        operands = call.operands(Tensor(self.q.shape, address=5 << 8), Tensor(self.q.shape, address=4 << 8), grads)
        self.assertEqual([operand.name for operand in operands], list(range(10)))
        views = [operand.tensor for operand in operands]
        self.assertEqual([view.data for view in views[_library.D_Q:_library.D_LSE]], [1 << 8, 2 << 8, 3 << 8, 4 << 8])
        self.assertEqual((views[_library.O].data, views[_library.LSE].data), (5 << 8, None))
        self.assertEqual((views[_library.D_Q].stride_head, views[_library.D_K].stride_head), (6400, 4480))
        call.note_alignment(*grads)
        self.assertEqual(call.problem.alignment, 16)
        call.note_alignment(self.q, Tensor(self.k.shape, address=0x1008), self.v)
        self.assertEqual(call.problem.alignment, 2)


class Operators(unittest.TestCase):
    def test_they_are_defined(self):
        library = _ops._defined
        self.assertEqual((library.namespace, sorted(library.schemas)), ("attune_kernels", ["backward", "backward_with_terms", "forward", "forward_with_terms"]))
        self.assertEqual(sorted(library.kernels), [(name + suffix, key) for name, suffix, key in (
            ("backward", "", "CUDA"), ("backward", "_with_terms", "CUDA"), ("forward", "", "AutocastCUDA"), ("forward", "", "CUDA"),
            ("forward", "_with_terms", "AutocastCUDA"), ("forward", "_with_terms", "CUDA"))])

    def test_shapes_of_what_is_traced(self):
        q, k, v = (Tensor((2, 100, heads, 64), address=None) for heads in (4, 2, 2))
        out, lse = _ops._trace_forward(q, k, v, True, None, "bshd", False, [3, 0])
        self.assertEqual((out.shape, out.dtype, lse.shape, lse.dtype), (q.shape, "bf16", (2, 4, 100), "fp32"))
        grads = _ops._trace_backward(q, q, k, v, out, lse)
        self.assertEqual([grad.shape for grad in grads], [one.shape for one in (q, k, v)])
        with self.assertRaisesRegex(ValueError, "scale is -1"):
            _ops._trace_forward(q, k, v, True, -1)
        with self.assertRaisesRegex(ValueError, "q has 100 heads and k 90"):
            _ops._trace_forward(q, Tensor((2, 90, 2, 64)), Tensor((2, 90, 2, 64)))

    def test_they_are_called_where_operators_are_watched(self):
        torch, asked = sys.modules["torch"], []

        def forward(*arguments):
            asked.append(arguments[3:])
            return "out", "lse"

        for patched, name in ((torch.compiler, "is_compiling"), (torch._C, "_len_torch_dispatch_stack")):
            with unittest.mock.patch.object(patched, name, lambda: True), \
                    unittest.mock.patch.object(torch.ops.attune_kernels, "forward", forward, create=True):
                self.assertEqual(attune.attention(*tensors(), causal=True, window=(7, None), return_lse=True), ("out", "lse"))
                self.assertEqual(attune.attention(*tensors(), scale=2, deterministic=True), "out")
        self.assertEqual(asked, 2 * [(True, None, "bhsd", False, [7, 0], None, False, 0.0, 0.0), (False, 2, "bhsd", False, None, True, False, 0.0, 0.0)])


class Module(unittest.TestCase):
    def test_its_version_is_that_of_the_library(self):
        self.assertEqual(attune.__version__, attune.version())
        with self.assertRaisesRegex(AttributeError, "has no attribute 'anything'"):
            attune.anything

    def without_pytorch(self, program):
        """What it ends with and prints."""
        start = "import sys; sys.modules['torch'] = None; sys.path.insert(0, sys.argv[1]); import attune_kernels as attune\n"
        ended = subprocess.run([sys.executable, "-B", "-c", start + program, str(REPOSITORY / "bindings" / "python")], capture_output=True, text=True)
        return ended.returncode, ended.stdout + ended.stderr

    def test_without_pytorch_what_needs_it_says_what_to_install(self):
        for program in ("attune.attention", "attune.enable_sdpa()", "from attune_kernels import prepare"):
            status, text = self.without_pytorch(program)
            self.assertEqual(status, 1)
            self.assertRegex(text, r"ModuleNotFoundError: attune_kernels.\w+ needs PyTorch 2.4 or newer: pip install torch; without it .*dlpack")

    def test_without_pytorch_the_rest_works(self):
        program = "from attune_kernels import dlpack\nattune.set_log_callback(None)\nprint(attune.version(), attune.AttuneError)"
        self.assertEqual(self.without_pytorch(program), (0, f"{attune.version()} <class 'attune_kernels._library.AttuneError'>\n"))
        status, text = self.without_pytorch("import runpy; runpy.run_module('attune_kernels', run_name='__main__')")
        self.assertRegex(text, r"PyTorch  +none: pip install torch")
        self.assertEqual(status, 1)  # there is no GPU


class Sdpa(unittest.TestCase):
    """Without a registry of implementations, as PyTorch was before 2.11."""

    def setUp(self):
        torch = sys.modules["torch"]
        have = unittest.mock.patch.object(torch._C, "_dispatch_has_kernel_for_dispatch_key", lambda name, key: "flash" in name, create=True)
        have.start()
        self.addCleanup(have.stop)
        self.addCleanup(attune.disable_sdpa)
        self.q = Tensor((2, 4, 100, 64))

    def kernel(self, name):
        library = _sdpa._backward_passes[0] if name.endswith("_backward") else _sdpa._replaced[0]
        return library.kernels[name, "CUDA"]

    def test_on_and_off(self):
        self.assertIsNone(_sdpa._replaced)
        with attune.enable_sdpa():
            self.assertIsNotNone(_sdpa._replaced)
            with attune.enable_sdpa():
                pass
            self.assertIsNotNone(_sdpa._replaced)
        self.assertIsNone(_sdpa._replaced)
        attune.enable_sdpa()
        attune.disable_sdpa()
        attune.disable_sdpa()
        self.assertIsNone(_sdpa._replaced)

    def test_what_is_not_served_goes_on(self):
        attune.enable_sdpa()
        forward, backward = (self.kernel(f"_scaled_dot_product_flash_attention{end}") for end in ("", "_backward"))
        q = self.q
        with unittest.mock.patch.object(_sdpa._calls, "forward", lambda *arguments, **options: self.fail("served")):
            with self.assertRaises(AttributeError):  # torch.ops.aten is empty: this is where the call goes on to
                forward("keys", q, q, q, 0.0, True, True)
        wide = Tensor((2, 4, 100, 64), "fp32")
        for tensor in (wide, Tensor((2, 4, 100, 60)), Tensor((2, 4, 100, 64), strides=(25600, 6400, 1, 100))):
            self.assertIsNone(_sdpa._flash_forward(tensor, tensor, tensor))
        self.assertIsNone(_sdpa._flash_backward(wide, wide, wide, wide, wide, wide, None, None, 100, 100, 0.0, True, None, None))
        of_pytorch = Tensor((2,), "uint64")  # a seed
        with self.assertRaises(AttributeError), unittest.mock.patch.object(sys.modules["torch"], "uint64", "uint64", create=True):
            backward("keys", q, q, q, q, q, q, None, None, 100, 100, 0.5, True, of_pytorch, None)

    def test_errors_of_the_library(self):
        def answering(status):
            def forward(*_, **__):
                raise attune.AttuneError(status, "why")

            return unittest.mock.patch.object(_sdpa._calls, "forward", forward)

        for not_served in (-1, -2):
            _reasons.forget()
            with answering(not_served), self.assertLogs("attune", "WARNING") as logged:
                self.assertIsNone(_sdpa._flash_forward(self.q, self.q, self.q))
                self.assertIsNone(_sdpa._flash_forward(self.q, self.q, self.q))
            self.assertEqual(len(logged.output), 1)
            self.assertIn("Attune does not serve this call: why; PyTorch's own kernels of scaled_dot_product_attention run instead", logged.output[0])
        with answering(-5), self.assertRaisesRegex(attune.AttuneError, "why"):
            _sdpa._flash_forward(self.q, self.q, self.q)

    def test_without_cuda_there_is_nothing_to_replace(self):
        with unittest.mock.patch.object(sys.modules["torch"]._C, "_dispatch_has_kernel_for_dispatch_key", lambda name, key: False):
            with self.assertRaisesRegex(RuntimeError, "built without CUDA"):
                attune.enable_sdpa()


unittest.main()

"""The Python binding without a GPU and without PyTorch: structs, the library's errors, the checks of tensors.

usage: python_interface.py REPOSITORY LIBATTUNE
"""

import copy
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
from attune_kernels import _calls, _library, _ops, _reasons, _sdpa  # noqa: E402

NO_DEVICE = -4


def tensors(**options):
    return [Tensor((2, 4, 100, 64), **options) for _ in range(3)]


class Structs(unittest.TestCase):
    def test_they_have_the_sizes_of_the_header(self):
        self.assertEqual(ctypes.sizeof(_library.Problem), 144)
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
        with unittest.mock.patch.object(attune, "forward_ad", duals):
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
        call = _calls.Checked(q, k, k, (True, None, "bshd", False, None, None, False, 0.0), _library.FORWARD)
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
            problem = _calls.Checked(q, k, k, (causal, None, "bshd", False, window, None, False, 0.0), _library.FORWARD).problem
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
            options = (False, None, "bhsd", False, None, deterministic, False, 0.0)
            return _calls.Checked(self.q, self.k, self.v, options, _library.BACKWARD).problem.deterministic

        self.assertEqual([asked(None), asked(False), asked(True)], [0, 0, 1])
        with unittest.mock.patch.object(sys.modules["torch"], "are_deterministic_algorithms_enabled", lambda: True):
            self.assertEqual([asked(None), asked(False), asked(True)], [1, 0, 1])

    def test_views_and_alignment(self):
        call = _calls.Checked(self.q, self.k, self.v, (False, None, "bhsd", False, None, None, False, 0.0), _library.BACKWARD)
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


class RecordingLibrary:
    """libattune, which writes down what it is given instead of launching it. `inside` is called in the middle of a launch."""

    def __init__(self):
        self.launches, self.asked_for_workspace, self.inside = [], 0, lambda: None
        self.reasons = {}  # by pass: why it is not served

    def attune_workspace_bytes(self, problem, needed):
        self.asked_for_workspace += 1
        needed._obj.value = 1000
        return 0

    def attune_unsupported(self, problem, text, capacity, needed):
        reason = self.reasons.get(problem.pass_, "").encode() + b"\0"
        if text is not None:
            text[:len(reason)] = reason
        if needed is not None:
            needed._obj.value = len(reason)
        return 0

    def __getitem__(self, name):
        function = getattr(self, name, None)  # a reference is a struct in the end, and c_void_p a number
        return lambda *arguments: function(*(one if isinstance(one, ctypes.Array) else getattr(one, "_obj", None) or one.value
                                             for one in arguments))

    def attune_forward(self, problem, operands, count, workspace, workspace_bytes, stream):
        self.inside()
        q, k, v, o, lse = (operand.tensor for operand in operands[:5])
        self.strides_of = {operand.name: (operand.tensor.stride_batch, operand.tensor.stride_head, operand.tensor.stride_row) for operand in operands[:count]}
        self.launches.append({"operands": {operand.name: operand.tensor.data for operand in operands[:count]},
                              "problem": copy.copy(problem), "o": o.data, "q": q.data, "k": k.data, "v": v.data, "lse": lse.data,
                              "stride": q.stride_head, "bytes": workspace_bytes})
        return 0

    def attune_prepare(self, problem, config, prepared):
        prepared._obj.value = 7
        return 0

    def attune_launch(self, prepared, *arguments):
        assert prepared == 7
        return self.attune_forward(*arguments)

    def attune_launch_backward(self, prepared, *arguments):
        return self.attune_backward(*arguments)

    def attune_release(self, prepared):
        assert prepared.value == 7

    def attune_backward(self, problem, operands, count, workspace, workspace_bytes, stream):
        _, _, _, o, lse, d_q, d_k, d_v, d_o, d_lse = (operand.tensor.data for operand in operands[:10])
        self.strides_of = {operand.name: (operand.tensor.stride_batch, operand.tensor.stride_head, operand.tensor.stride_row) for operand in operands[:count]}
        self.launches.append({"operands": {operand.name: operand.tensor.data for operand in operands[:count]}, "problem": copy.copy(problem), "o": o, "lse": lse, "d_lse": d_lse, "d": [d_o, d_q, d_k, d_v]})
        return 0


class Kinds(unittest.TestCase):
    """A call is checked once for each kind; later ones of the kind bring their own pointers."""

    def setUp(self):
        self.library = RecordingLibrary()
        for patch in (unittest.mock.patch.object(_library, "load", lambda: self.library),
                      unittest.mock.patch.object(_calls, "_forward_launchers", {}), unittest.mock.patch.object(_calls, "_backward_launchers", {})):
            patch.start()
            self.addCleanup(patch.stop)
        self.addresses = iter(range(1 << 20, 1 << 30, 256))
        fresh = unittest.mock.patch.object(sys.modules["torch"], "empty_like", self.like)
        fresh.start()
        self.addCleanup(fresh.stop)

    def tensor(self, shape=(2, 4, 100, 64), **options):
        return Tensor(shape, address=next(self.addresses), **options)

    def like(self, tensor):
        return self.tensor(tensor.shape, dtype=tensor.dtype, strides=tensor.strides)

    def test_pointers_are_those_of_the_call(self):
        for _ in range(3):
            q, k, v = (self.tensor() for _ in range(3))
            out = attune.attention(q, k, v, causal=True)
            launch = self.library.launches[-1]
            self.assertEqual([launch[name] for name in "qkvo"], [one.address for one in (q, k, v, out)])
            self.assertEqual((launch["lse"], launch["bytes"], launch["problem"].mask), (None, 1000, _library.MASK_CAUSAL))
        self.assertEqual(attune.attention(q, k, v, causal=True, return_lse=True)[1].address, self.library.launches[-1]["lse"])
        self.assertEqual(self.library.asked_for_workspace, 1)

    def test_what_is_not_served_is_told_before_a_call(self):
        q, k, v = (self.tensor() for _ in range(3))
        self.assertIsNone(attune.unsupported(q, k, v, causal=True))
        self.library.reasons = {_library.BACKWARD: "no gradients on this GPU"}
        self.assertIsNone(attune.unsupported(q, k, v))
        self.assertEqual(attune.unsupported(self.tensor(requires_grad=True), k, v), "no gradients on this GPU")
        self.library.reasons[_library.FORWARD] = "nothing on this GPU"
        self.assertEqual(attune.unsupported(q, k, v), "nothing on this GPU")
        self.assertIn("k has shape", attune.unsupported(q, self.tensor((2, 4, 90, 64)), v))
        self.assertIn("fp32", attune.unsupported(self.tensor(dtype="fp32"), k, v))
        self.assertIsNone(attune.unsupported(*(self.tensor((0, 4, 100, 64)) for _ in range(3))))
        self.assertEqual(self.library.launches, [])

    def test_what_makes_a_kind(self):
        def call(shape=(2, 4, 100, 64), others=None, **options):
            tensors = {name: options.pop(name) for name in ("dtype", "strides", "device") if name in options}
            q, k, v = self.tensor(shape, **tensors), self.tensor(others or shape, **tensors), self.tensor(others or shape, **tensors)
            if options.pop("unaligned", False):
                q.address += 2
            attune.attention(q, k, v, **options)
            return self.library.launches[-1]["problem"]

        self.assertEqual(call().alignment, 16)
        self.assertEqual(call(unaligned=True).alignment, 2)
        self.assertEqual(call(others=(2, 4, 90, 64)).seq_kv, 90)
        self.assertEqual(call(dtype="fp16").dtype, _library.FP16)
        self.assertEqual(call(device="cuda:1").device, 2)
        self.assertEqual(call(scale=0.5).softmax_scale, 0.5)
        self.assertEqual(call(window=(3, 4)).window_right, 4)
        self.assertEqual(call(window=[3, 5]).window_right, 5)  # a list is no key
        self.assertEqual(call(layout="bshd").heads_q, 100)
        call(strides=(51200, 64, 512, 1))
        self.assertEqual(self.library.launches[-1]["stride"], 64)
        kinds = len(_calls._forward_launchers)
        self.assertEqual(kinds, 9)
        self.assertEqual(call().alignment, 16)
        self.assertEqual(len(_calls._forward_launchers), kinds)

    def test_sinks(self):
        q, k, v, out, grad_out = (self.tensor() for _ in range(5))
        lse, places = Tensor((2, 4, 100), "fp32"), list(range(_library.LSE + 1))
        for _ in range(2):
            sinks = self.tensor((4,), dtype="fp32")
            attune.attention(q, k, v, sinks=sinks)
            launch = self.library.launches[-1]
            self.assertEqual((launch["problem"].sink, list(launch["operands"])), (1, [*places, _library.SINKS, _library.SEQUSED_Q, _library.SEQUSED_KV, _library.ALIBI_SLOPES, _library.BIAS,
                                                                                           _library.ATTENTION_MASK, _library.CU_SEQLENS_Q, _library.CU_SEQLENS_KV]))
            self.assertEqual(launch["operands"][_library.SINKS], sinks.address)
            self.assertEqual([launch[name] for name in "qkv"], [one.address for one in (q, k, v)])
            grads = attune.backward(grad_out, q, k, v, out, lse, sinks=sinks)
            launch = self.library.launches[-1]
            self.assertEqual((len(grads), launch["problem"].sink), (4, 1))
            self.assertEqual(list(launch["operands"]), [*range(_library.BIAS + 1), _library.D_BIAS, _library.ATTENTION_MASK,
                                                            _library.CU_SEQLENS_Q, _library.CU_SEQLENS_KV])
            self.assertEqual([launch["operands"][name] for name in (_library.SINKS, _library.D_SINKS)], [sinks.address, grads[3].address])
        self.assertEqual(self.library.asked_for_workspace, 2)
        attune.attention(q, k, v)  # of another kind
        self.assertEqual((self.library.launches[-1]["problem"].sink, list(self.library.launches[-1]["operands"])), (0, places))
        self.assertIsNone(attune.unsupported(q, k, v, sinks=sinks))
        for wrong, words in ((self.tensor((3,), dtype="fp32"), "it must have .4,., a number for each head of q"),
                             (self.tensor((1, 4), dtype="fp32"), "it must have .4,."), (self.tensor((4,), dtype="fp64"), "sinks is fp64"),
                             (self.tensor((4,), dtype="fp32", device="cuda:1"), "on one device"), ([1, 2, 3, 4], "sinks is a list"),
                             (self.tensor((4,), dtype="fp32", strides=(2,)), "not contiguous")):
            with self.assertRaisesRegex((TypeError, ValueError), words):
                attune.attention(q, k, v, sinks=wrong)
        with self.assertRaisesRegex(ValueError, "grads has 3 elements: it must have 4, the gradients of q, k, v, sinks"):
            attune.backward(grad_out, q, k, v, out, lse, sinks=sinks, grads=(q, k, v))

    def test_used_lengths(self):
        q, k, v, out, grad_out = (self.tensor() for _ in range(5))
        lse, names = Tensor((2, 4, 100), "fp32"), (_library.SEQUSED_Q, _library.SEQUSED_KV)
        for given in ("seqused_q", "seqused_kv"), ("seqused_kv",), ("seqused_q", "sinks"):
            terms = {name: self.tensor((4,), dtype="fp32") if name == "sinks" else self.tensor((2,), dtype="int32") for name in given}
            addresses = [terms[name].address if name in terms else 0 for name in ("seqused_q", "seqused_kv")]
            attune.attention(q, k, v, **terms)
            launch = self.library.launches[-1]
            self.assertEqual((launch["problem"].used_lengths, launch["problem"].sink), (1, "sinks" in given))
            self.assertEqual([launch["operands"][name] or 0 for name in names], addresses)
            self.assertEqual(len(attune.backward(grad_out, q, k, v, out, lse, **terms)), 3 + ("sinks" in given))
            self.assertEqual([self.library.launches[-1]["operands"][name] or 0 for name in names], addresses)
            self.assertIsNone(attune.unsupported(q, k, v, **terms))
        attune.attention(q, k, v)
        self.assertEqual(self.library.launches[-1]["problem"].used_lengths, 0)
        for wrong, words in ((self.tensor((3,), dtype="int32"), "it must have .2,., a number for each batch entry"),
                             (self.tensor((2,), dtype="fp32"), "seqused_kv is fp32: it must be"), ([1, 2], "seqused_kv is a list"),
                             (self.tensor((2,), dtype="int32", device="cuda:1"), "on one device"),
                             (self.tensor((2,), dtype="int32", strides=(2,)), "not contiguous")):
            with self.assertRaisesRegex((TypeError, ValueError), words):
                attune.attention(q, k, v, seqused_kv=wrong)

    def test_packed_sequences(self):
        for layout, shapes in ("bshd", ((100, 4, 64), (70, 2, 64))), ("bhsd", ((4, 100, 64), (2, 70, 64))):
            q, k, v = self.tensor(shapes[0]), self.tensor(shapes[1]), self.tensor(shapes[1])
            begins, of_keys = self.tensor((6,), dtype="int32"), self.tensor((6,), dtype="int32")
            out, lse = attune.attention(q, k, v, layout=layout, causal=True, cu_seqlens_q=begins, cu_seqlens_kv=of_keys, return_lse=True)
            self.assertEqual((out.shape, lse.shape), (q.shape, (4, 100)))
            launch = self.library.launches[-1]
            problem = launch["problem"]
            self.assertEqual((problem.packed, problem.batch, problem.heads_q, problem.heads_kv, problem.seq_q, problem.seq_kv), (1, 5, 4, 2, 100, 70))
            self.assertEqual([launch["operands"][name] for name in (_library.CU_SEQLENS_Q, _library.CU_SEQLENS_KV)], [begins.address, of_keys.address])
            self.assertIsNone(attune.unsupported(q, k, v, layout=layout, cu_seqlens_q=begins, cu_seqlens_kv=of_keys))
            prepared = attune.prepare(q, k, v, layout=layout, causal=True, config="sm80", cu_seqlens_q=begins, cu_seqlens_kv=of_keys)
            out, lse = prepared(q, k, v, cu_seqlens_q=begins, cu_seqlens_kv=of_keys, return_lse=True)
            self.assertEqual((out.shape, lse.shape, self.library.launches[-1]["problem"].packed), (q.shape, (4, 100), 1))
            lse = Tensor((4, 100), "fp32")
            grads = attune.backward(q, q, k, v, q, lse, layout=layout, cu_seqlens_q=begins, cu_seqlens_kv=of_keys)
            self.assertEqual([grad.shape for grad in grads], [q.shape, k.shape, v.shape])
            launch = self.library.launches[-1]
            self.assertEqual((launch["problem"].packed, launch["problem"].batch), (1, 5))
            self.assertEqual([launch["operands"][name] for name in (_library.CU_SEQLENS_Q, _library.CU_SEQLENS_KV)], [begins.address, of_keys.address])
            prepared = attune.prepare_backward(q, k, v, layout=layout, config="sm80", cu_seqlens_q=begins, cu_seqlens_kv=of_keys)
            grads = tuple(self.tensor(one.shape) for one in (q, k, v))
            self.assertIs(prepared(q, q, k, v, q, lse, grads=grads, cu_seqlens_q=begins, cu_seqlens_kv=of_keys), grads)
            self.assertEqual([self.library.launches[-1]["operands"][name] for name in (_library.D_Q, _library.D_K, _library.D_V)],
                             [grad.address for grad in grads])
        with self.assertRaisesRegex(ValueError, "grad_lse has shape .2, 4, 100.: .* it must be a tensor of .heads, tokens."):
            attune.backward(q, q, k, v, q, lse, grad_lse=Tensor((2, 4, 100), "fp32"), cu_seqlens_q=begins, cu_seqlens_kv=of_keys)
        self.assertRegex(attune.unsupported(q, k, v, cu_seqlens_q=begins), "give both")
        slopes = self.tensor((5, 4), dtype="fp32")
        attune.attention(q, k, v, cu_seqlens_q=begins, cu_seqlens_kv=of_keys, alibi_slopes=slopes, seqused_q=self.tensor((5,), dtype="int32"))
        self.assertEqual((self.library.launches[-1]["problem"].alibi, self.library.launches[-1]["problem"].used_lengths), (1, 1))
        attune.attention(self.tensor(), self.tensor(), self.tensor())
        self.assertEqual(self.library.launches[-1]["problem"].packed, 0)
        good = dict(cu_seqlens_q=begins, cu_seqlens_kv=of_keys)
        for wrong, words in ((dict(cu_seqlens_q=begins), "together where packed sequences begin: give both"),
                             (dict(good, cu_seqlens_kv=self.tensor((5,), dtype="int32")), "it must have .6,., a number for each sequence, and one more"),
                             (dict(good, cu_seqlens_q=self.tensor((1,), dtype="int32")), "a number for each sequence, and one more"),
                             (dict(good, cu_seqlens_q=[0, 100]), "cu_seqlens_q is a list"),
                             (dict(good, cu_seqlens_q=self.tensor((6,), dtype="int64")), "cu_seqlens_q is int64: it must be"),
                             (dict(good, seqused_q=self.tensor((4,), dtype="int32")), "seqused_q has shape .4,.: it must have .5,.")):
            with self.assertRaisesRegex((TypeError, ValueError), words):
                attune.attention(q, k, v, **wrong)
        with self.assertRaisesRegex(ValueError, "it must be a tensor of .heads, tokens, head_dim."):
            attune.attention(self.tensor(), self.tensor(), self.tensor(), **good)

    def test_slopes(self):
        q, k, v, out, grad_out = (self.tensor() for _ in range(5))
        lse = Tensor((2, 4, 100), "fp32")
        for shape, strides, wanted in ((4,), (3,), (0, 3, 0)), ((2, 4), (8, 2), (8, 2, 0)):
            slopes = self.tensor(shape, dtype="fp32", strides=strides)
            attune.attention(q, k, v, alibi_slopes=slopes)
            launch = self.library.launches[-1]
            self.assertEqual((launch["problem"].alibi, launch["operands"][_library.ALIBI_SLOPES]), (1, slopes.address))
            self.assertEqual(self.library.strides_of[_library.ALIBI_SLOPES], wanted)
            self.assertEqual(len(attune.backward(grad_out, q, k, v, out, lse, alibi_slopes=slopes)), 3)
            self.assertEqual(self.library.launches[-1]["operands"][_library.ALIBI_SLOPES], slopes.address)
            self.assertIsNone(attune.unsupported(q, k, v, alibi_slopes=slopes))
        attune.attention(q, k, v)
        self.assertEqual(self.library.launches[-1]["problem"].alibi, 0)
        for wrong, words in ((self.tensor((2,), dtype="fp32"), "it must have .4,. or .2, 4., a number for each head of q"),
                             (self.tensor((4,), dtype="int32"), "alibi_slopes is int32: it must be"), (0.5, "alibi_slopes is a float"),
                             (self.tensor((4,), dtype="fp32", device="cuda:1"), "on one device")):
            with self.assertRaisesRegex((TypeError, ValueError), words):
                attune.attention(q, k, v, alibi_slopes=wrong)

    def test_tensors_of_pairs(self):
        q, k, v, out, grad_out = (self.tensor() for _ in range(5))
        lse = Tensor((2, 4, 100), "fp32")
        pairs, batch, heads, queries = _library.PAIRS, _library.PAIRS_BATCH, _library.PAIRS_HEADS, _library.PAIRS_QUERIES
        for shape, strides, has, wanted in (((2, 4, 100, 100), None, pairs + batch + heads + queries, (40000, 10000, 100)),
                                            ((1, 4, 100, 100), (7, 10000, 100, 1), pairs + heads + queries, (0, 10000, 100)),
                                            ((2, 1, 1, 100), (300, 5, 5, 1), pairs + batch, (300, 0, 0)),
                                                                                        ((100, 100), (128, 1), pairs + queries, (0, 0, 128)), ((100,), (1,), pairs, (0, 0, 0))):
            for name, operand, dtype in (("bias", _library.BIAS, "bf16"), ("bias", _library.BIAS, "fp32"),
                                         ("attention_mask", _library.ATTENTION_MASK, "bool")):
                given = {name: self.tensor(shape, dtype=dtype, strides=strides)}
                with self.subTest(shape=shape, strides=strides, name=name, dtype=dtype):
                    attune.attention(q, k, v, **given)
                    problem = self.library.launches[-1]["problem"]
                    self.assertEqual((problem.bias, problem.attention_mask), (has, 0) if name == "bias" else (0, has))
                    self.assertEqual(problem.bias_fp32, dtype == "fp32")
                    self.assertEqual(self.library.launches[-1]["operands"][operand], given[name].address)
                    self.assertEqual(self.library.strides_of[operand], wanted)
                    self.assertEqual(len(attune.backward(grad_out, q, k, v, out, lse, **given)), 3)
                    self.assertEqual(self.library.strides_of[operand], wanted)
                    self.assertIsNone(attune.unsupported(q, k, v, **given))
        attune.attention(q, k, v)
        problem = self.library.launches[-1]["problem"]
        self.assertEqual((problem.bias, problem.attention_mask), (0, 0))
        for wrong, words in ((dict(bias=self.tensor((3, 100), dtype="bf16")), "bias has shape .3, 100.: it must have .2, 4, 100, 100., a number for"),
                             (dict(bias=self.tensor((100, 1), dtype="bf16")), "bias has shape .100, 1."),
                             (dict(bias=self.tensor((1, 1, 1, 1, 100), dtype="bf16")), "bias has shape"),
                             (dict(bias=self.tensor((100, 100), dtype="fp16")), "bias is fp16: it must be bf16 or fp32"),
                             (dict(attention_mask=self.tensor((100, 100), dtype="bf16")), "attention_mask is bf16: it must be bool"),
                             (dict(attention_mask=True), "attention_mask is a bool"),
                             (dict(bias=self.tensor((100, 100), dtype="bf16", device="cuda:1")), "on one device"),
                             (dict(bias=1.0), "bias is a float")):
            with self.assertRaisesRegex((TypeError, ValueError), words):
                attune.attention(q, k, v, **wrong)
        for shape, wanted in ((2, 4, 100, 100), (40000, 10000, 100)), ((4, 100, 100), (0, 10000, 100)), ((2, 1, 1, 100), (100, 0, 0)):
            for dtype in "bf16", "fp32":
                bias = self.tensor(shape, dtype=dtype)
                grads = attune.backward(grad_out, q, k, v, out, lse, bias=bias, bias_gradient=True)
                self.assertEqual((len(grads), grads[3].shape, grads[3].dtype), (4, shape, dtype))
                launch = self.library.launches[-1]
                self.assertEqual((launch["problem"].bias_gradient, launch["operands"][_library.D_BIAS]), (1, grads[3].address))
                self.assertEqual(self.library.strides_of[_library.D_BIAS], wanted)
        with self.assertRaisesRegex(ValueError, "grads has 3 elements: it must have 4, the gradients of q, k, v, bias"):
            attune.backward(grad_out, q, k, v, out, lse, bias=bias, bias_gradient=True, grads=[self.tensor() for _ in range(3)])
        given = [*(self.tensor() for _ in range(3)), self.tensor((2, 1, 1, 100), dtype="fp32", strides=(500, 9, 9, 1))]
        attune.backward(grad_out, q, k, v, out, lse, bias=bias, bias_gradient=True, grads=given)
        self.assertEqual(self.library.strides_of[_library.D_BIAS], (500, 0, 0))

    def test_a_tensor_of_pairs_whose_keys_lie_apart_is_copied_and_said(self):
        q, k, v = (self.tensor() for _ in range(3))
        with self.assertLogs("attune", "WARNING") as logs:
            attune.attention(q, k, v, bias=self.tensor((100, 100), dtype="bf16", strides=(1, 100)))
        self.assertIn("bias whose elements of keys do not lie one after the other; it is copied", logs.output[0])
        self.assertEqual(self.library.strides_of[_library.BIAS], (0, 0, 100))

    def test_a_call_inside_of_a_call_has_structs_of_its_own(self):
        outer, inner = [self.tensor() for _ in range(3)], [self.tensor() for _ in range(3)]
        attune.attention(*outer)

        def inside():
            self.library.inside = lambda: None
            attune.attention(*inner)

        self.library.inside = inside
        attune.attention(*outer)
        self.assertEqual([launch["q"] for launch in self.library.launches], [outer[0].address, inner[0].address, outer[0].address])

    def test_old_kinds_are_forgotten(self):
        with unittest.mock.patch.object(_calls, "_KINDS_KEPT", 3):
            for seq in range(10, 20):
                attune.attention(*(self.tensor((1, 1, seq, 64)) for _ in range(3)))
                self.assertLessEqual(len(_calls._forward_launchers), 3)
        self.assertEqual([launch["problem"].seq_q for launch in self.library.launches], list(range(10, 20)))

    def test_wrong_tensors_are_named_after_right_ones_of_the_shape(self):
        q, k, v = (self.tensor() for _ in range(3))
        attune.attention(q, k, v)
        for wrong in (self.tensor(dtype="fp16"), self.tensor(device="cpu"), self.tensor(device="cuda:1"), Tensor(k.shape, address=0)):
            with self.assertRaises((TypeError, ValueError)):
                attune.attention(q, wrong, v)
        self.assertEqual(len(self.library.launches), 1)

    def test_backward(self):
        lse, options = Tensor((2, 4, 100), "fp32"), {"causal": True}
        for grad_lse in (None, Tensor((2, 4, 100), "fp32", address=1 << 8), None):
            q, k, v, out, grad_out = (self.tensor() for _ in range(5))
            grads = attune.backward(grad_out, q, k, v, out, lse, grad_lse=grad_lse, **options)
            launch = self.library.launches[-1]
            self.assertEqual((launch["o"], launch["d_lse"], launch["problem"].pass_), (out.address, grad_lse and 1 << 8, 1))
            self.assertEqual(launch["d"], [tensor.address for tensor in (grad_out, *grads)])
        self.assertEqual(self.library.asked_for_workspace, 2)
        with unittest.mock.patch.object(sys.modules["torch"], "are_deterministic_algorithms_enabled", lambda: True):
            attune.backward(grad_out, q, k, v, out, lse, **options)
        self.assertEqual(self.library.launches[-1]["problem"].deterministic, 1)
        for wrong in (Tensor((2, 4, 99), "fp32"), Tensor((2, 4, 100), "fp32", device="cuda:1"), Tensor((2, 4, 100), "bf16")):
            with self.assertRaises((TypeError, ValueError)):
                attune.backward(grad_out, q, k, v, out, wrong, **options)
        with self.assertRaisesRegex(ValueError, "cannot be differentiated"):
            attune.backward(grad_out, q, self.tensor(requires_grad=True), v, out, lse, **options)


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
        self.assertEqual(asked, 2 * [(True, None, "bhsd", False, [7, 0], None, False, 0.0), (False, 2, "bhsd", False, None, True, False, 0.0)])


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
        return _sdpa._replaced[0].kernels[name, "CUDA"]

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
            for arguments in ((q, q, q, 0.1), (q, q, q, 0.0, True, True)):
                with self.assertRaises(AttributeError):  # torch.ops.aten is empty: this is where the call goes on to
                    forward("keys", *arguments)
        wide = Tensor((2, 4, 100, 64), "fp32")
        for tensor in (wide, Tensor((2, 4, 100, 60)), Tensor((2, 4, 100, 64), strides=(25600, 6400, 1, 100))):
            self.assertIsNone(_sdpa._flash_forward(tensor, tensor, tensor))
        self.assertIsNone(_sdpa._flash_backward(wide, wide, wide, wide, wide, wide, None, None, 100, 100, 0.0, True, None, None))
        with self.assertRaises(AttributeError):
            backward("keys", q, q, q, q, q, q, None, None, 100, 100, 0.5, True, None, None)

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

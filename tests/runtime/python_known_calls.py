"""The extension of the Python binding without a GPU and without PyTorch: what it hands over is what the Python code hands over.

usage: python_known_calls.py REPOSITORY LIBATTUNE      where the extension lies beside the library

Tensors are a stand-in's, which has an exchange table of C functions as PyTorch has one. Ends as test_* programs do: a line
"attune-tests: N passed, N failed, N skipped", exit status 77 where the extension was not built.
"""

import contextlib
import ctypes
import gc
import os
import pathlib
import sys
import threading
import unittest
import unittest.mock
import weakref

REPOSITORY, LIBRARY = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
os.environ.update(ATTUNE_LIBRARY=LIBRARY, CUDA_VISIBLE_DEVICES="")  # pointers here are made up: no GPU may see them
sys.dont_write_bytecode = True
sys.path.insert(0, str(REPOSITORY / "bindings" / "python"))

import fake_torch  # noqa: E402

fake_torch.install()
import torch  # noqa: E402

DTYPES = {"fp16": (2, 16), "bf16": (4, 16), "fp32": (2, 32)}  # DLPack's code and bits
STREAMS = {0: 0x51, 1: 0x52}  # by device


class Device(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class Exported(ctypes.Structure):
    """DLTensor"""

    _fields_ = [("data", ctypes.c_void_p), ("device", Device), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Exported))
def export(tensor, out):
    if tensor.address is None:
        return -1  # without the exception that PyTorch sets here, since ctypes drops those of callbacks
    rank = len(tensor.shape)
    tensor.exported = (ctypes.c_int64 * rank)(*tensor.shape), (ctypes.c_int64 * rank)(*tensor.strides)
    exported = out[0]
    exported.data, exported.ndim, exported.byte_offset = tensor.address - tensor.byte_offset, rank, tensor.byte_offset
    exported.device = Device(2 if tensor.is_cuda else 1, max(0, tensor.get_device()))
    (exported.code, exported.bits), exported.lanes = DTYPES[tensor.dtype], 1
    exported.shape, exported.strides = (ctypes.cast(array, ctypes.POINTER(ctypes.c_int64)) for array in tensor.exported)
    return 0


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
def current_stream(device_type, device, out):
    out[0] = STREAMS[device]
    return 0


class Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("prev_api", ctypes.c_void_p)]


class Table(ctypes.Structure):
    """DLPackExchangeAPI"""

    _fields_ = [("header", Version), ("unused", ctypes.c_void_p * 3), ("export", ctypes.c_void_p), ("current_stream", ctypes.c_void_p)]


def table(major, prev_api=None):
    return Table(Version(major, 3, prev_api), (ctypes.c_void_p * 3)(), ctypes.cast(export, ctypes.c_void_p),
                 ctypes.cast(current_stream, ctypes.c_void_p))


kept = []  # what capsules point to


def capsule(of, name=b"dlpack_exchange_api"):
    kept.append(of)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(of), name, None)


class Memory:
    """Where tensors of the stand-in begin: each somewhere else, at a multiple of 256."""

    def __init__(self):
        self.next, self.lock = 1 << 20, threading.Lock()

    def take(self):
        with self.lock:
            self.next += 256
            return self.next


memory, first_table = Memory(), table(1)


class Tensor(fake_torch.Tensor):
    __dlpack_c_exchange_api__ = capsule(first_table)

    def __init__(self, shape, dtype="bf16", device="cuda:0", strides=None, address=0, byte_offset=0, **options):
        super().__init__(shape, dtype, device, strides, memory.take() if address == 0 else address, **options)
        self.byte_offset, self.on = byte_offset, device

    def new_empty(self, *shape, dtype=None):
        return Tensor(shape[0] if isinstance(shape[0], tuple) else shape, dtype or self.dtype, self.on)


class OfAnotherClass(Tensor):
    pass


deterministic = False
torch.__version__ = "2.10.0+test"
torch.Tensor = Tensor
torch.empty_like = lambda tensor: Tensor(tensor.shape, tensor.dtype, tensor.on, strides=tensor.strides)
torch.are_deterministic_algorithms_enabled = lambda: deterministic
torch._C._cuda_getCurrentRawStream = lambda device: STREAMS[device]

import attune_kernels as attune  # noqa: E402
from attune_kernels import _calls, _extension, _library  # noqa: E402
from recording_library import RecordingLibrary  # noqa: E402

extension = _calls._known_calls
if extension is None:
    built = pathlib.Path(LIBRARY).parent / "attune_kernels" / "_known_calls.abi3.so"
    if built.exists():
        sys.exit(f"{built} is there and was not taken")
    print("attune-tests: 0 passed, 0 failed, 1 skipped: the extension was not built, for want of Python's headers")
    sys.exit(77)

SHAPE = (2, 4, 100, 64)


def tensors(count=3, shape=SHAPE, **options):
    return [Tensor(shape, **options) for _ in range(count)]


class Case(unittest.TestCase):
    def setUp(self):
        self.library, self.by_python = RecordingLibrary(), 0
        run = _calls._Launcher.run

        def counted(launcher, *arguments):
            self.by_python += 1
            return run(launcher, *arguments)

        for patch in (unittest.mock.patch.object(_library, "load", lambda: self.library),
                      unittest.mock.patch.object(_calls._Launcher, "run", counted)):
            patch.start()
            self.addCleanup(patch.stop)
        self.addCleanup(self.forget)
        self.forget()

    def forget(self):
        for launchers in (_calls._forward_launchers, _calls._backward_launchers):
            launchers.clear()
        extension.forget_forward()
        extension.forget_backward()

    @contextlib.contextmanager
    def without_extension(self):
        with unittest.mock.patch.object(_calls, "_known_calls", None), unittest.mock.patch.object(_calls, "_forward_launchers", {}), \
                unittest.mock.patch.object(_calls, "_backward_launchers", {}):
            yield

    def handed_over(self, call, *results):
        """What the library was given, with the addresses of results as their places among them, and who made the call."""
        before = self.by_python
        returned = call()
        places = {one.address: f"result {place}" for place, one in enumerate(returned) if one is not None}
        _, problem, *structs, has_workspace, workspace_bytes, stream = self.library.launches[-1]
        named = [struct and {name: places.get(value, value) if "stride" not in name else value for name, value in struct.items()}
                 for struct in structs]
        return (problem, *named, has_workspace, workspace_bytes, stream), self.by_python > before

    def assert_same(self, call, is_served=True):
        """The second call hands over what the Python code alone does; the extension serves it, or not."""
        with self.without_extension():
            expected, _ = self.handed_over(call)
        self.handed_over(call)
        handed, by_python = self.handed_over(call)
        self.assertEqual(handed, expected)
        self.assertEqual(by_python, not is_served)


def forward(q, k, v, **options):
    return lambda: attune.attention(q, k, v, return_lse=True, **options)


def backward(q, k, v, grad_out, out, lse, **options):
    return lambda: attune.backward(grad_out, q, k, v, out, lse, **options)


def for_backward(shape=SHAPE, **options):
    """q, k, v, grad_out, out, lse"""
    return [*tensors(5, shape, **options), Tensor(shape[:3], "fp32", options.get("device", "cuda:0"))]


class SameArguments(Case):
    OPTIONS = [{}, {"causal": True}, {"causal": True, "top_left": True}, {"scale": 0.5}, {"window": (3, 4)}, {"window": (None, 4)},
               {"window": (3, -1), "causal": True}, {"layout": "bshd"}, {"deterministic": True}, {"deterministic": False}, {"invariant": True}]
    TENSORS = [{}, {"dtype": "fp16"}, {"device": "cuda:1"}, {"strides": (25600, 64, 256, 1)}, {"shape": (1, 8, 7, 8)}, {"byte_offset": 512}]

    def test_forward(self):
        for options in self.OPTIONS:
            for kind in self.TENSORS:
                with self.subTest(options=options, kind=kind):
                    self.assert_same(forward(*tensors(**kind), **options))

    def test_backward(self):
        for options in self.OPTIONS:
            for kind in self.TENSORS:
                with self.subTest(options=options, kind=kind):
                    each = for_backward(**kind)
                    batch, heads, seq, _ = each[0].shape
                    shape = (batch, seq, heads) if options.get("layout") == "bshd" else (batch, heads, seq)
                    each[5], grad_lse = (Tensor(shape, "fp32", kind.get("device", "cuda:0")) for _ in range(2))
                    self.assert_same(backward(*each, **options))
                    self.assert_same(backward(*each, grad_lse=grad_lse, **options))

    def test_grouped_heads_and_other_lengths(self):
        q, (k, v) = Tensor(SHAPE), tensors(2, (2, 2, 70, 64))
        self.assert_same(forward(q, k, v))
        self.assert_same(backward(q, k, v, *tensors(2), Tensor(SHAPE[:3], "fp32")))

    def test_without_lse(self):
        q, k, v = tensors()
        for _ in range(3):
            out = attune.attention(q, k, v)
            self.assertEqual((self.library.launches[-1][2]["lse"], self.library.launches[-1][2]["o.data"]), (None, out.address))
        self.assertEqual(self.by_python, 1)

    def test_without_a_workspace(self):
        self.library.workspace_bytes = 0
        self.assert_same(forward(*tensors()))
        self.assertEqual(self.library.launches[-1][4:], (False, 0, STREAMS[0]))

    def test_torch_is_asked_whether_it_is_deterministic(self):
        global deterministic
        each = for_backward()
        try:
            for deterministic in (False, True, False, True):
                backward(*each)()
                self.assertEqual(self.library.launches[-1][1]["deterministic"], deterministic)
        finally:
            deterministic = False
        self.assertEqual(self.by_python, 2)


class Keys(Case):
    """Whatever differs makes another kind: the base has been entered when the other comes, and the other when the base comes again."""

    def assert_apart(self, base, other):
        base()
        self.assert_same(other)
        self.assert_same(base)

    def test_forward(self):
        q, k, v = tensors()
        strides = (25600, 64, 256, 1)
        others = [
            tensors(dtype="fp16"), tensors(device="cuda:1"), tensors(shape=(2, 4, 101, 64)), [q, *tensors(2, (2, 4, 99, 64))],
            [q, *tensors(2, (2, 2, 100, 64))], [Tensor(SHAPE, strides=strides), k, v], [q, Tensor(SHAPE, strides=strides), v],
            [q, k, Tensor(SHAPE, strides=strides)], [Tensor(SHAPE, strides=(25608, 6400, 64, 1)), k, v], tensors(shape=(4, 2, 100, 64)),
            [q, k, Tensor(SHAPE, strides=(25600, 6400, 0, 1))], tensors(shape=(3, 4, 100, 64)),
            [Tensor((2, 4, 99, 64), strides=q.strides), k, v], [q, *tensors(2, (2, 4, 99, 64), strides=q.strides)],
        ] + [[Tensor(SHAPE, address=memory.take() + 2) if at == place else one for place, one in enumerate((q, k, v))] for at in range(3)]
        for other in others:
            with self.subTest(other=[(one.shape, one.strides, one.dtype, one.on, one.address % 16) for one in other]):
                self.assert_apart(forward(q, k, v), forward(*other))
        for options in SameArguments.OPTIONS[1:] + [{"window": (4, 3)}, {"scale": 0.25}, {"window": (2 ** 40, 3)}, {"window": (-1, 3)}]:
            with self.subTest(options=options):
                self.assert_apart(forward(q, k, v), forward(q, k, v, **options))
                self.assert_apart(forward(q, k, v, scale=0.5, window=(3, 4)), forward(q, k, v, **options))

    def test_backward(self):
        base = for_backward()
        for place in range(5):
            for other in (Tensor(SHAPE, strides=(25600, 64, 256, 1)), Tensor(SHAPE, address=memory.take() + 8)):
                each = list(base)
                each[place] = other
                with self.subTest(place=place, strides=other.strides):
                    self.assert_apart(backward(*base), backward(*each))
        for options in SameArguments.OPTIONS[1:7] + SameArguments.OPTIONS[8:]:
            with self.subTest(options=options):
                self.assert_apart(backward(*base), backward(*base, **options))

    def test_wrong_tensors_are_refused_after_right_ones(self):
        base, lse = for_backward(), Tensor(SHAPE[:3], "fp32")
        for _ in range(2):
            backward(*base)()
            forward(*base[:3])()
        launches = len(self.library.launches)
        q, k, v = base[:3]
        for wrong in (Tensor(SHAPE, "fp16"), Tensor(SHAPE, device="cpu"), Tensor(SHAPE, device="cuda:1"), Tensor(SHAPE[:3]),
                      Tensor(SHAPE, address=None), 1, None):
            with self.subTest(wrong=wrong):
                for call in (forward(wrong, k, v), forward(q, wrong, v), forward(q, k, wrong)):
                    self.assertRaises((TypeError, ValueError), call)
                for place in range(5):
                    each = list(base)
                    each[place] = wrong
                    self.assertRaises((TypeError, ValueError), backward(*each))
        for wrong in (Tensor((2, 4, 99), "fp32"), Tensor(SHAPE[:3], "bf16"), Tensor(SHAPE[:3], "fp32", strides=(400, 1, 4)), None):
            self.assertRaises((TypeError, ValueError), backward(*base[:5], wrong))
            if wrong is not None:
                self.assertRaises((TypeError, ValueError), backward(*base[:5], lse, grad_lse=wrong))
        self.assertEqual(len(self.library.launches), launches)


class NotServed(Case):
    """What the Python code goes on serving."""

    def assert_by_python(self, call):
        call()
        before = self.by_python
        call()
        self.assertEqual(self.by_python, before + 1)

    def test_tensors_of_derived_classes(self):
        q, k, v = tensors()
        attune.attention(q, k, v)
        self.assert_by_python(lambda: attune.attention(OfAnotherClass(SHAPE), k, v))
        each = for_backward()
        backward(*each)()
        each[3] = OfAnotherClass(SHAPE)
        self.assert_by_python(backward(*each))

    def test_results_of_the_caller(self):
        q, k, v, out = tensors(4)
        for _ in range(3):
            self.assertIs(attune.attention(q, k, v, out=out), out)
            self.assertEqual(self.library.launches[-1][2]["o.data"], out.address)
        grads = tuple(tensors())
        for _ in range(3):
            self.assertIs(backward(*for_backward(), grads=grads)(), grads)
            self.assertEqual([self.library.launches[-1][3][f"d_{name}.data"] for name in "qkv"], [grad.address for grad in grads])

    def test_options_of_other_types(self):
        q, k, v = tensors()
        for options in ({"causal": 1}, {"scale": 1}, {"window": [3, 4]}, {"window": (3.0, 4)}, {"deterministic": 1}, {"invariant": 1}, {"window": (2 ** 70, 4)}):
            with self.subTest(options=options), contextlib.suppress(ctypes.ArgumentError, OverflowError):
                attune.attention(q, k, v, **options)
                self.assert_same(forward(q, k, v, **options), is_served=False)
        self.assert_by_python(lambda: attune.attention(q, k, v, return_lse=1))
        with self.assertRaisesRegex(ValueError, "layout is 'sbhd'"):
            attune.attention(q, k, v, layout="sbhd")
        with self.assertRaisesRegex(ValueError, "scale is -0.5"):
            attune.attention(q, k, v, scale=-0.5)

    def test_results_that_are_not_as_expected(self):
        """As a mode of torch.overrides could make them."""
        q, k, v = tensors()
        like, calls = torch.empty_like, []

        def other(tensor):
            calls.append(tensor)
            return OfAnotherClass(tensor.shape) if len(calls) == 1 else like(tensor)

        self.addCleanup(self.use)
        self.use(empty_like=other)
        for by_python in (1, 2, 2):  # the second call is refused by the extension, once it has seen the result
            out = attune.attention(q, k, v)
            self.assertEqual((self.library.launches[-1][2]["o.data"], self.by_python), (out.address, by_python))
            self.assertEqual(len(self.library.launches), len(calls) + 1)

    def use(self, exchange=Tensor.__dlpack_c_exchange_api__, empty_like=None):
        return extension.use(exchange, Tensor, empty_like or torch.empty_like, {"dtype": "fp32"}, torch.are_deterministic_algorithms_enabled,
                             _library.check)

    def test_no_memory_for_a_result(self):
        def fail(tensor):
            raise MemoryError("of a test")

        q, k, v = tensors()
        self.addCleanup(self.use)
        self.use(empty_like=fail)
        attune.attention(q, k, v)
        with self.assertRaisesRegex(MemoryError, "of a test"):
            attune.attention(q, k, v)

    def test_gradients_of_gradients_are_refused(self):
        each = for_backward()
        backward(*each)()
        each[1].requires_grad = True
        with self.assertRaisesRegex(ValueError, "cannot be differentiated"):
            backward(*each)()

    def test_versions_of_the_exchange(self):
        self.addCleanup(self.use)
        older, other = table(1), table(2)
        self.assertTrue(self.use(capsule(table(2, ctypes.addressof(older)))))
        self.assertFalse(self.use(capsule(other)))
        with self.assertRaises(ValueError):
            self.use(capsule(older, b"something_else"))

    def test_without_what_it_needs(self):
        self.addCleanup(self.use)
        for value in (None, 7, capsule(first_table, b"something_else"), capsule(table(2))):
            with unittest.mock.patch.object(Tensor, "__dlpack_c_exchange_api__", value):
                self.assertIsNone(_extension.load())
        with unittest.mock.patch.object(torch, "__version__", "2.9.1"):
            self.assertIsNone(_extension.load())
        with unittest.mock.patch.object(_extension, "_INTERFACE", 99):
            self.assertIsNone(_extension.load())
        with unittest.mock.patch.object(_extension, "_find", lambda: None):
            self.assertIsNone(_extension.load())
        self.assertIs(_extension.load(), extension)


class Failures(Case):
    def test_a_status_raises_what_the_python_code_raises(self):
        for call in (forward(*tensors()), backward(*for_backward())):
            call()
            self.library.status = -7
            with self.without_extension(), self.assertRaises(attune.AttuneError) as expected:
                call()
            before = self.by_python
            with self.assertRaises(attune.AttuneError) as raised:
                call()
            self.assertEqual(self.by_python, before)
            self.assertEqual((str(raised.exception), raised.exception.status), (str(expected.exception), -7))
            self.library.status = 0

    def test_a_first_call_that_fails(self):
        q, k, v = tensors()
        self.library.status = -4
        for _ in range(2):
            self.assertRaises(attune.AttuneError, attune.attention, q, k, v)
        self.library.status = 0
        self.assert_same(forward(q, k, v))

    def test_structs_of_another_size(self):
        q, k, v = tensors()
        with self.assertRaisesRegex(ValueError, "a struct has 8 bytes: it must have 184"):
            extension.add_forward(q, k, v, (False, None, "bhsd", False, None, None, False, 0.0, 0.0), 1, bytes(8), bytes(200), 0, 0, (2, 4, 100))
        self.assertEqual(extension.kinds(), (0, 0))


@contextlib.contextmanager
def collected():
    """Nothing that other cases have left, which refers to None and True as well, is freed within."""
    while gc.collect():
        pass
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Tables(Case):
    def test_old_kinds_are_forgotten(self):
        with unittest.mock.patch.object(_calls, "_KINDS_KEPT", 3):
            for seq in range(10, 20):
                q, k, v = tensors(shape=(1, 1, seq, 64))
                for _ in range(2):
                    attune.attention(q, k, v)
                    self.assertEqual(self.library.launches[-1][1]["seq_q"], seq)
                self.assertLessEqual(extension.kinds()[0], 3)
        self.assertEqual(self.by_python, 10)

    def test_the_table_is_bounded_by_itself(self):
        options = (False, None, "bhsd", False, None, None, False, 0.0, 0.0)
        added = 0
        for seq in range(1, 5000):
            q = Tensor((1, 1, seq, 64))
            added += extension.add_forward(q, q, q, options, 1, bytes(184), bytes(200), 0, 0, (1, 1, seq))
        self.assertEqual((added, extension.kinds()), (4096, (4096, 0)))

    def test_nothing_is_kept_of_a_call(self):
        q, k, v = tensors()
        each = for_backward()
        options = (True, None, "bhsd", False, (3, 4), False, False, 0.0, 0.0)
        calls = [lambda: _calls.forward(q, k, v, options, None, True), lambda: _calls.backward(each[3], *each[:3], *each[4:], None, options)]
        watched = [q, k, v, *each, options, None, True]
        for call in calls:
            for _ in range(3):
                call()  # whose first ones fill tables
            self.library.launches.clear()
            with collected():
                counts = [sys.getrefcount(one) for one in watched]
                for _ in range(300):
                    results = call()
                    self.library.launches.clear()
                after = [sys.getrefcount(one) for one in watched]
            self.assertTrue(all(abs(one - other) < 20 for one, other in zip(counts, after)), (counts, after))
            gone = [weakref.ref(one) for one in results]
            del results
            self.assertEqual([reference() for reference in gone], [None] * len(gone))
        self.assertEqual(self.by_python, 2)


class Threads(Case):
    def test_calls_side_by_side(self):
        """Each hands over its own tensors, also while kinds are forgotten and entered anew in the middle of launches."""
        self.library.inside = lambda: extension.forget_forward() if len(self.library.launches) % 7 == 0 else None
        wrong = []

        def work(number):
            q, k, v = tensors(shape=(1, 1 + number % 3, 50, 64))
            for _ in range(200):
                out, lse = attune.attention(q, k, v, return_lse=True)
                launch = next(one for one in reversed(self.library.launches) if one[0] == threading.get_ident())
                handed = [launch[2][name] for name in ("q.data", "k.data", "v.data", "o.data", "lse")]
                if handed != [one.address for one in (q, k, v, out, lse)] or launch[1]["heads_q"] != 1 + number % 3:
                    wrong.append(handed)

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(interval)
        self.assertEqual(wrong, [])
        self.assertEqual(len(self.library.launches), 1200)

    def test_a_call_inside_of_a_call(self):
        outer, inner = tensors(), tensors()
        attune.attention(*outer)

        def inside():
            self.library.inside = lambda: None
            extension.forget_forward()
            attune.attention(*inner)

        self.library.inside = inside
        attune.attention(*outer)
        attune.attention(*outer)
        self.assertEqual([launch[2]["q.data"] for launch in self.library.launches],
                         [outer[0].address, outer[0].address, inner[0].address, outer[0].address])


result = unittest.main(exit=False).result
failed, skipped = len({case.id().split(" ")[0] for case, _ in result.failures + result.errors}), len(result.skipped)
print(f"attune-tests: {result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
sys.exit(0 if result.wasSuccessful() else 1)

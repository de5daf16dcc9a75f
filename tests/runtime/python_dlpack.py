"""Arrays by DLPack, without a GPU and without PyTorch: what is taken, what is refused, and what the library is given.

usage: python_dlpack.py REPOSITORY LIBATTUNE
"""

import gc
import inspect
import os
import pathlib
import sys
import unittest
import unittest.mock

REPOSITORY, LIBRARY = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
os.environ.update(ATTUNE_LIBRARY=LIBRARY, CUDA_VISIBLE_DEVICES="")  # pointers here are made up: no GPU may see them
sys.dont_write_bytecode = True
sys.path.insert(0, str(REPOSITORY / "bindings" / "python"))
sys.modules["torch"] = None

import fake_arrays  # noqa: E402
from attune_kernels import _library, dlpack  # noqa: E402
from attune_kernels._options import OPTIONS, TERMS  # noqa: E402
from fake_arrays import FakeArray, OldFakeArray  # noqa: E402
from recording_library import RecordingLibrary  # noqa: E402

SHAPE, LSE_SHAPE = (2, 4, 100, 64), (2, 4, 100)
NO_DEVICE = -4


class Calls(unittest.TestCase):
    def setUp(self):
        self.library, self.made = RecordingLibrary(), []
        patch = unittest.mock.patch.object(_library, "load", lambda: self.library)
        patch.start()
        self.addCleanup(patch.stop)
        self.addresses = iter(range(1 << 20, 1 << 30, 1 << 16))

    def array(self, shape=SHAPE, dtype="bfloat16", kind=FakeArray, **options):
        return kind(shape, dtype, address=next(self.addresses), **options)

    def empty(self, shape, dtype):
        self.made.append(self.array(shape, dtype))
        return self.made[-1]

    def attend(self, *arrays, **options):
        """A call, and what the library was given: (problem, tensors, workspace_bytes, stream)."""
        q, k, v = arrays or (self.array() for _ in range(3))
        found = dlpack.attention(q, k, v, **{"stream": 1, "empty": self.empty, **options})
        _, problem, views, gradients, has_workspace, workspace_bytes, stream = self.library.launches[-1]
        self.assertTrue(has_workspace)
        self.assertIsNone(gradients)
        return found, problem, views, workspace_bytes, stream

    def refused(self, error, words, *arrays, **options):
        count = len(self.library.launches)
        with self.assertRaisesRegex(error, words):
            dlpack.attention(*(arrays or (self.array() for _ in range(3))), **{"stream": 1, "empty": self.empty, **options})
        self.assertEqual(len(self.library.launches), count)


class Attention(Calls):
    def test_the_library_is_given_what_the_arrays_are(self):
        for kind in (FakeArray, OldFakeArray):
            q, k, v = self.array(kind=kind), self.array((2, 2, 70, 64), kind=kind), self.array((2, 2, 70, 64), kind=kind)
            out, problem, views, workspace_bytes, stream = self.attend(q, k, v, causal=True, scale=0.5, stream=12345)
            self.assertEqual([problem[name] for name in ("batch", "heads_q", "heads_kv", "seq_q", "seq_kv", "head_dim", "mask", "softmax_scale", "dtype",
                                                         "device", "alignment", "layout", "deterministic")],
                             [2, 4, 2, 100, 70, 64, _library.MASK_CAUSAL, 0.5, _library.BF16, 1, 16, _library.LAYOUT_BHSD, 0])
            self.assertEqual([views[f"{name}.data"] for name in "qkvo"], [one.address for one in (q, k, v, out)])
            self.assertEqual([views[f"k.stride_{name}"] for name in ("batch", "head", "row")], [2 * 70 * 64, 70 * 64, 64])
            self.assertEqual((views["lse"], workspace_bytes, stream), (None, 1000, 12345))
            self.assertEqual((out.shape, out.dtype), (SHAPE, "bfloat16"))
            self.assertEqual([one.streams for one in (q, k, v, out)], [[12345]] * 4)

    def test_strides_offsets_and_devices_are_those_of_dlpack(self):
        strides = (25600, 64, 256, 1)
        q = self.array(strides=strides, byte_offset=32, device=(2, 3), dtype="float16")
        k, v, out = (self.array(device=(2, 3), dtype="float16") for _ in range(3))
        _, problem, views, _, _ = self.attend(q, k, v, out=out, workspace=self.array((1000,), "uint8", device=(2, 3)))
        self.assertEqual((problem["device"], problem["dtype"], views["q.data"]), (4, _library.FP16, q.address + 32))
        self.assertEqual([views[f"q.stride_{name}"] for name in ("batch", "head", "row")], [25600, 64, 256])
        q.byte_offset = 2
        self.assertEqual(self.attend(q, k, v, out=out, workspace=self.array((1000,), "uint8", device=(2, 3)))[1]["alignment"], 2)

    def test_results_are_the_callers_or_made_by_empty(self):
        given, lse = self.array(), self.array(LSE_SHAPE, "float32")
        (out, of_lse), _, views, _, _ = self.attend(out=given, lse=lse, workspace=self.array((250,), "float32"), empty=None)
        self.assertIs(out, given)
        self.assertIs(of_lse, lse)
        self.assertEqual((views["o.data"], views["lse"]), (given.address, lse.address))
        self.assertEqual(given.copy, [False])  # what is written to is no copy
        (out, of_lse), _, views, _, _ = self.attend(return_lse=True)
        self.assertEqual([(one.shape, one.dtype) for one in self.made], [(SHAPE, "bfloat16"), (LSE_SHAPE, "float32"), ((1000,), "uint8")])
        self.assertEqual((views["o.data"], views["lse"]), (out.address, of_lse.address))

    def test_options_are_those_of_the_tables(self):
        for function in (dlpack.attention, dlpack.backward, dlpack.workspace_bytes):
            arguments = inspect.signature(function).parameters
            for option in (*OPTIONS, *TERMS):
                self.assertEqual(arguments[option.name].default, getattr(option, "default", None))
                self.assertEqual(arguments[option.name].kind, inspect.Parameter.KEYWORD_ONLY)
        _, problem, _, _, _ = self.attend(window=[7, None], softcap=30.0, invariant=True, deterministic=True, layout="bshd")
        self.assertEqual([problem[name] for name in ("mask", "window_left", "window_right", "softcap", "invariant", "deterministic", "seq_q", "heads_q")],
                         [_library.MASK_WINDOW, 7, -1, 30.0, 1, 1, 4, 100])
        self.refused(TypeError, "there is no option 'casual': there are causal, scale,.* dropout_state", casual=True)

    def test_terms_reach_the_library(self):
        shapes = {"sinks": ((4,), "float32"), "seqused_q": ((2,), "int32"), "seqused_kv": ((2,), "int32"), "alibi_slopes": ((2, 4), "float32"),
                  "bias": ((1, 4, 100, 100), "bfloat16"), "attention_mask": ((2, 1, 1, 100), "bool"), "dropout_state": ((2,), "int64")}
        terms = {name: self.array(*of) for name, of in shapes.items()}
        _, problem, views, _, _ = self.attend(**terms, dropout_p=0.25)
        for name, term in terms.items():
            self.assertEqual(views[f"{name}.data"], term.address, name)
        self.assertEqual([views[f"bias.stride_{name}"] for name in ("batch", "head", "row")], [0, 10000, 100])
        self.assertEqual([problem[name] for name in ("sink", "used_lengths", "alibi", "bias", "attention_mask", "dropout")],
                         [1, 1, 1, _library.PAIRS + _library.PAIRS_HEADS + _library.PAIRS_QUERIES, _library.PAIRS + _library.PAIRS_BATCH, 0.25])

    def test_packed_sequences(self):
        q, k, v = self.array((300, 4, 64)), self.array((280, 2, 64)), self.array((280, 2, 64))
        begins = {name: self.array((4,), "int32") for name in ("cu_seqlens_q", "cu_seqlens_kv")}
        (out, lse), problem, views, _, _ = self.attend(q, k, v, layout="bshd", return_lse=True, **begins)
        self.assertEqual((out.shape, lse.shape), ((300, 4, 64), (4, 300)))
        self.assertEqual([problem[name] for name in ("packed", "batch", "seq_q", "seq_kv", "heads_kv")], [1, 3, 300, 280, 2])
        self.assertEqual((views["cu_seqlens_q.data"], views["q.stride_row"]), (begins["cu_seqlens_q"].address, 256))
        self.refused(ValueError, r"k has shape .*: with cu_seqlens_q and cu_seqlens_kv it must be \(heads, tokens, head_dim\) or", q, self.array(), v, **begins)
        self.refused(ValueError, "give both", q, k, v, cu_seqlens_q=begins["cu_seqlens_q"], layout="bshd")

    def test_capsules_are_let_go(self):
        for kind in (FakeArray, OldFakeArray):
            inside, before = [], len(fake_arrays.held)
            self.library.inside = lambda: inside.append(len(fake_arrays.held) - before)
            arrays = [self.array(kind=kind, is_watched=True) for _ in range(4)]
            self.attend(*arrays[:3], out=arrays[3], workspace=self.array((1000,), "uint8", is_watched=True))
            self.assertEqual(inside, [5])  # while the library looks at them
            gc.collect()
            self.assertEqual(len(fake_arrays.held), before)

    def test_the_librarys_sentence_is_raised(self):
        self.library.status = -2
        with unittest.mock.patch.object(_library, "check", side_effect=dlpack.AttuneError(-2, "no")), self.assertRaises(dlpack.AttuneError):
            self.attend()

    def test_workspace_bytes(self):
        q, k, v = (self.array() for _ in range(3))
        self.assertEqual(dlpack.workspace_bytes(q, k, v, stream=1, causal=True), 1000)
        self.assertEqual(dlpack.workspace_bytes(q, k, v, stream=1, backward=True), 1000)
        self.library.workspace_bytes = 0
        out = self.array()
        self.assertIs(dlpack.attention(q, k, v, stream=1, out=out), out)  # and none is asked for


class Refusals(Calls):
    def test_what_is_no_array_on_a_gpu(self):
        q, k, v = (self.array() for _ in range(3))
        self.refused(TypeError, "q is a list: it must be an array with __dlpack__", [1], k, v)
        self.refused(ValueError, "k is on cpu:0: it must be on a CUDA device", q, self.array(device=(1, 0)), v)
        self.refused(ValueError, "k is on rocm:1", q, self.array(device=(10, 1)), v)
        self.refused(ValueError, "v is on cuda:1 and q on cuda:0", q, k, self.array(device=(2, 1)))
        self.refused(ValueError, "DLPack 2.3: version 1 and those before it are known", q, k, self.array(version=(2, 3)))
        self.refused(TypeError, "elements of 4 float16", self.array(dtype="float16", lanes=4), k, v)
        self.refused(TypeError, "q is a Array without memory of its own", FakeArray(SHAPE, address=0), k, v)
        self.refused(TypeError, "no capsule of DLPack", unittest.mock.Mock(__dlpack__=lambda **_: 7, __dlpack_device__=lambda: (2, 0)), k, v)

    def test_arrays_of_numpy_are_refused_by_their_device(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not installed")
        self.refused(ValueError, "q is on cpu:0: it must be on a CUDA device", *[numpy.zeros(SHAPE, numpy.float16)] * 3)

    def test_types_and_shapes(self):
        q, k, v = (self.array() for _ in range(3))
        self.refused(TypeError, "q is float32: it must be float16 or bfloat16$", self.array(dtype="float32"), k, v)
        self.refused(TypeError, "v is float16 and q bfloat16", q, k, self.array(dtype="float16"))
        self.refused(ValueError, "the last dimension of k is not contiguous: pass a contiguous copy", q, self.array(strides=(25600, 6400, 1, 100)), v)
        self.refused(TypeError, "attention_mask is uint8: it must be bool", q, k, v, attention_mask=self.array((100, 100), "uint8"))
        self.refused(TypeError, "sinks is a float: it must be an array", q, k, v, sinks=1.0)
        self.refused(ValueError, "dropout_p needs a dropout_state", q, k, v, dropout_p=0.5)

    def test_streams(self):
        for stream, error, words in ((0, ValueError, "1, the legacy default stream"), (-1, ValueError, "stream is -1"), (True, TypeError, "a bool"),
                                     (None, TypeError, "stream is a NoneType"), (object(), TypeError, "stream.ptr of CuPy's")):
            self.refused(error, words, stream=stream)
        with self.assertRaises(TypeError):
            dlpack.attention(*(self.array() for _ in range(3)), empty=self.empty)

    def test_results(self):
        self.refused(ValueError, "out is missing: give an array of shape .* as empty, such as cupy.empty", empty=None)
        self.refused(ValueError, "out is read-only", out=self.array(flags=1))
        self.refused(ValueError, "out is given as a copy", out=self.array(flags=2))
        self.refused(ValueError, "out has shape", out=self.array((2, 4, 100, 32)))
        self.refused(ValueError, "lse has shape", lse=self.array((2, 100, 4), "float32"))
        self.refused(ValueError, "workspace is missing", out=self.array(), empty=None)
        self.refused(ValueError, "workspace has 999 bytes: it must have 1000", workspace=self.array((999,), "uint8"))
        self.refused(ValueError, "multiple of 256", workspace=self.array((1000,), "uint8", byte_offset=16))
        self.refused(ValueError, "workspace is not contiguous", workspace=self.array((1000,), "uint8", strides=(2,)))
        read_only = self.array(flags=1)
        self.attend(read_only, read_only, read_only)  # inputs may be

    def test_nothing_to_launch(self):
        none = self.array((2, 4, 0, 64))
        self.refused(ValueError, "Without keys, out and gradients are 0, and lse is -inf", self.array(), none, none)
        self.assertEqual(dlpack.attention(none, none, none, stream=1, empty=self.empty).shape, (2, 4, 0, 64))
        self.assertEqual(self.library.launches, [])


class Backward(Calls):
    def differentiate(self, *arrays, **options):
        q, k, v = arrays or (self.array(), self.array((2, 2, 70, 64)), self.array((2, 2, 70, 64)))
        self.given = options.pop("grad_out", None) or self.array(q.shape), q, k, v, self.array(q.shape), self.array((2, 4, 100), "float32")
        return dlpack.backward(*self.given, **{"stream": 2, "empty": self.empty, **options})

    def test_the_library_is_given_what_the_arrays_are(self):
        grad_lse = self.array(LSE_SHAPE, "float32")
        grads = self.differentiate(causal=True, grad_lse=grad_lse)
        _, problem, views, gradients, _, _, stream = self.library.launches[-1]
        grad_out, q, k, v, out, lse = self.given
        self.assertEqual([one.shape for one in grads], [q.shape, k.shape, v.shape])
        self.assertEqual([views[f"{name}.data"] for name in "qkvo"] + [views["lse"]], [one.address for one in (q, k, v, out, lse)])
        self.assertEqual([gradients[f"d_{name}.data"] for name in "qkvo"] + [gradients["d_lse"]],
                         [one.address for one in (*grads, grad_out, grad_lse)])
        self.assertEqual((problem["mask"], problem["bias_gradient"], stream), (_library.MASK_CAUSAL, 0, 2))

    def test_gradients_of_terms(self):
        terms = {"sinks": self.array((4,), "float32"), "bias": self.array((4, 1, 70), "float32")}
        *_, d_sinks, d_bias = grads = self.differentiate(bias_gradient=True, **terms)
        _, problem, _, gradients, _, _, _ = self.library.launches[-1]
        self.assertEqual((len(grads), d_sinks.shape, d_bias.shape, d_bias.dtype), (5, (4,), (4, 1, 70), "float32"))
        self.assertEqual((gradients["d_sinks.data"], gradients["d_bias.data"]), (d_sinks.address, d_bias.address))
        self.assertEqual([gradients[f"d_bias.stride_{name}"] for name in ("batch", "head", "row")], [0, 70, 0])
        self.assertEqual(problem["bias_gradient"], 1)
        self.assertEqual(len(self.differentiate(bias=terms["bias"])), 3)
        self.assertEqual(self.library.launches[-1][1]["bias_gradient"], 0)
        with self.assertRaisesRegex(ValueError, "bias has a stride of 0"):
            self.differentiate(bias=self.array((4, 100, 70), "float32", strides=(70, 0, 1)), bias_gradient=True)

    def test_gradients_are_the_callers(self):
        given = [self.array(), self.array((2, 2, 70, 64)), self.array((2, 2, 70, 64))]
        grads = self.differentiate(grads=given, workspace=self.array((1000,), "uint8"), empty=None)
        self.assertTrue(all(one is other for one, other in zip(grads, given)))
        for grads, words in ((given[:2], "grads has 2 elements: it must have 3, the gradients of q, k, v$"),
                             ([*given[:2], self.array(flags=1)], r"grads\[2\] is read-only"), (given[::-1], r"grads\[0\] has shape")):
            with self.assertRaisesRegex(ValueError, words):
                self.differentiate(grads=grads)

    def test_packed_sequences(self):
        q, k = self.array((4, 300, 64)), self.array((4, 280, 64))
        begins = {name: self.array((4,), "int32") for name in ("cu_seqlens_q", "cu_seqlens_kv")}
        lse = self.array((4, 300), "float32")
        grads = dlpack.backward(q, q, k, k, q, lse, stream=1, empty=self.empty, grad_lse=lse, **begins)
        self.assertEqual([one.shape for one in grads], [(4, 300, 64), (4, 280, 64), (4, 280, 64)])
        self.assertEqual(self.library.launches[-1][1]["packed"], 1)


class TheLibrary(unittest.TestCase):
    def test_a_valid_call_reaches_it(self):
        _library.load.cache_clear()
        with self.assertRaises(dlpack.AttuneError) as caught:
            dlpack.attention(*(FakeArray(SHAPE) for _ in range(3)), stream=1, out=FakeArray(SHAPE))
        self.assertEqual(caught.exception.status, NO_DEVICE)


if __name__ == "__main__":
    unittest.main()

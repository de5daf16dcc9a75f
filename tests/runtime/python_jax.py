"""attune_kernels.jax, without a GPU and without PyTorch: XLA's CPU calls the handlers, and a library in their place computes on its memory.

usage: python_jax.py REPOSITORY LIBATTUNE

Ends with 77 where JAX or a C compiler is missing.
"""

import ctypes
import functools
import inspect
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

REPOSITORY, LIBRARY = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
CACHE = tempfile.TemporaryDirectory()
os.environ.update(ATTUNE_LIBRARY=LIBRARY, CUDA_VISIBLE_DEVICES="", JAX_PLATFORMS="cpu", ATTUNE_CACHE_DIR=CACHE.name,
                  XLA_FLAGS="--xla_force_host_platform_device_count=2")
sys.dont_write_bytecode = True
sys.path.insert(0, str(REPOSITORY / "bindings" / "python"))
sys.modules["torch"] = None

try:
    import jax
except ImportError:
    print("JAX is not installed")
    sys.exit(77)
if not shutil.which((os.environ.get("CC") or "cc").split()[0]):
    print("there is no C compiler")
    sys.exit(77)
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402

import attune_kernels.jax as attune  # noqa: E402
from attune_kernels import _jax_handlers, _library  # noqa: E402
from attune_kernels._options import OPTIONS, TERMS  # noqa: E402
from recording_library import RecordingLibrary  # noqa: E402


class ComputingLibrary(RecordingLibrary):
    """Computes attention of float16 on the host's memory, with nothing but a scale and a causal mask, and sinks."""

    def _record(self, *launch):
        status = super()._record(*launch)
        problem, views, gradients = launch[:3]
        if status == 0 and problem["dtype"] == _library.FP16 and not problem["packed"]:
            self._compute(problem, views, gradients)
        return status

    def _compute(self, problem, views, gradients):
        sizes = {name: [problem["batch"], problem[f"heads_{'q' if name in 'qo' else 'kv'}"], problem[f"seq_{'q' if name in 'qo' else 'kv'}"], problem["head_dim"]]
                 for name in "qkvo"}

        def tensor(name, of=views):
            return _memory(of[f"{name}.data"], sizes[name[-1]], numpy.float16, [of[f"{name}.stride_{one}"] for one in ("batch", "head", "row")])

        q, k, v = (tensor(name).astype(numpy.float64) for name in "qkv")
        scale = problem["softmax_scale"] or problem["head_dim"] ** -0.5
        scores = numpy.einsum("bhqd,bhkd->bhqk", q, k) * scale
        if problem["mask"] == _library.MASK_CAUSAL:
            rows, keys = scores.shape[2:]
            scores = numpy.where(numpy.arange(keys) > numpy.arange(rows)[:, None] + keys - rows, -numpy.inf, scores)
        total = numpy.exp(scores).sum(-1)
        if views.get("sinks.data"):
            sinks = numpy.exp(_memory(views["sinks.data"], [problem["heads_q"]], numpy.float32).astype(numpy.float64))
            total = total + sinks[:, None]
        p = numpy.exp(scores) / total[..., None]
        lse_shape = scores.shape[:3]
        if gradients is None:
            tensor("o")[...] = numpy.einsum("bhqk,bhkd->bhqd", p, v)
            if views["lse"]:
                _memory(views["lse"], lse_shape, numpy.float32)[...] = numpy.log(total)
            return
        d_o, out = tensor("d_o", gradients).astype(numpy.float64), tensor("o").astype(numpy.float64)
        numpy.testing.assert_allclose(_memory(views["lse"], lse_shape, numpy.float32), numpy.log(total), rtol=1e-5)
        delta = (d_o * out).sum(-1)
        if gradients["d_lse"]:
            delta = delta - _memory(gradients["d_lse"], lse_shape, numpy.float32)
        d_s = p * (numpy.einsum("bhqd,bhkd->bhqk", d_o, v) - delta[..., None])
        tensor("d_q", gradients)[...] = numpy.einsum("bhqk,bhkd->bhqd", d_s, k) * scale
        tensor("d_k", gradients)[...] = numpy.einsum("bhqk,bhqd->bhkd", d_s, q) * scale
        tensor("d_v", gradients)[...] = numpy.einsum("bhqk,bhqd->bhkd", p, d_o)
        if views.get("sinks.data"):
            _memory(gradients["d_sinks.data"], [problem["heads_q"]], numpy.float32)[...] = -(sinks[:, None] / total * delta).sum((0, 2))


def _memory(address, shape, kind, strides=None):
    """Elements that lie at an address, those of the last dimension one after the other."""
    size = numpy.dtype(kind).itemsize
    strides = None if strides is None else [*(stride * size for stride in strides), size]
    room = (ctypes.c_char * (int(numpy.prod(shape)) * size)).from_address(address)
    return numpy.ndarray(shape, kind, room, strides=strides)


LIBRARY_OF_TESTS = ComputingLibrary()
with unittest.mock.patch.object(_library, "load", lambda: LIBRARY_OF_TESTS):
    REGISTERED = _jax_handlers.register("cpu", ("-DATTUNE_JAX_ON_HOST",))


def reference(q, k, v, causal=False, scale=None, sinks=None):
    """(out, lse) by JAX's own operations."""
    q, k, v = (one.astype(jnp.float32) for one in (q, k, v))
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * (scale or q.shape[-1] ** -0.5)
    if causal:
        scores = jnp.where(jnp.tri(*scores.shape[2:], scores.shape[3] - scores.shape[2], dtype=bool), scores, -jnp.inf)
    total = jnp.exp(scores).sum(-1)
    if sinks is not None:
        total = total + jnp.exp(sinks)[:, None]
    return jnp.einsum("bhqk,bhkd->bhqd", jnp.exp(scores) / total[..., None], v), jnp.log(total)


class Calls(unittest.TestCase):
    def setUp(self):
        self.library = LIBRARY_OF_TESTS
        self.library.launches.clear()
        self.library.status = 0
        # The handlers are there for the CPU, and CUDA's need the real library.
        patch = unittest.mock.patch.object(_jax_handlers, "register", lambda: None)
        patch.start()
        self.addCleanup(patch.stop)

    def arrays(self, *shapes, dtype="float16"):
        keys = jax.random.split(jax.random.key(7), len(shapes))
        return [jax.random.normal(key, shape, jnp.float32).astype(dtype) for key, shape in zip(keys, shapes)]

    def tensors(self, dtype="float16"):
        return self.arrays((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8), dtype=dtype)

    def assert_near(self, one, other, bound=5e-3):
        numpy.testing.assert_allclose(numpy.asarray(one, numpy.float64), numpy.asarray(other, numpy.float64), atol=bound, rtol=bound)

    def last(self):
        """(problem, tensors, gradients) of the last launch."""
        return self.library.launches[-1][1:4]


class Forward(Calls):
    def test_eager_and_under_jit(self):
        q, k, v = self.tensors()
        for function in (attune.attention, jax.jit(attune.attention, static_argnames=("causal", "scale", "return_lse"))):
            out, lse = function(q, k, v, causal=True, scale=0.25, return_lse=True)
            expected = reference(q, k, v, True, 0.25)
            self.assert_near(out, expected[0])
            self.assert_near(lse, expected[1])
            self.assertEqual((out.dtype, out.shape, lse.dtype), (jnp.float16, q.shape, jnp.float32))
            self.assert_near(function(q, k, v), reference(q, k, v)[0])
            self.assertIsNone(self.last()[1]["lse"])  # which nobody wants

    def test_the_library_is_given_what_the_arrays_are(self):
        q, k, v = self.arrays((2, 5, 4, 8), (2, 7, 2, 8), (2, 7, 2, 8), dtype="bfloat16")
        jax.block_until_ready(attune.attention(q, k, v, window=[3, None], layout="bshd", softcap=20.0, invariant=True, deterministic=True))
        problem, views, gradients = self.last()
        self.assertEqual([problem[name] for name in ("batch", "heads_q", "heads_kv", "seq_q", "seq_kv", "head_dim", "dtype", "mask", "window_left",
                                                     "window_right", "softcap", "invariant", "deterministic", "alignment", "pass_")],
                         [2, 4, 2, 5, 7, 8, _library.BF16, _library.MASK_WINDOW, 3, -1, 20.0, 1, 1, 16, _library.FORWARD])
        self.assertEqual([views[f"k.stride_{name}"] for name in ("batch", "head", "row")], [7 * 2 * 8, 8, 16])
        self.assertIsNone(gradients)
        self.assertEqual(self.library.launches[-1][4:], (True, 1000, None))  # a workspace, its size, the host's stream

    def test_workspace_is_aligned_and_may_be_none(self):
        seen = []
        for size in (0, 1, 1000, 1 << 20):
            with unittest.mock.patch.object(self.library, "workspace_bytes", size), \
                    unittest.mock.patch.object(self.library, "inside", lambda: seen.append(self.library.launches[-1][4:6])):
                jax.block_until_ready(attune.attention(*self.tensors()))
        self.assertEqual(seen, [(False, 0), (True, 1), (True, 1000), (True, 1 << 20)])

    def test_terms_reach_the_library(self):
        q, k, v = self.tensors("bfloat16")
        values = {"seqused_q": jnp.array([3, 5], jnp.int32), "seqused_kv": jnp.array([7, 2], jnp.int32), "alibi_slopes": jnp.array([0.5, 1.5, 2.5], jnp.bfloat16),
                  "bias": jnp.full((3, 1, 7), 4.5, jnp.float32), "attention_mask": jnp.ones((2, 1, 5, 7), bool), "sinks": jnp.array([1, 2, 3], jnp.float32),
                  "dropout_state": jnp.array([1, 2, 3, 4], jnp.uint32)}
        found = {}

        def look():
            views = self.last()[1]
            for name, value in values.items():
                kind = numpy.float32 if name == "alibi_slopes" else numpy.dtype(value.dtype)
                found[name] = _memory(views[f"{name}.data"], value.shape, kind).copy()

        with unittest.mock.patch.object(self.library, "inside", look):
            jax.block_until_ready(jax.jit(lambda q, terms: attune.attention(q, k, v, dropout_p=0.5, **terms))(q, values))
        for name, value in values.items():
            numpy.testing.assert_array_equal(found[name], numpy.asarray(value.astype(jnp.float32) if name == "alibi_slopes" else value), name)
        self.assertEqual(self.last()[0]["bias"], _library.PAIRS + _library.PAIRS_HEADS)
        self.assertEqual(self.last()[0]["dropout"], 0.5)

    def test_packed_sequences(self):
        q, k, v = self.arrays((30, 4, 8), (28, 2, 8), (28, 2, 8), dtype="bfloat16")
        begins = {name: jnp.array([0, 10, 28], jnp.int32) for name in ("cu_seqlens_q", "cu_seqlens_kv")}

        def loss(q, k, v):
            out, lse = attune.attention(q, k, v, layout="bshd", return_lse=True, **begins)
            self.assertEqual((out.shape, lse.shape), ((30, 4, 8), (4, 30)))
            return out.astype(jnp.float32).sum() + lse.sum()

        grads = jax.block_until_ready(jax.jit(jax.grad(loss, (0, 1, 2)))(q, k, v))
        self.assertEqual([grad.shape for grad in grads], [q.shape, k.shape, v.shape])
        problem, views, gradients = self.last()
        self.assertEqual([problem[name] for name in ("packed", "batch", "seq_q", "seq_kv", "pass_")], [1, 2, 30, 28, _library.BACKWARD])
        self.assertTrue(gradients["d_lse"] and views["cu_seqlens_kv.data"])

    def test_vmap_makes_a_call_for_each_element(self):
        q, k, v = self.arrays((4, 2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8))
        out = jax.vmap(lambda q: attune.attention(q, k, v))(q)
        for place in range(4):
            self.assert_near(out[place], reference(q[place], k, v)[0])
        self.assertEqual(len(self.library.launches), 4)

    def test_nothing_to_launch(self):
        q, k, v = self.arrays((2, 3, 5, 8), (2, 3, 0, 8), (2, 3, 0, 8))
        out, lse = attune.attention(q, k, v, return_lse=True)
        self.assertEqual((float(jnp.abs(out).max()), float(lse.max())), (0, -jnp.inf))
        sinks = jnp.array([1.0, 2.0, 3.0])
        of_sinks = jax.grad(lambda sinks: attune.attention(q, k, v, sinks=sinks, return_lse=True)[1].sum())(sinks)
        self.assertEqual(of_sinks.tolist(), [10, 10, 10])
        self.assertEqual(self.library.launches, [])


class Gradients(Calls):
    def losses(self, **options):
        """Losses of attention() and of the reference, on which out and lse have a part each."""
        weights = jax.random.normal(jax.random.key(3), (2, 3, 5, 8))

        def loss(function):
            def of(*arrays):
                out, lse = function(*arrays)
                return (out.astype(jnp.float32) * weights).sum() + (lse * weights[..., 0]).sum()
            return of

        return loss(lambda q, k, v, **terms: attune.attention(q, k, v, return_lse=True, **options)), loss(lambda q, k, v: reference(q, k, v, **options))

    def test_they_are_those_of_the_formula(self):
        arrays = self.tensors()
        ours, theirs = self.losses(causal=True)
        expected = jax.grad(theirs, (0, 1, 2))(*arrays)
        for differentiate in (jax.grad(ours, (0, 1, 2)), jax.jit(jax.grad(ours, (0, 1, 2))), jax.grad(jax.jit(ours), (0, 1, 2)),
                              jax.grad(jax.checkpoint(ours), (0, 1, 2))):
            for found, wanted in zip(differentiate(*arrays), expected):
                self.assertEqual(found.dtype, jnp.float16)
                self.assert_near(found, wanted, 2e-2)
        self.assertEqual(self.last()[0]["pass_"], _library.BACKWARD)

    def test_of_one_of_the_results(self):
        q, k, v = self.tensors()
        for pick in (0, 1):
            found = jax.grad(lambda q: attune.attention(q, k, v, return_lse=True)[pick].astype(jnp.float32).sum())(q)
            self.assertEqual(bool(self.last()[2]["d_lse"]), pick == 1)
            self.assert_near(found, jax.grad(lambda q: reference(q, k, v)[pick].sum())(q), 2e-2)
        self.assert_near(jax.grad(lambda v: attune.attention(q, k, v).astype(jnp.float32).sum())(v), jax.grad(lambda v: reference(q, k, v)[0].sum())(v), 2e-2)

    def test_of_sinks(self):
        q, k, v = self.tensors()
        sinks = jnp.array([0.5, -1.0, 2.0])
        weights = jax.random.normal(jax.random.key(3), q.shape)
        expected = jax.grad(lambda sinks: (reference(q, k, v, sinks=sinks)[0] * weights).sum())(sinks)
        for cast in (jnp.float32, jnp.bfloat16):  # through the cast
            found = jax.jit(jax.grad(lambda sinks: (attune.attention(q, k, v, sinks=sinks).astype(jnp.float32) * weights).sum()))(sinks.astype(cast))
            self.assertEqual(found.dtype, cast)
            self.assert_near(found, expected, 2e-2)

    def test_a_bias_gets_one_where_it_is_wanted(self):
        q, k, v = self.tensors("bfloat16")
        bias = jnp.zeros((3, 1, 7), jnp.float32)

        def loss(q, bias):
            return attune.attention(q, k, v, bias=bias).astype(jnp.float32).sum()

        for argument, wanted in ((0, 0), (1, 1)):
            for differentiate in (jax.grad(loss, argument), jax.jit(jax.grad(loss, argument))):
                found = jax.block_until_ready(differentiate(q, bias))
                problem, _, gradients = self.last()
                self.assertEqual((problem["bias_gradient"], bool(gradients["d_bias.data"]), found.shape), (wanted, bool(wanted), (q, bias)[argument].shape))
        self.assertEqual([gradients[f"d_bias.stride_{name}"] for name in ("batch", "head", "row")], [0, 7, 0])

    def test_under_vmap_and_scan(self):
        q, k, v = self.arrays((4, 2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8))
        expected = jax.grad(lambda q: sum(reference(one, k, v)[0].sum() for one in q))(q)

        def mapped(q):
            return jax.vmap(lambda q: attune.attention(q, k, v))(q).astype(jnp.float32).sum()

        def scanned(q):
            return jax.lax.scan(lambda total, q: (total + attune.attention(q, k, v).astype(jnp.float32).sum(), None), 0.0, q)[0]

        for function in (mapped, scanned):
            self.assert_near(jax.grad(function)(q), expected, 2e-2)

    def test_on_several_devices(self):
        q, k, v = self.arrays((4, 3, 5, 8), (4, 3, 7, 8), (4, 3, 7, 8))
        mesh = jax.make_mesh((2,), ("batch",))
        parts = jax.sharding.PartitionSpec("batch")
        sharded = [jax.device_put(one, jax.sharding.NamedSharding(mesh, parts)) for one in (q, k, v)]

        def loss(attend):
            return lambda q, k, v: attend(q, k, v).astype(jnp.float32).sum()

        expected = jax.grad(lambda q, k, v: reference(q, k, v, True)[0].sum(), (0, 1, 2))(q, k, v)
        whole = functools.partial(attune.attention, causal=True)
        by_parts = jax.shard_map(whole, mesh=mesh, in_specs=parts, out_specs=parts, check_vma=False)
        for attend, batch, count in ((by_parts, 2, 4), (whole, 4, None)):  # jax.jit alone gathers what lies on several devices
            self.library.launches.clear()
            for found, wanted in zip(jax.jit(jax.grad(loss(attend), (0, 1, 2)))(*sharded), expected):
                self.assert_near(found, wanted, 2e-2)
            self.assertEqual({launch[1]["batch"] for launch in self.library.launches}, {batch})
            if count is not None:
                self.assertEqual(len(self.library.launches), count)  # of each device a forward and a backward pass

    def test_what_has_none(self):
        q, k, v = self.tensors("bfloat16")
        slopes = jnp.ones(3)

        def loss(q, slopes):
            return attune.attention(q, k, v, alibi_slopes=slopes).astype(jnp.float32).sum()

        with self.assertRaisesRegex(ValueError, "alibi_slopes is differentiated.*stop_gradient"):
            jax.grad(loss, 1)(q, slopes)
        jax.grad(loss)(q, slopes)
        with self.assertRaises(TypeError):  # forward mode
            jax.jvp(lambda q: attune.attention(q, k, v), (q,), (q,))


class Refusals(Calls):
    def test_arguments(self):
        q, k, v = self.tensors()
        for error, words, arguments, options in (
                (TypeError, "q is float32: it must be float16 or bfloat16", self.tensors("float32"), {}),
                (ValueError, "they must be equal", (q, k, k[:, :, :3]), {}), (TypeError, "k is a list: it must be an array", (q, [1], v), {}),
                (TypeError, "there is no option 'casual'", (q, k, v), {"casual": True}), (ValueError, "layout is 'hsbd'", (q, k, v), {"layout": "hsbd"}),
                (ValueError, "dropout_p needs a dropout_state", (q, k, v), {"dropout_p": 0.5}),
                (TypeError, "dropout_state is uint32: it must be int64", (q, k, v), {"dropout_p": 0.5, "dropout_state": jnp.zeros(2, jnp.uint32)}),
                (ValueError, "head_dim must be a multiple of 8", (q[..., :5], k[..., :5], v[..., :5]), {}),
                (ValueError, "k has shape .*: with cu_seqlens_q", (q[0], k, v), {name: jnp.zeros(2, jnp.int32) for name in ("cu_seqlens_q", "cu_seqlens_kv")})):
            with self.subTest(words), self.assertRaisesRegex(error, words):
                attune.attention(*arguments, **options)
        with self.assertRaisesRegex(TypeError, "scale is an array, or traced: it must be a plain value"):
            jax.jit(lambda scale: attune.attention(q, k, v, scale=scale))(0.5)
        with self.assertRaisesRegex(TypeError, "causal is an array, or traced"):
            attune.attention(q, k, v, causal=jnp.array(True))
        self.assertEqual(self.library.launches, [])

    def test_the_librarys_sentence_is_in_xlas_error(self):
        self.library.status = -2
        with self.assertRaisesRegex(Exception, "a sentence of the library"):
            jax.block_until_ready(attune.attention(*self.tensors()))

    def test_options_are_those_of_the_tables(self):
        arguments = inspect.signature(attune.attention).parameters
        for option in (*OPTIONS, *TERMS):
            self.assertEqual(arguments[option.name].default, getattr(option, "default", None))


class ForCuda(Calls):
    """What is compiled for GPUs, as far as a machine without one goes: up to XLA's input."""

    def test_it_is_lowered_to_calls_of_the_handlers(self):
        def loss(q, k, v):
            return attune.attention(q, k, v, causal=True).astype(jnp.float32).sum()

        shapes = [jax.ShapeDtypeStruct((2, 3, 128, 64), jnp.bfloat16)] * 3
        text = jax.jit(jax.grad(loss, (0, 1, 2))).trace(*shapes).lower(lowering_platforms=("cuda",)).as_text()
        for target in (_jax_handlers.FORWARD, _jax_handlers.BACKWARD):
            self.assertEqual(text.count(f"stablehlo.custom_call @{target}"), 1, text)
        self.assertEqual(jax.eval_shape(jax.grad(loss, (0, 1, 2)), *shapes)[1].shape, (2, 3, 128, 64))

    def test_the_handlers_are_built_and_known(self):
        program = ("import sys; sys.dont_write_bytecode = True; sys.path.insert(0, sys.argv[1]); sys.modules['torch'] = None\n"
                   "import jax, attune_kernels.jax as attune; from attune_kernels import _jax_handlers\n"
                   "shape = jax.ShapeDtypeStruct((1, 2, 64, 64), 'float16')\n"
                   "jax.jit(attune.attention).trace(shape, shape, shape).lower(lowering_platforms=('cuda',))\n"
                   "print(_jax_handlers.register()[1]._name)\n")  # by then
        for folder in (CACHE.name, "/proc/nothing"):  # where nothing can be kept, it is built for the process
            ended = subprocess.run([sys.executable, "-c", program, str(REPOSITORY / "bindings/python")], capture_output=True, text=True,
                                   env={**os.environ, "ATTUNE_CACHE_DIR": folder})
            self.assertEqual((ended.returncode, ended.stdout), (0, f"{LIBRARY}\n"), ended.stderr)
        built = sorted(path.name for path in (pathlib.Path(CACHE.name) / "jax").iterdir())
        self.assertEqual(len(built), 2)  # that of this test, and that of CUDA

    def test_what_the_handlers_do_on_a_gpu(self):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "handlers")
            command = [*(os.environ.get("CC") or "cc").split(), "-std=c11", "-Wall", "-Wextra", "-Werror", "-isystem", jax.ffi.include_dir(),
                       str(REPOSITORY / "tests/runtime/jax_handlers_test.c"), "-o", program]
            for run in (command, [program]):
                ended = subprocess.run(run, capture_output=True, text=True)
                self.assertEqual((ended.returncode, ended.stdout + ended.stderr), (0, ""))

    def test_without_a_compiler_it_says_what_to_do(self):
        for compiler, words in (("no-such-compiler", "needs a C compiler.*name it in CC; no-such-compiler"), ("false", "does not compile against jaxlib")):
            with unittest.mock.patch.dict(os.environ, CC=compiler), self.assertRaisesRegex(RuntimeError, words):
                _jax_handlers._built(())

    def test_a_folder_that_others_may_write_to_is_not_used(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, ATTUNE_CACHE_DIR=folder):
            self.assertEqual(_jax_handlers._folder(), pathlib.Path(folder) / "jax")
            os.chmod(folder, 0o777)
            self.assertNotEqual(_jax_handlers._folder().parent, pathlib.Path(folder))


if __name__ == "__main__":
    unittest.main()

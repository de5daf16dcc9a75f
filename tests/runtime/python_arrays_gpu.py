"""Arrays of other libraries on a GPU: by DLPack those of PyTorch and CuPy, and JAX's, eagerly, compiled and differentiated. What is not installed is
skipped.

usage: python_arrays_gpu.py [UNITTEST_ARGUMENT...]
"""

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the GPU's memory is PyTorch's, too

# First: it finds the module, and ends a program that has no GPU.
from on_gpu import BF16, DEVICE, FP16, GRADIENT_BOUND, LSE_BOUND, OUTPUT_BOUND, OnGpu, inputs, reference_gradients, run_tests, torch
import unittest

import attune_kernels as attune
from attune_kernels import dlpack

try:
    import cupy
except ImportError:
    cupy = None
try:
    import jax
    import jax.numpy as jnp

    import attune_kernels.jax as attune_jax
    HAS_JAX = any(device.platform == "gpu" for device in jax.devices())
except (ImportError, RuntimeError):
    HAS_JAX = False


def empty(shape, dtype):
    return torch.empty(shape, dtype=getattr(torch, dtype), device=DEVICE)


class Dlpack(OnGpu):
    """The same kernels as by attune_kernels.attention(): the same bits."""

    def check(self, stream, **options):
        q, k, v, grad_out, grad_lse = inputs(BF16, 2, 4, 2, 300, 300, 128)
        sinks = torch.tensor([1.0, -2.0, 0.5, 3.0], device=DEVICE)
        expected = attune.attention(q, k, v, return_lse=True, sinks=sinks, **options)
        found = dlpack.attention(q, k, v, stream=stream, return_lse=True, empty=empty, sinks=sinks, **options)
        torch.cuda.synchronize()
        self.assert_same(found, expected)
        gradients = attune.backward(grad_out, q, k, v, *expected, grad_lse=grad_lse, sinks=sinks, deterministic=True, **options)
        grads = dlpack.backward(grad_out, q, k, v, *found, grad_lse=grad_lse, stream=stream, empty=empty, sinks=sinks, deterministic=True, **options)
        torch.cuda.synchronize()
        self.assert_same(grads, gradients)

    def test_on_the_default_stream(self):
        self.check(1, causal=True)
        self.check(1, window=(90, 5), softcap=5.0)

    def test_on_a_stream(self):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            self.check(stream.cuda_stream, causal=True)

    def test_packed_sequences(self):
        q, k, v, *_ = (one[0].transpose(0, 1).contiguous() for one in inputs(FP16, 1, 4, 2, 500, 500, 64)[:4])
        begins = torch.tensor([0, 77, 77, 500], dtype=torch.int32, device=DEVICE)
        options = {"layout": "bshd", "causal": True, "cu_seqlens_q": begins, "cu_seqlens_kv": begins}
        found = dlpack.attention(q, k, v, stream=1, empty=empty, return_lse=True, **options)
        torch.cuda.synchronize()
        self.assert_same(found, attune.attention(q, k, v, return_lse=True, **options))

    @unittest.skipIf(cupy is None, "CuPy is not installed")
    def test_arrays_of_cupy(self):
        tensors = inputs(FP16, 2, 4, 2, 300, 400, 64)[:3]
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            q, k, v = (cupy.asarray(one) for one in tensors)
            out = dlpack.attention(q, k, v, causal=True, stream=stream.ptr, empty=cupy.empty)
        stream.synchronize()
        self.assert_same([torch.from_dlpack(out)], [attune.attention(*tensors, causal=True)])

    def test_work_that_a_producer_still_does_is_waited_for(self):
        q, k, v, *_ = inputs(BF16, 2, 4, 4, 300, 300, 64)
        expected = attune.attention(q, k, v)
        late, stream = torch.empty_like(q), torch.cuda.Stream()
        torch.cuda.synchronize()
        torch.cuda._sleep(100_000_000)
        late.copy_(q)  # on the current stream, of which the other one knows by DLPack alone
        out = dlpack.attention(late, k, v, stream=stream.cuda_stream, out=torch.empty_like(q), empty=empty)
        torch.cuda.synchronize()
        self.assert_same([out], [expected])


@unittest.skipUnless(HAS_JAX, "JAX is not installed, or sees no GPU")
class Jax(OnGpu):
    def test_results_and_gradients(self):
        for dtype, options in ((BF16, {"causal": True}), (FP16, {"window": (90, 5)}), (BF16, {"softcap": 5.0, "layout": "bshd"})):
            layout = options.get("layout", "bhsd")
            *tensors, grad_lse = inputs(dtype, 2, 4, 2, 300, 400, 64, layout)
            (exact_out, exact_lse), exact = reference_gradients(*tensors, grad_lse, **options)
            q, k, v, grad_out = (jnp.from_dlpack(one.contiguous()) for one in tensors)

            def attend(q, k, v):
                return attune_jax.attention(q, k, v, return_lse=True, **options)

            def differentiate(q, k, v):
                results, pull_back = jax.vjp(attend, q, k, v)
                return results, pull_back((grad_out, jnp.from_dlpack(grad_lse)))

            for function in (differentiate, jax.jit(differentiate)):
                (out, lse), gradients = jax.block_until_ready(function(q, k, v))
                with self.subTest(dtype=dtype, jit=function is not differentiate, **options):
                    self.assert_close("O", torch.from_dlpack(out), exact_out, OUTPUT_BOUND[dtype])
                    self.assertLess((torch.from_dlpack(lse) - exact_lse).abs().max().item(), LSE_BOUND)
                    self.assert_gradients([torch.from_dlpack(one) for one in gradients], exact, dtype)

    def test_a_loop_that_is_compiled(self):
        """XLA allocates and frees workspaces between its own kernels."""
        q, k, v, *_ = inputs(BF16, 1, 4, 4, 256, 256, 64)
        arrays = [jnp.from_dlpack(one) for one in (q, k, v)]
        out = jax.jit(lambda q, k, v: jax.lax.fori_loop(0, 20, lambda _, q: attune_jax.attention(q * 1.0, k, v, causal=True), q))(*arrays)
        for _ in range(20):
            q = attune.attention(q, k, v, causal=True)
        self.assert_close("O", torch.from_dlpack(jax.block_until_ready(out)), q.double(), GRADIENT_BOUND[BF16])

    def test_arrays_of_jax_by_dlpack(self):
        tensors = inputs(BF16, 2, 4, 2, 300, 300, 64)[:3]
        out = dlpack.attention(*(jnp.from_dlpack(one) for one in tensors), stream=1, empty=empty)
        torch.cuda.synchronize()
        self.assert_same([out], [attune.attention(*tensors)])


if __name__ == "__main__":
    run_tests()

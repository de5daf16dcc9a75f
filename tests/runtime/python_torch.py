"""The Python binding inside PyTorch where no GPU is needed: operators on tensors without data, and which implementations are replaced.

usage: python_torch.py REPOSITORY LIBATTUNE

Ends as test_* programs do: a line "attune-tests: N passed, N failed, N skipped", exit status 77 where there is no PyTorch.
"""

import os
import pathlib
import subprocess
import sys
import unittest
import unittest.mock

REPOSITORY, LIBRARY = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
BINDING = str(REPOSITORY / "bindings" / "python")
os.environ.update(ATTUNE_LIBRARY=LIBRARY, CUDA_VISIBLE_DEVICES="")
sys.dont_write_bytecode = True
sys.path.insert(0, BINDING)

try:
    import torch
except ImportError:
    print("attune-tests: 0 passed, 0 failed, 1 skipped: PyTorch is not installed")
    sys.exit(77)

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

import attune_kernels as attune  # noqa: E402
from attune_kernels import _sdpa  # noqa: E402

BF16 = torch.bfloat16
FLASH = "aten::_scaled_dot_product_flash_attention"


def tensors(device="cuda", **options):
    """q, k and v with grouped heads and other lengths."""
    return [torch.empty(2, heads, seq, 64, dtype=BF16, device=device, **options) for heads, seq in ((4, 100), (2, 70), (2, 70))]


class Operators(unittest.TestCase):
    def test_shapes_and_strides(self):
        with FakeTensorMode():
            q, k, v = tensors()
            q = q.transpose(1, 2).contiguous().transpose(1, 2)
            out, lse = attune.attention(q, k, v, causal=True, return_lse=True)
            self.assertEqual((out.shape, out.stride(), out.dtype, out.device), (q.shape, q.stride(), BF16, torch.device("cuda:0")))
            self.assertEqual((lse.shape, lse.dtype), ((2, 4, 100), torch.float32))
            grads = attune.backward(out, q, k, v, out, lse, causal=True)
            self.assertEqual([(grad.shape, grad.stride()) for grad in grads], [(one.shape, one.stride()) for one in (q, k, v)])

    def test_wrong_arguments(self):
        with FakeTensorMode():
            q, k, v = tensors()
            cases = [
                ("scale is -1", lambda: attune.attention(q, k, v, scale=-1.0)),
                ("layout is 'x'", lambda: attune.attention(q, k, v, layout="x")),
                ("batch and head_dim", lambda: attune.attention(q[:1], k, v)),
                ("leave top_left out", lambda: attune.attention(q, k, v, causal=True, top_left=True, window=(1, 1))),
            ]
            for words, call in cases:
                with self.assertRaisesRegex(ValueError, words):
                    call()

    def test_gradients_without_data(self):
        q, k, v = tensors("meta", requires_grad=True)
        out, lse = torch.ops.attune_kernels.forward(q, k, v, True)
        grads = torch.autograd.grad(out.sum() + lse.sum(), (q, k, v), create_graph=True)
        self.assertEqual([grad.shape for grad in grads], [one.shape for one in (q, k, v)])
        with self.assertRaisesRegex(NotImplementedError, "differentiable once"):
            torch.autograd.grad(grads[0].sum(), q)

    def test_a_call_is_one_node_of_a_graph(self):
        with FakeTensorMode():
            each = tensors()
            graph = make_fx(lambda q, k, v: attune.attention(q, k, v, window=(5, None)) * 2)(*each).graph
        nodes = [node for node in graph.nodes if node.op == "call_function" and node.target is torch.ops.attune_kernels.forward.default]
        self.assertEqual(len(nodes), 1)
        self.assertIn([5, -1], nodes[0].args)

    def test_export(self):
        class Model(torch.nn.Module):
            def forward(self, q, k, v):
                return attune.attention(q, k, v, causal=True) * 2

        with FakeTensorMode():
            each = tensors()
            program = torch.export.export(Model(), tuple(each), strict=False)
        self.assertEqual([node.target for node in program.graph.nodes].count(torch.ops.attune_kernels.forward.default), 1)

    def test_batches_of_transforms(self):
        with FakeTensorMode():
            stacked = [torch.stack([one, one, one]) for one in tensors()]
            out = torch.func.vmap(lambda q, k, v: attune.attention(q, k, v))(*stacked)
        self.assertEqual(out.shape, stacked[0].shape)

    def test_an_import_does_not_load_the_compiler(self):
        program = "import sys; sys.path.insert(0, sys.argv[1]); import attune_kernels; sys.exit('torch._dynamo' in sys.modules)"
        ended = subprocess.run([sys.executable, "-c", program, BINDING], capture_output=True, text=True)
        self.assertEqual(ended.returncode, 0, ended.stderr)


@unittest.skipUnless(torch.version.cuda, "this PyTorch was built without CUDA")
class Sdpa(unittest.TestCase):
    def setUp(self):
        self.addCleanup(attune.disable_sdpa)

    def implementation(self):
        """What runs FlashAttention's forward on CUDA, in words."""
        return torch._C._dispatch_dump(FLASH).partition("\nCUDA: ")[2].partition("\n")[0]

    def test_on_and_off(self):
        own = self.implementation()
        self.assertNotEqual(own, "")
        with attune.enable_sdpa():
            ours = self.implementation()
            self.assertNotEqual(ours, own)
            with attune.enable_sdpa():
                self.assertEqual(self.implementation(), ours)
            self.assertEqual(self.implementation(), ours)
        self.assertEqual(self.implementation(), own)
        attune.enable_sdpa()
        self.assertNotEqual(self.implementation(), own)
        attune.disable_sdpa()
        attune.disable_sdpa()
        self.assertEqual(self.implementation(), own)

    def test_without_a_registry(self):
        with unittest.mock.patch.object(_sdpa, "_registry", None):
            self.test_on_and_off()

    @unittest.skipUnless(hasattr(torch.nn.attention, "activate_flash_attention_impl"), "this PyTorch has no registry of implementations")
    def test_the_registry(self):
        attention, own = torch.nn.attention, self.implementation()
        self.assertIn("attune", attention.list_flash_attention_impls())
        attention.activate_flash_attention_impl("attune")
        self.assertNotEqual(self.implementation(), own)
        with attune.enable_sdpa():
            pass
        self.assertEqual(attention.current_flash_attention_impl(), "attune")
        attention.restore_flash_attention_impl()
        self.assertEqual((self.implementation(), attention.current_flash_attention_impl()), (own, None))

    @unittest.skipUnless(hasattr(torch.nn.attention, "activate_flash_attention_impl"), "this PyTorch has no registry of implementations")
    def test_another_implementation_comes_back(self):
        attention, removed = torch.nn.attention, []

        class Handle:
            def remove(self):
                removed.append(attention.current_flash_attention_impl())

        attention.register_flash_attention_impl("of_a_test", register_fn=Handle)
        attention.activate_flash_attention_impl("of_a_test")
        with attune.enable_sdpa():
            self.assertEqual((attention.current_flash_attention_impl(), removed), ("attune", ["of_a_test"]))
        self.assertEqual(attention.current_flash_attention_impl(), "of_a_test")
        attune.disable_sdpa()  # none of its business
        self.assertEqual(attention.current_flash_attention_impl(), "of_a_test")
        attention.restore_flash_attention_impl()

    def test_nothing_is_said(self):
        program = "import sys; sys.path.insert(0, sys.argv[1]); import attune_kernels as attune\nwith attune.enable_sdpa(): pass"
        ended = subprocess.run([sys.executable, "-c", program, BINDING], capture_output=True, text=True)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertNotIn("verriding a previously registered kernel", ended.stderr)


result = unittest.main(exit=False).result
failed, skipped = len({case.id().split(" ")[0] for case, _ in result.failures + result.errors}), len(result.skipped)
print(f"attune-tests: {result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
sys.exit(0 if result.wasSuccessful() else 1)

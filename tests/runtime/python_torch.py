"""The Python binding inside PyTorch where no GPU is needed: operators on tensors without data, and which implementations are replaced.

usage: python_torch.py REPOSITORY LIBATTUNE

Ends as test_* programs do: a line "attune-tests: N passed, N failed, N skipped", exit status 77 where there is no PyTorch.
"""

import fractions
import math
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
from attune_kernels import _calls, _library, _ops, _sdpa  # noqa: E402
from comparison import inputs, packed, problems, references  # noqa: E402
from recording_library import RecordingLibrary  # noqa: E402

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


class Machine(unittest.TestCase):
    def test_what_is_found(self):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([BINDING, *sys.path]), "PYTHONDONTWRITEBYTECODE": "1"}
        ended = subprocess.run([sys.executable, "-m", "attune_kernels"], capture_output=True, text=True, env=environment)
        self.assertEqual((ended.returncode, ended.stderr), (1, ""))  # there is no GPU here
        found = dict(line.split(maxsplit=1) for line in ended.stdout.splitlines())
        self.assertEqual(list(found)[:5], ["module", "Python", "PyTorch", "library", "extension"])
        self.assertLessEqual({"GPU", "driver", "NVRTC", "presets", "database", "cache"}, found.keys())
        self.assertTrue(found["library"].startswith(attune.version()) and found["library"].endswith(".so") or ".so." in found["library"], found["library"])
        self.assertTrue(found["PyTorch"].startswith(torch.__version__))
        self.assertRegex(found["presets"], r"^\d+ results on \d+ models? of GPU")
        self.assertTrue(found["GPU"].startswith("none: "))
        ended = subprocess.run([sys.executable, "-m", "attune_kernels"], capture_output=True, text=True, env={**environment, "ATTUNE_LIBRARY": "/nowhere.so"})
        self.assertEqual(ended.returncode, 1)
        self.assertRegex(ended.stdout, "library +none: libattune.so was not found")


class Dropout(unittest.TestCase):
    """dropout_mask() beside the function that docs/dropout.md states, element by element, and what its bits look like."""

    @staticmethod
    def philox(low, high, key, rounds):
        for _ in range(rounds):
            product = low * 0xD256D193
            low, high, key = product >> 32 ^ key ^ high, product & 0xFFFFFFFF, (key + 0x9E3779B9) % 2**32
        return low, high

    def kept(self, state, p, n, i, j):
        seed, offset = (number % 2**64 for number in state)
        a = self.philox(offset % 2**32, offset >> 32, seed >> 32, 10)
        h = self.philox(a[0] ^ n, a[1], seed % 2**32, 10)
        counter = h[0] ^ (32 * (i // 16) + 4 * (i % 8) + j % 8 // 2), h[1] ^ j // 16
        before, w = (self.philox(*counter, seed % 2**32, rounds) for rounds in (6, 7))
        t = fractions.Fraction(torch.tensor(p, dtype=torch.float32).item()) * 256
        byte = w[j % 16 // 8] >> 8 * (2 * (j % 2) + i % 16 // 8) & 255
        return byte >= math.floor(t) + (before[1] < math.floor((t - math.floor(t)) * 2**32))

    def test_the_mask_is_the_stated_function(self):
        for state in ((0, 0), (7, 11), (-1, 2**62 + 5), (-2**63, -3)):
            for p in (0.1, 0.01, 0.5, 0.999):
                mask = attune.dropout_mask(p, torch.tensor(state), (2, 3, 35, 37))
                wanted = [[[[self.kept(state, p, 3 * b + h, i, j) for j in range(37)] for i in range(35)] for h in range(3)] for b in range(2)]
                self.assertTrue(torch.equal(mask, torch.tensor(wanted)))

    def test_probabilities(self):
        for p in (1.0, -0.1, float("nan")):
            self.assertRaisesRegex(ValueError, "dropout_p is", attune.dropout_mask, p, torch.tensor((1, 2)), (1, 1, 2, 2))
        self.assertTrue(attune.dropout_mask(0.0, torch.tensor((1, 2)), (1, 1, 256, 256)).all())

    def test_shares_are_those_of_the_probability(self):
        """Within four standard deviations, of all, each row, each column and each head; and neighbours do not know of each other."""
        shape = (2, 4, 512, 512)
        for p in (0.1, 0.01):
            share = 1 - p
            masks = [attune.dropout_mask(p, torch.tensor(state), shape) for state in ((1, 0), (1, 1), (2, 0), (1 + 2**32, 0))]
            mask = masks[0].double()
            for axes in ((0, 1, 2, 3), (2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2)):
                count = mask.numel() / (mask.mean(axes).numel())
                apart = (mask.mean(axes) - share).abs().max().item() / (share * (1 - share) / count) ** 0.5
                self.assertLess(apart, 4 + 1.5 * (mask.mean(axes).numel() > 8), (p, axes))  # the most of 512 may be 5.5
            centred = mask - share
            pairs = [centred[:, :, 1:] * centred[:, :, :-1], centred[..., 1:] * centred[..., :-1], centred[:, 1:] * centred[:, :-1],
                     centred[1:] * centred[:-1], centred[:, :, 8:] * centred[:, :, :-8], centred[..., 8:] * centred[..., :-8],
                     centred[..., 16:] * centred[..., :-16], *(centred * (other.double() - share) for other in masks[1:])]
            for number, products in enumerate(pairs):
                self.assertLess(abs(products.mean().item()) / (share * (1 - share)) * products.numel() ** 0.5, 4, (p, number))


class Eager(unittest.TestCase):
    """Calls that reach the library, which writes them down: tensors of the CPU pass for those of a GPU. The extension serves those that come
    again, if it is there, and the Python code otherwise; either way the results are the same."""

    SERVES = _calls._known_calls is not None

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
        self.q, self.k, self.v = tensors("cpu")
        self.leaves = tensors("cpu", requires_grad=True)

    def forget(self):
        """The functions of one library are not there for the next one."""
        if self.SERVES:
            _calls._known_calls.forget_forward()
            _calls._known_calls.forget_backward()

    def served(self, call, again=True):
        """What a call returns that was made before; whether the extension must serve it."""
        call()
        before = self.by_python
        results = call()
        self.assertEqual(self.by_python == before, self.SERVES and again)
        return results

    def addresses(self, *names):
        _, _, handed, gradients, *_ = self.library.launches[-1]
        return [{**handed, **(gradients or {})}[name] for name in names]

    def test_the_extension_is_there_if_it_was_built(self):
        built = (pathlib.Path(LIBRARY).parent / "attune_kernels" / "_known_calls.abi3.so").exists()
        self.assertEqual(self.SERVES, built and hasattr(torch.Tensor, "__dlpack_c_exchange_api__"))

    def test_results(self):
        q, k, v = self.q.transpose(1, 2).contiguous().transpose(1, 2), self.k, self.v
        out, lse = self.served(lambda: attune.attention(q, k, v, return_lse=True))
        self.assertEqual((out.shape, out.stride(), out.dtype), (q.shape, q.stride(), BF16))
        self.assertEqual((lse.shape, lse.stride(), lse.dtype), ((2, 4, 100), (400, 100, 1), torch.float32))
        self.assertEqual(self.addresses("q.data", "k.data", "v.data", "o.data", "lse"), [one.data_ptr() for one in (q, k, v, out, lse)])
        grads = self.served(lambda: attune.backward(out, q, k, v, out, lse))
        self.assertEqual([(grad.shape, grad.stride()) for grad in grads], [(one.shape, one.stride()) for one in (q, k, v)])
        self.assertEqual(self.addresses("d_o.data", "d_q.data", "d_k.data", "d_v.data", "d_lse"), [one.data_ptr() for one in (out, *grads)] + [None])

    def test_results_that_the_caller_gives(self):
        """Such a call, too, is checked once for each kind, of which the results are a part, and is no kind of calls that give none."""
        q, k, v = self.q, self.k, self.v
        turned = torch.empty(2, 100, 4, 64, dtype=BF16).transpose(1, 2)
        for out in torch.empty_like(q), turned:
            for is_known in (False, True):
                with unittest.mock.patch.object(_calls, "Checked", wraps=_calls.Checked) as checked:
                    self.assertIs(attune.attention(q, k, v, out=out), out)
                self.assertEqual(checked.call_count, int(not is_known))
                self.assertEqual(self.addresses("o.data", "o.stride_head", "o.stride_row"), [out.data_ptr(), *out.stride()[1:3]])
        _, lse = attune.attention(q, k, v, return_lse=True)
        self.assertEqual(self.addresses("o.stride_head"), [6400])
        for grads in [torch.empty_like(one) for one in (q, k, v)], [turned, torch.empty_like(k), torch.empty_like(v)]:
            with unittest.mock.patch.object(_calls, "Checked", wraps=_calls.Checked) as checked:
                for _ in range(2):
                    attune.backward(out, q, k, v, out, lse, grads=grads)
                    self.assertEqual(self.addresses("d_q.data", "d_k.data", "d_v.data", "d_q.stride_head"), [*(one.data_ptr() for one in grads), grads[0].stride(1)])
            self.assertEqual(checked.call_count, 1)
        for wrong in q[:, :3], q[..., :32]:
            with self.assertRaisesRegex(ValueError, "out has shape"):
                attune.attention(q, k, v, out=wrong)
            with self.assertRaisesRegex(ValueError, r"grads\[0\] has shape"):
                attune.backward(out, q, k, v, out, lse, grads=[wrong, k, v])
        with self.assertRaisesRegex(ValueError, "grads has 2 elements"):
            attune.backward(out, q, k, v, out, lse, grads=[q, k])

    def test_a_view_begins_where_it_begins(self):
        packed = torch.zeros(2, 3, 4, 100, 64, dtype=BF16)
        q, k, v = packed.unbind(1)
        self.served(lambda: attune.attention(q, k, v))
        self.assertEqual(self.addresses("q.data", "k.data", "v.data"), [packed.data_ptr() + 2 * 6400 * 4 * place for place in range(3)])
        self.assertEqual(self.addresses("q.stride_batch"), [3 * 4 * 6400])

    def test_gradients(self):
        for return_lse in (False, True):
            def call():
                result = attune.attention(*self.leaves, causal=True, return_lse=return_lse)
                return torch.autograd.grad((result[0] if return_lse else result).float().sum(), self.leaves)

            grads = self.served(call)
            self.assertEqual([grad.shape for grad in grads], [one.shape for one in self.leaves])
            self.assertEqual(self.addresses("q.data", "k.data", "v.data", "d_q.data", "d_k.data", "d_v.data"),
                             [one.data_ptr() for one in (*self.leaves, *grads)])

    def test_the_graph_is_kept_or_freed(self):
        out = attune.attention(*self.leaves)
        for _ in range(3):
            torch.autograd.grad(out.sum(), self.leaves, retain_graph=True)
        torch.autograd.grad(out.sum(), self.leaves)
        with self.assertRaisesRegex(RuntimeError, "second time"):
            torch.autograd.grad(out.sum(), self.leaves)

    def test_a_saved_tensor_that_was_modified(self):
        for changed in (lambda out: self.leaves[1], lambda out: out):
            for _ in range(2):
                out = attune.attention(*self.leaves)
                with torch.no_grad():
                    changed(out).add_(0)
                with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                    torch.autograd.grad(out.sum(), self.leaves)

    def test_gradients_of_some(self):
        q = self.leaves[0]
        grads = self.served(lambda: torch.autograd.grad(attune.attention(q, self.k, self.v).sum(), [q]))
        self.assertEqual(grads[0].shape, q.shape)

    def test_a_checkpoint(self):
        def call():
            out = torch.utils.checkpoint.checkpoint(lambda *each: attune.attention(*each) * 1, *self.leaves, use_reentrant=False)
            return torch.autograd.grad(out.sum(), self.leaves)

        self.assertEqual(len(self.served(call)), 3)

    def test_second_derivatives_are_refused(self):
        for name, function in (("forward", _ops._run_forward), ("backward", _ops._run_backward)):
            if not torch._C._dispatch_has_kernel_for_dispatch_key(f"attune_kernels::{name}", "CPU"):
                _ops._defined.impl(name, function, "CPU")
        for _ in range(2):
            grads = torch.autograd.grad(attune.attention(*self.leaves).sum(), self.leaves, create_graph=True)
            with self.assertRaisesRegex(NotImplementedError, "differentiable once"):
                torch.autograd.grad(grads[0].sum(), self.leaves[0])

    def test_tensors_that_are_not_served(self):
        class Derived(torch.Tensor):
            pass

        attune.attention(self.q, self.k, self.v)
        self.served(lambda: attune.attention(self.q.as_subclass(Derived), self.k, self.v), again=False)
        with torch.no_grad():
            self.served(lambda: attune.attention(torch.nn.Parameter(self.q), self.k, self.v), again=False)

    @unittest.skipUnless(SERVES, "without the extension")
    def test_tensors_without_memory_of_their_own(self):
        """Each looks like q, of which a call was served."""
        q, k, v = self.q, self.k, self.v
        options = (False, None, "bhsd", False, None, None, False, 0.0, 0.0)
        self.served(lambda: attune.attention(q, k, v))
        self.assertIsNotNone(_calls._known_calls.forward(q, k, v, options, False))
        launches = len(self.library.launches)
        others = [q.to("meta"), q.to_sparse(), torch.nested.nested_tensor([q[0], q[1]]), torch._to_functional_tensor(q), q[:0],
                  FakeTensorMode().from_tensor(q)]
        for other in others:
            for each in ((other, k, v), (q, other, v), (q, k, other)):
                self.assertIsNone(_calls._known_calls.forward(*each, options, False))
        seen = []
        torch.func.vmap(lambda one: (seen.append(_calls._known_calls.forward(one, k, v, options, False)), one)[1])(q[None])
        torch.func.grad(lambda one: (seen.append(_calls._known_calls.forward(one, k, v, options, False)), one.sum())[1])(q)
        self.assertEqual(seen, [None, None])
        self.assertEqual(len(self.library.launches), launches)

    @unittest.skipUnless(SERVES, "without the extension")
    def test_modes_see_no_call_that_is_served(self):
        """Whoever watches operators gets one, however often the call was served before."""
        self.served(lambda: attune.attention(self.q, self.k, self.v))
        launches = len(self.library.launches)
        with FakeTensorMode(allow_non_fake_inputs=True):
            out = attune.attention(*tensors("cuda"))
            self.assertEqual(type(out).__name__, "FakeTensor")
        graph = make_fx(lambda q, k, v: attune.attention(q, k, v), tracing_mode="fake")(*(one.to("meta") for one in (self.q, self.k, self.v))).graph
        self.assertIn(torch.ops.attune_kernels.forward.default, [node.target for node in graph.nodes])
        self.assertEqual(len(self.library.launches), launches)

    def test_a_status_is_raised(self):
        for _ in range(2):
            self.library.status = -7
            with self.assertRaisesRegex(attune.AttuneError, "status -7 of a test") as raised:
                attune.attention(self.q, self.k, self.v)
            self.assertEqual(raised.exception.status, -7)
            self.library.status = 0
            attune.attention(self.q, self.k, self.v)

    def test_memory_is_filled_if_pytorch_is_to_fill_it(self):
        torch.use_deterministic_algorithms(True)
        self.addCleanup(torch.use_deterministic_algorithms, False)
        out, lse = self.served(lambda: attune.attention(self.q, self.k, self.v, return_lse=True))
        self.assertTrue(out.isnan().all() and lse.isnan().all())


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


class Comparison(unittest.TestCase):
    """What compare_with_torch.py holds outputs to."""

    def test_packed_sequences_are_held_to_each_alone(self):
        problem = problems.parse_problem("backward bf16 b5 hq4 hkv2 sq200 d64 causal packed")
        q, k, v, grad_out = inputs.make_inputs(torch, problem, 1, device="cpu")
        terms = inputs.terms_of(torch, problem, 1, "cpu")
        self.assertEqual(terms["cu_seqlens_q"].tolist()[-1], 200)
        self.assertTrue(torch.equal(inputs.as_seen(problem, inputs.as_attune_takes_it(problem, q)), q))
        out, lse, grads, first = torch.zeros_like(q), torch.zeros(q.shape[:3]), [torch.zeros_like(one) for one in (q, k, v)], 0
        for rows, _ in problem.sequence_lengths():
            here, first = slice(first, first + rows), first + rows
            leaves = [one[:, :, here].double().requires_grad_() for one in (q, k, v)]
            keys, values = (one.repeat_interleave(2, 1) for one in leaves[1:])
            scores = (problem.softmax_scale * leaves[0] @ keys.mT).masked_fill(torch.ones(rows, rows, dtype=torch.bool).triu(1), -torch.inf)
            exact = scores.softmax(-1) @ values
            out[:, :, here], lse[:, :, here] = exact.to(q.dtype), scores.logsumexp(-1).float()
            for grad, one in zip(grads, torch.autograd.grad(exact, leaves, grad_out[:, :, here].double())):
                grad[:, :, here] = one.to(q.dtype)
        of_output = packed.PackedReference(torch, problem, q, k, v, 1, terms)
        of_gradients = packed.PackedGradientReference(torch, problem, q, k, v, grad_out, terms)
        self.assertTrue(of_output.errors(out, lse, inputs.UNIT_NORMAL)["within"])
        self.assertTrue(of_gradients.errors(grads, inputs.UNIT_NORMAL)["within"])
        out[0, 0, 0] += 1
        grads[1][0, -1, -1] += 1
        self.assertFalse(of_output.errors(out, lse, inputs.UNIT_NORMAL)["within"])
        self.assertFalse(of_gradients.errors(grads, inputs.UNIT_NORMAL)["within"])

    def test_dropout_is_that_of_the_seed(self):
        problem = problems.parse_problem("backward bf16 b2 hq4 hkv2 sq70 d64 causal dropout0.3")
        q, k, v, grad_out = inputs.make_inputs(torch, problem, 1, device="cpu")
        terms = inputs.terms_of(torch, problem, 1, "cpu")
        leaves = [one.double().requires_grad_() for one in (q, k, v)]
        keys, values = (one.repeat_interleave(2, 1) for one in leaves[1:])
        scores = (problem.softmax_scale * leaves[0] @ keys.mT).masked_fill(torch.ones(70, 70, dtype=torch.bool).triu(1), -torch.inf)
        for state, is_right in (terms["dropout_state"], True), (terms["dropout_state"] + 1, False):
            kept = attune.dropout_mask(0.3, state, (2, 4, 70, 70)) / (1 - 0.3)
            exact = (scores.softmax(-1) * kept) @ values
            grads = [one.to(q.dtype) for one in torch.autograd.grad(exact, leaves, grad_out.double(), retain_graph=True)]
            found = (references.Reference(torch, problem, q, k, v, 1, terms).errors(exact.to(q.dtype), scores.logsumexp(-1).float(), inputs.UNIT_NORMAL),
                     references.GradientReference(torch, problem, q, k, v, grad_out, terms).errors(grads, inputs.UNIT_NORMAL))
            self.assertEqual([one["within"] for one in found], 2 * [is_right])


result = unittest.main(exit=False).result
failed, skipped = len({case.id().split(" ")[0] for case, _ in result.failures + result.errors}), len(result.skipped)
print(f"attune-tests: {result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
sys.exit(0 if result.wasSuccessful() else 1)

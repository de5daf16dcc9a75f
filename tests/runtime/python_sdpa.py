"""enable_sdpa() under masks, on the CPU: PyTorch's memory-efficient operator and cuDNN's with a bias, whose results and gradients are compared with
attention in double precision, and what goes on to PyTorch's own kernels.

usage: python_sdpa.py REPOSITORY LIBATTUNE

Ends as test_* programs do: a line "attune-tests: N passed, N failed, N skipped", exit status 77 where there is no PyTorch, or none whose
implementations can be asked for.
"""

import functools
import inspect
import os
import pathlib
import sys
import unittest
import unittest.mock

REPOSITORY, LIBRARY = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
os.environ.update(ATTUNE_LIBRARY=LIBRARY, CUDA_VISIBLE_DEVICES="")
sys.dont_write_bytecode = True
sys.path.insert(0, str(REPOSITORY / "bindings" / "python"))

try:
    import torch

    torch.library.get_kernel
except (ImportError, AttributeError):
    print("attune-tests: 0 passed, 0 failed, 1 skipped: PyTorch is not installed, or has no torch.library.get_kernel")
    sys.exit(77)

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import cpu_attention  # noqa: E402
import attune_kernels as attune  # noqa: E402
from attune_kernels import _library, _reasons, _sdpa, _sdpa_calls  # noqa: E402

cpu_attention.install()
FP16 = torch.float16
EFFICIENT, CUDNN = "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention"
INF = float("inf")


def normal(*shape, seed=0, dtype=FP16, grad=False):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).requires_grad_(grad)


def tensors(seq_q=21, seq_kv=37, heads=(4, 4), head_dim=8, batch=2, grad=True):
    return [normal(batch, number, seq, head_dim, seed=seed, grad=grad)
            for seed, (number, seq) in enumerate(((heads[0], seq_q), (heads[1], seq_kv), (heads[1], seq_kv)))]


def as_numbers(mask, dtype=FP16):
    """What PyTorch makes of a boolean mask."""
    return torch.where(mask, 0.0, -INF).to(dtype) if mask.dtype == torch.bool else mask


def by_efficient(q, k, v, mask=None, is_causal=False, scale=None):
    """scaled_dot_product_attention() where PyTorch takes its memory-efficient backend: rows of the mask begin at multiples of 16 elements, and it
    is expanded. Returns what the operator does."""
    if mask is not None:
        keys, mask = k.shape[2], as_numbers(mask)
        if any(stride % 16 for stride in mask.stride()[:-1]):
            mask = torch.nn.functional.pad(mask, (0, 16 - keys % 16))[..., :keys]
        mask = mask.expand(*q.shape[:3], keys)
    lse_is_wanted = torch.is_grad_enabled() and any(one.requires_grad for one in (q, k, v))
    return torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, mask, lse_is_wanted, 0.0, is_causal, scale=scale)


def by_cudnn(q, k, v, mask=None, is_causal=False, scale=None):
    return torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None if mask is None else as_numbers(mask), True, 0.0, is_causal, scale=scale)


def expected_attention(q, k, v, mask=None, is_causal=False, scale=None, kept=1):
    """In double precision, 0 where a query attends to nothing. kept: what each element of the softmax counts."""
    q, k, v = q.double(), *(one.double().repeat_interleave(q.shape[1] // one.shape[1], 1) for one in (k, v))
    scores = q @ k.transpose(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    unseen = cpu_attention.hidden(q.shape[2], k.shape[2], is_causal, True).expand(scores.shape)
    if mask is not None:
        unseen = unseen | (~mask if mask.dtype == torch.bool else mask == -INF)
        if mask.dtype != torch.bool:
            scores = scores + mask.double().masked_fill(mask == -INF, 0)
    blind = unseen.all(3, keepdim=True)
    return ((scores.masked_fill(unseen & ~blind, -INF).softmax(3) * kept) @ v).masked_fill(blind, 0)


def kept_by(seed, offset, shape, dropout_p):
    state = torch.stack([seed.view(torch.int64), offset.view(torch.int64)])
    return attune.dropout_mask(dropout_p, state, shape) / (1 - dropout_p)


def gradients(out, leaves):
    weights = torch.linspace(-1, 1, out.numel()).view(out.shape)
    return torch.autograd.grad((out.float() * weights).sum(), leaves)


def forget():
    """PyTorch's kernels alone, also for what would be on its way."""
    _sdpa_calls.has_drawn = False
    _sdpa._remove()


MASKS = {
    "a causal one": lambda: torch.ones(21, 37, dtype=torch.bool).tril(9),
    "padding": lambda: (torch.arange(37) < torch.tensor([30, 11])[:, None])[:, None, None],
    "each head": lambda: normal(1, 4, 21, 37, seed=9) > -0.5,
    "everything": lambda: normal(2, 4, 21, 37, seed=9) > -0.5,
    "numbers": lambda: normal(2, 1, 21, 37, seed=9),
    "numbers and -inf": lambda: normal(2, 1, 21, 37, seed=9).masked_fill(normal(2, 1, 21, 37, seed=8) > 0.5, -INF),
}


def allow_one_implementation_each(case):
    """PyTorch before 2.12 refuses a second one of an operator while the first one is there."""
    implement = torch.library.Library.impl
    if "allow_override" in inspect.signature(implement).parameters:
        patch = unittest.mock.patch.object(torch.library.Library, "impl", functools.partialmethod(implement, allow_override=False))
        patch.start()
        case.addCleanup(patch.stop)


class Masks(unittest.TestCase):
    def setUp(self):
        allow_one_implementation_each(self)
        self.originals, self.calls = torch._C._dispatch_library("IMPL", "aten", "CPU"), []
        for name, function in ((EFFICIENT, self.efficient), (f"{EFFICIENT}_backward", self.efficient_backward), (CUDNN, self.cudnn),
                               (f"{CUDNN}_backward", self.cudnn_backward)):
            self.originals.impl(name, "CPU", function, False)
        self.addCleanup(setattr, self, "originals", None)
        self.addCleanup(forget)
        _sdpa._install("CPU")
        _reasons.forget()
        cpu_attention.calls.clear()

    # What PyTorch's own kernels answer: something of the right shapes.

    def efficient(self, q, k, v, bias, wants_lse, dropout=0.0, is_causal=False, *, scale=None):
        self.calls.append((EFFICIENT, bias))
        scores = q.float() @ k.float().transpose(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale) + (0 if bias is None else bias.float())
        lse = torch.logsumexp(scores, 3)
        out = torch.exp(scores - lse.masked_fill(lse == -INF, 0)[..., None]) @ v.float()
        padded = torch.full((*lse.shape[:2], -(-lse.shape[2] // 32) * 32), INF)
        padded[..., :lse.shape[2]] = lse.masked_fill(lse == -INF, 0)
        return out.to(q.dtype), padded if wants_lse else torch.empty(*lse.shape[:2], 0), torch.tensor(1), torch.tensor(2)

    def efficient_backward(self, grad_out, q, k, v, bias, out, lse, seed, offset, dropout, wanted, is_causal=False, *, scale=None):
        self.calls.append((f"{EFFICIENT}_backward", lse))
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v), torch.zeros(bias.shape, dtype=bias.dtype) if wanted[3] else None

    def cudnn(self, q, *arguments, **options):
        self.calls.append((CUDNN, arguments[2]))
        return torch.zeros_like(q), torch.zeros(*q.shape[:3], 1), None, None, q.shape[2], arguments[0].shape[2], torch.tensor(1), torch.tensor(2), None

    def cudnn_backward(self, grad_out, q, k, v, *arguments, **options):
        self.calls.append((f"{CUDNN}_backward", None))
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)

    def served(self):
        """Which passes Attune has made since this was asked for."""
        made = [name for name, *_ in cpu_attention.calls]
        cpu_attention.calls.clear()
        return made

    def assert_close(self, results, expected):
        for number, (result, other) in enumerate(zip(results, expected, strict=True)):
            torch.testing.assert_close(result.double(), other.double(), atol=1e-2, rtol=1e-2, msg=lambda text: f"result {number}: {text}")

    def check(self, run, leaves, *, mask=None, **options):
        of_mask = [mask] if mask is not None and mask.requires_grad else []
        out = run(*leaves, mask, **options)[0]
        exact = expected_attention(*leaves, mask, **options)
        self.assert_close([out, *gradients(out, leaves + of_mask)], [exact, *gradients(exact, leaves + of_mask)])
        self.assertEqual((self.served(), self.calls), (["forward", "backward"], []))
        return out

    def test_masks_in_both_passes(self):
        for run in by_efficient, by_cudnn:
            for name, mask in MASKS.items():
                for scale in None, 0.7:
                    with self.subTest(run=run.__name__, mask=name, scale=scale), self.assertNoLogs("attune"):
                        self.check(run, tensors(), mask=mask(), scale=scale)

    def test_lengths_of_rows(self):
        """The last dimension of a mask is a part of one that is padded, or all of it."""
        for keys in 1, 8, 16, 32, 33, 48:
            with self.subTest(keys=keys):
                mask = normal(1, 1, 21, keys, seed=9) > -0.5
                self.check(by_efficient, tensors(seq_kv=keys), mask=mask)

    def test_gradients_of_masks(self):
        for shape in (21, 37), (1, 4, 21, 37), (2, 1, 1, 37), (2, 4, 21, 37), (1, 1, 21, 37):
            with self.subTest(shape=shape):
                self.check(by_efficient, tensors(), mask=normal(*shape, seed=9, grad=True))

    def test_gradients_of_elements_that_share_memory(self):
        """Those of a tensor that its owner has expanded, each of its own pair."""
        for mask in normal(1, 4, 21, 37, seed=9).expand(2, -1, -1, -1), normal(2, 1, 1, 37, seed=9).expand(-1, 4, 21, -1):
            self.check(by_efficient, tensors(), mask=mask.detach().requires_grad_())

    def test_a_mask_that_alone_requires_a_gradient(self):
        """PyTorch then asks forward for no LSE."""
        leaves, mask = tensors(grad=False), normal(1, 4, 21, 37, seed=9, grad=True)
        out, lse, *_ = by_efficient(*leaves, mask)
        self.assertEqual(lse.shape, (2, 4, 0))
        self.assert_close(gradients(out, [mask]), gradients(expected_attention(*leaves, mask), [mask]))
        self.assertEqual((self.served(), self.calls), (["forward", "forward", "backward"], []))

    def test_queries_of_which_everything_is_hidden(self):
        mask = torch.ones(2, 1, 21, 37, dtype=torch.bool)
        mask[0, :, 3:6] = False
        mask[1] = False
        for run in by_efficient, by_cudnn:
            leaves = tensors()
            out = self.check(run, leaves, mask=mask)
            of_q, *_ = gradients(run(*leaves, mask)[0], leaves)
            self.assertEqual([one.count_nonzero() for one in (out[0, :, 3:6], out[1], of_q[0, :, 3:6], of_q[1])], 4 * [0])
            self.served()
        _, lse, *_ = by_efficient(*leaves, mask)
        self.assertEqual(lse.shape, (2, 4, 32))
        self.assertTrue((lse[1, :, :21] == 0).all() and (lse[..., 21:] == INF).all() and (lse[0, :, :3] != 0).all())

    def test_causal_calls_begin_top_left(self):
        for lengths in (21, 37), (37, 21), (16, 16):
            for run in by_efficient, by_cudnn:
                with self.subTest(lengths=lengths, run=run.__name__), self.assertNoLogs("attune"):
                    self.check(run, tensors(*lengths), is_causal=True)

    def test_grouped_heads(self):
        for run in by_efficient, by_cudnn:
            self.check(run, tensors(heads=(4, 2)), mask=MASKS["each head"]())

    def test_results_lie_as_compiled_graphs_expect(self):
        """In shapes and strides that PyTorch gives to tensors without data."""
        layouts = [tensors(), [one.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for one in tensors()]]
        for leaves in layouts:
            for mask in None, normal(1, 4, 21, 37, seed=9, grad=True), normal(2, 4, 21, 37, seed=9, grad=True):
                described = []
                for mode in FakeTensorMode(), None:
                    q, k, v = leaves if mode is None else [mode.from_tensor(one) for one in leaves]
                    bias = None if mask is None else (mask if mode is None else mode.from_tensor(mask)).expand(2, 4, 21, 37)
                    results = torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, bias, True)
                    of_backward = (results[0].detach(), q, k, v, bias, *results, 0.0, [True, True, True, mask is not None])
                    grads = torch.ops.aten._scaled_dot_product_efficient_attention_backward(*of_backward)
                    described.append([None if one is None else (one.shape, one.stride(), one.dtype) for one in (*results, *grads)])
                self.assertEqual(*described)

    def test_what_is_not_served_goes_on_and_is_said_once(self):
        q, k, v = tensors()
        bias, wide = normal(2, 4, 21, 37, seed=9, grad=True), [one.detach().float().requires_grad_() for one in (q, k, v)]
        cases = [
            (EFFICIENT, (*wide, bias.detach().float().requires_grad_(), True), "torch.float32"),
            (EFFICIENT, (q, k, v.detach()[..., :4].requires_grad_(), bias, True), "another head_dim"),
        ]
        for name, arguments, words in cases:
            with self.subTest(name=name, words=words):
                _reasons.forget()
                self.calls.clear()
                with self.assertLogs("attune", "WARNING") as logged:
                    for _ in range(2):
                        out = getattr(torch.ops.aten, name)(*arguments)[0]
                        torch.autograd.grad(out, [one for one in arguments[:4] if one.requires_grad], torch.ones_like(out))
                self.assertEqual(len(logged.output), 1)
                self.assertRegex(logged.output[0], f"Attune does not serve .*{words}.*PyTorch's own kernels")
                self.assertEqual([called for called, _ in self.calls], 2 * [name, f"{name}_backward"])
                self.assertEqual(self.served(), [])

    @staticmethod
    def with_dropout(name, leaves, bias=None, dropout_p=0.3, is_causal=False):
        """(out, what each element of the softmax counts), of an operator of PyTorch."""
        results = getattr(torch.ops.aten, name)(*leaves, bias, True, dropout_p, is_causal)
        seed, offset = results[2:4] if name == EFFICIENT else results[6:8]
        return results[0], kept_by(seed, offset, (2, 4, 21, 37), dropout_p)

    def test_dropout(self):
        bias = normal(2, 4, 21, 37, seed=9)
        for name in EFFICIENT, CUDNN:
            for options in {}, {"is_causal": True}, {"bias": bias}, {"bias": bias, "dropout_p": 0.01}:
                with self.subTest(name=name, options=list(options)), self.assertNoLogs("attune"):
                    leaves = tensors()
                    out, kept = self.with_dropout(name, leaves, **options)
                    exact = expected_attention(*leaves, options.get("bias"), options.get("is_causal", False), kept=kept)
                    self.assert_close([out, *gradients(out, leaves)], [exact, *gradients(exact, leaves)])
                    self.assertEqual((self.served(), self.calls), (["forward", "backward"], []))
                    self.assertGreater((kept == 0).sum(), 0)

    def test_dropout_hangs_on_pytorchs_generator(self):
        def run(leaves):
            return self.with_dropout(EFFICIENT, leaves)[0]

        leaves = tensors()
        torch.manual_seed(3)
        first, second = run(leaves), run(leaves)
        torch.manual_seed(3)
        self.assertTrue(torch.equal(first, run(leaves)))
        self.assertFalse(torch.equal(first, second))
        torch.manual_seed(3)
        out = torch.utils.checkpoint.checkpoint(lambda *of: run(of), *leaves, use_reentrant=False)
        self.assert_close(gradients(out, leaves), gradients(first, leaves))

    def test_dropout_of_passes_by_different_kernels(self):
        """Turned on or off in between: backward is made by the kernels that made forward, also of tensors that were copied in between."""
        for name in EFFICIENT, CUDNN:
            _sdpa._remove()
            leaves = tensors()
            theirs = getattr(torch.ops.aten, name)(*leaves, None, True, 0.3)[0]
            _sdpa._install("CPU")
            gradients(theirs, leaves)
            self.assertEqual((self.served(), [called for called, _ in self.calls]), ([], [name, f"{name}_backward"]))
            with torch.autograd.graph.saved_tensors_hooks(lambda one: one.clone(), lambda one: one.clone()):
                copied, kept_of_copied = self.with_dropout(name, leaves)
            ours, kept = self.with_dropout(name, leaves)
            for is_twice in (False, True):
                _sdpa._remove()
                if is_twice:
                    _sdpa._install("CPU")
                    _sdpa._remove()
                for out, counted in (ours, kept), (copied, kept_of_copied):
                    found = torch.autograd.grad(out, leaves, torch.ones_like(out), retain_graph=True)
                    exact = expected_attention(*leaves, kept=counted)
                    self.assert_close(found, torch.autograd.grad(exact, leaves, torch.ones_like(exact)))
            self.assertEqual(self.served(), ["forward", "forward", *4 * ["backward"]])
            self.calls.clear()
            plain = getattr(torch.ops.aten, name)(*leaves, None, True, 0.0)[0]
            gradients(plain, leaves)
            self.assertEqual((self.served(), [called for called, _ in self.calls]), ([], [name, f"{name}_backward"]))
            self.calls.clear()
            _sdpa._install("CPU")

    def test_dropout_whose_backward_pass_is_not_served(self):
        """Then forward is not, either; and what a backward pass says of gradients is raised."""
        leaves = tensors()
        _sdpa_calls._refused.clear()
        with unittest.mock.patch.object(_library, "text_of", lambda *_: "a reason of a test"), self.assertLogs("attune", "WARNING") as logged:
            for _ in range(2):
                out = getattr(torch.ops.aten, EFFICIENT)(*leaves, None, True, 0.3)[0]
        self.assertEqual(len(logged.output), 1)
        self.assertRegex(logged.output[0], "a reason of a test; PyTorch's own kernels")
        gradients(out, leaves)
        self.assertEqual((self.served(), [called for called, _ in self.calls]), ([], [EFFICIENT, EFFICIENT, f"{EFFICIENT}_backward"]))
        _sdpa_calls._refused.clear()
        out, _ = self.with_dropout(EFFICIENT, leaves)
        with unittest.mock.patch.object(_sdpa_calls._calls, "backward", side_effect=ValueError("wrong in a test")):
            self.assertRaisesRegex(ValueError, "wrong in a test", gradients, out, leaves)

    def test_dropout_in_a_compiled_graph(self):
        leaves = tensors()

        @functools.partial(torch.compile, backend="aot_eager", fullgraph=True)
        def run(q, k, v):
            results = torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.3)
            return results[0]

        torch.manual_seed(5)
        out = run(*leaves)
        torch.manual_seed(5)
        eager, kept = self.with_dropout(EFFICIENT, leaves)
        self.assertTrue(torch.equal(out, eager))
        exact = expected_attention(*leaves, kept=kept)
        self.assert_close(gradients(out, leaves), gradients(exact, leaves))
        self.assertEqual(self.calls, [])

    def test_passes_by_different_kernels(self):
        """Turned on, or off, between forward and backward: LSE is of PyTorch's shape, with its numbers."""
        for mask in MASKS["numbers"](), torch.ones(2, 1, 21, 37, dtype=torch.bool).index_fill(2, torch.tensor([4]), False):
            leaves = tensors()
            _sdpa._remove()
            out, theirs, *_ = by_efficient(*leaves, mask)
            _sdpa._install("CPU")
            self.assert_close(gradients(out, leaves), gradients(expected_attention(*leaves, mask), leaves))
            self.assertEqual(self.served(), ["backward"])
            out, ours, *_ = by_efficient(*leaves, mask)
            torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
            _sdpa._remove()
            gradients(out, leaves)
            self.assertEqual(self.calls[-1][0], f"{EFFICIENT}_backward")
            torch.testing.assert_close(self.calls[-1][1], theirs, atol=1e-4, rtol=1e-4)
            _sdpa._install("CPU")
            self.served()


FLASH_PACKED, CUDNN_PACKED = "_flash_attention_forward", "_cudnn_attention_forward"
BEGINS = torch.tensor([0, 7, 7, 8, 21], dtype=torch.int32)
OF_KEYS = torch.tensor([0, 5, 9, 9, 37], dtype=torch.int32)


def packed(heads=(4, 2), head_dim=8, grad=True, tokens=(21, 37)):
    return [normal(rows, number, head_dim, seed=seed, grad=grad) for seed, (number, rows) in enumerate(((heads[0], tokens[0]), (heads[1], tokens[1]), (heads[1], tokens[1])))]


def by_flash(q, k, v, begins, of_keys, is_causal=False, scale=None, **options):
    """Returns what the operator does."""
    return torch.ops.aten._flash_attention_forward(q, k, v, begins, of_keys, 20, 30, 0.0, is_causal, False, scale=scale, **options)


def by_packed_cudnn(q, k, v, begins, of_keys, is_causal=False, scale=None, **options):
    return torch.ops.aten._cudnn_attention_forward(q, k, v, None, begins, of_keys, 20, 30, True, 0.0, is_causal, False, scale=scale, **options)


def expected_of_packed(q, k, v, begins, of_keys, hidden, scale=None, kept=None):
    """Each sequence alone, in double precision. hidden: of its numbers of queries and keys, which keys a query does not see."""
    parts = []
    for sequence, (query, end, key, last) in enumerate(zip(begins, begins[1:], of_keys, of_keys[1:])):
        group = q.shape[1] // k.shape[1]
        one, keys, values = (tensor.double().transpose(0, 1) for tensor in (q[query:end], *(of[key:last].repeat_interleave(group, 1) for of in (k, v))))
        scores = one @ keys.transpose(1, 2) * (q.shape[2] ** -0.5 if scale is None else scale)
        unseen = hidden(end - query, last - key).expand(scores.shape)
        blind = unseen.all(2, keepdim=True)
        counted = 1 if kept is None else kept[sequence, :, :end - query, :last - key]
        parts.append(((scores.masked_fill(unseen & ~blind, -INF).softmax(2) * counted) @ values).masked_fill(blind, 0).transpose(0, 1) if last > key else
                     (one * 0).transpose(0, 1))
    return torch.cat(parts)


class PackedSequences(unittest.TestCase):
    def setUp(self):
        allow_one_implementation_each(self)
        self.originals, self.calls = torch._C._dispatch_library("IMPL", "aten", "CPU"), []
        for name in FLASH_PACKED, "_flash_attention_backward", CUDNN_PACKED, "_cudnn_attention_backward":
            self.originals.impl(name, "CPU", functools.partial(self.original, name), False)
        self.addCleanup(setattr, self, "originals", None)
        self.addCleanup(forget)
        _sdpa._install("CPU")
        _reasons.forget()
        cpu_attention.calls.clear()

    def original(self, name, q, *arguments, **options):
        """What PyTorch's own kernels answer: something of the right number."""
        self.calls.append(name)
        if name == "into":
            return torch.zeros(q.shape[1], q.shape[0])
        if name.endswith("backward"):
            return tuple(torch.zeros_like(one) for one in arguments[:3])
        state = torch.zeros(2, dtype=torch.uint64), torch.zeros((), dtype=torch.uint64)
        lse = torch.zeros(q.shape[1], q.shape[0])
        return (torch.zeros_like(q), lse, *state, q.new_empty(0)) if "flash" in name else (
            torch.zeros_like(q), lse, None, None, 1, 1, torch.tensor(1), torch.tensor(2), None)

    def check(self, run, hidden, begins=BEGINS, of_keys=OF_KEYS, scale=None, **options):
        leaves = packed()
        cpu_attention.calls.clear()
        out, lse, *_ = run(*leaves, begins, of_keys, scale=scale, **options)
        exact = expected_of_packed(*leaves, begins.tolist(), of_keys.tolist(), hidden, scale)
        for result, other in zip([out, *gradients(out, leaves)], [exact, *gradients(exact, leaves)], strict=True):
            torch.testing.assert_close(result.double(), other.double(), atol=1e-2, rtol=1e-2)
        made = [name for name, *_ in cpu_attention.calls]
        self.assertEqual((lse.shape, made[0], set(made), self.calls), ((4, 21), "forward", {"forward", "backward"}, []))

    def test_both_passes(self):
        def nothing(queries, keys):
            return torch.zeros(queries, keys, dtype=torch.bool)

        def bottom_right(queries, keys):
            return cpu_attention.hidden(queries, keys, True, False)

        def top_left(queries, keys):
            return cpu_attention.hidden(queries, keys, True, True)

        def window(queries, keys):
            return cpu_attention.hidden(queries, keys, False, False, (3, 2))

        with self.assertNoLogs("attune"):
            for run in by_flash, by_packed_cudnn:
                self.check(run, nothing, scale=0.7)
            self.check(by_flash, bottom_right, is_causal=True)
            self.check(by_flash, bottom_right, window_size_left=-1, window_size_right=0)
            self.check(by_flash, window, window_size_left=3, window_size_right=2)
            self.check(by_packed_cudnn, top_left, is_causal=True)

    def test_dropout(self):
        shape, p = (4, 4, 13, 28), 0.3
        for name in FLASH_PACKED, CUDNN_PACKED:
            leaves = packed()
            if name == FLASH_PACKED:
                out, _, state, *_ = torch.ops.aten._flash_attention_forward(*leaves, BEGINS, OF_KEYS, 13, 28, p, False, False)
                kept = kept_by(*(state.unbind()), shape, p)
            else:
                results = torch.ops.aten._cudnn_attention_forward(*leaves, None, BEGINS, OF_KEYS, 13, 28, True, p)
                out, kept = results[0], kept_by(*results[6:8], shape, p)
            _sdpa._remove()
            exact = expected_of_packed(*leaves, BEGINS.tolist(), OF_KEYS.tolist(), lambda *lengths: torch.zeros(lengths, dtype=torch.bool), kept=kept)
            for result, other in zip([out, *gradients(out, leaves)], [exact, *gradients(exact, leaves)], strict=True):
                torch.testing.assert_close(result.double(), other.double(), atol=1e-2, rtol=1e-2)
            self.assertEqual(self.calls, [])
            _sdpa._install("CPU")

    def test_results_in_a_tensor_that_is_given(self):
        if not hasattr(torch.ops.aten, "_flash_attention_forward_no_dropout_inplace"):
            self.skipTest("PyTorch has no such operator")
        self.originals.impl("_flash_attention_forward_no_dropout_inplace", "CPU", functools.partial(self.original, "into"), False)
        _sdpa._remove()
        _sdpa._install("CPU")
        leaves = packed(grad=False)
        out = torch.full_like(leaves[0], torch.nan)
        lse = torch.ops.aten._flash_attention_forward_no_dropout_inplace(out, *leaves, BEGINS, OF_KEYS, 20, 30, 0.0, False, False)
        expected, of_rows, *_ = by_flash(*leaves, BEGINS, OF_KEYS)
        torch.testing.assert_close((out, lse), (expected, of_rows))
        self.assertEqual(self.calls, [])

    def test_varlen_attn(self):
        try:
            from torch.nn.attention.varlen import varlen_attn
        except ImportError:
            self.skipTest("PyTorch has no varlen_attn")
        q, k, v = (one.detach().requires_grad_() for one in packed(heads=(4, 4)))
        out = varlen_attn(q, k, v, BEGINS, OF_KEYS, 20, 30, window_size=(-1, 0))
        exact = expected_of_packed(q, k, v, BEGINS.tolist(), OF_KEYS.tolist(), lambda *lengths: cpu_attention.hidden(*lengths, True, False))
        for result, other in zip([out, *gradients(out, [q, k, v])], [exact, *gradients(exact, [q, k, v])], strict=True):
            torch.testing.assert_close(result.double(), other.double(), atol=1e-2, rtol=1e-2)
        self.assertEqual(self.calls, [])

    def test_what_is_not_served_goes_on_and_is_said_once(self):
        q, k, v = packed()
        lengths, table, slopes = torch.tensor([1, 1, 0, 4], dtype=torch.int32), torch.zeros(4, 1, dtype=torch.int32), torch.zeros(4)
        dense = [one.detach()[None] for one in (q, k, v)]
        options = dict(scale=None)
        cases = [
            ("a cache of keys and values", lambda: by_flash(q, k, v, BEGINS, OF_KEYS, seqused_k=lengths, block_table=table)),
            ("alibi_slopes", lambda: by_flash(q, k, v, BEGINS, OF_KEYS, alibi_slopes=slopes)),
            ("a mask", lambda: torch.ops.aten._cudnn_attention_forward(q.detach(), k.detach(), v.detach(), torch.zeros(4, 1, 1, 1), BEGINS, OF_KEYS, 20, 30, True)),
        ]
        for words, call in cases:
            with self.subTest(words=words):
                _reasons.forget()
                self.calls.clear()
                with self.assertLogs("attune", "WARNING") as logged:
                    call(), call()
                self.assertEqual((len(logged.output), len(self.calls)), (1, 2))
                self.assertRegex(logged.output[0], f"Attune does not serve .*({words}).*PyTorch's own kernels")
        self.calls.clear()
        with self.assertNoLogs("attune"):
            by_flash(*dense, None, None, **options)
        self.assertEqual(self.calls, [FLASH_PACKED])
        self.calls.clear()
        result = by_flash(q.detach(), k.detach(), v.detach(), BEGINS, OF_KEYS, seqused_k=lengths)[0]
        self.assertEqual((result.shape, self.calls), (q.shape, []))


result = unittest.main(exit=False).result
failed, skipped = len({case.id().split(" ")[0] for case, _ in result.failures + result.errors}), len(result.skipped)
print(f"attune-tests: {result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
sys.exit(0 if result.wasSuccessful() else 1)

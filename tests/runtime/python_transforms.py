"""attention() under PyTorch's transforms: batches of gradients, torch.func, Jacobians; and packed sequences. Each result is compared with that of attention
written in PyTorch's operations, on the CPU.

usage: python_transforms.py REPOSITORY LIBATTUNE

Ends as test_* programs do: a line "attune-tests: N passed, N failed, N skipped", exit status 77 where there is no PyTorch.
"""

import concurrent.futures
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
except ImportError:
    print("attune-tests: 0 passed, 0 failed, 1 skipped: PyTorch is not installed")
    sys.exit(77)

import attune_kernels as attune  # noqa: E402
from attune_kernels import _drop_in, _ops, flash_attn, flash_attn_interface  # noqa: E402
import cpu_attention  # noqa: E402

cpu_attention.install()
func = torch.func


def attention(q, k, v, return_lse=False):
    return attune.attention(q, k, v, causal=True, return_lse=return_lse)


def expected_attention(q, k, v, return_lse=False):
    group = q.shape[-3] // k.shape[-3]
    k, v = k.repeat_interleave(group, -3), v.repeat_interleave(group, -3)
    scores = (q.float() @ k.float().transpose(-1, -2) * q.shape[-1] ** -0.5)
    scores = scores.masked_fill(cpu_attention.hidden(q.shape[-2], k.shape[-2], True), -torch.inf)
    out = (torch.softmax(scores, -1) @ v.float()).to(q.dtype)
    return (out, torch.logsumexp(scores, -1)) if return_lse else out


def flat(results):
    return [results] if isinstance(results, torch.Tensor) else [one for result in results for one in flat(result)]


@unittest.skipUnless(hasattr(torch.library, "register_vmap"), "PyTorch 2.5 is the first with rules for torch.vmap")
class Transforms(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.leaves = [torch.randn(1, heads, length, 8, dtype=torch.float16, requires_grad=True) for heads, length in ((4, 3), (2, 5), (2, 5))]
        self.values = [leaf.detach() for leaf in self.leaves]

    def check(self, function):
        """function(attention) computes the same with both."""
        for one, other in zip(flat(function(attention)), flat(function(expected_attention)), strict=True):
            self.assertEqual((one.shape, one.dtype), (other.shape, other.dtype))
            torch.testing.assert_close(one.float(), other.float(), atol=1e-2, rtol=1e-2)

    def test_batches_of_gradients(self):
        for wanted in ("out",), ("out", "lse"), ("lse",), ("no lse",):
            with self.subTest(wanted=wanted):
                def gradients(of):
                    results = dict(zip(("out", "lse"), of(*self.leaves, True))) if "no lse" not in wanted else {"no lse": of(*self.leaves)}
                    outputs = [results[name] for name in wanted]
                    generator = torch.Generator().manual_seed(1)
                    batch = [torch.randn(3, *one.shape, generator=generator).to(one.dtype) for one in outputs]
                    found = torch.autograd.grad(outputs, self.leaves, batch, is_grads_batched=True, allow_unused=True)
                    return [torch.zeros(3, *leaf.shape, dtype=leaf.dtype) if one is None else one for one, leaf in zip(found, self.leaves)]

                self.check(gradients)

    def test_a_batch_of_gradients_is_one_launch(self):
        out, lse = attention(*self.leaves, True)
        cpu_attention.calls.clear()
        batch = [torch.ones(3, *one.shape, dtype=one.dtype) for one in (out, lse)]
        torch.autograd.grad((out, lse), self.leaves, batch, is_grads_batched=True)
        self.assertEqual([(name, q) for name, q, *_ in cpu_attention.calls], [("backward", (3, 4, 3, 8))])

    def test_a_batch_in_another_thread(self):
        """As autograd computes gradients on a GPU: a thread knows nothing of the batches that another has made."""
        results = attention(*self.leaves, True)
        batch = [torch.stack([one.detach(), -one.detach(), 2 * one.detach()]) for one in results]
        expected = torch.autograd.grad(results, self.leaves, batch, is_grads_batched=True, retain_graph=True)
        own = _ops.backward
        with concurrent.futures.ThreadPoolExecutor(1) as pool, \
                unittest.mock.patch.object(_ops, "backward", lambda *arguments: pool.submit(own, *arguments).result()):
            found = torch.autograd.grad(results, self.leaves, batch, is_grads_batched=True)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, atol=0, rtol=0)

    def test_gradients_in_a_graph(self):
        """torch.compile traces backward(), which asks whether gradients are a batch."""
        def gradients(q, k, v):
            out, lse = attention(q, k, v, True)
            return attune.backward(out, q, k, v, out, lse, causal=True)

        for one, other in zip(torch.compile(gradients, fullgraph=True, backend="eager")(*self.values), gradients(*self.values), strict=True):
            torch.testing.assert_close(one, other, atol=0, rtol=0)

    def test_jacobians(self):
        for arguments in 0, 1, 2, (0, 1, 2):
            for return_lse in False, True:
                with self.subTest(arguments=arguments, return_lse=return_lse):
                    self.check(lambda of: func.jacrev(lambda *each: of(*each, return_lse), argnums=arguments)(*self.values))
        self.check(lambda of: func.jacrev(of, chunk_size=5)(*self.values))
        self.check(lambda of: func.vmap(func.jacrev(of))(*(torch.stack([one, one / 2]) for one in self.values)))
        for vectorize in False, True:
            self.check(lambda of: torch.autograd.functional.jacobian(of, tuple(self.leaves), vectorize=vectorize))

    def test_gradients_and_maps(self):
        def loss(of):
            return lambda *each: of(*each).float().square().sum()

        self.check(lambda of: func.grad(loss(of), argnums=(0, 1, 2))(*self.values))
        self.check(lambda of: func.vjp(of, *self.values)[1](torch.ones_like(self.values[0])))
        stacked = [torch.stack([one, one / 2]) for one in self.values]
        self.check(lambda of: func.vmap(func.grad(loss(of), argnums=(0, 1, 2)))(*stacked))
        self.check(lambda of: func.vmap(func.vmap(lambda *each: of(*each, True)))(*(torch.stack([one, one, one]) for one in stacked)))
        apart = [torch.stack([self.values[0]] * 3, 2), torch.stack([self.values[1]] * 3), self.values[2]]
        self.check(lambda of: func.vmap(lambda *each: of(*each, True), in_dims=(2, 0, None))(*apart))

    def test_what_is_refused(self):
        q, k, v = self.values

        def of_q(one):
            return attention(one, k, v).float().sum()

        for words, call in [("no forward-mode derivative", lambda: func.jacfwd(of_q)(q)), ("no forward-mode derivative", lambda: func.hessian(of_q)(q)),
                            ("differentiable once", lambda: func.jacrev(func.jacrev(of_q))(q)),
                            ("differentiable once", lambda: func.grad(lambda one: func.grad(of_q)(one).sum())(q))]:
            with self.assertRaisesRegex(NotImplementedError, words):
                call()


@unittest.skipUnless(hasattr(torch.library, "register_vmap"), "PyTorch 2.5 is the first with rules for torch.vmap")
class WithUsedLengths(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.values = [torch.randn(3, heads, length, 8, dtype=torch.float16) for heads, length in ((4, 6), (2, 9), (2, 9))]
        self.used = {"seqused_q": torch.tensor([4, 6, 0], dtype=torch.int32), "seqused_kv": torch.tensor([9, 5, 3], dtype=torch.int32)}

    def alone(self, q, k, v, batch):
        rows, keys = (self.used[name][batch] for name in ("seqused_q", "seqused_kv"))
        return attune.attention(q[batch:batch + 1, :, :rows], k[batch:batch + 1, :, :keys], v[batch:batch + 1, :, :keys], causal=True)

    def test_each_sequence_is_as_it_is_alone(self):
        for values in (self.values, [value.clone() for value in self.values]):
            leaves = [value.clone().requires_grad_() for value in values]
            out = attune.attention(*leaves, causal=True, **self.used)
            gradients = torch.autograd.grad(out.float().square().sum(), leaves)
            for batch in range(2):
                rows, keys = (int(self.used[name][batch]) for name in ("seqused_q", "seqused_kv"))
                others = [value.clone().requires_grad_() for value in values]
                expected = self.alone(*others, batch)
                torch.testing.assert_close(out[batch:batch + 1, :, :rows], expected)
                self.assertEqual(out[batch, :, rows:].abs().sum().item(), 0)
                wanted = torch.autograd.grad(expected.float().square().sum(), others)
                for one, other, length in zip(gradients, wanted, (rows, keys, keys)):
                    torch.testing.assert_close(one[batch, :, :length], other[batch, :, :length], atol=1e-2, rtol=1e-2)
                    self.assertEqual(one[batch, :, length:].abs().sum().item(), 0)
            self.assertTrue(all(one[2].abs().sum().item() == 0 for one in (out, *gradients)))

    def test_vmap_and_grad(self):
        def loss(q, k, v):
            return attune.attention(q, k, v, causal=True, **self.used).float().square().sum()

        one = func.grad(loss, (0, 1, 2))(*self.values)
        leaves = [value.clone().requires_grad_() for value in self.values]
        for of_func, of_tape in zip(one, torch.autograd.grad(loss(*leaves), leaves)):
            torch.testing.assert_close(of_func, of_tape)
        many = torch.vmap(lambda q: attune.attention(q, *self.values[1:], causal=True, **self.used))(self.values[0].expand(2, -1, -1, -1, -1))
        torch.testing.assert_close(many[1], attune.attention(*self.values, causal=True, **self.used))


@unittest.skipUnless(hasattr(torch.library, "register_vmap"), "PyTorch 2.5 is the first with rules for torch.vmap")
class WithSlopes(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.values = [torch.randn(2, heads, length, 8, dtype=torch.float16) for heads, length in ((4, 6), (2, 9), (2, 9))]
        self.slopes = torch.tensor([[0.5, 0.1, 0.0, 1.0], [0.3, 0.2, 0.7, 0.0]])

    def expected(self, q, k, v, slopes):
        distance = (torch.arange(6)[:, None] + 3 - torch.arange(9)).abs()
        bias = -slopes.expand(2, 4)[:, :, None, None] * distance
        k, v = (one.repeat_interleave(2, 1) for one in (k, v))
        return torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), attn_mask=bias)

    def test_values_and_gradients_of_each_head_and_batch_entry(self):
        torch._dynamo.reset()  # few kinds of calls are compiled anew before it gives up
        for slopes in self.slopes, self.slopes[0], self.slopes.half(), self.slopes.mT.contiguous().mT:
            for function in (attune.attention, torch.compile(attune.attention, backend="aot_eager", fullgraph=True)):
                leaves, others = ([value.clone().requires_grad_() for value in self.values] for _ in range(2))
                out, expected = function(*leaves, alibi_slopes=slopes), self.expected(*others, slopes.float())
                torch.testing.assert_close(out.float(), expected, atol=2e-3, rtol=2e-3)
                for one, other in zip(*(torch.autograd.grad(each.float().square().sum(), of) for each, of in ((out, leaves), (expected, others)))):
                    torch.testing.assert_close(one, other, atol=1e-2, rtol=1e-2)

    def test_vmap_over_slopes(self):
        many = torch.stack([self.slopes, self.slopes + 1])
        out = torch.vmap(lambda slopes: attune.attention(*self.values, alibi_slopes=slopes))(many)
        torch.testing.assert_close(out[1], attune.attention(*self.values, alibi_slopes=many[1]))

    def test_tensors_of_pairs(self):
        torch._dynamo.reset()
        torch.manual_seed(3)
        bias = torch.randn(1, 4, 6, 9).masked_fill(torch.rand(1, 4, 6, 9) < 0.1, -torch.inf)
        for terms in (dict(bias=bias), dict(bias=bias.half()[0]), dict(bias=torch.randn(6, 9)), dict(attention_mask=torch.rand(2, 1, 1, 9) < 0.8),
                      dict(bias=bias.mT.contiguous().mT, attention_mask=torch.rand(6, 9) < 0.8)):
            for function in (attune.attention, torch.compile(attune.attention, backend="aot_eager", fullgraph=True)):
                leaves, others = ([value.clone().requires_grad_() for value in self.values] for _ in range(2))
                out = function(*leaves, **terms)
                mask = terms.get("bias", torch.zeros(())).float()
                if "attention_mask" in terms:
                    mask = torch.where(terms["attention_mask"], mask, -torch.inf)
                q, k, v = others
                expected = torch.nn.functional.scaled_dot_product_attention(
                    q.float(), k.float().repeat_interleave(2, 1), v.float().repeat_interleave(2, 1), attn_mask=mask)
                torch.testing.assert_close(out.float(), expected, atol=2e-3, rtol=2e-3)
                for one, other in zip(*(torch.autograd.grad(each.float().square().sum(), of) for each, of in ((out, leaves), (expected, others)))):
                    torch.testing.assert_close(one, other, atol=1e-2, rtol=1e-2)

    def test_a_bias_that_requires_a_gradient(self):
        torch._dynamo.reset()
        torch.manual_seed(4)
        for shape in (2, 4, 6, 9), (4, 6, 9), (2, 1, 1, 9), (6, 9):
            given = torch.randn(shape)
            for function in (attune.attention, torch.compile(attune.attention, backend="aot_eager", fullgraph=True)):
                bias, other = (given.clone().requires_grad_() for _ in range(2))
                for one in bias, bias.expand(2, 4, 6, 9):  # what it repeats along is summed over in either case
                    q, k, v = self.values
                    out = function(q, k, v, bias=one)
                    expected = torch.nn.functional.scaled_dot_product_attention(
                        q.float(), k.float().repeat_interleave(2, 1), v.float().repeat_interleave(2, 1), attn_mask=other)
                    gradients = [torch.autograd.grad(each.float().square().sum(), of) for each, of in ((out, bias), (expected, other))]
                    self.assertEqual(gradients[0][0].shape, bias.shape)
                    torch.testing.assert_close(*gradients, atol=1e-2, rtol=1e-2)

    def test_packed_sequences(self):
        torch._dynamo.reset()
        torch.manual_seed(5)
        q, k, v = (torch.randn(20, heads, 8, dtype=torch.float16) for heads in (4, 2, 2))
        begins = torch.tensor([0, 7, 7, 8, 20], dtype=torch.int32)
        for function in (attune.attention, torch.compile(attune.attention, backend="aot_eager", fullgraph=True)):
            for layout in "bshd", "bhsd":
                given = [one if layout == "bshd" else one.transpose(0, 1).contiguous() for one in (q, k, v)]
                out, lse = function(*given, layout=layout, causal=True, cu_seqlens_q=begins, cu_seqlens_kv=begins, return_lse=True)
                self.assertEqual((out.shape, lse.shape), (given[0].shape, (4, 20)))
                for begin, end in (0, 7), (7, 8), (8, 20):
                    alone = [one[None, begin:end] for one in (q, k, v)]
                    expected, of_rows = attune.attention(*alone, layout="bshd", causal=True, return_lse=True)
                    ours = out[begin:end] if layout == "bshd" else out[:, begin:end].transpose(0, 1)
                    torch.testing.assert_close(ours, expected[0])
                    torch.testing.assert_close(lse[:, begin:end], of_rows[0])
        result = torch.empty_like(q)
        attune.attention(q, k, v, layout="bshd", causal=True, cu_seqlens_q=begins, cu_seqlens_kv=begins, out=result)
        torch.testing.assert_close(result, out.transpose(0, 1))
        given = dict(layout="bshd", cu_seqlens_q=begins, cu_seqlens_kv=begins)
        with self.assertRaisesRegex(ValueError, "cannot be differentiated"):
            attune.attention(q.clone().requires_grad_(), k, v, out=result, **given)
        with self.assertRaisesRegex(NotImplementedError, "transforms of torch.func"):
            torch.vmap(lambda one: attune.attention(one, k, v, **given))(torch.stack([q.detach()] * 2))

    def test_padding_is_taken_off_and_put_back(self):
        with attune.provide_flash_attn():
            from flash_attn.bert_padding import index_first_axis, pad_input, unpad_input

            torch.manual_seed(1)
            mask = torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]])
            tensor = torch.randn(3, 4, 2, 5, requires_grad=True)
            rows, indices, begins, most, lengths = unpad_input(tensor, mask)
            self.assertEqual((rows.shape, indices.tolist(), begins.tolist(), most, lengths.tolist()), ((4, 2, 5), [0, 1, 3, 8], [0, 3, 3, 4], 3, [3, 0, 1]))
            back = pad_input(rows, indices, 3, 4)
            torch.testing.assert_close(back, tensor * mask[..., None, None])
            back.square().sum().backward()
            torch.testing.assert_close(tensor.grad, 2 * tensor.detach() * mask[..., None, None])
            _, indices, begins, _, lengths = unpad_input(tensor, mask, torch.tensor([[0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]))
            self.assertEqual((indices.tolist(), begins.tolist(), begins.dtype, lengths.tolist()), ([0, 1, 2, 3, 5, 8], [0, 4, 5, 6], torch.int32, [3, 0, 1]))
            torch.testing.assert_close(index_first_axis(tensor.flatten(0, 1), indices), tensor.flatten(0, 1)[indices])

    def test_compiled_programs_of_flash_attn_with_packed_sequences(self):
        torch._dynamo.reset()
        torch.manual_seed(7)
        begins = torch.tensor([0, 5, 18, 30], dtype=torch.int32)
        # But for the device, which is another one here.
        with unittest.mock.patch.object(_drop_in, "_check", lambda q, k, v, begins: (q.shape[-1], begins[0].shape[0] - 1)):
            for module in flash_attn, flash_attn_interface:
                results = []
                for function in module.flash_attn_varlen_func, torch.compile(module.flash_attn_varlen_func, fullgraph=True, backend="aot_eager"):
                    leaves = [torch.randn(30, heads, 64, dtype=torch.bfloat16, generator=torch.Generator().manual_seed(heads)).requires_grad_() for heads in (4, 2, 2)]
                    out = function(*leaves, begins, begins, 13, 13, causal=True)
                    results.append([out, *torch.autograd.grad(out.float().square().sum(), leaves)])
                for one, other in zip(*results, strict=True):
                    torch.testing.assert_close(one, other, atol=0, rtol=0)

    def test_gradients_of_packed_sequences(self):
        torch._dynamo.reset()
        torch.manual_seed(6)
        begins = torch.tensor([0, 7, 7, 8, 20], dtype=torch.int32)
        for function in (attune.attention, torch.compile(attune.attention, backend="aot_eager", fullgraph=True)):
            for layout in "bshd", "bhsd":
                tensors = [torch.randn(20, heads, 8, dtype=torch.float16, requires_grad=True) for heads in (4, 2, 2)]
                sinks = torch.randn(4, requires_grad=True)
                given = [one if layout == "bshd" else one.transpose(0, 1) for one in tensors]
                out, lse = function(*given, layout=layout, causal=True, cu_seqlens_q=begins, cu_seqlens_kv=begins, sinks=sinks, return_lse=True)
                out = out if layout == "bshd" else out.transpose(0, 1)
                grad_out, grad_lse = torch.randn_like(out), torch.randn_like(lse)
                ours = torch.autograd.grad((out, lse), (*tensors, sinks), (grad_out, grad_lse))
                alone, of_alone = [], []
                for begin, end in (0, 7), (7, 8), (8, 20):
                    results = attune.attention(*(one[None, begin:end] for one in tensors), layout="bshd", causal=True, sinks=sinks, return_lse=True)
                    alone += results
                    of_alone += grad_out[None, begin:end], grad_lse[None, :, begin:end]
                expected = torch.autograd.grad(alone, (*tensors, sinks), of_alone)
                for mine, one in zip(ours, expected, strict=True):
                    torch.testing.assert_close(mine, one, atol=2e-3, rtol=2e-3)
        with torch.no_grad():
            q, k, v = given
            arguments = [grad_out if layout == "bshd" else grad_out.transpose(0, 1).contiguous(), q, k, v, out if layout == "bshd" else out.transpose(0, 1), lse]
            options = dict(layout=layout, causal=True, cu_seqlens_q=begins, cu_seqlens_kv=begins, sinks=sinks)
            found = attune.backward(*arguments, grad_lse=grad_lse, **options)
            for mine, one in zip(found, ours, strict=True):
                torch.testing.assert_close(mine.transpose(0, 1) if mine.dim() == 3 and layout == "bhsd" else mine, one, atol=2e-3, rtol=2e-3)
            grads = [torch.full_like(one, torch.nan) for one in (q, k, v, sinks)]
            self.assertIs(attune.backward(*arguments, grad_lse=grad_lse, grads=grads, **options), grads)
            for mine, one in zip(grads[:3], found):
                torch.testing.assert_close(mine, one)

    def test_tensors_of_pairs_of_packed_sequences(self):
        torch._dynamo.reset()
        torch.manual_seed(8)
        begins = torch.tensor([0, 7, 7, 8, 20], dtype=torch.int32)
        tensors = [torch.randn(20, heads, 8, dtype=torch.float16, requires_grad=True) for heads in (4, 2, 2)]
        given = dict(layout="bshd", causal=True, cu_seqlens_q=begins, cu_seqlens_kv=begins)
        mask = torch.rand(4, 1, 12, 12) < 0.8
        for shape in (4, 4, 12, 12), (1, 4, 12, 12), (12, 12), (4, 1, 1, 12):
            bias = torch.randn(shape, requires_grad=True)
            alone = []
            for sequence, (begin, end) in enumerate(((0, 7), (7, 7), (7, 8), (8, 20))):
                if begin == end:
                    continue
                pairs = {"bias": cpu_attention.pairs_of_sequence(bias, sequence, end - begin, end - begin),
                         "attention_mask": cpu_attention.pairs_of_sequence(mask, sequence, end - begin, end - begin)}
                alone.append(attune.attention(*(one[None, begin:end] for one in tensors), layout="bshd", causal=True, **pairs)[0])
            expected = torch.cat(alone)
            of_expected = torch.autograd.grad(expected.float().square().sum(), (*tensors, bias))
            for function in (attune.attention, torch.compile(attune.attention, backend="aot_eager", fullgraph=True)):
                out = function(*tensors, bias=bias, attention_mask=mask, **given)
                torch.testing.assert_close(out, expected)
                for mine, one in zip(torch.autograd.grad(out.float().square().sum(), (*tensors, bias)), of_expected, strict=True):
                    torch.testing.assert_close(mine, one, atol=3e-3, rtol=3e-3)

    def test_slopes_get_no_gradient_and_say_so(self):
        with self.assertRaisesRegex(ValueError, "alibi_slopes requires a gradient, and slopes get none: pass alibi_slopes.detach()"):
            attune.attention(*self.values, alibi_slopes=self.slopes.clone().requires_grad_())
        with torch.no_grad():
            attune.attention(*self.values, alibi_slopes=self.slopes.clone().requires_grad_())


@unittest.skipUnless(hasattr(torch.library, "register_vmap"), "PyTorch 2.5 is the first with rules for torch.vmap")
class WithSinks(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.values = [torch.randn(1, heads, length, 8, dtype=torch.float16) for heads, length in ((4, 3), (2, 5), (2, 5))]
        self.values.append(torch.tensor([0.0, 1.0, -1.0, 2.0]))

    @staticmethod
    def ours(q, k, v, sinks, return_lse=False):
        return attune.attention(q, k, v, causal=True, return_lse=return_lse, sinks=sinks)

    @staticmethod
    def expected(q, k, v, sinks, return_lse=False):
        group = q.shape[-3] // k.shape[-3]
        k, v = k.repeat_interleave(group, -3), v.repeat_interleave(group, -3)
        scores = (q.float() @ k.float().transpose(-1, -2) * q.shape[-1] ** -0.5)
        scores = scores.masked_fill(cpu_attention.hidden(q.shape[-2], k.shape[-2], True), -torch.inf)
        scores = torch.cat([scores, sinks[:, None, None].expand(*scores.shape[:-1], 1)], -1)
        out = (torch.softmax(scores, -1)[..., :-1] @ v.float()).to(q.dtype)
        return (out, torch.logsumexp(scores, -1)) if return_lse else out

    def check(self, function):
        for one, other in zip(flat(function(self.ours)), flat(function(self.expected)), strict=True):
            self.assertEqual((one.shape, one.dtype), (other.shape, other.dtype))
            torch.testing.assert_close(one.float(), other.float(), atol=1e-2, rtol=1e-2)

    def leaves(self):
        return [value.clone().requires_grad_() for value in self.values]

    def test_gradients(self):
        for return_lse in False, True:
            def gradients(of):
                leaves = self.leaves()
                results = flat(of(*leaves, return_lse))
                return torch.autograd.grad(results, leaves, [torch.ones_like(one) for one in results])

            self.check(gradients)

    def test_gradients_of_the_sinks_alone(self):
        def gradient(of):
            sinks = self.values[3].clone().requires_grad_()
            return torch.autograd.grad(of(*self.values[:3], sinks).float().sum(), sinks)

        self.check(gradient)

    def test_batches_of_gradients(self):
        def gradients(of):
            leaves = self.leaves()
            results = of(*leaves, True)
            batch = [torch.stack([torch.ones_like(one), -2 * torch.ones_like(one)]) for one in results]
            return torch.autograd.grad(results, leaves, batch, is_grads_batched=True)

        self.check(gradients)

    def test_jacobians(self):
        self.check(lambda of: func.jacrev(lambda *each: of(*each, True), argnums=(0, 3))(*self.values))

    def test_vmap_and_gradients_of_samples(self):
        samples = [torch.stack([value, -value, value / 2]) for value in self.values]
        self.check(lambda of: func.vmap(of)(*samples))
        self.check(lambda of: func.vmap(of, in_dims=(0, 0, 0, None))(*samples[:3], self.values[3]))
        gradient = lambda of: func.grad(lambda *each: of(*each).float().square().sum(), argnums=(0, 3))  # noqa: E731
        self.check(lambda of: func.vmap(gradient(of), in_dims=(0, 0, 0, None))(*samples[:3], self.values[3]))

    def test_compiled(self):
        def gradients(of):
            leaves = self.leaves()
            return torch.autograd.grad(flat(of(*leaves)), leaves, [torch.ones_like(leaves[0])])

        compiled = torch.compile(self.ours, fullgraph=True, backend="aot_eager")
        for one, other in zip(gradients(compiled), gradients(self.ours), strict=True):
            torch.testing.assert_close(one, other, atol=0, rtol=0)

    def test_sinks_of_16_bits(self):
        sinks = self.values[3].bfloat16().requires_grad_()
        gradient, = torch.autograd.grad(self.ours(*self.values[:3], sinks).float().sum(), sinks)
        self.assertEqual(gradient.dtype, torch.bfloat16)

    def test_forward_mode_is_refused(self):
        with self.assertRaisesRegex(NotImplementedError, "forward-mode"):
            func.jvp(lambda sinks: self.ours(*self.values[:3], sinks), (self.values[3],), (torch.ones(4),))


result = unittest.main(exit=False).result
failed, skipped = len({case.id().split(" ")[0] for case, _ in result.failures + result.errors}), len(result.skipped)
print(f"attune-tests: {result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
sys.exit(0 if result.wasSuccessful() else 1)

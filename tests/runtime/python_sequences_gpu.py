"""Sequences of lengths of their own, through the Python binding on a GPU: used lengths and packed sequences."""

# First: it finds the module, and ends a program that has no GPU.
from on_gpu import BF16, FP16, GRADIENT_BOUND, LSE_BOUND, OUTPUT_BOUND, OnGpu, inputs, normal, reference_gradients, run_tests, torch, with_gradients

import attune_kernels as attune


class UsedLengths(OnGpu):
    def inputs(self, dtype, head_dim, seq_q=300, seq_kv=400):
        q, k, v, grad_out, grad_lse = inputs(dtype, 4, 4, 2, seq_q, seq_kv, head_dim)
        used = [torch.tensor(lengths, dtype=torch.int32, device=q.device) for lengths in ([seq_q, 77, 0, 130], [250, seq_kv, 128, 0])]
        for tensor, lengths in ((q, used[0]), (grad_out, used[0]), (k, used[1]), (v, used[1])):
            for batch, length in enumerate(lengths.tolist()):
                tensor[batch, :, length:] = torch.nan
        return q, k, v, grad_out, grad_lse, dict(zip(("seqused_q", "seqused_kv"), used))

    def test_each_sequence_is_as_it_is_alone(self):
        for dtype, head_dim, options in ((BF16, 128, {"causal": True}), (FP16, 64, {"softcap": 3.0}), (BF16, 64, {"window": (90, 5)}),
                                         (FP16, 256, {"causal": True, "deterministic": True}), (BF16, 40, {"causal": True, "top_left": True}),
                                         (BF16, 128, {"invariant": True})):
            q, k, v, grad_out, grad_lse, used = self.inputs(dtype, head_dim)
            for compiled in (False, True):
                with self.subTest(dtype=dtype, head_dim=head_dim, compiled=compiled, **options):
                    function = torch.compile(attune.attention, backend="aot_eager") if compiled else attune.attention
                    leaves = with_gradients(q, k, v)
                    out, lse = function(*leaves, return_lse=True, **used, **options)
                    gradients = torch.autograd.grad((out, lse), leaves, (grad_out, grad_lse))
                    known = {name: value for name, value in options.items() if name not in ("deterministic", "invariant")}
                    for batch, (rows, keys) in enumerate(zip(*(lengths.tolist() for lengths in used.values()))):
                        self.assertEqual(out[batch, :, rows:].abs().sum().item() + sum(
                            one[batch, :, length:].abs().sum().item() for one, length in zip(gradients, (rows, keys, keys))), 0)
                        if not rows or not keys:
                            self.assertTrue(bool((lse[batch] == -torch.inf).all()))
                            continue
                        alone = [tensor[batch:batch + 1, :, :length] for tensor, length in ((q, rows), (k, keys), (v, keys), (grad_out, rows))]
                        (exact_out, exact_lse), exact = reference_gradients(*alone, grad_lse[batch:batch + 1, :, :rows], **known)
                        self.assert_close("O", out[batch:batch + 1, :, :rows], exact_out, 2 * OUTPUT_BOUND[dtype])
                        self.assertLess((lse[batch:batch + 1, :, :rows] - exact_lse).nan_to_num(0).abs().max().item(), LSE_BOUND)
                        found = [one[batch:batch + 1, :, :length] for one, length in zip(gradients, (rows, keys, keys))]
                        self.assert_gradients(found, exact, dtype)

    def test_lengths_change_between_replays_of_a_graph(self):
        q, k, v, *_, used = self.inputs(BF16, 128)
        q, k, v = (one.nan_to_num(1) for one in (q, k, v))

        def step():
            out, lse = attune.attention(q, k, v, causal=True, return_lse=True, **used)
            return out, *attune.backward(q, q, k, v, out, lse, causal=True, **used)

        with torch.no_grad():
            step()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                kept = step()
            for lengths in ([5, 300, 1, 64], [300] * 4, [0, 0, 17, 299]):
                for tensor in used.values():
                    tensor.copy_(torch.tensor(lengths, dtype=torch.int32))
                graph.replay()
                for one, other in zip(kept, step()):
                    self.assert_close("replay", one, other.double(), GRADIENT_BOUND[BF16])

    def test_equal_lengths_and_one_of_the_two(self):
        q, k, v, *_ = inputs(BF16, 2, 4, 2, 200, 300, 64)
        full = [torch.full((2,), length, dtype=torch.int32, device=q.device) for length in (200, 300)]
        whole = attune.attention(q, k, v, causal=True, deterministic=True)
        for used in ({"seqused_q": full[0]}, {"seqused_kv": full[1]}, {"seqused_q": full[0] + 9, "seqused_kv": full[1]}):
            self.assert_close("O", attune.attention(q, k, v, causal=True, **used), whole.double(), OUTPUT_BOUND[BF16])
        some = torch.tensor([100, 300], dtype=torch.int32, device=q.device)
        out, lse = attune.prepare(q, k, v, seqused_kv=some)(q, k, v, seqused_kv=some, return_lse=True)
        self.assert_same((out, lse), attune.attention(q, k, v, seqused_kv=some, return_lse=True))
        grads = attune.prepare_backward(q, k, v, seqused_kv=some, deterministic=True)(q, q, k, v, out, lse, seqused_kv=some)
        self.assert_same(grads, attune.backward(q, q, k, v, out, lse, seqused_kv=some, deterministic=True))
        self.assertIsNone(attune.unsupported(q, k, v, seqused_kv=some))
        self.assertIn("torch.int32", attune.unsupported(q, k, v, seqused_kv=some.long()))


class PackedSequences(OnGpu):
    LENGTHS = [77, 0, 130, 1, 300, 64], [50, 9, 130, 0, 200, 333]  # of queries, and of keys

    def inputs(self, dtype, head_dim, layout="bshd"):
        """Packed tensors with NaN behind the last sequence, and where sequences begin."""
        begins = [torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device="cuda") for lengths in self.LENGTHS]
        tokens = [int(one[-1]) + 9 for one in begins]
        q, k, v, grad_out = (normal(rows, heads, head_dim, dtype=dtype, seed=seed) for seed, (rows, heads) in
                             enumerate(((tokens[0], 4), (tokens[1], 2), (tokens[1], 2), (tokens[0], 4)), 1))
        grad_lse = normal(4, tokens[0], dtype=torch.float32, seed=5)
        for tensor in q, k, v, grad_out:
            tensor[-9:] = torch.nan
        grad_lse[:, -9:] = torch.nan
        if layout == "bhsd":
            q, k, v, grad_out = (one.transpose(0, 1).contiguous() for one in (q, k, v, grad_out))
        return q, k, v, grad_out, grad_lse, dict(zip(("cu_seqlens_q", "cu_seqlens_kv"), begins))

    def test_each_sequence_is_as_it_is_alone(self):
        for dtype, head_dim, options in ((BF16, 128, {"causal": True}), (FP16, 64, {"softcap": 3.0}), (BF16, 64, {"window": (90, 5), "layout": "bhsd"}),
                                         (FP16, 256, {"causal": True, "deterministic": True}), (BF16, 40, {"causal": True, "top_left": True}),
                                         (BF16, 192, {"causal": True, "layout": "bhsd"})):
            layout = options.get("layout", "bshd")
            q, k, v, grad_out, grad_lse, begins = self.inputs(dtype, head_dim, layout)
            for compiled in (False, True):
                with self.subTest(dtype=dtype, head_dim=head_dim, compiled=compiled, **options):
                    function = torch.compile(attune.attention, backend="aot_eager") if compiled else attune.attention
                    leaves = with_gradients(q, k, v)
                    out, lse = function(*leaves, return_lse=True, **begins, **{"layout": "bshd", **options})
                    gradients = torch.autograd.grad((out, lse), leaves, (grad_out, grad_lse))
                    known = {name: value for name, value in options.items() if name not in ("deterministic", "layout")}

                    def rows(tensor, first, last):
                        """(1, heads, rows, head_dim)."""
                        return (tensor[:, first:last] if layout == "bhsd" else tensor[first:last].transpose(0, 1))[None]

                    ends = [int(one[-1]) for one in begins.values()]
                    for one, end in zip((out, *gradients), (ends[0], ends[0], ends[1], ends[1])):
                        self.assertEqual(rows(one, end, None).abs().sum().item(), 0)
                    places = [list(zip(one.tolist(), one.tolist()[1:])) for one in begins.values()]
                    for queries, keys in zip(*places):
                        if queries[0] == queries[1] or keys[0] == keys[1]:
                            self.assertEqual(sum(rows(one, *place).abs().sum().item() for one, place in zip((out, *gradients), (queries, queries, keys, keys))), 0)
                            continue
                        alone = [rows(one, *place) for one, place in ((q, queries), (k, keys), (v, keys), (grad_out, queries))]
                        (exact_out, exact_lse), exact = reference_gradients(*alone, grad_lse[None, :, slice(*queries)], **known)
                        self.assert_close("O", rows(out, *queries), exact_out, 2 * OUTPUT_BOUND[dtype])
                        self.assertLess((lse[None, :, slice(*queries)] - exact_lse).nan_to_num(0).abs().max().item(), LSE_BOUND)
                        self.assert_gradients([rows(one, *place) for one, place in zip(gradients, (queries, keys, keys))], exact, dtype)

    def test_tensors_of_pairs(self):
        for dtype, head_dim, shape, options in ((BF16, 128, (6, 4, 310, 420), {"causal": True}), (FP16, 64, (1, 4, 310, 420), {}),
                                                (BF16, 64, (6, 1, 1, 420), {"window": (90, 5)}), (BF16, 256, (310, 420), {"causal": True})):
            with self.subTest(dtype=dtype, head_dim=head_dim, shape=shape):
                q, k, v, grad_out, grad_lse, begins = self.inputs(dtype, head_dim)
                bias = normal(*shape, dtype=dtype, seed=6).requires_grad_()
                mask = torch.rand(6, 1, 310, 420, device=q.device) < 0.9
                leaves = with_gradients(q, k, v)
                out = attune.attention(*leaves, layout="bshd", bias=bias, attention_mask=mask, **begins, **options)
                gradients = torch.autograd.grad(out, (*leaves, bias), grad_out)
                places = [list(zip(one.tolist(), one.tolist()[1:])) for one in begins.values()]
                of_bias = torch.zeros(shape, device=q.device)
                for sequence, (queries, keys) in enumerate(zip(*places)):
                    rows, columns = queries[1] - queries[0], keys[1] - keys[0]
                    if not rows or not columns:
                        continue
                    own = bias.detach()[sequence:sequence + 1] if bias.dim() == 4 and bias.shape[0] > 1 else bias.detach()
                    own = (own[..., :columns] if own.shape[-2] == 1 else own[..., :rows, :columns]).clone().requires_grad_()
                    alone = with_gradients(q[None, slice(*queries)], k[None, slice(*keys)], v[None, slice(*keys)])
                    expected = attune.attention(*alone, layout="bshd", bias=own, attention_mask=mask[sequence, :, :rows, :columns], **options)
                    self.assert_close("O", out[None, slice(*queries)], expected.double(), 2 * OUTPUT_BOUND[dtype])
                    found = torch.autograd.grad(expected, (*alone, own), grad_out[None, slice(*queries)])
                    for name, mine, one in zip("QKV", (gradients[0][None, slice(*queries)], gradients[1][None, slice(*keys)], gradients[2][None, slice(*keys)]), found):
                        self.assert_close("d" + name, mine, one.double(), 2 * GRADIENT_BOUND[dtype])
                    place = of_bias[sequence:sequence + 1] if of_bias.dim() == 4 and of_bias.shape[0] > 1 else of_bias
                    (place[..., :columns] if place.shape[-2] == 1 else place[..., :rows, :columns]).add_(found[3].float())
                self.assert_close("dbias", gradients[3], of_bias.double(), 2 * GRADIENT_BOUND[dtype])

    def test_lengths_change_between_replays_of_a_graph(self):
        q, k, v, *_, begins = self.inputs(BF16, 128)
        q, k, v = (one.nan_to_num(1) for one in (q, k, v))

        def step():
            out, lse = attune.attention(q, k, v, layout="bshd", causal=True, return_lse=True, **begins)
            return out, *attune.backward(q, q, k, v, out, lse, layout="bshd", causal=True, **begins)

        with torch.no_grad():
            step()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                kept = step()
            for ends in ([0, 5, 300, 301, 400, 500, 572], [0, 0, 0, 0, 0, 0, 500], [0, 100, 200, 300, 400, 500, 572]):
                for tensor in begins.values():
                    tensor.copy_(torch.tensor(ends, dtype=torch.int32))
                graph.replay()
                for one, other in zip(kept, step()):
                    self.assert_close("replay", one, other.double(), GRADIENT_BOUND[BF16])

    def test_the_same_bits_on_each_run(self):
        for head_dim in (64, 128):
            q, k, v, grad_out, _, begins = self.inputs(BF16, head_dim)
            with torch.no_grad():
                out, lse = attune.attention(q, k, v, layout="bshd", causal=True, return_lse=True, **begins)
                first = attune.backward(grad_out, q, k, v, out, lse, layout="bshd", causal=True, deterministic=True, **begins)
                for _ in range(200):
                    self.assert_same(attune.backward(grad_out, q, k, v, out, lse, layout="bshd", causal=True, deterministic=True, **begins), first)

    def test_prepared(self):
        q, k, v, grad_out, _, begins = self.inputs(BF16, 128)
        with torch.no_grad():
            expected = attune.attention(q, k, v, layout="bshd", causal=True, return_lse=True, **begins)
            found = attune.prepare(q, k, v, layout="bshd", causal=True, **begins)(q, k, v, return_lse=True, **begins)
            self.assert_same(found, expected)
            prepared = attune.prepare_backward(q, k, v, layout="bshd", causal=True, deterministic=True, **begins)
            self.assert_same(prepared(grad_out, q, k, v, *expected, **begins),
                             attune.backward(grad_out, q, k, v, *expected, layout="bshd", causal=True, deterministic=True, **begins))


if __name__ == "__main__":
    run_tests()

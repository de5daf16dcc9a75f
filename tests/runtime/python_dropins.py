"""The drop-ins of the Python binding without a GPU and without PyTorch: signatures, what their arguments become, results, refusals.

usage: python_dropins.py REPOSITORY LIBATTUNE
"""

import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import os
import pathlib
import sys
import types
import unittest
import unittest.mock

REPOSITORY, LIBRARY = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
os.environ.update(ATTUNE_LIBRARY=LIBRARY, CUDA_VISIBLE_DEVICES="")  # pointers here are made up: no GPU may see them
sys.dont_write_bytecode = True
sys.path.insert(0, str(REPOSITORY / "bindings" / "python"))

import fake_torch  # noqa: E402

fake_torch.install()
torch = sys.modules["torch"]


class Tensor(fake_torch.Tensor):
    """What the drop-ins ask of a tensor beside what attention() does. made: how it came from another."""

    made = ""

    def like(self, shape, made, strides=None):
        other = Tensor(shape, self.dtype, strides=strides)
        other.made = made
        return other

    def contiguous(self):
        return self.like(self.shape, "contiguous")

    def unbind(self, axis):
        return [self.like(self.shape[:axis] + self.shape[axis + 1:], f"part {i}") for i in range(self.shape[axis])]

    def split(self, sizes, axis):
        return [self.like(self.shape[:axis] + (size,) + self.shape[axis + 1:], f"of {size}") for size in sizes]

    def transpose(self, one, other):
        shape, strides = list(self.shape), list(self.strides)
        for each in (shape, strides):
            each[one], each[other] = each[other], each[one]
        return self.like(tuple(shape), "transposed", tuple(strides))

    def masked_fill(self, mask, number):
        return self.like(self.shape, f"-inf as {number}")

    def unsqueeze(self, axis):
        assert axis == 0
        return self.like((1, *self.shape), "in one batch entry")

    def __getitem__(self, index):
        if index == 0:
            return self.like(self.shape[1:], "without the batch", self.strides[1:])
        if index[0] is Ellipsis:
            return self.like(self.shape[:-1] + (index[1].stop,), "cut")
        assert index[:2] == (slice(None), slice(None))
        return self.like(self.shape[:2] + (index[2].stop,) + self.shape[3:], "first", self.strides)


def pad(tensor, amount):
    assert amount[0] == 0
    return tensor.like(tensor.shape[:-1] + (tensor.shape[-1] + amount[1],), "padded")


torch.inf, torch.float8_e4m3fn = float("inf"), "fp8"
torch.nn = getattr(torch, "nn", None) or types.SimpleNamespace()
torch.nn.functional = types.SimpleNamespace(pad=pad)

import attune_kernels as attune  # noqa: E402
from attune_kernels import _drop_in, _reasons, cute, flash_attn, flash_attn_interface, transformers  # noqa: E402

FA2, FA3 = flash_attn.flash_attn_func, flash_attn_interface.flash_attn_func
NO_DEVICE = -4


def tensors(seq_q=100, seq_k=100, heads=4, heads_k=4, head_dim=64, **options):
    return [Tensor((2, seq, count, head_dim), **options) for seq, count in ((seq_q, heads), (seq_k, heads_k), (seq_k, heads_k))]


class Recorded(unittest.TestCase):
    """attention() is asked for its arguments only."""

    def setUp(self):
        self.calls = []
        self.enter(unittest.mock.patch.object(_drop_in, "attention", self.attention))
        self.enter(unittest.mock.patch.object(torch, "empty", lambda shape, dtype, device: Tensor(shape, dtype)))

    def enter(self, context):
        self.addCleanup(context.__exit__, None, None, None)
        return context.__enter__()

    def attention(self, q, k, v, *, return_lse, layout, **options):
        self.assertEqual(layout, "bshd")
        self.calls.append((q, k, v, options))
        out = q.like(q.shape, "out")
        of_rows = (q.shape[1], q.shape[0]) if len(q.shape) == 3 else (q.shape[0], q.shape[2], q.shape[1])
        return (out, Tensor(of_rows, "fp32")) if return_lse else out

    def options(self, function, *arguments, **options):
        function(*arguments, **options)
        return self.calls.pop()[3]


class Signatures(unittest.TestCase):
    def signature(self, function):
        return str(inspect.signature(function)).replace(" ", "")

    def test_flash_attn(self):
        options = ("dropout_p=0.0,softmax_scale=None,causal=False,window_size=(-1,-1),softcap=0.0,alibi_slopes=None,deterministic=False,"
                   "return_attn_probs=False")
        lengths = "cu_seqlens_q,cu_seqlens_k,max_seqlen_q,max_seqlen_k"
        for name, expected in {
            "flash_attn_func": f"(q,k,v,{options})",
            "flash_attn_qkvpacked_func": f"(qkv,{options})",
            "flash_attn_kvpacked_func": f"(q,kv,{options})",
            "flash_attn_varlen_func": f"(q,k,v,{lengths},{options},block_table=None)",
            "flash_attn_varlen_qkvpacked_func": f"(qkv,cu_seqlens,max_seqlen,{options})",
            "flash_attn_varlen_kvpacked_func": f"(q,kv,{lengths},{options})",
        }.items():
            self.assertEqual(self.signature(getattr(flash_attn, name)), expected, name)
        parameters = list(inspect.signature(flash_attn.flash_attn_with_kvcache).parameters)
        self.assertEqual((parameters[:5], parameters[7], parameters[-1]),
                         (["q", "k_cache", "v_cache", "k", "v"], "cache_seqlens", "return_softmax_lse"))

    def test_flash_attn_interface(self):
        scales = "q_descale=None,k_descale=None,v_descale=None,window_size=(-1,-1),attention_chunk=0,softcap=0.0"
        ending = f"softmax_scale=None,causal=False,qv=None,{scales},num_splits=1,pack_gqa=None,deterministic=False,sm_margin=0,return_attn_probs=False)"
        for name, expected in {
            "flash_attn_func": f"(q,k,v,{ending}",
            "flash_attn_varlen_func": f"(q,k,v,cu_seqlens_q,cu_seqlens_k,max_seqlen_q,max_seqlen_k,seqused_q=None,seqused_k=None,{ending}",
            "flash_attn_qkvpacked_func": f"(qkv,softmax_scale=None,causal=False,{scales},deterministic=False,num_heads_q=None,sm_margin=0,"
                                         "return_attn_probs=False)",
            "flash_attn_combine": "(out_partial,lse_partial,out=None,out_dtype=None)",
        }.items():
            self.assertEqual(self.signature(getattr(flash_attn_interface, name)), expected, name)

    def test_cute(self):
        scores = "softmax_scale=None,causal=False,window_size=(None,None),learnable_sink=None,softcap=0.0,num_splits=1,pack_gqa=None," \
                 "deterministic=False,score_mod=None,score_mod_bwd=None,mask_mod=None,"
        gathered = "gather_bwd_recompute_p=False,gather_bwd_token_chunk=None)"
        self.assertEqual(self.signature(cute.flash_attn_func),
                         f"(q,k,v,qv=None,gather_kv_indices=None,{scores}aux_tensors=None,aux_scalars=None,block_sparse_tensors=None,"
                         f"block_sparse_tensors_bwd=None,return_lse=False,{gathered}")
        self.assertEqual(self.signature(cute.flash_attn_varlen_func),
                         "(q,k,v,qv=None,cu_seqlens_q=None,cu_seqlens_k=None,max_seqlen_q=None,max_seqlen_k=None,min_seqlen_k=None,seqused_q=None,"
                         f"seqused_k=None,gather_kv_indices=None,page_table=None,{scores}block_sparse_tensors=None,aux_tensors=None,aux_scalars=None,"
                         f"return_lse=False,scheduler_metadata=None,seqlen_k_per_split=None,disable_scheduler_metadata=False,{gathered}")

    def test_all_names_are_there(self):
        for module in (flash_attn, flash_attn_interface, cute):
            for name in module.__all__:
                self.assertTrue(callable(getattr(module, name)), name)


class Arguments(Recorded):
    def test_a_plain_call(self):
        for function in (FA2, FA3):
            q, k, v = tensors()
            out = function(q, k, v)
            given_q, given_k, given_v, options = self.calls.pop()
            self.assertEqual((given_q is q, given_k is k, given_v is v, out.made), (True, True, True, "out"))
            self.assertEqual(options, {"causal": False, "window": None, "scale": 0.125, "softcap": 0.0, "alibi_slopes": None, "deterministic": None})
            self.assertEqual(self.options(function, q, k, v, softmax_scale=0.5, deterministic=True)["deterministic"], True)
            self.assertEqual(self.options(function, q, k, v, softmax_scale=0.5)["scale"], 0.5)

    def test_positions_are_those_of_the_originals(self):
        options = self.options(FA2, *tensors(), 0.0, 0.3, True, (5, 7), 0.0, None, True)
        self.assertEqual(options, {"causal": False, "window": (5, 0), "scale": 0.3, "softcap": 0.0, "alibi_slopes": None, "deterministic": True})
        options = self.options(FA3, *tensors(), 0.3, True, None, None, None, None, (5, 7), 0, 0.0, 3, True, True)
        self.assertEqual(options, {"causal": False, "window": (5, 0), "scale": 0.3, "softcap": 0.0, "alibi_slopes": None, "deterministic": True})

    def test_masks(self):
        """causal with lengths (seq_q, seq_k) and a window; what attention() gets as (causal, window)."""
        for seq_q, seq_k, causal, window, expected in [
            (100, 100, False, (-1, -1), (False, None)),
            (100, 100, True, (-1, -1), (True, None)),
            (100, 100, False, (-1, 0), (True, None)),
            (100, 100, True, (-1, 9), (True, None)),  # causal closes the right side
            (100, 300, True, (10, 20), (False, (10, 0))),
            (100, 300, False, (10, 20), (False, (10, 20))),
            (100, 300, False, (10, -1), (False, (10, None))),
            (100, 300, False, (-7, 20), (False, (None, 20))),
            (100, 300, False, (298, 20), (False, (298, 20))),  # the last query misses the first key
            (100, 300, False, (299, 20), (False, (None, 20))),
            (100, 300, False, (10, 98), (False, (10, 98))),  # the first query misses the last key
            (100, 300, False, (10, 99), (False, (10, None))),
            (300, 100, False, (99, 100), (False, (None, 100))),  # more than there are keys, and yet not all
            (100, 100, False, (99, 99), (False, None)),
            (1, 300, True, (-1, -1), (False, None)),  # the last query sees all keys
            (1, 300, True, (5, 5), (False, (5, None))),
        ]:
            for function in (FA2, FA3):
                with self.subTest(seq_q=seq_q, seq_k=seq_k, causal=causal, window=window):
                    options = self.options(function, *tensors(seq_q, seq_k), causal=causal, window_size=window)
                    self.assertEqual((options["causal"], options["window"]), expected)

    def test_the_mask_is_the_one_of_flash_attn(self):
        """Each pair of a query and a key, for every window of small problems."""
        def seen(i, j, seq_q, seq_k, left, right):
            after = j - (i + seq_k - seq_q)
            return (left is None or after >= -left) and (right is None or after <= right)

        for seq_q, seq_k in ((4, 4), (2, 5), (5, 2), (1, 3), (3, 1)):
            for causal in (False, True):
                for left in range(-1, 7):
                    for right in range(-1, 7):
                        options = self.options(FA2, *tensors(seq_q, seq_k), causal=causal, window_size=(left, right))
                        ours = (None, 0) if options["causal"] else options["window"] or (None, None)
                        theirs = left if left >= 0 else None, 0 if causal else right if right >= 0 else None
                        blind = False
                        for i in range(seq_q):
                            row = [seen(i, j, seq_q, seq_k, *theirs) for j in range(seq_k)]
                            blind |= not any(row)
                            self.assertEqual([seen(i, j, seq_q, seq_k, *ours) for j in range(seq_k)], row, (seq_q, seq_k, causal, left, right))
                        self.assertEqual(_drop_in.sees_nothing(*tensors(seq_q, seq_k)[:2], causal, (left, right)), blind)

    def test_head_dims_are_padded(self):
        for function in (FA2, FA3):
            for head_dim, padded in ((59, 64), (111, 112), (1, 8), (255, 256)):
                out = function(*tensors(head_dim=head_dim))
                q, k, v, options = self.calls.pop()
                self.assertEqual([tensor.shape[3] for tensor in (q, k, v, out)], [padded, padded, padded, head_dim])
                self.assertEqual((options["scale"], out.made), (head_dim**-0.5, "cut"))

    def test_the_last_dimension_becomes_contiguous(self):
        q, k, v = tensors()
        turned = Tensor(v.shape, strides=(25600, 1, 6400, 100))
        FA2(q, k, turned)
        self.assertEqual([tensor.made for tensor in self.calls.pop()[:3]], ["", "", "contiguous"])

    def test_packed(self):
        qkv, q, kv = Tensor((2, 100, 3, 4, 64)), Tensor((2, 90, 8, 64)), Tensor((2, 100, 2, 4, 64))
        for module in (flash_attn, flash_attn_interface):
            module.flash_attn_qkvpacked_func(qkv, softmax_scale=0.5, causal=True, window_size=(3, 3), deterministic=True)
            *parts, options = self.calls.pop()
            self.assertEqual([part.made for part in parts], ["part 0", "part 1", "part 2"])
            self.assertEqual(options, {"causal": False, "window": (3, 0), "scale": 0.5, "softcap": 0.0, "alibi_slopes": None, "deterministic": True})
        flash_attn.flash_attn_kvpacked_func(q, kv, 0.0, 0.5, True, (-1, -1), 0.0, None, True)
        *parts, options = self.calls.pop()
        self.assertEqual([part.made for part in parts], ["", "part 0", "part 1"])
        self.assertEqual(options, {"causal": True, "window": None, "scale": 0.5, "softcap": 0.0, "alibi_slopes": None, "deterministic": True})
        flash_attn_interface.flash_attn_qkvpacked_func(Tensor((2, 100, 12, 64)), num_heads_q=8)
        self.assertEqual([part.shape[2] for part in self.calls.pop()[:3]], [8, 2, 2])


    def test_packed_sequences(self):
        q, k, v = Tensor((90, 8, 64)), Tensor((120, 4, 64)), Tensor((120, 4, 64))
        begins, of_keys, used, slopes = Tensor((4,), "int32"), Tensor((4,), "int32"), Tensor((3,), "int32"), Tensor((3, 8), "fp32")
        plain = {"causal": True, "window": None, "scale": 0.125, "softcap": 0.0, "alibi_slopes": None, "deterministic": None}
        where = {"cu_seqlens_q": begins, "cu_seqlens_kv": of_keys}

        def called(function, *arguments, **options):
            function(*arguments, **options)
            *parts, given = self.calls.pop()
            return [part.shape for part in parts], given

        shapes = [q.shape, k.shape, v.shape]
        self.assertEqual(called(flash_attn.flash_attn_varlen_func, q, k, v, begins, of_keys, 50, 60, causal=True), (shapes, {**plain, **where}))
        found, options = called(flash_attn.flash_attn_varlen_func, q, k, v, begins, of_keys, 50, 60, 0.0, 0.5, True, (7, 9), 30.0, slopes, True)
        self.assertEqual((options.pop("alibi_slopes").shape, options), (slopes.shape, {
            **where, "causal": False, "window": (7, 0), "scale": 0.5, "softcap": 30.0, "deterministic": True}))
        self.assertEqual(called(flash_attn_interface.flash_attn_varlen_func, q, k, v, begins, of_keys, 50, 60, used, used, causal=True),
                         (shapes, {**plain, **where, "seqused_q": used, "seqused_kv": used}))
        self.assertEqual(called(cute.flash_attn_varlen_func, q, k, v, cu_seqlens_q=begins, cu_seqlens_k=of_keys, seqused_k=used, causal=True),
                         (shapes, {**plain, **where, "seqused_kv": used}))
        self.assertEqual(called(flash_attn.flash_attn_varlen_qkvpacked_func, Tensor((90, 3, 4, 64)), begins, 50, causal=True),
                         ([(90, 4, 64)] * 3, {**plain, "cu_seqlens_q": begins, "cu_seqlens_kv": begins}))
        self.assertEqual(called(flash_attn.flash_attn_varlen_kvpacked_func, q, Tensor((120, 2, 4, 64)), begins, of_keys, 50, 60, causal=True),
                         (shapes, {**plain, **where}))
        out, lse, probabilities = flash_attn.flash_attn_varlen_func(q, k, v, begins, of_keys, 50, 60, return_attn_probs=True)
        self.assertEqual((out.shape, lse.shape, lse.made, probabilities.shape), ((90, 8, 64), (8, 90), "-inf as inf", (0,)))
        out, lse = flash_attn_interface.flash_attn_varlen_func(q, k, v, begins, of_keys, 50, 60, return_attn_probs=True)
        self.assertEqual((lse.shape, lse.made), ((8, 90), ""))
        self.calls.clear()
        one = flash_attn.flash_attn_varlen_func
        for error, words, arguments in [
                (RuntimeError, r"cu_seqlens_k is fp32: it must be torch.int32", (q, k, v, begins, Tensor((4,), "fp32"))),
                (TypeError, "cu_seqlens_q is a list", (q, k, v, [0, 90], of_keys)),
                (RuntimeError, r"cu_seqlens_k has shape \(3,\): .* as long as cu_seqlens_q", (q, k, v, begins, Tensor((3,), "int32"))),
                (RuntimeError, r"q has shape .*: it must be \(tokens, heads, head_dim\)", (Tensor((2, 9, 8, 64)), k, v, begins, of_keys)),
                (RuntimeError, "8 heads and k 3", (q, Tensor((120, 3, 64)), Tensor((120, 3, 64)), begins, of_keys))]:
            with self.assertRaisesRegex(error, words):
                one(*arguments, 50, 60)
        with self.assertRaisesRegex(RuntimeError, r"kv has shape .*: it must be \(tokens, 2, heads, head_dim\)"):
            flash_attn.flash_attn_varlen_kvpacked_func(q, k, begins, of_keys, 50, 60)
        self.assertEqual(self.calls, [])


class Results(Recorded):
    def test_flash_attn_returns_three(self):
        for causal, seq_q, made in ((False, 100, ""), (True, 100, ""), (True, 101, "-inf as inf")):
            out, lse, probabilities = FA2(*tensors(seq_q, 100), causal=causal, return_attn_probs=True)
            self.assertEqual((lse.shape, lse.dtype, lse.made), ((2, 4, seq_q), "fp32", made))
            self.assertEqual((probabilities.shape, probabilities.dtype), ((0,), "bf16"))
        qkv, kv = Tensor((2, 100, 3, 4, 64)), Tensor((2, 100, 2, 4, 64))
        self.assertEqual(len(flash_attn.flash_attn_qkvpacked_func(qkv, return_attn_probs=True)), 3)
        self.assertEqual(len(flash_attn.flash_attn_kvpacked_func(Tensor((2, 90, 8, 64)), kv, return_attn_probs=True)), 3)

    def test_flash_attn_interface_returns_two(self):
        out, lse = FA3(*tensors(101, 100), causal=True, return_attn_probs=True)
        self.assertEqual((out.shape, lse.shape, lse.made), ((2, 101, 4, 64), (2, 4, 101), ""))
        self.assertEqual(len(flash_attn_interface.flash_attn_qkvpacked_func(Tensor((2, 100, 3, 4, 64)), return_attn_probs=True)), 2)


class Refusals(Recorded):
    def refused(self, error, words, function, *arguments, **options):
        with self.assertRaisesRegex(error, words) as caught:
            function(*arguments, **options)
        self.assertEqual(self.calls, [])
        return caught.exception

    def test_what_is_not_served_is_named(self):
        q, k, v = tensors()
        qkv, kv, number = Tensor((2, 100, 3, 4, 64)), Tensor((2, 100, 2, 4, 64)), Tensor((2,), "fp32")
        one, two = flash_attn, flash_attn_interface
        for feature, function, arguments, options in [
            ("FP8", FA3, tensors(dtype="fp8"), {}),
            ("FP8", FA3, (q, k, v), {"q_descale": number}),
            ("FP8", FA3, (q, k, v), {"v_descale": number}),
            ("FP8", two.flash_attn_qkvpacked_func, (qkv,), {"k_descale": number}),
            ("qv", FA3, (q, k, v), {"qv": q}),
            ("attention_chunk", FA3, (q, k, v), {"attention_chunk": 64}),
            ("attention_chunk", two.flash_attn_qkvpacked_func, (qkv,), {"attention_chunk": 64}),
            ("sm_margin", FA3, (q, k, v), {"sm_margin": 8}),
            ("sm_margin", two.flash_attn_qkvpacked_func, (qkv,), {"sm_margin": 8}),
            ("a head_dim of v unlike that of q", FA3, (q, k, Tensor((2, 100, 4, 128))), {}),
            ("a cache of keys and values", one.flash_attn_varlen_func, (q, k, v, number, number, 9, 9), {"block_table": number}),
            ("FP8", two.flash_attn_varlen_func, (q, k, v, number, number, 9, 9), {"q_descale": number}),
            ("packed queries beside keys that are not, or the other way about", two.flash_attn_varlen_func, (q, k, v, number, None, 9, 9), {}),
            ("a cache of keys and values", one.flash_attn_with_kvcache, (q, k, v), {"cache_seqlens": 5}),
            ("a cache of keys and values", two.flash_attn_with_kvcache, (q, k, v), {"page_table": number}),
            ("a cache of keys and values", two.get_scheduler_metadata, (2, 9, 9, 4, 4, 64, number), {}),
            ("combining results of parts of the keys", two.flash_attn_combine, (number, number), {}),
        ]:
            with self.subTest(feature=feature, function=function.__name__):
                error = self.refused(NotImplementedError, f"attune does not serve {feature}: .", function, *arguments, **options)
                self.assertIs(type(error), flash_attn.NotServed)
                self.assertEqual(error.feature, feature)

    def test_what_the_newest_interface_asks_for(self):
        """cute's functions return a pair; sinks and lengths are handed on, what only its kernels take is refused by name."""
        plain = {"causal": False, "window": None, "scale": 0.125, "softcap": 0.0, "alibi_slopes": None, "deterministic": None}
        q, k, v = tensors()
        out, lse = cute.flash_attn_func(q, k, v)
        self.assertEqual((out.made, lse, self.calls.pop()[3]), ("out", None, plain))
        out, lse = cute.flash_attn_func(q, k, v, return_lse=True, num_splits=3, pack_gqa=True)
        self.assertEqual((lse.shape, self.calls.pop()[3]), ((2, 4, 100), plain))
        sink, lengths = Tensor((4,), "bf16"), Tensor((2,), "int32")
        with_sinks = self.options(cute.flash_attn_func, q, k, v, causal=True, learnable_sink=sink, softcap=30.0, deterministic=True)
        self.assertEqual(with_sinks, {**plain, "causal": True, "softcap": 30.0, "deterministic": True, "sinks": sink})
        self.assertEqual(self.options(cute.flash_attn_varlen_func, q, k, v, seqused_k=lengths, learnable_sink=sink, max_seqlen_k=100, causal=True),
                         {**plain, "causal": True, "sinks": sink, "seqused_kv": lengths})
        self.assertEqual(self.options(cute.flash_attn_varlen_func, q, k, v, seqused_q=lengths, seqused_k=lengths),
                         {**plain, "seqused_q": lengths, "seqused_kv": lengths})
        for window, wanted in ((5, 7), (5, 7)), ((None, 7), (None, 7)), ((5, None), (5, None)), ((-1, -1), None), ((None, None), None):
            self.assertEqual(self.options(cute.flash_attn_func, q, k, v, window_size=window)["window"], wanted)
        q.requires_grad = True
        self.assertIsNotNone(cute.flash_attn_func(q, k, v)[1])
        self.calls.clear()
        for feature, function, options in [
                ("qv", cute.flash_attn_func, {"qv": q}), ("gather_kv_indices", cute.flash_attn_func, {"gather_kv_indices": lengths}),
                ("gather_kv_indices", cute.flash_attn_func, {"gather_bwd_recompute_p": True}), ("score_mod", cute.flash_attn_func, {"score_mod": print}),
                ("score_mod", cute.flash_attn_varlen_func, {"aux_tensors": [q]}), ("mask_mod", cute.flash_attn_func, {"mask_mod": print}),
                ("block_sparse_tensors", cute.flash_attn_func, {"block_sparse_tensors_bwd": q}),
                ("packed queries beside keys that are not, or the other way about", cute.flash_attn_varlen_func, {"cu_seqlens_q": lengths}),
                ("a cache of keys and values", cute.flash_attn_varlen_func, {"page_table": lengths}),
                ("a window that ends before the diagonal or begins behind it", cute.flash_attn_func, {"window_size": (-3, 8)})]:
            with self.subTest(feature=feature):
                error = self.refused(NotImplementedError, f"attune does not serve {feature}: .", function, q, k, v, **options)
                self.assertEqual(error.feature, feature)

    def test_slopes_are_those_of_heads(self):
        q, k, v = tensors()
        for slopes in Tensor((4,), "fp32"), Tensor((2, 4), "fp32"):
            FA2(q, k, v, alibi_slopes=slopes)
            *_, options = self.calls.pop()
            self.assertEqual(options["alibi_slopes"].shape, slopes.shape)
        self.refused(RuntimeError, "alibi_slopes is .*: it must be torch.float32", FA2, q, k, v, alibi_slopes=Tensor((4,)))
        self.refused(RuntimeError, r"alibi_slopes has shape \(2,\): it must be \(heads,\) or \(batch, heads\)", FA2, q, k, v,
                     alibi_slopes=Tensor((2,), "fp32"))

    def test_hints_and_neutral_values_are_taken(self):
        FA2(*tensors(), dropout_p=0.0, softcap=-1.0, alibi_slopes=None)
        FA3(*tensors(), num_splits=5, pack_gqa=True, softcap=0.0, sm_margin=0)
        self.assertEqual([options["softcap"] for *parts, options in self.calls], [0.0, 0.0])
        self.calls.clear()

    def test_dropout_is_handed_on_with_a_state(self):
        q, k, v = tensors()
        qkv, kv, begins = Tensor((2, 100, 3, 4, 64)), Tensor((2, 100, 2, 4, 64)), Tensor((3,), "i32")
        one, packed = flash_attn, Tensor((100, 4, 64))
        torch.int32 = "i32"
        with unittest.mock.patch.object(_drop_in, "new_dropout_state", lambda device: f"a state on {device}"):
            for function, arguments, options in [
                (FA2, (q, k, v, 0.17), {}), (one.flash_attn_qkvpacked_func, (qkv, 0.17), {}), (one.flash_attn_kvpacked_func, (q, kv), {"dropout_p": 0.17}),
                (one.flash_attn_varlen_func, (packed, packed, packed, begins, begins, 9, 9, 0.17), {"causal": True})]:
                given = self.options(function, *arguments, **options)
                self.assertEqual((given["dropout_p"], given["dropout_state"]), (0.17, f"a state on {q.device}"))
            for p in (1.0, -0.1, 17):
                self.refused(RuntimeError, f"dropout_p is {p}: it must be at least 0 and less than 1", FA2, q, k, v, p)
        self.assertNotIn("dropout_state", self.options(FA2, q, k, v, 0.0))

    def test_a_softcap_is_handed_on(self):
        qkv, kv = Tensor((2, 100, 3, 4, 64)), Tensor((2, 100, 2, 4, 64))
        FA2(*tensors(), softcap=50.0)
        flash_attn.flash_attn_qkvpacked_func(qkv, softcap=15.0)
        flash_attn.flash_attn_kvpacked_func(tensors()[0], kv, softcap=0.5)
        FA3(*tensors(), softcap=15.0)
        flash_attn_interface.flash_attn_qkvpacked_func(qkv, softcap=30.0)
        self.assertEqual([options["softcap"] for *parts, options in self.calls], [50.0, 15.0, 0.5, 15.0, 30.0])
        self.calls.clear()

    def test_tensors_are_refused_as_by_the_originals(self):
        q, k, v = tensors()
        for function in (FA2, FA3):
            self.refused(TypeError, "k is a int", function, q, 1, v)
            self.refused(RuntimeError, r"v has shape .*\(batch, seq, heads, head_dim\)", function, q, k, Tensor((2, 100, 64)))
            self.refused(RuntimeError, "k is on", function, q, Tensor(k.shape, device="cpu"), v)
            self.refused(RuntimeError, "q is fp32: only torch.float16", function, *tensors(dtype="fp32"))
            self.refused(RuntimeError, "q is bf16, k fp16", function, q, Tensor(k.shape, "fp16"), v)
            self.refused(RuntimeError, "head_dim is 264: it must be at most 256", function, *tensors(head_dim=264))
            self.refused(RuntimeError, "4 heads and k 3", function, *tensors(heads_k=3))
            self.refused(RuntimeError, "batch and head_dim must be equal", function, q, Tensor((1, 100, 4, 64)), Tensor((1, 100, 4, 64)))
            self.refused(RuntimeError, "of one length", function, q, k, Tensor((2, 99, 4, 64)))
        self.refused(RuntimeError, r"qkv has shape .*\(batch, seq, 3,", flash_attn.flash_attn_qkvpacked_func, Tensor((2, 100, 2, 4, 64)))
        self.refused(RuntimeError, r"kv has shape .*\(batch, seq, 2,", flash_attn.flash_attn_kvpacked_func, q, Tensor((2, 100, 4, 64)))
        packed = flash_attn_interface.flash_attn_qkvpacked_func
        self.refused(AssertionError, r"\(batch, seq, 3,", packed, Tensor((2, 100, 2, 4, 64)))
        self.refused(AssertionError, "num_heads_q must say", packed, Tensor((2, 100, 12, 64)))
        self.refused(AssertionError, "cannot be halved", packed, Tensor((2, 100, 12, 64)), num_heads_q=7)

    def test_autocast_takes_other_types(self):
        with unittest.mock.patch.object(torch, "is_autocast_enabled", lambda device: True):
            FA2(*tensors(dtype="fp32"))
        self.assertEqual(len(self.calls), 1)
        self.calls.clear()


class WholeWay(unittest.TestCase):
    def test_it_stands_where_flash_attn_did(self):
        with unittest.mock.patch.dict(sys.modules, {"flash_attn": flash_attn, "flash_attn.flash_attn_interface": flash_attn}):
            from flash_attn import __version__, flash_attn_func
            from flash_attn.flash_attn_interface import flash_attn_varlen_func
        self.assertIs(flash_attn_func, FA2)
        self.assertIs(flash_attn_varlen_func, flash_attn.flash_attn_varlen_func)
        self.assertRegex(__version__, r"^2\.8\.")

    def test_a_valid_call_reaches_the_library(self):
        for function in (FA2, FA3):
            for options in ({}, {"causal": True, "return_attn_probs": True}, {"window_size": (7, 5), "softmax_scale": 0.5}):
                with self.assertRaises(attune.AttuneError) as caught:
                    function(*tensors(), **options)
                self.assertEqual(caught.exception.status, NO_DEVICE)


class Provided(unittest.TestCase):
    """import flash_attn, in a program that has said provide_flash_attn()."""

    def test_modules_versions_and_what_is_not_there(self):
        self.assertIsNone(importlib.util.find_spec("flash_attn"))
        with attune.provide_flash_attn(), attune.provide_flash_attn():
            for name in "flash_attn", "flash_attn_interface", "flash_attn.bert_padding", "flash_attn.cute":
                self.assertIsNotNone(importlib.util.find_spec(name))
            import flash_attn as provided
            import flash_attn.cute
            import flash_attn_interface as hopper
            from flash_attn import flash_attn_varlen_func
            from flash_attn.bert_padding import pad_input, unpad_input  # noqa: F401
            from flash_attn.flash_attn_interface import flash_attn_func
            from flash_attn.layers.rotary import apply_rotary_emb

            self.assertIs(flash_attn_func, FA2)
            self.assertIs(flash_attn_varlen_func, sys.modules["attune_kernels.flash_attn"].flash_attn_varlen_func)
            self.assertIs(hopper.flash_attn_func, FA3)
            self.assertIs(provided.cute.flash_attn_func, cute.flash_attn_func)
            self.assertEqual(provided.__version__, importlib.metadata.version("flash_attn"))
            self.assertEqual(importlib.metadata.version("flash-attn-3"), "3.0.0")
            of_modules = importlib.metadata.packages_distributions()
            self.assertEqual([of_modules[name] for name in ("flash_attn", "flash_attn_interface")], [["flash-attn"], ["flash-attn-3"]])
            with self.assertRaisesRegex(NotImplementedError, "rotary embeddings"):
                apply_rotary_emb()
            with self.assertRaisesRegex(ModuleNotFoundError, "flash_attn.losses.*none of its layers"):
                importlib.import_module("flash_attn.losses")
        self.assertNotIn("flash_attn", sys.modules)
        self.assertIsNone(importlib.util.find_spec("flash_attn"))
        with self.assertRaises(importlib.metadata.PackageNotFoundError):
            importlib.metadata.version("flash_attn")

    def test_another_one_that_is_in_use_is_left_alone(self):
        with unittest.mock.patch.dict(sys.modules, {"flash_attn": types.ModuleType("flash_attn")}):
            with self.assertRaisesRegex(RuntimeError, "flash_attn has been imported already, from somewhere else: call provide_flash_attn"):
                attune.provide_flash_attn()
        self.assertIsNone(importlib.util.find_spec("flash_attn"))


class Transformers(unittest.TestCase):
    def setUp(self):
        class Interface(dict):
            """transformers' AttentionInterface and AttentionMaskInterface: one mapping for all instances."""

            known = {"sdpa": "sdpa's"}

            @classmethod
            def register(cls, name, function):
                cls.known[name] = function

            def __getitem__(self, name):
                return self.known[name]

        self.functions = type("AttentionInterface", (Interface,), {"known": {"sdpa": self.sdpa}})
        self.masks = type("AttentionMaskInterface", (Interface,), {"known": {"sdpa": lambda **arguments: ("the mask of sdpa", arguments)}})
        self.library = types.SimpleNamespace(AttentionInterface=self.functions, AttentionMaskInterface=self.masks)
        self.ours, self.theirs = [], []
        for patch in (unittest.mock.patch.dict(sys.modules, {"transformers": self.library}),
                      unittest.mock.patch.object(transformers, "attention", self.attention)):
            patch.start()
            self.addCleanup(patch.stop)
        self.assertEqual(transformers.register(), "attune")
        self.query, self.key = Tensor((2, 8, 100, 64)), Tensor((2, 4, 100, 64))
        self.module = types.SimpleNamespace(is_causal=True)
        _reasons.forget()

    def attention(self, q, k, v, **options):
        self.ours.append((q.shape, k.shape, v.shape, options))
        return q.like(q.shape, "out")

    def sdpa(self, module, query, key, value, attention_mask, **options):
        self.theirs.append((query, attention_mask, options))
        return "sdpa's answer", None

    def call(self, query=None, key=None, value=None, mask=None, **options):
        key = key or self.key
        return self.functions.known["attune"](self.module, query or self.query, key, value or key, mask, **options)

    def test_names_are_registered(self):
        older = {"cache_position": "of Transformers 4", "kv_length": 3}
        self.assertEqual(self.masks.known["attune"](**older), ("the mask of sdpa", older))
        transformers.register("another")
        self.assertEqual(set(self.functions.known), {"sdpa", "attune", "another"})
        with unittest.mock.patch.dict(sys.modules, {"transformers": types.SimpleNamespace(AttentionInterface=self.functions)}):
            with self.assertRaisesRegex(ImportError, "Transformers 4.53 or newer"):
                transformers.register()

    def test_causal_and_unmasked_calls_are_attunes(self):
        out, weights = self.call(scaling=0.5, dropout=0.0, sliding_window=4096)
        self.assertEqual((out.shape, out.made, weights), ((2, 100, 8, 64), "contiguous", None))
        self.assertEqual(self.ours.pop(), ((2, 100, 8, 64), (2, 100, 4, 64), (2, 100, 4, 64),
                                           {"causal": True, "top_left": False, "scale": 0.5, "softcap": 0.0, "sinks": None, "dropout_p": 0.0, "layout": "bshd"}))
        self.call(dropout=0.25)
        self.assertEqual(self.ours.pop()[3]["dropout_p"], 0.25)
        self.call(softcap=50.0)
        self.assertEqual(self.ours.pop()[3]["softcap"], 50.0)
        for options, seq_q, seq_k, expected in [
            ({"is_causal": False}, 100, 100, (100, False, False)),
            ({}, 1, 70, (70, False, False)),  # a step of decoding
            ({}, 100, 300, (100, True, False)),  # a cache that was allocated ahead
            ({}, 100, 70, (70, True, True)),
        ]:
            self.call(Tensor((2, 8, seq_q, 64)), Tensor((2, 4, seq_k, 64)), **options)
            _, k, _, given = self.ours.pop()
            self.assertEqual((k[1], given["causal"], given["top_left"]), expected)
        self.module.is_causal = False
        self.call()
        self.assertEqual(self.ours.pop()[3]["causal"], False)
        self.assertEqual(self.theirs, [])

    def test_masks_and_position_biases_are_terms(self):
        mask, numbers, bias = Tensor((2, 1, 100, 100), "bool"), Tensor((2, 1, 1, 100)), Tensor((1, 8, 100, 100), "fp32")
        for options, terms in [({"mask": mask}, {"attention_mask": mask, "bias": None}), ({"mask": numbers}, {"bias": numbers}),
                               ({"mask": mask, "position_bias": bias}, {"attention_mask": mask, "bias": bias}),
                               ({"mask": mask, "s_aux": bias, "softcap": 3.0}, {"attention_mask": mask, "bias": None, "sinks": bias, "softcap": 3.0})]:
            self.call(scaling=0.5, **options)
            self.assertEqual(self.ours.pop()[3], {"scale": 0.5, "softcap": 0.0, "sinks": None, "dropout_p": 0.0, "layout": "bshd"} | terms)
        self.call(position_bias=bias)
        self.assertEqual((self.ours[-1][3]["causal"], self.ours[-1][3]["bias"]), (True, bias))
        self.assertEqual(self.theirs, [])

    def test_sdpa_answers_the_rest_and_says_so_once(self):
        mask, other = Tensor((2, 1, 100, 99), "bool"), Tensor((2, 4, 100, 32))
        for options, reason in [({"mask": mask}, "a mask of the shape"), ({"dropout": 1.0}, "a dropout of all"), ({"cache": "pages"}, "cache"),
                                ({"position_bias": mask}, "a position_bias of bool"), ({"output_attentions": True}, "output_attentions"),
                                ({"query": Tensor((2, 8, 100, 64), device="cpu")}, "tensors on cpu"),
                                ({"query": Tensor((2, 8, 100, 64), "fp32")}, "fp32"), ({"value": other}, "a head_dim of 64 for keys and 32"),
                                ({"query": Tensor((2, 8, 100, 60)), "key": Tensor((2, 8, 100, 60))}, "a head_dim of 60"),
                                ({"query": Tensor((1, 8, 100, 64))}, "broadcast"),
                                ({"key": Tensor((2, 4, 100, 64), strides=(25600, 6400, 1, 100))}, "not contiguous")]:
            _reasons.forget()
            with self.subTest(reason=reason), self.assertLogs("attune", "WARNING") as logged:
                self.assertEqual(self.call(scaling=0.5, **options), ("sdpa's answer", None))
                self.assertRegex(logged.output[0], f"Attune does not serve .*{reason}.*sdpa")
            self.assertEqual(self.theirs[-1][2]["scaling"], 0.5)
            with self.assertNoLogs("attune", "WARNING"):
                self.call(scaling=0.5, **options)
            self.assertIs(self.theirs[-1][1], options.get("mask"))
            for name in {"dropout", "cache", "position_bias"} & options.keys():
                self.assertEqual(self.theirs[-1][2][name], options[name])
        self.assertEqual(self.ours, [])

    def test_what_sdpa_would_leave_out_is_refused(self):
        lengths = Tensor((4,), "i32")
        mask = Tensor((2, 1, 100, 99), "bool")
        for options, words in [({"s_aux": lengths, "mask": mask}, "sinks .* with a mask of the shape"), ({"softcap": 50.0, "mask": mask}, "softcap with a mask of the shape"),
                               ({"softcap": 50.0, "dropout": 1.0}, "softcap with a dropout of all"), ({"cu_seq_lens_q": lengths}, "packed sequences .* with 2 batch entries"),
                               ({"cu_seq_lens_q": lengths, "dropout": 1.0}, "packed sequences .* with a dropout of all")]:
            with self.assertRaisesRegex(NotImplementedError, f"attune does not serve .*{words}.*attn_implementation="):
                self.call(**options)
        self.assertEqual((len(self.ours), len(self.theirs)), (0, 0))
        self.call(s_aux=Tensor((4,), "bf16"), softcap=None, cu_seq_lens_q=Tensor((2,), "i32"))  # one sequence
        self.call(mask=Tensor((2, 1, 100, 100), "bool"), cu_seq_lens_q=lengths)  # which the mask separates
        self.assertEqual((len(self.ours), len(self.theirs)), (2, 0))


    def test_packed_sequences(self):
        self.query, self.key = Tensor((1, 8, 100, 64)), Tensor((1, 4, 100, 64))
        begins, of_keys = Tensor((5,), "i32"), Tensor((5,), "i32")
        for options, wanted in [({}, {"causal": True, "window": None}), ({"is_causal": False}, {"causal": False, "window": None})]:
            out, none = self.call(cu_seq_lens_q=begins, cu_seq_lens_k=of_keys, scaling=0.5, s_aux=of_keys, dropout=0.5, **options)
            *shapes, given = self.ours.pop()
            self.assertEqual((shapes, out.shape, none), ([(100, 8, 64), (100, 4, 64), (100, 4, 64)], (1, 100, 8, 64), None))
            self.assertEqual(given, {"layout": "bshd", "scale": 0.5, "softcap": 0.0, "sinks": of_keys, "dropout_p": 0.5, "cu_seqlens_q": begins, "cu_seqlens_kv": of_keys, **wanted})
        self.call(cu_seq_lens_q=begins)
        self.assertIs(self.ours.pop()[-1]["cu_seqlens_kv"], begins)


unittest.main()

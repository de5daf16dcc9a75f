"""Calls of the Python binding of a kind that was made before, without a GPU and without PyTorch: what is checked once, and what each brings.

usage: python_kinds.py REPOSITORY LIBATTUNE
"""

import copy
import ctypes
import os
import pathlib
import sys
import unittest
import unittest.mock

REPOSITORY, LIBRARY = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
os.environ.update(ATTUNE_LIBRARY=LIBRARY, CUDA_VISIBLE_DEVICES="")  # pointers here are made up: no GPU may see them
sys.dont_write_bytecode = True
sys.path.insert(0, str(REPOSITORY / "bindings" / "python"))

import fake_torch  # noqa: E402
from fake_torch import Tensor  # noqa: E402

fake_torch.install()
import attune_kernels as attune  # noqa: E402
from attune_kernels import _attention, _calls, _library  # noqa: E402

class RecordingLibrary:
    """libattune, which writes down what it is given instead of launching it. `inside` is called in the middle of a launch."""

    def __init__(self):
        self.launches, self.asked_for_workspace, self.inside = [], 0, lambda: None
        self.reasons = {}  # by pass: why it is not served

    def attune_workspace_bytes(self, problem, needed):
        self.asked_for_workspace += 1
        needed._obj.value = 1000
        return 0

    def attune_unsupported(self, problem, text, capacity, needed):
        reason = self.reasons.get(problem.pass_, "").encode() + b"\0"
        if text is not None:
            text[:len(reason)] = reason
        if needed is not None:
            needed._obj.value = len(reason)
        return 0

    def __getitem__(self, name):
        function = getattr(self, name, None)  # a reference is a struct in the end, and c_void_p a number
        return lambda *arguments: function(*(one if isinstance(one, ctypes.Array) else getattr(one, "_obj", None) or one.value
                                             for one in arguments))

    def attune_forward(self, problem, operands, count, workspace, workspace_bytes, stream):
        self.inside()
        q, k, v, o, lse = (operand.tensor for operand in operands[:5])
        self.strides_of = {operand.name: (operand.tensor.stride_batch, operand.tensor.stride_head, operand.tensor.stride_row) for operand in operands[:count]}
        self.launches.append({"operands": {operand.name: operand.tensor.data for operand in operands[:count]},
                              "problem": copy.copy(problem), "o": o.data, "q": q.data, "k": k.data, "v": v.data, "lse": lse.data,
                              "stride": q.stride_head, "bytes": workspace_bytes})
        return 0

    def attune_prepare(self, problem, config, prepared):
        prepared._obj.value = 7
        return 0

    def attune_launch(self, prepared, *arguments):
        assert prepared == 7
        return self.attune_forward(*arguments)

    def attune_launch_backward(self, prepared, *arguments):
        return self.attune_backward(*arguments)

    def attune_release(self, prepared):
        assert prepared.value == 7

    def attune_backward(self, problem, operands, count, workspace, workspace_bytes, stream):
        _, _, _, o, lse, d_q, d_k, d_v, d_o, d_lse = (operand.tensor.data for operand in operands[:10])
        self.strides_of = {operand.name: (operand.tensor.stride_batch, operand.tensor.stride_head, operand.tensor.stride_row) for operand in operands[:count]}
        self.launches.append({"operands": {operand.name: operand.tensor.data for operand in operands[:count]}, "problem": copy.copy(problem), "o": o, "lse": lse, "d_lse": d_lse, "d": [d_o, d_q, d_k, d_v]})
        return 0


class Kinds(unittest.TestCase):
    """A call is checked once for each kind; later ones of the kind bring their own pointers."""

    def setUp(self):
        self.library = RecordingLibrary()
        for patch in (unittest.mock.patch.object(_library, "load", lambda: self.library),
                      unittest.mock.patch.object(_calls, "_forward_launchers", {}), unittest.mock.patch.object(_calls, "_backward_launchers", {})):
            patch.start()
            self.addCleanup(patch.stop)
        self.addresses = iter(range(1 << 20, 1 << 30, 256))
        fresh = unittest.mock.patch.object(sys.modules["torch"], "empty_like", self.like)
        fresh.start()
        self.addCleanup(fresh.stop)

    def tensor(self, shape=(2, 4, 100, 64), **options):
        return Tensor(shape, address=next(self.addresses), **options)

    def like(self, tensor):
        return self.tensor(tensor.shape, dtype=tensor.dtype, strides=tensor.strides)

    def test_pointers_are_those_of_the_call(self):
        for _ in range(3):
            q, k, v = (self.tensor() for _ in range(3))
            out = attune.attention(q, k, v, causal=True)
            launch = self.library.launches[-1]
            self.assertEqual([launch[name] for name in "qkvo"], [one.address for one in (q, k, v, out)])
            self.assertEqual((launch["lse"], launch["bytes"], launch["problem"].mask), (None, 1000, _library.MASK_CAUSAL))
        self.assertEqual(attune.attention(q, k, v, causal=True, return_lse=True)[1].address, self.library.launches[-1]["lse"])
        self.assertEqual(self.library.asked_for_workspace, 1)

    def test_what_is_not_served_is_told_before_a_call(self):
        q, k, v = (self.tensor() for _ in range(3))
        self.assertIsNone(attune.unsupported(q, k, v, causal=True))
        self.library.reasons = {_library.BACKWARD: "no gradients on this GPU"}
        self.assertIsNone(attune.unsupported(q, k, v))
        self.assertEqual(attune.unsupported(self.tensor(requires_grad=True), k, v), "no gradients on this GPU")
        self.library.reasons[_library.FORWARD] = "nothing on this GPU"
        self.assertEqual(attune.unsupported(q, k, v), "nothing on this GPU")
        self.assertIn("k has shape", attune.unsupported(q, self.tensor((2, 4, 90, 64)), v))
        self.assertIn("fp32", attune.unsupported(self.tensor(dtype="fp32"), k, v))
        self.assertIsNone(attune.unsupported(*(self.tensor((0, 4, 100, 64)) for _ in range(3))))
        self.assertEqual(self.library.launches, [])

    def test_what_makes_a_kind(self):
        def call(shape=(2, 4, 100, 64), others=None, **options):
            tensors = {name: options.pop(name) for name in ("dtype", "strides", "device") if name in options}
            q, k, v = self.tensor(shape, **tensors), self.tensor(others or shape, **tensors), self.tensor(others or shape, **tensors)
            if options.pop("unaligned", False):
                q.address += 2
            attune.attention(q, k, v, **options)
            return self.library.launches[-1]["problem"]

        self.assertEqual(call().alignment, 16)
        self.assertEqual(call(unaligned=True).alignment, 2)
        self.assertEqual(call(others=(2, 4, 90, 64)).seq_kv, 90)
        self.assertEqual(call(dtype="fp16").dtype, _library.FP16)
        self.assertEqual(call(device="cuda:1").device, 2)
        self.assertEqual(call(scale=0.5).softmax_scale, 0.5)
        self.assertEqual(call(window=(3, 4)).window_right, 4)
        self.assertEqual(call(window=[3, 5]).window_right, 5)  # a list is no key
        self.assertEqual(call(layout="bshd").heads_q, 100)
        call(strides=(51200, 64, 512, 1))
        self.assertEqual(self.library.launches[-1]["stride"], 64)
        kinds = len(_calls._forward_launchers)
        self.assertEqual(kinds, 9)
        self.assertEqual(call().alignment, 16)
        self.assertEqual(len(_calls._forward_launchers), kinds)

    def test_dropout(self):
        q, k, v, out, grad_out = (self.tensor() for _ in range(5))
        lse, state = Tensor((2, 4, 100), "fp32"), self.tensor((2,), dtype="int64")
        attune.attention(q, k, v, dropout_p=0.25, dropout_state=state)
        launch = self.library.launches[-1]
        self.assertEqual((launch["problem"].dropout, launch["operands"][_library.DROPOUT_STATE]), (0.25, state.address))
        attune.backward(grad_out, q, k, v, out, lse, dropout_p=0.25, dropout_state=state)
        launch = self.library.launches[-1]
        self.assertEqual((launch["problem"].dropout, launch["operands"][_library.DROPOUT_STATE]), (0.25, state.address))
        drawn = self.tensor((2,), dtype="int64")
        with unittest.mock.patch.object(_attention, "new_dropout_state", lambda device: drawn):
            attune.attention(q, k, v, dropout_p=0.25)
        self.assertEqual(self.library.launches[-1]["operands"][_library.DROPOUT_STATE], drawn.address)
        attune.attention(q, k, v, dropout_state=state)  # which nobody asks for
        self.assertEqual(self.library.launches[-1]["problem"].dropout, 0)
        for p in (1.0, -0.1, float("nan"), 1e-60):
            with self.assertRaisesRegex(ValueError, "dropout_p is .*: it must be at least 0 and less than 1"):
                attune.attention(q, k, v, dropout_p=p, dropout_state=state)
        with self.assertRaisesRegex(ValueError, "invariant with dropout_p"):
            attune.attention(q, k, v, dropout_p=0.1, dropout_state=state, invariant=True)
        with self.assertRaisesRegex(ValueError, "dropout_p needs a dropout_state here"):
            attune.backward(grad_out, q, k, v, out, lse, dropout_p=0.25)
        for wrong, words in ((self.tensor((3,), dtype="int64"), "it must have .2,., a number for the seed and the offset"),
                             (self.tensor((2,), dtype="int32"), "it must be int64")):
            with self.assertRaisesRegex((TypeError, ValueError), "dropout_state.*" + words):
                attune.attention(q, k, v, dropout_p=0.25, dropout_state=wrong)

    def test_sinks(self):
        q, k, v, out, grad_out = (self.tensor() for _ in range(5))
        lse, places = Tensor((2, 4, 100), "fp32"), list(range(_library.LSE + 1))
        for _ in range(2):
            sinks = self.tensor((4,), dtype="fp32")
            attune.attention(q, k, v, sinks=sinks)
            launch = self.library.launches[-1]
            self.assertEqual((launch["problem"].sink, list(launch["operands"])), (1, [*places, _library.SINKS, _library.SEQUSED_Q, _library.SEQUSED_KV, _library.ALIBI_SLOPES, _library.BIAS,
                                                                                           _library.ATTENTION_MASK, _library.CU_SEQLENS_Q, _library.CU_SEQLENS_KV, _library.DROPOUT_STATE]))
            self.assertEqual(launch["operands"][_library.SINKS], sinks.address)
            self.assertEqual([launch[name] for name in "qkv"], [one.address for one in (q, k, v)])
            grads = attune.backward(grad_out, q, k, v, out, lse, sinks=sinks)
            launch = self.library.launches[-1]
            self.assertEqual((len(grads), launch["problem"].sink), (4, 1))
            self.assertEqual(list(launch["operands"]), [*range(_library.BIAS + 1), _library.D_BIAS, _library.ATTENTION_MASK,
                                                            _library.CU_SEQLENS_Q, _library.CU_SEQLENS_KV, _library.DROPOUT_STATE])
            self.assertEqual([launch["operands"][name] for name in (_library.SINKS, _library.D_SINKS)], [sinks.address, grads[3].address])
        self.assertEqual(self.library.asked_for_workspace, 2)
        attune.attention(q, k, v)  # of another kind
        self.assertEqual((self.library.launches[-1]["problem"].sink, list(self.library.launches[-1]["operands"])), (0, places))
        self.assertIsNone(attune.unsupported(q, k, v, sinks=sinks))
        for wrong, words in ((self.tensor((3,), dtype="fp32"), "it must have .4,., a number for each head of q"),
                             (self.tensor((1, 4), dtype="fp32"), "it must have .4,."), (self.tensor((4,), dtype="fp64"), "sinks is fp64"),
                             (self.tensor((4,), dtype="fp32", device="cuda:1"), "on one device"), ([1, 2, 3, 4], "sinks is a list"),
                             (self.tensor((4,), dtype="fp32", strides=(2,)), "not contiguous")):
            with self.assertRaisesRegex((TypeError, ValueError), words):
                attune.attention(q, k, v, sinks=wrong)
        with self.assertRaisesRegex(ValueError, "grads has 3 elements: it must have 4, the gradients of q, k, v, sinks"):
            attune.backward(grad_out, q, k, v, out, lse, sinks=sinks, grads=(q, k, v))

    def test_used_lengths(self):
        q, k, v, out, grad_out = (self.tensor() for _ in range(5))
        lse, names = Tensor((2, 4, 100), "fp32"), (_library.SEQUSED_Q, _library.SEQUSED_KV)
        for given in ("seqused_q", "seqused_kv"), ("seqused_kv",), ("seqused_q", "sinks"):
            terms = {name: self.tensor((4,), dtype="fp32") if name == "sinks" else self.tensor((2,), dtype="int32") for name in given}
            addresses = [terms[name].address if name in terms else 0 for name in ("seqused_q", "seqused_kv")]
            attune.attention(q, k, v, **terms)
            launch = self.library.launches[-1]
            self.assertEqual((launch["problem"].used_lengths, launch["problem"].sink), (1, "sinks" in given))
            self.assertEqual([launch["operands"][name] or 0 for name in names], addresses)
            self.assertEqual(len(attune.backward(grad_out, q, k, v, out, lse, **terms)), 3 + ("sinks" in given))
            self.assertEqual([self.library.launches[-1]["operands"][name] or 0 for name in names], addresses)
            self.assertIsNone(attune.unsupported(q, k, v, **terms))
        attune.attention(q, k, v)
        self.assertEqual(self.library.launches[-1]["problem"].used_lengths, 0)
        for wrong, words in ((self.tensor((3,), dtype="int32"), "it must have .2,., a number for each batch entry"),
                             (self.tensor((2,), dtype="fp32"), "seqused_kv is fp32: it must be"), ([1, 2], "seqused_kv is a list"),
                             (self.tensor((2,), dtype="int32", device="cuda:1"), "on one device"),
                             (self.tensor((2,), dtype="int32", strides=(2,)), "not contiguous")):
            with self.assertRaisesRegex((TypeError, ValueError), words):
                attune.attention(q, k, v, seqused_kv=wrong)

    def test_packed_sequences(self):
        for layout, shapes in ("bshd", ((100, 4, 64), (70, 2, 64))), ("bhsd", ((4, 100, 64), (2, 70, 64))):
            q, k, v = self.tensor(shapes[0]), self.tensor(shapes[1]), self.tensor(shapes[1])
            begins, of_keys = self.tensor((6,), dtype="int32"), self.tensor((6,), dtype="int32")
            out, lse = attune.attention(q, k, v, layout=layout, causal=True, cu_seqlens_q=begins, cu_seqlens_kv=of_keys, return_lse=True)
            self.assertEqual((out.shape, lse.shape), (q.shape, (4, 100)))
            launch = self.library.launches[-1]
            problem = launch["problem"]
            self.assertEqual((problem.packed, problem.batch, problem.heads_q, problem.heads_kv, problem.seq_q, problem.seq_kv), (1, 5, 4, 2, 100, 70))
            self.assertEqual([launch["operands"][name] for name in (_library.CU_SEQLENS_Q, _library.CU_SEQLENS_KV)], [begins.address, of_keys.address])
            self.assertIsNone(attune.unsupported(q, k, v, layout=layout, cu_seqlens_q=begins, cu_seqlens_kv=of_keys))
            prepared = attune.prepare(q, k, v, layout=layout, causal=True, config="sm80", cu_seqlens_q=begins, cu_seqlens_kv=of_keys)
            out, lse = prepared(q, k, v, cu_seqlens_q=begins, cu_seqlens_kv=of_keys, return_lse=True)
            self.assertEqual((out.shape, lse.shape, self.library.launches[-1]["problem"].packed), (q.shape, (4, 100), 1))
            lse = Tensor((4, 100), "fp32")
            grads = attune.backward(q, q, k, v, q, lse, layout=layout, cu_seqlens_q=begins, cu_seqlens_kv=of_keys)
            self.assertEqual([grad.shape for grad in grads], [q.shape, k.shape, v.shape])
            launch = self.library.launches[-1]
            self.assertEqual((launch["problem"].packed, launch["problem"].batch), (1, 5))
            self.assertEqual([launch["operands"][name] for name in (_library.CU_SEQLENS_Q, _library.CU_SEQLENS_KV)], [begins.address, of_keys.address])
            prepared = attune.prepare_backward(q, k, v, layout=layout, config="sm80", cu_seqlens_q=begins, cu_seqlens_kv=of_keys)
            grads = tuple(self.tensor(one.shape) for one in (q, k, v))
            self.assertIs(prepared(q, q, k, v, q, lse, grads=grads, cu_seqlens_q=begins, cu_seqlens_kv=of_keys), grads)
            self.assertEqual([self.library.launches[-1]["operands"][name] for name in (_library.D_Q, _library.D_K, _library.D_V)],
                             [grad.address for grad in grads])
        with self.assertRaisesRegex(ValueError, "grad_lse has shape .2, 4, 100.: .* it must be a tensor of .heads, tokens."):
            attune.backward(q, q, k, v, q, lse, grad_lse=Tensor((2, 4, 100), "fp32"), cu_seqlens_q=begins, cu_seqlens_kv=of_keys)
        self.assertRegex(attune.unsupported(q, k, v, cu_seqlens_q=begins), "give both")
        slopes = self.tensor((5, 4), dtype="fp32")
        attune.attention(q, k, v, cu_seqlens_q=begins, cu_seqlens_kv=of_keys, alibi_slopes=slopes, seqused_q=self.tensor((5,), dtype="int32"))
        self.assertEqual((self.library.launches[-1]["problem"].alibi, self.library.launches[-1]["problem"].used_lengths), (1, 1))
        attune.attention(self.tensor(), self.tensor(), self.tensor())
        self.assertEqual(self.library.launches[-1]["problem"].packed, 0)
        good = dict(cu_seqlens_q=begins, cu_seqlens_kv=of_keys)
        for shape, dimensions, longest in (((5, 4, 30, 33), 14, (30, 33)), ((1, 4, 1, 33), 4, (0, 33)), ((30, 33), 8, (30, 33)), ((33,), 0, (0, 33))):
            attune.attention(q, k, v, **good, bias=self.tensor(shape))
            problem = self.library.launches[-1]["problem"]
            self.assertEqual((problem.packed, problem.bias - _library.PAIRS, problem.max_seq_q, problem.max_seq_kv), (1, dimensions, *longest))
        attune.attention(q, k, v, **good, bias=self.tensor((4, 1, 33)), attention_mask=self.tensor((5, 1, 30, 33), dtype="bool"))
        self.assertEqual((self.library.launches[-1]["problem"].max_seq_q, self.library.launches[-1]["problem"].max_seq_kv), (30, 33))
        attune.attention(q, k, v, **good)
        self.assertEqual((self.library.launches[-1]["problem"].max_seq_q, self.library.launches[-1]["problem"].max_seq_kv), (0, 0))
        for wrong, words in ((dict(cu_seqlens_q=begins), "together where packed sequences begin: give both"),
                             (dict(good, cu_seqlens_kv=self.tensor((5,), dtype="int32")), "it must have .6,., a number for each sequence, and one more"),
                             (dict(good, cu_seqlens_q=self.tensor((1,), dtype="int32")), "a number for each sequence, and one more"),
                             (dict(good, cu_seqlens_q=[0, 100]), "cu_seqlens_q is a list"),
                             (dict(good, cu_seqlens_q=self.tensor((6,), dtype="int64")), "cu_seqlens_q is int64: it must be"),
                             (dict(good, bias=self.tensor((2, 4, 30, 33))), "bias has shape .2, 4, 30, 33.: it must have .5, 4, 30, 33.,"),
                             (dict(good, bias=self.tensor((30, 33)), attention_mask=self.tensor((30, 34), dtype="bool")),
                              "attention_mask has shape .30, 34. and bias .30, 33.: their numbers of keys must be equal"),
                             (dict(good, seqused_q=self.tensor((4,), dtype="int32")), "seqused_q has shape .4,.: it must have .5,.")):
            with self.assertRaisesRegex((TypeError, ValueError), words):
                attune.attention(q, k, v, **wrong)
        with self.assertRaisesRegex(ValueError, "it must be a tensor of .heads, tokens, head_dim."):
            attune.attention(self.tensor(), self.tensor(), self.tensor(), **good)

    def test_slopes(self):
        q, k, v, out, grad_out = (self.tensor() for _ in range(5))
        lse = Tensor((2, 4, 100), "fp32")
        for shape, strides, wanted in ((4,), (3,), (0, 3, 0)), ((2, 4), (8, 2), (8, 2, 0)):
            slopes = self.tensor(shape, dtype="fp32", strides=strides)
            attune.attention(q, k, v, alibi_slopes=slopes)
            launch = self.library.launches[-1]
            self.assertEqual((launch["problem"].alibi, launch["operands"][_library.ALIBI_SLOPES]), (1, slopes.address))
            self.assertEqual(self.library.strides_of[_library.ALIBI_SLOPES], wanted)
            self.assertEqual(len(attune.backward(grad_out, q, k, v, out, lse, alibi_slopes=slopes)), 3)
            self.assertEqual(self.library.launches[-1]["operands"][_library.ALIBI_SLOPES], slopes.address)
            self.assertIsNone(attune.unsupported(q, k, v, alibi_slopes=slopes))
        attune.attention(q, k, v)
        self.assertEqual(self.library.launches[-1]["problem"].alibi, 0)
        for wrong, words in ((self.tensor((2,), dtype="fp32"), "it must have .4,. or .2, 4., a number for each head of q"),
                             (self.tensor((4,), dtype="int32"), "alibi_slopes is int32: it must be"), (0.5, "alibi_slopes is a float"),
                             (self.tensor((4,), dtype="fp32", device="cuda:1"), "on one device")):
            with self.assertRaisesRegex((TypeError, ValueError), words):
                attune.attention(q, k, v, alibi_slopes=wrong)

    def test_tensors_of_pairs(self):
        q, k, v, out, grad_out = (self.tensor() for _ in range(5))
        lse = Tensor((2, 4, 100), "fp32")
        pairs, batch, heads, queries = _library.PAIRS, _library.PAIRS_BATCH, _library.PAIRS_HEADS, _library.PAIRS_QUERIES
        for shape, strides, has, wanted in (((2, 4, 100, 100), None, pairs + batch + heads + queries, (40000, 10000, 100)),
                                            ((1, 4, 100, 100), (7, 10000, 100, 1), pairs + heads + queries, (0, 10000, 100)),
                                            ((2, 1, 1, 100), (300, 5, 5, 1), pairs + batch, (300, 0, 0)),
                                                                                        ((100, 100), (128, 1), pairs + queries, (0, 0, 128)), ((100,), (1,), pairs, (0, 0, 0))):
            for name, operand, dtype in (("bias", _library.BIAS, "bf16"), ("bias", _library.BIAS, "fp32"),
                                         ("attention_mask", _library.ATTENTION_MASK, "bool")):
                given = {name: self.tensor(shape, dtype=dtype, strides=strides)}
                with self.subTest(shape=shape, strides=strides, name=name, dtype=dtype):
                    attune.attention(q, k, v, **given)
                    problem = self.library.launches[-1]["problem"]
                    self.assertEqual((problem.bias, problem.attention_mask), (has, 0) if name == "bias" else (0, has))
                    self.assertEqual(problem.bias_fp32, dtype == "fp32")
                    self.assertEqual(self.library.launches[-1]["operands"][operand], given[name].address)
                    self.assertEqual(self.library.strides_of[operand], wanted)
                    self.assertEqual(len(attune.backward(grad_out, q, k, v, out, lse, **given)), 3)
                    self.assertEqual(self.library.strides_of[operand], wanted)
                    self.assertIsNone(attune.unsupported(q, k, v, **given))
        attune.attention(q, k, v)
        problem = self.library.launches[-1]["problem"]
        self.assertEqual((problem.bias, problem.attention_mask), (0, 0))
        for wrong, words in ((dict(bias=self.tensor((3, 100), dtype="bf16")), "bias has shape .3, 100.: it must have .2, 4, 100, 100., a number for"),
                             (dict(bias=self.tensor((100, 1), dtype="bf16")), "bias has shape .100, 1."),
                             (dict(bias=self.tensor((1, 1, 1, 1, 100), dtype="bf16")), "bias has shape"),
                             (dict(bias=self.tensor((100, 100), dtype="fp16")), "bias is fp16: it must be bf16 or fp32"),
                             (dict(attention_mask=self.tensor((100, 100), dtype="bf16")), "attention_mask is bf16: it must be bool"),
                             (dict(attention_mask=True), "attention_mask is a bool"),
                             (dict(bias=self.tensor((100, 100), dtype="bf16", device="cuda:1")), "on one device"),
                             (dict(bias=1.0), "bias is a float")):
            with self.assertRaisesRegex((TypeError, ValueError), words):
                attune.attention(q, k, v, **wrong)
        for shape, wanted in ((2, 4, 100, 100), (40000, 10000, 100)), ((4, 100, 100), (0, 10000, 100)), ((2, 1, 1, 100), (100, 0, 0)):
            for dtype in "bf16", "fp32":
                bias = self.tensor(shape, dtype=dtype)
                grads = attune.backward(grad_out, q, k, v, out, lse, bias=bias, bias_gradient=True)
                self.assertEqual((len(grads), grads[3].shape, grads[3].dtype), (4, shape, dtype))
                launch = self.library.launches[-1]
                self.assertEqual((launch["problem"].bias_gradient, launch["operands"][_library.D_BIAS]), (1, grads[3].address))
                self.assertEqual(self.library.strides_of[_library.D_BIAS], wanted)
        with self.assertRaisesRegex(ValueError, "grads has 3 elements: it must have 4, the gradients of q, k, v, bias"):
            attune.backward(grad_out, q, k, v, out, lse, bias=bias, bias_gradient=True, grads=[self.tensor() for _ in range(3)])
        given = [*(self.tensor() for _ in range(3)), self.tensor((2, 1, 1, 100), dtype="fp32", strides=(500, 9, 9, 1))]
        attune.backward(grad_out, q, k, v, out, lse, bias=bias, bias_gradient=True, grads=given)
        self.assertEqual(self.library.strides_of[_library.D_BIAS], (500, 0, 0))

    def test_a_tensor_of_pairs_whose_keys_lie_apart_is_copied_and_said(self):
        q, k, v = (self.tensor() for _ in range(3))
        with self.assertLogs("attune", "WARNING") as logs:
            attune.attention(q, k, v, bias=self.tensor((100, 100), dtype="bf16", strides=(1, 100)))
        self.assertIn("bias whose elements of keys do not lie one after the other; it is copied", logs.output[0])
        self.assertEqual(self.library.strides_of[_library.BIAS], (0, 0, 100))

    def test_a_call_inside_of_a_call_has_structs_of_its_own(self):
        outer, inner = [self.tensor() for _ in range(3)], [self.tensor() for _ in range(3)]
        attune.attention(*outer)

        def inside():
            self.library.inside = lambda: None
            attune.attention(*inner)

        self.library.inside = inside
        attune.attention(*outer)
        self.assertEqual([launch["q"] for launch in self.library.launches], [outer[0].address, inner[0].address, outer[0].address])

    def test_old_kinds_are_forgotten(self):
        with unittest.mock.patch.object(_calls, "_KINDS_KEPT", 3):
            for seq in range(10, 20):
                attune.attention(*(self.tensor((1, 1, seq, 64)) for _ in range(3)))
                self.assertLessEqual(len(_calls._forward_launchers), 3)
        self.assertEqual([launch["problem"].seq_q for launch in self.library.launches], list(range(10, 20)))

    def test_wrong_tensors_are_named_after_right_ones_of_the_shape(self):
        q, k, v = (self.tensor() for _ in range(3))
        attune.attention(q, k, v)
        for wrong in (self.tensor(dtype="fp16"), self.tensor(device="cpu"), self.tensor(device="cuda:1"), Tensor(k.shape, address=0)):
            with self.assertRaises((TypeError, ValueError)):
                attune.attention(q, wrong, v)
        self.assertEqual(len(self.library.launches), 1)

    def test_backward(self):
        lse, options = Tensor((2, 4, 100), "fp32"), {"causal": True}
        for grad_lse in (None, Tensor((2, 4, 100), "fp32", address=1 << 8), None):
            q, k, v, out, grad_out = (self.tensor() for _ in range(5))
            grads = attune.backward(grad_out, q, k, v, out, lse, grad_lse=grad_lse, **options)
            launch = self.library.launches[-1]
            self.assertEqual((launch["o"], launch["d_lse"], launch["problem"].pass_), (out.address, grad_lse and 1 << 8, 1))
            self.assertEqual(launch["d"], [tensor.address for tensor in (grad_out, *grads)])
        self.assertEqual(self.library.asked_for_workspace, 2)
        with unittest.mock.patch.object(sys.modules["torch"], "are_deterministic_algorithms_enabled", lambda: True):
            attune.backward(grad_out, q, k, v, out, lse, **options)
        self.assertEqual(self.library.launches[-1]["problem"].deterministic, 1)
        for wrong in (Tensor((2, 4, 99), "fp32"), Tensor((2, 4, 100), "fp32", device="cuda:1"), Tensor((2, 4, 100), "bf16")):
            with self.assertRaises((TypeError, ValueError)):
                attune.backward(grad_out, q, k, v, out, wrong, **options)
        with self.assertRaisesRegex(ValueError, "cannot be differentiated"):
            attune.backward(grad_out, q, self.tensor(requires_grad=True), v, out, lse, **options)


unittest.main()

"""Who computes a problem: for each name what launches it once and how its output reads."""

import dataclasses
import typing

from .flash_operators import attention_3, packed_attention_2
from .inputs import DTYPES, as_attune_takes_it, as_seen, shapes_without_memory, terms_of
from .packed import PackedGradientReference, PackedReference
from .peer_library import PeerAttention
from .references import GradientReference, Reference

OWN = ("attune", "deterministic")  # contenders that are Attune's


@dataclasses.dataclass
class Contender:
    launches: list  # one for each copy of the inputs; each launches once and returns what `read` takes
    read: typing.Callable = lambda out: out  # the output as (batch, heads, seq, head_dim) views
    launch_to_check: typing.Callable = None  # whose output is checked, where it is not that of the others: without dropout, of which each has its own


def torch_backends():
    from torch.nn.attention import SDPBackend

    return {"cudnn": SDPBackend.CUDNN_ATTENTION, "fa2": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}


def _combined(torch, problem, terms):
    """One tensor of a bias and an attention mask, as PyTorch takes it: booleans, or numbers of the problem's type."""
    bias, mask = terms.get("bias"), terms.get("attention_mask")
    if bias is None:
        return mask
    bias = bias.to(getattr(torch, DTYPES[problem.dtype]))
    return bias if mask is None else torch.where(mask, bias, -torch.inf)


def torch_attention(torch, problem, name, terms, q, k, v):
    """torch.nn.functional.scaled_dot_product_attention by one backend. Raises RuntimeError if that does not serve the problem."""
    from torch.nn.attention import sdpa_kernel

    if problem.softcap != 0:
        raise RuntimeError("has no softcap")
    if problem.sink:
        raise RuntimeError("has no sinks")
    if problem.window is not None:
        raise RuntimeError("has no windows")
    if problem.alibi:
        raise RuntimeError("has no ALiBi")
    if (terms.get("bias") is not None or terms.get("attention_mask") is not None) and (problem.is_causal or name == "fa2"):
        raise RuntimeError("has no mask as a tensor" + " beside a causal one" * (name != "fa2"))
    options = {"scale": problem.softmax_scale, "enable_gqa": problem.heads != problem.kv_heads, "dropout_p": problem.dropout}
    if terms.get("bias") is not None or terms.get("attention_mask") is not None:
        options["attn_mask"] = terms["combined"]
    elif problem.is_causal and not problem.is_top_left:
        if name != "fa2":
            raise RuntimeError("has no causal mask that is aligned bottom right, of lengths that differ")
        from torch.nn.attention import bias

        options["attn_mask"] = bias.causal_lower_right(problem.seq, problem.kv_seq)
    else:
        options["is_causal"] = problem.is_causal
    with sdpa_kernel(torch_backends()[name]):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)


class FlexAttention:
    """PyTorch's FlexAttention of a problem, compiled: what serves there what its backends do not. Sinks scale its output by their share of the
    sums, which its LSE tells."""

    def __init__(self, torch, problem, terms):
        from torch.nn.attention import flex_attention as flex

        self._has_dropout = problem.dropout != 0

        self._torch, self._sinks = torch, terms.get("sinks")
        self._mask = None
        pairs = terms.get("attention_mask")
        if problem.hides_pairs or pairs is not None:
            to_last = problem.kv_seq - problem.seq
            left, right = problem.window or (-1, problem.mask_offset - to_last if problem.is_causal else problem.kv_seq + problem.seq)
            first, last = -problem.seq if left < 0 else to_last - left, problem.kv_seq if right < 0 and problem.window else to_last + right

            def attends(b, h, i, j):
                seen = (j >= i + first) & (j <= i + last)
                return seen if pairs is None else seen & _element(pairs, b, h, i, j)

            self._mask = flex.create_block_mask(attends, None if pairs is None else problem.batch, None if pairs is None else problem.heads,
                                                problem.seq, problem.kv_seq, device="cuda")
        bias = terms.get("bias")
        softcap, slopes, diagonal = problem.softcap, terms.get("alibi_slopes"), problem.kv_seq - problem.seq

        def score_of(score, batch, head, query, key):
            if softcap != 0:
                score = softcap * torch.tanh(score / softcap)
            if slopes is not None:
                score = score - slopes[head] * (query + diagonal - key).abs()
            return score if bias is None else score + _element(bias, batch, head, query, key)

        self._score = score_of if softcap != 0 or slopes is not None or bias is not None else None
        self._options = {"scale": problem.softmax_scale, "enable_gqa": problem.heads != problem.kv_heads}
        self._attention = flex.flex_attention
        torch._dynamo.reset()  # what was compiled for other problems counts against a limit, beyond which nothing is
        self._function = torch.compile(self._run, dynamic=False)

    def _run(self, q, k, v):
        options = {"score_mod": self._score, "block_mask": self._mask, **self._options}
        if self._sinks is None:
            return self._attention(q, k, v, **options)
        out, lse = self._attention(q, k, v, return_lse=True, **options)
        return (out * self._torch.sigmoid(lse - self._sinks[None, :, None])[..., None]).to(q.dtype)

    def __call__(self, q, k, v):
        if self._has_dropout:
            raise RuntimeError("has no dropout")
        return self._function(q, k, v)


def _element(pairs, batch, head, query, key):
    """Of a tensor of pairs, which repeats along dimensions of one element."""
    places = (batch, head, query)
    return pairs[tuple(0 if size == 1 else place for size, place in zip(pairs.shape, places)) + (key,)]


def other_makers(torch, problem, of_backend, terms, has_attention_3):
    """Makers of PyTorch's contenders, each of a function of (q, k, v), and one without dropout where the problem has it: its backends, and FlexAttention
    where these have no such problem; of packed sequences FlashAttention-2's operator alone. FlashAttention-3's where PyTorch knows them."""
    functions = _other_functions(torch, problem, terms, has_attention_3)
    without = _other_functions(torch, dataclasses.replace(problem, dropout=0.0), terms, has_attention_3) if problem.dropout != 0 else {}
    return {name: lambda name=name: of_backend(functions[name], without.get(name)) for name in functions}


def _other_functions(torch, problem, terms, has_attention_3):
    functions = {"fa3": attention_3(torch, problem, terms)} if has_attention_3 else {}
    if problem.packed:
        functions["fa2"] = packed_attention_2(torch, problem, terms)
        return functions
    of_pairs = bool(problem.bias or problem.attention_mask)
    if of_pairs:
        terms = {**terms, "combined": _combined(torch, problem, terms)}
    functions.update((name, lambda *tensors, name=name: torch_attention(torch, problem, name, terms, *tensors)) for name in torch_backends()
                     if of_pairs or name != "efficient")
    if problem.softcap != 0 or problem.window is not None or terms.keys() - {"dropout_state"}:
        functions["flex"] = FlexAttention(torch, problem, terms)
    return functions


def problem_options(problem):
    """What Attune's functions are told beside the tensors, but the layout."""
    return {"scale": problem.scale, "softcap": problem.softcap, "dropout_p": problem.dropout, "causal": problem.is_causal,
            "top_left": problem.is_causal and not problem.is_bottom_right, "window": problem.window}


def prepare(torch, attune, problem, config=None):
    """Attune's kernels for a problem, of the config that is picked or of a given one."""
    make = attune.prepare if problem.pass_ == "forward" else attune.prepare_backward
    options = {} if problem.pass_ == "forward" else {"deterministic": problem.deterministic, "bias_gradient": problem.bias_gradient}
    tensors, terms = shapes_without_memory(torch, problem), terms_of(torch, problem, 0)
    return make(*tensors, layout=problem.layout, config=config, **terms, **problem_options(problem), **options)


def copies_of(inputs, count):
    return [inputs] + [tuple(tensor.clone() for tensor in inputs) for _ in range(count - 1)]


def _references_of(problem, make):
    """A function of a contender's name, which gives what its output is held to: Attune's own with dropout, the others' without. Each is made once."""
    made = {}

    def reference(name):
        asked = problem if name in OWN else dataclasses.replace(problem, dropout=0.0)
        if asked not in made:
            made[asked] = make(asked)
        return made[asked]

    return reference


class ForwardPass:
    """Makers of contenders by name, in the order of a table. Each forward writes its LSE where it can."""

    def __init__(self, torch, attune, problem, inputs, prepared, peers, seed, copies=1, has_attention_3=False):
        self._torch, self._problem, self._prepared = torch, problem, prepared
        self._sets = [(q, k, v) for q, k, v, _ in copies_of(inputs, copies)]
        self._terms = terms_of(torch, problem, seed)
        reference = PackedReference if problem.packed else Reference
        self._references = _references_of(problem, lambda asked: reference(torch, asked, *self._sets[0], seed, self._terms))
        self.makers = {"attune": self._attune}
        self.makers.update((library.name, lambda library=library: self._peer(library)) for library in peers)
        self.makers.update(other_makers(torch, problem, self._other, self._terms, has_attention_3))
        self.configs = {"attune": prepared["attune"].config}

    def errors(self, name, read, data):
        return self._references(name).errors(*read, data)

    def _attune(self, with_lse=True):
        prepared, problem = self._prepared["attune"], self._problem

        def launch(q, k, v):
            out = self._torch.empty_like(q)
            return lambda: prepared(q, k, v, out=out, return_lse=with_lse, **self._terms)

        launches = [launch(*(as_attune_takes_it(problem, tensor) for tensor in tensors)) for tensors in self._sets]
        return Contender(launches, lambda result: (as_seen(problem, result[0]), result[1][None] if problem.packed else result[1]))

    def without_lse(self):
        return self._attune(with_lse=False)

    def _peer(self, library):
        return Contender([PeerAttention(self._torch, library, self._problem, *tensors).forward for tensors in self._sets])

    def _other(self, function, without_dropout):
        def launch(q, k, v, function=function):
            return lambda: function(q, k, v)

        return Contender([launch(*tensors) for tensors in self._sets], lambda out: (out, None),
                         without_dropout and launch(*self._sets[0], without_dropout))


class BackwardPass:
    """The same of gradients. PyTorch's backends differentiate their own forward's output, peer libraries Attune's."""

    def __init__(self, torch, attune, problem, inputs, prepared, peers, seed, copies=1, has_attention_3=False):
        self._torch, self._problem, self._prepared = torch, problem, prepared
        self._sets = copies_of(inputs, copies)
        self._terms = terms_of(torch, problem, seed)
        reference = PackedGradientReference if problem.packed else GradientReference
        self._references = _references_of(problem, lambda asked: reference(torch, asked, *self._sets[0], self._terms))
        self._forward = []  # O and LSE of each set, as Attune has them
        for q, k, v, _ in self._sets:
            self._forward.append(attune.attention(*self._own(q, k, v), layout=problem.layout, return_lse=True, **self._terms,
                                                  **problem_options(problem)))
        self.makers = {name: lambda name=name: self._attune(name) for name in prepared}
        self.makers.update((library.name, lambda library=library: self._peer(library)) for library in peers)
        self.makers.update(other_makers(torch, problem, self._other, self._terms, has_attention_3))
        self.configs = {name: one.config for name, one in prepared.items()}

    def errors(self, name, read, data):
        return self._references(name).errors(read, data)

    def _own(self, *tensors):
        return tuple(as_attune_takes_it(self._problem, tensor) for tensor in tensors)

    def _attune(self, name, with_grad_lse=False):
        def launch(tensors, forward):
            q, k, v, grad_out = self._own(*tensors)
            more = [self._terms["sinks"]] if "sinks" in self._terms else []
            more += [self._terms["bias"]] if self._problem.bias_gradient else []
            grads = tuple(self._torch.empty_like(tensor) for tensor in (q, k, v, *more))
            grad_lse = self._torch.randn_like(forward[1]) if with_grad_lse else None
            return lambda: self._prepared[name](grad_out, q, k, v, *forward, grad_lse=grad_lse, grads=grads, **self._terms)

        return Contender([launch(*pair) for pair in zip(self._sets, self._forward)], lambda grads: tuple(as_seen(self._problem, grad) for grad in grads[:3]))

    def with_grad_lse(self):
        return self._attune("attune", with_grad_lse=True)

    def _peer(self, library):
        def launch(tensors, forward):
            q, k, v, grad_out = tensors
            attention = PeerAttention(self._torch, library, self._problem, q, k, v)
            attention.prepare_backward(grad_out, *self._own(forward[0]), forward[1])
            return attention.backward

        return Contender([launch(*pair) for pair in zip(self._sets, self._forward)])

    def _other(self, function, without_dropout):
        def launch(q, k, v, grad_out, function=function):
            leaves = [tensor.detach().requires_grad_() for tensor in (q, k, v)]
            with self._torch.enable_grad():
                out = function(*leaves)
            return lambda: self._torch.autograd.grad(out, leaves, grad_out, retain_graph=True)

        return Contender([launch(*tensors) for tensors in self._sets], launch_to_check=without_dropout and launch(*self._sets[0], without_dropout))


PASSES = {"forward": ForwardPass, "backward": BackwardPass}

"""Kinds of data, and the tensors of a problem, as (batch, heads, seq, head_dim) views whatever the layout in memory.

Scores are scaled, in natural units: softmax sums exp(score). tests/kernels/data_kinds.h makes the same kinds for the tests in C++.
"""

import dataclasses
import math

from . import BadInput

DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
OFFSET_QUERY = 1.0  # element 0 of each row of Q where keys have offsets: of the size of Q's other elements, so that dK's are of one size
RARE_PERIOD = 500

# A kind's name and what its parameter means.
KINDS = {
    "normal": "normal scores of standard deviation {}",
    "t3": "scores of standard deviation {}, Q and K are Student's t with 3 degrees of freedom",
    "sink": "key 0, which kernels walk last, is {} above the rest",
    "rare": f"one key of each {RARE_PERIOD} is {{}} above the rest",
    "near": "scores rise by {} from the first key to the last",
    "leap": "a key after the first eighth of the row, late in a kernel's walk, is {} powers of two of exp(score) above the rest",
    "equal": "all keys are the same",
    "dominant": "all keys are the same but the middle one, which is {} powers of two of exp(score) above",
}
_OF_SPREAD, _OF_EQUAL_KEYS, _OF_OFFSETS = ("normal", "t3"), ("equal", "dominant"), ("sink", "rare", "near", "leap", "dominant")


@dataclasses.dataclass(frozen=True)
class Data:
    """A kind of data and its parameter; `equal` has none."""

    kind: str
    parameter: float = None

    def text(self):
        return self.kind if self.parameter is None else f"{self.kind}:{self.parameter:.12g}"

    def meaning(self):
        return KINDS[self.kind].format("" if self.parameter is None else f"{self.parameter:.12g}")

    @property
    def has_offsets(self):
        """Whether element 0 of each row of Q and K makes offsets of keys."""
        return self.kind in _OF_OFFSETS

    def offset_of_key(self, key, kv_seq):
        """How far the scores of a key lie above those of a row of normal:1, in natural units."""
        if self.kind == "sink":
            return self.parameter if key == 0 else 0.0
        if self.kind == "rare":  # another place in each 500 keys: 311 and 500 have no common divisor
            place = (37 + 311 * (key // RARE_PERIOD)) % RARE_PERIOD
            return self.parameter if key % RARE_PERIOD == place else 0.0
        if self.kind == "near":
            return self.parameter * key / (kv_seq - 1) if kv_seq > 1 else 0.0
        if self.kind in ("leap", "dominant"):
            above = kv_seq // 8 if self.kind == "leap" else kv_seq // 2
            return self.parameter * math.log(2) if key == above else 0.0
        return 0.0


UNIT_NORMAL = Data("normal", 1.0)

# What forward and backward must serve with the same exactness, and forward with the same speed.
SUITE = tuple(
    [Data("normal", float(spread)) for spread in (1, 4, 8, 16, 30, 64)] + [Data("t3", float(spread)) for spread in (1, 4, 16)]
    + [Data("sink", float(above)) for above in (6, 12, 20)] + [Data("rare", 8.0), Data("near", 20.0), Data("near", -20.0)]
    + [Data("leap", 20.0), Data("leap", 200.0), Data("equal"), Data("dominant", 20.0)]
)


def _parse_one(text):
    kind, colon, number = text.partition(":")
    if kind not in KINDS:
        raise BadInput(f"data '{text}': there is no kind '{kind}'; the kinds are {', '.join(KINDS)}, and suite is all that attention must serve")
    if kind == "equal":
        if colon:
            raise BadInput(f"data '{text}': equal takes no number; write equal alone")
        return Data(kind)
    try:
        parameter = float(number)
    except ValueError:
        raise BadInput(f"data '{text}': {kind} needs a number, such as {kind}:8; it means: {KINDS[kind].format('8')}") from None
    if not math.isfinite(parameter) or (kind != "near" and parameter <= 0):
        what = "a finite number" if kind == "near" else "a positive, finite number"
        raise BadInput(f"data '{text}': {kind} needs {what}; it means: {KINDS[kind].format('8')}")
    return Data(kind, parameter)


def parse_data(text):
    """The kinds of a list such as "normal:8,sink:12,equal"; "suite" is all of SUITE. Each is there once. Raises BadInput."""
    found = []
    for word in text.split(","):
        found += SUITE if word.strip() == "suite" else [_parse_one(word.strip())]
    return list(dict.fromkeys(found))


def _random(torch, kind, size, generator, device):
    """Standard normal, or of Student's t with 3 degrees of freedom and a standard deviation of 1."""
    normal = torch.randn(size, generator=generator, device=device)
    if kind != "t3":
        return normal
    squares = torch.zeros_like(normal)
    for _ in range(3):
        squares += torch.randn(size, generator=generator, device=device).square_()
    return normal / squares.sqrt_()  # of variance 3, less the factor sqrt(3) that makes it


def make_inputs(torch, problem, seed, data=UNIT_NORMAL, device="cuda"):
    """(q, k, v, grad_out). V and grad_out are standard normal. A factor on Q sets the standard deviation of the random part of the scores,
    and where keys have offsets, element 0 of each row of Q and K makes these and has no part in that."""
    generator = torch.Generator(device=device).manual_seed(seed)
    of_queries, of_keys = (
        (1 if problem.packed else problem.batch, heads, seq, problem.head_dim) for heads, seq in ((problem.heads, problem.seq), (problem.kv_heads, problem.kv_seq))
    )
    keys_drawn = (*of_keys[:2], 1, of_keys[3]) if data.kind in _OF_EQUAL_KEYS else of_keys
    q = _random(torch, data.kind, of_queries, generator, device)
    k = _random(torch, data.kind, keys_drawn, generator, device).expand(of_keys)
    v, grad_out = (torch.randn(size, generator=generator, device=device) for size in (of_keys, of_queries))
    random_terms = problem.head_dim - data.has_offsets
    q *= (data.parameter if data.kind in _OF_SPREAD else 1.0) / (problem.softmax_scale * random_terms**0.5)
    if data.has_offsets:
        offsets = torch.tensor([data.offset_of_key(key, problem.kv_seq) for key in range(problem.kv_seq)], device=device)
        k = k.clone()
        k[..., 0] = offsets / (problem.softmax_scale * OFFSET_QUERY)
        q[..., 0] = OFFSET_QUERY
    dtype = getattr(torch, DTYPES[problem.dtype])
    return tuple(_in_memory_as(problem.layout, tensor.to(dtype).contiguous()) for tensor in (q, k, v, grad_out))


def terms_of(torch, problem, seed, device="cuda"):
    """What a problem's terms read beside q, k and v, as arguments of Attune's functions: sinks as large as the LSE of a row of unit normal
    scores is, slopes as models have them; where packed sequences begin; dropout's seed and offset."""
    terms = begins_of(torch, problem, device) if problem.packed else {}
    if problem.sink:
        generator = torch.Generator(device=device).manual_seed(seed + 1)
        terms["sinks"] = math.log(problem.kv_seq) + torch.randn(problem.heads, generator=generator, device=device)
    if problem.alibi:
        terms["alibi_slopes"] = torch.exp2(-8 / problem.heads * torch.arange(1, problem.heads + 1, device=device))
    if problem.bias:
        generator = torch.Generator(device=device).manual_seed(seed + 2)
        dtype = torch.float32 if problem.bias_fp32 else getattr(torch, DTYPES[problem.dtype])
        terms["bias"] = torch.randn(_pairs(problem, problem.bias), generator=generator, device=device, dtype=dtype)
    if problem.attention_mask:
        terms["attention_mask"] = _documents(torch, problem, seed + 3, device)
    if problem.dropout != 0:
        terms["dropout_state"] = torch.tensor([seed + 4, 0], device=device)
    return terms


def _pairs(problem, dimensions):
    sizes = (problem.batch, problem.heads, problem.seq, problem.kv_seq)
    return tuple(1 if letter == "1" else size for letter, size in zip(dimensions, sizes))


def _documents(torch, problem, seed, device):
    """A mask by which queries attend to the keys of their own document, of some eight random ones that follow each other; without a dimension of
    queries, to a first part of the keys, half of them or more, as after padding."""
    batch, heads, rows, keys = _pairs(problem, problem.attention_mask)
    generator = torch.Generator(device=device).manual_seed(seed)
    if rows == 1:
        lengths = torch.randint((keys + 1) // 2, keys + 1, (batch, heads, 1, 1), generator=generator, device=device)
        return torch.arange(keys, device=device) < lengths
    ends = torch.rand((batch, heads, 1, 7), generator=generator, device=device)

    def documents(size):
        return (torch.arange(size, device=device)[:, None] / size >= ends).sum(-1)

    return (documents(rows)[..., :, None] == documents(keys)[..., None, :]).contiguous()


def _in_memory_as(layout, tensor):
    return tensor if layout == "bhsd" else tensor.transpose(1, 2).contiguous().transpose(1, 2)


def as_attune_takes_it(problem, tensor):
    """A (batch, heads, seq, columns) view in the order of the layout; of packed sequences without a batch. Its gradient is a view, too: that of
    tensor[0] would be a copy, in the time of whoever differentiates."""
    tensor = tensor.squeeze(0) if problem.packed else tensor
    return tensor if problem.layout == "bhsd" else tensor.transpose(-3, -2)


def as_seen(problem, tensor):
    """The other way about."""
    tensor = tensor if problem.layout == "bhsd" else tensor.transpose(-3, -2)
    return tensor.unsqueeze(0) if problem.packed else tensor


def begins_of(torch, problem, device="cuda"):
    """Where packed sequences begin, and where the last one ends, for queries and for keys, as arguments of Attune's functions."""
    names = zip(("cu_seqlens_q", "cu_seqlens_kv"), zip(*problem.sequence_lengths()))
    return {name: torch.tensor([0, *lengths], device=device).cumsum(0).to(torch.int32) for name, lengths in names}


def shapes_without_memory(torch, problem):
    """q, k, v of the right shapes, strides of 0, for a kernel to be prepared by."""
    row = torch.empty(problem.head_dim, device="cuda", dtype=getattr(torch, DTYPES[problem.dtype]))

    def tensor(heads, seq):
        shape = (heads, seq) if problem.layout == "bhsd" else (seq, heads)
        shape = shape if problem.packed else (problem.batch, *shape)
        return row.expand(*shape, problem.head_dim)

    return tensor(problem.heads, problem.seq), *(tensor(problem.kv_heads, problem.kv_seq) for _ in range(2))

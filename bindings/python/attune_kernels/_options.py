"""What a call of attention() says beside its tensors: a row for each option, in the order in which its values travel as a tuple. From these
come the operators' schema and what reads a tuple by names; the extension has its copy in known_calls.h. Beside them stand the tensors of
terms, which most calls do not have."""

import collections

from . import _library

Option = collections.namedtuple("Option", ["name", "schema", "default"])
OPTIONS = (
    Option("causal", "bool", False),
    Option("scale", "float?", None),
    Option("layout", "str", "bhsd"),
    Option("top_left", "bool", False),
    Option("window", "int[]?", None),
    Option("deterministic", "bool?", None),
    Option("invariant", "bool", False),
    Option("softcap", "float", 0.0),
    Option("dropout_p", "float", 0.0),
)
Options = collections.namedtuple("Options", [option.name for option in OPTIONS], defaults=[option.default for option in OPTIONS])


def _literal(value):
    return f'"{value}"' if isinstance(value, str) else str(value)


SCHEMA = ", ".join(f"{option.schema} {option.name}={_literal(option.default)}" for option in OPTIONS)

# A tensor that a term reads, with the number of its operand in the C interface, that of its gradient if it has one, the types and the extents
# of its elements, and what they are numbers of. CONTIGUOUS: as it is. SHARED: it may lack the batch, where all of it shares the numbers, and
# has strides. BROADCAST: it may lack dimensions or have 1 of them, as PyTorch broadcasts, and has strides. "q": the type of q.
CONTIGUOUS, SHARED, BROADCAST = "contiguous", "shared", "broadcast"
_PAIRS = ("batch", "heads", "queries", "keys")
Term = collections.namedtuple("Term", ["name", "operand", "gradient", "dtypes", "extents", "lies", "of"])
TERMS = (
    Term("sinks", _library.SINKS, _library.D_SINKS, ("float32",), ("heads",), CONTIGUOUS, "each head of q"),
    Term("seqused_q", _library.SEQUSED_Q, None, ("int32",), ("batch",), CONTIGUOUS, "each batch entry"),
    Term("seqused_kv", _library.SEQUSED_KV, None, ("int32",), ("batch",), CONTIGUOUS, "each batch entry"),
    Term("alibi_slopes", _library.ALIBI_SLOPES, None, ("float32",), ("batch", "heads"), SHARED, "each head of q, or of each batch entry"),
    Term("bias", _library.BIAS, _library.D_BIAS, ("q", "float32"), _PAIRS, BROADCAST, "each query and key of each head of q and batch entry"),
    Term("attention_mask", _library.ATTENTION_MASK, None, ("bool",), _PAIRS, BROADCAST, "each query and key of each head of q and batch entry"),
    Term("cu_seqlens_q", _library.CU_SEQLENS_Q, None, ("int32",), ("begins",), CONTIGUOUS, "each sequence, and one more"),
    Term("cu_seqlens_kv", _library.CU_SEQLENS_KV, None, ("int32",), ("begins",), CONTIGUOUS, "each sequence, and one more"),
    Term("dropout_state", _library.DROPOUT_STATE, None, ("int64",), ("seed_and_offset",), CONTIGUOUS, "the seed and the offset"),
)
Terms = collections.namedtuple("Terms", [term.name for term in TERMS], defaults=[None] * len(TERMS))
TERM_SCHEMA = ", ".join(f"Tensor? {term.name}" for term in TERMS)


def broadcast_strides(tensor):
    """Of batch, heads and queries, 0 along which a tensor of pairs repeats."""
    lacking = 4 - tensor.dim()
    return tuple(0 if axis < lacking or tensor.shape[axis - lacking] == 1 else tensor.stride(axis - lacking) for axis in range(3))


def without_repeats(tensor):
    """A view of a tensor of pairs, of whose dimensions those that it repeats along have an extent of 1, so that its gradient is summed over them."""
    for axis in range(tensor.dim() - 1):
        if tensor.stride(axis) == 0 and tensor.shape[axis] > 1:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor


def packed_broadcast_strides(shape):
    """The same of a contiguous tensor of the shape."""
    strides, elements = [], 1
    for size in reversed(shape):
        strides.insert(0, elements if size > 1 else 0)
        elements *= size
    return (*[0] * (4 - len(strides)), *strides)[:3]


def longest_sequence(terms):
    """(queries, keys) that a packed sequence has at most: for which tensors of pairs have elements, 0 where none says. Raises ValueError where one
    says another number than the other."""
    longest = [0, 0]
    for name in ("bias", "attention_mask"):
        tensor = None if terms is None else getattr(terms, name)
        shape = tuple(getattr(tensor, "shape", ()))
        for axis, what in ((0, "queries"), (1, "keys")):
            size = shape[axis - 2] if len(shape) >= 2 - axis else 0
            if size == 0 or (axis == 0 and size == 1):
                continue
            if longest[axis] not in (0, size):
                raise ValueError(f"attention_mask has shape {shape} and bias {tuple(terms.bias.shape)}: their numbers of {what} must be equal")
            longest[axis] = size
    return tuple(longest)


def terms_of(*tensors):
    """Terms, or None where a call has none of them."""
    return None if all(tensor is None for tensor in tensors) else Terms(*tensors)

"""What a call of attention() says beside its tensors: a row for each option, in the order in which its values travel as a tuple. From these
come the operators' schema and what reads a tuple by names; the extension has its copy in known_calls.h. Beside them stand the tensors of
terms, which most calls do not have."""

import collections

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
)
Options = collections.namedtuple("Options", [option.name for option in OPTIONS], defaults=[option.default for option in OPTIONS])


def _literal(value):
    return f'"{value}"' if isinstance(value, str) else str(value)


SCHEMA = ", ".join(f"{option.schema} {option.name}={_literal(option.default)}" for option in OPTIONS)

Term = collections.namedtuple("Term", ["name", "is_differentiated"])
TERMS = (Term("sinks", True), Term("seqused_q", False), Term("seqused_kv", False))
Terms = collections.namedtuple("Terms", [term.name for term in TERMS], defaults=[None] * len(TERMS))
TERM_SCHEMA = ", ".join(f"Tensor? {term.name}" for term in TERMS)


def terms_of(*tensors):
    """Terms, or None where a call has none of them."""
    return None if all(tensor is None for tensor in tensors) else Terms(*tensors)

"""Masks of Transformers that Attune needs no tensor of pairs for: a causal diagonal, a causal sliding window, and both, or neither, of sequences that lie
one behind the other.

Transformers makes a mask once for each forward pass of a model, by the function that is registered for its attention, and hands it to every
layer. What lengths tell becomes None (as for sdpa: a diagonal, or nothing hidden), or a tensor of no elements and of the shape (1, 1, 0, n):
causal, the last query at the last key, and each query sees n keys at most. What position_ids tell of several sequences in a batch of one becomes where
each begins, int32 and of the shape (1, w, c, sequences + 1), which repeats along w and c: a query sees w - 1 keys at most, or all for w = 1; causal for
c = 1, bidirectional for c = 2. Any other mask is the tensor that Transformers makes for sdpa.

Whether a batch is padded, or holds several sequences in a row, stands in tensors on the GPU. Where neither tensor was given nothing has to be
read; otherwise one look at it, for each forward pass, waits for the GPU. torch.compile cannot look: its graph ends there and a new one begins,
as it does for flash_attention_2. Where it may not (fullgraph=True, torch.export) the mask is a tensor.
"""

import torch


def window_of(attention_mask):
    """How many keys a query sees at most, of a mask without elements; None of another mask or of none."""
    if isinstance(attention_mask, torch.Tensor) and attention_mask.dim() == 4 and attention_mask.shape[2] == 0:
        return attention_mask.shape[3]
    return None


def packed_of(attention_mask):
    """(begins, window or None, whether causal) of a mask that says where sequences begin; None of another mask or of none."""
    if not isinstance(attention_mask, torch.Tensor) or attention_mask.dtype != torch.int32 or attention_mask.dim() != 4:
        return None
    return attention_mask[0, 0, 0], None if attention_mask.shape[1] == 1 else attention_mask.shape[1] - 1, attention_mask.shape[2] == 1


def packed_with_elements(packed, query):
    """That mask as a tensor that sdpa takes."""
    begins, window, is_causal = packed
    row = torch.arange(query.shape[2], device=query.device)
    sequence = torch.searchsorted(begins[1:].contiguous(), row.to(begins.dtype), right=True)
    seen, before = sequence[:, None] == sequence, row[:, None] - row
    if is_causal:
        seen &= before >= 0
    if window is not None:
        seen &= before < window
    return seen[None, None]


def with_elements(window, query, key):
    """The mask without elements as a tensor that sdpa takes."""
    length, keys = query.shape[2], key.shape[2]
    row = torch.arange(length, device=query.device)[:, None] + (keys - length)
    column = torch.arange(keys, device=query.device)
    return ((column <= row) & (column > row - window))[None, None]


def mask_of(utilities, sdpa_mask, **arguments):
    """A mask function of Transformers, which calls it by names of arguments. utilities: the module transformers.masking_utils, of which Attune
    knows the mask functions; without them, and before Transformers 5, all masks are those that are made for sdpa."""
    if "q_length" not in arguments or not hasattr(utilities, "causal_mask_function"):
        return sdpa_mask(**arguments)
    if not torch.compiler.is_compiling():
        return _decide(utilities, sdpa_mask, arguments)
    if _needs_no_look(utilities, arguments):
        return _without_tensor(_Shape(arguments), arguments["mask_function"] is utilities.causal_mask_function)
    from . import _traced, _uncompiled

    # Only the GPU knows how many keys of a static cache are in use.
    if isinstance(arguments.get("q_offset", 0), torch.Tensor) or not _traced.may_break_graph():
        return sdpa_mask(**arguments)
    return _uncompiled.run(_decide, utilities, sdpa_mask, arguments)


class _Shape:
    """Lengths of a mask, and where its first query and key stand."""

    def __init__(self, arguments):
        self.queries, self.keys = arguments["q_length"], arguments["kv_length"]
        self.first_query, self.first_key = arguments.get("q_offset", 0), arguments.get("kv_offset", 0)
        self.device = arguments.get("device", "cpu")


def _needs_no_look(utilities, arguments):
    """Whether no tensor takes part. Identities and numbers alone are asked for, which torch.compile knows."""
    if arguments.get("attention_mask") is not None or arguments.get("use_vmap", False):
        return False
    if isinstance(arguments.get("q_offset", 0), torch.Tensor):
        return False
    if arguments["mask_function"] is utilities.causal_mask_function:
        shape = _Shape(arguments)
        return arguments.get("allow_is_causal_skip", True) and shape.first_query + shape.queries == shape.first_key + shape.keys
    return arguments["mask_function"] is getattr(utilities, "bidirectional_mask_function", None) \
        and arguments.get("allow_is_bidirectional_skip", False)


def _without_tensor(shape, is_causal, window=None):
    if not is_causal:
        return None
    hides = window is not None and window < shape.keys
    if not hides and (shape.queries == 1 or shape.queries == shape.keys):
        return None
    return torch.empty(1, 1, 0, window if hides else shape.keys, dtype=torch.bool, device=shape.device)


def _decide(utilities, sdpa_mask, arguments):
    """The same with a look at tensors."""
    shape = _Shape(arguments)
    known = _Known(utilities, arguments["mask_function"])
    if not _is_told_by_lengths(known, shape, arguments):
        return sdpa_mask(**arguments)
    if not any(bool((packed != packed[:, :1]).any()) for packed in known.packed):
        return _without_tensor(shape, known.is_causal, known.window)
    return _begins_of(known, shape) if _is_one_batch_entry(known, shape) else sdpa_mask(**arguments)


def _is_told_by_lengths(known, shape, arguments):
    """Those of all keys, or of sequences one behind the other."""
    if not known.is_known or arguments.get("use_vmap", False):
        return False
    if isinstance(shape.first_query, torch.Tensor):
        return False
    if known.is_causal and shape.first_query + shape.queries != shape.first_key + shape.keys:
        return False
    # A layer that joins its mask with others asks for one; with packed sequences Transformers asks for one itself.
    is_wanted = not arguments.get("allow_is_causal_skip" if known.is_causal else "allow_is_bidirectional_skip", known.is_causal)
    if is_wanted and not known.packed:
        return False
    padding = arguments.get("attention_mask")
    if padding is None:
        return True
    return padding.dim() == 2 and padding.shape[1] >= shape.first_key + shape.keys \
        and bool(padding[:, shape.first_key:shape.first_key + shape.keys].all())


def _is_one_batch_entry(known, shape):
    """Of the same sequences of queries and of keys, which its rows are numbered by."""
    return len(known.packed) == 1 and known.packed[0].shape == (1, shape.queries) and shape.queries == shape.keys


def _begins_of(known, shape):
    numbers = known.packed[0][0]
    inner = (numbers[1:] != numbers[:-1]).nonzero()[:, 0] + 1
    begins = torch.nn.functional.pad(inner, (1, 1))
    begins[-1] = shape.queries
    window = 1 if known.window is None or known.window >= shape.keys else known.window + 1
    return begins.to(torch.int32).expand(1, window, 1 if known.is_causal else 2, -1)


class _Known:
    """What a mask function of Transformers' is composed of, by the functions that made its parts."""

    def __init__(self, utilities, function):
        self.is_known, self.is_causal, self.window, self.packed = True, False, None, []
        self._utilities = utilities
        self._add(function)
        if self.window is not None and not self.is_causal:
            self.is_known = False

    def _add(self, function):
        if function is self._utilities.causal_mask_function:
            self.is_causal = True
            return
        if function is getattr(self._utilities, "bidirectional_mask_function", None):
            return
        name = getattr(function, "__qualname__", "")
        if getattr(function, "__module__", None) != self._utilities.__name__ or not getattr(function, "__closure__", None):
            name = ""
        held = {one: cell.cell_contents for one, cell in zip(function.__code__.co_freevars, function.__closure__)} if name else {}
        if name == "and_masks.<locals>.and_mask" and "mask_functions" in held:
            for one in held["mask_functions"]:
                self._add(one)
        elif name == "sliding_window_overlay.<locals>.inner_mask" and isinstance(held.get("sliding_window"), int):
            self.window = held["sliding_window"] if self.window is None else min(self.window, held["sliding_window"])
        elif name == "packed_sequence_mask_function.<locals>.inner_mask" and isinstance(held.get("packed_sequence_mask"), torch.Tensor):
            self.packed.append(held["packed_sequence_mask"])
        elif name == "remap_positions_for_packed_sequence.<locals>.inner_mask" and "mask_function" in held:
            self._add(held["mask_function"])  # of one sequence, positions differ by as much as rows
        else:
            self.is_known = False

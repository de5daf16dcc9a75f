"""flash_attn.bert_padding as provide_flash_attn() provides it: from padded batches to sequences one behind the other, and back, by PyTorch's operations."""

import torch

__all__ = ["index_first_axis", "index_put_first_axis", "pad_input", "unpad_input"]


def index_first_axis(tensor, indices):
    """The rows of a tensor that `indices` name; gradients go back to them."""
    return tensor[indices]


def index_put_first_axis(values, indices, first_axis_dim):
    """The other way about: a tensor of so many rows with `values` where `indices` say, and zeros elsewhere."""
    return values.new_zeros(first_axis_dim, *values.shape[1:]).index_put((indices,), values)


def unpad_input(hidden_states, attention_mask, unused_mask=None):
    """Of (batch, seq, ...) the rows where attention_mask, (batch, seq), is not 0, one behind the other; with unused_mask also those where that is not 0.
    Returns these, their places among all rows, where each batch entry's begin ((batch + 1,) int32), the most rows of one, and how many of each
    attention_mask names. Reads the device's memory: the number of rows decides shapes."""
    kept = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = kept.sum(-1, dtype=torch.int32)
    indices = torch.nonzero(kept.flatten()).flatten()
    begins = torch.nn.functional.pad(torch.cumsum(lengths, 0, dtype=torch.int32), (1, 0))
    rows = index_first_axis(hidden_states.flatten(0, 1), indices)
    return rows, indices, begins, int(lengths.max()), attention_mask.sum(-1, dtype=torch.int32)


def pad_input(hidden_states, indices, batch, seqlen):
    """(batch, seqlen, ...) with the rows where unpad_input() took them from, and zeros elsewhere."""
    return index_put_first_axis(hidden_states, indices, batch * seqlen).unflatten(0, (batch, seqlen))

"""What dropout drops, by PyTorch's own operations: the function that docs/dropout.md states."""

import math
import struct

import torch

_LOW = 0xFFFFFFFF


def new_dropout_state(device=None):
    """A state for attention()'s dropout_state, (2,) int64 on a CUDA device (None: the current one): a seed and an offset of 63 random bits each, from
    PyTorch's generator of that device."""
    return torch.randint(0, 2**63 - 1, (2,), dtype=torch.int64, device="cuda" if device is None else device)


def _philox(low, high, key, rounds):
    """Philox2x32 (Salmon, Moraes, Dror, Shaw 2011), of halves and keys that are int64 below 2^32."""
    for _ in range(rounds):
        product = low * 0xD256D193  # its lower 64 bits, as a signed number
        low, high = (product >> 32 & _LOW) ^ key ^ high, product & _LOW
        key = (key + 0x9E3779B9) & _LOW
    return low, high


def dropout_mask(dropout_p, dropout_state, shape):
    """Which elements of the softmax attention() keeps: a tensor of bool of (batch, heads, seq, seq_kv), which `shape` says, on the device of
    dropout_state. Of packed sequences the batch is their number, and rows and columns are the queries and keys of each. Raises ValueError."""
    batch, heads, queries, keys = shape
    head, i, j = (torch.arange(count, device=dropout_state.device) for count in (batch * heads, queries, keys))
    return keeps(dropout_p, dropout_state, head.view(batch, heads, 1, 1), i.view(-1, 1), j)


def keeps(dropout_p, dropout_state, head, i, j):
    """The same of heads, counted through all batch entries, and of queries and keys that tensors number, which are broadcast."""
    if not 0 <= dropout_p < 1:
        raise ValueError(f"dropout_p is {dropout_p}: it must be at least 0 and less than 1")
    part, threshold = math.modf(256 * struct.unpack("f", struct.pack("f", dropout_p))[0])  # as a float, which the kernels take
    seed, offset = dropout_state.unbind()
    low, high = _philox(offset & _LOW, offset >> 32 & _LOW, seed >> 32 & _LOW, 10)
    low, high = _philox(low ^ head, high, seed & _LOW, 10)
    low, high, seed = low ^ (i // 16 * 32 + i % 8 * 4 + j % 8 // 2), high ^ j // 16, seed & _LOW
    before = _philox(low, high, seed, 6)
    words = torch.where(j % 16 < 8, *_philox(*before, seed + 6 * 0x9E3779B9 & _LOW, 1))
    return (words >> 8 * (2 * (j % 2) + i % 16 // 8) & 255) >= threshold + (before[1] < int(part * 2**32))


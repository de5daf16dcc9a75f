"""What operators of PyTorch that are replaced have in common: calls of Attune's kernels that may be none of its own, and what is said of these."""

import functools

import torch

from . import _calls
from ._library import AttuneError
from ._reasons import tell_once

DROPOUT = "dropout (dropout_p > 0)"
_NOT_SERVED = (-1, -2)  # invalid argument and unsupported, of attune_status
_INSTEAD = "PyTorch's own kernels of scaled_dot_product_attention run instead"


def leave(what):
    """Nothing: PyTorch's kernels answer, which is said once."""
    tell_once(what, _INSTEAD)


def forward(q, k, v, options, terms=None, out=None, return_lse=True):
    """(out, lse), or None for what Attune does not serve."""
    try:
        return _calls.forward(q, k, v, options, out, return_lse, terms=terms)
    except (AttuneError, TypeError, ValueError) as error:
        return _none_if_not_served(error)


def backward(grad_out, q, k, v, out, lse, options, terms=None, grads=None, bias_gradient=False):
    """The gradients, or None."""
    try:
        if grad_out.stride()[3] != 1:
            grad_out = grad_out.contiguous()
        return _calls.backward(grad_out, q, k, v, out, lse.contiguous(), None, options, grads, terms=terms, bias_gradient=bias_gradient)
    except (AttuneError, TypeError, ValueError) as error:
        return _none_if_not_served(error)


def _none_if_not_served(error):
    if isinstance(error, AttuneError) and error.status not in _NOT_SERVED:
        raise error
    leave(f"this call: {error}")


@functools.lru_cache(maxsize=None)
def _seed_has_two_words():
    """Whether PyTorch's operator returns its seed so, as newer versions do."""
    return torch.ops.aten._scaled_dot_product_flash_attention.default._schema.returns[6].name == "rng_state"


def unused_random_state(q):
    """Seed and offset of a dropout that there is not, of the shapes that PyTorch's operators of FlashAttention return."""
    if _seed_has_two_words():
        return torch.empty(2, dtype=torch.uint64, device=q.device), torch.empty((), dtype=torch.uint64, device=q.device)
    return unused_seed_and_offset(q)


def unused_seed_and_offset(q):
    return torch.empty((), dtype=torch.int64, device=q.device), torch.empty((), dtype=torch.int64, device=q.device)

"""What operators of PyTorch that are replaced have in common: calls of Attune's kernels that may be none of its own, what is said of these, and seeds and
offsets of dropout.

Other elements are dropped of the same seed by Attune's kernels than by PyTorch's, so a backward pass must be made by those that made forward, whatever was
turned on or off in between. The only thing that every caller hands from one to the other as it is (autograd, compiled graphs, tensors that wait on the host)
is the type of the seed, which no kernel looks at: where PyTorch's operators return uint64, Attune returns int64, and the other way round. Whether a forward
pass with dropout is served hangs on its backward pass, too, which then never goes on to PyTorch's kernels.
"""

import functools

import torch

from . import _calls, _library
from ._dropout import new_dropout_state
from ._library import AttuneError
from ._options import Options, Terms
from ._reasons import tell_once

_DROPOUT_P = Options._fields.index("dropout_p")
_MOST_KINDS = 4096
_NOT_SERVED = (-1, -2)  # invalid argument and unsupported, of attune_status
_INSTEAD = "PyTorch's own kernels of scaled_dot_product_attention run instead"


def leave(what):
    """Nothing: PyTorch's kernels answer, which is said once."""
    tell_once(what, _INSTEAD)


def forward(q, k, v, options, terms=None, out=None, return_lse=True):
    """(out, lse, the state of dropout or None), or None for what Attune does not serve. With dropout a state is drawn from PyTorch's generator."""
    try:
        state = None
        if options[_DROPOUT_P] != 0.0:
            terms = Terms() if terms is None else terms
            _require_both_passes(q, k, v, options, terms)
            state = _new_state(q)
            terms = terms._replace(dropout_state=state)
        return *_calls.forward(q, k, v, options, out, return_lse, terms=terms), state
    except (AttuneError, TypeError, ValueError) as error:
        return _none_if_not_served(error)


def backward(grad_out, q, k, v, out, lse, options, terms=None, grads=None, bias_gradient=False):
    """The gradients, or None. With dropout nobody else can make them: what goes wrong is raised."""
    try:
        if grad_out.stride()[3] != 1:
            grad_out = grad_out.contiguous()
        return _calls.backward(grad_out, q, k, v, out, lse.contiguous(), None, options, grads, terms=terms, bias_gradient=bias_gradient)
    except (AttuneError, TypeError, ValueError) as error:
        if options[_DROPOUT_P] != 0.0:
            raise
        return _none_if_not_served(error)


_refused = {}  # by the kind of a call with dropout: why one of its passes is not served, or ""


def _require_both_passes(q, k, v, options, terms):
    """Raises ValueError unless both passes of a call are served, with the gradient of its bias."""
    bias = terms.bias
    kind = (q.shape, k.shape, v.shape, q.dtype, q.get_device(), options, torch.are_deterministic_algorithms_enabled(), None if bias is None else (bias.shape, bias.dtype),
            *(None if begins is None else begins.shape for begins in (terms.cu_seqlens_q, terms.cu_seqlens_kv)), terms.seqused_kv is None)
    reason = _refused.get(kind)
    if reason is None:
        for pass_ in (_library.FORWARD, _library.BACKWARD):
            checked = _calls.Checked(q, k, v, options, pass_, terms=terms, bias_gradient=pass_ == _library.BACKWARD and bias is not None)
            reason = "" if checked.is_empty else _library.text_of(checked.library.attune_unsupported, checked.problem)
            if reason:
                break
        if len(_refused) >= _MOST_KINDS:
            _refused.clear()
        _refused[kind] = reason
    if reason:
        raise ValueError(reason)


def _none_if_not_served(error):
    if isinstance(error, AttuneError) and error.status not in _NOT_SERVED:
        raise error
    leave(f"this call: {error}")


@functools.lru_cache(maxsize=None)
def _seed_has_two_words():
    """Whether PyTorch's operator returns its seed so, as newer versions do."""
    return torch.ops.aten._scaled_dot_product_flash_attention.default._schema.returns[6].name == "rng_state"


has_drawn = False  # whether a backward pass may be on its way that only Attune's kernels can make


def _new_state(q):
    global has_drawn
    has_drawn = True
    return new_dropout_state(q.device)


def random_state(q, state):
    """What PyTorch's operators of FlashAttention return of the state of dropout, or of none."""
    if not _seed_has_two_words():
        return seed_and_offset(q, state)
    if state is None:
        return torch.empty(2, dtype=torch.uint64, device=q.device), torch.empty((), dtype=torch.uint64, device=q.device)
    return state, torch.empty((), dtype=torch.uint64, device=q.device)


def seed_and_offset(q, state):
    """What those of its other kernels return."""
    if state is None:
        return torch.empty((), dtype=torch.int64, device=q.device), torch.empty((), dtype=torch.int64, device=q.device)
    return state.view(torch.uint64).unbind()


def is_pytorchs(dropout_p, seed):
    """Whether there is dropout, and PyTorch's kernels made the forward pass that returned the seed."""
    return dropout_p != 0.0 and seed.dtype == (torch.uint64 if seed.dim() == 1 else torch.int64)


def state_of(dropout_p, seed, offset):
    """The state of dropout that they were returned of, or None without it."""
    if dropout_p == 0.0:
        return None
    if seed.dim() == 1:
        return seed
    if offset.data_ptr() == seed.data_ptr() + seed.element_size():
        return seed.view(torch.int64).as_strided((2,), (1,))
    return torch.stack([seed.view(torch.int64), offset.view(torch.int64)])

"""Attune under torch.nn.functional.scaled_dot_product_attention, for programs that call nothing else.

PyTorch goes on choosing among its backends. Where it chooses FlashAttention or cuDNN, Attune's kernels run instead of theirs: both are operators
of PyTorch, whose CUDA implementations are replaced, forward and backward. A call that Attune does not serve goes on to the implementation
that was replaced. torch.compile, autocast, checkpoints and nested tensors see the operators that they know.

Where the extension can implement operators (see _operators.py), its implementations lie on top of those in Python, and serve calls of a kind
that was made before.

Whatever goes on to PyTorch's kernels is said once for each reason, also what PyTorch hands to its memory-efficient backend without asking: that
one is listened to, and nothing of it is changed.
"""

import functools
import warnings

import torch

from . import _calls, _operators
from ._library import AttuneError
from ._options import Options
from ._reasons import tell_once

_NAME = "attune"
_NOT_SERVED = (-1, -2)  # invalid argument and unsupported, of attune_status
_INSTEAD = "PyTorch's own kernels of scaled_dot_product_attention run instead"
_MASK = "a mask as a tensor (attn_mask)"
_LISTENED_TO = "_scaled_dot_product_efficient_attention"


def enable_sdpa():
    """From now on, torch.nn.functional.scaled_dot_product_attention runs Attune's kernels wherever PyTorch would take those of FlashAttention
    or cuDNN. disable_sdpa() ends that, as does the end of a with statement:

        attune.enable_sdpa()
        with attune.enable_sdpa(): ...                # what was in force before comes back

    It applies to the whole process, to all threads, and to graphs that were compiled before. Masks as tensors, dropout, float32 and whatever
    else Attune does not serve go to PyTorch's own kernels, as do calls for which PyTorch takes another of its backends: causal ones whose
    lengths differ, and those under torch.nn.attention.sdpa_kernel() that exclude both. The logger "attune" warns once of each reason, for which
    calls of the memory-efficient backend run some Python code; those of the math backend are not seen.
    PyTorch 2.11's registry lists it as "attune": torch.nn.attention.activate_flash_attention_impl("attune") does the same.
    """
    return _Enabled()


def disable_sdpa():
    """PyTorch's own kernels again. Nothing happens if they are in force."""
    if _registry is None:
        _remove()
    elif _registry.current_flash_attention_impl() == _NAME:
        _registry.restore_flash_attention_impl()


class _Enabled:
    """What enable_sdpa() returns: leaving it restores what was in force before."""

    def __init__(self):
        self._before = _current()
        _activate(_NAME)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        _activate(self._before)


def _current():
    """Whose kernels FlashAttention's operators run: a name of PyTorch's registry, or None for its own."""
    if _registry is None:
        return _NAME if _replaced is not None else None
    return _registry.current_flash_attention_impl()


def _activate(name):
    if name == _current():
        return
    if _registry is None:
        _install() if name == _NAME else _remove()
    elif name is None:
        _registry.restore_flash_attention_impl()
    else:
        _registry.activate_flash_attention_impl(name)


_replaced = None  # what replaces implementations, while it does


def _install(key="CUDA"):
    """Replaces the implementations. Returns a handle whose remove() brings them back."""
    global _replaced
    library = torch.library.Library("aten", "IMPL", key)
    implementations = {name: _with_fallback(*both) for name, both in _implementations(key).items()}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*overriding a previously registered kernel", category=UserWarning)
        for name, implementation in (implementations | _listener(key)).items():
            library.impl(name, implementation, key, with_keyset=True)
    _replaced = [library, *_implement_in_c(implementations, key)]
    return _Handle()


def _implement_in_c(implementations, key):
    """What lies on top of those in Python as long as it lives. It hands calls to operators of the same implementations."""
    if not all(map(_operators.can_implement, implementations)):
        return []
    library = torch.library.Library("attune_kernels", "FRAGMENT")
    try:
        for name, implementation in implementations.items():
            short = "_cudnn" if "cudnn" in name else "_flash"
            if name.endswith("_backward"):
                _operators.define(library, f"{short}_backward", name, _operators.SDPA_GRADIENTS, implementation, with_keyset=True)
            else:
                _operators.define(library, f"{short}_forward", name, _operators.FORWARD_RESULTS, _with_tensors_alone(implementation),
                                  with_keyset=True)
        return [library, *(_operators.implement(name, key) for name in implementations)]
    except RuntimeError:
        return []


def _with_tensors_alone(implementation):
    def run(*arguments, **options):
        out, lse, cum_seq_q, cum_seq_k, max_q, max_k, seed, offset, mask = implementation(*arguments, **options)
        return out, lse, cum_seq_q, cum_seq_k, seed, offset, mask, torch.tensor([max_q, max_k], dtype=torch.int64, device="cpu")

    return run


def _remove():
    global _replaced
    _replaced = None


class _Handle:
    def remove(self):
        _remove()


def _implementations(key):
    """By the operator's name: Attune's implementation and PyTorch's."""
    found = {}
    for name, (implementation, otherwise) in {
        "_scaled_dot_product_flash_attention": (_flash_forward, _pytorch_flash_forward),
        "_scaled_dot_product_flash_attention_backward": (_flash_backward, _pytorch_flash_backward),
        "_scaled_dot_product_cudnn_attention": (_cudnn_forward, None),
        "_scaled_dot_product_cudnn_attention_backward": (_cudnn_backward, None),
    }.items():
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key):
            continue
        if hasattr(torch.library, "get_kernel"):
            kernel = torch.library.get_kernel(f"aten::{name}", key)
            found[name] = implementation, kernel.call_boxed
        elif otherwise is not None:
            found[name] = implementation, otherwise
    if not found:
        raise RuntimeError(f"PyTorch {torch.__version__} was built without CUDA: there are no kernels of attention to replace")
    return found


def _listener(key):
    """By the operator's name: what says why its calls are not Attune's, and makes them."""
    if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{_LISTENED_TO}", key) or not hasattr(torch.library, "get_kernel"):
        return {}
    original = torch.library.get_kernel(f"aten::{_LISTENED_TO}", key).call_boxed

    def run(keyset, *arguments, **options):
        _tell_of_efficient_call(*arguments, **options)
        return original(keyset, *arguments, **options)

    return {_LISTENED_TO: run}


def _tell_of_efficient_call(q, k, v, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, *, scale=None):
    if attn_bias is not None:
        _leave(_MASK)
    elif dropout_p != 0.0:
        _leave(_DROPOUT)
    elif q.dtype not in _calls.DTYPES:
        _leave(f"{q.dtype}")
    elif is_causal and q.shape[2] != k.shape[2]:
        _leave("is_causal=True where the numbers of queries and keys differ (attune.attention(..., top_left=True) does)")
    elif q.shape[3] != v.shape[3]:
        _leave("values of another head_dim than keys")


_DROPOUT = "dropout (dropout_p > 0)"


def _leave(what):
    tell_once(what, _INSTEAD)


def _with_fallback(implementation, original):
    def run(keyset, *arguments, **options):
        results = implementation(*arguments, **options)
        return original(keyset, *arguments, **options) if results is None else results

    return run


def _flash_forward(q, k, v, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    if dropout_p != 0.0 or return_debug_mask:
        return _leave(_DROPOUT if dropout_p != 0.0 else "return_debug_mask=True")
    served = _forward(q, k, v, _options(is_causal, scale))
    if served is None:
        return None
    out, lse = served
    return out, lse, None, None, q.shape[2], k.shape[2], *_unused_random_state(q), q.new_empty(0)


@functools.lru_cache(maxsize=None)
def _seed_has_two_words():
    """Whether PyTorch's operator returns its seed so, as newer versions do."""
    return torch.ops.aten._scaled_dot_product_flash_attention.default._schema.returns[6].name == "rng_state"


def _unused_random_state(q):
    """Seed and offset of a dropout that there is not, of the shapes that PyTorch's operator returns."""
    if _seed_has_two_words():
        return torch.empty(2, dtype=torch.uint64, device=q.device), torch.empty((), dtype=torch.uint64, device=q.device)
    return torch.empty((), dtype=torch.int64, device=q.device), torch.empty((), dtype=torch.int64, device=q.device)


def _flash_backward(grad_out, q, k, v, out, lse, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, seed, offset, *, scale=None):
    if dropout_p != 0.0:
        return None
    return _backward(grad_out, q, k, v, out, lse, _options(is_causal, scale))


def _cudnn_forward(
    q, k, v, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None
):
    if attn_bias is not None or dropout_p != 0.0 or return_debug_mask:
        return _leave(_MASK if attn_bias is not None else _DROPOUT if dropout_p != 0.0 else "return_debug_mask=True")
    served = _forward(q, k, v, _options(is_causal, scale, top_left=is_causal))  # cuDNN's diagonal begins top left
    if served is None:
        return None
    out, lse = served
    seed, offset = torch.empty((), dtype=torch.int64, device=q.device), torch.empty((), dtype=torch.int64, device=q.device)
    return out, lse.unsqueeze(3), None, None, q.shape[2], k.shape[2], seed, offset, None


def _cudnn_backward(
    grad_out, q, k, v, out, lse, seed, offset, attn_bias, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, *, scale=None
):
    if attn_bias is not None or dropout_p != 0.0:
        return None
    return _backward(grad_out, q, k, v, out, lse.squeeze(3), _options(is_causal, scale, top_left=is_causal))


def _options(is_causal, scale, top_left=False):
    return tuple(Options(causal=is_causal, scale=scale, top_left=top_left))


def _forward(q, k, v, options):
    """(out, lse), or None for what Attune does not serve."""
    try:
        return _calls.forward(q, k, v, options, return_lse=True)
    except (AttuneError, TypeError, ValueError) as error:
        return _none_if_not_served(error)


def _backward(grad_out, q, k, v, out, lse, options):
    try:
        if grad_out.stride()[3] != 1:
            grad_out = grad_out.contiguous()
        return _calls.backward(grad_out, q, k, v, out, lse.contiguous(), None, options)
    except (AttuneError, TypeError, ValueError) as error:
        return _none_if_not_served(error)


def _none_if_not_served(error):
    if isinstance(error, AttuneError) and error.status not in _NOT_SERVED:
        raise error
    _leave(f"this call: {error}")


def _pytorch_flash_forward(_, q, k, v, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    """What the operator does where PyTorch cannot be asked for the implementation that was replaced: the same with lengths before heads."""
    out, lse, seed, offset, mask = torch.ops.aten._flash_attention_forward(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), None, None, q.shape[2], k.shape[2], dropout_p, is_causal, return_debug_mask,
        scale=scale)
    return out.transpose(1, 2), lse, None, None, q.shape[2], k.shape[2], seed, offset, mask


def _pytorch_flash_backward(
    _, grad_out, q, k, v, out, lse, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, seed, offset, *, scale=None
):
    grads = torch.ops.aten._flash_attention_backward(
        *(tensor.transpose(1, 2) for tensor in (grad_out, q, k, v, out)), lse, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal,
        seed, offset, scale=scale)
    return tuple(grad.transpose(1, 2) for grad in grads)


def _find_registry():
    """torch.nn.attention where it has a registry of implementations (PyTorch 2.11), in which Attune then is."""
    registry = getattr(torch.nn, "attention", None)
    names = ("register_flash_attention_impl", "activate_flash_attention_impl", "restore_flash_attention_impl", "current_flash_attention_impl")
    if not all(hasattr(registry, name) for name in names):
        return None
    registry.register_flash_attention_impl(_NAME, register_fn=_install)
    return registry


_registry = _find_registry()

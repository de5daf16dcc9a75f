"""Attune under torch.nn.functional.scaled_dot_product_attention, for programs that call nothing else.

PyTorch goes on choosing among its backends. Where it chooses FlashAttention, cuDNN or its memory-efficient kernels, Attune's kernels run instead
of theirs: all three are operators of PyTorch, whose CUDA implementations are replaced, forward and backward. A call that Attune does not serve
goes on to the implementation that was replaced. torch.compile, autocast, checkpoints and nested tensors see the operators that they know.

A mask as a tensor (attn_mask) comes to the memory-efficient operator or to cuDNN's as numbers that are added to scores, also where it was boolean:
it is a bias of attention(), which repeats along dimensions whose stride is 0.

Where the extension can implement operators (see _operators.py), its implementations of FlashAttention's and cuDNN's lie on top of those in Python,
and serve calls without a mask of a kind that was made before.

Sequences that lie one behind the other (varlen_attn, nested tensors) come by operators of their own: see _sdpa_packed.py.

A forward pass with dropout takes its seed from PyTorch's generator, and its backward pass runs Attune's kernels also when they are turned off in between:
see _sdpa_calls.py.

Whatever goes on to PyTorch's kernels is said once for each reason.
"""

import inspect
import math
import warnings

import torch

from . import _calls, _operators, _sdpa_calls, _sdpa_packed
from ._options import Options, Terms, without_repeats
from ._sdpa_calls import backward, forward, is_pytorchs, leave, random_state, seed_and_offset, state_of

_NAME = "attune"
_EFFICIENT = "_scaled_dot_product_efficient_attention"
_IN_C = ("_scaled_dot_product_flash", "_scaled_dot_product_cudnn")
_EFFICIENT_LSE = 32  # rows of LSE that the memory-efficient operator returns are a multiple of these
_EFFICIENT_BIAS = 16  # the same of elements from one row to the next of its gradient of the bias


def enable_sdpa():
    """From now on, torch.nn.functional.scaled_dot_product_attention runs Attune's kernels wherever PyTorch would take those of FlashAttention,
    cuDNN or its memory-efficient backend. disable_sdpa() ends that, as does the end of a with statement:

        attune.enable_sdpa()
        with attune.enable_sdpa(): ...                # what was in force before comes back

    It applies to the whole process, to all threads, and to graphs that were compiled before. Masks as tensors (attn_mask) are served, with the
    gradient of one that requires it, and so are dropout (of one seed other elements are dropped than PyTorch's kernels drop), causal calls whose
    lengths differ, nested tensors, and torch.nn.attention.varlen.varlen_attn(). float32, values of another head_dim than keys and whatever else
    Attune does not serve go to PyTorch's own kernels, and the logger "attune" warns once of each reason. Calls for which PyTorch takes its math backend are not seen: those under
    torch.nn.attention.sdpa_kernel(SDPBackend.MATH), and those with an attn_mask and enable_gqa=True, unless PyTorch prefers cuDNN or is told to
    take it.
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
_backward_passes = None  # what replaces those of backward passes, and may stay for those of dropout alone


def _install(key="CUDA"):
    """Replaces the implementations. Returns a handle whose remove() brings them back."""
    global _replaced, _backward_passes
    implementations = _implementations(key)
    if _backward_passes is None:
        _backward_passes = _implement({name: (_while_enabled(ours), pytorchs) for name, (ours, pytorchs) in implementations.items() if name.endswith("_backward")}, key)
    library, functions = _implement({name: both for name, both in implementations.items() if not name.endswith("_backward")}, key)
    functions = {**functions, **_backward_passes[1]}
    in_c = {name: function for name, function in functions.items() if name.startswith(_IN_C)}
    _replaced = [library, *_implement_in_c(in_c, key)]
    return _Handle()


def _implement(implementations, key):
    """What replaces them as long as it lives, and the functions that do."""
    library = torch.library.Library("aten", "IMPL", key)
    functions = {name: _with_fallback(*both) for name, both in implementations.items()}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*overriding a previously registered kernel", category=UserWarning)
        for name, function in functions.items():
            library.impl(name, function, key, with_keyset=True)
    return library, functions


def _while_enabled(implementation):
    place = list(inspect.signature(implementation).parameters).index("dropout_p")

    def run(*arguments, **options):
        return None if _replaced is None and arguments[place] == 0.0 else implementation(*arguments, **options)

    return run


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
    global _replaced, _backward_passes
    _replaced = None
    if not _sdpa_calls.has_drawn:
        _backward_passes = None


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
        _EFFICIENT: (_efficient_forward, None),
        f"{_EFFICIENT}_backward": (_efficient_backward, None),
        **{name: (implementation, None) for name, implementation in _sdpa_packed.IMPLEMENTATIONS.items()},
    }.items():
        if not _has_kernel(name, key):
            continue
        if hasattr(torch.library, "get_kernel"):
            kernel = torch.library.get_kernel(f"aten::{name}", key)
            found[name] = implementation, kernel.call_boxed
        elif otherwise is not None:
            found[name] = implementation, otherwise
    if not found:
        raise RuntimeError(f"PyTorch {torch.__version__} was built without CUDA: there are no kernels of attention to replace")
    return found


def _has_kernel(name, key):
    try:
        return torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key)
    except RuntimeError:  # an operator that is newer than this PyTorch
        return False


def _with_fallback(implementation, original):
    def run(keyset, *arguments, **options):
        results = implementation(*arguments, **options)
        return original(keyset, *arguments, **options) if results is None else results

    return run


def _flash_forward(q, k, v, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    if return_debug_mask:
        return leave("return_debug_mask=True")
    served = forward(q, k, v, _options(is_causal, scale, dropout_p))
    if served is None:
        return None
    out, lse, state = served
    return out, lse, None, None, q.shape[2], k.shape[2], *random_state(q, state), q.new_empty(0)


def _flash_backward(grad_out, q, k, v, out, lse, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, seed, offset, *, scale=None):
    if is_pytorchs(dropout_p, seed):
        return None
    state = state_of(dropout_p, seed, offset)
    return backward(grad_out, q, k, v, out, lse, _options(is_causal, scale, dropout_p), _terms(None, state))


def _cudnn_forward(
    q, k, v, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None
):
    if return_debug_mask:
        return leave("return_debug_mask=True")
    served = forward(q, k, v, _options(is_causal, scale, dropout_p, top_left=is_causal), _terms(attn_bias))  # cuDNN's diagonal begins top left
    if served is None:
        return None
    out, lse, state = served
    return out, lse.unsqueeze(3), None, None, q.shape[2], k.shape[2], *seed_and_offset(q, state), None


def _cudnn_backward(
    grad_out, q, k, v, out, lse, seed, offset, attn_bias, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, *, scale=None
):
    if is_pytorchs(dropout_p, seed):
        return None
    state = state_of(dropout_p, seed, offset)
    return backward(grad_out, q, k, v, out, lse.squeeze(3), _options(is_causal, scale, dropout_p, top_left=is_causal), _terms(attn_bias, state))


def _efficient_forward(q, k, v, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, *, scale=None):
    reason = _why_not_efficient(q, v)
    if reason is not None:
        return leave(reason)
    options = _options(is_causal, scale, dropout_p, top_left=is_causal)
    served = forward(q, k, v, options, _terms(attn_bias), _with_lengths_before_heads(q), compute_log_sumexp)
    if served is None:
        return None
    out, lse, state = served
    lse = _as_efficient_has_it(lse, attn_bias) if compute_log_sumexp else q.new_empty((*q.shape[:2], 0), dtype=torch.float32)
    return out, lse, *seed_and_offset(q, state)


def _efficient_backward(
    grad_out, q, k, v, attn_bias, out, lse, seed, offset, dropout_p, grad_input_mask, is_causal=False, *, scale=None
):
    if _why_not_efficient(q, v) is not None or is_pytorchs(dropout_p, seed):
        return None
    state = state_of(dropout_p, seed, offset)
    options = _options(is_causal, scale, dropout_p, top_left=is_causal)
    grads, bias = [_with_lengths_before_heads(tensor) for tensor in (q, k, v)], attn_bias
    bias_gradient = attn_bias is not None and grad_input_mask[3]
    if bias_gradient:
        # Elements that share memory get gradients of their own, too, as from PyTorch's kernels: who expanded the mask sums them.
        if without_repeats(attn_bias).shape != attn_bias.shape:
            bias = attn_bias.contiguous()
        grads.append(_with_rows_apart(attn_bias))
    if lse.shape[2] < q.shape[2]:  # PyTorch asks forward for none where the mask alone requires a gradient
        served = forward(q, k, v, _options(is_causal, scale, 0.0, top_left=is_causal), _terms(bias))
        if served is None:
            return None
        lse = served[1]
    results = backward(grad_out, q, k, v, out, lse[:, :, :q.shape[2]], options, _terms(bias, state), grads, bias_gradient)
    return None if results is None else (*results[:3], results[3] if bias_gradient else None)


def _why_not_efficient(q, v):
    if q.dtype not in _calls.DTYPES:
        return f"{q.dtype}"
    return "values of another head_dim than keys" if q.shape[3] != v.shape[3] else None


def _as_efficient_has_it(lse, attn_bias):
    """LSE as PyTorch's memory-efficient kernels leave it, which may run the other pass: +inf behind the last row, and 0 where a mask hides all
    keys."""
    missing = -lse.shape[2] % _EFFICIENT_LSE
    if missing:
        lse = torch.nn.functional.pad(lse, (0, missing), value=math.inf)
    return lse if attn_bias is None else lse.nan_to_num_(nan=math.nan, posinf=math.inf, neginf=0.0)


def _with_lengths_before_heads(like):
    """An empty tensor (batch, heads, seq, head_dim) in whose memory the dimensions lie as in results of PyTorch's memory-efficient kernels, on
    which compiled graphs rely."""
    batch, heads, seq, head_dim = like.shape
    return torch.empty((batch, seq, heads, head_dim), dtype=like.dtype, device=like.device).transpose(1, 2)


def _with_rows_apart(bias):
    """The same of the gradient of a bias."""
    *others, keys = bias.shape
    return torch.empty((*others, keys + -keys % _EFFICIENT_BIAS), dtype=bias.dtype, device=bias.device)[..., :keys]


def _options(is_causal, scale, dropout_p, top_left=False):
    return tuple(Options(causal=is_causal, scale=scale, top_left=top_left, dropout_p=dropout_p))


def _terms(bias, state=None):
    if bias is None and state is None:
        return None
    return Terms(bias=None if bias is None else without_repeats(bias), dropout_state=state)


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

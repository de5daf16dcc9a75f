"""Operators of PyTorch that the extension implements in C, so that neither PyTorch's dispatcher nor its autograd runs Python code for a call of
a kind that was made before.

extension/operators.cpp says how. It calls PyTorch's C functions, which are looked up here. What it does not serve comes back to operators of
the namespace attune_kernels that are defined here and in _sdpa.py: the same in Python. Where a function is missing, or an operator of PyTorch
has other arguments than expected, the extension does without, and Python code serves all calls.
"""

import ctypes
import functools
import os

import torch

from . import _calls

_extension = _calls._known_calls

# By the extension's name for it: the symbols that a function may have in libtorch. Those with C++ names are c10::impl::dispatch_mode_enabled,
# at::globalContext, at::Context::deterministicAlgorithms and at::_ops::zero_::call.
_FUNCTIONS = {name: [name] for name in (
    "aoti_torch_dtype_float16", "aoti_torch_dtype_bfloat16", "aoti_torch_dtype_float32", "aoti_torch_dtype_uint64", "aoti_torch_dtype_int64",
    "aoti_torch_is_defined", "aoti_torch_get_data_ptr", "aoti_torch_get_dim", "aoti_torch_get_sizes", "aoti_torch_get_strides",
    "aoti_torch_get_dtype", "aoti_torch_get_device_type", "aoti_torch_get_device_index", "aoti_torch_empty_strided",
    "aoti_torch_new_uninitialized_tensor", "aoti_torch_delete_tensor_object", "torch_delete_list", "aoti_torch_grad_mode_is_enabled",
    "aoti_torch_library_init_impl", "torch_library_impl", "aoti_torch_delete_library_object", "torch_call_dispatcher",
    "aoti_torch_get_current_cuda_stream")} | {
    "dispatch_mode_enabled": ["_ZN3c104impl21dispatch_mode_enabledEv", "_ZN3c104impl21dispatch_mode_enabledEb"],
    "global_context": ["_ZN2at13globalContextEv"],
    "deterministic_algorithms": ["_ZNK2at7Context23deterministicAlgorithmsEv"],
    "zero": ["_ZN2at4_ops5zero_4callERNS_6TensorE"],
}

ATTENTION = "_scaled_dot_product_fused_attention_overrideable"
_SCHEMAS = {
    "_scaled_dot_product_flash_attention":
        "(Tensor query, Tensor key, Tensor value, float dropout_p=0., bool is_causal=False, bool return_debug_mask=False, *, float? scale=None) "
        "-> (Tensor output, Tensor logsumexp, Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q, SymInt max_k, Tensor rng_state, Tensor unused, "
        "Tensor debug_attn_mask)",
    "_scaled_dot_product_flash_attention_backward":
        "(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor logsumexp, Tensor cum_seq_q, Tensor cum_seq_k, "
        "SymInt max_q, SymInt max_k, float dropout_p, bool is_causal, Tensor philox_seed, Tensor philox_offset, *, float? scale=None) "
        "-> (Tensor grad_query, Tensor grad_key, Tensor grad_value)",
    "_scaled_dot_product_cudnn_attention":
        "(Tensor query, Tensor key, Tensor value, Tensor? attn_bias, bool compute_log_sumexp, float dropout_p=0., bool is_causal=False, "
        "bool return_debug_mask=False, *, float? scale=None) "
        "-> (Tensor output, Tensor logsumexp, Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q, SymInt max_k, Tensor philox_seed, "
        "Tensor philox_offset, Tensor debug_attn_mask)",
    "_scaled_dot_product_cudnn_attention_backward":
        "(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor logsumexp, Tensor philox_seed, Tensor philox_offset, "
        "Tensor attn_bias, Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q, SymInt max_k, float dropout_p, bool is_causal, *, "
        "float? scale=None) -> (Tensor, Tensor, Tensor)",
    ATTENTION:
        "(Tensor query, Tensor key, Tensor value, Tensor? attn_bias=None, float dropout_p=0., bool is_causal=False, "
        "bool return_debug_mask=False, *, float? scale=None) "
        "-> (Tensor output, Tensor logsumexp, Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q, SymInt max_k, Tensor philox_seed, "
        "Tensor philox_offset, Tensor debug_attn_mask)",
    f"{ATTENTION}_backward":
        "(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor attn_bias, bool[4] grad_input_mask, Tensor out, Tensor logsumexp, "
        "Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q, SymInt max_k, float dropout_p, bool is_causal, Tensor philox_seed, "
        "Tensor philox_offset, *, float? scale=None) -> (Tensor grad_query, Tensor grad_key, Tensor grad_value, Tensor grad_attn_bias)",
}
# Schemas of operators that the extension hands calls to. Numbers come as a tensor.
FORWARD_RESULTS = ("(Tensor out, Tensor lse, Tensor cum_seq_q, Tensor cum_seq_k, Tensor seed, Tensor offset, Tensor mask, Tensor max_lengths, "
                   "Tensor failure)")
SDPA_GRADIENTS = "(Tensor grad_query, Tensor grad_key, Tensor grad_value, Tensor failure)"


@functools.lru_cache(maxsize=None)
def are_there():
    """Whether the extension has what it needs of PyTorch."""
    if _extension is None:
        return False
    addresses = _addresses()
    return _extension.use_shims(addresses) and (torch.version.cuda is None or "aoti_torch_get_current_cuda_stream" in addresses)


def _addresses():
    """Of the functions, where PyTorch has them. It has been loaded, and so have its parts."""
    parts = []
    for part in ("libtorch_cpu.so", "libc10.so", "libtorch_cuda.so"):
        try:
            parts.append(ctypes.CDLL(part, mode=os.RTLD_NOW | os.RTLD_NOLOAD))
        except OSError:
            continue
    found = {}
    for name, symbols in _FUNCTIONS.items():
        for part in parts:
            for symbol in symbols:
                if name not in found and hasattr(part, symbol):
                    found[name] = ctypes.cast(getattr(part, symbol), ctypes.c_void_p).value
    return found


def implement(name, key):
    """Implements aten's operator in C for a dispatch key, as long as what this returns lives."""
    return _extension.implement(name, key)


def can_implement(name):
    """Whether the extension can implement aten's operator, which must have the arguments that it expects."""
    operator = getattr(torch.ops.aten, name, None) if are_there() else None
    return operator is not None and str(operator.default._schema) == f"aten::{name}{_SCHEMAS[name]}"


def define(library, name, of, results, implementation, key="CompositeExplicitAutograd", with_keyset=False):
    """Defines attune_kernels::name, to which the extension hands calls, with the arguments of aten's operator `of`, as long as the
    torch.library.Library lives. What the implementation raises becomes its last result."""
    arguments, _, _ = _SCHEMAS[of].partition(" -> ")
    library.define(f"{name}{arguments} -> {results}")
    count = results.count("Tensor")

    def run(*given, **options):
        try:
            return (*implementation(*given, **options), None)
        except BaseException as error:
            return (None,) * (count - 1) + (_Failure(error),)

    library.impl(name, run, key, with_keyset=with_keyset)


class _Failure(torch.Tensor):
    """Raises an exception when it is written to, which the extension does: the exception then passes through PyTorch as one of Python's."""

    @staticmethod
    def __new__(cls, error):
        failure = torch.Tensor._make_wrapper_subclass(cls, (0,))
        failure.error = error
        return failure

    def __init__(self, error):
        pass

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        failure = arguments[0]
        error, failure.error = failure.error, None
        raise RuntimeError("a failure was written to twice") if error is None else error


def record_attention(differentiate):
    """What makes a call of attention() that PyTorch's autograd records in C++, or None where there is no such thing: a function of
    (q, k, v, options) that returns out, or None for a call that is not served.

    differentiate(grad_out, q, k, v, out, lse, options) makes the backward pass where C does not.
    """
    name, backward = ATTENTION, f"{ATTENTION}_backward"
    if not (can_implement(name) and can_implement(backward)):
        return None
    if any(torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{one}", key) for one in (name, backward) for key in ("CUDA", "AutogradCUDA")):
        return None  # somebody else's
    try:
        operator = getattr(torch.ops.aten, name).default._op
        hooks, is_tracing = torch._C._autograd._top_saved_tensors_default_hooks, torch._C._is_tracing
        hooks(False), is_tracing()
        ours, pytorchs = torch.library.Library("attune_kernels", "FRAGMENT"), torch.library.Library("aten", "IMPL")
        define(ours, "_attention_forward", name, FORWARD_RESULTS, _refuse_attention)
        define(ours, "_attention_backward", backward, "(Tensor, Tensor, Tensor, Tensor, Tensor failure)",
               functools.partial(_attention_backward, differentiate), "CompositeImplicitAutograd")
        pytorchs.impl(backward, functools.partial(_attention_backward, _map_differentiate), "FuncTorchBatched")
        registered = ours, pytorchs, implement(name, "CUDA"), implement(backward, "AutogradCUDA")
    except (AttributeError, RuntimeError, TypeError):  # what is not documented may change
        return None
    _kept.extend(registered)
    _extension.record_by(operator, hooks, is_tracing)
    return _extension.attend


_kept = []  # what record_attention() has registered, for as long as the process lives


def _refuse_attention(*_, **__):
    raise NotImplementedError(f"aten::{ATTENTION} has no implementation for CUDA: attune.attention() uses it for calls of its own")


def _map_differentiate(grad_out, q, k, v, out, lse, options):
    """Under torch.vmap, as where a batch of gradients is asked for: tensors have a dimension that the operator's rule makes part of the batch."""
    return torch.ops.attune_kernels.backward(grad_out, q, k, v, out, lse, None, *options)


def _attention_backward(
    differentiate, grad_out, q, k, v, attn_bias, grad_input_mask, out, lse, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, seed,
    offset, *, scale=None
):
    options = _extension.options_of(dropout_p, max_q, max_k, scale)
    if options is None:
        _refuse_attention()
    return (*differentiate(grad_out, q, k, v, out, lse, options), None)

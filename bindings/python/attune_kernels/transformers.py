"""Attention of Hugging Face's Transformers by Attune:

    import attune_kernels.transformers
    attune_kernels.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="attune", dtype=torch.bfloat16)

A loaded model changes by model.set_attn_implementation("attune"), and back by "sdpa".

Attune serves causal attention and attention without a mask. A call with anything else that "sdpa" serves (padding, sliding windows and other
masks, dropout, float32, tensors on the CPU) is answered by "sdpa", with one message to the logger "attune" for each reason. What
"sdpa" would leave out in silence (sinks, softcap, packed sequences that no mask separates) raises NotServed.
"""

import functools
import logging

import torch

from . import attention
from ._drop_in import NotServed

__all__ = ["NotServed", "register"]


def register(name="attune"):
    """Makes `name` a value of attn_implementation in this process; calling it again changes nothing. Returns the name.

    Raises ImportError where Transformers is missing or older than 4.53, the first with interfaces for masks.
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ImportError as error:
        raise ImportError("attune_kernels.transformers needs Transformers 4.53 or newer: pip install -U transformers") from error
    AttentionInterface.register(name, functools.partial(attention_forward, AttentionInterface()["sdpa"]))
    AttentionMaskInterface.register(name, AttentionMaskInterface()["sdpa"])  # no mask where is_causal says it all
    return name


def attention_forward(
    sdpa, module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, **options
):
    """An attention function of Transformers: query (batch, heads, seq, head_dim), key and value with their own heads; returns
    ((batch, seq, heads, head_dim), None). sdpa: the one that answers what Attune does not serve."""
    _refuse_what_sdpa_leaves_out(attention_mask, options)
    reason = _left_to_sdpa(query, key, value, attention_mask, dropout, options)
    if reason is not None:
        if not torch.compiler.is_compiling():
            _tell_once(reason)
        return sdpa(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=is_causal, **options)
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    length = query.shape[2]
    causal = bool(is_causal) and length > 1  # a single query is the last one, which sees all keys
    if causal and key.shape[2] > length:  # the first part of a cache that was allocated ahead: the diagonal begins at its first key
        key, value = key[:, :, :length], value[:, :, :length]
    out = attention(
        *(tensor.transpose(1, 2) for tensor in (query, key, value)),
        causal=causal,
        top_left=causal and key.shape[2] < length,
        scale=scaling,
        layout="bshd",
    )
    return out.contiguous(), None


def _refuse_what_sdpa_leaves_out(attention_mask, options):
    eager = 'load the model with attn_implementation="eager"'
    if options.get("s_aux") is not None:
        raise NotServed("attention sinks (s_aux)", eager)
    if options.get("softcap") is not None:
        raise NotServed("softcap", eager)
    lengths = options.get("cu_seq_lens_q")
    if lengths is not None and attention_mask is None and lengths.numel() > 2:
        raise NotServed("packed sequences (cu_seq_lens_q) without a mask", "pass position_ids that begin anew with each sequence, of which "
                        'Transformers makes a mask, or use attn_implementation="flash_attention_2"')


def _left_to_sdpa(query, key, value, attention_mask, dropout, options):
    """Why a call is not Attune's; None if it is."""
    if attention_mask is not None:
        return "a mask other than the causal one (padding, a sliding window, ...)"
    if dropout > 0:
        return "dropout"
    for name in ("cache", "position_bias"):  # a cache of pages, which sdpa reads and writes
        if options.get(name) is not None:
            return name
    if options.get("output_attentions"):
        return "output_attentions"
    if query.device.type != "cuda":
        return f"tensors on {query.device.type}"
    if not torch.is_autocast_enabled("cuda") and (
        query.dtype not in (torch.float16, torch.bfloat16) or not query.dtype == key.dtype == value.dtype
    ):
        return f"{query.dtype}"
    head_dim = query.shape[3]
    if value.shape[3] != head_dim or head_dim % 8 != 0 or head_dim > 256:
        return f"a head_dim of {head_dim} for keys and {value.shape[3]} for values"
    if key.shape[0] != query.shape[0] or query.shape[1] % key.shape[1] != 0:
        return "batches or heads that are broadcast"
    if not all(tensor.stride(3) == 1 for tensor in (query, key, value)):
        return "a last dimension that is not contiguous"
    return None


@functools.lru_cache(maxsize=None)
def _tell_once(reason):
    logging.getLogger("attune").warning("Attune does not serve %s: Transformers' sdpa attention answers instead.", reason)

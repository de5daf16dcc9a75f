"""Attention of Hugging Face's Transformers by Attune:

    import attune_kernels.transformers
    attune_kernels.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="attune", dtype=torch.bfloat16)

A loaded model changes by model.set_attn_implementation("attune"), and back by "sdpa".

Attune serves causal and bidirectional attention, sliding windows, packed sequences (told by position_ids, or by cu_seq_lens_q and cu_seq_lens_k, as
a collator that flattens batches makes them), and any mask that Transformers makes as a tensor: padding on either side, a static cache, masks of
booleans or of numbers that are added. Each goes with a softcap, sinks (s_aux) and a position_bias, forward and backward, also under torch.compile.
A call with anything else that "sdpa" serves (float32, tensors on the CPU) is answered by "sdpa", with one warning to the logger "attune"
for each reason. What "sdpa" would leave out in silence (sinks or a softcap beside float32, packed sequences that no mask separates
beside these) raises NotServed. A model with attention classes of its own, which ask for no attention function, takes "sdpa", too, and says so.

A query of which a mask hides everything, such as one that is padding, gets 0.
"""

import functools
import sys

import torch

from . import _transformers_masks, attention
from ._drop_in import NotServed
from ._reasons import tell_once

__all__ = ["NotServed", "register"]
_DEVICE = "cuda"
_EAGER = 'load the model with attn_implementation="eager"'


def register(name="attune"):
    """Makes `name` a value of attn_implementation in this process; calling it again changes nothing. Returns the name.

    Raises ImportError where Transformers is missing or older than 4.53, the first with interfaces for masks.
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ImportError as error:
        raise ImportError("attune_kernels.transformers needs Transformers 4.53 or newer: pip install -U transformers") from error
    AttentionInterface.register(name, functools.partial(attention_forward, AttentionInterface()["sdpa"]))
    utilities = sys.modules.get("transformers.masking_utils")
    AttentionMaskInterface.register(name, functools.partial(_transformers_masks.mask_of, utilities, AttentionMaskInterface()["sdpa"]))
    _answer_models_with_classes(name)
    return name


def _answer_models_with_classes(name):
    """A model that picks a class of its own by the name of its attention (Falcon, BARK, SAM, ...) has none for another name, and ends with a
    KeyError; one whose classes ask for no attention function would run its own in silence. Both take Transformers' sdpa."""
    import transformers

    PreTrainedModel = getattr(transformers, "PreTrainedModel", None)
    choose = getattr(PreTrainedModel, "get_correct_attn_implementation", None)
    if choose is None or getattr(choose, "attune_names", None) is not None and name in choose.attune_names:
        return
    names = {name} | getattr(choose, "attune_names", set())
    original = getattr(choose, "attune_original", choose)

    @functools.wraps(original)
    def chosen(model, *arguments, **options):
        implementation = original(model, *arguments, **options)
        if implementation not in names or _asks_for_functions(type(model), implementation):
            return implementation
        instead = "sdpa" if getattr(model, "_supports_sdpa", False) else "eager"
        advice = "; attune.enable_sdpa() puts Attune's kernels under it" if instead == "sdpa" else ""
        tell_once(f"{type(model).__name__} by attn_implementation={implementation!r}, which has attention classes of its own",
                  f"the model takes attn_implementation={instead!r}{advice}")
        return instead

    chosen.attune_names, chosen.attune_original = names, original
    PreTrainedModel.get_correct_attn_implementation = chosen


def _asks_for_functions(model_class, name):
    """Whether the attention of a model's class is a function that is registered, as far as its module tells."""
    module = sys.modules.get(model_class.__module__)
    tables = [value for key, value in vars(module).items() if key.endswith("_CLASSES") and isinstance(value, dict) and "eager" in value] \
        if module is not None else []
    if any(name not in table for table in tables):
        return False
    can_be_set = getattr(model_class, "_can_set_attn_implementation", None)
    return True if can_be_set is None else bool(can_be_set())


def attention_forward(
    sdpa, module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, **options
):
    """An attention function of Transformers: query (batch, heads, seq, head_dim), key and value with their own heads; returns
    ((batch, seq, heads, head_dim), None). sdpa: the one that answers what Attune does not serve."""
    window, packed = _transformers_masks.window_of(attention_mask), _transformers_masks.packed_of(attention_mask)
    mask, position_bias = attention_mask if window is None and packed is None else None, options.get("position_bias")
    reason = _left_to_sdpa(query, key, value, mask, position_bias, dropout, options)
    softcap, sinks = options.get("softcap"), options.get("s_aux")
    if packed is not None and (reason is not None or position_bias is not None):
        mask, packed = _transformers_masks.packed_with_elements(packed, query), None
        attention_mask = mask
    elif packed is None and mask is None and _names_sequences(options):
        packed = _sequences_of(query, reason, position_bias, window, is_causal, module, options)
    if packed is not None:
        return _attend_packed(query, key, value, packed, options.get("cu_seq_lens_k"), scale=scaling, softcap=softcap or 0.0, sinks=sinks,
                              dropout_p=float(dropout)), None
    if reason is not None and (softcap is not None or sinks is not None):
        raise NotServed(f"{'softcap' if sinks is None else 'attention sinks (s_aux)'} with {reason}", _EAGER)
    if reason is not None:
        tell_once(reason, "Transformers' sdpa attention answers instead")
        if window is not None:
            attention_mask = _transformers_masks.with_elements(window, query, key)
        return sdpa(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=is_causal, **options)
    options = {"scale": scaling, "softcap": softcap or 0.0, "sinks": sinks, "dropout_p": float(dropout)}
    if position_bias is not None:
        options["bias"] = position_bias
    length, keys = query.shape[2], key.shape[2]
    if window is not None:
        return _attend(query, key, value, causal=True, window=(window - 1, None) if window < keys else None, **options), None
    if mask is not None:
        return _attend(query, key, value, **(options | _terms_of(mask, position_bias, keys))), None
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    causal = bool(is_causal) and length > 1  # a single query is the last one, which sees all keys
    if causal and keys > length:  # the first part of a cache that was allocated ahead: the diagonal begins at its first key
        key, value = key[:, :, :length], value[:, :, :length]
        if position_bias is not None:
            options["bias"] = position_bias[..., :length]
    return _attend(query, key, value, causal=causal, top_left=causal and keys < length, **options), None


def _attend(query, key, value, **options):
    out = attention(*(tensor.transpose(1, 2) for tensor in (query, key, value)), layout="bshd", **options)
    return out.contiguous()


def _terms_of(mask, position_bias, keys):
    """A mask of booleans or numbers as attention() takes it, beside a position bias or none. Before Transformers 5 it may be longer than the keys."""
    if mask.shape[-1] > keys:
        mask = mask[..., :keys]
    if mask.dtype == torch.bool:
        return {"attention_mask": mask, "bias": position_bias}
    return {"bias": mask if position_bias is None else position_bias + mask}


def _names_sequences(options):
    """Whether sequences lie one behind the other in the one batch entry; one sequence is all of it."""
    lengths = options.get("cu_seq_lens_q")
    return lengths is not None and lengths.numel() > 2


def _sequences_of(query, reason, position_bias, window, is_causal, module, options):
    """What _transformers_masks.packed_of() returns, of lengths that were named beside no mask: sdpa would leave these out in silence."""
    if reason is None and position_bias is not None:
        reason = "a position_bias"
    if reason is None and query.shape[0] != 1:
        reason = f"{query.shape[0]} batch entries"
    if reason is not None:
        raise NotServed(f"packed sequences (cu_seq_lens_q) without a mask, with {reason}", "pass position_ids that begin anew with each sequence, of "
                        'which Transformers makes a mask, or use attn_implementation="flash_attention_2"')
    causal = window is not None or (getattr(module, "is_causal", True) if is_causal is None else is_causal)
    return options["cu_seq_lens_q"], window, bool(causal)


def _attend_packed(query, key, value, packed, begins_of_keys, **options):
    begins, window, is_causal = packed
    out = attention(*(tensor[0].transpose(0, 1) for tensor in (query, key, value)), layout="bshd", causal=is_causal,
                    window=None if window is None else (window - 1, None), cu_seqlens_q=begins,
                    cu_seqlens_kv=begins if begins_of_keys is None else begins_of_keys, **options)
    return out.contiguous().unsqueeze(0)


def _left_to_sdpa(query, key, value, mask, position_bias, dropout, options):
    """Why a call is not Attune's; None if it is."""
    if dropout >= 1:
        return "a dropout of all"
    if options.get("cache") is not None:  # of pages, which sdpa reads and writes
        return "cache"
    if options.get("output_attentions"):
        return "output_attentions"
    if query.device.type != _DEVICE:
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
    if mask is None and position_bias is None:
        return None
    return _unlike_pairs("mask", mask, query, key) or _unlike_pairs("position_bias", position_bias, query, key)


def _unlike_pairs(name, tensor, query, key):
    """Why a tensor is not one that has a number for each query and key of each head and batch entry, or repeats along all of these but the keys.
    A mask may be one of booleans, and longer than the keys."""
    if tensor is None:
        return None
    if not isinstance(tensor, torch.Tensor):
        return f"a {name} that is a {type(tensor).__name__}"
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else query.dtype
    is_mask, dtypes = name == "mask", (dtype, torch.float32)
    if tensor.dtype not in ((torch.bool, *dtypes) if is_mask else dtypes):
        return f"a {name} of {tensor.dtype} beside {dtype}"
    keys, shape = key.shape[2], tuple(tensor.shape)
    if 1 <= len(shape) <= 4 and (shape[-1] == keys or is_mask and shape[-1] > keys) \
            and all(mine == 1 or mine == whole for mine, whole in zip(reversed(shape[:-1]), reversed(query.shape[:3]))):
        return None
    return f"a {name} of the shape {shape} beside {query.shape[2]} queries and {keys} keys"


"""libattune.so through ctypes: the structs and functions of attune.h. Knows nothing of torch."""

import atexit
import ctypes
import functools
import importlib.util
import logging
import os
import pathlib
import platform
import sys
from ctypes import POINTER, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

FP16, BF16 = 0, 1
LAYOUT_BSHD, LAYOUT_BHSD = 0, 1
FORWARD, BACKWARD = 0, 1
Q, K, V, O, LSE, D_Q, D_K, D_V, D_O, D_LSE, SINKS, D_SINKS, SEQUSED_Q, SEQUSED_KV, ALIBI_SLOPES, BIAS, ATTENTION_MASK, D_BIAS, CU_SEQLENS_Q, CU_SEQLENS_KV, DROPOUT_STATE = range(21)
PAIRS, PAIRS_BATCH, PAIRS_HEADS, PAIRS_QUERIES = 1, 2, 4, 8
MASK_NONE, MASK_CAUSAL, MASK_CAUSAL_TOP_LEFT, MASK_CAUSAL_OFFSET, MASK_WINDOW = 0, 1, 2, 3, 4
LOG_LEVELS = {"debug": 0, "info": 1, "warning": 2}


class Problem(ctypes.Structure):
    """attune_problem"""

    _fields_ = [
        ("struct_size", c_uint32),
        ("dtype", c_int32),
        ("batch", c_int64),
        ("heads_q", c_int64),
        ("heads_kv", c_int64),
        ("seq_q", c_int64),
        ("seq_kv", c_int64),
        ("head_dim", c_int32),
        ("mask", c_int32),
        ("mask_offset", c_int64),
        ("softmax_scale", c_float),
        ("layout", c_int32),
        ("device", c_int32),
        ("alignment", c_int32),
        ("pass_", c_int32),
        ("deterministic", c_int32),
        ("window_left", c_int64),
        ("window_right", c_int64),
        ("invariant", c_int32),
        ("softcap", c_float),
        ("sink", c_int32),
        ("used_lengths", c_int32),
        ("alibi", c_int32),
        ("bias", c_int32),
        ("bias_fp32", c_int32),
        ("attention_mask", c_int32),
        ("bias_gradient", c_int32),
        ("packed", c_int32),
        ("max_seq_q", c_int64),
        ("max_seq_kv", c_int64),
        ("dropout", c_float),
        ("reserved", c_int32),
        ("dropout_seed", c_uint64),
        ("dropout_offset", c_uint64),
    ]


class Tensor(ctypes.Structure):
    """attune_tensor"""

    _fields_ = [("data", c_void_p), ("stride_batch", c_int64), ("stride_head", c_int64), ("stride_row", c_int64)]


class Operand(ctypes.Structure):
    """attune_operand"""

    _fields_ = [("name", c_int32), ("reserved", c_int32), ("tensor", Tensor)]


def operands(views):
    """A list of attune_operand, of tensors by their numbers."""
    return (Operand * len(views))(*(Operand(name, 0, tensor) for name, tensor in views.items()))


LogCallback = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)

_SIGNATURES = {
    "attune_set_log_callback": [LogCallback, c_void_p, c_int32],
    "attune_forward": [POINTER(Problem), POINTER(Operand), c_size_t, c_void_p, c_size_t, c_void_p],
    "attune_backward": [POINTER(Problem), POINTER(Operand), c_size_t, c_void_p, c_size_t, c_void_p],
    "attune_workspace_bytes": [POINTER(Problem), POINTER(c_size_t)],
    "attune_machine": [c_void_p, c_size_t, POINTER(c_size_t)],
    "attune_unsupported": [POINTER(Problem), c_void_p, c_size_t, POINTER(c_size_t)],
    "attune_describe": [POINTER(Problem), c_void_p, c_size_t, POINTER(c_size_t)],
    "attune_prepare": [POINTER(Problem), c_char_p, POINTER(c_void_p)],
    "attune_load_pack": [c_char_p],
    "attune_digest": [c_int32, c_char_p, c_size_t, POINTER(c_size_t)],
    "attune_launch": [c_void_p, POINTER(Problem), POINTER(Operand), c_size_t, c_void_p, c_size_t, c_void_p],
    "attune_launch_backward": [c_void_p, POINTER(Problem), POINTER(Operand), c_size_t, c_void_p, c_size_t, c_void_p],
}


class AttuneError(RuntimeError):
    """What libattune answered; .status is the number of attune.h."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


def check(status):
    """Raises AttuneError with the library's sentence unless status is ATTUNE_OK."""
    if status != 0:
        raise AttuneError(status, load().attune_last_error().decode(errors="replace"))


def text_of(function, *about):
    """What a function of the library writes about its arguments, which come before those that say where."""
    needed = ctypes.c_size_t()
    check(function(*about, None, 0, ctypes.byref(needed)))
    text = ctypes.create_string_buffer(needed.value)
    check(function(*about, text, needed, None))
    return text.value.decode(errors="replace")


def candidates():
    """Where libattune.so may be, in the order in which it is looked for."""
    given = os.environ.get("ATTUNE_LIBRARY")
    if given:
        return [given]
    package = pathlib.Path(__file__).resolve().parent
    if (package / "lib").is_dir():  # installed by pip, or of a kernel repository, which has the libraries of several machines
        of_machine = package / "lib" / platform.machine() / "libattune.so"
        return [str(of_machine if of_machine.exists() else package / "lib" / "libattune.so")]
    root = package.parents[2]
    found = [root / "lib" / "libattune.so"] + [path / "lib" / "libattune.so" for path in sorted(root.glob("build*"))]
    return [str(path) for path in found if path.exists()] + ["libattune.so.0"]


@functools.lru_cache(maxsize=None)
def load():
    """The library, opened once. Raises OSError that says where it was looked for."""
    _offer_nvrtc()
    tried = []
    for path in candidates():
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            tried.append(f"{path}: {error}")
            continue
        try:
            for name, arguments in _SIGNATURES.items():
                function = getattr(library, name)
                function.argtypes, function.restype = arguments, c_int
        except AttributeError as error:
            tried.append(f"{path}: is not of this module's version: {error}")
            continue
        library.attune_release.argtypes, library.attune_release.restype = [c_void_p], None
        library.attune_last_error.restype = c_char_p
        library.attune_version.restype = c_char_p
        _hand_to_logging(library)
        atexit.register(library.attune_set_log_callback, LogCallback(), None, 0)  # threads may outlive the interpreter
        return library
    raise OSError("libattune.so was not found, or not of this version; build it with scripts/build, or set ATTUNE_LIBRARY to its path; tried:\n  "
                  + "\n  ".join(tried))


def set_log_callback(callback, level="warning"):
    """Calls callback(level, message) with what the library says beside its answers, instead of handing it to Python's logging.

    level: "debug", "info" or "warning", the least that is delivered; the callback's own argument is one of these too, message a sentence or
    several. It is called by whichever thread of the library has something to say. None restores the beginning: messages go to
    logging.getLogger("attune"), which prints warnings to standard error unless the program has set it up otherwise. $ATTUNE_LOG, if it is
    set, says from which level on they are printed where the program has set up nothing, or "off". Raises ValueError, TypeError, OSError.
    """
    global _receiver
    if callback is not None and not callable(callback):
        raise TypeError(f"callback is a {type(callback).__name__}: it must be a function of (level, message), or None")
    if level not in LOG_LEVELS:
        raise ValueError(f"level is {level!r}: it must be one of {', '.join(map(repr, LOG_LEVELS))}")
    library = load()
    if callback is None:
        _hand_to_logging(library)
    else:
        _receiver = callback, LOG_LEVELS[level]
        check(library.attune_set_log_callback(_deliver, None, LOG_LEVELS[level]))


def _log(level, message):
    logger, asked = logging.getLogger("attune"), os.environ.get("ATTUNE_LOG")
    if logger.hasHandlers() or asked not in LOG_LEVELS:
        logger.log(getattr(logging, level.upper()), "%s", message)
    elif LOG_LEVELS[level] >= LOG_LEVELS[asked]:
        sys.stderr.write(f"attune: {level}: {message}\n")


_receiver = _log, LOG_LEVELS["debug"]


@LogCallback
def _deliver(level, message, _):
    """The only function that the library is ever given: it outlives those that it calls."""
    receiver, least = _receiver
    if level >= least:
        receiver(next((name for name, number in LOG_LEVELS.items() if number == level), "warning"), message.decode(errors="replace"))


def _hand_to_logging(library):
    """Messages of every level: those of Python's logging decide."""
    global _receiver
    _receiver = _log, LOG_LEVELS["debug"]
    silent = os.environ.get("ATTUNE_LOG") == "off"
    library.attune_set_log_callback(LogCallback() if silent else _deliver, None, LOG_LEVELS["debug"])


def _offer_nvrtc():
    """Where no toolkit is installed, PyTorch's wheels hold an NVRTC: libattune finds it once it is loaded into the process."""
    package = importlib.util.find_spec("nvidia")
    if os.environ.get("ATTUNE_NVRTC") or package is None or not package.submodule_search_locations:
        return
    for folder in map(pathlib.Path, package.submodule_search_locations):
        for path in sorted(folder.glob("*/lib/libnvrtc.so.1[23]")):
            try:
                ctypes.CDLL(str(path))
            except OSError:
                continue

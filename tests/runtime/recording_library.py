"""A libattune that writes down what it is given instead of launching it, as C functions: also those who know no Python can call them."""

import ctypes
import threading
from ctypes import POINTER, c_int, c_size_t, c_void_p

from attune_kernels import _library

_FUNCTION = ctypes.CFUNCTYPE(c_int, POINTER(_library.Problem), POINTER(_library.Operand), c_size_t, c_void_p, c_size_t, c_void_p)
_WORKSPACE_BYTES, _LAST_ERROR = ctypes.CFUNCTYPE(c_int, POINTER(_library.Problem), POINTER(c_size_t)), ctypes.CFUNCTYPE(c_void_p)
_NAMES = ("q", "k", "v", "o", "lse", "d_q", "d_k", "d_v", "d_o", "d_lse", "sinks", "d_sinks", "seqused_q", "seqused_kv", "alibi_slopes", "bias",
          "attention_mask", "d_bias", "cu_seqlens_q", "cu_seqlens_kv", "dropout_state")  # by number
_WITHOUT_STRIDES = ("lse", "d_lse")


class RecordingLibrary:
    """`launches`: what each call was given, as tuples; `inside` is called in the middle of each; `status` is what all answer."""

    def __init__(self, workspace_bytes=1000):
        self.launches, self.workspace_bytes, self.status, self.inside, self._lock = [], workspace_bytes, 0, lambda: None, threading.Lock()
        self._error = ctypes.create_string_buffer(b"a sentence of the library")
        self._functions = {"attune_forward": _FUNCTION(self._forward), "attune_backward": _FUNCTION(self._backward),
                           "attune_launch": None, "attune_launch_backward": None, "attune_workspace_bytes": _WORKSPACE_BYTES(self._workspace_bytes),
                           "attune_last_error": _LAST_ERROR(lambda: ctypes.addressof(self._error))}

    def __getitem__(self, name):
        return self._functions[name]

    def _workspace_bytes(self, problem, needed):
        needed[0] = self.workspace_bytes
        return 0

    def attune_workspace_bytes(self, problem, needed):
        needed._obj.value = self.workspace_bytes
        return 0

    def attune_unsupported(self, problem, text, size, needed):
        """There is nothing that it does not support."""
        if needed is not None:
            needed._obj.value = 1
        return 0

    def attune_last_error(self):
        return f"status {self.status} of a test".encode()

    def _forward(self, problem, operands, count, workspace, workspace_bytes, stream):
        return self._record(_fields(problem[0]), _views(operands[:count])[0], None, bool(workspace), workspace_bytes, stream)

    def _backward(self, problem, operands, count, workspace, workspace_bytes, stream):
        return self._record(_fields(problem[0]), *_views(operands[:count]), bool(workspace), workspace_bytes, stream)

    def _record(self, *launch):
        with self._lock:
            self.launches.append((threading.get_ident(), *launch))
        self.inside()
        return self.status


def _views(operands):
    """{"q.data": address, "q.stride_row": ..., "lse": address}, and the same of gradients."""
    found = {}, {}
    for operand in operands:
        name, tensor = _NAMES[operand.name], operand.tensor
        of = found[name.startswith("d_")]
        if name in _WITHOUT_STRIDES:
            of[name] = tensor.data
        else:
            of.update({f"{name}.{field}": value for field, value in _fields(tensor).items()})
    return found


def _fields(struct):
    """{name: value}, of a struct within by "outer.inner"."""
    found = {}
    for name, _ in struct._fields_:
        value = getattr(struct, name)
        if isinstance(value, ctypes.Structure):
            found.update({f"{name}.{inner}": one for inner, one in _fields(value).items()})
        else:
            found[name] = value
    return found

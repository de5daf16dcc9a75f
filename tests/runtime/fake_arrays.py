"""Arrays on a GPU that is not there, of a library that speaks DLPack: what tests give to attune_kernels.dlpack. The structs of the protocol stand here
anew, so that a mistake on one side shows."""

import ctypes

_TYPES = {"float16": (2, 16), "bfloat16": (4, 16), "float32": (2, 32), "float64": (2, 64), "int32": (0, 32), "int64": (0, 64), "uint8": (1, 8),
          "bool": (6, 8)}  # (code, bits)


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("byte_offset", ctypes.c_uint64)]


class _Old(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _New(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32 * 2), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64),
                ("tensor", _Tensor)]


def _function(name, result, *arguments):
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new_capsule = _function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_pointer = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_name = _function("PyCapsule_GetName", ctypes.c_void_p, ctypes.c_void_p)
_NAMES = {is_new: ctypes.create_string_buffer(name) for is_new, name in ((False, b"dltensor"), (True, b"dltensor_versioned"))}  # capsules keep them

held = {}  # by address of its struct, what each capsule describes; of arrays that are watched, each that is not gone


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _let_go(capsule):
    """As a producer's destructor does with a capsule that nobody has taken over, but not while an exception is on its way, which a callback of ctypes would
    lose: so only with arrays that are watched."""
    del held[_pointer(capsule, _name(capsule))]


class FakeArray:
    """`device`: DLPack's type and number. `version`: None before version 1. `streams`: those that consumers have named."""

    def __init__(self, shape, dtype="bfloat16", device=(2, 0), strides=None, address=0x10000, byte_offset=0, version=(1, 0), flags=0, lanes=1,
                 is_watched=False):
        self.shape, self.dtype, self.device, self.strides, self.address, self.byte_offset = tuple(shape), dtype, device, strides, address, byte_offset
        self.version, self.flags, self.lanes, self.streams, self.copy = version, flags, lanes, [], []
        self.is_watched = is_watched

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        self.streams.append(stream)
        self.copy.append(copy)
        return self._capsule(self.version if max_version is not None else None)

    def _capsule(self, version):
        shape = (ctypes.c_int64 * len(self.shape))(*self.shape)
        strides = None if self.strides is None else (ctypes.c_int64 * len(self.shape))(*self.strides)
        tensor = _Tensor(self.address, self.device, len(self.shape), *_TYPES[self.dtype], self.lanes, ctypes.addressof(shape),
                         None if strides is None else ctypes.addressof(strides), self.byte_offset)
        managed = _Old(tensor) if version is None else _New(version, None, None, self.flags, tensor)
        held[ctypes.addressof(managed)] = managed, shape, strides, self
        return _new_capsule(ctypes.addressof(managed), ctypes.addressof(_NAMES[version is not None]),
                            ctypes.cast(_let_go, ctypes.c_void_p) if self.is_watched else None)


class OldFakeArray(FakeArray):
    """Of a library from before version 1 of the protocol."""

    def __dlpack__(self, *, stream=None):
        self.streams.append(stream)
        return self._capsule(None)

"""Arrays of any library, as DLPack describes them: https://dmlc.github.io/dlpack/latest. Knows nothing of torch.

A producer hands over a capsule that points to a struct: `dltensor` before version 1 of the protocol, `dltensor_versioned` since then, with flags.
The capsule is kept and never marked as used, so that its own destructor tells the producer when the array is no longer looked at.
"""

import collections
import ctypes
from ctypes import POINTER, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p

from . import _library

_CUDA = 2
_READ_ONLY, _IS_COPIED = 1, 2  # flags
_VERSION = 1, 0  # the newest whose structs are known; those of the same major number begin alike
_DEVICES = {1: "cpu", 2: "cuda", 3: "cuda_host", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 11: "rocm_host", 13: "cuda_managed", 14: "oneapi"}
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "int32": 4, "int64": 8, "bool": 1, "uint8": 1}


class Device(collections.namedtuple("Device", "type index")):
    def __str__(self):
        return f"{self.type}:{self.index}"


class _Tensor(ctypes.Structure):
    """DLTensor"""

    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32), ("code", c_uint8), ("bits", c_uint8),
                ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned"""

    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("manager_ctx", c_void_p), ("deleter", c_void_p), ("flags", c_uint64),
                ("tensor", _Tensor)]


# Prototypes of their own: attributes of ctypes.pythonapi are shared with all modules of the process.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer_of = ctypes.PYFUNCTYPE(c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


def contiguous_strides(shape):
    strides = []
    for size in reversed(shape):
        strides.insert(0, strides[0] * following if strides else 1)
        following = size
    return tuple(strides)


class Array:
    """What _checked.py asks of a tensor. Strides are in elements; types of elements have PyTorch's names."""

    def __init__(self, shape, dtype, device=Device("cuda", 0), strides=None, address=0, capsule=None):
        self.shape, self.dtype, self.device = tuple(shape), dtype, device
        self._strides = contiguous_strides(self.shape) if strides is None else tuple(strides)
        self._address, self._capsule = address, capsule

    def dim(self):
        return len(self.shape)

    def stride(self, axis=None):
        return self._strides if axis is None else self._strides[axis]

    def numel(self):
        product = 1
        for size in self.shape:
            product *= size
        return product

    def element_size(self):
        return BYTES[self.dtype]

    def get_device(self):
        return self.device.index

    def data_ptr(self):
        return self._address

    def is_contiguous(self):
        return self.numel() == 0 or all(size == 1 or mine == stride for size, mine, stride in
                                        zip(self.shape, self._strides, contiguous_strides(self.shape)))

    def in_one_batch_entry(self):
        """A view with a batch of 1 in front."""
        first = self.shape[0] * self._strides[0] if self.shape else 1
        return Array((1, *self.shape), self.dtype, self.device, (first, *self._strides), self._address, self._capsule)


class Arrays:
    """What _checked.py asks about them. Raises ValueError or TypeError."""

    Tensor, a_tensor, dtypes = Array, "an array with __dlpack__()", {"float16": _library.FP16, "bfloat16": _library.BF16}

    @staticmethod
    def dtype(name):
        return name

    @staticmethod
    def is_deterministic():
        return False

    @staticmethod
    def of_16_bits(name):
        return "float16 or bfloat16"

    @staticmethod
    def contiguous(name):
        return "pass a contiguous copy"

    @staticmethod
    def check(name, array, traced):
        """A device of another type was refused where the array was taken."""
        if not isinstance(array, Array):
            raise TypeError(f"{name} is a {type(array).__name__}: it must be {Arrays.a_tensor}")

    @staticmethod
    def has_memory(array):
        return array.data_ptr() != 0


def take(name, array, stream, is_written=False):
    """The Array that an object with __dlpack__() describes, whose memory is ready for work on `stream`, a number as DLPack has it; None of None.
    is_written: kernels will write to it, so that it must be the memory itself and not read-only."""
    if array is None:
        return None
    if not hasattr(array, "__dlpack__") or not hasattr(array, "__dlpack_device__"):
        raise TypeError(f"{name} is a {type(array).__name__}: it must be {Arrays.a_tensor} and __dlpack_device__(), such as one of CuPy or JAX")
    kind, index = map(int, array.__dlpack_device__())
    device = Device(_DEVICES.get(kind, f"device_type_{kind}"), index)
    if kind != _CUDA:
        raise ValueError(f"{name} is on {device}: it must be on a CUDA device")
    capsule = _capsule_of(array, stream, is_written)
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
        if versioned.major != _VERSION[0]:
            raise ValueError(f"{name} is described by DLPack {versioned.major}.{versioned.minor}: version {_VERSION[0]} and those before it are known")
        if is_written and versioned.flags & (_READ_ONLY | _IS_COPIED):
            what = "read-only" if versioned.flags & _READ_ONLY else "given as a copy"
            raise ValueError(f"{name} is {what}: the result is written to it, so that it must be an array that may be written to")
        tensor = versioned.tensor
    elif _is_valid(capsule, b"dltensor"):
        tensor = _Tensor.from_address(_pointer_of(capsule, b"dltensor"))
    else:
        raise TypeError(f"{name}.__dlpack__() returned a {type(capsule).__name__} that is no capsule of DLPack, or one that was used")
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim)) if tensor.strides else None
    address = tensor.data + tensor.byte_offset if tensor.data else 0
    return Array(shape, _dtype_of(name, tensor), device, strides, address, capsule)


def _capsule_of(array, stream, is_written):
    try:
        return array.__dlpack__(stream=stream, max_version=_VERSION, **({"copy": False} if is_written else {}))
    except TypeError:  # a producer from before version 1 knows neither argument
        return array.__dlpack__(stream=stream)


def _dtype_of(name, tensor):
    bits = tensor.bits
    kind = _KINDS.get(tensor.code, f"code_{tensor.code}_")
    dtype = kind if kind == "bool" and bits == 8 else f"{kind}{bits}"
    if tensor.lanes != 1:
        raise TypeError(f"{name} has elements of {tensor.lanes} {dtype}: it must have single numbers")
    return dtype

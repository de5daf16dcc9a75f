"""As much of torch as the Python binding asks for where nothing runs on a GPU: `install()` puts it where `import torch` finds it."""

import collections
import sys
import types

Device = collections.namedtuple("Device", "type index")


class Tensor:
    """What the binding asks of a torch.Tensor. `filled`: the number that every element was set to, if one was."""

    def __init__(self, shape, dtype="bf16", device="cuda:0", strides=None, address=0x1000, requires_grad=False, layout="strided",
                 is_nested=False):
        self.shape, self.dtype, self.address, self.requires_grad = tuple(shape), dtype, address, requires_grad
        self.layout, self.is_nested, self.is_cuda, self.filled = layout, is_nested, device.startswith("cuda"), None
        kind, _, index = device.partition(":")
        self.device = Device(kind, int(index) if index else None)
        if strides is None:
            strides = [1]
            for size in reversed(self.shape[1:]):
                strides.insert(0, strides[0] * size)
        self.strides = tuple(strides)

    def dim(self):
        return len(self.shape)

    def stride(self, axis=None):
        return self.strides if axis is None else self.strides[axis]

    def get_device(self):
        return -1 if self.device.index is None else self.device.index

    def data_ptr(self):
        if self.address is None:
            raise RuntimeError("Cannot access data pointer")
        return self.address

    def new_empty(self, *shape, dtype=None):
        return Tensor(shape[0] if isinstance(shape[0], tuple) else shape, dtype or self.dtype)

    def to(self, dtype):
        return Tensor(self.shape, dtype, strides=self.strides, address=self.address, requires_grad=self.requires_grad)

    def detach(self):
        return Tensor(self.shape, self.dtype, strides=self.strides, address=self.address)

    def is_floating_point(self):
        return self.dtype[:2] in ("fp", "bf")

    def fill_(self, number):
        self.filled = number

    def zero_(self):
        self.fill_(0)

    def element_size(self):
        return 2

    def is_contiguous(self):
        return self.strides == Tensor(self.shape).strides

    def narrow(self, axis, start, size):
        shape = (*self.shape[:axis], size, *self.shape[axis + 1:])
        return Tensor(shape, self.dtype, strides=self.strides, address=self.address + 2 * start * self.strides[axis],
                      requires_grad=self.requires_grad)

    def unsqueeze(self, axis):
        assert axis == 0
        return Tensor((1, *self.shape), self.dtype, strides=(self.shape[0] * self.strides[0], *self.strides), address=self.address, requires_grad=self.requires_grad)

    def __getitem__(self, index):
        assert index == 0
        return Tensor(self.shape[1:], self.dtype, strides=self.strides[1:], address=self.address, requires_grad=self.requires_grad)

    def contiguous(self):
        return self if self.is_contiguous() else Tensor(self.shape, self.dtype)

    def numel(self):
        product = 1
        for size in self.shape:
            product *= size
        return product


def device(kind, index=None):
    """torch.device"""
    kind, _, number = kind.partition(":")
    return types.SimpleNamespace(type=kind, index=int(number) if number else index)


class SingleLevelFunction:
    @classmethod
    def apply(cls, *arguments):
        return cls.forward(types.SimpleNamespace(), *arguments)


class Function(SingleLevelFunction):
    """torch.autograd.Function, as far as forward."""


class Library:
    """torch.library.Library, which keeps what it is given: `schemas` and `kernels` by name and key."""

    def __init__(self, namespace, kind, key=""):
        self.namespace, self.kind, self.schemas, self.kernels = namespace, kind, {}, {}

    def define(self, schema, tags=()):
        self.schemas[schema.partition("(")[0]] = schema

    def impl(self, name, kernel, key, with_keyset=False):
        self.kernels[name, key] = kernel


def library():
    """torch.library of PyTorch 2.4."""
    module = types.SimpleNamespace(Library=Library, registered={})

    def register_fake(name, function, lib):
        module.registered[name, "fake"] = function

    def register_autograd(name, backward, setup_context=None, lib=None):
        module.registered[name, "autograd"] = backward

    module.register_fake, module.register_autograd = register_fake, register_autograd
    return module


def install():
    torch = types.ModuleType("torch")
    torch.__version__ = "2.4"
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int32, torch.int64, torch.bool = \
        "fp16", "bf16", "fp32", "fp64", "u8", "int32", "int64", "bool"
    torch.strided = "strided"
    torch.Tensor = Tensor
    torch.is_grad_enabled = lambda: True
    torch.are_deterministic_algorithms_enabled = lambda: False
    torch.autograd = types.ModuleType("torch.autograd")
    torch.autograd.forward_ad = types.SimpleNamespace(_current_level=-1)
    torch.autograd.Function = Function
    torch.is_autocast_enabled, torch.get_autocast_dtype = lambda device: False, lambda device: "bf16"
    torch.compiler = types.SimpleNamespace(is_compiling=lambda: False)
    torch.library, torch.ops = library(), types.SimpleNamespace(attune_kernels=types.SimpleNamespace(), aten=types.SimpleNamespace())
    torch.Tag = types.SimpleNamespace(pt2_compliant_tag=1, needs_fixed_stride_order=2)
    torch.nn = types.SimpleNamespace()
    torch._C = types.SimpleNamespace(_are_functorch_transforms_active=lambda: False, _len_torch_dispatch_stack=lambda: 0,
                                     _cuda_getCurrentRawStream=lambda device: 0)
    torch.empty = lambda shape, dtype, device: Tensor(shape if isinstance(shape, tuple) else (shape,), dtype)
    torch.empty_like = lambda tensor: Tensor(tensor.shape, tensor.dtype, strides=tensor.strides)
    torch.cuda, torch.device = types.SimpleNamespace(current_device=lambda: 0), device
    for module in (torch, torch.autograd):
        sys.modules[module.__name__] = module

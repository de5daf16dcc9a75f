"""The extension _known_calls, which serves calls of a kind that _calls.py has checked before, without running Python code.

It takes tensors through a table of C functions that PyTorch 2.10 and newer hang on torch.Tensor, and knows nothing else of PyTorch, so that
one file serves all its versions. A build makes it where it finds Python's headers.
"""

import importlib.machinery
import importlib.util
import pathlib
import re

import torch

from . import _library

_INTERFACE = 3  # what its functions take and return, as extension/known_calls.cpp counts


def load():
    """The extension, ready to be used, or None where it was not built, or PyTorch is too old or a stand-in."""
    version = tuple(map(int, re.match(r"(\d+)\.(\d+)", torch.__version__).groups()))
    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if version < (2, 10) or exchange is None:  # on older versions other packages hang tables of their own
        return None
    extension = _find()
    if getattr(extension, "INTERFACE", None) != _INTERFACE:
        return None
    try:
        is_usable = extension.use(exchange, torch.Tensor, torch.empty_like, {"dtype": torch.float32},
                                  torch.are_deterministic_algorithms_enabled, _library.check)
    except (TypeError, ValueError):  # the attribute is something else
        return None
    return extension if is_usable else None


def _find():
    try:
        from . import _known_calls

        return _known_calls
    except ImportError:
        pass
    suffix = ".abi3.so"
    if suffix not in importlib.machinery.EXTENSION_SUFFIXES:  # an interpreter without the lock that the extension relies on
        return None
    for library in map(pathlib.Path, _library.candidates()):  # in a checkout a build leaves it beside the library
        path = library.parent / "attune_kernels" / f"_known_calls{suffix}"
        if path.is_file():
            spec = importlib.util.spec_from_file_location(f"{__package__}._known_calls", path)
            try:
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
            except ImportError:
                return None
            return module
    return None

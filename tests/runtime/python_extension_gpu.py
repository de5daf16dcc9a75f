"""That the extension which was built beside the library is the one that serves calls on this machine. Tests of what it serves are skipped where
it does not load, which must not pass for success.

usage: python_extension_gpu.py [UNITTEST_ARGUMENT...]
"""

import pathlib
import re
import sys
import unittest
import unittest.mock

from on_gpu import BF16, OnGpu, inputs, run_tests, skip, torch

import attune_kernels as attune
from attune_kernels import _attention, _calls, _library

BUILT = [path for path in (pathlib.Path(library).parent / "attune_kernels" / "_known_calls.abi3.so" for library in _library.candidates()) if path.is_file()]
VERSION = tuple(map(int, re.match(r"(\d+)\.(\d+)", torch.__version__).groups()))
if not BUILT or VERSION < (2, 10):
    skip("no extension was built beside the library, or PyTorch is older than 2.10")


class Extension(OnGpu):
    def test_it_is_loaded(self):
        self.assertIsNotNone(_calls._known_calls, f"{BUILT[0]} does not load into Python {sys.version}")

    def test_it_serves_calls(self):
        q, k, v, *_ = inputs(BF16, 1, 2, 2, 80, 80, 64)
        attune.attention(q, k, v)
        with unittest.mock.patch.object(_calls._Launcher, "run", side_effect=AssertionError("Python code made the call")):
            attune.attention(q, k, v)

    @unittest.skipUnless(VERSION == (2, 11), "another version of PyTorch may have other functions")
    def test_it_implements_operators(self):
        self.assertIsNotNone(_attention._attend)
        leaves = [one.requires_grad_() for one in inputs(BF16, 1, 2, 2, 80, 80, 64)[:3]]
        before = _calls._known_calls.served()
        for _ in range(2):
            out = attune.attention(*leaves)
            torch.autograd.grad(out, leaves, torch.ones_like(out))
        self.assertTrue(all(now > one for now, one in zip(_calls._known_calls.served(), before)))


if __name__ == "__main__":
    run_tests()

"""Builds the handlers that XLA calls (jax_handlers.c) once for each version of jaxlib, and makes them known to JAX.

XLA's header comes with jaxlib and no copy of it is kept here; the compiler is $CC, else cc. What was built stays in the folder of compiled
kernels, which is $ATTUNE_CACHE_DIR or the usual one, and in a folder of this process alone where others may write to that one.
"""

import atexit
import ctypes
import functools
import hashlib
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile

import jax
import jaxlib

from . import _library

FORWARD, BACKWARD = "attune_kernels.forward", "attune_kernels.backward"
_SOURCE = pathlib.Path(__file__).with_name("jax_handlers.c")


class _Functions(ctypes.Structure):
    """library_functions"""

    _fields_ = [("forward", ctypes.c_void_p), ("backward", ctypes.c_void_p), ("workspace_bytes", ctypes.c_void_p), ("last_error", ctypes.c_void_p),
                ("device_offset", ctypes.c_size_t)]


@functools.lru_cache(maxsize=None)
def register(platform="CUDA", flags=()):
    """Makes the handlers known to JAX, once. Raises OSError or RuntimeError with what to do. flags: of the compiler, for tests."""
    library = _library.load()
    handlers = ctypes.CDLL(str(_built(tuple(flags))))
    functions = [ctypes.cast(library[name], ctypes.c_void_p) for name in
                 ("attune_forward", "attune_backward", "attune_workspace_bytes", "attune_last_error")]
    handlers.attune_jax_use(ctypes.byref(_Functions(*functions, _library.Problem.device.offset)))
    for target, handler in ((FORWARD, handlers.attune_jax_forward), (BACKWARD, handlers.attune_jax_backward)):
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(handler), platform=platform)
    return handlers, library  # which JAX calls as long as the process lives


def _built(flags):
    include = pathlib.Path(jax.ffi.include_dir())
    header = include / "xla" / "ffi" / "api" / "c_api.h"
    compiler = shlex.split(os.environ.get("CC") or "cc")
    name = hashlib.sha256(b"\0".join([_SOURCE.read_bytes(), header.read_bytes(), *map(str.encode, (*compiler, *flags, os.uname().machine))]))
    folder = _folder()
    built = folder / f"jax-handlers-{name.hexdigest()[:16]}.so"
    if built.exists():
        return built
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        fresh = pathlib.Path(scratch) / built.name
        command = [*compiler, "-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", *flags, "-isystem", str(include), str(_SOURCE), "-o", str(fresh)]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            raise RuntimeError(f"attune_kernels.jax needs a C compiler, to build what XLA calls: install one, or name it in CC; {compiler[0]}: "
                               f"{error.strerror}") from None
        if done.returncode != 0:
            raise RuntimeError(f"attune_kernels.jax: what XLA calls does not compile against jaxlib {jaxlib.__version__}; update JAX, or name another "
                               f"C compiler in CC\n{shlex.join(command)}\n{done.stderr}")
        os.replace(fresh, built)  # whoever builds the same meanwhile makes the same
    return built


def _folder():
    """Where what was built is kept, which is loaded as code."""
    environment = os.environ
    root = environment.get("ATTUNE_CACHE_DIR")
    if not root:
        home = environment.get("XDG_CACHE_HOME") or (environment.get("HOME") and os.path.join(environment["HOME"], ".cache"))
        root = home and os.path.join(home, "attune")
    if root:
        folder = pathlib.Path(root) / "jax"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if all(_is_ours_alone(one) for one in (folder, folder.parent)) and os.access(folder, os.W_OK):
                return folder
        except OSError:
            pass
    folder = pathlib.Path(tempfile.mkdtemp(prefix="attune-jax-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _is_ours_alone(folder):
    found = folder.stat()
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022

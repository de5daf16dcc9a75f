"""`python -m attune_kernels`: what there is on this machine for calls of the module, a line for each thing, to be sent along with a question. Ends with 1
where the library or a GPU is missing."""

import pathlib
import platform
import sys

from . import _library


def _library_of_process():
    """Where the library lies that was opened."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        found = {line.split(maxsplit=5)[5].strip() for line in maps if "libattune.so" in line}
    return ", ".join(sorted(found))


def _pytorch():
    try:
        import torch
    except ModuleNotFoundError:
        return None
    return torch


def findings():
    """(name, what there is) of each thing, and whether calls can run."""
    yield "module", str(pathlib.Path(__file__).parent)
    yield "Python", f"{platform.python_version()}, {platform.machine()}, {platform.platform()}"
    torch = _pytorch()
    if torch is None:
        yield "PyTorch", "none: pip install torch; without it arrays go in by attune_kernels.dlpack or attune_kernels.jax"
    else:
        yield "PyTorch", f"{torch.__version__}, " + (f"of CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA")
    try:
        library = _library.load()
    except OSError as error:
        yield "library", f"none: {error}"
        return
    yield "library", f"{library.attune_version().decode()}, {_library_of_process()}"
    if torch is not None:
        from . import _calls

        yield "extension", "serves repeated calls" if _calls._known_calls is not None else \
            "none: it was not built, or PyTorch is older than 2.10; Python code serves all calls"
    for line in _library.text_of(library.attune_machine).splitlines():
        yield tuple(line.split("\t", 1))


def main():
    found = list(findings())
    width = max(len(name) for name, _ in found)
    for name, what in found:
        print(f"{name:<{width}}  {what}")
    names = {name for name, what in found if not what.startswith("none: ")}
    return 0 if "library" in names and any(name.startswith("cuda:") for name in names) else 1


if __name__ == "__main__":
    sys.exit(main())

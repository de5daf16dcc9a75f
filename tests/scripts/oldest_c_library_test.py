#!/usr/bin/env python3
"""What scripts/cross-build relies on, in seconds: every function that this build takes from the C library is in the oldest one that wheels promise, for both
architectures, and the files that differ between architectures compile for both. scripts.wheels.slow builds everything and runs it. Skipped (77) without the
compiler for other machines.
usage: oldest_c_library_test.py SOURCE_FOLDER BUILD_FOLDER"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

root, build = (pathlib.Path(folder).resolve() for folder in sys.argv[1:3])
compilers = list(build.glob("cross/venv/lib/python3*/site-packages/ziglang/zig"))
if not compilers:
    print(f"skipped: the compiler for other machines is missing: scripts/install-deps --build {build} --cross")
    sys.exit(77)
oldest = re.search(r"^oldest_c_library=([\d.]+)$", (root / "scripts/cross-build").read_text(), re.MULTILINE)[1]
environment = {**os.environ, **{f"ZIG_{scope}_CACHE_DIR": str(build / "cross/zig-cache") for scope in ("GLOBAL", "LOCAL")}}


def functions(binary):
    """The names that it takes from the C library, as its programs write them: newer headers give some another name, and so do a distribution's options."""
    listed = subprocess.run(["nm", "-D", "--undefined-only", binary], check=True, capture_output=True, text=True).stdout
    names = re.findall(r" ([A-Za-z_]\w*)@+GLIBC_", listed)
    names = [re.sub(r"^__(\w+)_chk$", r"\1", re.sub(r"^__isoc23_", "", name)) for name in names]
    return {name for name in names if not name.startswith(("__tls_", "__stack_", "__longjmp", "__libc_"))}  # of compilers and their libraries


def compiles(machine, *arguments):
    """What the compiler says against it, or nothing."""
    command = [compilers[0], "c++" if "-std=c++20" in arguments else "cc", "-target", f"{machine}-linux-gnu.{oldest}", *arguments]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    return ended.stderr if ended.returncode else ""


def link(machine, names, folder):
    source = pathlib.Path(folder, "all.c")
    source.write_text("\n".join(f"extern char {name}[];" for name in names) + "\nchar* all[] = {" + ", ".join(names) + "};\nint main(void) { return all[0] == 0; }\n")
    return compiles(machine, "-fno-builtin", "-w", str(source), "-o", str(pathlib.Path(folder, "all")), "-lm", "-ldl", "-lpthread")


names = sorted(set().union(*(functions(build / binary) for binary in ("bin/attune", "lib/libattune.so"))))
assert len(names) > 100, names
rooms = [argument for room in ("generator", "runtime", "tuner") for argument in ("-I", str(build / "rooms" / room))]
cuda = [argument for folder in re.findall(r'_INCLUDE "(.*)"', (build / "deps.cmake").read_text()) for argument in ("-idirafter", folder)]
flags = ["-std=c++20", "-c", "-I", str(root / "runtime/include"), *rooms, *cuda, "-idirafter", "/usr/include", "-DXXH_INLINE_ALL", '-DATTUNE_NVRTC_HINT=""']
differ = [path for room in ("generator", "runtime", "tuner", "bindings") for path in sorted((root / room).rglob("*.cpp")) if re.search(r"__(x86_64|aarch64)__", path.read_text())]
assert differ
with tempfile.TemporaryDirectory() as folder:
    # A function that is younger is found: this one came with 2.32.
    assert "sigabbrev_np" in link("x86_64", ["sigabbrev_np"], folder), "the compiler takes a function that the C library does not have"
    complaints = []
    for machine in ("x86_64", "aarch64"):
        complaint = link(machine, names, folder)
        if complaint:
            complaints.append(f"the C library {oldest} of {machine} has not all that this build calls:\n{complaint}")
        for path in differ:
            complaint = compiles(machine, *flags, str(path), "-o", str(pathlib.Path(folder, "object.o")))
            if complaint:
                complaints.append(f"{path.relative_to(root)} does not compile for {machine}:\n{complaint}")
for complaint in complaints:
    print(complaint)
print(f"{len(names)} functions of the C library and {len(differ)} files")
sys.exit(bool(complaints))

#!/usr/bin/env python3
"""What a wheel's files ask of a machine, read from their symbols by binutils: the wheel's tag must name their architecture, and a C library as new as the newest
version that one of their symbols asks for. No file may load a library that the tag does not promise and the wheel does not hold.
usage: wheel_tag.py WHEEL [OLDEST]      OLDEST: the tag must name just this version of the C library, such as 2_28,
                                        and no C++ library may be asked for"""
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

wheel = pathlib.Path(sys.argv[1])
tag = re.search(r"-manylinux_(\d+)_(\d+)_(\w+?)\.whl$", wheel.name)
if not tag:
    sys.exit(f"{wheel.name} has no tag of the form manylinux_2_28_x86_64")
promised, machine = (int(tag[1]), int(tag[2])), tag[3]
if len(sys.argv) > 2 and sys.argv[2] != f"{tag[1]}_{tag[2]}":
    sys.exit(f"{wheel.name}: the tag should be manylinux_{sys.argv[2]}")

ARCHITECTURES = {"x86_64": "Advanced Micro Devices X86-64", "aarch64": "AArch64"}
PROMISED = re.compile(r"(lib(c|m|dl|pthread|rt|gcc_s)\.so\.\d+|ld-linux-[\w-]+\.so\.\d+)$")
CXX = re.compile(r"libstdc\+\+\.so\.6$")  # is promised, too, and its versions are others: a wheel for old machines may not ask for it


def readelf(*arguments):
    return subprocess.run(["readelf", "--wide", *arguments], check=True, capture_output=True, text=True).stdout


complaints, newest, binaries = [], (0, 0), 0
with tempfile.TemporaryDirectory() as folder:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    held = {path.name for path in pathlib.Path(folder).rglob("*.so*")}
    for path in sorted(pathlib.Path(folder).rglob("*")):
        if not path.is_file() or path.read_bytes()[:4] != b"\x7fELF":
            continue
        binaries += 1
        name = path.relative_to(folder)
        found = re.search(r"Machine: +(.*)", readelf("--file-header", path))[1]
        if found != ARCHITECTURES[machine]:
            complaints.append(f"{name} is for {found}, and the tag names {machine}")
        for library in re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("--dynamic", path)):
            if not PROMISED.match(library) and library not in held and not (CXX.match(library) and len(sys.argv) == 2):
                complaints.append(f"{name} loads {library}")
        asked = re.search(r"Version needs section.*", readelf("--version-info", path), re.DOTALL)
        for version in re.findall(r"GLIBC_(\d+)\.(\d+)", asked[0] if asked else ""):
            newest = max(newest, (int(version[0]), int(version[1])))
if newest > promised:
    complaints.append(f"a symbol asks for GLIBC_{newest[0]}.{newest[1]}, and the tag promises {promised[0]}.{promised[1]}")
if binaries < 2:
    complaints.append("the wheel holds neither the library nor the command")
if complaints:
    sys.exit("\n".join(f"{wheel.name}: {complaint}" for complaint in complaints))
print(f"{wheel.name}: symbols ask for GLIBC_{newest[0]}.{newest[1]}")

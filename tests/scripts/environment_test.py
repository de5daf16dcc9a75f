#!/usr/bin/env python3
"""docs/environment.md names every variable that the sources read, and no other. usage: environment_test.py SOURCE_FOLDER"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
general = {"CC", "HOME", "PATH", "TMPDIR", "XDG_DATA_HOME", "XDG_CACHE_HOME", "CUDA_HOME", "CUDA_PATH"}
literal = re.compile(r'"([A-Z][A-Z0-9_]+)"')
in_shell = re.compile(r"\$\{(ATTUNE_[A-Z_]+)")

read = {}
for room in ("generator", "runtime", "tuner", "bindings"):
    for path in sorted((root / room).rglob("*")):
        if path.suffix in (".cpp", ".h", ".py"):
            for name in literal.findall(path.read_text()):
                if name.startswith("ATTUNE_") or name in general:
                    read.setdefault(name, path.relative_to(root))
for path in sorted((root / "scripts").iterdir()):
    if path.is_file() and path.suffix in ("", ".sh"):
        for name in in_shell.findall(path.read_text()):
            read.setdefault(name, path.relative_to(root))

# TMPDIR is std::filesystem::temp_directory_path()'s.
read.setdefault("TMPDIR", "the standard library")
page = set(re.findall(r"`\$?([A-Z][A-Z0-9_]+)", (root / "docs" / "environment.md").read_text())) - {"CUDA_VISIBLE_DEVICES", "NVTX_INJECTION64_PATH"}  # read by others
missing = {name: path for name, path in read.items() if name not in page}
for name, path in sorted(missing.items()):
    print(f"docs/environment.md does not name {name}, which {path} reads")
for name in sorted(page - set(read)):
    print(f"docs/environment.md names {name}, which nothing reads")
if not any(name.startswith("ATTUNE_") for name in read):
    sys.exit("no variable was found in the sources: this test looks in the wrong place")
sys.exit(1 if missing or page - set(read) else 0)

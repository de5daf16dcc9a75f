#!/usr/bin/env bash
# The folder that scripts/kernels-hub makes is loaded by Hugging Face's own `kernels` package from PyPI, which picks the variant, checks the metadata and imports the
# module; PyTorch is a stand-in of one build for CUDA. Skipped (77) where PyPI cannot be reached.
# usage: kernels_hub_test.sh SOURCE_FOLDER BUILD_FOLDER
set -euo pipefail
source=$1 build=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "kernels hub test: $*" >&2; exit 1; }
python=$([ -x /usr/bin/python3 ] && echo /usr/bin/python3 || echo python3)
"$python" -m venv "$folder/venv" || { echo "skipped: python3 makes no virtual environment here"; exit 77; }
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --retries 1 --timeout 20 'kernels==0.17.*' 2>"$folder/log" ||
  { echo "skipped: the package kernels cannot be installed: $(tail -n 1 "$folder/log")"; exit 77; }

"$source/scripts/kernels-hub" "$folder/hub" "$(uname -m)=$build" >/dev/null
mkdir "$folder/other"
touch "$folder/other/file"
if "$source/scripts/kernels-hub" "$folder/other" "$(uname -m)=$build" 2>/dev/null; then fail "a folder of somebody else is overwritten"; fi

# `kernels` asks whether there is a module torch, and then imports it.
mkdir -p "$folder/modules/torch" "$folder/home"
cat >"$folder/modules/torch/__init__.py" <<'PYTHON'
import sys
import types

import fake_torch

fake_torch.install()
sys.modules["torch"].__spec__ = __spec__
sys.modules["torch"].version = types.SimpleNamespace(cuda="12.8", hip=None)
sys.modules["torch"].backends = types.SimpleNamespace()
sys.modules["torch"].compiled_with_cxx11_abi = lambda: True
PYTHON
env -i PATH=/usr/bin:/bin HOME="$folder/home" HF_HUB_OFFLINE=1 CUDA_VISIBLE_DEVICES=-1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$folder/modules:$source/tests/runtime" \
  LOCAL_KERNELS="attune/attune-kernels=$folder/hub" "$folder/venv/bin/python" - "$folder/hub" "$source" <<'PYTHON' || fail "the kernel repository is not loaded"
import pathlib
import re
import sys

import kernels
from fake_torch import Tensor

hub, source = map(pathlib.Path, sys.argv[1:])
version = re.search(r"project\(attune VERSION ([\d.]+)", (source / "CMakeLists.txt").read_text())[1]
attune = kernels.get_local_kernel(hub)
assert pathlib.Path(attune.__file__).parent == hub / "build/torch-cuda", attune.__file__
assert attune.version() == version, attune.version()
missing = {path.name for path in (source / "bindings/python/attune_kernels").iterdir() if path.is_file()} - {path.name for path in (hub / "build/torch-cuda").iterdir()}
assert not missing, f"the repository lacks {missing} of the package"
assert attune._library.candidates()[0].startswith(str(hub)), attune._library.candidates()
try:
    attune.prepare(*[Tensor((2, 4, 100, 64)) for _ in range(3)])
except attune.AttuneError as error:
    assert error.status == -4, error  # no GPU
else:
    raise AssertionError("a kernel was prepared without a GPU")
# By the name of a repository, and as the package's own modules are imported: it is the same one.
assert kernels.get_kernel("attune/attune-kernels", version=0, check_arch=False) is attune
import attune_kernels
import attune_kernels.flash_attn

assert attune_kernels is attune and attune_kernels.flash_attn.flash_attn_func
PYTHON

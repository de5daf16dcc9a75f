#!/usr/bin/env bash
# What `cmake --install` puts somewhere else works there: the command, with the shipped presets, and libattune.so.
# usage: install_test.sh BUILD_FOLDER
set -euo pipefail
build=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "install test: $*" >&2; exit 1; }

cmake --install "$build" --prefix "$folder/prefix" >"$folder/log" || { cat "$folder/log"; fail "cmake --install failed"; }
prefix=$folder/prefix
for file in bin/attune include/attune.h share/attune/presets/nvidia-h200.json; do
  [ -f "$prefix/$file" ] || fail "$file is not installed"
done
library=$(find "$prefix" -name libattune.so)
[ -e "$library" ] || fail "libattune.so is not installed"

# Nothing of the build folder, of this user or of this machine's settings may help.
run() { env -i PATH="$PATH" HOME="$folder/home" CUDA_VISIBLE_DEVICES=-1 "$@"; }
mkdir "$folder/home"
run "$prefix/bin/attune" devices | grep -q '^targets' || fail "attune devices does not run from $prefix"
# A shape of tuner/presets: measured, so the pick is exact.
tuned=(--batch 4 --heads 16 --seq 4096 --head-dim 128 --causal --target h200)
said=$(run "$prefix/bin/attune" explain "${tuned[@]}")
grep -Eq '^origin +exact' <<<"$said" || fail "a shipped preset is not picked: $said"
said=$(run ATTUNE_SYSTEM_DATABASE= "$prefix/bin/attune" explain "${tuned[@]}")
grep -Eq '^origin +default' <<<"$said" || fail "presets that are switched off are still picked: $said"

cat >"$folder/caller.c" <<'C'
#include <attune.h>
#include <stdio.h>
int main(void) { return printf("%s\n", attune_version()) > 0 ? 0 : 1; }
C
cc -I"$prefix/include" "$folder/caller.c" -o "$folder/caller" "$library"
run LD_LIBRARY_PATH="$(dirname "$library")" "$folder/caller" >/dev/null || fail "a C program does not run with $library"

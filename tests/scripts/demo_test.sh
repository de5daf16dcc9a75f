#!/usr/bin/env bash
# scripts/demo as it is, but for installing and building: what it tunes is what it runs, checks and shows.
# usage: demo_test.sh SOURCE_FOLDER COMMAND
set -euo pipefail
source=$1 command=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { cat "$folder/out" >&2; echo "demo test: $*" >&2; exit 1; }

# A tree in which installing and building are done already.
mkdir -p "$folder/scripts" "$folder/build/bin" "$folder/tools"
cp "$source/scripts/demo" "$source/scripts/lib.sh" "$folder/scripts/"
for tool in scripts/install-deps tools/cmake; do printf '#!/bin/sh\n' >"$folder/$tool"; chmod +x "$folder/$tool"; done
ln -s "$command" "$folder/build/bin/attune"

env -u ATTUNE_BUILD_DIR PATH="$folder/tools:$PATH" CUDA_VISIBLE_DEVICES=-1 "$folder/scripts/demo" >"$folder/out" 2>"$folder/err" ||
  { cat "$folder/err" >&2; fail "it failed"; }
best=$(sed -n 's/^best  *//p' "$folder/out" | head -n 1 | sed 's/  .*//')   # the config, then its times
ran=$(sed -n 's/^config  *//p' "$folder/out")
[ -n "$best" ] || fail "it names no best config"
[ "$ran" = "$best" ] || fail "the best is '$best', and it ran '$ran'"
grep -q "\"config\": \"$best\"" "$folder/build/demo/check.json" || fail "it checked another config than '$best'"
head -n 1 "$folder/build/demo/kernel.cu" | grep -qF "$best" || fail "it shows the kernel of another config than '$best'"
grep -q '^origin  *exact' "$folder/out" || fail "what it ran is not of this problem"

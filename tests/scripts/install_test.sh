#!/usr/bin/env bash
# What `cmake --install` puts somewhere else works there: the command, with the shipped presets, and libattune.so, which C programs find.
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

# A C project finds the library by CMake and by pkg-config, where the prefix was moved to: no path of the installation is written down.
mv "$prefix" "$folder/moved"
prefix=$folder/moved
library=$(find "$prefix" -name libattune.so)
mkdir "$folder/project"
cat >"$folder/project/caller.c" <<'C'
#include <attune.h>
#include <stdio.h>
int main(void) { return printf("%s\n", attune_version()) > 0 ? 0 : 1; }
C
cat >"$folder/project/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.22)
project(caller LANGUAGES C)
find_package(attune ${ATTUNE_WANTED} CONFIG REQUIRED)
add_executable(caller caller.c)
target_link_libraries(caller PRIVATE attune::attune)
CMAKE
version=$(run "$prefix/bin/attune" --version | grep -Eo '[0-9]+[.][0-9]+[.][0-9]+' | head -n 1)
find_attune() { cmake -S "$folder/project" -B "$folder/$1" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DATTUNE_WANTED="$1" >"$folder/log" 2>&1; }
{ find_attune "$version" && cmake --build "$folder/$version" >>"$folder/log" 2>&1; } ||
  { cat "$folder/log"; fail "find_package(attune $version) does not find what is installed"; }
[ "$(run "$folder/$version/caller")" = "$version" ] || fail "a program that found Attune by CMake does not run, or has another version"
if find_attune 99.0; then fail "find_package(attune 99.0) takes version $version"; fi

export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name attune.pc)")
[ "$(pkg-config --modversion attune)" = "$version" ] || fail "pkg-config does not find version $version"
# shellcheck disable=SC2046  # flags are words
cc "$folder/project/caller.c" $(pkg-config --cflags --libs attune) -o "$folder/caller" || fail "the flags of pkg-config do not build a C program"
[ "$(run LD_LIBRARY_PATH="$(dirname "$library")" "$folder/caller")" = "$version" ] || fail "a C program does not run with $library"

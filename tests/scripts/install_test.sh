#!/usr/bin/env bash
# What `cmake --install` puts somewhere else works there: the command, with the shipped presets, libattune.so, which C programs find, and the C++
# interface.
# usage: install_test.sh SOURCE_FOLDER BUILD_FOLDER
set -euo pipefail
source=$1 build=$2
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

# C programs load the library by the name of its interface, which minor versions keep.
readelf -d "$library" | grep -q 'SONAME.*\[libattune[.]so[.]0\]' || fail "libattune.so does not call itself libattune.so.0"

# examples/project finds both libraries by CMake, and C programs find theirs by pkg-config, where the prefix was moved to: no path of the
# installation is written down.
mv "$prefix" "$folder/moved"
prefix=$folder/moved
library=$(find "$prefix" -name libattune.so)
project=$folder/project
cp -R "$source/examples/project" "$project"
version=$(run "$prefix/bin/attune" --version | grep -Eo '[0-9]+[.][0-9]+[.][0-9]+' | head -n 1)
configure() { cmake -S "$project" -B "$folder/built" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" "$@" >"$folder/log" 2>&1; }
{ configure && cmake --build "$folder/built" >>"$folder/log" 2>&1; } ||
  { cat "$folder/log"; fail "find_package(attune) does not serve examples/project"; }
grep -q "Attune $version" <(run "$folder/built/caller") || fail "a C program that found Attune by CMake does not run, or has another version"
said=$(run "$folder/built/picks") || fail "a C++ program that found Attune by CMake does not run, or picks no preset: $said"
readelf -d "$folder/built/caller" | grep -q 'NEEDED.*\[libattune[.]so[.]0\]' || fail "a C program asks for another name than libattune.so.0"

# The version and the components that were asked for count, and C programs need nothing of the C++ interface.
expect_not_found() {
  printf 'cmake_minimum_required(VERSION 3.22)\nproject(asks LANGUAGES C)\n%s\nfind_package(attune %s CONFIG REQUIRED)\n' "$3" "$1" >"$folder/asks/CMakeLists.txt"
  if cmake -S "$folder/asks" -B "$folder/asks/built" -DCMAKE_PREFIX_PATH="$prefix" >"$folder/log" 2>&1; then fail "find_package(attune $1) finds it"; fi
  tr -s '\n ' ' ' <"$folder/log" | grep -q "$2" || { cat "$folder/log"; fail "find_package(attune $1) does not say: $2"; }
  rm -rf "$folder/asks/built"
}
mkdir "$folder/asks"
without_sqlite='set(CMAKE_DISABLE_FIND_PACKAGE_SQLite3 ON)'
expect_not_found 99.0 "version: $version" ""
expect_not_found "COMPONENTS python" "no component python" ""
expect_not_found "COMPONENTS runtime" "needs SQLite" "$without_sqlite"
printf 'cmake_minimum_required(VERSION 3.22)\nproject(asks LANGUAGES C)\n%s\nfind_package(attune CONFIG REQUIRED)\nget_target_property(path attune::attune LOCATION)\n' \
  "$without_sqlite" >"$folder/asks/CMakeLists.txt"
cmake -S "$folder/asks" -B "$folder/asks/built" -DCMAKE_PREFIX_PATH="$prefix" >"$folder/log" 2>&1 ||
  { cat "$folder/log"; fail "find_package(attune) of a C project needs SQLite"; }

# The component that archives for many machines hold: all but the C++ interface, which is missed by its name alone.
cmake --install "$build" --component attune --prefix "$folder/part" >"$folder/log" || { cat "$folder/log"; fail "cmake --install --component attune failed"; }
[ -f "$folder/part/bin/attune" ] && [ -e "$(find "$folder/part" -name libattune.so)" ] || fail "the component attune lacks the command or the library"
[ -z "$(find "$folder/part" -name '*.a')" ] && [ ! -e "$folder/part/include/attune" ] || fail "the component attune holds the C++ interface"
rm -rf "$folder/asks/built"
whole=$prefix prefix=$folder/part
expect_not_found "COMPONENTS runtime" "This installation has no attune::runtime" ""
printf 'cmake_minimum_required(VERSION 3.22)\nproject(asks LANGUAGES C)\nfind_package(attune CONFIG REQUIRED COMPONENTS attune)\n' >"$folder/asks/CMakeLists.txt"
cmake -S "$folder/asks" -B "$folder/asks/built" -DCMAKE_PREFIX_PATH="$prefix" >"$folder/log" 2>&1 || { cat "$folder/log"; fail "find_package(attune) finds no C library alone"; }
prefix=$whole

# The installed headers need no other file of Attune's, nor one of the libraries that Attune itself is built with.
headers=$(cd "$prefix/include/attune" && find . -name '*.h' | sed 's,^[.]/,,' | sort)
[ "$(wc -l <<<"$headers")" -ge 10 ] || fail "the headers of the C++ interface are not installed: $headers"
sed 's,.*,#include "&",' <<<"$headers" | c++ -std=c++20 -fsyntax-only -Wall -Werror -I "$prefix/include/attune" -x c++ - ||
  fail "the installed headers do not compile by themselves"
if grep -rlE '#include <(nlohmann|fmt|sqlite3|cuda|xxhash|nvrtc)' "$prefix/include"; then fail "an installed header includes another library's"; fi

export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name attune.pc)")
[ "$(pkg-config --modversion attune)" = "$version" ] || fail "pkg-config does not find version $version"
# shellcheck disable=SC2046  # flags are words
cc "$project/caller.c" $(pkg-config --cflags --libs attune) -o "$folder/caller" || fail "the flags of pkg-config do not build a C program"
grep -q "Attune $version" <(run LD_LIBRARY_PATH="$(dirname "$library")" "$folder/caller") || fail "a C program does not run with $library"

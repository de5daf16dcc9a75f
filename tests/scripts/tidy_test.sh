#!/usr/bin/env bash
# scripts/tidy looks at each changed file as it would be compiled by itself and without precompiled headers, also where a build compiles files
# together. clang-tidy is a stand-in that writes down what it is asked.
# usage: tidy_test.sh SOURCE_FOLDER
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "tidy test: $*" >&2; exit 1; }

mkdir -p "$folder/bin" "$folder/source/scripts" "$folder/build/Unity"
cat >"$folder/bin/clang-tidy-14" <<COMMANDS
#!/bin/sh
if [ "\$1" = --version ]; then echo "LLVM version 14.0.6"; exit; fi
for file; do :; done
echo "\$file" >>"$folder/asked"
COMMANDS
chmod +x "$folder/bin/clang-tidy-14"
cp "$1"/scripts/{tidy,lib.sh} "$folder/source/scripts/"
cd "$folder/source"
for file in alone first second unchanged; do echo "int $file;" >$file.cpp; done
git init -q .
commit() { git -c user.name=a -c user.email=a@b.c commit -q -m "$1"; }
git add . && commit first
for file in alone first second; do echo "int more;" >>$file.cpp; done
git add . && commit second

source=$(pwd -P)
together=$folder/build/Unity/unity_files_0_cxx.cxx
printf '#include "%s"\n' "$source/first.cpp" "$source/second.cpp" "$source/unchanged.cpp" >"$together"
cat >"$folder/build/compile_commands.json" <<COMMANDS
[{"directory": "$folder/build", "file": "$together", "command": "c++ -include /x/cmake_pch.hxx -fpch-preprocess -o f.o -c $together"},
 {"directory": "$folder/build", "file": "$source/alone.cpp", "command": "c++ -include /x/cmake_pch.hxx -o a.o -c $source/alone.cpp"}]
COMMANDS
PATH=$folder/bin:$PATH ATTUNE_BUILD_DIR=$folder/build scripts/tidy >"$folder/log" || { cat "$folder/log"; fail "it fails"; }
asked=$(sort "$folder/asked")
[ "$asked" = "$(printf '%s\n' "$source"/{alone,first,second}.cpp)" ] || fail "it looked at: $asked"
if grep -q pch "$folder/build/tidy/compile_commands.json"; then fail "files are read with precompiled headers"; fi
grep -q -- "-c $source/second.cpp" "$folder/build/tidy/compile_commands.json" || fail "a file is not read by itself"

#!/usr/bin/env bash
# Which CUDA toolkits scripts/install-deps takes: judged by their versions, not by their being there. Toolkits are made up here: headers
# that name a version, and a library that reports one.
set -uo pipefail
source_dir=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

# make_toolkit NAME HEADER_VERSION LIBRARY_MAJOR LIBRARY_MINOR
make_toolkit() {
  mkdir -p "$folder/$1/include" "$folder/$1/lib64"
  printf '#ifndef CUDA_H\n#define CUDA_VERSION %s\n#endif\n' "$2" >"$folder/$1/include/cuda.h"
  touch "$folder/$1/include/nvrtc.h"
  printf 'int nvrtcVersion(int* major, int* minor) { *major = %s; *minor = %s; return 0; }\n' "$3" "$4" |
    cc -x c -shared -fPIC -o "$folder/$1/lib64/libnvrtc.so.$3" -
}

# expect NAME STATUS TEXT: what --check-toolkit says of it
expect() {
  local said status
  said=$("$source_dir/scripts/install-deps" --check-toolkit "$folder/$1" 2>&1)
  status=$?
  if [ $status != "$2" ] || [[ $said != *"$3"* ]]; then
    echo "$1: expected status $2 and \"$3\", got status $status and \"$said\""
    failed=1
  fi
}

make_toolkit oldest 12040 12 4;    expect oldest 0 12.4
make_toolkit newer 13000 13 0;     expect newer 0 13.0
make_toolkit too_old 12030 12 3;   expect too_old 1 "headers are CUDA 12.3"
make_toolkit ancient 11080 12 9;   expect ancient 1 "headers are CUDA 11.8"
make_toolkit mixed 12060 12 0;     expect mixed 1 "NVRTC is 12.0"
make_toolkit no_header 12060 12 6; rm "$folder/no_header/include/cuda.h";          expect no_header 1 "no cuda.h"
make_toolkit no_nvrtc 12060 12 6;  rm "$folder/no_nvrtc/lib64/libnvrtc.so.12";     expect no_nvrtc 1 "no libnvrtc"
make_toolkit broken 12060 12 6;    echo x >"$folder/broken/lib64/libnvrtc.so.12";  expect broken 1 "does not load"
make_toolkit nameless "" 12 6;     expect nameless 1 "names no CUDA_VERSION"
expect missing 1 "no cuda.h"

# Without apt: a folder of programs in which there is none, and a compiler that finds what is not to be missing.
mkdir "$folder/bin"
for program in bash sh dirname tr sed mkdir rm cat printf uname readlink head git cmake python3; do
  ln -s "$(type -P $program)" "$folder/bin/$program"
done
cat >"$folder/bin/c++" <<'COMPILER'
#!/bin/sh
read -r line
case $line in $HIDDEN) exit 1 ;; esac
COMPILER
chmod +x "$folder/bin/c++"
# without_apt HIDDEN STATUS TEXT...: headers of this pattern are not there
without_apt() {
  local said status part
  said=$(HIDDEN=$1 PATH=$folder/bin CXX='' "$source_dir/scripts/install-deps" --build "$folder/build" 2>&1)
  status=$?
  for part in "${@:3}"; do
    [[ $said == *"$part"* ]] || { echo "without apt and $1: expected \"$part\", got \"$said\""; failed=1; }
  done
  [ $status = "$2" ] || { echo "without apt and $1: expected status $2, got $status and \"$said\""; failed=1; }
}
without_apt '*' 1 "no apt-get" "libsqlite3-dev (<sqlite3.h>)" "catch2 (<catch2/catch.hpp> or <catch2/catch_all.hpp>)" "ninja-build (ninja)"
ln -s "$(type -P true)" "$folder/bin/ninja"
without_apt '*fmt*' 1 "these are missing: libfmt-dev (<fmt/format.h>)."
CUDA_HOME=$folder/oldest without_apt none 0 "CUDA toolkit 12.4"
rm "$folder/bin/c++"
without_apt none 1 "g++ (c++)"

# A machine's part of a toolkit that serves several has a folder of its own; servers of aarch64 have another than boards.
make_target() {   # NAME TARGET
  make_toolkit "$1" 12060 12 6
  mkdir -p "$folder/$1/targets/$2"
  mv "$folder/$1/include" "$folder/$1/targets/$2/include"
  mv "$folder/$1/lib64" "$folder/$1/targets/$2/lib"
}
mkdir "$folder/uname"
printf '#!/bin/sh\necho "$MACHINE"\n' >"$folder/uname/uname"
chmod +x "$folder/uname/uname"
PATH=$folder/uname:$PATH
export MACHINE=aarch64
make_target server sbsa-linux;     expect server 0 12.6
make_target board aarch64-linux;   expect board 0 12.6
make_target desktop x86_64-linux;  expect desktop 1 "no cuda.h"
MACHINE=x86_64;                    expect desktop 0 12.6;  expect server 1 "no cuda.h"
exit $failed

#!/usr/bin/env bash
# What cpack packs works where it is unpacked: the archive, and where dpkg is, the Debian package. In each, the command runs, examples/project's C program finds
# the library, and the files are those that `cmake --install` installs. Nothing is installed on this machine.
# usage: packages_test.sh SOURCE_FOLDER BUILD_FOLDER
set -euo pipefail
source=$1 build=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "packages test: $*" >&2; exit 1; }
run() { env -i PATH="$PATH" HOME="$folder" CUDA_VISIBLE_DEVICES=-1 "$@"; }
files() { (cd "$1" && find . ! -type d | sort); }

cmake --install "$build" --prefix "$folder/installed" >"$folder/log" || { cat "$folder/log"; fail "cmake --install failed"; }
version=$(run "$folder/installed/bin/attune" --version | grep -Eo '[0-9]+[.][0-9]+[.][0-9]+' | head -n 1)
pack() { cpack -G "$1" --config "$build/CPackConfig.cmake" -B "$folder/$1" >"$folder/log" 2>&1 || { cat "$folder/log"; fail "cpack -G $1 failed"; }; }

# check PREFIX: as `cmake --install` has it, and a C program is built and runs with it
check() {
  local flags
  diff <(files "$folder/installed") <(files "$1") || fail "$1 does not hold what is installed"
  [[ $(run "$1/bin/attune" --version) = *"$version"* ]] || fail "the command of $1 does not run"
  flags=$(PKG_CONFIG_PATH=$(dirname "$(find "$1" -name attune.pc)") pkg-config --cflags --libs attune) || fail "pkg-config does not find attune in $1"
  # shellcheck disable=SC2086  # flags are words
  cc "$source/examples/project/caller.c" $flags -o "$folder/caller" || fail "a C program does not build with $1"
  grep -q "Attune $version" <(run LD_LIBRARY_PATH="$(dirname "$(find "$1" -name libattune.so)")" "$folder/caller") || fail "a C program does not run with $1"
}

pack TGZ
archive=$(echo "$folder"/TGZ/*.tar.gz)
[[ $archive = */attune-$version-Linux-*.tar.gz ]] || fail "the archive is called $archive"
mkdir "$folder/archive"
tar -xzf "$archive" -C "$folder/archive" --strip-components=1
check "$folder/archive"

command -v dpkg-deb >/dev/null || exit 0
pack DEB
package=$(echo "$folder"/DEB/*.deb)
field() { dpkg-deb -f "$package" "$1"; }
[ "$(field Package) $(field Version) $(field Architecture)" = "attune $version $(dpkg --print-architecture)" ] || fail "the package is $(field Package) $(field Version) of $(field Architecture)"
[[ $(field Depends) = *libsqlite3-0* ]] || fail "the package depends on $(field Depends): SQLite is missing"
[ -n "$(field Maintainer)" ] && [[ $(field Description) = *FlashAttention* ]] || fail "the package does not say what it is, and whose"
grep -q ldconfig <(dpkg-deb --ctrl-tarfile "$package" | tar -xO) || fail "installing the package does not tell the loader"
dpkg-deb -x "$package" "$folder/deb"
check "$folder/deb/usr"

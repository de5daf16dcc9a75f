#!/usr/bin/env bash
# scripts/release refuses what is no release before it builds anything, and its conda recipe has a value for each of its blanks.
# usage: release_test.sh SOURCE_FOLDER
set -euo pipefail
source=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "release test: $*" >&2; exit 1; }

mkdir -p "$folder/project/scripts" "$folder/full"
touch "$folder/full/file"
cp "$source/scripts/release" "$source/scripts/lib.sh" "$folder/project/scripts/"
cp "$source/CMakeLists.txt" "$folder/project/"
git() { command git -C "$folder/project" -c user.name=test -c user.email=test@attune.invalid "$@"; }
git init --quiet
git add .
git commit --quiet -m "a version"
version=$(sed -nE 's/^project\(attune VERSION ([0-9.]+).*/\1/p' "$source/CMakeLists.txt")
git tag "v$version"
git tag v99.0.0

# expect TEXT ARGUMENT...
expect() {
  local text=$1 said
  shift
  if said=$(ATTUNE_BUILD_DIR=$folder/build "$folder/project/scripts/release" "$@" 2>&1); then fail "release $* is taken"; fi
  [[ $said = *"$text"* ]] || fail "release $* says: $said"
}
expect "usage: scripts/release TAG FOLDER" v1.0.0
expect "there is no tag v1.0.0" v1.0.0 "$folder/new"
expect "v99.0.0 has version $version: its tag would be v$version" v99.0.0 "$folder/new"
expect "$folder/full is not empty" "v$version" "$folder/full"
[ ! -e "$folder/new" ] && [ ! -e "$folder/build" ] || fail "a release that is refused leaves files"

for blank in $(grep -o '@[A-Z_0-9]*@' "$source/scripts/conda/recipe.yaml.in" | sort -u); do
  grep -q "s|$blank|" "$source/scripts/release" || fail "nothing fills in $blank of the recipe"
done

#!/usr/bin/env bash
# scripts/docs-site builds the site, whose pages need no network, and refuses a dead link and a folder of somebody else's. Skipped (77) where MkDocs
# is not installed and PyPI, which has it, cannot be reached.
# usage: docs_site_test.sh SOURCE_FOLDER BUILD_FOLDER
set -euo pipefail
source=$1
export ATTUNE_BUILD_DIR=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "docs-site test: $*" >&2; exit 1; }

if ! "$source/scripts/docs-site" "$folder/site" >"$folder/log" 2>&1; then
  if grep -q 'is there a network' "$folder/log"; then echo "skipped: $(tail -n 1 "$folder/log")"; exit 77; fi
  cat "$folder/log"
  fail "the site is not built"
fi
for page in index docs/install docs/kernels examples/ladder templates/index; do
  grep -q '<h1 id=' "$folder/site/$page.html" || fail "$page.html has no heading"
done
if command -v node >/dev/null; then
  node "$source/tests/scripts/docs_site_search.js" "$folder/site" || fail "the search does not work without a server"
else
  echo "without node the site's search was not run"
fi
"$source/scripts/docs-site" "$folder/site" >/dev/null || fail "the site is not built again over its own pages"

mkdir "$folder/mine"
touch "$folder/mine/thesis.txt"
if "$source/scripts/docs-site" "$folder/mine" 2>"$folder/log"; then fail "a folder with other files is taken"; fi
[ -e "$folder/mine/thesis.txt" ] || fail "a file of somebody else's is gone"

copy=$folder/copy
mkdir "$copy"
(cd "$source" && git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$copy")
git -C "$copy" init -q
echo 'See [nothing](nowhere.md) and [a heading](install.md#of-nothing).' >>"$copy/docs/c.md"
if "$copy/scripts/docs-site" "$folder/broken" >"$folder/log" 2>&1; then fail "a dead link is taken"; fi
grep -q nowhere.md "$folder/log" && grep -q 'of-nothing' "$folder/log" || { cat "$folder/log"; fail "a dead link is not named"; }
[ ! -e "$folder/broken" ] || fail "a site with a dead link was left"

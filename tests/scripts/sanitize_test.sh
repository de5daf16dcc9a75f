#!/usr/bin/env bash
# The cases of scripts/sanitize-gpu: each config fits its problem, which the script itself would only pass over.
# usage: sanitize_test.sh SOURCE_FOLDER ATTUNE
set -euo pipefail
source=$1 attune=$2
ATTUNE_CACHE_DIR=$(mktemp -d)
export ATTUNE_CACHE_DIR
trap 'rm -rf "$ATTUNE_CACHE_DIR"' EXIT
count=0
while IFS='|' read -r problem config; do
  "$attune" show plan --target h200 --problem "$problem" --config "$config" > /dev/null
  count=$((count + 1))
done < <("$source/scripts/sanitize-gpu" --list)
[ "$count" -gt 40 ] || { echo "only $count cases were listed" >&2; exit 1; }
echo "$count cases fit"

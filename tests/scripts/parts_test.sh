#!/usr/bin/env bash
# The parts of a test program's cases are all of them, each once; what is no part is refused.
# usage: parts_test.sh TEST_PROGRAM
set -euo pipefail
program=$1
list=--list-test-names-only
"$program" --help | grep -e "$list" >/dev/null || list="--list-tests --verbosity quiet"   # of Catch2 3
# Catch2 2 ends a list with the number of its cases as exit status.
cases() { { "$program" "[nogpu]" $list "$@" || true; } | grep -v "^attune-tests: " | sort; }
whole=$(cases)
parts=$(for part in 1/3 2/3 3/3; do cases --part $part; done | sort)
[ "$(wc -l <<<"$whole")" -gt 3 ] || { echo "too few cases to share out: $whole"; exit 1; }
[ "$whole" = "$parts" ] || { diff <(echo "$whole") <(echo "$parts"); exit 1; }
for wrong in 0/3 4/3 1 x ""; do
  if "$program" "[nogpu]" --part "$wrong" >/dev/null 2>&1; then echo "--part '$wrong' was taken"; exit 1; fi
done
if "$program" --part 1/2 >/dev/null 2>&1; then echo "--part was taken without a filter"; exit 1; fi

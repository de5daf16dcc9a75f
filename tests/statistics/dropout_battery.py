#!/usr/bin/env python3
"""Dropout's random bytes before the battery of dieharder, in five orders. usage: dropout_battery.py DROPOUT_STREAM [ORDER...]

Exit status 77 without dieharder. A test fails if its p value lies within 1e-6 of 0 or 1, and is weak if it lies within 0.005, as one in a hundred does by
chance: it is repeated with another seed, and must not be weak three times. Where a test has several p values, both bounds are shared out among them."""

import re
import shutil
import subprocess
import sys

ORDERS = ("rows", "columns", "heads", "offsets", "seeds")
# (test, sizes of its tuples). Without the sums of Diehard, which that program's authors say not to use, and the lagged ones, which take 200 GB.
TESTS = [(number, None) for number in (*range(14), 15, 16, 17, 100, 101)] + [(102, n) for n in (3, 8, 16)] + [(200, n) for n in (1, 2, 4, 8, 12)]
TESTS += [(201, n) for n in (2, 3, 5)] + [(202, n) for n in (2, 3, 5)] + [(number, None) for number in (204, 205, 206, 207, 208, 209)]
FAILED, WEAK, TRIES = 1e-6, 0.005, 3


def p_values(stream, order, seed, test, size):
    """Those of one test, whose lines are 'name|ntup|tsamples|psamples|p-value|assessment'."""
    command = ["dieharder", "-g", "200", "-d", str(test)] + (["-n", str(size)] if size else [])
    with subprocess.Popen([stream, order, str(seed)], stdout=subprocess.PIPE) as bytes_of:
        done = subprocess.run(command, stdin=bytes_of.stdout, capture_output=True, text=True)
        bytes_of.stdout.close()
        bytes_of.kill()
    values = [float(p) for p in re.findall(r"\|\s*\d+\|\s*\d+\|\s*\d+\|([0-9.]+)\|", done.stdout)]
    if done.returncode != 0 or not values:
        sys.exit(f"dieharder -d {test} ended with {done.returncode} and no p value: {done.stdout}{done.stderr}")
    return values


def distance(p):
    return min(p, 1 - p)


def verdict(stream, order, test, size):
    """'' or what is wrong."""
    for seed in range(1, TRIES + 1):
        values = p_values(stream, order, seed, test, size)
        worst = min(values, key=distance)
        if distance(worst) * len(values) < FAILED:
            return f"p = {worst} with seed {seed}"
        if distance(worst) * len(values) >= WEAK:
            return ""
    return f"weak with {TRIES} seeds, lastly p = {worst}"


def main():
    if shutil.which("dieharder") is None:
        print("dieharder is missing (apt-get install dieharder): nothing was tested")
        return 77
    stream, orders = sys.argv[1], sys.argv[2:] or ORDERS
    wrong = 0
    for order in orders:
        for test, size in TESTS:
            fault = verdict(stream, order, test, size)
            wrong += fault != ""
            print(f"{order}: dieharder -d {test}{f' -n {size}' if size else ''}: {fault or 'ok'}", flush=True)
    print(f"{len(orders) * len(TESTS) - wrong} of {len(orders) * len(TESTS)} tests passed")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Two builds of the command say the same, byte for byte, of the problems of scripts/shapes: the sources and plans of their kernels, why the config is picked,
and, of a few, the whole search space and an exported folder. A build for another machine is run by an emulator such as qemu-aarch64.
usage: same_sources_test.py SOURCE_FOLDER ATTUNE OTHER_ATTUNE [WORD...]      the WORDs stand before the second one's command line"""
import concurrent.futures
import filecmp
import json
import os
import pathlib
import subprocess
import sys
import tempfile

root, ours, *other = sys.argv[1:]
ours = os.path.abspath(ours)
theirs = [*other[1:], os.path.abspath(other[0])]
TARGETS = ["h200", "a100", "rtx4090"]


def said(command, arguments, home):
    environment = {"PATH": os.environ["PATH"], "HOME": home, "CUDA_VISIBLE_DEVICES": "-1", "QEMU_LD_PREFIX": os.environ.get("QEMU_LD_PREFIX", "")}
    ended = subprocess.run([*command, *arguments], env=environment, cwd=home, capture_output=True)
    return ended.returncode, ended.stdout, ended.stderr


def difference(arguments, home):
    """A sentence, or None. That both refuse a problem is the same, too."""
    here, there = said([ours], arguments, home), said(theirs, arguments, home)
    if here[0] not in (0, 1, 2) or here != there:
        return f"attune {' '.join(arguments)}: {there[0]} instead of {here[0]}, {len(there[1])} bytes instead of {len(here[1])} {there[2].decode(errors='replace')[:300]}"
    return None


def folders_differ(compared):
    if compared.left_only or compared.right_only or compared.funny_files:
        return True
    equal, different, failed = filecmp.cmpfiles(compared.left, compared.right, compared.common_files, shallow=False)
    return bool(different or failed) or any(folders_differ(each) for each in compared.subdirs.values())


problems = []
for name in ["presets", "features", "grid", "backward"]:
    problems += [problem for problem in json.loads(pathlib.Path(root, "scripts/shapes", f"{name}.json").read_text()) if problem not in problems]
assert len(problems) > 50 and all(isinstance(problem, str) for problem in problems), problems[:3]
questions = []
for number, problem in enumerate(problems):
    target = TARGETS[number % len(TARGETS)]   # of each problem one, of each target many
    questions += [["show", what, "--problem", problem, "--target", target] for what in ("source", "plan")]
    questions.append(["explain", "--problem", problem, "--target", target])
questions += [["show", "space", "--limit", "0", "--problem", problem, "--target", "h200"] for problem in problems[::40]]

with tempfile.TemporaryDirectory() as home:
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = [complaint for complaint in pool.map(lambda question: difference(question, home), questions) if complaint]
    exported = problems[::30]
    for number, problem in enumerate(exported):
        folders = [os.path.join(home, f"{side}{number}/attention") for side in ("ours", "theirs")]
        for command, folder in zip(([ours], theirs), folders):
            os.makedirs(os.path.dirname(folder))
            status, _, error = said(command, ["export", "--problem", problem, "--target", "h200", "--output", folder], home)
            if status != 0:
                complaints.append(f"export of {problem}: {error.decode(errors='replace')}")
        if all(map(os.path.isdir, folders)) and folders_differ(filecmp.dircmp(*folders)):
            complaints.append(f"export of {problem}: the folders differ")
for complaint in complaints[:20]:
    print(complaint)
print(f"{len(questions)} answers and {len(exported)} exports of {len(problems)} problems compared, {len(complaints)} differ")
sys.exit(bool(complaints))

#!/usr/bin/env python3
"""scripts/same-machine-code with programs that print what they are told to: which rows its list carries over, and that --apply does.
usage: same_machine_code_test.py SOURCE_FOLDER"""
import json
import pathlib
import stat
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(sys.argv[1]) / "scripts/same-machine-code"
PROGRAM = """#!/usr/bin/env python3
import json, sys
words = sys.argv[1:]
if words[0] == "devices":
    print(json.dumps({{"targets": [{{"name": "NVIDIA H200", "target": "h200"}}]}}))
    sys.exit()
config = words[words.index("--config") + 1]
plan = json.load(open({plans!r}))[config]
if words[1] == "plan":
    document = {{"launches": [{{"source_hash": hash, "arch": "sm_90a"}} for hash, _ in plan["launches"]]}}
    if "hash" in plan:
        document["source_hash"] = plan["hash"]
    print(json.dumps(document))
else:
    print(plan["launches"][int(words[words.index("--launch") + 1]) - 1][1], end="")
"""
failures = []


def check(holds, what):
    if not holds:
        failures.append(what)


def source(hash, namespace, body):
    return f"// attune forward · source {hash}\n//\nnamespace attune_{namespace} {{\n{body}\n}}\n"


def launch(hash, body="int x;"):
    return [hash, source(hash, hash, body)]


a, b, c, d = (letter * 16 for letter in "abcd")
# One launch, known by its own hash; several, which the older build does not sum up; a kernel that is another one now; a row of neither.
old = {
    "one": {"launches": [launch(a)]},
    "two": {"launches": [launch(a), launch(b, "int y;")]},
    "another": {"launches": [launch(c, "int before;")]},
    "elsewhere": {"launches": [launch(a)]},
    "same": {"launches": [launch(d)]},
}
new = {
    "one": {"hash": "1" * 16, "launches": [launch("1" * 16)]},
    "two": {"hash": "2" * 16, "launches": [launch("1" * 16), launch("3" * 16, "int y;")]},
    "another": {"hash": "4" * 16, "launches": [launch("4" * 16, "int now;")]},
    "elsewhere": {"hash": "1" * 16, "launches": [launch("1" * 16)]},
    # Known by its tokens, whatever its text.
    "same": {"hash": d, "launches": [launch(d, "int  x; // why")]},
}
TWO_OLD = "8fcd848b1ac4ecba"  # XXH3-64 of both hashes, each on a line

with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    programs = []
    for name, plans in (("old", old), ("new", new)):
        (folder / f"{name}.json").write_text(json.dumps(plans))
        program = folder / name
        program.write_text(PROGRAM.format(plans=str(folder / f"{name}.json")))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        programs.append(str(program))
    hashes = {"one": a, "two": TWO_OLD, "another": c, "elsewhere": "f" * 16, "same": d}
    rows = [{"problem": f"forward {config}", "config": config, "device": "NVIDIA H200", "source_hash": hash} for config, hash in hashes.items()]
    rows.append({"problem": "x", "config": "x", "device": "NVIDIA A100", "source_hash": a})
    export, listed = folder / "rows.json", folder / "hashes.json"
    export.write_text(json.dumps({"format": "attune measurements", "measurements": rows}, indent=2))

    def run(*arguments):
        return subprocess.run([str(SCRIPT), *map(str, arguments), "--cache", str(folder / "cache"), "--nvrtc", str(folder / "no-nvrtc.so")],
                              capture_output=True, text=True)

    done = run(*programs, "--rows", export, "--list", listed)
    said = done.stdout + done.stderr
    check(done.returncode == 1, "a launch that differs is a failure: " + said)
    check("forward another [another]: the launches differ, and NVRTC cannot be opened" in said, "the row that differs is named: " + said)
    check("4 of 5 launches of 5 rows have the same machine code" in said, "launches are counted: " + said)
    check("1 rows are of other kernels than the older build's" in said, "rows of another kernel are counted: " + said)
    document = json.loads(listed.read_text())
    check(document == {"format": "attune source hashes", "version": 1, "hashes": {a: "1" * 16, TWO_OLD: "2" * 16}}, f"the list: {document}")

    done = run("--apply", listed, export)
    check(done.returncode == 0 and "3 rows carried over" in done.stdout, "--apply: " + done.stdout + done.stderr)
    carried = [row["source_hash"] for row in json.loads(export.read_text())["measurements"]]
    check(carried == ["1" * 16, "2" * 16, c, "f" * 16, d, "1" * 16], f"rows carried over: {carried}")
    check("0 rows carried over" in run("--apply", listed, export).stdout, "a second time nothing is carried over")
    listed.write_text("{}")
    done = run("--apply", listed, export)
    check(done.returncode != 0 and "is no list of source hashes" in done.stderr, "another file is refused: " + done.stderr)
    check(run(programs[0]).returncode == 2, "one program is not enough")

for failure in failures:
    print(failure)
sys.exit(1 if failures else 0)

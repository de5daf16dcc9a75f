#!/usr/bin/env python3
"""The manifests of examples/kubernetes: Kubernetes' own schemas take them (by kubernetes-validate from PyPI, in a virtual environment of the build
folder), what they name is there, and the command of the Indexed Job's pods, run here on the emulator once for each index, tunes each problem of its
list in one shard. Skipped (77) where PyPI cannot be reached.
usage: manifests_test.py SOURCE_FOLDER BUILD_FOLDER ATTUNE"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

VERSIONS = ("1.33", "1.37")  # the first in which each index has failures of its own without a feature gate, and a later one
EMULATOR = " --device emulator --target h200 --max-candidates 1 --compile-workers 0"

source, build, attune = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
venv = build / "manifests-venv"
python = venv / "bin/python"


def ready():
    return python.exists() and subprocess.run([python, "-c", "import kubernetes_validate, yaml"], capture_output=True).returncode == 0


if not ready():
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--retries", "1", "--timeout", "20",
                    "kubernetes-validate>=1.33"], check=False)
    if not ready():
        print("skipped: pip could not install kubernetes-validate: is there a network?")
        sys.exit(77)
if pathlib.Path(sys.prefix).resolve() != venv.resolve():
    os.execv(python, [str(python), *sys.argv])

import yaml

complaints = []


def expect(condition, complaint):
    if not condition:
        complaints.append(complaint)


def validated(path, version):
    return subprocess.run([venv / "bin/kubernetes-validate", "--strict", "--quiet", "-k", version, str(path)], capture_output=True, text=True)


folder = source / "examples/kubernetes"
documents = {}
for path in sorted(folder.glob("*.yaml")):
    for version in VERSIONS:
        done = validated(path, version)
        expect(done.returncode == 0, f"{path.name} is no manifest of Kubernetes {version}: {done.stdout}{done.stderr}")
    for document in yaml.safe_load_all(path.read_text()):
        documents[(document["kind"], document["metadata"]["name"])] = document
with tempfile.TemporaryDirectory() as wrong:
    path = pathlib.Path(wrong) / "tune.yaml"
    path.write_text((folder / "tune.yaml").read_text().replace("completions: 4", "completions: four"))
    expect(validated(path, VERSIONS[0]).returncode != 0, "a number of completions that is none is taken")

jobs = {name: document["spec"] for (kind, name), document in documents.items() if kind == "Job"}
expect(sorted(jobs) == ["attune-collect", "attune-tune"], f"the jobs are {sorted(jobs)}")
for name, job in jobs.items():
    pod = job["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    (container,) = pod["containers"]
    expect({mount["name"] for mount in container["volumeMounts"]} == set(volumes), f"{name}: mounts and volumes differ")
    for volume in volumes.values():
        named = volume["configMap"]["name"] if "configMap" in volume else volume["persistentVolumeClaim"]["claimName"]
        kind = "ConfigMap" if "configMap" in volume else "PersistentVolumeClaim"
        expect((kind, named) in documents, f"{name}: there is no {kind} {named}")

job = jobs["attune-tune"]
(container,) = job["template"]["spec"]["containers"]
(script,) = container["args"]
expect(job["completionMode"] == "Indexed", "the job is not indexed")
# A shell that stayed would not pass signals on.
expect(script.startswith("exec attune tune "), "the pod's shell does not become attune")
expect(re.findall(r"--shard auto/(\d+)", script) == [str(job["completions"])], "auto/N is not the number of completions")

with tempfile.TemporaryDirectory() as results:
    shapes = documents[("ConfigMap", "attune-shapes")]["data"]["shapes.csv"]
    (pathlib.Path(results) / "shapes.csv").write_text(shapes)
    environment = {**os.environ, "PATH": f"{attune.parent}:{os.environ['PATH']}", "ATTUNE_CACHE_DIR": f"{results}/cache"}
    problems = []
    here = script.replace("/shapes/", f"{results}/").replace("/results/", f"{results}/") + EMULATOR
    for index in range(job["completions"]):
        done = subprocess.run([*container["command"], here], env={**environment, "JOB_COMPLETION_INDEX": str(index)}, capture_output=True, text=True)
        expect(done.returncode == 0, f"index {index} ends with {done.returncode}: {done.stderr}")
        listed = subprocess.run([attune, "db", "list", "--json", "--database", f"{results}/shard-{index}.db"], capture_output=True, text=True)
        problems += {entry["problem"] for entry in json.loads(listed.stdout)["entries"]}
    expected = len(shapes.strip().splitlines()) - 1
    expect(len(problems) == len(set(problems)) == expected, f"{expected} problems were to be in one shard each, but the shards have {sorted(problems)}")
    (script,) = jobs["attune-collect"]["template"]["spec"]["containers"][0]["args"]
    here = script.replace("/shapes/", f"{results}/").replace("/results/", f"{results}/")
    done = subprocess.run([*container["command"], here], env=environment, capture_output=True, text=True)
    # What the emulator proves is not timed, and so not tuned.
    for words in (f"{expected} new, 0 known", f"0 failed, {expected} missing", "nothing is wrong"):
        expect(done.returncode == 1 and words in done.stdout, f"collecting ends with {done.returncode} and was to say \"{words}\": {done.stdout}{done.stderr}")

for complaint in complaints:
    print(f"manifests test: {complaint}", file=sys.stderr)
sys.exit(1 if complaints else 0)

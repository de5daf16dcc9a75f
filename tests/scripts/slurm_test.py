#!/usr/bin/env python3
"""examples/slurm/tune.sbatch as it stands, on a Slurm of one node that this test starts for itself: an array of four tasks on the emulator, of which
one is killed, one requeued while it runs and one told to end. All go on from their rows when they are requeued, every problem is in exactly one shard,
and collect.sbatch brings the shards together.
Skipped (77) where slurmctld, slurmd or munged are not installed (Debian: slurmctld slurmd slurm-client munge).
usage: slurm_test.py SOURCE_FOLDER ATTUNE"""
import getpass
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

SHAPES = """heads,seq,head-dim,causal
2,48,64,true
2,33,32,false
1,40,16,true
2,65,64,false
1,80,32,true
1,72,16,false
2,90,64,true
1,55,40,false
"""
TASKS = 4
ENDED = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL")
# On the emulator of an H200, since no GPU is there; four candidates take some seconds, so that a task can be met while it runs.
OPTIONS = ["--device", "emulator", "--target", "h200", "--max-candidates", "4", "--compile-workers", "0"]

source, attune = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])


def program(name):
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not found:
        print(f"skipped: {name} is not installed (Debian: apt-get install slurmctld slurmd slurm-client munge)")
        sys.exit(77)
    return found


programs = {name: program(name) for name in ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "scancel")}
folder = pathlib.Path(tempfile.mkdtemp(prefix="attune-slurm-"))
run = folder / "run"  # what the nodes of a cluster share
daemons = []


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def fail(complaint):
    print(f"slurm test: {complaint}", file=sys.stderr)
    for log in sorted([*folder.glob("*.log"), *run.glob("*.log")]):
        print(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)
    sys.exit(1)


def wait_for(what, condition, seconds=240):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    fail(f"waited in vain for {what}")


def call(*words, check=True):
    done = subprocess.run(words, cwd=run, env=environment, capture_output=True, text=True)
    if check and done.returncode != 0:
        fail(f"{' '.join(map(str, words))} ended with {done.returncode}: {done.stderr}")
    return done


def start(*words):
    log = open(folder / f"{pathlib.Path(words[0]).name}.log", "w")
    daemons.append(subprocess.Popen(words, env=environment, stdout=log, stderr=log, start_new_session=True))


def begin_cluster():
    host, user = socket.gethostname().split(".")[0], getpass.getuser()
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    munge = folder / "munge.socket"
    (folder / "slurm.conf").write_text(f"""ClusterName=attune
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={munge},cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs=32 RealMemory=1000 Gres=gpu:4 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
""")
    # Four GPUs that are none: the tasks ask for one each, and Slurm for a device file of each.
    devices = ("null", "zero", "full", "random")
    (folder / "gres.conf").write_text("".join(f"NodeName={host} Name=gpu File=/dev/{name}\n" for name in devices))
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
    start(programs["munged"], "--foreground", "--force", f"--key-file={folder}/munge.key", f"--socket={munge}", f"--pid-file={folder}/munged.pid",
          f"--log-file={folder}/munged-own.log", f"--seed-file={folder}/munged.seed")
    wait_for("munged", munge.exists, 20)
    start(programs["slurmctld"], "-D", "-i", "-f", str(folder / "slurm.conf"))
    start(programs["slurmd"], "-D", "-f", str(folder / "slurm.conf"))
    wait_for("an idle node", lambda: "State=IDLE" in call("scontrol", "show", "node", host, check=False).stdout, 40)


def state_of(task):
    shown = call("scontrol", "--oneliner", "show", "job", f"{job}_{task}", check=False).stdout
    return dict(word.split("=", 1) for word in shown.split() if "=" in word)


def rows_of(database):
    if not database.exists():
        return 0
    listed = call(attune, "db", "info", "--database", database, "--json", check=False)
    return json.loads(listed.stdout).get("rows", 0) if listed.returncode == 0 else 0


def process_of(task):
    """The command of a task: what its batch script became."""
    wanted = f"shard-{task}.db"
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        # Of this test alone: others may run beside it.
        if wanted.encode() in words and b"tune" in words and os.readlink(path.parent / "cwd") == str(run):
            return int(path.parent.name)
    return None


def end():
    for task in range(TASKS):
        process = process_of(task)
        if process:
            os.kill(process, signal.SIGKILL)
    for daemon in reversed(daemons):
        daemon.terminate()
    for daemon in daemons:
        try:
            daemon.wait(20)
        except subprocess.TimeoutExpired:
            daemon.kill()


environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "ATTUNE_CACHE_DIR": str(folder / "cache"),
               "PATH": f"{attune.parent}:{os.environ.get('PATH', '')}:/usr/sbin"}
run.mkdir()
try:
    begin_cluster()
    for name in ("tune.sbatch", "collect.sbatch"):
        shutil.copy(source / "examples/slurm" / name, run)
    (run / "shapes.csv").write_text(SHAPES)
    job = call("sbatch", "--parsable", "tune.sbatch", *OPTIONS).stdout.strip()

    # At once, while all of them run: a task's process dies, as of the kernel's OOM killer; a task is taken off its node, as by a preemption; and a task
    # is told to end, as by --signal=B:TERM: the batch script is Attune itself by then, which ends with its own status.
    running = {task: wait_for(f"task {task} to run", lambda: rows_of(run / f"shard-{task}.db") >= 1 and process_of(task)) for task in (1, 2, 3)}
    os.kill(running[1], signal.SIGKILL)
    call("scontrol", "requeue", f"{job}_2")
    call("scancel", "--batch", "--signal=TERM", f"{job}_3")
    kept = rows_of(run / "shard-1.db")
    for task, code in ((1, "0:9"), (3, "130:0")):
        state = wait_for(f"task {task} to end", lambda: (state := state_of(task)).get("JobState") in ENDED and state)
        if state["ExitCode"] != code:
            fail(f"task {task} was to end with {code}, and ended as {state['JobState']} with {state['ExitCode']}")
        call("scontrol", "requeue", f"{job}_{task}")

    states = wait_for("all tasks to end", lambda: (found := [state_of(task) for task in range(TASKS)])
                      and all(state.get("JobState") in ENDED for state in found) and found)
    for task, state in enumerate(states):
        if state["JobState"] != "COMPLETED" or state["ExitCode"] != "0:0":
            fail(f"task {task} ended as {state['JobState']} with {state['ExitCode']}")
        if int(state["Restarts"]) != (task != 0):
            fail(f"task {task} was started again {state['Restarts']} times")
    if rows_of(run / "shard-1.db") < kept:
        fail("the killed task lost rows")

    problems = []
    for task in range(TASKS):
        listed = json.loads(call(attune, "db", "list", "--database", run / f"shard-{task}.db", "--json").stdout)
        problems += {entry["problem"] for entry in listed["entries"]}
    expected = len(SHAPES.splitlines()) - 1
    if len(problems) != expected or len(set(problems)) != expected:
        fail(f"{expected} problems were to be in one shard each, but the shards have {sorted(problems)}")

    for task in (1, 2, 3):
        reused = re.findall(r"(\d+) more from earlier runs", (run / f"attune-{job}_{task}.log").read_text())
        if not any(int(count) > 0 for count in reused):
            fail(f"task {task} tried everything anew")

    # What the emulator proves is not timed, and so not tuned: the job says so and fails.
    rows = sum(rows_of(run / f"shard-{task}.db") for task in range(TASKS))
    done = call("sbatch", "--wait", f"--dependency=afterany:{job}", "collect.sbatch", check=False)
    log = "".join(path.read_text() for path in run.glob("attune-collect-*.log"))
    for words in (f"{rows} new, 0 known", f"0 tuned, 0 stale, 0 failed, {expected} missing", f"{rows} examined", "nothing is wrong"):
        if words not in log or done.returncode != 1:
            fail(f"collect.sbatch ended with {done.returncode} and was to say \"{words}\": {log}")
    print(f"{TASKS} tasks, three of them requeued, tuned {expected} problems")
finally:
    end()
    shutil.rmtree(folder, ignore_errors=True)

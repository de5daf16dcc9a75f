"""Programs that fork while their threads call the library: children call it too, or are told why they cannot, and nobody waits for ever.

The GPU is a fake libcuda.so.1 that runs nothing and the compiler a fake NVRTC. Each program is a process of its own, for what it does first
is what a fork may catch it at.

usage: python_forks.py REPOSITORY LIBATTUNE ATTUNE FOLDER_OF_FAKES
"""

import ctypes
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

REPOSITORY, LIBRARY, ATTUNE, FAKES = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1), sys.argv.pop(1), pathlib.Path(sys.argv.pop(1))
OK, NO_DEVICE = 0, -4
PACKED = "forward bf16 b1 hq2 sq256 d64"
FORKED = "was forked from one that had started CUDA"
CHILD_SECONDS, PROGRAM_SECONDS = 20, 120


class Calls:
    """The library by ctypes, whose calls give Python's lock away."""

    def __init__(self):
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(REPOSITORY / "bindings" / "python"))
        sys.path.insert(0, str(REPOSITORY / "tests" / "runtime"))
        import fake_torch

        fake_torch.install()
        from attune_kernels import _library

        self.structs, self.library = _library, _library.load()
        self.memory = ctypes.create_string_buffer((1 << 24) + 256)
        self.messages = []
        self.heard = _library.LogCallback(lambda level, message, user: self.messages.append(message))

    def hear(self):
        """Messages of all levels come to Python code, which waits for Python's lock."""
        return self.library.attune_set_log_callback(self.heard, None, 0)

    def problem(self, length):
        return self.structs.Problem(struct_size=120, dtype=1, batch=1, heads_q=2, seq_q=length, head_dim=64)

    def tensors(self, length):
        place = (ctypes.addressof(self.memory) + 255) // 256 * 256
        return self.structs.operands({name: self.structs.Tensor(place, length * 128, 64, 128) for name in range(5)}), place

    def forward(self, length):
        tensors, place = self.tensors(length)
        return self.library.attune_forward(self.problem(length), tensors, len(tensors), place, 1 << 24, None)

    def workspace(self, length):
        return self.library.attune_workspace_bytes(self.problem(length), ctypes.byref(ctypes.c_size_t()))

    def describe(self, length):
        return self.library.attune_describe(self.problem(length), ctypes.create_string_buffer(4096), 4096, None)

    def digest(self):
        return self.library.attune_digest(0, ctypes.create_string_buffer(64), 64, None)

    def load(self, pack):
        return self.library.attune_load_pack(os.fsencode(pack))

    def error(self):
        return self.library.attune_last_error().decode()


def outcome_of_child(body):
    """What a forked child's body returns (a text; "" if all is well), or how the child ended."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(CHILD_SECONDS)  # ends a process that waits for ever
        try:
            text = body()
        except BaseException as error:
            text = repr(error)
        os.write(write, text.encode()[:4000])
        os._exit(0)
    os.close(write)
    _, status = os.waitpid(child, 0)
    with os.fdopen(read, "rb") as said:
        text = said.read().decode()
    if os.WIFSIGNALED(status):
        return "hangs" if os.WTERMSIG(status) == signal.SIGALRM else f"ended by signal {os.WTERMSIG(status)}"
    return text


def refusals(calls, statuses):
    """Of calls that a child made: what is neither success nor the sentence about forks."""
    return [f"{name}: {status} {text}" for name, status, text in statuses if status != OK and not (status == NO_DEVICE and FORKED in text)]


def program_of_threads(pack, seed):
    """Threads whose first calls are under way while the program forks."""
    calls, chance, stop, wrong = Calls(), random.Random(seed), threading.Event(), []
    calls.hear()

    def work(number):
        for length in range(64 + number, 4096, 40):
            if stop.is_set():
                return
            for name, status in [("load", calls.load(pack) if number == 0 else OK), ("forward", calls.forward(length)),
                                 ("describe", calls.describe(length)), ("digest", calls.digest())]:
                if status != OK:
                    wrong.append(f"{name} of a thread: {calls.error()}")
                    return

    def child(length):
        made = []
        for name, call in [("callback", calls.hear), ("load", lambda: calls.load(pack)), ("workspace", lambda: calls.workspace(length)),
                           ("forward", lambda: calls.forward(length)), ("digest", calls.digest),
                           ("no callback", lambda: calls.library.attune_set_log_callback(calls.structs.LogCallback(), None, 0))]:
            status = call()
            made.append((name, status, calls.error() if status else ""))
        return "; ".join(refusals(calls, made))

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    for fork in range(6):
        time.sleep(chance.random() * 0.008)
        text = outcome_of_child(lambda: child(5000 + fork))
        if text:
            wrong.append(f"child {fork}: {text}")
    stop.set()
    for thread in threads:
        thread.join()
    return wrong


def program_of_children(pack):
    """A child before the first call of its parent works; one after it is told."""
    calls, wrong = Calls(), []

    def served():
        return "" if calls.forward(256) == calls.forward(300) == calls.digest() == OK else calls.error()

    def told():
        if calls.load(pack) != OK:
            return f"a pack, which needs no GPU: {calls.error()}"
        statuses = [(call(length), calls.error()) for call in (calls.workspace, calls.forward, calls.describe) for length in (256, 300, 900)]
        return "" if all(status == NO_DEVICE and FORKED in text and "spawn" in text for status, text in statuses) else str(statuses)

    for name, prepare, body in [("a child of a program that called nothing", lambda: OK, served),
                                ("a child of one that loaded a pack", lambda: calls.load(pack), served),
                                ("a child of one that ran", lambda: calls.forward(256), told)]:
        if prepare() != OK:
            wrong.append(calls.error())
        text = outcome_of_child(body)
        if text:
            wrong.append(f"{name}: {text}")
    if calls.forward(300) != OK:
        wrong.append(f"the parent afterwards: {calls.error()}")
    return wrong


class Forks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = pathlib.Path(cls.folder.name)
        (cls.path / "shapes.csv").write_text(f"problem\n{PACKED}\n")
        cls.environment = {name: value for name, value in os.environ.items() if not name.startswith("ATTUNE_")} | {
            "ATTUNE_DATABASE": str(cls.path / "no.db"), "HOME": str(cls.path), "ATTUNE_NVRTC": str(FAKES / "libnvrtc.so.1"),
            "ATTUNE_CACHE_DIR": str(cls.path / "cache")}
        cls.pack = str(cls.path / "model.attune")
        subprocess.run([ATTUNE, "pack", "--target", "a100", "--shapes", cls.path / "shapes.csv", "--output", cls.pack], check=True,
                       capture_output=True, env=cls.environment)

    def run_program(self, name, *arguments, **variables):
        """What was wrong in a process of its own."""
        environment = self.environment | {"ATTUNE_LIBRARY": LIBRARY, "LD_LIBRARY_PATH": str(FAKES)} | variables
        command = [sys.executable, __file__, REPOSITORY, LIBRARY, ATTUNE, FAKES, "--program", name, self.pack, *map(str, arguments)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PROGRAM_SECONDS)
        except subprocess.TimeoutExpired:
            return ["the program hangs"]
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_threads_call_while_the_program_forks(self):
        for seed in range(10):
            with self.subTest(seed=seed):
                logged = self.path / f"called{seed}.csv"
                self.assertEqual(self.run_program("threads", seed, ATTUNE_LOG_PROBLEMS=str(logged)), [])
                lines = logged.read_text().splitlines()
                self.assertEqual(len(lines), len(set(lines)))

    def test_a_child_works_before_the_first_call_and_is_told_after_it(self):
        self.assertEqual(self.run_program("children"), [])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--program"]:
        name, pack, *arguments = sys.argv[2:]
        found = program_of_threads(pack, int(arguments[0])) if name == "threads" else program_of_children(pack)
        print(json.dumps(found))
        sys.stdout.flush()
        os._exit(0)
    result = unittest.main(exit=False).result
    failed = len({case.id().split(" ")[0] for case, _ in result.failures + result.errors})
    print(f"attune-tests: {result.testsRun - failed} passed, {failed} failed, 0 skipped")
    sys.exit(0 if result.wasSuccessful() else 1)

"""Packs as programs use them: made by `attune pack`, served by libattune.so to C and Python in processes of their own.

The GPU is a fake libcuda.so.1 that runs nothing and the compiler a fake NVRTC, so that both can be there or not.

usage: python_packs.py REPOSITORY LIBATTUNE ATTUNE FOLDER_OF_FAKES
"""

import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

if sys.argv[1] == "--child":
    REPOSITORY = pathlib.Path(sys.argv[2])
else:
    REPOSITORY, LIBRARY, ATTUNE, FAKES = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1), sys.argv.pop(1), pathlib.Path(sys.argv.pop(1))

OK, INVALID_ARGUMENT, UNSUPPORTED, NVRTC_UNAVAILABLE, IO = 0, -1, -2, -5, -8
PACKED, OTHER = "forward bf16 b1 hq2 sq256 d64", "forward bf16 b1 hq2 sq1024 d64"  # with configs of their own


def child():
    """Does what the arguments say, one after the other, and prints a line of JSON for each: status and text."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(REPOSITORY / "bindings" / "python"))
    import fake_torch

    fake_torch.install()
    import attune_kernels as attune
    from attune_kernels import _library

    library = _library.load()

    def checked(status):
        _library.check(status)

    def call(length, pass_):
        problem = _library.Problem(struct_size=120, dtype=1, batch=1, heads_q=2, seq_q=length, head_dim=64, pass_=pass_)
        memory = ctypes.create_string_buffer((1 << 22) + 256)
        place = (ctypes.addressof(memory) + 255) // 256 * 256
        operands = _library.operands({name: _library.Tensor(place, length * 128, 64, 128) for name in range(_library.D_LSE)})
        needed = ctypes.c_size_t()
        checked(library.attune_workspace_bytes(problem, ctypes.byref(needed)))
        function = library.attune_forward if pass_ == _library.FORWARD else library.attune_backward
        checked(function(problem, operands, len(operands), place, needed, None))
        text = ctypes.create_string_buffer(4096)
        checked(library.attune_describe(problem, text, 4096, None))
        return text.value.decode()

    def decode(mask):
        """What a call would launch for one query and 256 keys under a mask: "causal", "offset 300", "window 300,0"."""
        kind, _, numbers = mask.partition(" ")
        kinds = {"none": 0, "causal": 1, "offset": 3, "window": 4}
        problem = _library.Problem(struct_size=120, dtype=1, batch=1, heads_q=2, seq_q=1, seq_kv=256, head_dim=64, mask=kinds[kind])
        if kind == "offset":
            problem.mask_offset = int(numbers)
        if kind == "window":
            problem.window_left, problem.window_right = map(int, numbers.split(","))
        text = ctypes.create_string_buffer(4096)
        checked(library.attune_describe(problem, text, 4096, None))
        return text.value.decode()

    verbs = {
        "load": attune.load_pack,
        "decode": decode,
        "forward": lambda length: call(int(length), _library.FORWARD),
        "backward": lambda length: call(int(length), _library.BACKWARD),
        "digest": lambda device: attune.digest(None if device == "none" else int(device) if device.isdigit() else device),
        "setenv": lambda assignment: ctypes.CDLL(None).setenv(*(part.encode() for part in assignment.split("=", 1)), 1),
    }
    for verb, argument in zip(sys.argv[3::2], sys.argv[4::2]):
        begin = time.process_time()  # not what other processes take of the machine
        try:
            status, text = OK, verbs[verb](argument)
        except attune.AttuneError as error:
            status, text = error.status, str(error)
        except ValueError as error:
            status, text = "ValueError", str(error)
        print(json.dumps({"status": status, "text": text, "ms": 1e3 * (time.process_time() - begin)}))


def attune_version():
    return subprocess.run([ATTUNE, "--version"], check=True, capture_output=True, text=True).stdout.split()[-1]


class Packs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        cls.shapes = cls.path / "shapes.csv"
        cls.shapes.write_text(f"problem\n{PACKED}\nbackward bf16 b1 hq2 sq256 d64\n")
        cls.environment = {name: value for name, value in os.environ.items() if not name.startswith("ATTUNE_")}
        cls.environment.update(ATTUNE_DATABASE=str(cls.path / "no.db"), HOME=str(cls.path / "home"))
        (cls.path / "home").mkdir()
        cls.pack = cls.make("model.attune", "a100")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def make(cls, name, target, *more):
        environment = cls.environment | {"ATTUNE_NVRTC": str(FAKES / "libnvrtc.so.1"), "ATTUNE_CACHE_DIR": str(cls.path / "cache")}
        subprocess.run([ATTUNE, "pack", "--target", target, "--shapes", cls.shapes, "--output", cls.path / name, *more],
                       check=True, capture_output=True, env=environment)
        return str(cls.path / name)

    def run_child(self, *words, nvrtc=False, **variables):
        """A process with the fake GPU, and no NVRTC unless one is asked for."""
        environment = self.environment | {
            "ATTUNE_LIBRARY": LIBRARY,
            "LD_LIBRARY_PATH": str(FAKES),
            "ATTUNE_NVRTC": str(FAKES / "libnvrtc.so.1") if nvrtc else "/nowhere/libnvrtc.so",
            "ATTUNE_CACHE_DIR": str(self.path / ("used" if nvrtc else "unused")),
        } | variables
        done = subprocess.run([sys.executable, __file__, "--child", REPOSITORY, *words], capture_output=True, text=True, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def assert_served(self, answer):
        self.assertEqual(answer["status"], OK, answer)
        self.assertEqual(answer["text"].split("\n")[1], "pack")

    def test_calls_are_served_without_nvrtc_and_without_a_cache(self):
        for words, variables in (("load", self.pack), {}), ((), {"ATTUNE_PACK": self.pack}), ((), {"ATTUNE_PACK": f":{self.pack}::"}):
            for frozen in "", "1":
                with self.subTest(variables=variables, frozen=frozen):
                    answers = self.run_child(*words, "forward", "256", "backward", "256", ATTUNE_FROZEN=frozen, **variables)
                    for answer in answers[-2:]:
                        self.assert_served(answer)
        self.assertFalse((self.path / "unused").exists())
        self.assertFalse((self.path / "home" / ".cache").exists())

    def test_a_mask_that_hides_nothing_is_none(self):
        hidden = "forward bf16 b1 hq2 sq1 skv256 d64"
        masks = "none", "causal", "offset 255", "offset 999", "window 300,0", "window -1,-1"
        words = [word for mask in (*masks, "offset 254") for word in ("decode", mask)]
        # Rows of the database, as the command stores them of whatever mask it is asked for.
        row = {
            "problem": hidden + " causal", "config": "sm80 q16 kv32 w1 st2", "device": "NVIDIA A100-SXM4-80GB", "sm_count": 108, "status": "ok",
            "rigor": "measure", "median_us": 9.0, "source_hash": "0" * 16, "compiler": "x", "driver": "x", "protocol": "x",
            "attune_version": attune_version(), "created_at": "2026-01-01T00:00:00Z",
        }
        rows, database = self.path / "rows.json", str(self.path / "decode.db")
        rows.write_text(json.dumps({"format": "attune measurements", "version": 1, "measurements": [row]}))
        subprocess.run([ATTUNE, "db", "import", rows, "--database", database], check=True, capture_output=True, env=self.environment)
        *served, other = self.run_child(*words, nvrtc=True, ATTUNE_DATABASE=database)
        for mask, answer in zip(masks, served):
            with self.subTest(mask=mask):
                config, origin, detail, command = answer["text"].split("\n")
                self.assertEqual((config, origin), ("sm80 q16 kv32 w1 st2", "exact"))
                self.assertIn(f"{hidden}, 9.0 us", detail)
                self.assertIn("stale: its kernel was another one", detail)
                self.assertIn(f'"{hidden}"', command)
        self.assertNotEqual(other["text"].split("\n")[1], "exact")
        # And of packs.
        shapes = self.path / "decode.csv"
        shapes.write_text(f"problem\n{hidden} causal\n")
        environment = self.environment | {"ATTUNE_NVRTC": str(FAKES / "libnvrtc.so.1"), "ATTUNE_CACHE_DIR": str(self.path / "cache")}
        pack = str(self.path / "decode.attune")
        subprocess.run([ATTUNE, "pack", "--target", "a100", "--shapes", shapes, "--output", pack], check=True, capture_output=True, env=environment)
        for answer in self.run_child(*words[:-2], ATTUNE_PACK=pack, ATTUNE_FROZEN="1"):
            self.assert_served(answer)

    def test_the_first_call_takes_little(self):
        least = min(self.run_child("forward", "256", ATTUNE_PACK=self.pack)[0]["ms"] for _ in range(3))
        self.assertLess(least, 20)

    def test_what_no_pack_has_is_compiled_or_says_how_it_could_be(self):
        answers = self.run_child("forward", "256", "forward", "1024", ATTUNE_PACK=self.pack)
        self.assert_served(answers[0])
        self.assertEqual(answers[1]["status"], NVRTC_UNAVAILABLE)
        for words in f'no loaded pack has the kernels of "{OTHER}"', f'attune pack --target a100 --problem "{OTHER}" --output FILE', "NVRTC":
            self.assertIn(words, answers[1]["text"])
        answer = self.run_child("forward", "1024", nvrtc=True, ATTUNE_PACK=self.pack)[0]
        self.assertEqual(answer["status"], OK)
        self.assertEqual(answer["text"].split("\n")[1], "default")

    def test_frozen_calls_are_refused_with_the_problem_and_what_to_do(self):
        variables = {"ATTUNE_FROZEN": "1", "nvrtc": True, "ATTUNE_CACHE_DIR": str(self.path / "frozen")}
        answers = self.run_child("forward", "256", "forward", "1024", ATTUNE_PACK=self.pack, **variables)
        self.assert_served(answers[0])
        self.assertEqual(answers[1]["status"], UNSUPPORTED)
        self.assertIn(f'row of "{OTHER}"', answers[1]["text"])
        self.assertIn("attune pack --target a100", answers[1]["text"])
        self.assertEqual(self.run_child("forward", "256", **variables)[0]["status"], UNSUPPORTED)  # no pack at all
        self.assertFalse((self.path / "frozen").exists())
        answer = self.run_child("forward", "256", ATTUNE_PACK=self.pack, ATTUNE_FROZEN="yes")[0]
        self.assertEqual(answer["status"], INVALID_ARGUMENT)
        self.assertIn("ATTUNE_FROZEN is 'yes'", answer["text"])

    def test_a_pack_that_cannot_be_used_is_an_error_at_each_call(self):
        damaged = self.path / "damaged.attune"
        damaged.write_bytes(pathlib.Path(self.pack).read_bytes()[:20000])
        for name, status, words in [(str(damaged), INVALID_ARGUMENT, "is damaged"), ("/nowhere.attune", IO, "there is no pack"),
                                    (str(self.shapes), INVALID_ARGUMENT, "is no pack of kernels")]:
            loaded, called, *_ = self.run_child("load", name, "forward", "256", nvrtc=True)
            self.assertEqual((loaded["status"], called["status"]), (status, OK))
            self.assertIn(words, loaded["text"])
            for answer in self.run_child("forward", "256", "forward", "256", "load", self.pack, ATTUNE_PACK=f"{self.pack}:{name}", nvrtc=True):
                self.assertEqual(answer["status"], status)
                self.assertIn("ATTUNE_PACK names a pack that cannot be used", answer["text"])
                self.assertIn(words, answer["text"])
        # Once it is mended the next call is served.
        answers = self.run_child("forward", "256", "setenv", f"ATTUNE_PACK={self.pack}", "forward", "256", ATTUNE_PACK="/nowhere.attune")
        self.assertEqual(answers[0]["status"], IO)
        self.assert_served(answers[2])

    def test_a_pack_for_another_gpu_is_an_error(self):
        other = self.make("other.attune", "h200", "--force")
        answer = self.run_child("forward", "256", nvrtc=True, ATTUNE_PACK=other)[0]
        self.assertEqual(answer["status"], UNSUPPORTED)
        for words in "NVIDIA A100-SXM4-80GB with 108 SMs", f"{other} is for NVIDIA H200 with 132 SMs", "attune pack":
            self.assertIn(words, answer["text"])
        self.assert_served(self.run_child("forward", "256", ATTUNE_PACK=f"{other}:{self.pack}")[0])

    def test_a_digest_is_equal_where_picks_are(self):
        def digest(*words, **variables):
            answer = self.run_child(*words, "digest", "none", **variables)[-1]
            self.assertEqual(answer["status"], OK, answer)
            return answer["text"]

        packed = digest("load", self.pack)
        self.assertRegex(packed, "^[0-9a-f]{32}$")
        self.assertEqual(digest(ATTUNE_PACK=self.pack), packed)
        self.assertEqual(digest("load", self.pack, "forward", "256"), packed)
        self.assertNotEqual(digest(), packed)
        self.assertNotEqual(digest(ATTUNE_PACK=self.pack, ATTUNE_FROZEN="1"), packed)
        again = self.make("again.attune", "a100")  # with another date
        self.assertEqual(digest(ATTUNE_PACK=again), packed)
        one, other, named, *_ = self.run_child("digest", "0", "digest", "1", "digest", "cuda:1", "digest", "cpu")
        self.assertEqual(one["text"], other["text"])  # two GPUs of one model
        self.assertEqual(one["text"], named["text"])
        self.assertEqual(_[0]["status"], "ValueError")
        self.assertEqual(self.run_child("digest", "7")[0]["status"], -4)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child()
    else:
        unittest.main()

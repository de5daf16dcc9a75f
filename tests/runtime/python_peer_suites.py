"""scripts/peer-suites as far as it runs nothing: which cases of the peers' suites it takes, and which it says are not served.

usage: python_peer_suites.py REPOSITORY LIBATTUNE
"""

import argparse
import importlib.machinery
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

REPOSITORY, LIBRARY = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
os.environ.update(ATTUNE_LIBRARY=LIBRARY, CUDA_VISIBLE_DEVICES="")
sys.dont_write_bytecode = True
sys.path.insert(0, str(REPOSITORY / "bindings" / "python"))

import fake_torch  # noqa: E402

fake_torch.install()
from attune_kernels import _drop_in  # noqa: E402


def script(name):
    """A script without an ending, as a module."""
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(REPOSITORY / "scripts" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class PeerSuites(unittest.TestCase):
    """scripts/peer-suites as far as it runs nothing."""

    def setUp(self):
        self.script = script("peer-suites")

    def made_up(self):
        def marked(name, **axes):
            def function():
                pass

            function.__name__ = name
            function.pytestmark = [types.SimpleNamespace(name="parametrize", args=(names.replace("_and_", ","), values), kwargs={})
                                   for names, values in axes.items()]
            return function

        output = marked("test_output", dtype=["bfloat16", "float8_e4m3fn"], has_qv=[False, True], seqlen_q_and_seqlen_k=[(1, 2), (3, 4), (5, 6)], d=list(range(50)))
        other = marked("test_kvcache_output", d=[32, 64])
        single = marked("test_single")
        return {f"fa2/{function.__name__}": self.script.Test("fa2", function) for function in (output, other, single)}

    def test_cases_are_counted_and_chosen(self):
        tests = self.made_up()
        cases, probes, sizes, refused = self.script.choose(tests, None, (1, 10), 1)
        self.assertEqual(sizes, {"fa2/test_output": 600, "fa2/test_kvcache_output": 2, "fa2/test_single": 1})
        self.assertEqual(refused, {"fa2/test_output": {"FP8": 300, "qv": 150}, "fa2/test_kvcache_output": {self.script.CACHE: 2}})
        self.assertEqual(len(cases), 15 + 1)
        self.assertEqual(len(set(cases)), len(cases))
        for name, number in cases:
            parameters = tests[name].parameters(number)
            self.assertEqual((parameters.get("dtype", "bfloat16"), parameters.get("has_qv", False)), ("bfloat16", False))
        self.assertEqual(sorted(feature for *_, feature in probes), ["FP8"] * 2 + [self.script.CACHE] * 2 + ["qv"] * 2)
        self.assertEqual(self.script.choose(tests, None, (1, 10), 1)[0], cases)
        self.assertNotEqual(self.script.choose(tests, None, (1, 10), 2)[0], cases)
        every = self.script.choose(tests, None, (1, 1), 1)[0]
        self.assertEqual(len({str(tests[name].parameters(number)) for name, number in every if name == "fa2/test_output"}), 150)
        pattern = self.script.re.compile(r"seqlen_k=4,d=7\]")
        self.assertEqual(len(self.script.choose(tests, pattern, (1, 1), 1)[0]), 1)

    def test_what_is_not_served_is_known_by_name_or_parameter(self):
        for name, parameters, feature in [("test_flash_attn_output", {"dropout_p": 0.17, "softcap": 0.0, "alibi": False}, None),
                                          ("test_flash_attn_output", {"dropout_p": 0.0, "softcap": 50.0, "alibi": True}, None),
                                          ("test_flash_attn_output", {"dtype": "torch.float8_e4m3fn", "softcap": 15.0}, "FP8"),
                                          ("test_flash_attn_output", {"has_qv": True}, "qv"),
                                          ("test_flash_attn_kvcache", {}, self.script.CACHE),
                                          ("test_flash_attn_varlen_causal", {"paged_kv_block_size": None}, None),
                                          ("test_flash_attn_varlen_causal", {"paged_kv_block_size": 256}, self.script.CACHE),
                                          ("test_flash_attn_combine", {}, "combining results of parts of the keys"),
                                          ("test_flash_attn_varlen_combine_linearize", {}, None),
                                          ("test_flash_attn_varlen_paged_kv_num_splits", {}, "operators of flash_attn_2_cuda"),
                                          ("test_flash3_bw_compatibility", {}, "operators of torch.ops.flash_attn_3")]:
            self.assertEqual(self.script.not_served_by(name, parameters), feature)
        for feature in {name for _, name in self.script.BY_NAME} | {name for *_, name in self.script.BY_PARAMETER}:
            self.assertEqual(_drop_in.not_served(feature).feature, feature)

    def test_results_are_added_up(self):
        tests, lines = self.made_up(), []
        cases, probes, sizes, refused = self.script.choose(tests, None, (1, 10), 1)
        results = {case: {"case": case, "outcome": "passed", "feature": None, "left_out": [], "reason": ""} for case in cases[3:]}
        results[cases[3]].update(outcome="failed", reason="wrong")
        results[cases[4]].update(outcome="not served", feature="qv")
        results[cases[5]].update(left_out=["attention_chunk"])
        for probe in probes:
            results[probe[:2]] = {"case": probe[:2], "outcome": "not served", "feature": probe[2], "left_out": [], "reason": ""}
        results[probes[0][:2]].update(outcome="passed", feature=None)
        passed, ran, failures, unexpected = self.script.summarize(cases, probes, sizes, refused, results, lines.append)
        self.assertEqual((passed, ran, len(failures), len(unexpected)), (11, 12, 1, 1))
        text = "\n".join(lines)
        self.assertIn("11 of 12 cases pass; 150 of 603 are served", text)
        self.assertRegex(text, r"6 were run: 5 were refused by that name, 0 skipped by the suite, 1 neither")
        self.assertRegex(text, r"1  qv")
        self.assertIn("run in part: 1 cases", text)

    def test_signatures_are_compared(self):
        with tempfile.TemporaryDirectory() as folder:
            checkout = pathlib.Path(folder)
            for path, text in (("flash_attn", "def flash_attn_func(q, k, v, causal=True):\n    pass\n"),
                               ("hopper", "def flash_attn_combine(out_partial, lse_partial, out=None, out_dtype=None):\n    pass\n")):
                (checkout / path).mkdir()
                (checkout / path / "flash_attn_interface.py").write_text(text)
            fa2, fa3 = self.script.compare_signatures(checkout)
        self.assertRegex(fa2, r"fa2: 1 functions, 0 with .*; differing: flash_attn_func \(alibi_slopes, causal, ")
        self.assertEqual(fa3, "fa3: 1 functions, 1 with the checkout's parameters and defaults")

    def test_arguments_are_checked(self):
        with self.assertRaisesRegex(argparse.ArgumentTypeError, "'2/1' is no share"):
            self.script.parse_share("2/1")
        for arguments, words in ((["/nonexistent"], "/nonexistent is no folder"), ([str(REPOSITORY)], "has no tests/test_flash_attn.py"),
                                 (["x", "("], "FILTER is no regular expression"), (["x", "--processes", "0"], "it must be positive")):
            ended = subprocess.run([sys.executable, str(REPOSITORY / "scripts" / "peer-suites"), *arguments], capture_output=True, text=True)
            self.assertEqual(ended.returncode, 2, ended.stderr)
            self.assertIn(words, ended.stderr)


unittest.main()

"""`compare_with_torch.py` without a GPU and without PyTorch: files of shapes, kinds of data, verdicts and tables, peer libraries, bad arguments.

usage: python_comparison.py REPOSITORY LIBATTUNE
"""

import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

REPOSITORY, LIBRARY = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
os.environ.update(ATTUNE_LIBRARY=LIBRARY, CUDA_VISIBLE_DEVICES="")  # pointers here are made up: no GPU may see them
sys.dont_write_bytecode = True
sys.path.insert(0, str(REPOSITORY / "bindings" / "python"))

import fake_torch  # noqa: E402

fake_torch.install()
import compare_with_torch  # noqa: E402
from comparison import BadInput, inputs, peer_library, problems, references, stored, tables, timing  # noqa: E402
from comparison.sequence_lengths import distributed_lengths  # noqa: E402


class Shapes(unittest.TestCase):
    """Files as `attune tune --shapes` reads them: the cases are those of tests/tuner/sweep/shapes_file.cpp."""

    def read(self, name, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / name
            path.write_bytes(text.encode())
            return [problem.text() for problem in problems.read_shapes(path)]

    def test_json(self):
        texts = self.read("list.json", """[
            "forward fp16 b2 hq8 sq512 d64 causal",
            {"seq": 128, "head-dim": 72},
            {"batch": 4, "heads": 16, "kv_heads": 4, "seq": 1, "kv-seq": 4096, "head_dim": 128, "causal": true, "scale": 0.5,
             "layout": "bhsd", "dtype": "fp16", "pass": "forward"},
            {"seq": 100, "kv-seq": 300, "head-dim": 64, "mask": "causal-top-left"},
            {"seq": 100, "head-dim": 64, "mask": "causal@-3"},
            {"seq": 100, "head-dim": 64, "mask": "none", "causal": false, "scale": null},
            {"head-dim": 72, "seq": "128"},
            {"pass": "backward", "seq": 128, "head-dim": 72, "deterministic": true},
            {"pass": "backward", "seq": 128, "head-dim": 72, "deterministic": false},
            {"seq": 128, "head-dim": 72, "softcap": 30.0, "causal": true, "sink": true, "alibi": true, "dropout": 0.1},
            {"pass": "backward", "seq": 128, "head-dim": 72, "bias": "1hqk", "bias-fp32": true, "bias_gradient": true, "attention-mask": "b11k"}]""")
        self.assertEqual(texts, ["forward fp16 b2 hq8 sq512 d64 causal", "forward bf16 b1 hq1 sq128 d72",
                                 "forward fp16 b4 hq16 hkv4 sq1 skv4096 d128 causal scale0.5 bhsd",
                                 "forward bf16 b1 hq1 sq100 skv300 d64 causal-top-left", "forward bf16 b1 hq1 sq100 d64 causal@-3",
                                 "forward bf16 b1 hq1 sq100 d64", "backward bf16 b1 hq1 sq128 d72 deterministic",
                                 "backward bf16 b1 hq1 sq128 d72", "forward bf16 b1 hq1 sq128 d72 causal softcap30 alibi sink dropout0.1",
                                 "backward bf16 b1 hq1 sq128 d72 bias=1hqk bias-fp32 bias-gradient attention-mask=b11k"])

    def test_csv(self):
        texts = self.read("list.csv", "\ufeffheads,seq,head_dim,causal,kv-seq\r\n8, 512 ,64,true,\r\n\r\n,\"256\",128,,1024\r\n8,512,64,true,512")
        self.assertEqual(texts, ["forward bf16 b1 hq8 sq512 d64 causal", "forward bf16 b1 hq1 sq256 skv1024 d128"])
        self.assertEqual(self.read("list.csv", 'problem\n"forward fp16 b1 hq1 sq16 d64"\n'), ["forward fp16 b1 hq1 sq16 d64"])

    def test_mistakes_are_named_by_file_row_and_field(self):
        deep = "[" * 100_000
        for name, text, words in [
                ("list.json", "", "list.json is not JSON"), ("list.json", "[", "list.json is not JSON"), ("list.json", deep, "is not JSON"),
                ("list.json", "{}", "list.json: must be an array"), ("list.json", "[]", "list.json holds no problem"),
                ("list.json", "[5]", "list.json, row 1"),
                ("list.json", '["forward bf16 sq16 d64", "sideways"]', "list.json, row 2, field problem: .*sideways"),
                ("list.json", '[{"seq": 16, "head-dim": 64, "heds": 4}]', "list.json, row 1: .*'heds'.*kv-heads"),
                ("list.json", '[{"seq": 16, "head-dim": 64, "heads": 1.5}]', "row 1, field heads: '1.5' is not a whole number"),
                ("list.json", '[{"seq": 16, "head-dim": 64, "heads": [1]}]', "row 1, field heads: must not be an array"),
                ("list.json", '[{"seq": 16, "head-dim": 64, "heads": {}}]', "row 1, field heads: must not be an object"),
                ("list.json", '[{"seq": 16}]', "row 1, field head-dim: is missing"), ("list.json", '[{"head-dim": 64}]', "field seq: is missing"),
                ("list.json", '[{"seq": 16, "head-dim": 64}, {"seq": 16, "head-dim": 20}]', "list.json, row 2: .*head dim 20"),
                ("list.json", '[{"seq": 16, "head-dim": 64, "dtype": "fp32"}]', "field dtype: 'fp32' is none of: bf16, fp16"),
                ("list.json", '[{"seq": 16, "head-dim": 64, "mask": "causal@x"}]', "field mask: 'causal@x'"),
                ("list.json", '[{"seq": 16, "head-dim": 64, "causal": 1}]', "field causal: '1' is neither true"),
                ("list.json", '[{"seq": 16, "head-dim": 64, "causal": true, "mask": "none"}]', "field causal: .*contradicts.*'none'"),
                ("list.json", '[{"seq": 16, "head-dim": 64, "scale": "big"}]', "row 1: .*'scalebig' needs a number"),
                ("list.json", '[{"seq": 16, "head-dim": 64, "scale": -1}]', "row 1: .*scale -1.0: must be positive"),
                ("list.json", '[{"seq": 16, "head-dim": 64, "deterministic": true}]', "row 1: .*only a backward problem"),
                ("list.json", '[{"pass": "backward", "seq": 16, "head-dim": 64, "deterministic": 1}]', "field deterministic: '1'"),
                ("list.json", '[{"problem": "forward bf16 sq16 d64", "seq": 16}]', "field seq: .*whole problem"),
                ("list.json", '[{"head_dim": 64, "head-dim": 64, "seq": 16}]', "field head-dim: is there twice"),
                ("list.json", '["forward hq8 hkv3 sq16 d64"]', "8 query heads are not divisible by 3"),
                ("list.json", '["forward sq16 sq17 d64"]', "'sq17' sets what another word has set"),
                ("list.csv", "", "list.csv holds no problem"), ("list.csv", "seq,head-dim\n", "list.csv holds no problem"),
                ("list.csv", "seq,width\n16,64\n", "list.csv, header: .*'width'.*head-dim"),
                ("list.csv", "seq,head-dim,seq\n16,64,16\n", "header: .*seq is there twice"),
                ("list.csv", "seq,head-dim\n16,64\n\n16\n", "list.csv, row 2: 1 cells under a header of 2"),
                ("list.csv", "seq,head-dim\n16,64\n12x,64\n", "list.csv, row 2, field seq: '12x'"),
                ("list.csv", "seq,head-dim\n16,\n", "row 1, field head-dim: is missing"),
                ("list.csv", "seq,head-dim\n-16,64\n", "list.csv, row 1: .*-16"), ("list.csv", 'seq,head-dim\n"16,64\n', "list.csv, row 1"),
                ("list.txt", "forward bf16 sq16 d64\n", ".json or .csv")]:
            with self.subTest(text=text[:80]), self.assertRaisesRegex(BadInput, words):
                self.read(name, text)
        with self.assertRaisesRegex(BadInput, "/nonexistent.json cannot be read: No such file"):
            problems.read_shapes(pathlib.Path("/nonexistent.json"))

    def test_texts_are_canonical(self):
        for text in ("forward bf16 b1 hq8 hkv2 sq30 skv40 d64 causal", "forward fp16 b1 hq1 sq9 d8 scale0.3", "backward bf16 b1 hq1 sq7 d8 bhsd",
                     "forward bf16 b1 hq1 sq5 skv9 d64 causal-top-left", "forward bf16 b1 hq1 sq5 d64 causal@-2 align2", "forward bf16 b1 hq1 sq5 skv9 d64 window=3,open softcap20",
                     "forward bf16 b1 hq1 sq5 d64 softcap5 alibi bias=1hqk sink dropout0.3 bhsd"):
            self.assertEqual(problems.parse_problem(" ".join(reversed(text.split()))).text(), text)
        self.assertEqual(problems.parse_problem("sq4 causal@0 scale0.125 hkv1").text(), "forward bf16 b1 hq1 sq4 d64 causal")
        self.assertEqual(problems.parse_problem("sq4 skv9 causal@5").text(), "forward bf16 b1 hq1 sq4 skv9 d64 causal")

    def test_packed_sequences(self):
        text = "backward bf16 b12 hq4 hkv2 sq512 d64 causal sink dropout0.1 packed"
        problem = problems.parse_problem(text)
        self.assertEqual((problem.text(), problem.title()), (text, "bf16 12 log-uniform H4/2 T512 D64 causal sinks dropout 0.1"))
        lengths = [7, 13, 27, 54, 19, 108, 5, 152, 38, 3, 76, 10]  # as the library has them: tests/generator/problem/sequence_lengths.cpp
        self.assertEqual(problem.sequence_lengths(), list(zip(lengths, lengths)))
        self.assertEqual(problem.attended_pairs(), sum(n * (n + 1) // 2 for n in lengths))
        self.assertEqual(problem.flops(), 10 * 64 * 4 * problem.attended_pairs())
        top_left = problems.parse_problem("b3 sq30 skv60 causal-top-left packed lengths=equal")
        self.assertEqual(top_left.text(), "forward bf16 b3 hq1 sq30 skv60 d64 causal-top-left packed lengths=equal")
        self.assertEqual(top_left.alone(10, 20).text(), "forward bf16 b1 hq1 sq10 skv20 d64 causal-top-left")
        self.assertEqual(problems.parse_problem("b2 sq20 skv60 causal packed").alone(9, 11).text(), "forward bf16 b1 hq1 sq9 skv11 d64 causal")
        self.assertEqual(sum(distributed_lengths("one-long", 1000, 7)), 1000)
        for wrong, words in (("sq5 lengths=equal", "say packed, too"), ("sq5 packed lengths=some", "does not understand"), ("sq5 packed bias=bhqk", "no bias")):
            with self.assertRaisesRegex(BadInput, words):
                problems.parse_problem(wrong)

    def test_pairs_of_windows(self):
        for text in ("sq5 skv9 window=3,1", "sq9 skv5 window=2,0", "sq7 window=open,2", "sq7 window=0,open", "sq3 skv40 window=5,5"):
            problem = problems.parse_problem(text)
            (left, right), to_last = problem.window, problem.kv_seq - problem.seq
            pairs = sum((left < 0 or j - i - to_last >= -left) and (right < 0 or j - i - to_last <= right)
                        for i in range(problem.seq) for j in range(problem.kv_seq))
            self.assertEqual(problem.attended_pairs(), pairs, text)
        with self.assertRaisesRegex(BadInput, "beside a window"):
            problems.parse_problem("sq5 causal window=3,0")

    def test_every_file_of_the_repository_is_read(self):
        folders = [REPOSITORY / "scripts/shapes", REPOSITORY / "bindings/python/shapes"]
        files = [path for folder in folders for path in sorted(folder.glob("*.json")) if path.name != "backward_asked.json"]
        self.assertGreaterEqual(len(files), 8)
        for path in files:
            self.assertEqual([problem.text() for problem in problems.read_shapes(path)], json.loads(path.read_text()), path)

    def test_headline_shapes(self):
        for pass_ in ("forward", "backward"):
            shapes = problems.read_shapes(REPOSITORY / f"bindings/python/shapes/{pass_}_headline.json")
            self.assertEqual(len(shapes), 18)
            for shape in shapes:
                self.assertEqual((shape.pass_, shape.batch * shape.seq, shape.heads * shape.head_dim), (pass_, 16384, 2048))

    def test_backward_shapes_are_those_that_are_tuned(self):
        texts = json.loads((REPOSITORY / "bindings/python/shapes/backward.json").read_text())
        tuned = json.loads((REPOSITORY / "scripts/shapes/backward.json").read_text())
        self.assertEqual(texts, tuned[:len(texts)])  # then those that are tuned for presets alone
        self.assertEqual(len(texts), 30)
        rows = compare_with_torch.rows_of(problems.read_shapes(REPOSITORY / "bindings/python/shapes/backward.json"))
        self.assertEqual((len(rows), sum(row.with_deterministic for row in rows)), (22, 8))
        asked = compare_with_torch.read_asked(REPOSITORY / "bindings/python/shapes/backward_asked.json")
        ungrouped = {row.problem.head_dim: asked[row.problem] for row in rows if row.problem.heads == row.problem.kv_heads}
        self.assertEqual({dim for dim, ratio in ungrouped.items() if ratio == 1.0}, {64, 128, 256})
        self.assertEqual({dim for dim, ratio in ungrouped.items() if ratio == 1.2}, {16, 32, 72, 80, 96, 112, 160, 192})

    def test_rows_pair_a_problem_with_its_deterministic_twin(self):
        def rows(*texts):
            return [(row.problem.text(), row.with_deterministic) for row in compare_with_torch.rows_of(list(map(problems.parse_problem, texts)))]

        fast, twin = "backward bf16 b1 hq1 sq8 d64", "backward bf16 b1 hq1 sq8 d64 deterministic"
        self.assertEqual(rows(fast, "forward sq9 d64", twin), [(fast, True), ("forward bf16 b1 hq1 sq9 d64", False)])
        self.assertEqual(rows(twin), [(twin, False)])
        for text, words in (("sq8 d64 align2", "aligned"), ("sq8 d64 causal@3", "no other library")):
            with self.assertRaisesRegex(BadInput, words):
                rows(text)

    def test_bad_files_of_what_is_asked(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "asked.json"
            for text, words in [("[", "is not JSON"), ("[]", "must be an object"), ('{"sq8 d64": "fast"}', "asked for \"fast\""),
                                ('{"sq8 d64": -1}', "asked for -1"), ('{"sq8 d64": true}', "asked for true"), ('{"q8": 1}', "'q8'")]:
                path.write_text(text)
                with self.subTest(text=text), self.assertRaisesRegex(BadInput, words):
                    compare_with_torch.read_asked(path)


class KindsOfData(unittest.TestCase):
    def test_texts(self):
        self.assertEqual([data.text() for data in inputs.parse_data("normal:8, t3:4,near:-20,equal,normal:8.0")],
                         ["normal:8", "t3:4", "near:-20", "equal"])
        self.assertEqual(inputs.parse_data("suite"), list(inputs.SUITE))
        self.assertEqual(inputs.parse_data("sink:12,suite")[0].text(), "sink:12")
        self.assertEqual({data.kind for data in inputs.SUITE}, set(inputs.KINDS))
        for data in inputs.SUITE:
            self.assertEqual(inputs.parse_data(data.text()), [data])
            self.assertNotIn("{", data.meaning())
        self.assertEqual(compare_with_torch.numbers("1,8"), inputs.parse_data("normal:1,normal:8"))

    def test_mistakes(self):
        for text, words in [("loud:3", "there is no kind 'loud'; the kinds are normal, t3, sink, rare, near, leap, equal, dominant, and suite"),
                            ("", "there is no kind ''"), ("sink", "sink needs a number, such as sink:8; it means: key 0"),
                            ("sink:high", "sink needs a number"), ("normal:0", "normal needs a positive, finite number"),
                            ("leap:-3", "leap needs a positive"), ("t3:nan", "t3 needs a positive"), ("near:inf", "near needs a finite number"),
                            ("equal:1", "equal takes no number; write equal alone")]:
            with self.subTest(text=text), self.assertRaisesRegex(BadInput, words):
                inputs.parse_data(text)

    def test_bounds_are_those_of_the_library(self):
        header = (REPOSITORY / "generator/problem/element_type.h").read_text()
        for dtype in inputs.DTYPES:
            facts = re.search(r'\{\.name = "' + dtype + r'".*?\}', header, re.DOTALL).group()
            value = {field: float(number) for field, number in re.findall(r"\.(\w+) = ([0-9.e-]+)", facts)}
            unit, normal = 2 ** -(value["mantissa_bits"] + 1), 2 ** (1 - value["exponent_bias"])
            self.assertEqual(references.RELATIVE_BOUND[dtype], value["output_bound"])
            self.assertEqual(references.GRADIENT_RELATIVE_BOUND[dtype], value["gradient_bound"])
            self.assertEqual(references.UNIT_ROUNDOFF[dtype], unit)
            self.assertEqual(references.SMALLEST_STEP[dtype], unit * normal)

    def test_offsets_are_those_of_the_kernel_tests(self):
        def offsets(text, keys):
            (data,) = inputs.parse_data(text)
            return [data.offset_of_key(key, keys) for key in range(keys)]

        self.assertEqual(offsets("sink:12", 4), [12, 0, 0, 0])
        self.assertEqual(offsets("near:20", 5), [0, 5, 10, 15, 20])
        self.assertEqual(offsets("near:-20", 1), [0])
        self.assertEqual([key for key, above in enumerate(offsets("rare:8", 1600)) if above], [37, 848, 1159])
        self.assertEqual([(key, round(above, 4)) for key, above in enumerate(offsets("leap:20", 800)) if above], [(100, 13.8629)])
        self.assertEqual([(key, round(above, 4)) for key, above in enumerate(offsets("dominant:1", 800)) if above], [(400, 0.6931)])
        for text in ("normal:8", "t3:4", "equal"):
            self.assertEqual(set(offsets(text, 600)), {0})
        # tests/kernels/data_kinds.cpp has the same constants, and kinds, then one of its own.
        kernels = (REPOSITORY / "tests/kernels/data_kinds.cpp").read_text()
        for line in (f"kOffsetQuery = {inputs.OFFSET_QUERY:g};", f"kRarePeriod = {inputs.RARE_PERIOD};", "(37 + 311 * (key / kRarePeriod))",
                     "{" + ", ".join(f'"{kind}"' for kind in (*inputs.KINDS, "huge")) + "}"):
            self.assertIn(line, kernels)


class Comparison(unittest.TestCase):
    def row(self, asked=0, **times):
        contenders = {name: {"median_us": time, "tflops": 1e3 / time, "within": name != "fa3", "relative_error": 1e-3, "error_over_rule": 0.5}
                      for name, time in times.items()}
        return {"title": "a shape", "problem": "forward sq8 d64", "shape": {"pass_": "forward"}, "data": "normal:1",
                "meaning": inputs.UNIT_NORMAL.meaning(), "asked": asked, "config": "sm80", "origin": "exact", "contenders": contenders, "ratios": tables.ratios_of(contenders)}

    def test_verdicts_and_means(self):
        rows = [self.row(1.0, attune=100, fa2=110, cudnn=50), self.row(1.2, attune=100, fa2=110, deterministic=130),
                self.row(attune=1, cudnn=2)]
        self.assertEqual(rows[0]["ratios"], {"attune/fa2": 1.1, "attune/cudnn": 0.5, "attune/best": 0.5})
        self.assertEqual(tables.verdicts(rows[0]), [("attune/fa2", 1.1, 1.0)])
        self.assertEqual(tables.verdicts(rows[1]),
                         [("attune/fa2", 1.1, 1.2), ("deterministic/attune", 100 / 130, tables.ASKED_OF_DETERMINISTIC)])
        self.assertEqual(tables.verdicts(rows[2]), [])
        self.assertEqual(tables.verdicts(self.row(1.0, attune=100)), [("attune/fa2", None, 1.0)])
        lines = tables.summary(rows)
        self.assertEqual(lines[0], "attune/best: geometric mean 1.032 of 3, least 0.500")
        self.assertIn("attune/fa2: geometric mean 1.100 of 2, least 1.100", lines)
        self.assertIn("attune/cudnn: geometric mean 1.000 of 2, least 0.500", lines)
        self.assertIn("attune/fa2: 1 of 2 rows reach what is asked", lines)
        self.assertIn("deterministic/attune: 0 of 1 rows reach what is asked", lines)

    def test_the_table_in_markdown(self):
        first, second = self.row(attune=100, fa3=110, cudnn=50), self.row(attune=100, cudnn=150)
        first.update(stored={"table_over_stored": 1.034}, sm_clock_mhz={"median": 1755, "least": 1700, "most": 1800})
        second["contenders"]["fa3"] = {"error": "not built for this"}
        document = {"machine": {"gpu": "NVIDIA H200", "driver": "580.1", "cuda": "13.0", "torch": "2.11"}, "limits": {"power_watts": 700.0},
                    "protocol": "In turn.", "rows": [first, second, {**first, "data": "sink:12", "meaning": inputs.Data("sink", 12.0).meaning()}]}
        text = tables.as_markdown(document)
        self.assertTrue(text.startswith("GPU NVIDIA H200, driver 580.1, CUDA 13.0, PyTorch 2.11, SM clock 1700 to 1800 MHz while it was measured, power limit 700 W. "
                                        "In turn.\n"), text)
        for line in ("Forward, data normal:1: normal scores of standard deviation 1; TFLOP/s and ratios:",
                     "Forward, data sink:12: key 0, which kernels walk last, is 12 above the rest; TFLOP/s and ratios:",
                     "| shape | data | Attune | FlashAttention-3 | cuDNN | to FlashAttention-3 | to cuDNN | to the best | SM MHz | to stored |",
                     "| a shape | normal:1 | 10.0 | 9.1 | 20.0 | 1.10 | 0.50 | **0.50** | 1755 | +3.4 % |",
                     "| a shape | normal:1 | 10.0 | - | 6.7 | - | 1.50 | **1.50** | - | - |",
                     "- fa3: 1 of 1 outputs are beyond the bounds that Attune's are held to"):
            self.assertIn(line, text.splitlines())
        self.assertIn("| a shape | sink:12 | 10.0 | 9.1 | 20.0 | 1.10 | 0.50 | **0.50** | 1755 | +3.4 % |", text)
        self.assertNotIn("alone", text)
        self.assertRegex(tables.row_as_text({**first, "data": "sink:12"}, ["fa3"]), r"forward  a shape +sink:12 +10\.0 .* 1\.0e-03 +0\.50  ok")

    def test_ways_of_timing_stand_beside_each_other(self):
        row = self.row(attune=100)
        row["variants"] = {"alone": {"median_us": 100.0, "tflops": 10.0, "sm_clock_mhz": {"median": 1800}, "kilocycles": 180.0},
                           "sustained": {"median_us": 110.0, "tflops": 9.1}, "stored": {"median_us": 112.0, "tflops": 8.9}}
        lines = tables.differences_as_lines([row])
        self.assertIn("| alone | 100.0 | 10.0 | 1800 | - | 180 | +0.0 % | +12.0 % |", lines)
        self.assertIn("| sustained | 1 | -9.1 % (-9.1 % to -9.1 %) | +1.8 % (+1.8 % to +1.8 %) |", lines)

    def test_work_is_counted_exactly(self):
        for text in ("sq5 d8 causal", "sq3 skv7 d8 causal", "sq7 skv3 d8 causal", "sq7 skv3 d8 causal-top-left", "sq5 skv4 d8",
                     "sq6 skv9 d8 causal@4", "sq6 skv2 d8 causal@-3", "sq2 d8 causal@-9"):
            problem = problems.parse_problem(text)
            counted = sum(problem.mask_offset is None or j <= i + problem.mask_offset for i in range(problem.seq) for j in range(problem.kv_seq))
            self.assertEqual(problem.attended_pairs(), counted, text)

    def test_copies_are_made_as_the_tuner_makes_them(self):
        megabyte = [types.SimpleNamespace(numel=lambda: 1 << 19, element_size=lambda: 2)]
        self.assertEqual(timing.copies_for("flushed", megabyte, 60 << 20), 1)
        self.assertEqual(timing.copies_for("sustained", megabyte, 60 << 20), 121)
        self.assertEqual(timing.copies_for("sustained", 240 * megabyte, 60 << 20), 1)

    def test_peer_libraries_are_checked(self):
        with self.assertRaisesRegex(BadInput, "fa3=/nonexistent.so cannot be loaded"):
            peer_library.PeerLibrary("fa3", pathlib.Path("/nonexistent.so"))
        with self.assertRaisesRegex(BadInput, "there is no function fa3_args_size; see peer_library.h"):
            peer_library.PeerLibrary("fa3", pathlib.Path(LIBRARY))
        sizes = {"fa3_args_size": unittest.mock.Mock(return_value=424), "fa3_plan": unittest.mock.Mock(return_value=3)}
        with unittest.mock.patch.object(ctypes, "CDLL", lambda path: types.SimpleNamespace(**sizes)):
            with self.assertRaisesRegex(BadInput, "its peer_call has 424 bytes, this program's 440"):
                peer_library.PeerLibrary("fa3", pathlib.Path("libfa3.so"))
            sizes["fa3_args_size"].return_value = 440
            with self.assertRaisesRegex(BadInput, "there is no function fa3_fwd"):
                peer_library.PeerLibrary("fa3", pathlib.Path("libfa3.so"))
            sizes["fa3_fwd"] = unittest.mock.Mock(return_value=0)
            library = peer_library.PeerLibrary("fa3", pathlib.Path("libfa3.so"))
            library.call("fwd")
            with self.assertRaisesRegex(RuntimeError, r"fa3_plan does not serve this problem \(status 3\)"):
                library.call("plan")

    def test_stored_times_are_asked_of_the_command(self):
        problem = problems.parse_problem("forward bf16 b1 hq2 sq64 d64 causal")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "attune"

            def answer(document, status=0):
                path.write_text(f"#!/bin/sh\necho \"$@\" >{folder}/asked\ncat <<'end'\n{document}\nend\nexit {status}\n")
                path.chmod(0o700)
                return stored.Command(str(path), 1)

            pick = {"config": "sm80 a", "median_us": 12.5, "tflops": 3.0, "rigor": "measure", "database": "user", "created_at": "then"}
            command = answer(json.dumps({"candidates": [{**pick, "picked": True}]}))
            self.assertEqual(command.stored(problem, "sm80 a"), pick)
            self.assertEqual((pathlib.Path(folder) / "asked").read_text(),
                             "explain --problem forward bf16 b1 hq2 sq64 d64 causal --limit 1 --device cuda:1 --json\n")
            self.assertIsNone(command.stored(problem, "sm80 b"))
            untimed = {"config": "sm80 a", "status": "not_tried"}
            self.assertIsNone(answer(json.dumps({"candidates": [untimed]})).stored(problem, "sm80 a"))
            with self.assertRaisesRegex(BadInput, "attune explain: no such GPU"):
                answer('{"status": "error", "message": "no such GPU"}', 2).stored(problem, "sm80 a")
            with self.assertRaisesRegex(BadInput, "attune explain: it ended with status 3"):
                answer("", 3).stored(problem, "sm80 a")
            path.unlink()
            with self.assertRaisesRegex(BadInput, "cannot be run: No such file or directory; set ATTUNE_COMMAND"):
                stored.Command(str(path), 0).stored(problem, "sm80 a")

    def test_the_real_command_answers_so(self):
        command = stored.find_command()
        if command is None:
            self.skipTest("the command attune is not built")
        problem = problems.parse_problem("forward bf16 b1 hq2 sq64 d64 causal")
        with tempfile.TemporaryDirectory() as folder:
            nowhere = {"HOME": folder, "XDG_DATA_HOME": folder, "ATTUNE_DATABASE": "", "ATTUNE_SYSTEM_DATABASE": ""}
            asked = [command, "explain", "--problem", problem.text(), "--limit", "1", "--target", "h200", "--json"]
            document = json.loads(subprocess.run(asked, capture_output=True, text=True, env={**os.environ, **nowhere}).stdout)
        self.assertEqual((document["problem"], len(document["candidates"])), (problem.text(), 1))
        self.assertEqual(document["candidates"][0]["config"], document["config"])

    def ended(self, *arguments):
        script = REPOSITORY / "bindings/python/compare_with_torch.py"
        return subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True)

    def test_bad_arguments_end_with_status_2(self):
        for arguments, words in [(("--shapes", "/nonexistent.json"), "/nonexistent.json cannot be read"),
                                 (("--peer-library", "libfa3.so"), "is not NAME=PATH"), (("--peer-library", "cudnn=x.so"), "'cudnn' already"),
                                 (("--spread", "1,b"), "list of numbers"), (("--spread", "0"), "are positive"),
                                 (("--data", "normal:1,loud:3"), "there is no kind 'loud'; the kinds are normal, t3, sink,"),
                                 (("--pass", "backward", "--shapes", str(REPOSITORY / "bindings/python/shapes/forward_more.json")),
                                  "no problem of --pass backward")]:
            ended = self.ended(*arguments)
            self.assertEqual(ended.returncode, 2, arguments)
            self.assertIn(words, ended.stderr)


unittest.main()

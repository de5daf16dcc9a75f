#!/usr/bin/env python3
"""Times Attune beside PyTorch's attention (cuDNN and FlashAttention-2) and other libraries, in one process, launch by launch in turn.

    python3 compare_with_torch.py                                   # the headline shapes, forward
    python3 compare_with_torch.py --pass backward                   # gradients, on shapes of their own
    python3 compare_with_torch.py --shapes my.csv --json out.json --markdown out.md
    python3 compare_with_torch.py --peer-library fa3=/path/libfa3.so --data normal:1,normal:8,sink:12
    python3 compare_with_torch.py --why-stored-differs              # the table's way of timing beside the tuner's

Each problem: random q, k, v, in memory as the problem's layout says. Their scores are normal of standard deviation 1, or what --data says; a
row is measured for each kind of data. Every contender's output is compared with attention in double precision on a sample of rows (backward:
dQ, dK and dV of the first and the last key/value head), and by FlashAttention's rule: it errs at most twice as much as attention that is
written in PyTorch's operations in the same type. Then rounds of one launch of each, in random order; the L2 is flushed before each by reading a large
buffer, which also keeps the GPU busy while the host enqueues the launch, so that events around it see the kernel alone. --protocol
sustained times as `attune tune` does instead: a launch of the same kernel before each one that is timed. The GPU's clock is read meanwhile.

Forward: O and LSE. Backward: each of PyTorch's backends differentiates its own forward's output, again and again, a peer library Attune's.
Where a file holds a problem and the same one `deterministic`, they make one row.

A shapes file is what `attune tune --shapes` takes: JSON (an array of texts such as "forward bf16 b4 hq16 sq4096 d128 causal", or of objects)
or CSV with a header; tuner/sweep/shapes_file.h lists the fields. "causal" is aligned bottom right, "causal-top-left" as PyTorch's is_causal has it.

Packed sequences (the word packed) have the lengths of their distribution, those with which `attune tune` times them; they stand beside
FlashAttention-2's operator for such, and FlashAttention-3's, whose library --attention-3 names, as the wheel of xformers 0.0.34 holds one.

With dropout (the word dropout0.1) each drops elements of its own: Attune is held to attention that drops the same, and what others leave without
dropout is what they are held to.

A peer library is a shared object with the C interface of peer_library.h, beside this file: NAME=PATH, where NAME begins its functions and
stands in the table.

What the tuning database holds of a problem is asked of the command `attune` ($ATTUNE_COMMAND, else as the build leaves it, else by $PATH):
the column "stored" is this run's speed beside that. --why-stored-differs times the same kernel with one cause of a difference toggled at a
time. `attune report --peers FILE` shows what --json wrote beside the results of the tuning database.

Exit status: 0, or 1 if an output of Attune is wrong, or 2 for bad input.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import random
import sys
import warnings

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

from comparison import BadInput, tables  # noqa: E402
from comparison.contenders import OWN, PASSES, prepare  # noqa: E402
from comparison.differences import measure_variants  # noqa: E402
from comparison.flash_operators import load_attention_3  # noqa: E402
from comparison.gpu_state import GpuState, Watch  # noqa: E402
from comparison.inputs import KINDS, UNIT_NORMAL, Data, make_inputs, parse_data  # noqa: E402
from comparison.peer_library import PeerLibrary  # noqa: E402
from comparison.problems import parse_problem, read_shapes  # noqa: E402
from comparison.stored import Command, find_command  # noqa: E402
from comparison.timing import PROTOCOLS, WARM_UP_LAUNCHES, Timer, copies_for, summary_of  # noqa: E402

# The format of what --json writes.
FORMAT, FORMAT_VERSION = "attune comparison", 1


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of the table: a problem, and whether its deterministic twin is timed beside it."""

    problem: object
    with_deterministic: bool = False


def rows_of(problems):
    """One row for a problem and its deterministic twin, in the order of the first of them. Raises BadInput for what is not compared."""
    for problem in problems:
        if problem.alignment != 16:
            raise BadInput(f"{problem.text()}: tensors here are aligned; leave the word align{problem.alignment} away")
        if problem.is_causal and not (problem.is_bottom_right or problem.is_top_left):
            raise BadInput(f"{problem.text()}: no other library has a causal mask of that offset")
    asked = set(problems)
    rows = []
    for fast in dict.fromkeys(problem.fast() for problem in problems):
        twin = dataclasses.replace(fast, deterministic=True) if fast.pass_ == "backward" else None
        rows.append(Row(fast, twin in asked) if fast in asked else Row(twin))
    return rows


def read_asked(path):
    """Problem -> the speed, as a multiple of FlashAttention-2's, that a verdict is given by."""
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise BadInput(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise BadInput(f"{path}: must be an object of problems and what is asked of them")
    for text, ratio in content.items():
        if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 < ratio < float("inf"):
            raise BadInput(f"{path}: '{text}' is asked for {json.dumps(ratio)}, it must be a ratio above 0")
    return {parse_problem(text): float(ratio) for text, ratio in content.items()}


def problems_asked_for(options):
    standard = {"forward": ["forward_headline.json"], "backward": ["backward.json"], None: ["forward_headline.json"]}[options.pass_]
    if options.why_stored_differs:
        standard = ["stored.json"]
    problems = [problem for path in options.shapes or [FOLDER / "shapes" / name for name in standard] for problem in read_shapes(path)]
    wanted = list(dict.fromkeys(problem for problem in problems if options.pass_ in (None, problem.pass_)))
    if not wanted:
        raise BadInput(f"no problem of --pass {options.pass_} is in {', '.join(map(str, options.shapes))}")
    return wanted


class Comparison:
    """What every row of a run shares."""

    def __init__(self, torch, attune, options, peers):
        self.torch, self.attune, self.options, self.peers = torch, attune, options, peers
        device = torch.cuda.current_device()
        properties = torch.cuda.get_device_properties(device)
        self.l2_bytes, self.state = properties.L2_cache_size, GpuState(properties.uuid)
        self.timer = Timer(torch, random.Random(options.seed), self.state.max_sm_mhz())
        path = find_command() if options.stored else None
        self.command = Command(path, device) if path else None
        self.machine = {"gpu": properties.name, "sm_count": properties.multi_processor_count, "torch": torch.__version__,
                        "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(), "attune": attune.version()}
        if self.state.driver():
            self.machine["driver"] = self.state.driver()
        self.machine.update((library.name, library.path.name) for library in peers)
        limits = {"sm_clock_mhz": self.state.max_sm_mhz(), "power_watts": self.state.power_limit_watts()}
        self.limits = {name: value for name, value in limits.items() if value is not None}
        self.prepared = {}

    def prepare(self, rows):
        """Compiles the kernels of all rows at once, on all cores."""
        wanted = {problem: None for row in rows for problem in self._kernels_of(row).values()}
        wanted.update((row.problem, self.options.config) for row in rows)
        for row in rows:
            if row.problem.pass_ == "backward":  # attention() runs it for O and LSE
                wanted.setdefault(dataclasses.replace(row.problem.fast(), pass_="forward"), None)
        with concurrent.futures.ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as executor:
            compiled = {problem: executor.submit(prepare, self.torch, self.attune, problem, config) for problem, config in wanted.items()}
            for problem, one in compiled.items():
                try:
                    self.prepared[problem] = one.result()
                except (self.attune.AttuneError, ValueError) as error:
                    raise BadInput(f"{problem.text()}: {error}") from None

    def _kernels_of(self, row):
        twin = {"deterministic": dataclasses.replace(row.problem, deterministic=True)} if row.with_deterministic else {}
        return {"attune": row.problem, **twin}

    def measure(self, row, data, asked):
        problem, options = row.problem, self.options
        prepared = {name: self.prepared[kernel] for name, kernel in self._kernels_of(row).items()}
        inputs = make_inputs(self.torch, problem, options.seed, data)
        timed = PASSES[problem.pass_](self.torch, self.attune, problem, inputs, prepared, self.peers, options.seed,
                                      copies_for(options.protocol, inputs[: 3 if problem.pass_ == "forward" else 4], self.l2_bytes),
                                      options.attention_3 is not None)
        found = {"problem": problem.text(), "title": problem.title(), "shape": dataclasses.asdict(problem),
                 "data": data.text(), "meaning": data.meaning(), "config": prepared["attune"].config,
                 "origin": prepared["attune"].origin, "tuned_for": prepared["attune"].detail, "contenders": {}}
        if asked:
            found["asked"] = asked
        launches = {}
        for name, make in timed.makers.items():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # a backend that cannot serve a problem warns before it raises
                    contender = make()
                    for _ in range(WARM_UP_LAUNCHES):
                        out = contender.launches[0]()
                    if contender.launch_to_check is not None:
                        out = contender.launch_to_check()
                self.torch.cuda.synchronize()
            except RuntimeError as error:
                if name in OWN:
                    raise
                found["contenders"][name] = {"error": (str(error).splitlines() or [repr(error)])[0]}  # it does not serve this problem
                continue
            launches[name] = contender.launches
            found["contenders"][name] = timed.errors(name, contender.read(out), data)
            if name in timed.configs:
                found["contenders"][name]["config"] = timed.configs[name]
        watch = Watch(self.state)
        for name, (samples, host_us) in self.timer.in_turn(launches, options.protocol, options.seconds, watch).items():
            times = summary_of(samples)
            found["contenders"][name].update(times, host_us=host_us, tflops=problem.flops() / times["median_us"] / 1e6)
        found.update(watch.summary(), ratios=tables.ratios_of(found["contenders"]))
        stored = self._stored(problem, found["config"]) if data == UNIT_NORMAL else None
        if stored:
            found["stored"] = {**stored, "table_over_stored": stored["median_us"] / found["contenders"]["attune"]["median_us"]}
        if options.why_stored_differs:
            found["variants"] = measure_variants(self.torch, self.attune, problem, prepared, self.timer, self.state, self.command, stored,
                                                 options)
        return found


    def _stored(self, problem, config):
        """None also where the command fails: figures that were measured are not lost for it."""
        try:
            return self.command.stored(problem, config) if self.command else None
        except BadInput as error:
            print(f"{error}: nothing is said of stored times", file=sys.stderr)
            self.command = None


def numbers(text):
    """Of --spread."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no list of numbers, such as 1,4,8") from None
    if not all(0 < number < float("inf") for number in found):
        raise argparse.ArgumentTypeError(f"'{text}': standard deviations are positive")
    return [Data("normal", number) for number in found]


def kinds_of_data(text):
    """Of --data."""
    try:
        return parse_data(text)
    except BadInput as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def peer_library(text):
    name, equals, path = text.partition("=")
    if not equals or not name.isidentifier() or not path:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=PATH, such as fa3=/path/libfa3.so")
    if name in ("attune", "deterministic", "best", "cudnn", "fa2"):
        raise argparse.ArgumentTypeError(f"'{name}' already is the name of a contender; the functions of the library begin with the name")
    return name, pathlib.Path(path).absolute()  # a bare name would be looked for on the path of the loader


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--pass", dest="pass_", choices=PASSES, help="problems of this pass only (default: forward; all of --shapes)")
    parser.add_argument("--shapes", type=pathlib.Path, action="append", metavar="FILE",
                        help="may be repeated; default: shapes/forward_headline.json, or shapes/backward.json")
    parser.add_argument("--asked", type=pathlib.Path, metavar="FILE",
                        help="JSON object, problem: multiple of FlashAttention-2's speed; rows get a verdict (default for shapes/backward.json: "
                        "shapes/backward_asked.json)")
    parser.add_argument("--config", metavar="TEXT", help="this config for every problem, instead of the picked one")
    parser.add_argument("--peer-library", type=peer_library, action="append", default=[], metavar="NAME=PATH",
                        help="a further contender; may be repeated")
    parser.add_argument("--attention-3", type=pathlib.Path, metavar="FILE",
                        help="a library that registers FlashAttention-3's operators, flash_attn_3::fwd and ::bwd, with PyTorch: a further contender, fa3")
    parser.add_argument("--data", type=kinds_of_data, default=[], metavar="LIST",
                        help="kinds of data, such as normal:8,sink:12,equal, or suite, which is all that attention must serve (default normal:1): "
                        "each problem is timed with each. " + "; ".join(f"{name}: {meaning.format('N')}" for name, meaning in KINDS.items()))
    parser.add_argument("--spread", type=numbers, default=[], metavar="LIST",
                        help="standard deviations of normal scores: 1,8 is short for --data normal:1,normal:8")
    parser.add_argument("--protocol", choices=PROTOCOLS, default="flushed", help="what the GPU does before each launch (default flushed)")
    parser.add_argument("--why-stored-differs", action="store_true",
                        help="time each problem in further ways, between this table's and the tuner's (default shapes: shapes/stored.json)")
    parser.add_argument("--no-stored", dest="stored", action="store_false", help="do not ask for times of the tuning database")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each row, or each way of a row (default 2)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write every figure there")
    parser.add_argument("--markdown", type=pathlib.Path, metavar="FILE", help="write the tables there as README has them; - is standard output")
    return parser.parse_args()


def main():
    options = parse_arguments()
    rows = rows_of(problems_asked_for(options))
    of_backward = options.pass_ == "backward" and not options.shapes and not options.why_stored_differs
    asked_path = options.asked or (FOLDER / "shapes" / "backward_asked.json" if of_backward else None)
    asked = read_asked(asked_path) if asked_path else {}
    names = [name for name, _ in options.peer_library]
    if len(set(names)) < len(names):
        raise BadInput("--peer-library: two have one name")
    if options.attention_3 and "fa3" in names:
        raise BadInput("--peer-library: --attention-3 already makes a contender fa3")
    peers = [PeerLibrary(name, path) for name, path in options.peer_library]

    try:
        import torch
    except ImportError:
        raise BadInput("PyTorch is not installed") from None
    if not torch.cuda.is_available():
        raise BadInput("PyTorch sees no GPU")
    import attune_kernels as attune

    if options.attention_3:
        try:
            load_attention_3(torch, options.attention_3.absolute())
        except (OSError, RuntimeError) as error:
            raise BadInput(f"--attention-3 {options.attention_3}: {error}") from None
        names = ["fa3", *names]
    comparison = Comparison(torch, attune, options, peers)
    print("  ".join(f"{name} {value}" for name, value in comparison.machine.items()))
    print("  ".join(["limits:", *(f"{name} {value:g}" for name, value in comparison.limits.items())]) if comparison.limits else "no NVML")
    if options.stored and comparison.command is None:
        print("attune is not found: nothing is said of stored times (set ATTUNE_COMMAND, or --no-stored)", file=sys.stderr)
    columns = [*names, *(name for name in ("cudnn", "fa2"))]
    measured = []
    with torch.no_grad():
        comparison.prepare(rows)
        for data in list(dict.fromkeys([*options.spread, *options.data])) or [UNIT_NORMAL]:
            print(f"data {data.text()}: {data.meaning()}\n{tables.heading_of_text(columns)}", flush=True)
            for row in rows:
                try:
                    measured.append(comparison.measure(row, data, asked.get(row.problem) if data == UNIT_NORMAL else None))
                except (attune.AttuneError, ValueError) as error:
                    raise BadInput(f"{row.problem.text()}: {error}") from None
                print(tables.row_as_text(measured[-1], columns), flush=True)
                torch.cuda.empty_cache()
    for heading, of_section in tables.sections(measured):
        print(heading)
        for line in tables.summary(of_section):
            print(f"  {line}")
        print("\n".join(tables.differences_as_lines(of_section)), end="")
    document = {"format": FORMAT, "version": FORMAT_VERSION, "protocol": PROTOCOLS[options.protocol],
                "machine": comparison.machine, "limits": comparison.limits, "seed": options.seed, "rows": measured}
    if options.json:
        write(options.json, json.dumps(document, indent=1) + "\n")
    if options.markdown:
        write(options.markdown, tables.as_markdown(document))
    wrong = [row for row in measured for name in OWN if name in row["contenders"] and not row["contenders"][name]["within"]]
    return 1 if wrong else 0


def write(path, text):
    if str(path) == "-":
        print(text, end="")
        return
    try:
        path.write_text(text)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from None


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BadInput as error:
        print(f"compare_with_torch: {error}", file=sys.stderr)
        sys.exit(2)

#!/usr/bin/env python3
"""Times builds of libattune.so in one process, launch by launch in turn: what a change of a kernel costs, or gains.

    python3 compare_builds.py old/libattune.so new/libattune.so             # the headline shapes, forward and backward
    python3 compare_builds.py old/libattune.so one=a/libattune.so other=b/libattune.so --shapes my.json --data normal:1,normal:8

All builds run the config that the last one picks, unless --own-picks says otherwise, so that a ratio is one of kernels. Inputs and timing are
those of compare_with_torch.py: the L2 is flushed before each launch, rounds are in random order. A ratio is the median over the rounds of a
build's time by the first build's in the same round; a second contender of the first build, "again", shows what is noise. Each row says by how
much a build's outputs differ, relative to the first build's.

Exit status: 0, or 1 if an output is not a number where the first build's is one or the other way round, or 2 for bad input.
"""

import argparse
import ctypes
import dataclasses
import importlib.util
import json
import os
import pathlib
import random
import statistics
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

from comparison import BadInput  # noqa: E402
from comparison.gpu_state import GpuState, Watch  # noqa: E402
from comparison.inputs import make_inputs, parse_data  # noqa: E402
from comparison.problems import read_shapes  # noqa: E402
from comparison.timing import Timer  # noqa: E402


class Build:
    """A libattune.so of its own beside others of the process."""

    def __init__(self, name, path):
        self.name = name
        os.environ["ATTUNE_LIBRARY"] = str(pathlib.Path(path).resolve())
        spec = importlib.util.spec_from_file_location(f"attune_library_{name}", FOLDER / "attune_kernels" / "_library.py")
        self.structs = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.structs)
        self.library = self.structs.load()
        self.library.attune_describe.restype = ctypes.c_int

    def problem(self, problem):
        if problem.window is not None:
            raise BadInput(f"{problem.text()}: windows are not compared here")
        made = self.structs.Problem(ctypes.sizeof(self.structs.Problem), self.structs.BF16 if problem.dtype == "bf16" else self.structs.FP16)
        made.batch, made.heads_q, made.heads_kv = problem.batch, problem.heads, problem.kv_heads
        made.seq_q, made.seq_kv, made.head_dim = problem.seq, problem.kv_seq, problem.head_dim
        made.mask = self.structs.MASK_CAUSAL_OFFSET if problem.is_causal else self.structs.MASK_NONE
        made.mask_offset = problem.mask_offset or 0
        made.softmax_scale = problem.scale or 0
        made.layout = self.structs.LAYOUT_BSHD if problem.layout == "bshd" else self.structs.LAYOUT_BHSD
        made.pass_ = self.structs.FORWARD if problem.pass_ == "forward" else self.structs.BACKWARD
        made.deterministic = problem.deterministic
        return made

    def picked_config(self, problem):
        text = ctypes.create_string_buffer(4096)
        self.structs.check(self.library.attune_describe(ctypes.byref(self.problem(problem)), text, len(text), None))
        return text.value.decode().splitlines()[0]

    def launcher(self, torch, problem, config, q, k, v, grad_out, o, lse):
        """(what launches once on the current stream, the outputs that it writes). All tensors are (batch, heads, seq, head_dim)."""
        asked, structs = self.problem(problem), self.structs
        prepared, needed = ctypes.c_void_p(), ctypes.c_size_t()
        structs.check(self.library.attune_prepare(ctypes.byref(asked), config.encode(), ctypes.byref(prepared)))
        structs.check(self.library.attune_workspace_bytes(ctypes.byref(asked), ctypes.byref(needed)))
        workspace = torch.empty(max(needed.value, 1), dtype=torch.uint8, device="cuda")

        def view(tensor):
            return structs.Tensor(tensor.data_ptr(), *tensor.stride()[:3])

        forward = problem.pass_ == "forward"
        outputs = [torch.empty_like(o), torch.empty_like(lse)] if forward else [torch.empty_like(x) for x in (q, k, v)]
        if not forward:
            outputs_views = [view(x) for x in outputs]
        own_o, own_lse = (outputs[0], outputs[1]) if forward else (o, lse)
        operands = {structs.Q: view(q), structs.K: view(k), structs.V: view(v), structs.O: view(own_o),
                    structs.LSE: structs.Tensor(own_lse.data_ptr())}
        stream = torch.cuda.current_stream().cuda_stream
        end = (ctypes.c_void_p(workspace.data_ptr()), needed, ctypes.c_void_p(stream))
        launch = self.library.attune_launch
        if not forward:
            launch = self.library.attune_launch_backward
            operands |= zip((structs.D_Q, structs.D_K, structs.D_V, structs.D_O), (*outputs_views, view(grad_out)))
        listed = structs.operands(operands)
        arguments = (prepared, ctypes.byref(asked), listed, len(listed), *end)
        kept = (asked, workspace, q, k, v, grad_out, o, lse)

        def once(_kept=kept):
            structs.check(launch(*arguments))

        return once, outputs


def forward_outputs(torch, build, problem, q, k, v):
    forward = dataclasses.replace(problem, pass_="forward", deterministic=False)
    o = torch.empty_like(q)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device="cuda")
    launch, outputs = build.launcher(torch, forward, build.picked_config(forward), q, k, v, None, o, lse)
    launch()
    return outputs


def largest_difference(torch, old, new):
    """Of any output relative to its norm; None where one is a number and the other is none."""
    largest = 0.0
    for a, b in zip(old, new):
        a, b = a.float(), b.float()
        if not torch.equal(a.isnan(), b.isnan()):
            return None
        finite = a.isfinite() & b.isfinite()
        a, b = a[finite], b[finite]
        largest = max(largest, float((a - b).norm() / a.norm().clamp_min(1e-30)))
    return largest


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="libattune.so of the build before")
    parser.add_argument("new", nargs="+", help="libattune.so of a build now, or NAME=PATH for several")
    parser.add_argument("--shapes", type=pathlib.Path, action="append", help="may be repeated; default: both headline files")
    parser.add_argument("--data", default="normal:1", help="kinds of data, as compare_with_torch.py has them")
    parser.add_argument("--seconds", type=float, default=0.4, help="of each row")
    parser.add_argument("--own-picks", action="store_true", help="each build runs the config that it picks itself")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    return parser.parse_args()


def main():
    options = parse_arguments()
    import torch

    shapes = options.shapes or [FOLDER / "shapes" / f"{name}_headline.json" for name in ("forward", "backward")]
    problems = [problem for path in shapes for problem in read_shapes(path)]
    named = [path.split("=", 1) if "=" in path else ("new", path) for path in options.new]
    if len({"old", "again", *(name for name, _ in named)}) != 2 + len(named):
        raise BadInput("builds need names of their own: write NAME=PATH for each")
    builds = [Build("old", options.old), Build("again", options.old), *(Build(name, path) for name, path in named)]
    compared = [build.name for build in builds[2:]]
    device = torch.cuda.get_device_properties(0)
    state = GpuState(device.uuid)
    timer = Timer(torch, random.Random(options.seed), state.max_sm_mhz())
    print(f"{device.name}, driver {state.driver()}")
    rows, wrong = [], 0
    for problem in problems:
        for data in parse_data(options.data):
            q, k, v, grad_out = make_inputs(torch, problem, options.seed, data)
            new_config = builds[-1].picked_config(problem)
            o, lse = forward_outputs(torch, builds[0], problem, q, k, v)
            launches, outputs, configs = {}, {}, {}
            for build in builds:
                configs[build.name] = build.picked_config(problem) if options.own_picks else new_config
                launches[build.name], outputs[build.name] = build.launcher(
                    torch, problem, configs[build.name], q, k, v, grad_out, o, lse)
                launches[build.name]()
            torch.cuda.synchronize()
            differences = {name: largest_difference(torch, outputs["old"], outputs[name]) for name in compared}
            wrong += None in differences.values()
            watch = Watch(state)
            samples = timer.in_turn({name: [launch] for name, launch in launches.items()}, "flushed", options.seconds, watch)
            times = {name: of_build for name, (of_build, _) in samples.items()}
            ratio = {name: statistics.median(a / b for a, b in zip(times[name], times["old"])) for name in ("again", *compared)}
            row = {"problem": problem.text(), "data": data.text(), "old_us": statistics.median(times["old"]), "ratios": ratio,
                   "differences": differences, "samples": len(times["old"]), "configs": configs, **watch.summary()}
            rows.append(row)
            print(f"{row['problem']:52} {row['data']:10} {row['old_us']:9.1f} us  "
                  + "  ".join(f"{name} {value:.4f}" for name, value in ratio.items()) + "  differs "
                  + " ".join("NaN" if value is None else f"{value:.1e}" for value in differences.values()), flush=True)
            del q, k, v, grad_out, o, lse, launches, outputs
    for pass_ in ("forward", "backward"):
        for data in parse_data(options.data):
            of_kind = [row for row in rows if row["problem"].startswith(pass_) and row["data"] == data.text()]
            for name in ("again", *compared) if of_kind else ():
                ratios = [row["ratios"][name] for row in of_kind]
                print(f"{pass_} {data.text()}: {name} by old {statistics.geometric_mean(ratios):.4f} in the geometric mean of {len(ratios)}, "
                      f"{min(ratios):.4f} to {max(ratios):.4f}")
    if options.json:
        options.json.write_text(json.dumps({"device": device.name, "rows": rows}, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BadInput as error:
        print(f"compare_builds.py: {error}", file=sys.stderr)
        sys.exit(2)

#!/usr/bin/env python3
"""Fills the table of examples/ladder.md and draws examples/ladder.svg: the steps by which FlashAttention is derived, their
counted device-memory traffic (from `attune show plan`) and their times (from examples/ladder_h200.json, where it is).

usage: examples/ladder.py                    the table and the plot; needs matplotlib (apt install python3-matplotlib)
       examples/ladder.py --check            whether the table is what would be filled in; needs nothing
       examples/ladder.py --measure FILE     on a GPU: times all shapes and writes FILE
ATTUNE names the command (build/bin/attune), DEVICE the GPU (cuda:0)
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
PAGE, PLOT, TIMES = FOLDER / "ladder.md", FOLDER / "ladder.svg", FOLDER / "ladder_h200.json"
ATTUNE = os.environ.get("ATTUNE", str(FOLDER.parent / "build/bin/attune"))
DEVICE = os.environ.get("DEVICE", "cuda:0")

SHAPES = ["forward bf16 b4 hq16 sq4096 d64", "forward bf16 b4 hq16 sq4096 d128 causal"]
ALGORITHMS = ["standard", "online", "fa1", "fa2"]
BEGIN, END = "<!-- begin: filled by ladder.py -->\n", "<!-- end: filled by ladder.py -->\n"


def attune(*arguments):
    done = subprocess.run([ATTUNE, *arguments, "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"attune {' '.join(arguments)} failed with {done.returncode}: {done.stderr.strip()}\n{done.stdout}")
    return json.loads(done.stdout)


def measure(path):
    documents = [attune("bench", "--algorithm", "all", "--problem", shape, "--device", DEVICE, "--seconds", "4")
                 for shape in SHAPES]
    for document in documents:
        if not document["timed"]:
            sys.exit(f"{document['device']} cannot time")
    pathlib.Path(path).write_text(json.dumps(documents, indent=1) + "\n")


def rows():
    """(shape, algorithm, plan, result or None) of each step of each shape."""
    recorded = json.loads(TIMES.read_text()) if TIMES.exists() else []
    times = {(d["problem"], a["algorithm"]): a for d in recorded for a in d["algorithms"]}
    for shape in SHAPES:
        for algorithm in ALGORITHMS:
            plan = attune("show", "plan", "--algorithm", algorithm, "--problem", shape, "--target", "h200")
            yield shape, algorithm, plan, times.get((shape, algorithm))


def traffic(plan):
    return plan["counted_traffic"]["read_bytes"] + plan["counted_traffic"]["written_bytes"]


def table(steps):
    timed = any(result for *_, result in steps)
    text = ""
    for shape in SHAPES:
        text += f"`{shape}`:\n\n"
        header = ["", "launches", "workspace, MB", "read, MB", "written, MB", "of the fewest possible"]
        header += ["time, µs", "TFLOP/s", "counted GB/s"] if timed else []
        text += "| " + " | ".join(header) + " |\n|" + "---|" * len(header) + "\n"
        for of_shape, algorithm, plan, result in steps:
            if of_shape != shape:
                continue
            counted = plan["counted_traffic"]
            cells = [f"`{algorithm}`", str(len(plan["launches"])), f"{plan['workspace_bytes'] / 1e6:,.0f}",
                     f"{counted['read_bytes'] / 1e6:,.0f}", f"{counted['written_bytes'] / 1e6:,.0f}",
                     f"{traffic(plan) / plan['bytes']:.1f} ×"]
            if timed and result:
                cells += [f"{result['median_us']:,.0f}", f"{result['tflops']:.0f}", f"{result['counted_gbps']:,.0f}"]
            elif timed:
                cells += ["not measured", "", ""]
            text += "| " + " | ".join(cells) + " |\n"
        text += "\n"
    if timed:
        return text + ("Times: medians on one NVIDIA H200 (`ladder_h200.json`), the four alternately, each checked against the "
                       "oracle before.\n")
    return text + "No times are recorded yet; `examples/ladder.py --measure examples/ladder_h200.json` on an H200 records them.\n"


def page_with(text):
    page = PAGE.read_text()
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    return page[:begin] + text + page[end:]


def draw(steps):
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot
    pyplot.rcParams.update({"svg.hashsalt": "ladder", "svg.fonttype": "none", "font.size": 9})
    panels = [("counted device-memory traffic, GB", lambda plan, result: traffic(plan) / 1e9)]
    if any(result for *_, result in steps):
        panels.append(("time on one H200, ms", lambda plan, result: result["median_us"] / 1e3 if result else 0))
    figure, axes = pyplot.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.2), squeeze=False)
    for axis, (title, value) in zip(axes[0], panels):
        for i, shape in enumerate(SHAPES):
            heights = [value(plan, result) for of_shape, _, plan, result in steps if of_shape == shape]
            bars = axis.bar([x + 0.4 * i for x in range(len(heights))], heights, 0.38, label=shape.removeprefix("forward "))
            axis.bar_label(bars, [f"{height:.2g}" for height in heights], fontsize=7)
        axis.set_xticks([x + 0.2 for x in range(len(ALGORITHMS))], ALGORITHMS)
        axis.set_title(title, fontsize=9)
        axis.margins(y=0.15)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].legend(fontsize=7, frameon=False)
    figure.tight_layout()
    figure.savefig(PLOT, metadata={"Date": None})


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--check", action="store_true")
parser.add_argument("--measure", metavar="FILE")
options = parser.parse_args()
if options.measure:
    measure(options.measure)
    sys.exit()
found = list(rows())
page = page_with(table(found))
if options.check:
    if page != PAGE.read_text():
        sys.exit(f"{PAGE} holds another table than the generator's numbers give: run examples/ladder.py")
    sys.exit()
draw(found)
PAGE.write_text(page)

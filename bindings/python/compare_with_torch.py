#!/usr/bin/env python3
"""Times Attune beside PyTorch's attention (FlashAttention-2 and cuDNN), in one process, launch by launch in turn.

    python3 compare_with_torch.py                                   # the headline shapes
    python3 compare_with_torch.py --shapes my.csv --json out.json
    python3 compare_with_torch.py --config "sm80 q128 kv64 w8 st2"

Each shape: random normal q, k, v in (batch, heads, seq, head_dim); every contender's output is compared with attention in double
precision on a sample of rows; then rounds of one launch of each, in an order that rotates, the L2 cache flushed before each by reading a
large buffer. That read also keeps the GPU busy while the host enqueues the launch, so that events around it see the kernel alone.

A shapes file is JSON ({"shapes": [{...}]}, or the list alone) or CSV with a header. Fields: batch, heads, seq, head_dim; optional:
kv_heads (heads), kv_seq (seq), causal (false), dtype (bf16; or fp16), layout (bhsd; or bshd: then q, k, v are views with heads inside).
Causal masks of unequal lengths are aligned top left, as PyTorch has them.

`attune report --peers FILE` shows what --json wrote beside the results of the tuning database.

Exit status: 0, or 1 if an output of Attune is wrong, or 2 for bad input.
"""

import argparse
import csv
import itertools
import json
import pathlib
import statistics
import sys
import time
import warnings

FOLDER = pathlib.Path(__file__).resolve().parent
FLUSH_BYTES = 1 << 30
WARM_UP_LAUNCHES = 3
MIN_ROUNDS, MAX_ROUNDS = 10, 400
SAMPLED_ROWS = 128
# Bounds of a correct forward: norm of the error, and unit roundoff for the bound of each element.
RELATIVE_BOUND = {"fp16": 4e-4, "bf16": 3e-3}
UNIT_ROUNDOFF = {"fp16": 2.0**-11, "bf16": 2.0**-8}
FIELDS = {"dtype": "bf16", "batch": None, "heads": None, "kv_heads": 0, "seq": None, "kv_seq": 0, "head_dim": None, "causal": False,
          "layout": "bhsd"}


# Of what --json writes.
FORMAT, FORMAT_VERSION = "attune comparison", 1
PROTOCOL = ("One process, one launch of each in turn, the order rotating; L2 flushed before each by reading 1 GiB; GPU events around the "
            "launch; random normal inputs.")


class BadInput(Exception):
    pass


def parse_shape(given, where):
    if not isinstance(given, dict):
        raise BadInput(f"{where}: it must be an object with the fields {', '.join(FIELDS)}")
    unknown = set(given) - set(FIELDS)
    if unknown:
        raise BadInput(f"{where}: unknown field {sorted(unknown)[0]!r}; known: {', '.join(FIELDS)}")
    shape = {}
    for name, default in FIELDS.items():
        value = given.get(name, default)
        if value is None or value == "" and default is None:
            raise BadInput(f"{where}: {name} is missing")
        if value == "":
            value = default
        if name == "causal":
            value = value if isinstance(value, bool) else str(value).strip().lower() in ("1", "true", "yes")
        elif name not in ("dtype", "layout"):
            try:
                value = int(value)
            except ValueError:
                raise BadInput(f"{where}: {name} is {value!r}, no whole number") from None
            if value < 0 or value == 0 and default is None:
                raise BadInput(f"{where}: {name} is {value}, it must be positive")
        shape[name] = value
    if shape["dtype"] not in RELATIVE_BOUND:
        raise BadInput(f"{where}: dtype is {shape['dtype']!r}, it must be bf16 or fp16")
    if shape["layout"] not in ("bhsd", "bshd"):
        raise BadInput(f"{where}: layout is {shape['layout']!r}, it must be bhsd or bshd")
    shape["kv_heads"] = shape["kv_heads"] or shape["heads"]
    shape["kv_seq"] = shape["kv_seq"] or shape["seq"]
    return shape


def read_shapes(path):
    try:
        if path.suffix == ".csv":
            with open(path, newline="") as file:
                rows = list(csv.DictReader(file))
        else:
            content = json.loads(path.read_text())
            rows = content["shapes"] if isinstance(content, dict) else content
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(f"{path} cannot be read as a list of shapes: {error}") from None
    if not rows:
        raise BadInput(f"{path} holds no shapes")
    return [parse_shape(row, f"{path}, shape {number}") for number, row in enumerate(rows, 1)]


def shape_text(shape):
    text = f"{shape['dtype']} b{shape['batch']} h{shape['heads']}"
    if shape["kv_heads"] != shape["heads"]:
        text += f"/{shape['kv_heads']}"
    text += f" s{shape['seq']}"
    if shape["kv_seq"] != shape["seq"]:
        text += f"/{shape['kv_seq']}"
    return text + f" d{shape['head_dim']} {'causal' if shape['causal'] else 'full'}"


def problem_text(shape):
    """The problem in Attune's words: those that equal their default are left out."""
    text = f"forward {shape['dtype']} b{shape['batch']} hq{shape['heads']}"
    if shape["kv_heads"] != shape["heads"]:
        text += f" hkv{shape['kv_heads']}"
    text += f" sq{shape['seq']}"
    if shape["kv_seq"] != shape["seq"]:
        text += f" skv{shape['kv_seq']}"
    text += f" d{shape['head_dim']}"
    if shape["causal"]:
        text += " causal" if shape["seq"] == shape["kv_seq"] else " causal-top-left"
    return text + (" bhsd" if shape["layout"] == "bhsd" else "")


def attended_pairs(shape):
    """(query, key) pairs of one head."""
    queries, keys = shape["seq"], shape["kv_seq"]
    if not shape["causal"]:
        return queries * keys
    inside = min(queries, keys)
    return inside * (inside + 1) // 2 + (queries - inside) * keys


def flops(shape):
    return 4.0 * shape["head_dim"] * attended_pairs(shape) * shape["batch"] * shape["heads"]


def make_inputs(torch, shape, seed):
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[shape["dtype"]]
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def tensor(heads, seq):
        sizes = (shape["batch"], heads, seq, shape["head_dim"])
        if shape["layout"] == "bshd":
            sizes = (sizes[0], sizes[2], sizes[1], sizes[3])
        made = torch.randn(sizes, generator=generator, device="cuda", dtype=dtype)
        return made.transpose(1, 2) if shape["layout"] == "bshd" else made

    return tensor(shape["heads"], shape["seq"]), *(tensor(shape["kv_heads"], shape["kv_seq"]) for _ in range(2))


class Reference:
    """Attention in double precision for the first, the last and random rows of the first and the last head."""

    def __init__(self, torch, shape, q, k, v, scale, seed):
        self.torch, self.shape = torch, shape
        rows = torch.randperm(shape["seq"], generator=torch.Generator().manual_seed(seed))[:SAMPLED_ROWS]
        edges = torch.tensor([0, shape["seq"] - 1])
        self.rows = torch.unique(torch.cat([rows, edges])).to("cuda")
        group = shape["heads"] // shape["kv_heads"]
        self.heads = sorted({(0, 0), (shape["batch"] - 1, shape["heads"] - 1)})
        self.expected = []
        for batch, head in self.heads:
            keys, values = k[batch, head // group].double(), v[batch, head // group].double()
            scores = scale * q[batch, head, self.rows].double() @ keys.T
            if shape["causal"]:
                hidden = torch.arange(shape["kv_seq"], device="cuda")[None, :] > self.rows[:, None]
                scores.masked_fill_(hidden, float("-inf"))
            p = torch.softmax(scores, dim=-1)
            self.expected.append((p @ values, p @ values.abs(), torch.logsumexp(scores, dim=-1)))

    def compare(self, out, lse=None):
        """(relative error, largest error over its bound, largest error of LSE over its bound or None)"""
        u = UNIT_ROUNDOFF[self.shape["dtype"]]
        error_squares = reference_squares = 0.0
        worst, worst_lse = 0.0, None if lse is None else 0.0
        for (batch, head), (o, weight, expected_lse) in zip(self.heads, self.expected):
            difference = (out[batch, head, self.rows].double() - o).nan_to_num(nan=float("inf"))
            error_squares += difference.square().sum().item()
            reference_squares += o.square().sum().item()
            worst = max(worst, (difference.abs() / (2 * u * weight + u * o.abs())).max().item())
            if lse is not None:
                distance = (lse[batch, head, self.rows].double() - expected_lse).nan_to_num(nan=float("inf")).abs()
                worst_lse = max(worst_lse, (distance / (1e-5 + 1e-6 * expected_lse.abs())).max().item())
        return (error_squares / reference_squares) ** 0.5, worst, worst_lse


def contenders(torch, attune, shape, q, k, v, scale, config):
    """Name -> function that launches it once and returns its output."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    options = {"causal": shape["causal"], "top_left": shape["causal"]}
    prepared = attune.prepare(q, k, v, scale=scale, config=config, **options)
    out = torch.empty_like(q)

    def torch_attention(backend):
        def launch():
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=shape["causal"], scale=scale, enable_gqa=shape["heads"] != shape["kv_heads"]
                )

        return launch

    functions = {
        "attune": lambda: prepared(q, k, v, out=out),
        "fa2": torch_attention(SDPBackend.FLASH_ATTENTION),
        "cudnn": torch_attention(SDPBackend.CUDNN_ATTENTION),
    }
    return prepared, functions


def time_in_turn(torch, functions, flush, seconds):
    """Name -> GPU microseconds of each launch."""
    events = {name: [] for name in functions}
    names = list(functions)
    begin = time.monotonic()
    for number in itertools.count():
        for name in names[number % len(names):] + names[: number % len(names)]:
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flush.max()
            start.record()
            functions[name]()
            stop.record()
            events[name].append((start, stop))
        torch.cuda.synchronize()
        rounds = number + 1
        if rounds >= MAX_ROUNDS or rounds >= MIN_ROUNDS and time.monotonic() - begin > seconds:
            break
    return {name: [1e3 * start.elapsed_time(stop) for start, stop in pairs] for name, pairs in events.items()}


def measure(torch, attune, shape, options, flush):
    q, k, v = make_inputs(torch, shape, options.seed)
    scale = shape["head_dim"] ** -0.5
    reference = Reference(torch, shape, q, k, v, scale, options.seed)
    prepared, functions = contenders(torch, attune, shape, q, k, v, scale, options.config)
    row = {"problem": problem_text(shape), "shape": shape, "config": prepared.config, "origin": prepared.origin,
           "tuned_for": prepared.detail, "contenders": {}}

    _, lse = prepared(q, k, v, return_lse=True)
    for name in list(functions):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a backend that cannot serve a shape warns before it raises
                for _ in range(WARM_UP_LAUNCHES):
                    out = functions[name]()
            torch.cuda.synchronize()
        except RuntimeError as error:
            if name == "attune":
                raise
            # A backend of PyTorch may not serve this shape: that is its answer.
            row["contenders"][name] = {"error": str(error).splitlines()[0]}
            del functions[name]
            continue
        relative, worst, worst_lse = reference.compare(out, lse if name == "attune" else None)
        within = relative <= RELATIVE_BOUND[shape["dtype"]] and worst <= 1 and (worst_lse is None or worst_lse <= 1)
        row["contenders"][name] = {"relative_error": relative, "worst_over_bound": worst, "within": within}
        if worst_lse is not None:
            row["contenders"][name]["worst_lse_over_bound"] = worst_lse

    for name, samples in time_in_turn(torch, functions, flush, options.seconds).items():
        median = statistics.median(samples)
        deciles = statistics.quantiles(samples, n=10)
        row["contenders"][name].update(
            median_us=median, p20_us=deciles[1], p80_us=deciles[7], samples=len(samples), tflops=flops(shape) / median / 1e6
        )
    row["ratios"] = {}
    for other in ("fa2", "cudnn"):
        if "median_us" in row["contenders"].get(other, {}):
            row["ratios"][f"attune/{other}"] = row["contenders"][other]["median_us"] / row["contenders"]["attune"]["median_us"]
    return row


def print_row(row):
    def figure(name):
        contender = row["contenders"][name]
        return f"{contender['tflops']:7.1f}" if "tflops" in contender else "      -"

    def ratio(name):
        value = row["ratios"].get(f"attune/{name}")
        return "    -" if value is None else f"{value:5.2f}"

    attune = row["contenders"]["attune"]
    verdict = "ok" if attune["within"] else "WRONG"
    print(f"{shape_text(row['shape']):34} {figure('attune')} {figure('fa2')} {figure('cudnn')}   {ratio('fa2')} {ratio('cudnn')}   "
          f"{attune['relative_error']:.1e} {verdict:5}  {row['config']} ({row['origin']})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=pathlib.Path, default=FOLDER / "shapes" / "forward_headline.json", metavar="FILE")
    parser.add_argument("--config", metavar="TEXT", help="this config for every shape, instead of the picked one")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each shape (default 2)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write every figure there")
    options = parser.parse_args()
    shapes = read_shapes(options.shapes)

    try:
        import torch
    except ImportError:
        raise BadInput("PyTorch is not installed") from None
    if not torch.cuda.is_available():
        raise BadInput("PyTorch sees no GPU")
    sys.path.insert(0, str(FOLDER))
    import attune

    sm_count = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
    machine = {"gpu": torch.cuda.get_device_name(), "sm_count": sm_count, "torch": torch.__version__, "cuda": torch.version.cuda,
               "cudnn": torch.backends.cudnn.version(), "attune": attune.version()}
    print("  ".join(f"{name} {value}" for name, value in machine.items()))
    print(f"{'':34} {'TFLOP/s':>23}   {'ratio to':>11}   error")
    print(f"{'shape':34} {'attune':>7} {'fa2':>7} {'cudnn':>7}   {'fa2':>5} {'cudnn':>5}   of attune      config")
    flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda").zero_()
    rows = []
    with torch.no_grad():
        for shape in shapes:
            try:
                row = measure(torch, attune, shape, options, flush)
            except (attune.AttuneError, ValueError) as error:
                raise BadInput(f"{shape_text(shape)}: {error}") from None
            rows.append(row)
            print_row(row)
    if options.json:
        document = {"format": FORMAT, "version": FORMAT_VERSION, "protocol": PROTOCOL, "machine": machine, "seed": options.seed,
                    "rows": rows}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all(row["contenders"]["attune"]["within"] for row in rows) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BadInput as error:
        print(f"compare_with_torch: {error}", file=sys.stderr)
        sys.exit(2)

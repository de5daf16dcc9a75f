#!/usr/bin/env python3
"""Times Attune beside PyTorch's attention (FlashAttention-2 and cuDNN), in one process, launch by launch in turn.

    python3 compare_with_torch.py                                   # the headline shapes
    python3 compare_with_torch.py --shapes my.csv --json out.json
    python3 compare_with_torch.py --config "sm80 q128 kv64 w8 st2"
    python3 compare_with_torch.py --pass backward                   # gradients, on shapes of their own

Each shape: random normal q, k, v in (batch, heads, seq, head_dim); every contender's output is compared with attention in double
precision on a sample of rows; then rounds of one launch of each, in an order that rotates, the L2 cache flushed before each by reading a
large buffer. That read also keeps the GPU busy while the host enqueues the launch, so that events around it see the kernel alone.

Backward: each contender differentiates its own forward's output, again and again; dQ, dK and dV of the first and the last key/value head are
compared with gradients in double precision. A shape that is `deterministic` is timed in that mode too, beside the fast one.

A shapes file is JSON ({"shapes": [{...}]}, or the list alone) or CSV with a header. Fields: batch, heads, seq, head_dim; optional:
kv_heads (heads), kv_seq (seq), causal (false), dtype (bf16; or fp16), layout (bhsd; or bshd: then q, k, v are views with heads inside),
asked (0: nothing; the speed, as a multiple of FlashAttention-2's, that a verdict is given by), deterministic (false; backward only).
Causal masks of unequal lengths are aligned top left, as PyTorch has them.

`attune report --peers FILE` shows what --json wrote beside the results of the tuning database.

Exit status: 0, or 1 if an output of Attune is wrong, or 2 for bad input.
"""

import argparse
import csv
import itertools
import json
import math
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
GRADIENT_RELATIVE_BOUND = {"fp16": 6e-4, "bf16": 4e-3}
UNIT_ROUNDOFF = {"fp16": 2.0**-11, "bf16": 2.0**-8}
SMALLEST_STEP = {"fp16": 2.0**-25, "bf16": 2.0**-134}  # half of the smallest subnormal number
ROWS_AT_ONCE = 1024  # of scores in double precision
ASKED_OF_DETERMINISTIC = 0.8  # of the fast mode's speed
FIELDS = {"dtype": "bf16", "batch": None, "heads": None, "kv_heads": 0, "seq": None, "kv_seq": 0, "head_dim": None, "causal": False,
          "layout": "bhsd", "asked": 0.0, "deterministic": False}


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
        if name in ("causal", "deterministic"):
            value = value if isinstance(value, bool) else str(value).strip().lower() in ("1", "true", "yes")
        elif name == "asked":
            try:
                value = float(value)
            except ValueError:
                raise BadInput(f"{where}: asked is {value!r}, no number") from None
            if not 0 <= value < float("inf"):
                raise BadInput(f"{where}: asked is {value}, it must be a ratio, or 0 for none")
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


def problem_text(shape, pass_="forward", deterministic=False):
    """The problem in Attune's words: those that equal their default are left out."""
    text = f"{pass_} {shape['dtype']} b{shape['batch']} hq{shape['heads']}"
    if shape["kv_heads"] != shape["heads"]:
        text += f" hkv{shape['kv_heads']}"
    text += f" sq{shape['seq']}"
    if shape["kv_seq"] != shape["seq"]:
        text += f" skv{shape['kv_seq']}"
    text += f" d{shape['head_dim']}"
    if shape["causal"]:
        text += " causal" if shape["seq"] == shape["kv_seq"] else " causal-top-left"
    return text + (" bhsd" if shape["layout"] == "bhsd" else "") + (" deterministic" if deterministic else "")


def attended_pairs(shape):
    """(query, key) pairs of one head."""
    queries, keys = shape["seq"], shape["kv_seq"]
    if not shape["causal"]:
        return queries * keys
    inside = min(queries, keys)
    return inside * (inside + 1) // 2 + (queries - inside) * keys


def flops(shape, pass_):
    of_pair = {"forward": 4.0, "backward": 10.0}[pass_] * shape["head_dim"]
    return of_pair * attended_pairs(shape) * shape["batch"] * shape["heads"]


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


def torch_attention(torch, shape, backend, q, k, v, scale):
    from torch.nn.attention import sdpa_kernel

    with sdpa_kernel(backend):
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=shape["causal"], scale=scale, enable_gqa=shape["heads"] != shape["kv_heads"]
        )


def torch_backends():
    from torch.nn.attention import SDPBackend

    return {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


class GradientReference:
    """Gradients in double precision of the first and the last key/value head and of the query heads that read them, with what the bound
    of each element is relative to: the roundings of P and dS, and of O, of which delta is made."""

    def __init__(self, torch, shape, q, k, v, grad_out, scale):
        self.shape, self.heads = shape, sorted({(0, 0), (shape["batch"] - 1, shape["kv_heads"] - 1)})
        self.group = shape["heads"] // shape["kv_heads"]
        self.expected = [self._differentiate(torch, batch, head, q, k, v, grad_out, scale) for batch, head in self.heads]

    def _differentiate(self, torch, batch, head_kv, q, k, v, grad_out, scale):
        tiny = SMALLEST_STEP[self.shape["dtype"]] / UNIT_ROUNDOFF[self.shape["dtype"]]
        keys, values = k[batch, head_kv].double(), v[batch, head_kv].double()
        grad_k, weight_k, grad_v, weight_v = (torch.zeros_like(keys) for _ in range(4))
        of_queries = []
        for head in range(head_kv * self.group, (head_kv + 1) * self.group):
            for first in range(0, self.shape["seq"], ROWS_AT_ONCE):
                queries = q[batch, head, first : first + ROWS_AT_ONCE].double()
                grads = grad_out[batch, head, first : first + ROWS_AT_ONCE].double()
                visible = torch.ones(queries.shape[0], keys.shape[0], dtype=torch.bool, device=keys.device)
                if self.shape["causal"]:
                    visible = visible.tril(first)
                p = torch.softmax((scale * queries @ keys.T).masked_fill_(~visible, float("-inf")), dim=-1)
                out = p @ values
                error_of_delta = (grads.abs() * (2 * p @ values.abs() + out.abs() + tiny)).sum(-1, keepdim=True)
                ds = p * (grads @ values.T - (grads * out).sum(-1, keepdim=True))
                weight = ds.abs() + tiny * visible + p * error_of_delta / 2
                of_queries.append((scale * ds @ keys, scale * weight @ keys.abs()))
                grad_k += scale * ds.T @ queries
                weight_k += scale * weight.T @ queries.abs()
                grad_v += p.T @ grads
                weight_v += (p + tiny * visible).T @ grads.abs()
        return [torch.cat(parts) for parts in zip(*of_queries)], (grad_k, weight_k), (grad_v, weight_v)

    def compare(self, grads):
        """(largest relative error of the three, largest error of an element over its bound)"""
        u, step = UNIT_ROUNDOFF[self.shape["dtype"]], SMALLEST_STEP[self.shape["dtype"]]
        relative = worst = 0.0
        for number, grad in enumerate(grads):
            error_squares = reference_squares = 0.0
            for (batch, head_kv), expected in zip(self.heads, self.expected):
                reference, weight = expected[number]
                heads = slice(head_kv * self.group, (head_kv + 1) * self.group) if number == 0 else slice(head_kv, head_kv + 1)
                actual = grad[batch, heads].double().reshape(reference.shape)
                difference = (actual - reference).nan_to_num(nan=float("inf")).abs()
                error_squares += difference.square().sum().item()
                reference_squares += reference.square().sum().item()
                worst = max(worst, (difference / (2 * u * weight + u * reference.abs() + step)).max().item())
            relative = max(relative, (error_squares / reference_squares) ** 0.5 if error_squares else 0.0)
        return relative, worst


class ForwardPass:
    """What is timed of a shape: for each name what makes a function that launches the contender once and returns its output."""

    name = "forward"

    def __init__(self, torch, attune, shape, options):
        q, k, v = make_inputs(torch, shape, options.seed)
        scale = shape["head_dim"] ** -0.5
        self.shape, self.reference = shape, Reference(torch, shape, q, k, v, scale, options.seed)
        self.prepared = attune.prepare(q, k, v, scale=scale, config=options.config, causal=shape["causal"], top_left=shape["causal"])
        self.configs = {"attune": self.prepared.config}
        _, self.lse = self.prepared(q, k, v, return_lse=True)
        out = torch.empty_like(q)
        self.makers = {"attune": lambda: lambda: self.prepared(q, k, v, out=out)}
        for name, backend in torch_backends().items():
            self.makers[name] = lambda backend=backend: lambda: torch_attention(torch, shape, backend, q, k, v, scale)

    def errors(self, name, out):
        relative, worst, worst_lse = self.reference.compare(out, self.lse if name == "attune" else None)
        within = relative <= RELATIVE_BOUND[self.shape["dtype"]] and worst <= 1 and (worst_lse is None or worst_lse <= 1)
        found = {"relative_error": relative, "worst_over_bound": worst, "within": within}
        return found if worst_lse is None else {**found, "worst_lse_over_bound": worst_lse}


class BackwardPass:
    """The same of gradients. Each contender's forward runs once, when its function is made."""

    name = "backward"

    def __init__(self, torch, attune, shape, options):
        q, k, v = make_inputs(torch, shape, options.seed)
        grad_out, _, _ = make_inputs(torch, shape, options.seed + 1)
        scale, mask = shape["head_dim"] ** -0.5, {"causal": shape["causal"], "top_left": shape["causal"]}
        self.shape, self.reference = shape, GradientReference(torch, shape, q, k, v, grad_out, scale)
        out, lse = attune.attention(q, k, v, scale=scale, return_lse=True, **mask)
        grads = tuple(torch.empty_like(tensor) for tensor in (q, k, v))
        prepared = {"attune": attune.prepare_backward(q, k, v, scale=scale, config=options.config, deterministic=False, **mask)}
        if shape["deterministic"]:
            prepared["deterministic"] = attune.prepare_backward(q, k, v, scale=scale, deterministic=True, **mask)
        self.prepared = prepared["attune"]
        self.configs = {name: one.config for name, one in prepared.items()}

        def attune_backward(one):
            return lambda: one(grad_out, q, k, v, out, lse, grads=grads)

        def torch_backward(backend):
            leaves = [tensor.detach().requires_grad_() for tensor in (q, k, v)]
            with torch.enable_grad():
                own_out = torch_attention(torch, shape, backend, *leaves, scale)
            return lambda: torch.autograd.grad(own_out, leaves, grad_out, retain_graph=True)

        self.makers = {name: lambda one=one: attune_backward(one) for name, one in prepared.items()}
        for name, backend in torch_backends().items():
            self.makers[name] = lambda backend=backend: torch_backward(backend)

    def errors(self, name, grads):
        relative, worst = self.reference.compare(grads)
        within = relative <= GRADIENT_RELATIVE_BOUND[self.shape["dtype"]] and worst <= 1
        return {"relative_error": relative, "worst_over_bound": worst, "within": within}


PASSES = {"forward": ForwardPass, "backward": BackwardPass}
OWN = ("attune", "deterministic")  # contenders that are Attune's


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
    timed = PASSES[options.pass_](torch, attune, shape, options)
    prepared = timed.prepared
    row = {"problem": problem_text(shape, timed.name), "shape": shape, "config": prepared.config, "origin": prepared.origin,
           "tuned_for": prepared.detail, "contenders": {}}

    functions = {}
    for name, make in timed.makers.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a backend that cannot serve a shape warns before it raises
                functions[name] = make()
                for _ in range(WARM_UP_LAUNCHES):
                    out = functions[name]()
            torch.cuda.synchronize()
        except RuntimeError as error:
            if name in OWN:
                raise
            # A backend of PyTorch may not serve this shape: that is its answer.
            row["contenders"][name] = {"error": str(error).splitlines()[0]}
            functions.pop(name, None)
            continue
        row["contenders"][name] = timed.errors(name, out)
        if name in timed.configs:
            row["contenders"][name]["config"] = timed.configs[name]

    for name, samples in time_in_turn(torch, functions, flush, options.seconds).items():
        median = statistics.median(samples)
        deciles = statistics.quantiles(samples, n=10)
        row["contenders"][name].update(
            median_us=median, p20_us=deciles[1], p80_us=deciles[7], samples=len(samples),
            tflops=flops(shape, timed.name) / median / 1e6,
        )
    row["ratios"] = ratios_of(row["contenders"])
    return row


def ratios_of(contenders):
    """Speeds as multiples of another's: Attune's of its peers', the deterministic mode's of the fast one's."""

    def ratio(name, other):
        times = [contenders.get(one, {}).get("median_us") for one in (name, other)]
        return None if None in times else times[1] / times[0]

    pairs = (("attune", "fa2"), ("attune", "cudnn"), ("deterministic", "attune"))
    return {f"{name}/{other}": value for name, other in pairs if (value := ratio(name, other)) is not None}


def verdicts(row):
    """(what, reached, asked) of each ratio that the row is asked for; nothing is reached where the other cannot be timed."""
    asked = [("attune/fa2", row["shape"]["asked"])] if row["shape"]["asked"] else []
    if "deterministic" in row["contenders"]:
        asked.append(("deterministic/attune", ASKED_OF_DETERMINISTIC))
    return [(what, row["ratios"].get(what), least) for what, least in asked]


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def summary(rows):
    """Lines: the geometric mean of each ratio, and how many rows reach what is asked of them."""
    lines = []
    for what in ("attune/fa2", "attune/cudnn", "deterministic/attune"):
        values = [row["ratios"][what] for row in rows if what in row["ratios"]]
        if values:
            lines.append(f"{what}: geometric mean {geometric_mean(values):.3f} of {len(values)}, least {min(values):.3f}")
        asked = [(reached, least) for row in rows for name, reached, least in verdicts(row) if name == what]
        if asked:
            met = sum(reached is not None and reached >= least for reached, least in asked)
            lines.append(f"{what}: {met} of {len(asked)} rows reach what is asked")
    return lines


def print_row(row):
    def figure(name):
        contender = row["contenders"][name]
        return f"{contender['tflops']:7.1f}" if "tflops" in contender else "      -"

    def ratio(name):
        value = row["ratios"].get(f"attune/{name}")
        return "    -" if value is None else f"{value:5.2f}"

    own = [row["contenders"][name] for name in OWN if name in row["contenders"]]
    verdict = "ok" if all(contender["within"] for contender in own) else "WRONG"
    error = max(contender["relative_error"] for contender in own)
    print(f"{shape_text(row['shape']):34} {figure('attune')} {figure('fa2')} {figure('cudnn')}   {ratio('fa2')} {ratio('cudnn')}   "
          f"{error:.1e} {verdict:5}  {row['config']} ({row['origin']})", flush=True)
    for what, reached, least in verdicts(row):
        value = "cannot be timed" if reached is None else f"{reached:.3f}, {'reached' if reached >= least else 'MISSED'}"
        print(f"{'':34}   {what}: {least:.2f} is asked: {value}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pass", dest="pass_", choices=PASSES, default="forward", help="forward (default) or backward")
    parser.add_argument("--shapes", type=pathlib.Path, metavar="FILE", help="default: shapes/forward_headline.json or shapes/backward.json")
    parser.add_argument("--config", metavar="TEXT", help="this config for every shape, instead of the picked one")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each shape (default 2)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write every figure there")
    options = parser.parse_args()
    standard = {"forward": "forward_headline.json", "backward": "backward.json"}[options.pass_]
    shapes = read_shapes(options.shapes or FOLDER / "shapes" / standard)
    if options.pass_ == "forward" and any(shape["deterministic"] for shape in shapes):
        raise BadInput("deterministic: every forward kernel is; only shapes of --pass backward take the field")

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
    for line in summary(rows):
        print(line)
    if options.json:
        document = {"format": FORMAT, "version": FORMAT_VERSION, "protocol": PROTOCOL, "machine": machine, "seed": options.seed,
                    "rows": rows}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all(row["contenders"][name]["within"] for row in rows for name in OWN if name in row["contenders"]) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BadInput as error:
        print(f"compare_with_torch: {error}", file=sys.stderr)
        sys.exit(2)

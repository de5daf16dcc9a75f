"""Host time of an attention call beside PyTorch's own: how long the CPU is busy until the next call can be made.

usage: host_time.py [--calls N] [--rounds N] [--dropout P] [--json FILE]

Tensors are so small that the GPU is done with a call before the next one comes. A round makes N calls of each contender without waiting for the GPU
in between; contenders take turns, and every other round has them in the opposite order. Printed is the median of the rounds' times per call, and
the least. "in Python alone" is attention() without the extension. "forward" has tensors that need no gradient; "with gradients" is forward,
autograd's tape and backward. With --dropout attention() draws a state from PyTorch's generator at each forward call, as PyTorch's own attention does.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import attune_kernels as attune  # noqa: E402
from attune_kernels import _attention, _calls  # noqa: E402

ALLOWED = 10  # microseconds that a call may cost beyond PyTorch's own


def under_attune(call):
    def run():
        with attune.enable_sdpa():  # turned on once a round, outside of what is timed
            return timed(call)

    return run


def without_extension(call):
    def run():
        kept = _calls._known_calls, _attention._attend
        _calls._known_calls = _attention._attend = None
        try:
            return timed(call)
        finally:
            _calls._known_calls, _attention._attend = kept

    return run


def timed(call):
    """Microseconds of a call."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(options.calls):
        call()
    return (time.perf_counter() - start) / options.calls * 1e6


def contenders():
    """By what is timed: the functions that time one round of each contender."""
    q, k, v, grad_out = (torch.randn(1, 2, 64, 64, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    leaves = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
    calls = {
        "SDPA": lambda *tensors: sdpa(*tensors, is_causal=True, dropout_p=options.dropout),
        "attention": lambda *tensors: attune.attention(*tensors, causal=True, dropout_p=options.dropout),
        "in Python alone": lambda *tensors: attune.attention(*tensors, causal=True, dropout_p=options.dropout),
        "the operator": lambda *tensors: torch.ops.attune_kernels.forward(*tensors, True)[0],
        "SDPA, enabled": lambda *tensors: sdpa(*tensors, is_causal=True, dropout_p=options.dropout),
    }
    if options.dropout:
        del calls["the operator"]
    forward = {name: lambda call=call: call(q, k, v) for name, call in calls.items()}
    both = {name: lambda call=call: torch.autograd.grad(call(*leaves), leaves, grad_out) for name, call in calls.items()}

    forward["attention"](), both["attention"]()  # the extension learns of a kind when it is met for the first time
    special = {"SDPA, enabled": under_attune, "in Python alone": without_extension}

    def rounds(group):
        return {name: special[name](call) if name in special else lambda call=call: timed(call) for name, call in group.items()}

    return {"forward": rounds(forward), "with gradients": rounds(both)}


def measure(group):
    """By contender, the microseconds per call of each round. The first round, which compiles, does not count."""
    found = {name: [] for name in group}
    for number in range(options.rounds + 1):
        for name in list(group)[:: 1 if number % 2 else -1]:
            time_of_call = group[name]()
            if number > 0:
                found[name].append(time_of_call)
    return found


def main():
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}, {options.rounds} rounds of {options.calls} calls; microseconds per call")
    print(f"{'':16}{'':16}{'median':>10}{'least':>10}{'beyond SDPA':>14}")
    results = {}
    for what, group in contenders().items():
        found = measure(group)
        own = statistics.median(found["SDPA"])
        for name, times in found.items():
            median = statistics.median(times)
            results[f"{what}, {name}"] = {"median_us": median, "least_us": min(times), "beyond_sdpa_us": median - own}
            print(f"{what:16}{name:16}{median:10.1f}{min(times):10.1f}{median - own:14.1f}")
        beyond = statistics.median(found["attention"]) - own
        print(f"{what}: attention costs {beyond:+.1f} beyond SDPA, {'within' if beyond <= ALLOWED else 'NOT within'} the {ALLOWED} that are allowed")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=500, help="in a round, of each contender")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--dropout", type=float, default=0.0, metavar="P", help="drops elements of the softmax with this probability (0)")
    parser.add_argument("--json", help="file for the figures")
    options = parser.parse_args()
    if options.calls < 1 or options.rounds < 1:
        parser.error("--calls and --rounds: at least 1")
    if not 0 <= options.dropout < 1:
        parser.error("--dropout: at least 0 and less than 1")
    if not torch.cuda.is_available():
        sys.exit("host_time.py: PyTorch sees no GPU")
    main()

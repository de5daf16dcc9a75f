"""Why a table's time and a stored one differ: the same kernel timed with one cause toggled at a time, from the table's way of timing to the
tuner's. A kernel's cycles (its time by the clock meanwhile) tell whether it did more work or ran at a lower clock."""

import dataclasses

from .contenders import PASSES, prepare
from .gpu_state import Watch
from .inputs import make_inputs
from .timing import copies_for, summary_of

REST_MILLISECONDS = 20
IDLE_MICROSECONDS = 300

MEANINGS = {
    "table": "as in the table: in turn with PyTorch's backends, L2 flushed before each launch",
    "alone": "no other library in turn; what follows differs from this one by one thing each",
    "no LSE": "the forward writes no LSE (stored rows and the table: it does)",
    "dLSE": "the loss depends on LSE (stored rows: it does; the table: it does not)",
    "other layout": "BHSD in memory instead of BSHD, or the other way round",
    "graph": "launched by a CUDA graph, so that the host's time is none",
    "warm L2": "one thread spins for 300 us instead of the flush: memory and matrix units rest, inputs may stay in the L2",
    "rested": "the GPU does nothing for 20 ms before each launch, then as in warm L2",
    "sustained": "launches of the same kernel before each one that is timed, on copies of the inputs, several to a sample if they are short",
    "attune bench": "the tuner's own timing, in a process of its own, now",
    "stored": "the row of the database",
}


def measure_variants(torch, attune, problem, prepared, timer, state, command, stored, options):
    """Name of MEANINGS -> the fields of a contender's time, with clock and power. `command` and `stored` may be None."""
    seconds = options.seconds
    inputs = make_inputs(torch, problem, options.seed)
    l2_bytes = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size

    def pass_of(problem, inputs, prepared, copies=1):
        return PASSES[problem.pass_](torch, attune, problem, inputs, prepared, [], options.seed, copies)

    def time(contender, protocol="flushed", before=None, launches=None, others=None):
        contenders = {"attune": launches or contender.launches, **(others or {})}
        for _ in range(3):
            for each in contenders.values():
                each[0]()
        torch.cuda.synchronize()
        watch = Watch(state)
        samples, host_us = timer.in_turn(contenders, protocol, seconds, watch, before)["attune"]
        return {**summary_of(samples), "host_us": host_us, **watch.summary()}

    def graph_of(contender):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            contender.launches[0]()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            contender.launches[0]()
        return [graph.replay]

    of_table = pass_of(problem, inputs, prepared)
    attune_alone, others = of_table.makers["attune"](), {}
    for name, make in of_table.makers.items():
        if name in ("cudnn", "fa2"):
            try:
                launches = make().launches
                launches[0]()
                others[name] = launches
            except RuntimeError:
                pass  # it does not serve this problem
    found = {"table": time(attune_alone, others=others), "alone": time(attune_alone)}
    if problem.pass_ == "forward":
        found["no LSE"] = time(of_table.without_lse())
    else:
        found["dLSE"] = time(of_table.with_grad_lse())
    turned = dataclasses.replace(problem, layout="bhsd" if problem.layout == "bshd" else "bshd")
    turned_kernels = {"attune": prepare(torch, attune, turned, prepared["attune"].config)}
    of_turned = pass_of(turned, make_inputs(torch, turned, options.seed), turned_kernels)
    found["other layout"] = time(of_turned.makers["attune"]())
    found["graph"] = time(None, launches=graph_of(attune_alone))
    found["warm L2"] = time(attune_alone, before=lambda: timer.idle(IDLE_MICROSECONDS))

    def rest():
        timer.rest(REST_MILLISECONDS)
        timer.idle(IDLE_MICROSECONDS)

    found["rested"] = time(attune_alone, before=rest)
    of_copies = pass_of(problem, inputs, prepared, copies_for("sustained", inputs[: 3 if problem.pass_ == "forward" else 4], l2_bytes))
    found["sustained"] = time(of_copies.makers["attune"](), "sustained")
    if command is not None:
        bench = command.bench(problem, prepared["attune"].config, seconds)
        if bench.get("status") == "ok":
            mhz = bench.get("sm_clock_mhz")
            clock = {"sm_clock_mhz": {"median": mhz, "least": mhz, "most": mhz}} if mhz else {}
            found["attune bench"] = {"median_us": bench["median_us"], "protocol": bench.get("protocol", ""), **clock}
    if stored is not None:
        found["stored"] = {"median_us": stored["median_us"]}
    for timed in found.values():
        timed["tflops"] = problem.flops() / timed["median_us"] / 1e6
        if "sm_clock_mhz" in timed:
            timed["kilocycles"] = timed["median_us"] * timed["sm_clock_mhz"]["median"] / 1e3
    return found


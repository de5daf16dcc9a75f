"""How long launches take: GPU events around them, contenders in turn, in one process.

Two protocols, by what the GPU does right before a launch that is timed:

    flushed     it reads 1 GiB: the L2 is cold, the host is far ahead, and the matrix units rest meanwhile, as in a program where attention
                is one kernel among others. The table's protocol.
    sustained   the same launch on other copies of the inputs, which together exceed the L2: launch after launch of one kernel, at the clock
                that the power cap leaves it. As the trials and races of `attune tune` time (tuner/trial/cold_timing.h), whose times are stored.
"""

import math
import statistics
import time

FLUSH_BYTES = 1 << 30
WARM_UP_LAUNCHES = 3
MIN_ROUNDS, MAX_ROUNDS = 11, 400
# The rules by which tuner/trial/trial_tensors.cpp makes copies of the inputs, and by which a sample takes several launches of a short kernel.
EVICTING_FACTOR, SELF_EVICTING_FACTOR, MAX_COPIES = 2, 4, 4096
BATCH_MICROSECONDS, MAX_LAUNCHES_PER_SAMPLE = 50, 100
SAMPLES_IN_FLIGHT = 8
HEAD_START = 1.5  # the GPU is kept busy so much longer than the host is expected to need

PROTOCOLS = {
    "flushed": "One process, one launch of each in turn, in random order; L2 flushed before each by reading 1 GiB; GPU events around the launch.",
    "sustained": "One process, one sample of each in turn, in random order; each led by a launch of the same kernel, on copies of the inputs "
                 "that exceed the L2; GPU events around as many launches as take 50 us.",
}


def copies_for(protocol, inputs, l2_bytes):
    """How many copies of the inputs a protocol launches on in turn."""
    input_bytes = sum(tensor.numel() * tensor.element_size() for tensor in inputs)
    if protocol == "flushed" or input_bytes >= SELF_EVICTING_FACTOR * l2_bytes:
        return 1
    return min(MAX_COPIES, math.ceil(EVICTING_FACTOR * l2_bytes / input_bytes) + 1)


class Timer:
    """Times launches on one device; `rng` shuffles the turns."""

    def __init__(self, torch, rng, clock_mhz):
        self._torch, self._rng, self._cycles_per_us = torch, rng, clock_mhz or 2000
        self._flush = torch.ones(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
        self._flush_us, _ = self._time(self._flush.max)

    def _time(self, function):
        """(GPU, host) microseconds of a launch, the median of three."""
        of_gpu, of_host = [], []
        for _ in range(3):
            start, stop = self._events()
            self._flush.max()
            start.record()
            begin = time.perf_counter()
            function()
            of_host.append(1e6 * (time.perf_counter() - begin))
            stop.record()
            self._torch.cuda.synchronize()
            of_gpu.append(1e3 * start.elapsed_time(stop))
        return statistics.median(of_gpu), statistics.median(of_host)

    def _events(self):
        return self._torch.cuda.Event(enable_timing=True), self._torch.cuda.Event(enable_timing=True)

    def in_turn(self, contenders, protocol, seconds, watch, before=None):
        """Name -> (GPU microseconds of a launch in each sample, host microseconds of enqueuing a launch). contenders: name -> its launches,
        one for each copy of the inputs. `before` replaces what the protocol does before a sample."""
        runners = {name: _Runner(launches) for name, launches in contenders.items()}
        per_sample, host_us, uncovered = {}, {}, 0.0
        for name, run in runners.items():
            launch_us, host_us[name] = self._time(run)
            batches = protocol == "sustained" and launch_us < BATCH_MICROSECONDS
            per_sample[name] = min(math.ceil(BATCH_MICROSECONDS / launch_us), MAX_LAUNCHES_PER_SAMPLE) if batches else 1
            covered_us = self._flush_us if protocol == "flushed" else launch_us
            uncovered = max(uncovered, HEAD_START * per_sample[name] * host_us[name] - covered_us)
        events, begin, names = {name: [] for name in runners}, time.monotonic(), list(runners)
        for rounds in range(1, MAX_ROUNDS + 1):
            self._rng.shuffle(names)
            for name in names:
                if uncovered > 0:  # alike for all, so that none has a rest that another has not
                    self.idle(uncovered)
                if before is not None:
                    before()
                elif protocol == "flushed":
                    self._flush.max()
                else:
                    runners[name]()
                start, stop = self._events()
                start.record()
                for _ in range(per_sample[name]):
                    runners[name]()
                stop.record()
                events[name].append((start, stop))
            if rounds * len(names) % SAMPLES_IN_FLIGHT >= len(names):
                continue
            watch.look()
            self._torch.cuda.synchronize()
            if rounds >= MIN_ROUNDS and time.monotonic() - begin > seconds:
                break
        self._torch.cuda.synchronize()
        return {name: ([1e3 * start.elapsed_time(stop) / per_sample[name] for start, stop in pairs], host_us[name])
                for name, pairs in events.items()}

    def rest(self, milliseconds):
        """Nothing runs."""
        self._torch.cuda.synchronize()
        time.sleep(milliseconds / 1000)

    def idle(self, microseconds):
        """The GPU spins on one thread meanwhile: the queue is busy, memory and tensor cores are not."""
        self._torch.cuda._sleep(int(microseconds * self._cycles_per_us))


class _Runner:
    """Launches on the next copy of the inputs each time."""

    def __init__(self, launches):
        self._launches, self._index = launches, 0

    def __call__(self):
        self._index += 1
        return self._launches[self._index % len(self._launches)]()


def summary_of(samples):
    deciles = statistics.quantiles(samples, n=10)
    return {"median_us": statistics.median(samples), "p20_us": deciles[1], "p80_us": deciles[7], "samples": len(samples)}

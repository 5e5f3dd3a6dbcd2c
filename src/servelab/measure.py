"""Time contestants fairly on a shared machine: taking turns in one process, and compared round by round."""

import datetime
import os
import platform
import statistics
import time
from importlib.metadata import version
from pathlib import Path


def interleave(contestants, rounds=30, warmup=2):
    """Run each callable once a round, in an order that rotates; return {name: [seconds, one a round]}.

    Taking turns spreads whatever else the machine does over all contestants, and leaves each with the caches as
    another left them, as in a real decode step. `warmup` rounds (compilation, first touch) are run and dropped.
    """
    if not contestants:
        raise ValueError("contestants is empty: allowed is at least one")
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}: allowed is 1 or more")
    if warmup < 0:
        raise ValueError(f"warmup is {warmup}: allowed is 0 or more")
    names = list(contestants)
    samples = {name: [] for name in names}
    for i in range(warmup + rounds):
        first = i % len(names)
        for name in names[first:] + names[:first]:
            start = time.perf_counter()
            contestants[name]()
            seconds = time.perf_counter() - start
            if i >= warmup:
                samples[name].append(seconds)
    return samples


def speedups(samples, baseline):
    """{name: how many times as fast as `baseline`}: the median over rounds of the ratio within a round.

    Both times of a ratio were taken within one round, so a slow spell of the machine cancels out.
    """
    if baseline not in samples:
        raise ValueError(f"baseline is {baseline!r}: allowed are {', '.join(map(repr, samples))}")
    return {
        name: statistics.median(base / own for base, own in zip(samples[baseline], seconds, strict=True))
        for name, seconds in samples.items()
    }


class ProcessClock:
    """Processor time of this process, which other programs hardly disturb; a wait costs none and is over at once.

    For a `TorchExecutor(model, ..., clock=clock, sleep=clock.sleep)` that computes on one thread.
    """

    def __init__(self):
        self._waited_s = 0.0

    def __call__(self):
        return time.process_time() + self._waited_s

    def sleep(self, seconds):
        self._waited_s += seconds


def machine(*packages):
    """What a reader needs to judge a measurement: processor, cores, system, date, versions of Python and `packages`."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
    }


def streaming_reader(num_bytes):
    """A callable that reads `num_bytes` of float32 once, in order, on all cores: the bound for any kernel that must."""
    import numpy as np
    from numba import get_num_threads, njit, prange

    @njit(fastmath=True)
    def total(values):
        result = np.float32(0)
        for i in range(values.size):
            result += values[i]
        return result

    @njit(parallel=True)
    def read(parts):
        totals = np.empty(parts.shape[0], np.float32)
        for i in prange(parts.shape[0]):
            totals[i] = total(parts[i])
        return totals

    num_parts = get_num_threads()
    parts = np.ones((num_parts, max(1, num_bytes // 4 // num_parts)), np.float32)
    return lambda: read(parts)


def streaming_read_bandwidth(num_bytes=256 * 2**20, rounds=10):
    """Bytes a second that all cores together read from one array, the median of `rounds`."""
    samples = interleave({"read": streaming_reader(num_bytes)}, rounds=rounds)
    return num_bytes / statistics.median(samples["read"])

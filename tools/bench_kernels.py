"""Time the CPU kernels against plain NumPy, as ratios in one run; write bench/kernels.json, print a table.

Paged attention has a bench of its own. Each group of contestants takes turns; each row's speedup is against the first
of its group, the median over rounds of the ratio within a round.

NumPy's matrix products run on one thread: at this size they gain nothing from two, and threads of two libraries that
wait for each other's core by spinning would be timed, not the kernels.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when the libraries are loaded
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import argparse
import statistics

import numba
import numpy as np
from report import write_report

from servelab import measure
from servelab.kernels import cpu, reference


def copy_on_write():
    """64 pairs of blocks of 16 tokens in 8 layers of Qwen3-8B's shape, f16: 32 KiB each of keys and of values."""
    num_layers, num_blocks, num_pairs = 8, 256, 64
    rng = np.random.default_rng(0)
    keys, values = (np.ones((num_layers, num_blocks, 8, 16, 128), np.float16) for _ in range(2))
    block_mapping = rng.permutation(num_blocks)[: 2 * num_pairs].reshape(num_pairs, 2)

    def loop():
        for source, destination in block_mapping:
            for cache in (keys, values):
                cache[:, destination] = cache[:, source]

    moved = 2 * keys.nbytes * num_pairs // num_blocks  # read; as much is written
    return moved, {
        "NumPy, a pair at a time": loop,
        "NumPy, fancy indexing": lambda: reference.copy_blocks(keys, values, block_mapping),
        "Numba": lambda: cpu.copy_blocks(keys, values, block_mapping),
        "streaming read of as many bytes": measure.streaming_reader(moved),
    }


def verification(looked_up=False):
    """16 requests with 4 draft tokens each, a vocabulary of 151,936 (Qwen3)."""
    batch, max_draft, vocab = 16, 4, 151_936
    rng = np.random.default_rng(0)
    target_probs = rng.exponential(size=(batch, max_draft + 1, vocab))
    target_probs /= target_probs.sum(axis=-1, keepdims=True)
    draft_probs = rng.exponential(size=(batch, max_draft, vocab))
    draft_probs /= draft_probs.sum(axis=-1, keepdims=True)
    case = (
        target_probs,
        None if looked_up else draft_probs,
        rng.integers(0, vocab, (batch, max_draft)).astype(np.int32),
        np.full(batch, max_draft, np.int32),
        rng.random((batch, max_draft + 1)),
    )
    expected, actual = reference.verify(*case), cpu.verify(*case)
    if not all(np.array_equal(a, b) for a, b in zip(expected, actual, strict=True)):
        raise SystemExit("verification differs: nothing was timed")
    read = batch * vocab * 8 * (1 if looked_up else 2)  # a row a request of each is summed
    return read, {
        "NumPy": lambda: reference.verify(*case),
        "Numba": lambda: cpu.verify(*case),
        "streaming read of as many bytes": measure.streaming_reader(read),
    }


def low_rank_update(num_adapters, rank):
    """64 rows spread over the adapters at random, on a 4096 x 4096 projection."""
    rows, width = 64, 4096
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, width), dtype=np.float32)
    adapter_ids = rng.integers(0, num_adapters, rows).astype(np.int32)
    lora_a = rng.standard_normal((num_adapters, rank, width), dtype=np.float32)
    lora_b = rng.standard_normal((num_adapters, width, rank), dtype=np.float32)
    case = (x, adapter_ids, lora_a, lora_b, 0.01)
    if np.abs(cpu.lora_update(*case) - reference.lora_update(*case)).max() > 1e-3:
        raise SystemExit("low-rank updates differ: nothing was timed")

    def grouped_in_numpy():
        out = np.zeros((rows, width), np.float32)
        for adapter in np.unique(adapter_ids):
            group = np.flatnonzero(adapter_ids == adapter)
            out[group] = 0.01 * (x[group] @ lora_a[adapter].T @ lora_b[adapter].T)
        return out

    read = len(np.unique(adapter_ids)) * 2 * rank * width * 4  # each adapter once
    return read, {
        "NumPy, a loop over requests": lambda: reference.lora_update(*case),
        "NumPy, grouped": grouped_in_numpy,
        "Numba, grouped": lambda: cpu.lora_update(*case),
    }


GROUPS = {
    "copy-on-write": copy_on_write,
    "verification, drafted": verification,
    "verification, looked up": lambda: verification(looked_up=True),
    "LoRA rank 16, 4 adapters": lambda: low_rank_update(num_adapters=4, rank=16),
    "LoRA rank 64, 4 adapters": lambda: low_rank_update(num_adapters=4, rank=64),
    "LoRA rank 64, 64 adapters": lambda: low_rank_update(num_adapters=64, rank=64),
}


def bench(name, rounds):
    """Time the contestants of a group; print their rows and return them."""
    num_bytes, contestants = GROUPS[name]()
    samples = measure.interleave(contestants, rounds=rounds, warmup=3)
    ratios = measure.speedups(samples, next(iter(contestants)))
    rows = {}
    for contestant, seconds in samples.items():
        median_s = statistics.median(seconds)
        rows[contestant] = {
            "median_s": median_s,
            "bytes_per_s": num_bytes / median_s,
            "speedup": ratios[contestant],
            "samples_s": seconds,
        }
        rate = num_bytes / median_s / 1e9
        print(f"{name:26} {contestant:32} {1e3 * median_s:8.2f} {rate:8.2f} {ratios[contestant]:8.2f}")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    print(f"{'kernel':26} {'contestant':32}       ms     GB/s  speedup")
    machine = measure.machine("numpy", "numba") | {"threads": {"numba": numba.get_num_threads()}}
    results = {name: bench(name, args.rounds) for name in GROUPS}
    write_report("kernels", {"machine": machine, "kernels": results})


if __name__ == "__main__":
    main()

"""Time paged attention on this machine's CPU against PyTorch; write bench/paged_attention.json, print a table.

One decode step of 4 sequences, 32 query heads, 8 KV heads, head_dim 128, blocks of 16 tokens in shuffled order.
The baseline is PyTorch's scaled_dot_product_attention on KV that lies contiguous already, with the query heads of
a group as its query length: each key is then read once a group. (With enable_gqa=True it is 1.5 to 3 times
slower, which would flatter us.)
"""

import argparse
import statistics

import numba
import numpy as np
import torch
from report import write_report
from torch.nn.functional import scaled_dot_product_attention

from servelab import measure
from servelab.kernels import cpu

NUM_SEQS, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE = 4, 32, 8, 128, 16
BASELINE = "torch SDPA, contiguous f32"
READ = "streaming read of the f32 bytes"


def contestants(context):
    """{name: callable} at this context; each holds its own KV, so that none finds another's in the cache."""
    rng = np.random.default_rng(8)
    num_blocks = NUM_SEQS * context // BLOCK_SIZE
    cache_shape = (num_blocks, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM)
    query = rng.standard_normal((NUM_SEQS, NUM_HEADS, HEAD_DIM), dtype=np.float32)
    keys, values = (rng.standard_normal(cache_shape, dtype=np.float32) for _ in range(2))
    keys_f16, values_f16 = keys.astype(np.float16), values.astype(np.float16)
    block_tables = rng.permutation(num_blocks).astype(np.int32).reshape(NUM_SEQS, -1)
    seq_lens = np.full(NUM_SEQS, context, np.int32)

    grouped = torch.from_numpy(query).view(NUM_SEQS, NUM_KV_HEADS, -1, HEAD_DIM)  # the group as query length
    tables = torch.from_numpy(block_tables).long()
    pool_keys, pool_values = torch.from_numpy(keys.copy()), torch.from_numpy(values.copy())
    near_keys, near_values = gather(pool_keys, tables), gather(pool_values, tables)
    half = [tensor.half() for tensor in (grouped, near_keys, near_values)]

    runs = {
        BASELINE: lambda: scaled_dot_product_attention(grouped, near_keys, near_values),
        "torch SDPA, contiguous f16": lambda: scaled_dot_product_attention(*half),
        "gather + torch SDPA, f32": lambda: scaled_dot_product_attention(
            grouped, gather(pool_keys, tables), gather(pool_values, tables)
        ),
        "Numba paged, f32": lambda: cpu.paged_attention(query, keys, values, block_tables, seq_lens),
        "Numba paged, f16": lambda: cpu.paged_attention(query, keys_f16, values_f16, block_tables, seq_lens),
    }
    check_agreement(runs)
    return {**runs, READ: measure.streaming_reader(keys.nbytes + values.nbytes)}


def gather(pool, tables):
    """Copy the blocks of each sequence together: (num_seqs, num_kv_heads, context, head_dim)."""
    blocks = pool[tables]  # (num_seqs, blocks, num_kv_heads, block_size, head_dim)
    return blocks.transpose(1, 2).reshape(NUM_SEQS, NUM_KV_HEADS, -1, HEAD_DIM)


def check_agreement(runs):
    """Refuse to time contestants that do not compute the same thing; float16 rounds KV to 3 digits."""
    expected = np.asarray(runs[BASELINE]()).reshape(NUM_SEQS, NUM_HEADS, HEAD_DIM)
    for name, run in runs.items():
        error = np.abs(np.asarray(run()).reshape(expected.shape) - expected).max()
        if error > (1e-3 if "f16" in name else 1e-5):
            raise SystemExit(f"{name} is off by {error:.1e}: nothing was timed")


def bench(context, rounds):
    """Time all contestants at this context; print their rows and return them."""
    samples = measure.interleave(contestants(context), rounds=rounds, warmup=3)
    ratios = measure.speedups(samples, BASELINE)
    kv_bytes = 2 * NUM_SEQS * context * NUM_KV_HEADS * HEAD_DIM * 4
    rows = {}
    for name, seconds in samples.items():
        median_s = statistics.median(seconds)
        read_bytes = kv_bytes // 2 if "f16" in name else kv_bytes
        rows[name] = {
            "median_s": median_s,
            "kv_bytes_per_s": read_bytes / median_s,
            "speedup": ratios[name],
            "samples_s": seconds,
        }
        print(f"{context:7}  {name:32} {1e3 * median_s:8.2f} {read_bytes / median_s / 1e9:9.1f} {ratios[name]:8.2f}")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--context", type=int, nargs="+", default=[2048, 8192], help="tokens, multiples of 16")
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    print("context  contestant                             ms   KV GB/s  speedup (against contiguous f32 SDPA)")
    machine = measure.machine("numpy", "numba", "torch")
    machine["threads"] = {"numba": numba.get_num_threads(), "torch": torch.get_num_threads()}
    results = {context: bench(context, args.rounds) for context in args.context}
    write_report("paged_attention", {"machine": machine, "baseline": BASELINE, "context": results})


if __name__ == "__main__":
    main()

"""Time paged attention over a quantized KV cache on this machine's CPU; write bench/quantized.json, print a table.

One decode step of 4 sequences, 32 query heads, 8 KV heads, head_dim 128, blocks of 16 tokens in shuffled order. The
baseline is the float32 kernel. "one by one" is the same kernel with a constant trip count, whose conversions the
compiler does not vectorize.
"""

import argparse
import statistics

import numba
import numpy as np
from report import write_report

from servelab import measure
from servelab.kernels import assembly, cpu
from servelab.quantization import dequantize, quantize

NUM_SEQS, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE = 4, 32, 8, 128, 16
BASELINE = "f32"


def contestants(context):
    """{name: (callable, bytes of KV it reads)} at this context; each holds its own KV."""
    rng = np.random.default_rng(8)
    num_blocks = NUM_SEQS * context // BLOCK_SIZE
    cache_shape = (num_blocks, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM)
    query = rng.standard_normal((NUM_SEQS, NUM_HEADS, HEAD_DIM), dtype=np.float32)
    wide = [rng.standard_normal(cache_shape, dtype=np.float32) for _ in range(2)]
    block_tables = rng.permutation(num_blocks).astype(np.int32).reshape(NUM_SEQS, -1)
    seq_lens = np.full(NUM_SEQS, context, np.int32)

    def plain(caches):
        return lambda: cpu.paged_attention(query, *caches, block_tables, seq_lens)

    def quantized(caches, kv_dtype):
        return lambda: cpu.paged_attention_quantized(query, *caches, block_tables, seq_lens, kv_dtype)

    def one_by_one(caches, kv_dtype):
        kernel = cpu.quantized.attention_kernel(HEAD_DIM, kv_dtype, constant_trip_count=True)
        scaled, trip_count = query * np.float32(HEAD_DIM**-0.5), cpu.quantized.TRIP_COUNTS[kv_dtype]
        return lambda: cpu.quantized.run_attention(kernel, scaled, *caches, block_tables, seq_lens, trip_count)

    runs = {}
    for name, dtype in (("f32", np.float32), ("f16", np.float16)):
        caches = [cache.astype(dtype) for cache in wide]
        runs[name] = plain(caches), sum(cache.nbytes for cache in caches)
        check(runs[name][0], plain(wide), name, 1e-3)
    for kv_dtype in ("q8_0", "q4_0"):
        caches = [quantize(cache, kv_dtype) for cache in wide]
        num_bytes = sum(cache.nbytes for cache in caches)
        decoded = plain([dequantize(cache, kv_dtype) for cache in caches])
        runs[kv_dtype] = quantized(caches, kv_dtype), num_bytes
        runs[f"{kv_dtype}, one by one"] = one_by_one(caches, kv_dtype), num_bytes
        for name in (kv_dtype, f"{kv_dtype}, one by one"):
            check(runs[name][0], decoded, name, 1e-5)
    return runs


def check(run, expected, name, tolerance):
    """Refuse to time what does not compute the attention of the values in its cache; float16 rounds to 3 digits."""
    error = np.abs(run() - expected()).max()
    if not error <= tolerance:
        raise SystemExit(f"{name} is off by {error:.1e}: nothing was timed")


def bench(context, rounds):
    """Time all contestants at this context; print their rows and return them."""
    runs = contestants(context)
    samples = measure.interleave({name: run for name, (run, _) in runs.items()}, rounds=rounds, warmup=3)
    ratios = measure.speedups(samples, BASELINE)
    rows = {}
    for name, (_, num_bytes) in runs.items():
        median_s = statistics.median(samples[name])
        fewer_bytes = runs[BASELINE][1] / num_bytes
        rows[name] = {
            "median_s": median_s,
            "kv_bytes": num_bytes,
            "fewer_bytes": fewer_bytes,
            "speedup": ratios[name],
            "samples_s": samples[name],
        }
        print(
            f"{context:7}  {name:18}{num_bytes / 1e6:8.1f}{1e3 * median_s:9.2f}{fewer_bytes:13.2f}{ratios[name]:9.2f}"
        )
    return rows


def conversions():
    """{decoder: how many instructions convert integers to float32}, for both variants of both formats."""
    counts = {}
    for kv_dtype in ("q8_0", "q4_0"):
        stored = quantize(np.ones((BLOCK_SIZE, HEAD_DIM), np.float32), kv_dtype)
        for name, constant in ((kv_dtype, False), (f"{kv_dtype}, one by one", True)):
            decode = cpu.quantized.decoder(kv_dtype, constant_trip_count=constant)
            decode(stored, np.empty((BLOCK_SIZE, HEAD_DIM), np.float32), cpu.quantized.TRIP_COUNTS[kv_dtype])
            found = assembly.conversions(decode)
            counts[name] = {
                "packed": found.packed,
                "scalar": found.scalar,
                "instructions": len(assembly.converting_block(decode)),
            }
            print(f"{name:18} {found.packed:3} packed conversions, {found.scalar:3} scalar")
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--context", type=int, nargs="+", default=[2048, 8192], help="tokens, multiples of 16")
    parser.add_argument("--rounds", type=int, default=30)
    args = parser.parse_args()
    numba.set_num_threads(1)  # with more, a busy machine decides which format wins
    machine = measure.machine("numpy", "numba")
    machine["threads"] = numba.get_num_threads()
    print("context  KV in                  MB       ms  fewer bytes  speedup (both against f32)")
    results = {context: bench(context, args.rounds) for context in args.context}
    report = {"machine": machine, "baseline": BASELINE, "context": results, "conversions": conversions()}
    write_report("quantized", report)


if __name__ == "__main__":
    main()

"""Time the CUDA kernels on this machine's GPU, against what its memory can copy; write bench/gpu.json, print a table.

One decode step of 64 sequences of 8192 tokens, 32 query heads, 8 KV heads, head_dim 128, blocks of 16 tokens in
shuffled order. All arrays lie on the GPU and CUDA events take the time. Each row gives the bytes that must be read and
written, and what share of the measured bandwidth of a plain copy that is. Without a GPU: one line, and exit status 1.
"""

import argparse
import statistics
import subprocess

import numpy as np
import torch
from numba import cuda as numba_cuda
from report import write_report
from torch.nn.functional import scaled_dot_product_attention

from servelab import measure
from servelab.kernels import cuda

BATCH, CONTEXT, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE = 64, 8192, 32, 8, 128, 16
LAUNCHES = 10  # between two events, so that launching one hides behind running another
COPY, SDPA = "device copy", "torch SDPA, contiguous f16"


def contestants():
    """{name: (bytes read and written, callable that launches)}."""
    return {COPY: device_copy(), **attention(), "copy-on-write": copy_on_write()}


def device_copy():
    """What the memory can do: PyTorch's copy of 1 GiB."""
    source = torch.zeros(2**30, dtype=torch.uint8, device="cuda")
    destination = torch.empty_like(source)
    return 2 * source.nbytes, lambda: destination.copy_(source)


def attention():
    """One entry a KV format, each with its own bytes, and SDPA on KV that lies contiguous."""
    num_blocks = BATCH * CONTEXT // BLOCK_SIZE
    torch.manual_seed(8)
    shape = (num_blocks, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM)
    query = torch.randn(BATCH, NUM_HEADS, HEAD_DIM, device="cuda")
    keys, values = (torch.randn(shape, dtype=torch.float16, device="cuda") for _ in range(2))
    tables = torch.randperm(num_blocks, device="cuda").view(BATCH, -1)
    seq_lens = torch.full((BATCH,), CONTEXT, dtype=torch.int32, device="cuda")
    out = torch.empty_like(query)

    grouped = query.view(BATCH, NUM_KV_HEADS, -1, HEAD_DIM).half()  # the group as query length: keys are read once
    near_keys, near_values = gather(keys, tables), gather(values, tables)
    num_bytes = keys.nbytes + values.nbytes
    paged = launcher(
        numba_cuda.jit(cuda.attention.kernel_source(HEAD_DIM)),
        ((BATCH, NUM_HEADS), HEAD_DIM),
        (query, keys, values, tables.int(), seq_lens, np.float32(HEAD_DIM**-0.5), out),
    )
    quantized_keys, quantized_values = q8_0_cache(keys), q8_0_cache(values)
    views = [
        view
        for cache in (quantized_keys, quantized_values)
        for view in cuda.quantized.typed_views(numba_cuda.as_cuda_array(cache), "q8_0")
    ]
    group = NUM_HEADS // NUM_KV_HEADS
    paged_q8_0 = launcher(
        numba_cuda.jit(cuda.quantized.kernel_source(HEAD_DIM, group, "q8_0")),
        ((BATCH, NUM_HEADS // group), HEAD_DIM),
        (query, *views, tables.int(), seq_lens, np.float32(HEAD_DIM**-0.5), out),
    )
    expected = scaled_dot_product_attention(grouped, near_keys, near_values).reshape(out.shape)
    # float16 keeps 3 digits; q8_0 rounds to 1/254 of the largest of 32 values.
    for name, launch, tolerance in (("f16", paged, 2e-3), ("q8_0", paged_q8_0, 1e-2)):
        launch()
        error = (out - expected).abs().max().item()
        if not error <= tolerance:
            raise SystemExit(f"paged attention of {name} is off by {error:.1e}: nothing was timed")
    return {
        SDPA: (num_bytes, lambda: scaled_dot_product_attention(grouped, near_keys, near_values)),
        "Numba-CUDA paged, f16": (num_bytes, paged),
        "Numba-CUDA paged, q8_0": (quantized_keys.nbytes + quantized_values.nbytes, paged_q8_0),
    }


def q8_0_cache(values):
    """float16 values (..., head_dim) as q8_0 blocks, (..., head_dim / 32 * 34) uint8: a scale and 32 codes each."""
    groups = values.float().unflatten(-1, (-1, 32))  # (..., head_dim / 32, 32)
    scales = groups.abs().amax(-1, keepdim=True) / 127
    codes = torch.where(scales > 0, groups / scales, 0).round().to(torch.int8)
    blocks = torch.cat([scales.half().view(torch.uint8), codes.view(torch.uint8)], dim=-1)  # (..., 34)
    return blocks.flatten(-2).contiguous()


def gather(pool, tables):
    """Copy the blocks of each sequence together: (batch, num_kv_heads, context, head_dim)."""
    blocks = pool[tables]  # (batch, blocks, num_kv_heads, block_size, head_dim)
    return blocks.transpose(1, 2).reshape(BATCH, NUM_KV_HEADS, -1, HEAD_DIM)


def copy_on_write():
    """1024 pairs of blocks in 8 layers: 512 MiB to read and as much to write."""
    num_layers, num_blocks, num_pairs = 8, 4096, 1024
    words = NUM_KV_HEADS * BLOCK_SIZE * HEAD_DIM * 2 // 8  # of 8 bytes, f16
    keys, values = (torch.ones(num_layers, num_blocks, words, dtype=torch.int64, device="cuda") for _ in range(2))
    block_mapping = torch.randperm(num_blocks, device="cuda")[: 2 * num_pairs].view(num_pairs, 2)
    num_bytes = 2 * (keys.nbytes + values.nbytes) * num_pairs // num_blocks
    grid = cuda.blocks.grid(num_pairs, num_layers)
    kernel = numba_cuda.jit(cuda.blocks.kernel)
    return num_bytes, launcher(kernel, (grid, cuda.blocks.THREADS), (keys, values, block_mapping))


def launcher(kernel, launch, arguments):
    """A callable that launches a Numba kernel on PyTorch's tensors, in the stream that both use by default."""
    arguments = [numba_cuda.as_cuda_array(a) if isinstance(a, torch.Tensor) else a for a in arguments]
    configured = kernel[launch]
    return lambda: configured(*arguments)


def seconds(launch):
    """Seconds of one launch, the mean of LAUNCHES in a row."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(LAUNCHES):
        launch()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / LAUNCHES  # CUDA gives milliseconds


def take_turns(launches, rounds, warmup=2):
    """{name: [seconds, one a round]}, in an order that rotates, as `measure.interleave` does with the CPU's clock."""
    names, samples = list(launches), {name: [] for name in launches}
    for i in range(warmup + rounds):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            sample = seconds(launches[name])
            if i >= warmup:
                samples[name].append(sample)
    return samples


def hardware():
    """The GPU, its driver, and what else a reader needs to judge the numbers."""
    properties = torch.cuda.get_device_properties(0)
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return measure.machine("numpy", "numba", "numba-cuda", "torch") | {
        "gpu": properties.name,
        "gpu_memory_bytes": properties.total_memory,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "driver": subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0],
        "torch_cuda": torch.version.cuda,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    if not (torch.cuda.is_available() and numba_cuda.is_available()):
        raise SystemExit("No CUDA GPU that PyTorch and Numba can use: nothing was measured.")
    entries = contestants()
    samples = take_turns({name: launch for name, (_, launch) in entries.items()}, args.rounds)
    speedup = measure.speedups(samples, SDPA)
    medians = {name: statistics.median(times) for name, times in samples.items()}
    copy_bytes_per_s = entries[COPY][0] / medians[COPY]
    print(f"{'contestant':28}       ms     GB/s  of copy  against SDPA")
    results = {}
    for name, (num_bytes, _) in entries.items():
        rate = num_bytes / medians[name]
        results[name] = {
            "median_s": medians[name],
            "bytes_per_s": rate,
            "of_copy_bandwidth": rate / copy_bytes_per_s,
            "speedup_over_sdpa": speedup[name] if name.startswith("Numba-CUDA paged") else None,
            "samples_s": samples[name],
        }
        ratio = f"{speedup[name]:12.2f}" if results[name]["speedup_over_sdpa"] else ""
        share = rate / copy_bytes_per_s
        print(f"{name:28} {1e3 * medians[name]:8.3f} {rate / 1e9:8.1f} {share:8.2f}  {ratio}")
    write_report("gpu", {"machine": hardware(), "results": results})


if __name__ == "__main__":
    main()

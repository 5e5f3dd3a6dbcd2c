"""Inputs for the kernels that write and read quantized KV, with everything that must not be read made poisonous."""

import kernel_cases
import numpy as np

from servelab.quantization import FORMATS, quantize

KV_DTYPES = ["q8_0", "q4_0"]


def attention_case(seed, kv_dtype, **options):
    """Arguments of `paged_attention_quantized`: `kernel_cases.random_case`, whose unused slots now decode to NaN."""
    case = kernel_cases.random_case(seed, **options)
    for name in ("key_cache", "value_cache"):
        case[name] = quantize(case[name], kv_dtype)
    return case | {"kv_dtype": kv_dtype}


def write_case(seed, kv_dtype, *, num_tokens=5, num_kv_heads=2, head_dim=64, num_blocks=4, block_size=3):
    """Arguments of `write_quantized`: values of many magnitudes, slots in any order, caches full of something else."""
    rng = np.random.default_rng(seed)
    shape = (num_tokens, num_kv_heads, head_dim)
    magnitudes = 10.0 ** rng.integers(-6, 6, (num_tokens, num_kv_heads, 1))
    row_bytes = head_dim // 32 * FORMATS[kv_dtype].block_bytes
    cache_shape = (num_blocks, num_kv_heads, block_size, row_bytes)
    return {
        "key": (rng.standard_normal(shape) * magnitudes).astype(np.float32),
        "value": (rng.standard_normal(shape) * magnitudes).astype(np.float32),
        "key_cache": rng.integers(0, 256, cache_shape, np.uint8),
        "value_cache": rng.integers(0, 256, cache_shape, np.uint8),
        "slot_mapping": rng.permutation(num_blocks * block_size)[:num_tokens],
        "kv_dtype": kv_dtype,
    }


def _block(*first, magnitude=1.0):
    values = np.random.default_rng(32).standard_normal(32).astype(np.float32)
    values[: len(first)] = first
    return values * np.float32(magnitude)


# Blocks of 32 at the edges of the formats; FINITE and infinite ones have the codec's bytes in every kernel.
EDGES = np.stack(
    [
        np.zeros(32, np.float32),
        np.full(32, -0.0, np.float32),
        np.full(32, 0.37, np.float32),
        _block(127, *np.arange(-15, 16) / 2),  # halves of a step
        _block(127, 0.49999997, -0.49999997, 1.4999999, 2.5, -2.5),
        _block(8, -8, 0.5, -0.5, 7.5, -7.5),
        _block(65504 * 127, -65504 * 8, 1, 3e5),  # huge: the scale at the end of float16
        _block(3.4e38, -3.4e38),  # the scale infinite
        _block(magnitude=1e-5),  # tiny: the scale subnormal
        _block(magnitude=1e-9),  # the scale zero
        _block(magnitude=1e-39),  # its inverse infinite
        np.full(32, 1e-45, np.float32),
        _block(np.inf, 2),
        _block(1, -np.inf),
        _block(np.inf, -np.inf),
    ]
)
NANS = np.stack([_block(np.nan, 1), _block(1, -np.nan), _block(np.nan, np.inf), np.full(32, np.nan, np.float32)])


def edge_case(kv_dtype, blocks):
    """Arguments of `write_quantized` that store these blocks, (n, 32) float32: a token and a head each."""
    case = write_case(0, kv_dtype, num_tokens=len(blocks), num_kv_heads=1, head_dim=32, num_blocks=len(blocks))
    return case | {"key": blocks[:, None].copy(), "value": blocks[::-1, None].copy()}


# Every block size, group, head_dim and format at least once; small, as the simulator runs threads in Python.
CUDA_CASES = {
    "length 1": {"kv_dtype": "q8_0", "seq_lens": (1,), "num_kv_heads": 1, "group": 1},
    "full last block": {"kv_dtype": "q4_0", "seq_lens": (16, 32), "num_kv_heads": 1, "group": 1},
    "past a tile": {"kv_dtype": "q8_0", "seq_lens": (33, 7), "num_kv_heads": 2, "group": 2, "block_size": 5},
    "blocks of 1": {"kv_dtype": "q4_0", "seq_lens": (3,), "num_kv_heads": 1, "group": 4, "block_size": 1},
    "head_dim 128": {"kv_dtype": "q8_0", "seq_lens": (5,), "num_kv_heads": 1, "group": 8, "head_dim": 128},
    "head_dim 128, q4_0": {"kv_dtype": "q4_0", "seq_lens": (34,), "num_kv_heads": 1, "group": 2, "head_dim": 128},
    "group past a thread block": {"kv_dtype": "q8_0", "seq_lens": (3,), "num_kv_heads": 2, "group": 12},
    "blocks past a tile": {"kv_dtype": "q4_0", "seq_lens": (41,), "num_kv_heads": 1, "group": 3, "block_size": 40},
}

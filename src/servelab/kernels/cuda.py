"""Paged attention in Numba-CUDA: the same source on a GPU and, at toy size, on Numba's simulator.

One thread block serves one query head of one sequence, with one thread an element of the head. It takes the
tokens in tiles of 32, whatever the block size, and keeps a running maximum, sum and output (online softmax).
The query heads of a group read the same keys; the GPU's L2 cache serves all but the first.
"""

import functools
import math

import numpy as np
from numba import config, cuda, float32

from ._checks import check_arguments

_TILE = 32  # tokens


def paged_attention(query, key_cache, value_cache, block_tables, seq_lens, scale=None):
    """Attention of one new token a sequence over its cached tokens, read through a block table.

    - `query`: (num_seqs, num_heads, head_dim) float32; head_dim 64 or 128.
    - `key_cache`, `value_cache`: (num_blocks, num_kv_heads, block_size, head_dim), C-contiguous, both float32 or
      both float16 (the layout that vLLM calls HND). Query head h reads KV head h // (num_heads // num_kv_heads).
    - `block_tables`: (num_seqs, max_blocks_per_seq) int32. Entry i of a row is the physical block of tokens
      i * block_size to (i + 1) * block_size - 1; entries past the last needed block are ignored.
    - `seq_lens`: (num_seqs,) int32, in tokens, the newest included: 1 to max_blocks_per_seq * block_size.
    - `scale`: what multiplies the scores; 1 / sqrt(head_dim) by default.

    Returns (num_seqs, num_heads, head_dim) float32. Arguments and result are NumPy arrays: each call copies them
    to the GPU and back, so time the kernel with a profiler, not around this call. A bad argument raises ValueError
    naming the argument, its value and what is allowed; no GPU and no simulator raises RuntimeError; both before
    anything runs.

    Source: PagedAttention, Kwon et al. 2023, arXiv:2309.06180, section 4.1.
    """
    scale = check_arguments(query, key_cache, value_cache, block_tables, seq_lens, scale, compiled=True)
    if not is_available():
        raise RuntimeError(
            "no CUDA GPU found: set NUMBA_ENABLE_CUDASIM=1 before Python starts to run this kernel on the simulator"
        )
    num_seqs, num_heads, head_dim = query.shape
    inputs = [np.ascontiguousarray(array) for array in (query, key_cache, value_cache, block_tables, seq_lens)]
    out = cuda.device_array(query.shape, np.float32)
    kernel = cuda.jit(kernel_source(head_dim))
    return out.copy_to_host()


def is_available():
    """Whether `paged_attention` can run here: on a GPU, or on the simulator."""
    return cuda.is_available()


def is_simulator():
    """Whether Numba runs CUDA kernels on its simulator, in Python (NUMBA_ENABLE_CUDASIM=1 before Python started)."""
    return bool(config.ENABLE_CUDASIM)

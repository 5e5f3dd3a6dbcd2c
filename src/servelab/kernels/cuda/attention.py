"""Paged attention in Numba-CUDA: the same source on a GPU and, at toy size, on Numba's simulator.

One thread block serves one query head of one sequence, with one thread an element of the head. It takes the
tokens in tiles of 32, whatever the block size, and keeps a running maximum, sum and output (online softmax).
The query heads of a group read the same keys; the GPU's L2 cache serves all but the first.
"""

import functools
import math

import numpy as np
from numba import cuda, float32

from servelab.kernels.checks.attention import check_arguments
from servelab.kernels.cuda.device import require_device

_TILE = 32  # tokens


def paged_attention(query, key_cache, value_cache, block_tables, seq_lens, scale=None):
    """One decode step of attention over cached tokens, read through a block table.

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
    require_device()
    num_seqs, num_heads, head_dim = query.shape
    inputs = [np.ascontiguousarray(array) for array in (query, key_cache, value_cache, block_tables, seq_lens)]
    out = np.empty(query.shape, np.float32)
    _compiled(head_dim)[(num_seqs, num_heads), head_dim](*inputs, np.float32(scale), out)
    return out


@functools.cache
def _compiled(head_dim):
    return cuda.jit(kernel_source(head_dim))


def kernel_source(head_dim):
    """The kernel as a Python function: the sizes of shared arrays must be constants, so one for each head_dim."""
    slices = head_dim // _TILE  # a token's dot product is shared by this many threads
    slice_width = head_dim // slices
    padded = head_dim + 1  # an odd row length: 32 threads reading one column meet 32 different banks

    def kernel(query, key_cache, value_cache, block_tables, seq_lens, scale, out):
        # One shared array a line: the simulator tells them apart by line.
        query_shared = cuda.shared.array(head_dim, float32)
        keys = cuda.shared.array((_TILE, padded), float32)
        partial = cuda.shared.array((slices, _TILE), float32)
        scores = cuda.shared.array(_TILE, float32)
        weights = cuda.shared.array(_TILE, float32)

        seq, head, thread = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
        kv_head = head // (query.shape[1] // key_cache.shape[1])
        block_size = key_cache.shape[2]
        seq_len = seq_lens[seq]
        query_shared[thread] = query[seq, head, thread] * scale
        running_max = float32(-math.inf)
        running_sum = float32(0)
        result = float32(0)  # this thread's element of the output

        for start in range(0, seq_len, _TILE):
            num_tokens = min(_TILE, seq_len - start)
            for t in range(num_tokens):
                block = block_tables[seq, (start + t) // block_size]
                keys[t, thread] = float32(key_cache[block, kv_head, (start + t) % block_size, thread])
            cuda.syncthreads()  # keys (and the query) are there for all threads

            token, part = thread % _TILE, thread // _TILE
            dot = float32(0)
            if token < num_tokens:
                for d in range(part * slice_width, (part + 1) * slice_width):
                    dot += query_shared[d] * keys[token, d]
            partial[part, token] = dot
            cuda.syncthreads()  # every part of every dot product is there

            if thread < num_tokens:
                score = float32(0)
                for i in range(slices):
                    score += partial[i, thread]
                scores[thread] = score
            cuda.syncthreads()  # the tile's scores are there

            new_max = running_max
            for t in range(num_tokens):  # all threads find the same maximum: cheaper than sharing it
                new_max = max(new_max, scores[t])
            if thread < num_tokens:
                weights[thread] = math.exp(scores[thread] - new_max)
            cuda.syncthreads()  # the tile's weights are there

            rescale = math.exp(running_max - new_max)
            running_max = new_max
            running_sum *= rescale
            result *= rescale
            for t in range(num_tokens):
                block = block_tables[seq, (start + t) // block_size]
                value = float32(value_cache[block, kv_head, (start + t) % block_size, thread])
                running_sum += weights[t]
                result += weights[t] * value

        out[seq, head, thread] = result / running_sum

    return kernel

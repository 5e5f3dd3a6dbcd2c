"""Quantized KV in Numba-CUDA: the same source on a GPU and, at toy size, on Numba's simulator.

Writing: one thread block, of one warp, serves one block of 32 values. Reading: one thread block serves the query heads
of one KV head, eight of them at most, so that a key or value is decoded once for all; else it is the kernel of
attention.py. A long sequence is not split: a small batch of few KV heads leaves most of a large GPU idle.
"""

import functools
import math

import numpy as np
from numba import cuda, float32, int32

from servelab.kernels.checks.quantized import check_attention, check_write
from servelab.kernels.cuda.device import require_device

_TILE = 32  # tokens
_MAX_HEADS = 8  # of a thread block: their queries and scores take shared memory, their results registers
_CODE_DTYPES = {"q8_0": np.int8, "q4_0": np.uint8}


def write_quantized(key, value, key_cache, value_cache, slot_mapping, kv_dtype):
    """Quantize the keys and values of new tokens into their slots of a paged cache.

    - `key`, `value`: (num_tokens, num_kv_heads, head_dim) float32; head_dim a multiple of 32.
    - `key_cache`, `value_cache`: (num_blocks, num_kv_heads, block_size, bytes_per_head) uint8, C-contiguous;
      bytes_per_head is head_dim / 32 * 34 (q8_0) or * 18 (q4_0). Changed in place: these slots, and nothing else.
    - `slot_mapping`: (num_tokens,) int64, each token's slot, block * block_size + offset in the block; no slot twice.
    - `kv_dtype`: "q8_0" or "q4_0".

    Returns None. What is stored are the bytes of `quantization.quantize`, which says what becomes of values that the
    format cannot hold; a scale that is NaN is the GPU's own NaN. Arguments are NumPy arrays: each call copies them to
    the GPU and the caches back. A bad argument raises ValueError naming the argument, its value and what is allowed;
    no GPU and no simulator raises RuntimeError; both before anything is changed.

    Source: block_q8_0 and block_q4_0 of llama.cpp's ggml-common.h; slots as in vLLM's reshape_and_cache.
    """
    check_write(key, value, key_cache, value_cache, slot_mapping, kv_dtype)
    require_device()
    num_tokens, num_kv_heads, head_dim = key.shape
    write = _compiled_writer(kv_dtype)
    slots = np.ascontiguousarray(slot_mapping)
    for new, cache in ((key, key_cache), (value, value_cache)):
        on_device = cuda.to_device(cache)
        write[(num_tokens, num_kv_heads, head_dim // 32), 32](
            np.ascontiguousarray(new), *typed_views(on_device, kv_dtype), slots
        )
        on_device.copy_to_host(cache)


def paged_attention_quantized(query, key_cache, value_cache, block_tables, seq_lens, kv_dtype, scale=None):
    """Attention of one new token a sequence over its quantized cached tokens, read through a block table.

    - `query`: (num_seqs, num_heads, head_dim) float32; head_dim 64 or 128.
    - `key_cache`, `value_cache`: (num_blocks, num_kv_heads, block_size, bytes_per_head) uint8, C-contiguous, as
      `write_quantized` fills them. Query head h reads KV head h // (num_heads // num_kv_heads).
    - `block_tables`: (num_seqs, max_blocks_per_seq) int32. Entry i of a row is the physical block of tokens
      i * block_size to (i + 1) * block_size - 1; entries past the last needed block are ignored.
    - `seq_lens`: (num_seqs,) int32, in tokens, the newest included: 1 to max_blocks_per_seq * block_size.
    - `kv_dtype`: "q8_0" or "q4_0".
    - `scale`: what multiplies the scores; 1 / sqrt(head_dim) by default.

    Returns (num_seqs, num_heads, head_dim) float32: what `paged_attention` gives for the decoded values. Arguments and
    result are NumPy arrays: each call copies them to the GPU and back, so time the kernel with a profiler, not around
    this call. A bad argument raises ValueError naming the argument, its value and what is allowed; no GPU and no
    simulator raises RuntimeError; both before anything runs.

    Source: PagedAttention, Kwon et al. 2023, arXiv:2309.06180, section 4.1; blocks as in llama.cpp's ggml-common.h.
    """
    scale = check_attention(query, key_cache, value_cache, block_tables, seq_lens, kv_dtype, scale, compiled=True)
    require_device()
    num_seqs, num_heads, head_dim = query.shape
    group = num_heads // key_cache.shape[1]
    heads = max(size for size in range(1, _MAX_HEADS + 1) if group % size == 0)
    kernel = _compiled(head_dim, heads, kv_dtype)
    caches = [view for cache in (key_cache, value_cache) for view in typed_views(cuda.to_device(cache), kv_dtype)]
    query, block_tables, seq_lens = map(np.ascontiguousarray, (query, block_tables, seq_lens))
    out = np.empty(query.shape, np.float32)
    kernel[(num_seqs, num_heads // heads), head_dim](query, *caches, block_tables, seq_lens, np.float32(scale), out)
    return out


def typed_views(cache, kv_dtype):
    """One buffer on the GPU, seen twice: as codes, and as float16, of which every 17th (q4_0: 9th) is a scale."""
    return cache.view(_CODE_DTYPES[kv_dtype]), cache.view(np.float16)


@functools.cache
def _compiled(head_dim, heads, kv_dtype):
    return cuda.jit(kernel_source(head_dim, heads, kv_dtype))


@functools.cache
def _compiled_writer(kv_dtype):
    return cuda.jit(writer_source(kv_dtype))


def kernel_source(head_dim, heads, kv_dtype):
    """The kernel as a Python function, one for each head_dim, number of heads in a thread block, and format."""
    slices = head_dim // _TILE  # a token's dot products are shared by this many threads
    slice_width = head_dim // slices
    padded = head_dim + 1  # an odd row length: 32 threads reading one column meet 32 different banks
    read = {"q8_0": _read_q8_0, "q4_0": _read_q4_0}[kv_dtype]

    def kernel(query, keys_coded, key_scales, values_coded, value_scales, block_tables, seq_lens, scale, out):
        # One shared or local array a line: the simulator tells them apart by line.
        query_shared = cuda.shared.array((heads, head_dim), float32)
        keys = cuda.shared.array((_TILE, padded), float32)
        partial = cuda.shared.array((slices, heads, _TILE), float32)
        scores = cuda.shared.array((heads, _TILE), float32)
        weights = cuda.shared.array((heads, _TILE), float32)
        running_max = cuda.local.array(heads, float32)
        running_sum = cuda.local.array(heads, float32)
        result = cuda.local.array(heads, float32)  # this thread's element of each head's output

        seq, first_head, thread = cuda.blockIdx.x, cuda.blockIdx.y * heads, cuda.threadIdx.x
        kv_head = first_head // (query.shape[1] // keys_coded.shape[1])
        block_size = keys_coded.shape[2]
        seq_len = seq_lens[seq]
        for h in range(heads):
            query_shared[h, thread] = query[seq, first_head + h, thread] * scale
            running_max[h] = float32(-math.inf)
            running_sum[h] = float32(0)
            result[h] = float32(0)

        for start in range(0, seq_len, _TILE):
            num_tokens = min(_TILE, seq_len - start)
            for t in range(num_tokens):
                block = block_tables[seq, (start + t) // block_size]
                keys[t, thread] = read(keys_coded, key_scales, block, kv_head, (start + t) % block_size, thread)
            cuda.syncthreads()  # keys (and queries) are there for all threads

            token, part = thread % _TILE, thread // _TILE
            for h in range(heads):
                dot = float32(0)
                if token < num_tokens:
                    for d in range(part * slice_width, (part + 1) * slice_width):
                        dot += query_shared[h, d] * keys[token, d]
                partial[part, h, token] = dot
            cuda.syncthreads()  # every part of every dot product is there

            for h in range(part, heads, slices):
                score = float32(0)
                for i in range(slices):
                    score += partial[i, h, token]
                scores[h, token] = score
            cuda.syncthreads()  # the tile's scores are there

            for h in range(heads):
                new_max = running_max[h]
                for t in range(num_tokens):  # all threads find the same maximum: cheaper than sharing it
                    new_max = max(new_max, scores[h, t])
                if thread < num_tokens:
                    weights[h, thread] = math.exp(scores[h, thread] - new_max)
                rescale = math.exp(running_max[h] - new_max)
                running_max[h] = new_max
                running_sum[h] *= rescale
                result[h] *= rescale
            cuda.syncthreads()  # the tile's weights are there

            for t in range(num_tokens):
                block = block_tables[seq, (start + t) // block_size]
                value = read(values_coded, value_scales, block, kv_head, (start + t) % block_size, thread)
                for h in range(heads):
                    running_sum[h] += weights[h, t]
                    result[h] += weights[h, t] * value

        for h in range(heads):
            out[seq, first_head + h, thread] = result[h] / running_sum[h]

    return kernel


@cuda.jit(device=True, inline="always")
def _read_q8_0(codes, scales, block, kv_head, offset, element):
    i = element // 32
    scale = float32(scales[block, kv_head, offset, i * 17])
    return float32(codes[block, kv_head, offset, i * 34 + 2 + element % 32]) * scale


@cuda.jit(device=True, inline="always")
def _read_q4_0(codes, scales, block, kv_head, offset, element):
    i, within = element // 32, element % 32
    scale = float32(scales[block, kv_head, offset, i * 9])
    pair = int32(codes[block, kv_head, offset, i * 18 + 2 + within % 16])
    code = pair & 15 if within < 16 else pair >> 4
    return float32(int32(code - 8)) * scale  # in 64 bits GPUs convert at a fraction of the speed


def writer_source(kv_dtype):
    """The kernel of `write_quantized` as a Python function: each thread finds the block's scale and its own code."""
    block_bytes = {"q8_0": 34, "q4_0": 18}[kv_dtype]

    def write(new, coded, scales, slot_mapping):
        values = cuda.shared.array(32, float32)
        codes = cuda.shared.array(32, int32)

        token, kv_head, i, thread = cuda.blockIdx.x, cuda.blockIdx.y, cuda.blockIdx.z, cuda.threadIdx.x
        block, offset = slot_mapping[token] // coded.shape[2], slot_mapping[token] % coded.shape[2]
        first = i * block_bytes
        values[thread] = new[token, kv_head, i * 32 + thread]
        cuda.syncthreads()  # all values are there
        largest = values[0]  # of the largest magnitude, with its sign; the first NaN, if there is one
        for j in range(1, 32):
            if not math.isnan(largest) and (math.isnan(values[j]) or abs(values[j]) > abs(largest)):
                largest = values[j]
        scale = abs(largest) / float32(127) if block_bytes == 34 else largest / float32(-8)
        inverse = float32(0) if scale == 0 else float32(1) / scale
        # The product must be rounded before 8.5 is added: a fused multiply-add of zero cannot be fused further.
        code = cuda.fma(values[thread], inverse, float32(0))

        if block_bytes == 34:
            coded[block, kv_head, offset, first + 2 + thread] = _round_half_away(code)
        else:
            shifted = code + float32(8.5)
            codes[thread] = min(max(int32(shifted), 0), 15) if math.isfinite(shifted) else 0
            cuda.syncthreads()  # all codes are there
            if thread < 16:
                coded[block, kv_head, offset, first + 2 + thread] = codes[thread] | codes[thread + 16] << 4
        if thread == 0:
            scales[block, kv_head, offset, first // 2] = scale

    return write


@cuda.jit(device=True, inline="always")
def _round_half_away(code):
    if not math.isfinite(code):
        return int32(0)
    whole = int32(code)
    if abs(code - float32(whole)) >= float32(0.5):
        whole += 1 if code > 0 else -1
    return whole

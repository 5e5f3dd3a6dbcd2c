"""Quantized KV in Numba: encodes new tokens in place, and attends to the cache with each block decoded once a group.

A block of the cache is decoded into a buffer that stays in the L1 cache, for all query heads that read it. So few bytes
come from memory then that computing sets the pace: q8_0 reads 3.8 times fewer bytes than float32 and is far from 3.8
times as fast, q4_0 reads half of q8_0's and is no faster. What they buy on a CPU is room for more tokens.
"""

import functools
import math

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.extending import intrinsic

from servelab.kernels.checks.quantized import BLOCK_VALUES, check_attention, check_write
from servelab.kernels.cpu.attention import _FASTMATH, _exp, _half_to_float, _inner, _prefetch
from servelab.quantization import FORMATS

TRIP_COUNTS = {"q8_0": BLOCK_VALUES, "q4_0": BLOCK_VALUES // 2}  # codes of a block, in bytes
_CACHE_LINE_BYTES = 64
# Encoding must give the codec's bytes: no fast math. A division by 0 gives an infinity, as in NumPy.
_encoder = njit(error_model="numpy", forceinline=True)


def write_quantized(key, value, key_cache, value_cache, slot_mapping, kv_dtype):
    """Quantize the keys and values of new tokens into their slots of a paged cache.

    - `key`, `value`: (num_tokens, num_kv_heads, head_dim) float32; head_dim a multiple of 32.
    - `key_cache`, `value_cache`: (num_blocks, num_kv_heads, block_size, bytes_per_head) uint8, C-contiguous;
      bytes_per_head is head_dim / 32 * 34 (q8_0) or * 18 (q4_0). Changed in place: these slots, and nothing else.
    - `slot_mapping`: (num_tokens,) int64, each token's slot, block * block_size + offset in the block; no slot twice.
    - `kv_dtype`: "q8_0" or "q4_0".

    Returns None. What is stored are the bytes of `quantization.quantize`, which says what becomes of values that the
    format cannot hold; the payload of a scale that is NaN may differ. The first call for a format compiles for a few
    seconds. A bad argument raises ValueError naming the argument, its value and what is allowed, before anything is
    changed.

    Source: block_q8_0 and block_q4_0 of llama.cpp's ggml-common.h; slots as in vLLM's reshape_and_cache.
    """
    check_write(key, value, key_cache, value_cache, slot_mapping, kv_dtype)
    write = _writer(kv_dtype)
    for new, cache in ((key, key_cache), (value, value_cache)):
        write(np.ascontiguousarray(new), cache, cache.view(np.uint16), np.ascontiguousarray(slot_mapping))


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

    Returns (num_seqs, num_heads, head_dim) float32: what `paged_attention` gives for the decoded values. The first
    call for a head_dim and format compiles for a few seconds. A bad argument raises ValueError naming the argument,
    its value and what is allowed, before anything runs.

    Source: PagedAttention, Kwon et al. 2023, arXiv:2309.06180, section 4.1; blocks as in llama.cpp's ggml-common.h.
    """
    scale = check_attention(query, key_cache, value_cache, block_tables, seq_lens, kv_dtype, scale, compiled=True)
    kernel = attention_kernel(query.shape[2], kv_dtype)
    return run_attention(
        kernel, query * np.float32(scale), key_cache, value_cache, block_tables, seq_lens, TRIP_COUNTS[kv_dtype]
    )


def run_attention(kernel, query, key_cache, value_cache, block_tables, seq_lens, trip_count):
    """Call a compiled kernel on checked arguments, the query already scaled; return its new output array."""
    tables, lengths = np.ascontiguousarray(block_tables), np.ascontiguousarray(seq_lens)
    out = np.zeros(query.shape, np.float32)
    kernel(np.ascontiguousarray(query), key_cache, value_cache, tables, lengths, trip_count, out)
    return out


@functools.cache
def attention_kernel(head_dim, kv_dtype, constant_trip_count=False):
    """The compiled kernel of `paged_attention_quantized`; with `constant_trip_count`, the slow one: see `decoder`."""
    return compile_attention(head_dim, decoder(kv_dtype, constant_trip_count))


@functools.cache
def decoder(kv_dtype, constant_trip_count=False):
    """A compiled decode(stored, rows, trip_count): tokens of one head, (num_tokens, bytes) uint8, to float32 rows.

    `trip_count` is the length of the innermost loop: 32 for q8_0, 16 for q4_0. It is an argument because LLVM unrolls
    a loop of constant length before it looks for loops to vectorize, and then converts the codes one by one; the rows'
    bytes lie 34 or 18 apart, so that nothing later puts the pieces together again. `constant_trip_count` compiles
    that slow code, to be looked at.
    """
    block_halves = FORMATS[kv_dtype].block_bytes // 2  # a block is an odd number of 16-bit words, the first its scale

    @_inner
    def decode_q8_0(stored, rows, trip_count):
        codes, scales = stored.view(np.int8), stored.view(np.uint16)
        if constant_trip_count:
            trip_count = 32
        for token in range(stored.shape[0]):
            for block in range(rows.shape[1] // 32):
                scale = _half_to_float(scales[token, block * block_halves])
                for i in range(trip_count):
                    rows[token, block * 32 + i] = np.float32(codes[token, block * 34 + 2 + i]) * scale

    @_inner
    def decode_q4_0(stored, rows, trip_count):
        scales = stored.view(np.uint16)
        if constant_trip_count:
            trip_count = 16
        for token in range(stored.shape[0]):
            for block in range(rows.shape[1] // 32):
                scale = _half_to_float(scales[token, block * block_halves])
                for i in range(trip_count):  # int32 throughout: Numba would widen to 64 bits, half as many at a time
                    pair = np.int32(stored[token, block * 18 + 2 + i])
                    low, high = np.int32(pair & np.int32(15)), np.int32(pair >> np.int32(4))
                    rows[token, block * 32 + i] = np.float32(np.int32(low - np.int32(8))) * scale
                    rows[token, block * 32 + 16 + i] = np.float32(np.int32(high - np.int32(8))) * scale

    return {"q8_0": decode_q8_0, "q4_0": decode_q4_0}[kv_dtype]


def compile_attention(head_dim, decode):
    """Paged attention over bytes that `decode(stored, rows, trip_count)` turns into float32, for one head_dim.

    Tokens are taken in fours. A last block that does not end on a four is filled up with values of 0 and weight 0.
    """

    @_inner
    def prefetch_row(row):
        for i in range(0, row.shape[0], _CACHE_LINE_BYTES):
            _prefetch(row[i:])

    @_inner
    def dot(query, key):
        score = np.float32(0)
        for d in range(head_dim):
            score += query[d] * key[d]
        return score

    @_inner
    def add_4(out, weights, values):
        weight0, weight1, weight2, weight3 = weights[0], weights[1], weights[2], weights[3]
        for d in range(head_dim):
            out[d] += weight0 * values[0, d] + weight1 * values[1, d] + weight2 * values[2, d] + weight3 * values[3, d]

    @_inner
    def multiply(out, factor):
        for d in range(head_dim):
            out[d] *= factor

    @_inner
    def attend_block(query, keys, values, num_tokens, weights, running_max, out):
        """Fold one block into one query head's `out`; return the new maximum, the rescale and the block's sum."""
        block_max = running_max
        for t in range(num_tokens):
            weights[t] = dot(query, keys[t])
        for t in range(num_tokens):
            block_max = max(block_max, weights[t])
        rescale = math.exp(running_max - block_max)
        block_sum = np.float32(0)
        for t in range(num_tokens):
            weights[t] = _exp(weights[t] - block_max)
            block_sum += weights[t]
        weights[num_tokens:] = 0

        multiply(out, rescale)
        for t in range(0, num_tokens, 4):
            add_4(out, weights[t : t + 4], values[t : t + 4])
        return block_max, rescale, block_sum

    @njit(fastmath=_FASTMATH)
    def attend_sequence(query, key_cache, value_cache, block_table, seq_len, kv_head, trip_count, out):
        """One KV head of one sequence: `query` and `out` are its group of heads, (group, head_dim)."""
        group, block_size = query.shape[0], key_cache.shape[2]
        in_fours = (block_size + 3) // 4 * 4
        running_max = np.full(group, -np.inf, np.float32)
        running_sum = np.zeros(group, np.float32)
        weights = np.empty(in_fours, np.float32)
        keys = np.empty((block_size, head_dim), np.float32)
        values = np.empty((in_fours, head_dim), np.float32)

        num_blocks = (seq_len + block_size - 1) // block_size
        for i in range(num_blocks):
            num_tokens = min(block_size, seq_len - i * block_size)
            decode(key_cache[block_table[i], kv_head, :num_tokens], keys, trip_count)
            decode(value_cache[block_table[i], kv_head, :num_tokens], values, trip_count)
            values[num_tokens:] = 0
            # The processor cannot guess where the next block is; the table tells.
            next_block = block_table[min(i + 1, num_blocks - 1)]
            for g in range(group):
                for t in range(g, block_size, group):
                    prefetch_row(key_cache[next_block, kv_head, t])
                    prefetch_row(value_cache[next_block, kv_head, t])
                running_max[g], rescale, block_sum = attend_block(
                    query[g], keys, values, num_tokens, weights, running_max[g], out[g]
                )
                running_sum[g] = running_sum[g] * rescale + block_sum
        for g in range(group):
            multiply(out[g], np.float32(1) / running_sum[g])

    @njit(parallel=True)
    def kernel(query, key_cache, value_cache, block_tables, seq_lens, trip_count, out):
        num_seqs, num_heads, _ = query.shape
        num_kv_heads = key_cache.shape[1]
        group = num_heads // num_kv_heads
        for item in prange(num_seqs * num_kv_heads):
            # Sequences vary fastest: threads take runs of items, so each gets short and long sequences.
            kv_head, seq = np.int64(item) // num_seqs, np.int64(item) % num_seqs
            heads = slice(kv_head * group, (kv_head + 1) * group)
            attend_sequence(
                query[seq, heads],
                key_cache,
                value_cache,
                block_tables[seq],
                seq_lens[seq],
                kv_head,
                trip_count,
                out[seq, heads],
            )

    return kernel


@functools.cache
def _writer(kv_dtype):
    """Compile write(new, cache, halves, slot_mapping), `halves` being the cache as 16-bit words, for the scales."""
    encode = {"q8_0": _encode_q8_0, "q4_0": _encode_q4_0}[kv_dtype]
    block_bytes = FORMATS[kv_dtype].block_bytes

    @njit(parallel=True)
    def write(new, cache, halves, slot_mapping):
        num_tokens, num_kv_heads, head_dim = new.shape
        for item in prange(num_tokens * num_kv_heads):
            token, kv_head = np.int64(item) // num_kv_heads, np.int64(item) % num_kv_heads
            block, offset = slot_mapping[token] // cache.shape[2], slot_mapping[token] % cache.shape[2]
            stored, scales = cache[block, kv_head, offset], halves[block, kv_head, offset]
            for i in range(head_dim // 32):
                codes = stored[i * block_bytes + 2 : (i + 1) * block_bytes]
                scales[i * (block_bytes // 2)] = encode(new[token, kv_head, i * 32 : (i + 1) * 32], codes)

    return write


@_encoder
def _encode_q8_0(values, codes):
    """Put 32 values' codes into `codes` (32 bytes); return the bits of their scale. The codec's arithmetic."""
    largest = np.float32(0)
    for i in range(32):
        if math.isnan(values[i]):
            largest = np.float32(np.nan)  # and stays: nothing is larger than NaN
        elif abs(values[i]) > largest:
            largest = abs(values[i])
    scale = largest / np.float32(127)
    for i in range(32):
        code = values[i] * _inverse(scale)
        whole = np.trunc(code)
        if abs(code - whole) >= np.float32(0.5):  # half away from zero; exact, unlike trunc(x + 0.5)
            whole += math.copysign(np.float32(1), code)
        codes[i] = np.uint8(np.int8(whole)) if math.isfinite(whole) else np.uint8(0)
    return _float_to_half(scale)


@_encoder
def _encode_q4_0(values, codes):
    """Put 32 values' codes into `codes` (16 bytes); return the bits of their scale. The codec's arithmetic."""
    largest = values[0]  # with its sign; the first NaN, if there is one
    for i in range(1, 32):
        if not math.isnan(largest) and (math.isnan(values[i]) or abs(values[i]) > abs(largest)):
            largest = values[i]
    scale = largest / np.float32(-8)
    for i in range(16):
        low, high = _code_q4_0(values[i], scale), _code_q4_0(values[i + 16], scale)
        codes[i] = low | high << np.uint8(4)
    return _float_to_half(scale)


@_encoder
def _code_q4_0(value, scale):
    code = np.trunc(value * _inverse(scale) + np.float32(8.5))
    return np.uint8(min(max(code, np.float32(0)), np.float32(15))) if math.isfinite(code) else np.uint8(0)


@_encoder
def _inverse(scale):
    return np.float32(0) if scale == 0 else np.float32(1) / scale


@intrinsic
def _float_to_half(typing_context, value):
    """A float32 as float16 bits (uint16), to nearest, ties to even; a single conversion instruction."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), codegen

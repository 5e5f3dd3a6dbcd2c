"""Paged attention in Numba: reads the KV cache in place, each key and value once, on all cores.

One work item is one KV head of one sequence. It walks the block table and keeps, for each query head of the
group, a running maximum, sum and output (online softmax), so that no score outlives its block.
"""

import functools
import math

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from servelab.kernels.checks.attention import check_arguments

# Sums may be reordered and multiply-adds fused, without which no dot product is vectorized. Infinities keep
# their meaning: the running maximum starts at one.
_FASTMATH = {"reassoc", "contract", "nsz"}
# A helper that is called costs more than its loop: Numba passes each array as seven arguments.
_inner = njit(fastmath=_FASTMATH, forceinline=True)
_CACHE_LINE_BYTES = 64


def paged_attention(query, key_cache, value_cache, block_tables, seq_lens, scale=None):
    """One decode step of attention over cached tokens, read through a block table.

    - `query`: (num_seqs, num_heads, head_dim) float32; head_dim 64 or 128.
    - `key_cache`, `value_cache`: (num_blocks, num_kv_heads, block_size, head_dim), C-contiguous, both float32 or
      both float16 (the layout that vLLM calls HND). Query head h reads KV head h // (num_heads // num_kv_heads).
    - `block_tables`: (num_seqs, max_blocks_per_seq) int32. Entry i of a row is the physical block of tokens
      i * block_size to (i + 1) * block_size - 1; entries past the last needed block are ignored.
    - `seq_lens`: (num_seqs,) int32, in tokens, the newest included: 1 to max_blocks_per_seq * block_size.
    - `scale`: what multiplies the scores; 1 / sqrt(head_dim) by default.

    Returns (num_seqs, num_heads, head_dim) float32. The first call for a head_dim and cache dtype compiles for a
    few seconds. A bad argument raises ValueError naming the argument, its value and what is allowed, before
    anything runs.

    Source: PagedAttention, Kwon et al. 2023, arXiv:2309.06180, section 4.1.
    """
    scale = check_arguments(query, key_cache, value_cache, block_tables, seq_lens, scale, compiled=True)
    half = key_cache.dtype == np.float16
    if half:  # Numba has no float16 on a CPU: hand over the bits
        key_cache, value_cache = key_cache.view(np.uint16), value_cache.view(np.uint16)
    out = np.zeros(query.shape, np.float32)
    kernel = compile_kernel(query.shape[2], half)
    kernel(
        np.ascontiguousarray(query) * np.float32(scale),
        key_cache,
        value_cache,
        np.ascontiguousarray(block_tables),
        np.ascontiguousarray(seq_lens),
        out,
    )
    return out


@functools.cache
def compile_kernel(head_dim, half):
    """Compile for one head_dim, so that every inner loop has a constant length, and one cache dtype."""
    elements_per_line = _CACHE_LINE_BYTES // (2 if half else 4)

    @_inner
    def prefetch_row(row):
        for d in range(0, head_dim, elements_per_line):
            _prefetch(row[d:])

    @_inner
    def widen(half_rows, rows):
        for token in range(half_rows.shape[0]):
            for d in range(head_dim):
                rows[token, d] = _half_to_float(half_rows[token, d])

    @_inner
    def dot(query, key):
        score = np.float32(0)
        for d in range(head_dim):
            score += query[d] * key[d]
        return score

    @_inner
    def dot_4(query, keys):
        # Four tokens at a time: each element of the query is loaded once for all four.
        score0 = score1 = score2 = score3 = np.float32(0)
        for d in range(head_dim):
            score0 += query[d] * keys[0, d]
            score1 += query[d] * keys[1, d]
            score2 += query[d] * keys[2, d]
            score3 += query[d] * keys[3, d]
        return score0, score1, score2, score3

    @_inner
    def add(out, weight, value):
        for d in range(head_dim):
            out[d] += weight * value[d]

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
    def attend_block(query, keys, values, weights, running_max, out):
        """Fold one block into one query head's `out`; return the new maximum, the rescale and the block's sum."""
        num_tokens = keys.shape[0]
        in_fours = num_tokens - num_tokens % 4
        for t in range(0, in_fours, 4):
            weights[t], weights[t + 1], weights[t + 2], weights[t + 3] = dot_4(query, keys[t : t + 4])
        for t in range(in_fours, num_tokens):
            weights[t] = dot(query, keys[t])

        block_max = running_max
        for t in range(num_tokens):
            block_max = max(block_max, weights[t])
        rescale = math.exp(running_max - block_max)
        block_sum = np.float32(0)
        for t in range(num_tokens):
            weights[t] = _exp(weights[t] - block_max)
            block_sum += weights[t]

        multiply(out, rescale)
        for t in range(0, in_fours, 4):
            add_4(out, weights[t : t + 4], values[t : t + 4])
        for t in range(in_fours, num_tokens):
            add(out, weights[t], values[t])
        return block_max, rescale, block_sum

    @njit(fastmath=_FASTMATH)
    def attend_sequence(query, key_cache, value_cache, block_table, seq_len, kv_head, out):
        """One KV head of one sequence: `query` and `out` are its group of heads, (group, head_dim)."""
        group, block_size = query.shape[0], key_cache.shape[2]
        running_max = np.full(group, -np.inf, np.float32)
        running_sum = np.zeros(group, np.float32)
        weights = np.empty(block_size, np.float32)
        keys_wide = np.empty((block_size, head_dim), np.float32)
        values_wide = np.empty((block_size, head_dim), np.float32)

        num_blocks = (seq_len + block_size - 1) // block_size
        for i in range(num_blocks):
            num_tokens = min(block_size, seq_len - i * block_size)
            keys = key_cache[block_table[i], kv_head, :num_tokens]  # (num_tokens, head_dim)
            values = value_cache[block_table[i], kv_head, :num_tokens]
            if half:  # once for the whole group, into a block-sized buffer that stays in the L1 cache
                widen(keys, keys_wide)
                widen(values, values_wide)
                keys, values = keys_wide[:num_tokens], values_wide[:num_tokens]
            # The processor cannot guess where the next block is; the table tells.
            next_block = block_table[min(i + 1, num_blocks - 1)]
            for g in range(group):
                for t in range(g, block_size, group):
                    prefetch_row(key_cache[next_block, kv_head, t])
                    prefetch_row(value_cache[next_block, kv_head, t])
                running_max[g], rescale, block_sum = attend_block(
                    query[g], keys, values, weights, running_max[g], out[g]
                )
                running_sum[g] = running_sum[g] * rescale + block_sum
        for g in range(group):
            multiply(out[g], np.float32(1) / running_sum[g])

    @njit(parallel=True)
    def kernel(query, key_cache, value_cache, block_tables, seq_lens, out):
        num_seqs, num_heads, _ = query.shape
        num_kv_heads = key_cache.shape[1]
        group = num_heads // num_kv_heads
        for item in prange(num_seqs * num_kv_heads):
            # Sequences vary fastest: threads take runs of items, so each gets short and long sequences.
            kv_head, seq = np.int64(item) // num_seqs, np.int64(item) % num_seqs
            heads = slice(kv_head * group, (kv_head + 1) * group)
            attend_sequence(
                query[seq, heads], key_cache, value_cache, block_tables[seq], seq_lens[seq], kv_head, out[seq, heads]
            )

    return kernel


@_inner
def _exp(x):
    """exp(x) for x <= 0, to about one part in 10 million; unlike math.exp, a loop over it is vectorized."""
    exponent = max(x * np.float32(1 / math.log(2)), np.float32(-126))  # below it, float32 has no normal numbers
    whole = np.int32(exponent - np.float32(0.5))
    rest = (exponent - np.float32(whole)) * np.float32(math.log(2))  # within +-0.35: six terms of the series do
    series = np.float32(1 / 720)
    series = series * rest + np.float32(1 / 120)
    series = series * rest + np.float32(1 / 24)
    series = series * rest + np.float32(1 / 6)
    series = series * rest + np.float32(1 / 2)
    series = series * rest + np.float32(1)
    series = series * rest + np.float32(1)
    power_of_two = np.int32((whole + np.int32(127)) << np.int32(23)).view(np.float32)  # set in the exponent bits
    return series * power_of_two


@intrinsic
def _half_to_float(typing_context, bits):
    """float16 bits (uint16) as a float32: one conversion instruction, eight or more at a time when vectorized."""

    def codegen(context, builder, signature, args):
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), codegen


@intrinsic
def _prefetch(typing_context, row):
    """Ask for the cache line of `row`'s first element, without waiting for it."""

    def codegen(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        int32 = ir.IntType(32)
        address = builder.bitcast(array.data, ir.IntType(8).as_pointer())
        prefetch_type = ir.FunctionType(ir.VoidType(), [address.type, int32, int32, int32])
        prefetch = cgutils.get_or_insert_function(builder.module, prefetch_type, "llvm.prefetch")
        read, keep_in_all_levels, data = int32(0), int32(3), int32(1)
        builder.call(prefetch, [address, read, keep_in_all_levels, data])
        return context.get_dummy_value()

    return types.void(row), codegen

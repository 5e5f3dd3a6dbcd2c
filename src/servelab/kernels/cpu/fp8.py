"""FP8 E4M3 KV in Numba, with the attention of quantized.py: a code is shifted into a float16, and that is widened."""

import functools
import math

import numpy as np
from numba import njit, prange

from servelab.kernels.checks.fp8 import check_attention, check_write
from servelab.kernels.cpu.attention import _half_to_float, _inner
from servelab.kernels.cpu.quantized import compile_attention, run_attention
from servelab.kernels.reference.fp8 import round_query
from servelab.quantization.fp8 import FP8_MAX

_SMALLEST_NORMAL = 2.0**-6
_SUBNORMAL_STEPS = 2.0**9  # below it, a code is a number of these parts
_HALF_RATIO = 2.0**8  # the bits of an E4M3 number, read as float16, stand for this part of it: biases of 7 and 15


def write_fp8(key, value, key_cache, value_cache, slot_mapping, key_scale, value_scale):
    """Store the keys and values of new tokens as FP8 E4M3 codes in their slots of a paged cache.

    - `key`, `value`: (num_tokens, num_kv_heads, head_dim) float32.
    - `key_cache`, `value_cache`: (num_blocks, num_kv_heads, block_size, head_dim) uint8, C-contiguous. Changed in
      place: these slots, and nothing else.
    - `slot_mapping`: (num_tokens,) int64, each token's slot, block * block_size + offset in the block; no slot twice.
    - `key_scale`, `value_scale`: what a code of 1.0 stands for; a number, or (num_kv_heads,) float32 or float64.

    Returns None. Stored is value / scale rounded to nearest, ties to even, and saturated at 448; NaN stays NaN. The
    first call compiles for a few seconds. A bad argument raises ValueError naming the argument, its value and what is
    allowed, before anything is changed.

    Source: Micikevicius et al. 2022, arXiv:2209.05433; slots and scales as in vLLM's reshape_and_cache.
    """
    scales = check_write(key, value, key_cache, value_cache, slot_mapping, key_scale, value_scale)
    slots = np.ascontiguousarray(slot_mapping)
    for new, cache, scale in zip((key, value), (key_cache, value_cache), scales, strict=True):
        _write(np.ascontiguousarray(new), cache, slots, scale)


def paged_attention_fp8(
    query,
    key_cache,
    value_cache,
    block_tables,
    seq_lens,
    key_scale,
    value_scale,
    query_dtype="bf16",
    scale=None,
):
    """Attention of one new token a sequence over its FP8 E4M3 cached tokens, read through a block table.

    - `query`: (num_seqs, num_heads, head_dim) float32, rounded to `query_dtype` before use; head_dim 64 or 128.
    - `key_cache`, `value_cache`: (num_blocks, num_kv_heads, block_size, head_dim) uint8, C-contiguous, as `write_fp8`
      fills them. Query head h reads KV head h // (num_heads // num_kv_heads).
    - `block_tables`: (num_seqs, max_blocks_per_seq) int32. Entry i of a row is the physical block of tokens
      i * block_size to (i + 1) * block_size - 1; entries past the last needed block are ignored.
    - `seq_lens`: (num_seqs,) int32, in tokens, the newest included: 1 to max_blocks_per_seq * block_size.
    - `key_scale`, `value_scale`: what a code of 1.0 stands for; a number, or (num_kv_heads,) float32 or float64.
    - `query_dtype`: "bf16" or "fp8"; FP8 saturates at 448.
    - `scale`: what multiplies the scores; 1 / sqrt(head_dim) by default.

    Returns (num_seqs, num_heads, head_dim) float32; products, softmax and sums are float32. The first call for a
    head_dim compiles for a few seconds. A bad argument raises ValueError naming the argument, its value and what is
    allowed, before anything runs.

    Source: Micikevicius et al. 2022, arXiv:2209.05433; PagedAttention, Kwon et al. 2023, arXiv:2309.06180.
    """
    scales = (key_scale, value_scale)
    scale, key_scale, value_scale = check_attention(
        query, key_cache, value_cache, block_tables, seq_lens, *scales, query_dtype, scale, compiled=True
    )
    head_dim, group = query.shape[2], query.shape[1] // key_cache.shape[1]
    # The scales are the same for all of a head's keys and values, so they can be applied outside the loops.
    scaled = round_query(query, query_dtype) * (np.float32(scale) * key_scale.repeat(group)[:, None])
    out = run_attention(_attention(head_dim), scaled, key_cache, value_cache, block_tables, seq_lens, head_dim)
    return out * value_scale.repeat(group)[:, None]


@functools.cache
def _attention(head_dim):
    return compile_attention(head_dim, _decode)


@_inner
def _decode(stored, rows, trip_count):
    """Tokens of one head, (num_tokens, head_dim) uint8, to float32 rows; `trip_count` is head_dim."""
    for token in range(stored.shape[0]):
        for d in range(trip_count):
            rows[token, d] = _decode_one(stored[token, d])


@_inner
def _decode_one(code):
    # int32 throughout: Numba would widen to 64 bits, half as many at a time.
    code = np.int32(code)
    magnitude = np.int32(code & np.int32(0x7F))
    half = np.int32(magnitude << np.int32(7)) if magnitude != np.int32(0x7F) else np.int32(0x7E00)  # NaN
    half = np.int32(half | np.int32(np.int32(code & np.int32(0x80)) << np.int32(8)))
    return _half_to_float(np.uint16(half)) * np.float32(_HALF_RATIO)


@njit(parallel=True)
def _write(new, cache, slot_mapping, scales):
    num_tokens, num_kv_heads, head_dim = new.shape
    for item in prange(num_tokens * num_kv_heads):
        token, kv_head = np.int64(item) // num_kv_heads, np.int64(item) % num_kv_heads
        block, offset = slot_mapping[token] // cache.shape[2], slot_mapping[token] % cache.shape[2]
        for d in range(head_dim):
            cache[block, kv_head, offset, d] = _encode_one(new[token, kv_head, d] / scales[kv_head])


@njit
def _encode_one(value):
    """The code nearest to a float32, ties to even, saturated."""
    sign = np.uint8(0x80) if math.copysign(np.float32(1), value) < 0 else np.uint8(0)
    if math.isnan(value):
        return np.uint8(sign | np.uint8(0x7F))
    magnitude = min(abs(value), np.float32(FP8_MAX))
    if magnitude < np.float32(_SMALLEST_NORMAL):
        return np.uint8(sign | np.uint8(np.rint(magnitude * np.float32(_SUBNORMAL_STEPS))))
    # Of float32's 23 bits of mantissa 3 stay. Adding just under half of the last, and that bit itself, carries exactly
    # where rounding goes up, into the exponent too. Its bias is 127, not 7.
    bits = np.uint32(np.float32(magnitude).view(np.uint32))
    rounded = (bits + np.uint32(0x7FFFF) + ((bits >> np.uint32(20)) & np.uint32(1))) >> np.uint32(20)
    return np.uint8(sign | np.uint8(rounded - np.uint32((127 - 7) << 3)))

"""FP8 E4M3 KV in NumPy, read with a query of BF16 or FP8: what the cache and the query lose, and nothing else.

Real kernels differ in what they do between: some keep the softmax weights in FP8 too. Here all sums are float32, so
that what a page shows is the effect of the formats.
"""

import numpy as np

from servelab.kernels.checks.fp8 import check_attention, check_write
from servelab.kernels.reference.attention import paged_attention
from servelab.kernels.reference.quantized import store
from servelab.quantization import dequantize, quantize


def write_fp8(key, value, key_cache, value_cache, slot_mapping, key_scale, value_scale):
    """Store the keys and values of new tokens as FP8 E4M3 codes in their slots of a paged cache.

    - `key`, `value`: (num_tokens, num_kv_heads, head_dim) float32.
    - `key_cache`, `value_cache`: (num_blocks, num_kv_heads, block_size, head_dim) uint8, C-contiguous. Changed in
      place: these slots, and nothing else.
    - `slot_mapping`: (num_tokens,) int64, each token's slot, block * block_size + offset in the block; no slot twice.
    - `key_scale`, `value_scale`: what a code of 1.0 stands for; a number, or (num_kv_heads,) float32 or float64.

    Returns None. Stored is value / scale rounded to nearest, ties to even, and saturated at 448; NaN stays NaN. A bad
    argument raises ValueError naming the argument, its value and what is allowed, before anything is changed.

    Source: Micikevicius et al. 2022, arXiv:2209.05433; slots and scales as in vLLM's reshape_and_cache.
    """
    scales = check_write(key, value, key_cache, value_cache, slot_mapping, key_scale, value_scale)
    codes = [quantize(new, "fp8", scale[:, None]) for new, scale in zip((key, value), scales, strict=True)]
    store(*codes, key_cache, value_cache, slot_mapping)


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

    - `query`: (num_seqs, num_heads, head_dim) float32, rounded to `query_dtype` before use.
    - `key_cache`, `value_cache`: (num_blocks, num_kv_heads, block_size, head_dim) uint8, C-contiguous, as `write_fp8`
      fills them. Query head h reads KV head h // (num_heads // num_kv_heads).
    - `block_tables`: (num_seqs, max_blocks_per_seq) int32. Entry i of a row is the physical block of tokens
      i * block_size to (i + 1) * block_size - 1; entries past the last needed block are ignored.
    - `seq_lens`: (num_seqs,) int32, in tokens, the newest included: 1 to max_blocks_per_seq * block_size.
    - `key_scale`, `value_scale`: what a code of 1.0 stands for; a number, or (num_kv_heads,) float32 or float64.
    - `query_dtype`: "bf16" or "fp8"; FP8 saturates at 448.
    - `scale`: what multiplies the scores; 1 / sqrt(head_dim) by default.

    Returns (num_seqs, num_heads, head_dim) float32; products, softmax and sums are float32. A bad argument raises
    ValueError naming the argument, its value and what is allowed, before anything runs.

    Source: Micikevicius et al. 2022, arXiv:2209.05433; PagedAttention, Kwon et al. 2023, arXiv:2309.06180.
    """
    scales = (key_scale, value_scale)
    scale, key_scale, value_scale = check_attention(
        query, key_cache, value_cache, block_tables, seq_lens, *scales, query_dtype, scale, compiled=False
    )
    keys = dequantize(key_cache, "fp8", key_scale[:, None, None])  # (num_blocks, num_kv_heads, block_size, head_dim)
    values = dequantize(value_cache, "fp8", value_scale[:, None, None])
    return paged_attention(round_query(query, query_dtype), keys, values, block_tables, seq_lens, scale)


def round_query(query, query_dtype):
    """`query`, float32 of any shape, rounded to what "bf16" or "fp8" can hold: to nearest, ties to even."""
    if query_dtype == "fp8":
        return dequantize(quantize(query, "fp8"), "fp8")
    # BF16 is the upper half of a float32. Adding just under half of its last bit, and that bit itself, carries exactly
    # where rounding goes up; past the largest number the carry makes an infinity, as it must.
    bits = np.ascontiguousarray(query).view(np.uint32)
    last_bit = bits >> np.uint32(16) & np.uint32(1)
    rounded = (bits + np.uint32(0x7FFF) + last_bit) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(query), np.float32(np.nan), rounded.view(np.float32))  # a carry would turn NaN into -0

"""Quantized KV in NumPy: the library's codec, and paged attention over a cache that it has decoded as a whole.

The oracle for the fast kernels, which decode a block where they need it and never hold the cache in float32.
"""

from servelab.kernels.checks.quantized import check_attention, check_write
from servelab.kernels.reference.attention import paged_attention
from servelab.quantization import dequantize, quantize


def write_quantized(key, value, key_cache, value_cache, slot_mapping, kv_dtype):
    """Quantize the keys and values of new tokens into their slots of a paged cache.

    - `key`, `value`: (num_tokens, num_kv_heads, head_dim) float32; head_dim a multiple of 32.
    - `key_cache`, `value_cache`: (num_blocks, num_kv_heads, block_size, bytes_per_head) uint8, C-contiguous;
      bytes_per_head is head_dim / 32 * 34 (q8_0) or * 18 (q4_0). Changed in place: these slots, and nothing else.
    - `slot_mapping`: (num_tokens,) int64, each token's slot, block * block_size + offset in the block; no slot twice.
    - `kv_dtype`: "q8_0" or "q4_0".

    Returns None. What is stored are the bytes of `quantization.quantize`, which says what becomes of values that the
    format cannot hold. A bad argument raises ValueError naming the argument, its value and what is allowed, before
    anything is changed.

    Source: block_q8_0 and block_q4_0 of llama.cpp's ggml-common.h; slots as in vLLM's reshape_and_cache.
    """
    check_write(key, value, key_cache, value_cache, slot_mapping, kv_dtype)
    store(quantize(key, kv_dtype), quantize(value, kv_dtype), key_cache, value_cache, slot_mapping)


def store(key_bytes, value_bytes, key_cache, value_cache, slot_mapping):
    """Put encoded tokens, (num_tokens, num_kv_heads, bytes_per_head), into their slots."""
    blocks, offsets = divmod(slot_mapping, key_cache.shape[2])
    key_cache[blocks, :, offsets] = key_bytes
    value_cache[blocks, :, offsets] = value_bytes


def paged_attention_quantized(query, key_cache, value_cache, block_tables, seq_lens, kv_dtype, scale=None):
    """Attention of one new token a sequence over its quantized cached tokens, read through a block table.

    - `query`: (num_seqs, num_heads, head_dim) float32; head_dim a multiple of 32.
    - `key_cache`, `value_cache`: (num_blocks, num_kv_heads, block_size, bytes_per_head) uint8, C-contiguous, as
      `write_quantized` fills them. Query head h reads KV head h // (num_heads // num_kv_heads).
    - `block_tables`: (num_seqs, max_blocks_per_seq) int32. Entry i of a row is the physical block of tokens
      i * block_size to (i + 1) * block_size - 1; entries past the last needed block are ignored.
    - `seq_lens`: (num_seqs,) int32, in tokens, the newest included: 1 to max_blocks_per_seq * block_size.
    - `kv_dtype`: "q8_0" or "q4_0".
    - `scale`: what multiplies the scores; 1 / sqrt(head_dim) by default.

    Returns (num_seqs, num_heads, head_dim) float32: what `paged_attention` gives for the decoded values. A bad
    argument raises ValueError naming the argument, its value and what is allowed, before anything runs.

    Source: PagedAttention, Kwon et al. 2023, arXiv:2309.06180, section 4.1; blocks as in llama.cpp's ggml-common.h.
    """
    scale = check_attention(query, key_cache, value_cache, block_tables, seq_lens, kv_dtype, scale, compiled=False)
    keys, values = dequantize(key_cache, kv_dtype), dequantize(value_cache, kv_dtype)
    return paged_attention(query, keys, values, block_tables, seq_lens, scale)

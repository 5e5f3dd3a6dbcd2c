"""What kernels that write or read quantized KV ask of their arguments, asked once and before anything runs."""

import numpy as np

from servelab.kernels.checks.arrays import require_all, require_array, require_contiguous, require_shape
from servelab.kernels.checks.attention import COMPILED_HEAD_DIMS, _check_blocks, _check_lengths, _check_scale
from servelab.quantization import FORMATS

BLOCK_VALUES = 32  # the values that share a scale, in both formats
KV_DTYPES = ("q8_0", "q4_0")


def check_write(key, value, key_cache, value_cache, slot_mapping, kv_dtype):
    """Raise ValueError naming the first bad argument of `write_quantized`, its value and what is allowed."""
    require_kv_dtype(kv_dtype)
    check_new_tokens(key, value)
    check_caches(key_cache, value_cache)
    check_targets(key_cache, value_cache, slot_mapping, num_tokens=key.shape[0])
    _check_rows(key_cache, "key", key, kv_dtype)


def check_attention(query, key_cache, value_cache, block_tables, seq_lens, kv_dtype, scale, *, compiled):
    """Raise ValueError naming the first bad argument of `paged_attention_quantized`; else return the scale.

    `compiled` adds the limit of the compiled kernels: a head_dim of 64 or 128.
    """
    require_kv_dtype(kv_dtype)
    check_caches(key_cache, value_cache)
    require_array("query", query, 3, (np.float32,))
    _check_rows(key_cache, "query", query, kv_dtype)
    return check_reading(query, key_cache, block_tables, seq_lens, scale, compiled=compiled)


def require_kv_dtype(kv_dtype):
    """Raise ValueError unless `kv_dtype` names a format of blocks of 32 values."""
    if kv_dtype not in KV_DTYPES:
        raise ValueError(f"kv_dtype is {kv_dtype!r}: allowed is {' or '.join(map(repr, KV_DTYPES))}")


def check_new_tokens(key, value):
    """Raise ValueError unless both are float32 of one shape (num_tokens, num_kv_heads, head_dim)."""
    for name, array in (("key", key), ("value", value)):
        require_array(name, array, 3, (np.float32,))
    require_shape("value", value, key.shape, "key's")


def check_caches(key_cache, value_cache):
    """Raise ValueError unless both are caches of bytes, of one shape and in C order: a view of 16 bits needs it."""
    for name, cache in (("key_cache", key_cache), ("value_cache", value_cache)):
        require_array(name, cache, 4, (np.uint8,))
        require_contiguous(name, cache)
    require_shape("value_cache", value_cache, key_cache.shape, "key_cache's")


def check_targets(key_cache, value_cache, slot_mapping, num_tokens):
    """Raise ValueError unless the caches may be changed and each of the tokens has a slot of its own in them."""
    for name, cache in (("key_cache", key_cache), ("value_cache", value_cache)):
        if not cache.flags.writeable:
            raise ValueError(f"{name} is read-only: allowed is memory that can be changed in place")
    if np.may_share_memory(key_cache, value_cache):  # exact here: both are contiguous
        raise ValueError("value_cache overlaps key_cache: allowed is memory of its own")
    require_array("slot_mapping", slot_mapping, 1, (np.int64,))
    require_shape("slot_mapping", slot_mapping, (num_tokens,), "one slot a token")
    num_slots = key_cache.shape[0] * key_cache.shape[2]
    in_cache = (slot_mapping >= 0) & (slot_mapping < num_slots)
    require_all("slot_mapping", slot_mapping, in_cache, f"0 to {num_slots - 1}, a slot of the cache")
    slots, counts = np.unique(slot_mapping, return_counts=True)
    if (counts > 1).any():  # which token would win?
        raise ValueError(f"slot_mapping holds slot {slots[counts > 1][0]} twice: allowed is once")


def check_reading(query, key_cache, block_tables, seq_lens, scale, *, compiled):
    """Raise ValueError unless the query can be answered from this cache through these tables; else return the scale."""
    num_seqs, num_heads, head_dim = query.shape
    num_blocks, num_kv_heads, block_size, _ = key_cache.shape
    if compiled and head_dim not in COMPILED_HEAD_DIMS:
        raise ValueError(f"query has head_dim {head_dim}: allowed are 64 and 128")
    if num_heads % num_kv_heads:
        raise ValueError(f"query has {num_heads} heads: allowed are multiples of key_cache's {num_kv_heads} KV heads")
    require_array("block_tables", block_tables, 2, (np.int32,))
    require_array("seq_lens", seq_lens, 1, (np.int32,))
    require_shape("block_tables", block_tables, (num_seqs, block_tables.shape[1]), "one row a sequence")
    require_shape("seq_lens", seq_lens, (num_seqs,), "one length a sequence")
    _check_lengths(seq_lens, block_tables.shape[1] * block_size)
    _check_blocks(block_tables, seq_lens, num_blocks, block_size)
    return _check_scale(scale, head_dim)


def require_kv_heads(name, array, key_cache):
    """Raise ValueError unless new tokens have as many heads as the cache."""
    if array.shape[1] != key_cache.shape[1]:
        raise ValueError(f"{name} has {array.shape[1]} KV heads: allowed is key_cache's {key_cache.shape[1]}")


def require_row_bytes(name, array, key_cache, row_bytes):
    """Raise ValueError unless a token's head takes this many bytes in the cache."""
    if key_cache.shape[3] != row_bytes:
        raise ValueError(
            f"key_cache has {key_cache.shape[3]} bytes a head: allowed is what {name}'s head_dim {array.shape[2]} "
            f"takes, {row_bytes}"
        )


def _check_rows(key_cache, name, array, kv_dtype):
    head_dim = array.shape[2]
    if head_dim % BLOCK_VALUES:
        raise ValueError(f"{name} has head_dim {head_dim}: allowed are multiples of {BLOCK_VALUES}")
    if name == "key":
        require_kv_heads(name, array, key_cache)
    require_row_bytes(name, array, key_cache, head_dim // BLOCK_VALUES * FORMATS[kv_dtype].block_bytes)

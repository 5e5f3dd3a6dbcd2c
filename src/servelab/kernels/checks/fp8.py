"""What kernels that write or read FP8 KV ask of their arguments, asked once and before anything runs."""

import numpy as np

from servelab.kernels.checks.arrays import require_all, require_array, require_shape
from servelab.kernels.checks.quantized import (
    check_caches,
    check_new_tokens,
    check_reading,
    check_targets,
    require_kv_heads,
    require_row_bytes,
)

QUERY_DTYPES = ("bf16", "fp8")


def check_write(key, value, key_cache, value_cache, slot_mapping, key_scale, value_scale):
    """Raise ValueError naming the first bad argument of `write_fp8`; else return both scales, one for each KV head."""
    check_new_tokens(key, value)
    check_caches(key_cache, value_cache)
    check_targets(key_cache, value_cache, slot_mapping, num_tokens=key.shape[0])
    require_kv_heads("key", key, key_cache)
    require_row_bytes("key", key, key_cache, key.shape[2])
    return _kv_scales(key_scale, value_scale, key_cache.shape[1])


def check_attention(
    query, key_cache, value_cache, block_tables, seq_lens, key_scale, value_scale, query_dtype, scale, *, compiled
):
    """Raise ValueError naming the first bad argument of `paged_attention_fp8`.

    Returns the scale of the scores, and those of keys and values as (num_kv_heads,) float32. `compiled` adds the limit
    of the compiled kernels: a head_dim of 64 or 128.
    """
    if query_dtype not in QUERY_DTYPES:
        raise ValueError(f"query_dtype is {query_dtype!r}: allowed is {' or '.join(map(repr, QUERY_DTYPES))}")
    check_caches(key_cache, value_cache)
    require_array("query", query, 3, (np.float32,))
    require_row_bytes("query", query, key_cache, query.shape[2])
    scale = check_reading(query, key_cache, block_tables, seq_lens, scale, compiled=compiled)
    return scale, *_kv_scales(key_scale, value_scale, key_cache.shape[1])


def _kv_scales(key_scale, value_scale, num_kv_heads):
    return _head_scales("key_scale", key_scale, num_kv_heads), _head_scales("value_scale", value_scale, num_kv_heads)


def _head_scales(name, scale, num_kv_heads):
    """(num_kv_heads,) float32 from a number for all heads or from an array of one for each."""
    if not isinstance(scale, np.ndarray):
        if isinstance(scale, bool) or not isinstance(scale, (int, float, np.floating)):
            raise ValueError(f"{name} is {scale!r}: allowed is a number or an array of one for each KV head")
        scale = np.full(num_kv_heads, scale, np.float64)
    require_array(name, scale, 1, (np.float32, np.float64))
    require_shape(name, scale, (num_kv_heads,), "one for each KV head")
    with np.errstate(over="ignore", under="ignore"):  # what float32 cannot hold is refused
        scale = scale.astype(np.float32)
    require_all(name, scale, np.isfinite(scale) & (scale > 0), "a finite number above 0 in float32")
    return scale

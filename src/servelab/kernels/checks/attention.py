"""What every paged-attention kernel asks of its arguments, asked once and before anything runs."""

import math

import numpy as np

COMPILED_HEAD_DIMS = (64, 128)
_NDIM = {"query": 3, "key_cache": 4, "value_cache": 4, "block_tables": 2, "seq_lens": 1}
_DTYPES = {
    "query": (np.float32,),
    "key_cache": (np.float32, np.float16),
    "value_cache": (np.float32, np.float16),
    "block_tables": (np.int32,),
    "seq_lens": (np.int32,),
}


def check_arguments(query, key_cache, value_cache, block_tables, seq_lens, scale, *, compiled):
    """Raise ValueError naming the first bad argument, its value and what is allowed; else return the scale.

    `compiled` adds the limits of the compiled kernels: a head_dim of 64 or 128, and caches in C order (they are
    never copied behind the caller's back: a KV pool is most of the memory there is).
    """
    arrays = {
        "query": query,
        "key_cache": key_cache,
        "value_cache": value_cache,
        "block_tables": block_tables,
        "seq_lens": seq_lens,
    }
    for name, array in arrays.items():
        _check_kind(name, array)
    _check_shapes(query, key_cache, value_cache, block_tables, seq_lens)
    if compiled:
        _check_compiled(query, key_cache, value_cache)
    _check_lengths(seq_lens, block_tables.shape[1] * key_cache.shape[2])
    _check_blocks(block_tables, seq_lens, *key_cache.shape[::2])
    return _check_scale(scale, query.shape[2])


def _check_kind(name, array):
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{name} is a {type(array).__name__}: allowed is a NumPy array")
    if array.dtype not in _DTYPES[name]:
        allowed = " or ".join(np.dtype(dtype).name for dtype in _DTYPES[name])
        raise ValueError(f"{name} has dtype {array.dtype}: allowed is {allowed}")
    if array.ndim != _NDIM[name] or 0 in array.shape:
        raise ValueError(f"{name} has shape {array.shape}: allowed are {_NDIM[name]} dimensions, each at least 1")


def _check_shapes(query, key_cache, value_cache, block_tables, seq_lens):
    num_seqs, num_heads, head_dim = query.shape
    num_kv_heads = key_cache.shape[1]
    if key_cache.shape[3] != head_dim:
        raise ValueError(f"key_cache has head_dim {key_cache.shape[3]}: allowed is query's, {head_dim}")
    if value_cache.shape != key_cache.shape:
        raise ValueError(f"value_cache has shape {value_cache.shape}: allowed is key_cache's, {key_cache.shape}")
    if value_cache.dtype != key_cache.dtype:
        raise ValueError(f"value_cache has dtype {value_cache.dtype}: allowed is key_cache's, {key_cache.dtype}")
    if num_heads % num_kv_heads:
        raise ValueError(f"query has {num_heads} heads: allowed are multiples of key_cache's {num_kv_heads} KV heads")
    if block_tables.shape[0] != num_seqs:
        raise ValueError(f"block_tables has {block_tables.shape[0]} rows: allowed is one a sequence, {num_seqs}")
    if seq_lens.shape[0] != num_seqs:
        raise ValueError(f"seq_lens has {seq_lens.shape[0]} entries: allowed is one a sequence, {num_seqs}")


def _check_compiled(query, key_cache, value_cache):
    if query.shape[2] not in COMPILED_HEAD_DIMS:
        raise ValueError(f"query has head_dim {query.shape[2]}: allowed are 64 and 128")
    for name, cache in (("key_cache", key_cache), ("value_cache", value_cache)):
        if not cache.flags.c_contiguous:
            raise ValueError(f"{name} has strides {cache.strides}: allowed is C-contiguous memory")


def _check_lengths(seq_lens, capacity):
    bad = np.flatnonzero((seq_lens < 1) | (seq_lens > capacity))
    if bad.size:
        raise ValueError(
            f"seq_lens[{bad[0]}] is {seq_lens[bad[0]]}: allowed is 1 to {capacity}, what a table row holds"
        )


def _check_blocks(block_tables, seq_lens, num_blocks, block_size):
    blocks_needed = (seq_lens.astype(np.int64) + block_size - 1) // block_size
    used = np.arange(block_tables.shape[1]) < blocks_needed[:, None]  # (num_seqs, max_blocks_per_seq)
    bad = np.argwhere(used & ((block_tables < 0) | (block_tables >= num_blocks)))
    if bad.size:
        row, column = bad[0]
        raise ValueError(
            f"block_tables[{row}, {column}] is {block_tables[row, column]}: allowed is 0 to {num_blocks - 1}, "
            f"a block of the cache"
        )


def _check_scale(scale, head_dim):
    if scale is None:
        return 1 / math.sqrt(head_dim)
    if not (isinstance(scale, (int, float, np.floating)) and math.isfinite(scale) and scale > 0):
        raise ValueError(f"scale is {scale!r}: allowed is a finite number above 0")
    return float(scale)

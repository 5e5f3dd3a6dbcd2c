"""What every copy of blocks asks of its arguments, asked once and before anything runs."""

import numpy as np

from servelab.kernels.checks.arrays import require_all, require_contiguous, require_shape


def check_arguments(key_cache, value_cache, block_mapping):
    """Raise ValueError naming the first bad argument, its value and what is allowed."""
    for name, cache in (("key_cache", key_cache), ("value_cache", value_cache)):
        _check_cache(name, cache)
    require_shape("value_cache", value_cache, key_cache.shape, "key_cache's")
    if value_cache.dtype != key_cache.dtype:
        raise ValueError(f"value_cache has dtype {value_cache.dtype}: allowed is key_cache's, {key_cache.dtype}")
    if np.may_share_memory(key_cache, value_cache):  # exact here: both are contiguous
        raise ValueError("value_cache overlaps key_cache: allowed is memory of its own")
    _check_mapping(block_mapping, key_cache.shape[1])


def _check_cache(name, cache):
    if not isinstance(cache, np.ndarray):
        raise ValueError(f"{name} is a {type(cache).__name__}: allowed is a NumPy array")
    if cache.dtype.hasobject:
        raise ValueError(f"{name} has dtype {cache.dtype}: allowed is any whose values are plain bytes")
    if cache.ndim < 2 or 0 in cache.shape:
        raise ValueError(f"{name} has shape {cache.shape}: allowed is (num_layers, num_blocks, ...), each at least 1")
    require_contiguous(name, cache)
    if not cache.flags.writeable:
        raise ValueError(f"{name} is read-only: allowed is memory that can be changed in place")


def _check_mapping(block_mapping, num_blocks):
    if not isinstance(block_mapping, np.ndarray):
        raise ValueError(f"block_mapping is a {type(block_mapping).__name__}: allowed is a NumPy array")
    if block_mapping.dtype != np.int64:
        raise ValueError(f"block_mapping has dtype {block_mapping.dtype}: allowed is int64")
    if block_mapping.ndim != 2 or block_mapping.shape[1] != 2:
        raise ValueError(f"block_mapping has shape {block_mapping.shape}: allowed is (num_pairs, 2)")
    in_pool = (block_mapping >= 0) & (block_mapping < num_blocks)
    require_all("block_mapping", block_mapping, in_pool, f"0 to {num_blocks - 1}, a block of the cache")
    sources, destinations = block_mapping.T
    blocks, counts = np.unique(destinations, return_counts=True)
    if (counts > 1).any():  # which copy would win?
        raise ValueError(f"block_mapping writes block {blocks[counts > 1][0]} twice: allowed is once")
    both = np.intersect1d(sources, blocks)
    if both.size:  # the old content or the new?
        raise ValueError(f"block_mapping reads and writes block {both[0]}: allowed is one of the two")

"""Copy-on-write in NumPy: all blocks of the list at once, by fancy indexing, through a temporary copy."""

import numpy as np

from servelab.kernels.checks.blocks import check_arguments


def copy_blocks(key_cache, value_cache, block_mapping):
    """Copy blocks of keys and values inside their caches, in all layers, before a sequence writes to a shared block.

    - `key_cache`, `value_cache`: (num_layers, num_blocks, ...), C-contiguous, any dtype of plain bytes, the same for
      both. Changed in place: the destination blocks, and nothing else.
    - `block_mapping`: (num_pairs, 2) int64, rows of (source, destination) block. A source may occur more than once;
      no destination may occur twice or be a source too, so that the order of the copies does not matter.

    Returns None. A bad argument raises ValueError naming the argument, its value and what is allowed, before
    anything is changed.

    Source: copy-on-write, Kwon et al. 2023, arXiv:2309.06180, section 4.4; one kernel for all copies, section 5.1.
    """
    check_arguments(key_cache, value_cache, block_mapping)
    sources, destinations = block_mapping.T
    for cache in (key_cache, value_cache):
        cache[:, destinations] = cache[:, sources]  # (num_layers, num_pairs, ...)


def as_words(cache):
    """The same memory as (num_layers, num_blocks, words) of the widest unsigned integers that divide a block.

    What the compiled kernels copy: they need no kernel for each dtype, and move up to 8 bytes at a time.
    """
    num_bytes = cache.nbytes // (cache.shape[0] * cache.shape[1])
    width = next(width for width in (8, 4, 2, 1) if num_bytes % width == 0 and cache.ctypes.data % width == 0)
    return cache.reshape(-1).view(np.uint8).view(f"u{width}").reshape(*cache.shape[:2], num_bytes // width)

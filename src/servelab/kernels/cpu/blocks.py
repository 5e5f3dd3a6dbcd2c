"""Copy-on-write in Numba: every block of every layer is one work item, on all cores, without a temporary copy."""

from numba import njit, prange

from servelab.kernels.checks.blocks import check_arguments
from servelab.kernels.reference.blocks import as_words


def copy_blocks(key_cache, value_cache, block_mapping):
    """Copy blocks of keys and values inside their caches, in all layers, before a sequence writes to a shared block.

    - `key_cache`, `value_cache`: (num_layers, num_blocks, ...), C-contiguous, any dtype of plain bytes, the same for
      both. Changed in place: the destination blocks, and nothing else.
    - `block_mapping`: (num_pairs, 2) int64, rows of (source, destination) block. A source may occur more than once;
      no destination may occur twice or be a source too, so that the order of the copies does not matter.

    Returns None. The first call compiles for a few seconds. A bad argument raises ValueError naming the argument, its
    value and what is allowed, before anything is changed.

    Source: copy-on-write, Kwon et al. 2023, arXiv:2309.06180, section 4.4; one kernel for all copies, section 5.1.
    """
    check_arguments(key_cache, value_cache, block_mapping)
    _kernel(as_words(key_cache), as_words(value_cache), block_mapping.copy())


@njit(parallel=True)
def _kernel(key_cache, value_cache, block_mapping):
    """Caches are (num_layers, num_blocks, words)."""
    num_pairs = block_mapping.shape[0]
    for item in prange(key_cache.shape[0] * num_pairs):
        layer, pair = item // num_pairs, item % num_pairs
        source, destination = block_mapping[pair, 0], block_mapping[pair, 1]
        _copy(key_cache[layer, source], key_cache[layer, destination])
        _copy(value_cache[layer, source], value_cache[layer, destination])


@njit
def _copy(source, destination):
    for i in range(source.size):
        destination[i] = source[i]

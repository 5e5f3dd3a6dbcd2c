"""Copy-on-write in Numba-CUDA: one thread block copies one block of one layer, of keys or of values.

Neighbouring threads copy neighbouring words, so that each warp reads and writes whole memory transactions.
"""

import functools

from numba import cuda

from servelab.kernels.checks.blocks import check_arguments
from servelab.kernels.cuda.device import require_device
from servelab.kernels.reference.blocks import as_words

THREADS = 128


def copy_blocks(key_cache, value_cache, block_mapping):
    """Copy blocks of keys and values inside their caches, in all layers, before a sequence writes to a shared block.

    - `key_cache`, `value_cache`: (num_layers, num_blocks, ...), C-contiguous, any dtype of plain bytes, the same for
      both. Changed in place: the destination blocks, and nothing else. At most 65,535 layers.
    - `block_mapping`: (num_pairs, 2) int64, rows of (source, destination) block. A source may occur more than once;
      no destination may occur twice or be a source too, so that the order of the copies does not matter.

    Returns None. Arguments are NumPy arrays: each call copies the caches to the GPU and back, so time the kernel, not
    this call. A bad argument raises ValueError naming the argument, its value and what is allowed; no GPU and no
    simulator raises RuntimeError; both before anything is changed.

    Source: copy-on-write, Kwon et al. 2023, arXiv:2309.06180, section 4.4; one kernel for all copies, section 5.1.
    """
    check_arguments(key_cache, value_cache, block_mapping)
    if key_cache.shape[0] > 65535:
        raise ValueError(
            f"key_cache has {key_cache.shape[0]} layers: allowed are at most 65535, what a CUDA grid holds"
        )
    require_device()
    if not len(block_mapping):
        return  # a CUDA grid cannot be empty
    caches = [as_words(cache) for cache in (key_cache, value_cache)]
    on_device = [cuda.to_device(array) for array in (*caches, block_mapping.copy())]
    _compiled()[grid(len(block_mapping), key_cache.shape[0]), THREADS](*on_device)
    for copied, cache in zip(on_device, caches, strict=False):
        copied.copy_to_host(cache)


def grid(num_pairs, num_layers):
    """Thread blocks that `kernel` is launched with: one for each pair, layer, and of keys and values."""
    return num_pairs, num_layers, 2


@functools.cache
def _compiled():
    return cuda.jit(kernel)


def kernel(key_cache, value_cache, block_mapping):
    """Caches are (num_layers, num_blocks, words), see `as_words`; launched on `grid` thread blocks."""
    pair, layer = cuda.blockIdx.x, cuda.blockIdx.y
    cache = key_cache if cuda.blockIdx.z == 0 else value_cache
    source, destination = block_mapping[pair, 0], block_mapping[pair, 1]
    for i in range(cuda.threadIdx.x, cache.shape[2], cuda.blockDim.x):
        cache[layer, destination, i] = cache[layer, source, i]

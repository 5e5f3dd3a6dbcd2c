"""Low-rank updates of a batch with mixed adapters in Numba-CUDA: rows grouped by adapter, in two kernels.

`shrink` computes A x, one thread block a tile of up to 16 rows with the same adapter: slices of A and of x go through
shared memory, each read once for the whole tile. `expand` computes B (A x), one thread block a tile and 128 outputs.
"""

import functools

import numpy as np
from numba import cuda, float32

from servelab.kernels.checks.lora import MAX_RANK, check_arguments
from servelab.kernels.cuda.device import require_device
from servelab.kernels.reference.lora import ROWS_PER_TILE, group_rows

THREADS = 128
_SLICE = 32  # values of a row at a time
_PADDED = _SLICE + 1  # an odd row length: 32 threads reading one column meet 32 different banks


def lora_update(x, adapter_ids, lora_a, lora_b, scale=1.0):
    """What each row's adapter adds to a projection: scale * B (A x), two thin matrices for one of (out, hidden).

    - `x`: (rows, hidden) float32, a row for each token of the batch.
    - `adapter_ids`: (rows,) int32, the adapter of each row, -1 for none.
    - `lora_a`: (num_adapters, rank, hidden) float32, `lora_b`: (num_adapters, out, rank) float32, both C-contiguous;
      rank up to 128.
    - `scale`: what multiplies the update (alpha / rank in most adapters).

    Returns (rows, out) float32; rows without an adapter are 0. Arguments and result are NumPy arrays: each call copies
    them to the GPU and back, so time the kernels, not this call. A bad argument raises ValueError naming the argument,
    its value and what is allowed; no GPU and no simulator raises RuntimeError; both before anything runs.

    Source: LoRA, Hu et al. 2021, arXiv:2106.09685; rows grouped by adapter, in two kernels: Punica, Chen et al. 2023,
    arXiv:2310.18547, section 4.
    """
    check_arguments(x, adapter_ids, lora_a, lora_b, scale, compiled=True)
    require_device()
    out = np.zeros((x.shape[0], lora_b.shape[1]), np.float32)
    order, tiles = group_rows(adapter_ids)
    if not len(tiles):
        return out  # a CUDA grid cannot be empty
    arrays = (x.copy(), order, tiles, lora_a, lora_b, np.zeros((len(order), lora_a.shape[1]), np.float32), out)
    x, order, tiles, lora_a, lora_b, low_rank, out = (cuda.to_device(array) for array in arrays)
    shrink, expand = _compiled()
    shrink[len(tiles), THREADS](x, order, tiles, lora_a, np.float32(scale), low_rank)
    expand[(len(tiles), -(-out.shape[1] // THREADS)), THREADS](low_rank, order, tiles, lora_b, out)
    return out.copy_to_host()


@functools.cache
def _compiled():
    return cuda.jit(shrink_kernel), cuda.jit(expand_kernel)


def shrink_kernel(x, order, tiles, lora_a, scale, low_rank):
    """low_rank = scale * A x, (rows with an adapter, rank) float32, in the order of `order`."""
    # One shared array a line: the simulator tells them apart by line.
    x_slice = cuda.shared.array((ROWS_PER_TILE, _PADDED), float32)
    a_slice = cuda.shared.array((MAX_RANK, _PADDED), float32)
    sums = cuda.shared.array((ROWS_PER_TILE, MAX_RANK), float32)
    thread, num_threads = cuda.threadIdx.x, cuda.blockDim.x
    adapter, start, end = tiles[cuda.blockIdx.x, 0], tiles[cuda.blockIdx.x, 1], tiles[cuda.blockIdx.x, 2]
    num_rows, rank, hidden = end - start, lora_a.shape[1], x.shape[1]

    for item in range(thread, num_rows * rank, num_threads):  # one thread keeps the same sums throughout
        sums[item // rank, item % rank] = 0
    for first in range(0, hidden, _SLICE):
        width = min(_SLICE, hidden - first)
        for item in range(thread, num_rows * width, num_threads):
            x_slice[item // width, item % width] = x[order[start + item // width], first + item % width]
        for item in range(thread, rank * width, num_threads):
            a_slice[item // width, item % width] = lora_a[adapter, item // width, first + item % width]
        cuda.syncthreads()  # both slices are there
        for item in range(thread, num_rows * rank, num_threads):
            row, r = item // rank, item % rank
            total = sums[row, r]
            for i in range(width):
                total += x_slice[row, i] * a_slice[r, i]
            sums[row, r] = total
        cuda.syncthreads()  # all have read the slices
    for item in range(thread, num_rows * rank, num_threads):
        low_rank[start + item // rank, item % rank] = scale * sums[item // rank, item % rank]


def expand_kernel(low_rank, order, tiles, lora_b, out):
    """out = B low_rank, row by row of a tile; each thread has one output."""
    rows = cuda.shared.array((ROWS_PER_TILE, MAX_RANK), float32)
    thread, num_threads = cuda.threadIdx.x, cuda.blockDim.x
    adapter, start, end = tiles[cuda.blockIdx.x, 0], tiles[cuda.blockIdx.x, 1], tiles[cuda.blockIdx.x, 2]
    rank = low_rank.shape[1]
    for item in range(thread, (end - start) * rank, num_threads):
        rows[item // rank, item % rank] = low_rank[start + item // rank, item % rank]
    cuda.syncthreads()  # the tile's low-rank rows are there

    o = cuda.blockIdx.y * num_threads + thread
    if o < out.shape[1]:
        for row in range(end - start):
            total = float32(0)
            for r in range(rank):
                total += lora_b[adapter, o, r] * rows[row, r]
            out[order[start + row], o] = total

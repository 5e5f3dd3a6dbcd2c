"""Low-rank updates of a batch with mixed adapters in Numba: rows grouped by adapter, on all cores.

One work item is a tile of up to 16 rows with the same adapter: each value of its two matrices is read once for all of
them, as a weight matrix is for the whole batch.
"""

import numpy as np
from numba import njit, prange

from servelab.kernels.checks.lora import check_arguments
from servelab.kernels.reference.lora import ROWS_PER_TILE, group_rows

# Sums may be reordered and multiply-adds fused, without which no dot product is vectorized.
_FASTMATH = {"reassoc", "contract", "nsz"}
_inner = njit(fastmath=_FASTMATH)
_SLICE = 128  # outputs


def lora_update(x, adapter_ids, lora_a, lora_b, scale=1.0):
    """What each row's adapter adds to a projection: scale * B (A x), two thin matrices for one of (out, hidden).

    - `x`: (rows, hidden) float32, a row for each token of the batch.
    - `adapter_ids`: (rows,) int32, the adapter of each row, -1 for none.
    - `lora_a`: (num_adapters, rank, hidden) float32, `lora_b`: (num_adapters, out, rank) float32, both C-contiguous;
      rank up to 128.
    - `scale`: what multiplies the update (alpha / rank in most adapters).

    Returns (rows, out) float32; rows without an adapter are 0. The first call compiles for a few seconds. A bad
    argument raises ValueError naming the argument, its value and what is allowed, before anything runs.

    Source: LoRA, Hu et al. 2021, arXiv:2106.09685; rows grouped by adapter: Punica, Chen et al. 2023,
    arXiv:2310.18547, section 4.
    """
    check_arguments(x, adapter_ids, lora_a, lora_b, scale, compiled=True)
    out = np.zeros((x.shape[0], lora_b.shape[1]), np.float32)
    order, tiles = group_rows(adapter_ids)
    _kernel(np.ascontiguousarray(x), order, tiles, lora_a, lora_b, np.float32(scale), out)
    return out


@njit(parallel=True)
def _kernel(x, order, tiles, lora_a, lora_b, scale, out):
    for tile in prange(tiles.shape[0]):
        adapter, start, end = tiles[tile]
        rows = order[start:end]
        low_rank = _shrink(x, rows, lora_a[adapter], scale)
        _expand(low_rank, rows, lora_b[adapter], out)


@_inner
def _dot(a, x):
    dot = np.float32(0)
    for i in range(a.size):
        dot += a[i] * x[i]
    return dot


@_inner
def _dot_4(a, x0, x1, x2, x3):
    # Four rows at a time: each value of A is loaded once for all four.
    dot0 = dot1 = dot2 = dot3 = np.float32(0)
    for i in range(a.size):
        dot0 += a[i] * x0[i]
        dot1 += a[i] * x1[i]
        dot2 += a[i] * x2[i]
        dot3 += a[i] * x3[i]
    return dot0, dot1, dot2, dot3


@_inner
def _shrink(x, rows, a, scale):
    """scale * A x of these rows, as columns: (rank, 16) float32, with rows of 0 up to a multiple of 4."""
    low_rank = np.zeros(((a.shape[0] + 3) // 4 * 4, ROWS_PER_TILE), np.float32)
    last = rows.size - 1
    for first in range(0, rows.size, 4):
        if first == last:  # a row by itself, as where all requests use different adapters
            for r in range(a.shape[0]):
                low_rank[r, first] = scale * _dot(a[r], x[rows[first]])
            break
        x0, x1 = x[rows[first]], x[rows[min(first + 1, last)]]
        x2, x3 = x[rows[min(first + 2, last)]], x[rows[min(first + 3, last)]]
        for r in range(a.shape[0]):
            dots = _dot_4(a[r], x0, x1, x2, x3)
            for i in range(min(4, rows.size - first)):
                low_rank[r, first + i] = scale * dots[i]
    return low_rank


@_inner
def _expand(low_rank, rows, b, out):
    """out[rows] = B low_rank, a slice of B at a time, transposed once: the loop over its outputs then vectorizes."""
    transposed = np.zeros((low_rank.shape[0], _SLICE), np.float32)
    sums = np.empty((2, _SLICE), np.float32)
    for start in range(0, b.shape[0], _SLICE):
        width = min(_SLICE, b.shape[0] - start)
        for r in range(b.shape[1]):
            for i in range(width):
                transposed[r, i] = b[start + i, r]
        for row in range(0, rows.size, 2):
            sums[:] = 0
            for r in range(0, low_rank.shape[0], 4):
                _add_4(sums[0, :width], sums[1, :width], low_rank[r : r + 4], row, transposed[r : r + 4])
            for i in range(min(2, rows.size - row)):
                out[rows[row + i], start : start + width] = sums[i, :width]


@njit(fastmath=_FASTMATH, forceinline=True)
def _add_4(sums0, sums1, low_rank, row, vectors):
    # Two rows at a time: each value of B is loaded once for both.
    a0, a1, a2, a3 = low_rank[0, row], low_rank[1, row], low_rank[2, row], low_rank[3, row]
    b0, b1, b2, b3 = low_rank[0, row + 1], low_rank[1, row + 1], low_rank[2, row + 1], low_rank[3, row + 1]
    for i in range(sums0.size):
        v0, v1, v2, v3 = vectors[0, i], vectors[1, i], vectors[2, i], vectors[3, i]
        sums0[i] += a0 * v0 + a1 * v1 + a2 * v2 + a3 * v3
        sums1[i] += b0 * v0 + b1 * v1 + b2 * v2 + b3 * v3

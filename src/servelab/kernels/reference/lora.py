"""Low-rank updates of a batch with mixed adapters in NumPy: a loop over requests."""

import numpy as np

from servelab.kernels.checks.lora import NO_ADAPTER, check_arguments

ROWS_PER_TILE = 16  # rows of one adapter that a grouped kernel takes at a time


def lora_update(x, adapter_ids, lora_a, lora_b, scale=1.0):
    """What each row's adapter adds to a projection: scale * B (A x), two thin matrices for one of (out, hidden).

    - `x`: (rows, hidden) float32, a row for each token of the batch.
    - `adapter_ids`: (rows,) int32, the adapter of each row, -1 for none.
    - `lora_a`: (num_adapters, rank, hidden) float32, `lora_b`: (num_adapters, out, rank) float32.
    - `scale`: what multiplies the update (alpha / rank in most adapters).

    Returns (rows, out) float32; rows without an adapter are 0. A bad argument raises ValueError naming the argument,
    its value and what is allowed, before anything runs.

    Source: LoRA, Hu et al. 2021, arXiv:2106.09685, section 4.1.
    """
    check_arguments(x, adapter_ids, lora_a, lora_b, scale, compiled=False)
    out = np.zeros((x.shape[0], lora_b.shape[1]), np.float32)
    for row, adapter in enumerate(adapter_ids):
        if adapter != NO_ADAPTER:
            low_rank = lora_a[adapter] @ x[row]  # (rank,)
            out[row] = np.float32(scale) * (lora_b[adapter] @ low_rank)
    return out


def group_rows(adapter_ids):
    """How the grouped kernels walk the rows: (order, tiles).

    `order`: (rows with an adapter,) int32, these rows sorted by adapter. `tiles`: (num_tiles, 3) int32, each the
    adapter, and the start and the end in `order` of at most 16 rows that use it.
    """
    order = np.argsort(adapter_ids, kind="stable").astype(np.int32)
    order = order[adapter_ids[order] != NO_ADAPTER]
    adapters, starts, counts = np.unique(adapter_ids[order], return_index=True, return_counts=True)
    tiles = [
        (adapter, first, min(first + ROWS_PER_TILE, start + count))
        for adapter, start, count in zip(adapters, starts, counts, strict=True)
        for first in range(start, start + count, ROWS_PER_TILE)
    ]
    return order, np.array(tiles, np.int32).reshape(-1, 3)

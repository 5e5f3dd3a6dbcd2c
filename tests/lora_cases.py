"""Random inputs for the low-rank update kernels, with everything that must not be read made poisonous."""

import numpy as np


def random_case(seed, *, adapter_ids=(0, -1, 2, 0), num_adapters=4, rank=5, hidden=70, out=140, scale=0.5):
    """Arguments of `lora_update`: NaN in the rows of x without an adapter, and in adapters that no row uses.

    Values are such that results are about 1.
    """
    rng = np.random.default_rng(seed)
    adapter_ids = np.array(adapter_ids, np.int32)
    x = rng.standard_normal((len(adapter_ids), hidden), dtype=np.float32)
    lora_a = rng.standard_normal((num_adapters, rank, hidden), dtype=np.float32) / np.float32(np.sqrt(hidden))
    lora_b = rng.standard_normal((num_adapters, out, rank), dtype=np.float32) / np.float32(np.sqrt(rank))
    x[adapter_ids == -1] = np.nan
    unused = np.setdiff1d(np.arange(num_adapters), adapter_ids)
    lora_a[unused] = lora_b[unused] = np.nan
    return {"x": x, "adapter_ids": adapter_ids, "lora_a": lora_a, "lora_b": lora_b, "scale": scale}


# Groups of one row, of a full tile and of one more; slices that end early; small, as the simulator runs threads in
# Python.
CUDA_CASES = {
    "mixed": {},
    "no adapter": {"adapter_ids": (-1, -1)},
    "one row": {"adapter_ids": (1,), "rank": 1, "hidden": 1, "out": 1},
    "a full tile": {"adapter_ids": (3,) * 16, "rank": 4, "hidden": 32, "out": 128},
    "past a tile": {"adapter_ids": (0, 1) + (3,) * 17, "rank": 3, "hidden": 33, "out": 129},
    "rank 128": {"adapter_ids": (0,), "rank": 128, "hidden": 8, "out": 3, "num_adapters": 1},
}

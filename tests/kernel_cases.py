"""Random inputs for the paged-attention kernels, with everything that must not be read made poisonous."""

import numpy as np


def random_case(seed, *, head_dim=64, num_kv_heads=2, group=4, block_size=16, seq_lens=(1, 16, 37), dtype="float32"):
    """Arguments of `paged_attention`: shuffled tables, a shared first block, and NaN in every unused cache slot.

    All sequences longer than a block share their first one. Table entries past the last needed block are -1.
    """
    rng = np.random.default_rng(seed)
    blocks_needed = [-(-seq_len // block_size) for seq_len in seq_lens]
    num_blocks = sum(blocks_needed) + 3
    free = list(rng.permutation(num_blocks))
    shared = free.pop()
    block_tables = np.full((len(seq_lens), max(blocks_needed) + 1), -1, np.int32)
    used = np.zeros((num_blocks, block_size), bool)
    for row, (seq_len, needed) in enumerate(zip(seq_lens, blocks_needed, strict=True)):
        table = [free.pop() for _ in range(needed)]
        if seq_len > block_size:
            table[0] = shared
        block_tables[row, :needed] = table
        for position in range(seq_len):
            used[table[position // block_size], position % block_size] = True

    shape = (num_blocks, num_kv_heads, block_size, head_dim)
    caches = [rng.standard_normal(shape, dtype=np.float32).astype(dtype) for _ in range(2)]
    for cache in caches:
        cache.swapaxes(1, 2)[~used] = np.nan
    return {
        "query": rng.standard_normal((len(seq_lens), num_kv_heads * group, head_dim), dtype=np.float32),
        "key_cache": caches[0],
        "value_cache": caches[1],
        "block_tables": block_tables,
        "seq_lens": np.array(seq_lens, np.int32),
    }


# Every block size, group, head_dim and dtype at least once; small, as the simulator runs threads in Python.
CUDA_CASES = {
    "length 1": {"seq_lens": (1,), "num_kv_heads": 1, "group": 1},
    "full last block": {"seq_lens": (16, 32), "num_kv_heads": 1, "group": 1},
    "past a tile": {"seq_lens": (33, 7), "num_kv_heads": 2, "group": 2, "block_size": 5},
    "blocks of 1": {"seq_lens": (3,), "num_kv_heads": 1, "group": 4, "block_size": 1, "dtype": "float16"},
    "blocks of 4": {"seq_lens": (5, 8), "num_kv_heads": 1, "group": 1, "block_size": 4, "head_dim": 128},
    "group of 8": {"seq_lens": (18,), "num_kv_heads": 1, "group": 8, "dtype": "float16"},
    "blocks past a tile": {"seq_lens": (41,), "num_kv_heads": 1, "group": 1, "block_size": 40},
    "head_dim 128, float16": {"seq_lens": (34,), "num_kv_heads": 1, "group": 2, "head_dim": 128, "dtype": "float16"},
}

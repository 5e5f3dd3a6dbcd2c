"""Paged attention in NumPy: gather each sequence's tokens through its block table, then plain softmax attention.

The oracle for the fast kernels: it copies what they read in place, and holds all scores at once.
"""

import numpy as np

from servelab.kernels.checks.attention import check_arguments


def paged_attention(query, key_cache, value_cache, block_tables, seq_lens, scale=None):
    """One decode step of attention over cached tokens, read through a block table.

    - `query`: (num_seqs, num_heads, head_dim) float32.
    - `key_cache`, `value_cache`: (num_blocks, num_kv_heads, block_size, head_dim), both float32 or both float16
      (the layout that vLLM calls HND). Query head h reads KV head h // (num_heads // num_kv_heads).
    - `block_tables`: (num_seqs, max_blocks_per_seq) int32. Entry i of a row is the physical block of tokens
      i * block_size to (i + 1) * block_size - 1; entries past the last needed block are ignored.
    - `seq_lens`: (num_seqs,) int32, in tokens, the newest included: 1 to max_blocks_per_seq * block_size.
    - `scale`: what multiplies the scores; 1 / sqrt(head_dim) by default.

    Returns (num_seqs, num_heads, head_dim) float32. Any head_dim will do. A bad argument raises ValueError naming
    the argument, its value and what is allowed, before anything runs.

    Source: PagedAttention, Kwon et al. 2023, arXiv:2309.06180, section 4.1.
    """
    arrays = (query, key_cache, value_cache, block_tables, seq_lens)
    scale = check_arguments(*arrays, scale, compiled=False)
    out = np.empty_like(query)
    for seq, seq_len in enumerate(seq_lens):
        keys = gather(key_cache, block_tables[seq], seq_len)
        values = gather(value_cache, block_tables[seq], seq_len)
        out[seq] = attend(query[seq], keys, values, scale)
    return out


def gather(cache, block_table, seq_len):
    """Copy one sequence's tokens out of the cache, in order and in float32.

    Returns (num_kv_heads, seq_len, head_dim).
    """
    _, num_kv_heads, block_size, head_dim = cache.shape
    # (blocks, num_kv_heads, block_size, head_dim)
    blocks = cache[block_table[: -(-seq_len // block_size)]]
    tokens = blocks.swapaxes(0, 1).reshape(num_kv_heads, -1, head_dim)
    return tokens[:, :seq_len].astype(np.float32)


def attend(query, keys, values, scale):
    """Softmax attention of one sequence: each group of heads over its KV head."""
    num_kv_heads, _, head_dim = keys.shape
    grouped = query.reshape(num_kv_heads, -1, head_dim)  # (kv heads, group, head_dim)
    scores = scale * (grouped @ keys.swapaxes(1, 2))  # (kv heads, group, seq_len)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return (weights @ values).reshape(query.shape)  # (num_heads, head_dim)

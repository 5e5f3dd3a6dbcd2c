"""A paged KV cache for all layers of a model, and attention that reads it through block tables (section 8.3.1).

The layout is that of the library's kernels (vLLM calls it HND): (num_blocks, num_kv_heads, block_size, row) a layer.
On a CPU, with heads of 64 or 128 elements, decode rows are read in place by those kernels, all rows in one call;
otherwise, and for prompts, blocks are gathered, decoded, and PyTorch attends.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from servelab.checks import require_int
from servelab.model.config import DecoderConfig
from servelab.model.decoder import causal_attention
from servelab.model.kv_formats import KVFormat, kv_format

KERNEL_HEAD_DIMS = (64, 128)
# Rows of up to so many tokens (decodes, drafts, ends of prompts) are read together, each token as a sequence of its
# own. Longer ones share a gathered copy of their keys among their tokens.
MAX_SHORT_TOKENS = 8


class Sequences(NamedTuple):
    """The tokens of one step and the tables of their requests, on the cache's device. Built by `PagedKV.plan`.

    short, tables, lengths  indices in the flat row, block tables (short, max_blocks), tokens each of them sees
    long                    (first, end in the flat row, tokens that its last one sees, its blocks) of each long row
    """

    blocks: Tensor  # (num_tokens,): where each token's K and V go
    offsets: Tensor  # (num_tokens,)
    short: Tensor  # (num_short,)
    tables: Tensor  # (num_short, max_blocks) int32
    lengths: Tensor  # (num_short,) int32
    long: list[tuple[int, int, int, Tensor]]


class PagedKV:
    """Keys and values of `num_blocks` blocks of `block_size` tokens, in all layers, stored as `kv_dtype` says.

    kv_dtype  a name of `kv_formats.FORMATS`, or a `KVFormat` of your own
    kernels   whether the library's CPU kernels read and write it; `None`: where they can

    It knows no requests: who owns which block is the scheduler's affair.
    """

    def __init__(
        self,
        config: DecoderConfig,
        num_blocks: int,
        block_size: int,
        kv_dtype: str | KVFormat = "f32",
        device: torch.device | str = "cpu",
        kernels: bool | None = None,
    ):
        require_int("num_blocks", num_blocks, minimum=1)
        require_int("block_size", block_size, minimum=1)
        self.format = kv_format(kv_dtype)
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.head_dim = config.head_dim
        row = self.format.row_size(config.head_dim)
        shape = (2, config.num_hidden_layers, num_blocks, config.num_key_value_heads, block_size, row)
        self.keys, self.values = torch.zeros(shape, dtype=self.format.dtype, device=device)
        can = self.keys.device.type == "cpu" and config.head_dim in KERNEL_HEAD_DIMS
        if kernels and not can:
            raise ValueError(
                f"kernels is True with head_dim {config.head_dim} on {self.keys.device.type}; "
                f"it must be False or None, as the CPU kernels take head_dim 64 and 128"
            )
        use = can if kernels is None else kernels
        self._attend = self.format.attention_kernel() if use else None
        self._write = self.format.write_kernel() if use else None

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks, keys and values."""
        return self.keys.nbytes + self.values.nbytes

    def plan(self, rows: Sequence[tuple[int, int, list[int]]]) -> Sequences:
        """What `write` and `attend` need to know in each layer.

        `rows`: (context, new tokens, block ids) of each request, whose tokens lie one row behind the other in the
        flat row. A request's blocks hold its context and have room for its new tokens.
        """
        blocks, offsets, short, lengths, tables, long = [], [], [], [], [], []
        first = 0
        for context, num_tokens, block_ids in rows:
            end = context + num_tokens
            positions = range(context, end)
            blocks += [block_ids[position // self.block_size] for position in positions]
            offsets += [position % self.block_size for position in positions]
            used = block_ids[: -(-end // self.block_size)]
            if num_tokens <= MAX_SHORT_TOKENS:
                short += range(first, first + num_tokens)
                lengths += [position + 1 for position in positions]
                tables += [used] * num_tokens
            else:
                long.append((first, first + num_tokens, end, self._tensor(used, torch.int64)))
            first += num_tokens
        width = max(map(len, tables), default=0)
        padded = [table + [0] * (width - len(table)) for table in tables]  # block 0 exists, and is not looked at
        return Sequences(
            self._tensor(blocks, torch.int64),
            self._tensor(offsets, torch.int64),
            self._tensor(short, torch.int64),
            self._tensor(padded, torch.int32),
            self._tensor(lengths, torch.int32),
            long,
        )

    def _tensor(self, values: list, dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=self.keys.device)

    def write(self, layer: int, sequences: Sequences, key: Tensor, value: Tensor) -> None:
        """Store the new tokens' `key` and `value`, each (num_tokens, num_kv_heads, head_dim), in their slots."""
        keys, values, blocks, offsets = self.keys[layer], self.values[layer], sequences.blocks, sequences.offsets
        if self._write is not None:
            slots = (blocks * self.block_size + offsets).numpy()
            self._write(key.float().numpy(), value.float().numpy(), keys.numpy(), values.numpy(), slots)
            return
        keys[blocks, :, offsets] = self.format.encode(key)
        values[blocks, :, offsets] = self.format.encode(value)

    def read(self, layer: int, block_ids: Tensor, num_tokens: int) -> tuple[Tensor, Tensor]:
        """A copy of the first `num_tokens` tokens' keys and values in these blocks, decoded.

        `block_ids`: (num_blocks,) integers. Returns two tensors (num_tokens, num_kv_heads, head_dim).
        """
        tokens = (self._gather(cache[layer], block_ids)[:num_tokens] for cache in (self.keys, self.values))
        key, value = (self.format.decode(stored) for stored in tokens)
        return key, value

    def _gather(self, cache: Tensor, block_ids: Tensor) -> Tensor:
        """(..., blocks) ids to (..., blocks * block_size, num_kv_heads, row)."""
        return cache[block_ids].transpose(-3, -2).flatten(-4, -3)

    def attend(self, layer: int, sequences: Sequences, query: Tensor) -> Tensor:
        """Attention of each new token to all of its request up to itself, which must have been written.

        `query`: (num_tokens, num_attention_heads, head_dim). Returns the same shape and dtype.
        """
        output = torch.empty_like(query)
        if len(sequences.short):
            attend_short = self._attend_by_kernel if self._attend is not None else self._attend_by_gather
            output[sequences.short] = attend_short(layer, sequences, query[sequences.short]).to(query.dtype)
        for first, end, num_tokens, block_ids in sequences.long:
            key, value = (tensor.to(query.dtype) for tensor in self.read(layer, block_ids, num_tokens))
            output[first:end] = causal_attention(layer, query[first:end], key, value)
        return output

    def _attend_by_kernel(self, layer: int, sequences: Sequences, query: Tensor) -> Tensor:
        tables, lengths = sequences.tables.numpy(), sequences.lengths.numpy()
        keys, values = self.keys[layer].numpy(), self.values[layer].numpy()
        return torch.from_numpy(self._attend(query.float().numpy(), keys, values, tables, lengths))

    def _attend_by_gather(self, layer: int, sequences: Sequences, query: Tensor) -> Tensor:
        key, value = (
            self.format.decode(self._gather(cache[layer], sequences.tables)).to(query.dtype)
            for cache in (self.keys, self.values)
        )  # (num_short, max_tokens, kv heads, head_dim)
        sees = torch.arange(key.shape[1], device=key.device) < sequences.lengths[:, None]  # (num_short, max_tokens)
        # A weight of 0 does not silence what an old, damaged block may hold: 0 times NaN is NaN.
        value = value.masked_fill(~sees[:, :, None, None], 0)
        output = functional.scaled_dot_product_attention(
            query[:, :, None],  # (num_short, heads, 1, head_dim)
            key.transpose(1, 2),  # (num_short, kv heads, max_tokens, head_dim)
            value.transpose(1, 2),
            attn_mask=sees[:, None, None],
            enable_gqa=True,
        )
        return output[:, :, 0]

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks (source, destination) in order, in all layers: copy-on-write.

        Not by the library's kernel, which copies all at once: here a block may be freed and be the next destination.
        """
        for source, destination in pairs:
            for name, block_id in (("source", source), ("destination", destination)):
                require_int(name, block_id, maximum=self.num_blocks - 1)
        for source, destination in pairs:
            self.keys[:, destination] = self.keys[:, source]
            self.values[:, destination] = self.values[:, source]

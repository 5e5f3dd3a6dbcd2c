"""The serving engine: blocks of the KV cache and, on top of them, the scheduler."""

from servelab.engine.blocks import BlockPool, BlockTable, OutOfBlocks

__all__ = ["BlockPool", "BlockTable", "OutOfBlocks"]

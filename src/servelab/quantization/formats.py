"""What a format stores for a block of values, and what fits beside weights in it (sections 8.4.1 and 8.4.2).

Sizes are `int` bytes. Block layouts: ggml-common.h of llama.cpp; FP8: the Open Compute Project's OFP8, revision 1.0.
"""

from dataclasses import dataclass

from servelab.checks import require_int, require_name


@dataclass(frozen=True)
class Format:
    """A block: how many values share metadata, the bytes of their codes, and the bytes of scales and minima."""

    values: int
    code_bytes: int
    metadata_bytes: int = 0

    def __post_init__(self):
        require_int("values", self.values, minimum=1)
        require_int("code_bytes", self.code_bytes, minimum=1)
        require_int("metadata_bytes", self.metadata_bytes)

    @property
    def block_bytes(self) -> int:
        return self.code_bytes + self.metadata_bytes

    @property
    def bits_per_value(self) -> float:
        """With metadata: 8.5 for q8_0, not 8."""
        return self.block_bytes * 8 / self.values

    @property
    def metadata_share(self) -> float:
        """The part of the bytes that holds no codes: it grows as codes shrink."""
        return self.metadata_bytes / self.block_bytes


# An FP8 scale is one for a whole tensor or head: too few bytes to count in a block.
FORMATS = {
    "f32": Format(1, 4),
    "f16": Format(1, 2),
    "bf16": Format(1, 2),
    "fp8": Format(1, 1),
    "q8_0": Format(32, 32, 2),
    "q4_0": Format(32, 16, 2),
    "q2_k": Format(256, 64, 20),
    "q3_k": Format(256, 96, 14),
    "q4_k": Format(256, 128, 16),
    "q6_k": Format(256, 192, 18),
}


def stored_bytes(values: int, fmt: str) -> tuple[int, int]:
    """(bytes of codes, bytes of metadata) of `values` values in the format `fmt`, which must fill whole blocks."""
    require_name("fmt", fmt, FORMATS)
    require_int("values", values)
    block = FORMATS[fmt]
    blocks, rest = divmod(values, block.values)
    if rest:
        raise ValueError(f"values is {values}; {fmt} needs a multiple of {block.values}")
    return blocks * block.code_bytes, blocks * block.metadata_bytes


def memory_left(memory_bytes: int, reserved_bytes: int, weight_bytes: int, kv_bytes: int = 0) -> int:
    """Bytes left beside weights and KV; negative where they do not fit, by as much as is missing.

    `reserved_bytes` goes to the system and to workspaces. A memory-mapped file takes its bytes too: a page must be in
    memory when it is read, and each decode step reads all of a dense model's.
    """
    require_int("memory_bytes", memory_bytes)
    require_int("reserved_bytes", reserved_bytes, maximum=memory_bytes)
    require_int("weight_bytes", weight_bytes)
    require_int("kv_bytes", kv_bytes)
    return memory_bytes - reserved_bytes - weight_bytes - kv_bytes

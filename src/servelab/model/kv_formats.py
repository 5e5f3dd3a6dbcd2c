"""What a paged KV cache stores for a head of one token: one class a format, to encode on writing and decode on reading.

A new format is a class with `name`, `dtype`, `row_size`, `encode` and `decode`, added to `FORMATS`. Where the library
has a CPU kernel that writes or reads it in place, `write_kernel` and `attention_kernel` hand that over.

q8_0 and q4_0 are here once more, in PyTorch, so that they run on a GPU too; the tests hold them to the bytes and
values of `servelab.quantization`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from servelab.checks import require_name
from servelab.quantization import FORMATS as SIZES
from servelab.quantization.fp8 import FP8_MAX


class KVFormat:
    """Base of the formats: floating-point numbers stored as they are, in `dtype`."""

    def __init__(self, name: str, dtype: torch.dtype):
        self.name = name
        self.dtype = dtype  # of what is stored

    def row_size(self, head_dim: int) -> int:
        """Stored elements for one head of one token. Raises `ValueError` if the format cannot hold that `head_dim`."""
        return head_dim

    def encode(self, heads: Tensor) -> Tensor:
        """(..., head_dim) of any floating-point dtype to (..., row_size) of `self.dtype`."""
        return heads.to(self.dtype)

    def decode(self, stored: Tensor) -> Tensor:
        """(..., row_size) of `self.dtype` to (..., head_dim), floating-point."""
        return stored

    def write_kernel(self) -> Callable | None:
        """write(key, value, key_cache, value_cache, slot_mapping) on NumPy arrays, as in `kernels.cpu`; or `None`."""
        return None

    def attention_kernel(self) -> Callable | None:
        """attend(query, key_cache, value_cache, block_tables, seq_lens) on NumPy arrays, as there; or `None`.

        It must attend to what `decode` gives.
        """
        if self.name not in ("f32", "f16"):
            return None
        from servelab.kernels.cpu import paged_attention

        return paged_attention


class FP8(KVFormat):
    """E4M3 codes with a scale of 1, saturated at 448, as `kernels.cpu.write_fp8` writes them."""

    def __init__(self):
        super().__init__("fp8", torch.uint8)  # PyTorch cannot index its own type of FP8

    def encode(self, heads: Tensor) -> Tensor:
        # PyTorch would turn what is too large into NaN.
        return heads.float().clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn).view(torch.uint8)

    def decode(self, stored: Tensor) -> Tensor:
        return stored.view(torch.float8_e4m3fn).float()


class Blocks(KVFormat):
    """Blocks of 32 values, a float16 scale in the first two bytes of each: what q8_0 and q4_0 share."""

    def __init__(self, name: str):
        super().__init__(name, torch.uint8)
        self.block = SIZES[name]

    def row_size(self, head_dim: int) -> int:
        if head_dim % self.block.values:
            raise ValueError(f"head_dim is {head_dim}; {self.name} needs a multiple of {self.block.values}")
        return head_dim // self.block.values * self.block.block_bytes

    def encode(self, heads: Tensor) -> Tensor:
        values = heads.float().unflatten(-1, (-1, self.block.values))  # (..., blocks, 32)
        scale = self.scale(values)  # (..., blocks, 1)
        codes = self.codes(values, torch.where(scale == 0, 0.0, 1 / scale))  # (..., blocks, code bytes)
        return torch.cat((scale.half().view(torch.uint8), codes), dim=-1).flatten(-2)

    def decode(self, stored: Tensor) -> Tensor:
        blocks = stored.unflatten(-1, (-1, self.block.block_bytes))
        scale = blocks[..., :2].contiguous().view(torch.float16).float()  # (..., blocks, 1)
        return (self.values(blocks[..., 2:]) * scale).flatten(-2)

    def write_kernel(self) -> Callable:
        from servelab.kernels.cpu import write_quantized

        return lambda *arguments: write_quantized(*arguments, self.name)

    def attention_kernel(self) -> Callable:
        from servelab.kernels.cpu import paged_attention_quantized

        return lambda *arguments: paged_attention_quantized(*arguments, self.name)


class Q8_0(Blocks):
    """Scale = largest magnitude / 127; codes are int8, rounded half away from zero."""

    def scale(self, values: Tensor) -> Tensor:
        return values.abs().amax(-1, keepdim=True) / 127

    def codes(self, values: Tensor, inverse: Tensor) -> Tensor:
        codes = values * inverse
        whole = codes.trunc()
        whole = whole + torch.copysign(((codes - whole).abs() >= 0.5).float(), codes)
        return _finite(whole).to(torch.int8).view(torch.uint8)

    def values(self, codes: Tensor) -> Tensor:
        return codes.contiguous().view(torch.int8).float()


class Q4_0(Blocks):
    """Scale = the value of largest magnitude / -8; byte i holds the codes of values i (low half) and i + 16."""

    def scale(self, values: Tensor) -> Tensor:
        return values.gather(-1, values.abs().argmax(-1, keepdim=True)) / -8

    def codes(self, values: Tensor, inverse: Tensor) -> Tensor:
        codes = _finite((values * inverse + 8.5).trunc()).clamp(0, 15).to(torch.uint8)
        return codes[..., :16] | codes[..., 16:] << 4

    def values(self, codes: Tensor) -> Tensor:
        return torch.cat((codes & 15, codes >> 4), dim=-1).float() - 8


class Int2(KVFormat):
    """2-bit codes for groups of 32 values, with scale and minimum in float16: 12 bytes, where float32 takes 128.

    Asymmetric as in KIVI (Liu et al. 2024, arXiv:2402.02750), but grouped along each head for keys too. No kernel.
    """

    GROUP, BYTES = 32, 12

    def __init__(self):
        super().__init__("int2", torch.uint8)

    def row_size(self, head_dim: int) -> int:
        if head_dim % self.GROUP:
            raise ValueError(f"head_dim is {head_dim}; int2 needs a multiple of {self.GROUP}")
        return head_dim // self.GROUP * self.BYTES

    def encode(self, heads: Tensor) -> Tensor:
        values = heads.float().unflatten(-1, (-1, self.GROUP))  # (..., groups, 32)
        low = values.amin(-1, keepdim=True).half()  # (..., groups, 1)
        scale = ((values.amax(-1, keepdim=True) - low.float()) / 3).half()
        steps = (values - low.float()) * torch.where(scale == 0, 0.0, 1 / scale.float())
        codes = steps.round().clamp(0, 3).to(torch.uint8).unflatten(-1, (4, 8))  # (..., groups, 4, 8)
        shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8, device=codes.device)[:, None]
        packed = (codes << shifts).sum(-2).to(torch.uint8)  # (..., groups, 8)
        return torch.cat((scale.view(torch.uint8), low.view(torch.uint8), packed), dim=-1).flatten(-2)

    def decode(self, stored: Tensor) -> Tensor:
        groups = stored.unflatten(-1, (-1, self.BYTES))
        scale, low = groups[..., :4].contiguous().view(torch.float16).float().split(1, dim=-1)
        shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8, device=stored.device)[:, None]
        codes = groups[..., None, 4:] >> shifts & 3  # (..., groups, 4, 8)
        return (codes.flatten(-2).float() * scale + low).flatten(-2)


def _finite(codes: Tensor) -> Tensor:
    return torch.where(codes.isfinite(), codes, 0.0)


FORMATS: dict[str, KVFormat] = {
    "f32": KVFormat("f32", torch.float32),
    "f16": KVFormat("f16", torch.float16),
    "bf16": KVFormat("bf16", torch.bfloat16),
    "fp8": FP8(),
    "q8_0": Q8_0("q8_0"),
    "q4_0": Q4_0("q4_0"),
    "int2": Int2(),
}


def kv_format(kv_dtype: "str | KVFormat") -> KVFormat:
    """The format of that name; a format of your own is given back. Raises `ValueError` on an unknown name."""
    if isinstance(kv_dtype, KVFormat):
        return kv_dtype
    require_name("kv_dtype", kv_dtype, FORMATS)
    return FORMATS[kv_dtype]

"""The kernels in Numba, for CPUs: on all cores, and reading the KV cache where it lies."""

from servelab.kernels.cpu.attention import paged_attention
from servelab.kernels.cpu.blocks import copy_blocks
from servelab.kernels.cpu.fp8 import paged_attention_fp8, write_fp8
from servelab.kernels.cpu.lora import lora_update
from servelab.kernels.cpu.quantized import paged_attention_quantized, write_quantized
from servelab.kernels.cpu.verification import verify

__all__ = [
    "copy_blocks",
    "lora_update",
    "paged_attention",
    "paged_attention_fp8",
    "paged_attention_quantized",
    "verify",
    "write_fp8",
    "write_quantized",
]

"""The kernels in NumPy: plain, slow, and the oracle for the fast ones."""

from servelab.kernels.reference.attention import attend, gather, paged_attention
from servelab.kernels.reference.blocks import copy_blocks
from servelab.kernels.reference.fp8 import paged_attention_fp8, write_fp8
from servelab.kernels.reference.lora import lora_update
from servelab.kernels.reference.quantized import paged_attention_quantized, write_quantized
from servelab.kernels.reference.verification import verify

__all__ = [
    "attend",
    "copy_blocks",
    "gather",
    "lora_update",
    "paged_attention",
    "paged_attention_fp8",
    "paged_attention_quantized",
    "verify",
    "write_fp8",
    "write_quantized",
]

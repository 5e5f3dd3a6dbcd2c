"""The kernels in Numba-CUDA: the same source on a GPU and, at toy size, on Numba's simulator."""

from servelab.kernels.cuda.attention import paged_attention
from servelab.kernels.cuda.blocks import copy_blocks
from servelab.kernels.cuda.device import is_available, is_simulator
from servelab.kernels.cuda.lora import lora_update
from servelab.kernels.cuda.quantized import paged_attention_quantized, write_quantized
from servelab.kernels.cuda.verification import verify

__all__ = [
    "copy_blocks",
    "is_available",
    "is_simulator",
    "lora_update",
    "paged_attention",
    "paged_attention_quantized",
    "verify",
    "write_quantized",
]

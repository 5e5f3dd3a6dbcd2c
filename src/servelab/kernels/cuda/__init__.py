"""The kernels in Numba-CUDA: the same source on a GPU and, at toy size, on Numba's simulator."""

from servelab.kernels.cuda.attention import paged_attention
from servelab.kernels.cuda.device import is_available, is_simulator

__all__ = ["is_available", "is_simulator", "paged_attention"]

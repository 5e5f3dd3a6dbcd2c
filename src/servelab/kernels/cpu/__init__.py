"""The kernels in Numba, for CPUs: on all cores, and reading the KV cache where it lies."""

from servelab.kernels.cpu.attention import paged_attention

__all__ = ["paged_attention"]

"""The kernels in NumPy: plain, slow, and the oracle for the fast ones."""

from servelab.kernels.reference.attention import attend, gather, paged_attention

__all__ = ["attend", "gather", "paged_attention"]

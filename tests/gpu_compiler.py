"""Compiling CUDA kernels for GPUs that are not here."""

import platform
import sys

import pytest
from numba import cuda

GPUS = [(8, 0), (9, 0), (12, 0)]  # compute capabilities: A100, H100, and RTX PRO 6000 Blackwell

needs_compiler = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="NVIDIA's compiler is installed on Linux x86-64"
)


def ptx_for(kernel, signature, compute_capability):
    """The PTX of a kernel, given as a Python function; checked to be for that GPU."""
    ptx, _ = cuda.compile_ptx(kernel, signature, cc=compute_capability)
    assert f".target sm_{compute_capability[0]}{compute_capability[1]}" in ptx
    return ptx

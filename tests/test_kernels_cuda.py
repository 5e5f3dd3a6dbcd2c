"""CUDA kernels: all executed on the simulator at toy size; paged attention compiled for real GPUs, and run on one
where there is one."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kernel_cases import CUDA_CASES, random_case
from numba import cuda as numba_cuda
from numba import float32, int32, types

from servelab.kernels import cuda, reference

TESTS = Path(__file__).parent
ATOL = 5e-6  # as in test_kernels.py

needs_compiler = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="NVIDIA's compiler is installed on Linux x86-64"
)


def test_every_kernel_on_the_simulator_agrees_with_the_reference():
    run = subprocess.run(
        [sys.executable, TESTS / "cuda_simulator_cases.py"],
        env=os.environ | {"NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["simulator"]
    assert report["available"]
    assert report["errors"].keys() == set(cuda.__all__) - {"is_available", "is_simulator"}
    assert report["errors"]["paged_attention"].keys() == CUDA_CASES.keys()
    # `not <=` also catches NaN, which a read of what must not be read would bring.
    off = {
        (kernel, case): error
        for kernel, errors in report["errors"].items()
        for case, error in errors.items()
        if not error <= report["tolerances"][kernel]
    }
    assert not off


def test_every_block_size_group_head_dim_and_dtype_is_among_the_cases():
    default = {"head_dim": 64, "block_size": 16, "dtype": "float32"}
    cases = [default | options for options in CUDA_CASES.values()]
    assert {case["head_dim"] for case in cases} == {64, 128}
    assert {case["dtype"] for case in cases} == {"float32", "float16"}
    assert {case["group"] for case in cases} >= {1, 4, 8}
    assert {case["block_size"] for case in cases} >= {1, 4, 5, 16}


@needs_compiler
@pytest.mark.parametrize("compute_capability", [(8, 0), (9, 0), (12, 0)])
@pytest.mark.parametrize("cache_type", [float32, types.float16], ids=str)
@pytest.mark.parametrize("head_dim", [64, 128])
def test_kernel_compiles_for_gpus(head_dim, cache_type, compute_capability):
    cache = cache_type[:, :, :, ::1]
    signature = types.void(float32[:, :, ::1], cache, cache, int32[:, ::1], int32[::1], float32, float32[:, :, ::1])
    ptx, _ = numba_cuda.compile_ptx(cuda.attention.kernel_source(head_dim), signature, cc=compute_capability)
    assert f".target sm_{compute_capability[0]}{compute_capability[1]}" in ptx
    assert "bar.sync" in ptx  # syncthreads
    assert ".shared" in ptx
    assert "cvt.f64" not in ptx  # float64 arithmetic is 64 times as slow on consumer GPUs, and easily slips in


@pytest.mark.skipif(not cuda.is_available(), reason="no CUDA GPU here; the simulator test above ran the kernel")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_kernel_on_a_gpu_agrees_with_the_reference(head_dim, dtype):
    case = random_case(1, head_dim=head_dim, dtype=dtype, num_kv_heads=8, seq_lens=(1, 16, 500, 2049))
    np.testing.assert_allclose(cuda.paged_attention(**case), reference.paged_attention(**case), rtol=0, atol=ATOL)


@pytest.mark.skipif(cuda.is_available(), reason="a CUDA GPU or the simulator is here")
def test_without_gpu_and_simulator_the_error_says_what_to_do():
    with pytest.raises(RuntimeError, match="set NUMBA_ENABLE_CUDASIM=1 before Python starts"):
        cuda.paged_attention(**random_case(0))

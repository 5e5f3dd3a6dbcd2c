"""The GPU bench where there is no GPU: one line, and a status that says so."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).resolve().parents[1] / "tools" / "bench_gpu.py"


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA GPU is here")
def test_without_a_gpu_one_line_says_that_nothing_was_measured():
    run = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr == "No CUDA GPU that PyTorch and Numba can use: nothing was measured.\n"
    assert run.stdout == ""

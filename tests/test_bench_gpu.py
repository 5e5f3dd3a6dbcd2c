"""The GPU bench where there is no GPU: one line, and a status that says so."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from servelab.quantization import dequantize, quantize

SCRIPT = Path(__file__).resolve().parents[1] / "tools" / "bench_gpu.py"


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA GPU is here")
def test_without_a_gpu_one_line_says_that_nothing_was_measured():
    run = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr == "No CUDA GPU that PyTorch and Numba can use: nothing was measured.\n"
    assert run.stdout == ""


def test_q8_0_cache_holds_what_the_codec_would_store(monkeypatch):
    """Packed on the GPU by PyTorch; ties round to even there, so a code may be one off the codec's."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import bench_gpu

    values = torch.randn(3, 2, 4, 128, generator=torch.Generator().manual_seed(0)).half()
    packed = bench_gpu.q8_0_cache(values).numpy()
    assert packed.shape == (3, 2, 4, 128 // 32 * 34)
    decoded = dequantize(packed.reshape(-1), "q8_0").reshape(values.shape)
    stored = dequantize(quantize(values.float().numpy(), "q8_0"), "q8_0").reshape(values.shape)
    assert np.abs(decoded - stored).max() <= np.abs(stored).max() / 127 * 1.01
    assert np.abs(decoded - values.float().numpy()).max() <= np.abs(stored).max() / 254 * 1.01

"""Figures of 8.4: their words, tables and bars say what the library computes; bad input gets a clear error."""

import numpy as np
import pytest

from servelab import catalog, quantization
from servelab.figures import formats, weights


@pytest.mark.parametrize(
    ("conversion_ms", "verdict"), [(0.2, "0.287 ms saved."), (0.8, "0.313 ms lost."), (0, "0.487 ms saved.")]
)
def test_formats_explorer_says_what_the_conversion_leaves(conversion_ms, verdict):
    fig, text = formats.formats_explorer("q8_0", 8192, formats.read_bandwidth(), conversion_ms)
    assert "612 MiB instead of 1152, and 19 requests fit into 12 GiB instead of 10" in text
    assert text.endswith(verdict)
    layout, times = fig.layout.meta["tables"]
    assert layout["rows"] == [["bf16", 64, 0, 64], ["fp8", 32, 0, 32], ["q8_0", 32, 2, 34], ["q4_0", 16, 2, 18]]
    assert times["rows"][0][1] == "1152"
    codes, scales = fig.data[:2]
    assert [sum(bar) for bar in zip(codes.x, scales.x, strict=True)] == [64, 32, 34, 18]
    assert sum(fig.data[2].x) + sum(fig.data[3].x) == pytest.approx(
        sum(float(row[4]) for row in times["rows"]), abs=2e-3
    )


def test_formats_explorer_refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match="kv_dtype is 'q9_0'"):
        formats.formats_explorer("q9_0", 8192, 1e12, 0)
    with pytest.raises(ValueError, match="bandwidth is 0"):
        formats.formats_explorer("q8_0", 8192, 0, 0)


@pytest.mark.parametrize(
    ("context", "says"),
    [
        (2048, "BF16 takes 6.53 ms and FP8 6.63 ms: FP8 is 0.10 ms slower."),
        (7000, "FP8 is equally fast."),
        (16384, "BF16 takes 7.16 ms and FP8 6.97 ms: FP8 is 0.19 ms faster."),
    ],
)
def test_fits_explorer(context, says):
    fig, text = formats.fits_explorer(context)
    assert says in text
    assert "cross at 7000 tokens" in fig.layout.meta["alt"]


def test_error_histograms_count_every_value():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((64, 32), dtype=np.float32)
    errors = {}
    for fmt in ("q8_0", "q4_0"):
        errors[fmt] = quantization.dequantize(quantization.quantize(values, fmt), fmt) - values
    fig = formats.error_histograms(errors)
    rows = fig.layout.meta["tables"][0]["rows"]
    assert [row[0] for row in rows] == ["q8_0", "q4_0"]
    assert float(rows[1][1]) > 10 * float(rows[0][1])
    assert float(rows[0][2]) == pytest.approx(abs(errors["q8_0"]).max(), abs=6e-4)


def test_bytes_and_times_are_relative_to_the_baseline():
    samples = {"f32": [2e-3, 2e-3], "q8_0": [1e-3, 1e-3]}
    fig = formats.bytes_and_times(samples, {"f32": 128, "q8_0": 34}, "f32")
    assert fig.layout.meta["tables"][0]["rows"][1][3:] == ["0.27", "0.50"]
    assert "q8_0, bytes 0.27, time 0.50" in fig.layout.meta["alt"]
    with pytest.raises(ValueError, match="baseline is 'bf16'"):
        formats.bytes_and_times(samples, {"f32": 128, "q8_0": 34}, "bf16")


M2_MAX = catalog.accelerator("m2-max").memory_bytes
QWEN_235B = catalog.model("qwen3-235b-a22b")


def file_235b(variant):
    return QWEN_235B, weights.files_of(QWEN_235B.name)[variant]


@pytest.mark.parametrize(
    ("variant", "context", "says"),
    [
        ("Q2_K", 8192, "1.60 GiB are left beside the weights, 8192 tokens of KV take 1.47 GiB: 1 such context fits."),
        ("Q2_K", 2048, "2048 tokens of KV take 0.37 GiB: 4 such contexts fit."),
        ("Q2_K", 32768, "take 5.88 GiB: 4.27 GiB are missing."),
        ("Q2_K_L", 8192, "3.7 MiB are missing."),
        ("UD-Q2_K_XL", 8192, "the weights alone are 0.56 GiB too large; no context fits."),
    ],
)
def test_fit_explorer_says_what_fits(variant, context, says):
    fig, text = weights.fit_explorer(file_235b(variant), M2_MAX, context)
    assert says in text
    rows = dict(fig.layout.meta["tables"][0]["rows"])
    assert sum(float(rows[part]) for part in ("reserved", "weights", "KV", "left")) == pytest.approx(89.41, abs=0.02)
    assert sum(bar.x[0] for bar in fig.data[1:]) == pytest.approx(float(rows["weights"]) + float(rows["KV"]), abs=0.01)


def test_fit_explorer_refuses_too_small_a_memory():
    with pytest.raises(ValueError, match="reserved_bytes is"):
        weights.fit_explorer(file_235b("Q2_K"), 2**30, 8192)


def test_uniform_bytes_fill_whole_blocks():
    qwen = catalog.model("qwen3-8b")
    assert weights.uniform_bytes(qwen, "bf16") == 16381470720
    assert weights.uniform_bytes(qwen, "q2_k") == -(-8190735360 // 256) * 84


def test_block_bytes_tell_codes_from_scales():
    fig = weights.block_bytes(["bf16", "q2_k"])
    assert fig.layout.meta["tables"][0]["rows"] == [
        ["bf16", 512, 0, 512, "16", "0.0"],
        ["q2_k", 64, 20, 84, "2.625", "23.8"],
    ]
    assert [sum(bar) for bar in zip(fig.data[0].x, fig.data[1].x, strict=True)] == [512, 84]
    with pytest.raises(ValueError, match="fmt is 'q9_k'"):
        weights.block_bytes(["q9_k"])

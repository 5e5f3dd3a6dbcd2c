"""Sizes of formats, what fits beside weights, when conversion pays. Codecs: test_quantization_codecs.py."""

import math
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servelab import catalog, memory
from servelab.quantization import FORMATS, Format, ItlFit, crossing, itl_fit, memory_left, net_saving_s, stored_bytes

BF16, FP8 = itl_fit("bf16"), itl_fit("fp8")


@pytest.mark.parametrize("row", catalog.record("weight-q2k-layout").rows, ids=lambda row: row["storage_type"])
def test_formats_give_the_bytes_of_the_published_file(row):
    fmt = row["storage_type"].lower()
    block = FORMATS[fmt]
    assert (block.values, block.block_bytes, block.code_bytes) == (
        row["values_per_block"],
        row["bytes_per_block"],
        row["code_bytes_per_block"],
    )
    assert stored_bytes(row["values"], fmt) == (row["code_or_float_bytes"], row["scale_metadata_bytes"])


def test_metadata_weighs_more_the_shorter_the_codes():
    assert FORMATS["q8_0"].metadata_share == 2 / 34
    assert FORMATS["q4_0"].metadata_share == 2 / 18
    assert FORMATS["f32"].metadata_share == 0


def test_a_q2_k_file_has_more_than_2_625_bits_a_value():
    rows = catalog.record("weight-q2k-layout").rows
    stored = sum(sum(stored_bytes(row["values"], row["storage_type"].lower())) for row in rows)
    assert 2.9 < stored * 8 / sum(row["values"] for row in rows) < 2.93  # other formats are mixed in


def test_one_context_beside_the_weights():
    """81.41 GiB hold the Q2_K file and one 8K context, 0.13 GiB remaining; not one of 32K."""
    file_bytes = catalog.record("weight-files").row(variant="Q2_K")["file_bytes"]
    kv_per_token = memory.kv_bytes_per_token(catalog.model("qwen3-235b-a22b"))
    left = [memory_left(96 * 10**9, 8 * 2**30, file_bytes, tokens * kv_per_token) / 2**30 for tokens in (8192, 32768)]
    assert left[0] == pytest.approx(0.13, abs=0.005)
    assert left[1] < 0


@given(saved=st.integers(1, 10**12), bandwidth=st.floats(1e6, 1e13), share=st.floats(0, 3))
def test_conversion_pays_while_it_is_shorter_than_what_it_saves(saved, bandwidth, share):
    break_even = net_saving_s(saved, bandwidth)
    assert net_saving_s(saved, bandwidth, share * break_even) == pytest.approx((1 - share) * break_even, abs=1e-9)


def test_fits_cross_once():
    meet = crossing(BF16, FP8)
    assert meet == crossing(FP8, BF16)
    before, behind = round(meet) - 500, round(meet) + 500
    assert BF16.seconds(before) < FP8.seconds(before)
    assert BF16.seconds(behind) > FP8.seconds(behind)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        (ItlFit(1, 1), ItlFit(2, 1), math.inf),  # parallel
        (ItlFit(1, 1), ItlFit(2, 2), math.inf),  # they met before 0
        (ItlFit(1, 2), ItlFit(1, 1), 0),
        (ItlFit(1, 1), ItlFit(1, 1), math.inf),
    ],
)
def test_crossing(one, other, meet):
    assert crossing(one, other) == meet


def test_sizes_and_gains_need_no_numpy():
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "from servelab import quantization as q, offload, speculation\n"
        "assert q.FORMATS['q8_0'].bits_per_value == 8.5 and q.itl_fit('fp8') and q.net_saving_s(10, 5, 1) == 1\n"
        "try: q.quantize([0.0] * 32, 'q8_0')\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "the array codecs of servelab.quantization need NumPy; the sizes do not\n"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Format(0, 1), "values is 0; it must be an integer of at least 1"),
        (lambda: Format(1, 0), "code_bytes is 0"),
        (lambda: Format(1, 1, -1), "metadata_bytes is -1"),
        (lambda: stored_bytes(33, "q8_0"), "values is 33; q8_0 needs a multiple of 32"),
        (lambda: stored_bytes(-32, "q8_0"), "values is -32"),
        (lambda: stored_bytes(32, "q8"), "fmt is 'q8', which is not known; did you mean q8_0"),
        (lambda: memory_left(10, 11, 0), "reserved_bytes is 11; it must be an integer from 0 to 10"),
        (lambda: memory_left(-1, 0, 0), "memory_bytes is -1"),
        (lambda: memory_left(1, 0, 0.5), "weight_bytes is 0.5"),
        (lambda: memory_left(1, 0, 0, -1), "kv_bytes is -1"),
        (lambda: net_saving_s(-1, 1), "saved_bytes is -1"),
        (lambda: net_saving_s(1, 0), "bandwidth is 0; it must be a finite number above 0"),
        (lambda: net_saving_s(1, 1, -0.1), "conversion_s is -0.1"),
        (lambda: itl_fit("int4"), "kv_dtype is 'int4'"),
        (lambda: ItlFit(-1, 0), "intercept_s is -1"),
        (lambda: ItlFit(0, math.nan), "slope_s_per_token is nan"),
        (lambda: BF16.seconds(-1), "context is -1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=re.compile(message)):
        call()

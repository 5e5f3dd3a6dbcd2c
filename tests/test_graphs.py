"""Captured shapes: padding changes no result, and a GPU's graphs give what the step gives."""

import numpy as np
import pytest
import torch

from servelab.kernels import graphs

CAPTURED = (16, 32)
needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA GPU here; the padding is tested on the CPU"
)
WEIGHTS = np.random.default_rng(0).standard_normal((8, 5), dtype=np.float32)
INPUTS = np.random.default_rng(1).standard_normal((40, 8), dtype=np.float32)


def counting(shapes):
    def step(inputs):
        shapes.append(tuple(inputs.shape))
        return inputs @ (WEIGHTS if isinstance(inputs, np.ndarray) else torch.from_numpy(WEIGHTS))

    return step


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
@pytest.mark.parametrize(("rows", "computed"), [(1, 16), (16, 16), (17, 32), (18, 32), (32, 32), (33, 33)])
def test_a_step_runs_in_the_smallest_captured_shape_and_is_cut_to_its_rows(rows, computed, convert):
    shapes, inputs = [], convert(INPUTS[:rows].copy())
    outputs = graphs.run_padded(counting(shapes), inputs, CAPTURED)
    assert shapes == [(computed, 8)]
    assert type(outputs) is type(inputs)
    np.testing.assert_allclose(np.asarray(outputs), INPUTS[:rows] @ WEIGHTS, rtol=0, atol=1e-5)


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_padding_rows_are_zero_and_the_inputs_are_left_alone(convert):
    inputs = convert(INPUTS[:3].astype(np.float16))
    padded = graphs.pad(inputs, 5)
    assert padded.dtype == inputs.dtype
    np.testing.assert_array_equal(np.asarray(padded[:3]), INPUTS[:3].astype(np.float16))
    assert not np.asarray(padded[3:]).any()
    padded[:] = 9
    np.testing.assert_array_equal(np.asarray(inputs), INPUTS[:3].astype(np.float16))


@pytest.mark.parametrize(
    ("rows", "captured", "message"),
    [(0, CAPTURED, "rows is 0"), (3, (0, 4), "captured is 0")],
)
def test_bad_shapes_are_refused_before_the_step_runs(rows, captured, message):
    shapes = []
    with pytest.raises(ValueError, match=message):
        graphs.run_padded(counting(shapes), INPUTS[:rows], captured)
    assert shapes == []


def test_a_step_that_mixes_rows_up_is_refused():
    with pytest.raises(ValueError, match="step makes 1 rows of 16"):
        graphs.run_padded(lambda inputs: inputs.sum(axis=0, keepdims=True), INPUTS[:3], CAPTURED)


def test_padding_is_measured_for_each_number_of_rows():
    shapes = []
    measured = graphs.measure_padding(counting(shapes), INPUTS[:3], (2, 4), rounds=2)
    assert measured.keys() == {1, 2, 3}
    assert all(seconds > 0 for both in measured.values() for seconds in both)
    assert {shape[0] for shape in shapes} == {1, 2, 3, 4}


def test_a_decode_like_step_treats_each_row_by_itself():
    step, inputs = graphs.decode_like_step(num_layers=3, width=8), torch.from_numpy(INPUTS)
    torch.testing.assert_close(graphs.run_padded(step, inputs[:5], CAPTURED), step(inputs)[:5])


@pytest.mark.parametrize(("captured", "message"), [((), "captured is empty"), ((4, 0), "captured is 0")])
def test_capturing_refuses_bad_sizes(captured, message):
    with pytest.raises(ValueError, match=message):
        graphs.CapturedStep(lambda inputs: inputs, captured, (8,))


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA GPU is here")
def test_capturing_without_a_gpu_says_what_to_do():
    with pytest.raises(RuntimeError, match="run_padded shows the padding without graphs"):
        graphs.CapturedStep(lambda inputs: inputs, CAPTURED, (8,))


@needs_gpu
def test_replayed_graphs_give_what_the_step_gives():
    decode, calls = graphs.decode_like_step(num_layers=3, width=8, device="cuda"), []

    def step(inputs):
        calls.append(len(inputs))
        return decode(inputs)

    captured = graphs.CapturedStep(step, CAPTURED, (8,))
    calls.clear()
    inputs = torch.from_numpy(INPUTS).cuda()
    kept = {rows: captured(inputs[:rows]) for rows in (32, 1, 16, 17, 33)}  # kept: a replay must not change them
    assert calls == [33]  # beyond the largest shape only
    for rows, outputs in kept.items():
        torch.testing.assert_close(outputs, decode(inputs[:rows]))
    with pytest.raises(ValueError, match="inputs have rows of"):
        captured(inputs[:3, :1])

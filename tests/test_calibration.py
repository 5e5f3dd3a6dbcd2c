"""The fit of a step's cost: exact where the model is, never negative, one sample for each kind of step."""

import json

import pytest

from servelab import calibration, catalog
from servelab.cost import StepCost


def samples(cost, shapes=((1, 100), (1, 5000), (64, 3000), (512, 131328), (512, 900000), (16, 4096))):
    return [
        {
            "kind": "decode", "rows": 1, "new_tokens": tokens, "causal_pairs": pairs,
            "seconds": cost.fixed_s + tokens * cost.per_new_token_s + pairs * cost.per_causal_pair_s,
        }
        for tokens, pairs in shapes
    ]  # fmt: skip


def test_the_fit_finds_what_made_the_times():
    true = StepCost(2e-3, 3e-5, 4e-9)
    found = calibration.fit_step_cost(samples(true))
    assert found.fixed_s == pytest.approx(true.fixed_s)
    assert found.per_new_token_s == pytest.approx(true.per_new_token_s)
    assert found.per_causal_pair_s == pytest.approx(true.per_causal_pair_s)
    assert all(calibration.predicted_s(found, s) == pytest.approx(s["seconds"]) for s in samples(true))


def test_no_part_is_negative():
    times = samples(StepCost(2e-3, 3e-5, 0.0))
    for sample in times[3:5]:  # more pairs, less time
        sample["seconds"] -= 5e-9 * sample["causal_pairs"]
    found = calibration.fit_step_cost(times)
    assert found.per_causal_pair_s == 0
    assert min(found.fixed_s, found.per_new_token_s) >= 0


def test_too_few_samples():
    with pytest.raises(ValueError, match="at least 3"):
        calibration.fit_step_cost(samples(StepCost(1.0, 1.0, 1.0))[:2])


def test_alike_steps_count_once_by_their_median():
    step = {"kind": "decode", "rows": 4, "new_tokens": 4, "causal_pairs": 1000, "seconds": 0.5}
    steps = [step | {"seconds": seconds} for seconds in (0.1, 0.2, 9.0)] + [step | {"causal_pairs": 5000}]
    found = calibration.median_steps(steps)
    assert sorted((sample["count"], sample["seconds"]) for sample in found) == [(1, 0.5), (3, 0.2)]


def test_a_calibration_is_kept_beside_those_of_other_models(tmp_path, monkeypatch):
    monkeypatch.setenv("SERVELAB_HOME", str(tmp_path))
    accelerator = {
        "name": "mine", "memory_gb": 8, "bandwidth_gb_per_s": 20, "bf16_tflops": 0.1, "power_w": None,
        "host_link": None, "source": "a test",
    }  # fmt: skip
    for model, fixed_s in (("a", 1.0), ("b", 2.0), ("a", 3.0)):
        fit = {"accelerator": "your-machine", "model": model, "fixed_s": fixed_s}
        fit |= {"per_new_token_s": 0.0, "per_causal_pair_s": 0.0, "reference_s": 1.0, "steps": samples(COST)}
        for sample in fit["steps"]:
            sample["predicted_s"] = sample["seconds"] * 1.1
        result = {"machine": {}, "accelerator": accelerator, "step_costs": [fit]}
        path = calibration.save(result)
    assert path == catalog.calibration_file()
    assert catalog.step_cost("your-machine", "a").fixed_s == 3.0
    assert catalog.step_cost("your-machine", "b").fixed_s == 2.0
    assert catalog.accelerator("your-machine").bandwidth == 20e9
    assert len(json.loads(path.read_text())["step_costs"]) == 2
    assert "10 %" in calibration.describe(result)
    with pytest.raises(ValueError, match="measured pair"):
        catalog.step_cost("your-machine", "c")
    path.write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        catalog.accelerator("your-machine")


COST = StepCost(1e-3, 1e-5, 1e-9)

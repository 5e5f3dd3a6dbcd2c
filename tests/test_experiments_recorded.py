"""The cost model beside the recorded experiments: each is compared, and the known errors are what they were."""

import json
from collections import defaultdict
from statistics import median

import pytest

from servelab.cost import StepCost
from servelab.experiments import MODULES, find, shipped
from servelab.experiments.recorded import EXPERIMENTS, Comparison, comparisons, prefill_s
from servelab.experiments.run import rows_of
from servelab.figures.predictions import (
    FIXED_MS,
    against_measured,
    label,
    recorded_explorer,
    runs_explorer,
    shipped_explorer,
)


def errors(fixed_s=None):
    found = defaultdict(list)
    for each in comparisons(fixed_s):
        found[each.experiment, each.quantity].append(each.error)
    return found


def test_what_was_fitted_is_met_and_the_rest_is_off_as_stated():
    found = errors()
    assert min(map(abs, found["8-1", "decode step"])) < 0.001  # batch 1 is what was fitted
    assert median(found["8-1", "prefill"]) == pytest.approx(-0.11, abs=0.01)
    assert median(found["8-2, chunks", "chunk of 512"]) == pytest.approx(0.59, abs=0.01)
    assert {experiment for experiment, _ in found} == set(EXPERIMENTS)


def test_the_fixed_part_of_the_other_experiment_mends_it():
    before, after = errors(), errors(12.936e-3)
    for key in (("8-2, chunks", "chunk of 512"), ("8-2, six requests", "whole request")):
        assert abs(median(after[key])) < 0.2 < median(before[key])


def test_prefill_of_a_batch_fills_each_step_to_the_budget():
    cost = StepCost(1.0, 0.0, 0.0)
    assert prefill_s(cost, batch=4, new_tokens=2048, context=0, token_budget=4096) == 2
    assert prefill_s(cost, batch=3, new_tokens=2048, context=0, token_budget=4096) == 2
    assert prefill_s(StepCost(0.0, 1.0, 0.0), 3, 100, 0, token_budget=64) == 300
    assert prefill_s(StepCost(0.0, 0.0, 1.0), 1, 100, 10, token_budget=64) == 100 * 10 + 5050


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_the_figure_draws_every_comparison(experiment):
    for fixed_ms in FIXED_MS.values():
        fig, text = recorded_explorer(experiment, fixed_ms)
        wanted = [each for each in comparisons(fixed_ms / 1e3) if each.experiment == experiment]
        drawn = [(x, y) for trace in fig.data[3:] for x, y in zip(trace.x, trace.y, strict=True)]
        assert sorted(drawn) == sorted((each.measured_ms, each.predicted_ms) for each in wanted)
        assert len(fig.layout.meta["tables"][0]["rows"]) == len(wanted)
        assert f"{len(wanted)} figures" in text


def test_shipped_runs_are_whole_and_say_where_they_were_made():
    assert {"batch-sweep", "token-budget", "blocks", "drafts"} <= set(shipped.names()) <= set(MODULES)
    fit = shipped.calibration()["step_costs"][0]
    for name in shipped.names():
        report = shipped.report(name)
        points = find(name).points(**report["options"])
        assert [row["point"] for row in report["rows"]] == json.loads(json.dumps(points)), name
        assert {"cpu", "date", "torch"} <= report["machine"].keys()
        assert report["step_cost"] == {key: value for key, value in fit.items() if key != "steps"}
        assert vars(shipped.step_cost()).items() <= fit.items()
        assert find(name).figure(rows_of(report)).layout.meta["alt"]
    with pytest.raises(ValueError, match="batch-sweep"):
        shipped.report("batch-swep")


def test_shipped_predictions_are_compared_with_what_was_measured():
    found = shipped.comparisons("batch-sweep")
    row = shipped.report("batch-sweep")["rows"][0]
    assert found[0].measured_ms in [1e3 * value for value in row["values"].values()]
    assert len(found) == 3 * len(shipped.report("batch-sweep")["rows"])  # first token, decode step, whole batch
    corrected = shipped.comparisons("batch-sweep", corrected=True)
    assert corrected[0].predicted_ms == pytest.approx(row["slowdown"] * found[0].predicted_ms)
    fig, text = shipped_explorer("batch-sweep", "now")
    assert len(fig.layout.meta["tables"][0]["rows"]) == len(found)
    assert "batch sweep" in text


def test_a_run_of_short_times_alone_has_a_sentence_too(monkeypatch):
    short = Comparison("token-budget", "r4_queue_s", "budget 8192", predicted_ms=565.0, measured_ms=3.0)
    monkeypatch.setattr(shipped, "comparisons", lambda *_, **__: [short])
    _, text = shipped_explorer("token-budget", "calibrated")
    assert text == "token budget: 1 measured times, one, measured below a tenth of its prediction, by +562 ms."


def test_a_time_of_next_to_nothing_is_compared_in_milliseconds():
    _, text = shipped_explorer("token-budget", "calibrated")
    assert text == (
        "token budget: 84 measured times, off by -48 to +50 %, in the median by -18 %; "
        "one, measured below a tenth of its prediction, by +562 ms."
    )
    found = [
        Comparison("x", "queue", "", predicted, measured) for predicted, measured in ((50, 100), (100, 9), (90, 9))
    ]
    rows = against_measured(found, "").layout.meta["tables"][0]["rows"]
    assert [row[-1] for row in rows] == ["-50 %", "+91 ms", "+900 %"]


@pytest.mark.parametrize("name", [name for name in shipped.names() if shipped.comparisons(name)])
def test_shipped_runs_are_labelled_in_words(name):
    fig, text = shipped_explorer(name, "now")
    words = [word for row in fig.layout.meta["tables"][0]["rows"] for word in row[:2]]
    assert not [word for word in (label(name), text, *words) if "_" in word or "True" in word or "False" in word]


def test_a_point_in_words():
    point = {"trial": 0, "load": False, "cache": True, "deadline_s": 3.0, "records": [128, 512], "draft_length": 4}
    assert shipped.in_words(point) == "trial 0, no load, cache, deadline 3 s, records 128 and 512, draft length 4"


@pytest.mark.parametrize("name", shipped.names())
def test_shipped_runs_are_drawn_with_their_question(name):
    fig, text = runs_explorer(name)
    report = shipped.report(name)
    assert text == f"{find(name).question} {len(report['rows'])} points, {report['machine']['date']}."
    assert fig.layout.meta["tables"][0]["rows"]

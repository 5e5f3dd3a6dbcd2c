"""Running an experiment: kept point by point, continued, refused when it is another; its command line."""

import errno
import json
import os

import plotly.graph_objects as go
import pytest
import torch

from servelab import __main__ as commands
from servelab import catalog, experiments
from servelab.cost import StepCost
from servelab.experiments import run as runs
from servelab.experiments.experiment import Experiment, Subject


class Doubling:
    """An experiment that doubles a number; `measured` lists the points that were run."""

    def __init__(self, interrupt_at=None):
        self.measured = []
        self.interrupt_at = interrupt_at
        self.experiment = Experiment(
            name="doubling",
            question="What is twice a number?",
            points=lambda numbers=(1, 2, 3): [{"number": number} for number in numbers],
            measure=self.measure,
            predict=lambda step_cost, point: {"double": step_cost.fixed_s * point["number"]},
            figure=lambda rows: go.Figure(go.Scatter(y=[row["double"] for row in rows])),
        )

    def measure(self, subject, point):
        if point["number"] == self.interrupt_at:
            raise KeyboardInterrupt
        self.measured.append(point["number"])
        return {"double": 2 * point["number"]}


@pytest.fixture(scope="module")
def subject():
    torch.set_num_threads(1)
    return Subject.load("retrieval")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SERVELAB_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def kept(path):
    return [row["values"]["double"] for row in json.loads(path.read_text())["rows"]]


def test_each_point_is_kept_and_a_second_run_goes_on(subject, tmp_path):
    path = tmp_path / "runs" / "doubling.json"
    stopped = Doubling(interrupt_at=3)
    with pytest.raises(KeyboardInterrupt):
        runs.run(stopped.experiment, subject, path)
    assert kept(path) == [2, 4]
    resumed, seen = Doubling(), []
    report = runs.run(resumed.experiment, subject, path, on_row=lambda done, total: seen.append((done, total)))
    assert resumed.measured == [3]
    assert seen == [(2, 3), (3, 3)]
    assert kept(path) == [2, 4, 6]
    assert [row["double"] for row in runs.rows_of(report)] == [2, 4, 6]
    assert {"machine", "model", "servelab", "threads"} <= report.keys()


def test_fresh_begins_anew(subject, tmp_path):
    path = tmp_path / "doubling.json"
    runs.run(Doubling().experiment, subject, path)
    again = Doubling()
    runs.run(again.experiment, subject, path, fresh=True)
    assert again.measured == [1, 2, 3]


def test_another_run_is_not_mixed_in(subject, tmp_path):
    path = tmp_path / "doubling.json"
    runs.run(Doubling().experiment, subject, path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"options is \{\}, this run has \{'numbers': \[7\]\}"):
        runs.run(Doubling().experiment, subject, path, {"numbers": (7,)})
    assert path.read_bytes() == before
    torch.set_num_threads(2)
    try:
        with pytest.raises(ValueError, match="threads is 1, this run has 2"):
            runs.run(Doubling().experiment, subject, path)
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize(("content", "words"), [("{", "damaged"), ("[]", "no report"), ('{"rows": 1}', "no report")])
def test_what_is_no_report_is_refused(subject, tmp_path, content, words):
    path = tmp_path / "doubling.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=words):
        runs.run(Doubling().experiment, subject, path)
    assert path.read_text() == content


def test_a_full_disk_leaves_the_earlier_points(subject, tmp_path, monkeypatch):
    path = tmp_path / "doubling.json"
    replace, calls = os.replace, []

    def full(source, target):
        calls.append(target)
        if len(calls) > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        runs.run(Doubling().experiment, subject, path)
    assert kept(path) == [2, 4]
    assert list(tmp_path.glob("*.part")) == []


def test_predictions_come_from_the_calibration_of_this_machine(subject, tmp_path, home):
    fit = {"accelerator": "your-machine", "model": "retrieval", "fixed_s": 2.0, "per_new_token_s": 0.0}
    home.mkdir()
    (home / "calibration.json").write_text(
        json.dumps({"step_costs": [fit | {"per_causal_pair_s": 0.0, "reference_s": 0.01}]})
    )
    assert catalog.step_cost("your-machine", "retrieval") == StepCost(2.0, 0.0, 0.0)
    report = runs.run(Doubling().experiment, subject, tmp_path / "doubling.json")
    assert [row["predicted"]["double"] for row in report["rows"]] == [2, 4, 6]
    assert all(row["slowdown"] > 0 for row in report["rows"])


def test_a_machine_without_calibration_says_how_to_get_one():
    with pytest.raises(ValueError, match="servelab calibrate"):
        catalog.accelerator("your-machine")
    with pytest.raises(ValueError, match="servelab calibrate"):
        catalog.step_cost("your-machine", "retrieval")


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Run `servelab run doubling`; returns the exit status."""

    def call(doubling, *arguments):
        monkeypatch.setitem(experiments.MODULES, "doubling", "doubling")
        monkeypatch.setattr(experiments, "find", lambda name: doubling.experiment)
        return commands.main(["run", "doubling", "--output", str(tmp_path / "out.json"), *arguments])

    return call


def test_the_command_writes_report_and_figure(command, tmp_path, capsys):
    assert command(Doubling()) == 0
    assert kept(tmp_path / "out.json") == [2, 4, 6]
    assert "plotly" in (tmp_path / "out.html").read_text()
    assert "servelab calibrate" in capsys.readouterr().out


def test_the_command_says_what_a_stop_has_kept(command, tmp_path, capsys):
    assert command(Doubling(interrupt_at=2)) == 130
    assert "1 of 3 points" in capsys.readouterr().out
    assert kept(tmp_path / "out.json") == [2]


def test_options_of_the_points(command, tmp_path, capsys):
    assert command(Doubling(), "--set", "numbers=[5]") == 0
    assert kept(tmp_path / "out.json") == [10]
    assert command(Doubling(), "--set", "colour=1") == 1
    assert "numbers" in capsys.readouterr().err
    assert command(Doubling(), "--set", "numbers=[5") == 1
    assert "must be JSON" in capsys.readouterr().err


def test_a_report_does_not_end_in_html(command, tmp_path, capsys):
    assert command(Doubling(), "--output", str(tmp_path / "out.html")) == 1
    assert "--output is" in capsys.readouterr().err
    assert not (tmp_path / "out.html").exists()


def test_a_checkpoint_that_is_not_there(command, tmp_path, capsys):
    assert command(Doubling(), "--model", str(tmp_path / "none")) == 1
    assert "does not exist" in capsys.readouterr().err


def test_only_the_retrieval_model_is_asked_questions(subject):
    other = Subject("mine", subject.model)
    with pytest.raises(ValueError, match="model is 'mine'"):
        other.task(8, seed=0)
    assert len(other.prompt(40, seed=1)) == 40
    assert other.prompt(40, seed=1) == subject.prompt(40, seed=1) != subject.prompt(40, seed=2)

"""The runs that ship with the book, and how far the cost model was off there.

`runs/` beside this module holds reports as `run` writes them, and the calibration that their predictions rest on.
"""

import json
from importlib.resources import files
from statistics import median

from servelab.checks import require_name
from servelab.cost import StepCost
from servelab.experiments.recorded import Comparison


def names() -> list[str]:
    """Names of the experiments with a shipped run."""
    found = (file.name.removesuffix(".json") for file in _folder().iterdir() if file.name.endswith(".json"))
    return sorted(name for name in found if name != "calibration")


def report(name: str) -> dict:
    """The shipped report of an experiment. An unknown name raises `ValueError` with near matches."""
    require_name("name", name, names())
    return json.loads(_folder().joinpath(f"{name}.json").read_text(encoding="utf-8"))


def calibration() -> dict:
    """What `python -m servelab calibrate` had measured before these runs, on the same machine."""
    return json.loads(_folder().joinpath("calibration.json").read_text(encoding="utf-8"))


def step_cost() -> StepCost:
    """What a step of the small model cost there, as the calibration fitted it."""
    return StepCost.from_fit(calibration()["step_costs"][0])


def comparisons(name: str, corrected: bool = False) -> list[Comparison]:
    """Every time that was predicted and measured in a run; `corrected` for how slow the machine was at each point.

    The correction is the time of one fixed step, taken before the point, relative to the calibration.
    """
    found = []
    for row in report(name)["rows"]:
        factor = row["slowdown"] if corrected else 1.0
        setting = in_words(row["point"])
        for quantity, predicted_s in row["predicted"].items():
            if quantity.endswith("_s") and isinstance(predicted_s, float) and not quantity.endswith("_per_s"):
                measured_s = row["values"][quantity]
                found.append(Comparison(name, quantity, setting, 1e3 * factor * predicted_s, 1e3 * measured_s))
    return found


def in_words(point: dict) -> str:
    """A point for a reader: `{"trial": 0, "load": False, "deadline_s": 3.0}` is "trial 0, no load, deadline 3 s"."""

    def word(key, value):
        name, unit = (key[:-2], " s") if key.endswith("_s") else (key, "")
        name = name.replace("_", " ")
        if isinstance(value, bool):
            return name if value else f"no {name}"
        if isinstance(value, list):
            return f"{name} {' and '.join(map(str, value))}"
        return f"{name} {value:g}{unit}" if isinstance(value, float) else f"{name} {value}{unit}"

    return ", ".join(word(key, value) for key, value in point.items())


def median_errors(name: str) -> tuple[float, float]:
    """Median of the errors' sizes in a run: as predicted, and corrected for the machine's slowdown."""
    return tuple(median(abs(each.error) for each in comparisons(name, corrected)) for corrected in (False, True))


def _folder():
    return files("servelab.experiments").joinpath("runs")

"""Models, accelerators, links, fitted step costs and measured records, as data with sources.

`model("qwen3-8b")`, `accelerator("rtx-pro-6000")`, `link("pcie5-x16")`, `step_cost("rtx-pro-6000", "qwen3-8b")` and
`record("batch-sweep")` look things up in the YAML files beside this module. `file=` names a YAML file of your own
with entries of the same fields; an object of one of the dataclasses works wherever a library function takes one.

After `python -m servelab calibrate`, `accelerator("your-machine")` and `step_cost("your-machine", "retrieval")` are
what was measured here.
"""

import json
import os
from functools import cache
from importlib.resources import files
from pathlib import Path

from ruamel.yaml import YAML

from servelab.catalog.entries import Accelerator, Link, Model, Record
from servelab.checks import require_name

__all__ = [
    *("Accelerator", "Link", "Model", "Record", "YOUR_MACHINE"),
    *("accelerator", "calibration", "calibration_file", "link", "model", "names", "record", "step_cost"),
]

YOUR_MACHINE = "your-machine"


def calibration_file() -> Path:
    """Where the figures of the reader's machine are kept: `calibration.json` in $SERVELAB_HOME or ~/.servelab."""
    return Path(os.environ.get("SERVELAB_HOME") or Path.home() / ".servelab") / "calibration.json"


def calibration() -> dict:
    """What `python -m servelab calibrate` has measured here. Raises `ValueError` if it has not been run."""
    path = calibration_file()
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"{path} does not exist; `python -m servelab calibrate` measures this machine") from error
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); `python -m servelab calibrate` makes it anew") from error


@cache
def _read(file_name: str) -> dict:
    return YAML(typ="safe", pure=True).load(files(__package__).joinpath(file_name).read_text(encoding="utf-8"))


def _entries(kind: str, file: str | Path | None) -> dict:
    if file is not None:
        return YAML(typ="safe", pure=True).load(Path(file).read_text(encoding="utf-8"))
    return _read("models.yaml") if kind == "models" else _read("hardware.yaml")[kind]


def _look_up(kind, cls, name, file):
    entries = _entries(kind, file)
    require_name("name", name, entries)
    try:
        return cls(**entries[name])
    except TypeError as error:  # a user's own entry with a field too many or too few
        raise ValueError(f"entry {name!r} of {file} is not a {cls.__name__}: {error}") from error


def names(kind: str) -> list[str]:
    """Names of all entries of a kind: "models", "accelerators", "links" or "records"."""
    require_name("kind", kind, ["models", "accelerators", "links", "records"])
    return _record_names() if kind == "records" else list(_entries(kind, None))


def model(name: str, file: str | Path | None = None) -> Model:
    """The model called `name`. An unknown name raises `ValueError` with near matches."""
    return _look_up("models", Model, name, file)


def accelerator(name: str, file: str | Path | None = None) -> Accelerator:
    """The accelerator called `name`; "your-machine" once it is calibrated.

    An unknown name raises `ValueError` with near matches.
    """
    if name == YOUR_MACHINE and file is None:
        return Accelerator(**calibration()["accelerator"])
    return _look_up("accelerators", Accelerator, name, file)


def link(name: str, file: str | Path | None = None) -> Link:
    """The link called `name`. An unknown name raises `ValueError` with near matches."""
    return _look_up("links", Link, name, file)


def step_cost(accelerator: str, model: str):
    """The fitted `servelab.cost.StepCost` of a model on an accelerator, "your-machine" once it is calibrated.

    Raises `ValueError` for a pair that was not measured: a fit does not carry over to another device.
    """
    from servelab.cost import StepCost  # the catalog is data; the cost model is not needed to read the rest

    all_fits = calibration()["step_costs"] if accelerator == YOUR_MACHINE else _read("hardware.yaml")["step_costs"]
    fits = {(fit["accelerator"], fit["model"]): fit for fit in all_fits}
    if (accelerator, model) not in fits:
        pairs = ", ".join(map(str, fits))
        raise ValueError(f"accelerator is {accelerator!r}, model is {model!r}; it must be a measured pair: {pairs}")
    fit = fits[accelerator, model]
    return StepCost.from_fit(fit)


@cache
def _record_names() -> list[str]:
    return sorted(file.name.removesuffix(".yaml") for file in files(__package__).joinpath("records").iterdir())


def record(name: str) -> Record:
    """The measured record called `name`. An unknown name raises `ValueError` with near matches."""
    require_name("name", name, _record_names())
    entry = dict(_read(f"records/{name}.yaml"))
    columns, rows = entry.pop("columns"), entry.pop("rows")
    return Record(name=name, rows=[dict(zip(columns, row, strict=True)) for row in rows], **entry)

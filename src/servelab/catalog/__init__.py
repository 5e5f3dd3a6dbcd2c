"""Models, accelerators, links, fitted step costs and measured records, as data with sources.

`model("qwen3-8b")`, `accelerator("rtx-pro-6000")`, `link("pcie5-x16")`, `step_cost("rtx-pro-6000", "qwen3-8b")` and
`record("batch-sweep")` look things up in the YAML files beside this module. `file=` names a YAML file of your own
with entries of the same fields; an object of one of the dataclasses works wherever a library function takes one.
"""

from functools import cache
from importlib.resources import files
from pathlib import Path

from ruamel.yaml import YAML

from servelab.catalog.entries import Accelerator, Link, Model, Record
from servelab.checks import require_name

__all__ = ["Accelerator", "Link", "Model", "Record", "accelerator", "link", "model", "names", "record", "step_cost"]


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
    """The accelerator called `name`. An unknown name raises `ValueError` with near matches."""
    return _look_up("accelerators", Accelerator, name, file)


def link(name: str, file: str | Path | None = None) -> Link:
    """The link called `name`. An unknown name raises `ValueError` with near matches."""
    return _look_up("links", Link, name, file)


def step_cost(accelerator: str, model: str):
    """The fitted `servelab.cost.StepCost` of a model on an accelerator.

    Raises `ValueError` for a pair that was not measured: a fit does not carry over to another device.
    """
    from servelab.cost import StepCost  # the catalog is data; the cost model is not needed to read the rest

    fits = {(fit["accelerator"], fit["model"]): fit for fit in _read("hardware.yaml")["step_costs"]}
    if (accelerator, model) not in fits:
        pairs = ", ".join(map(str, fits))
        raise ValueError(f"accelerator is {accelerator!r}, model is {model!r}; it must be a measured pair: {pairs}")
    fit = fits[accelerator, model]
    return StepCost(fit["fixed_s"], fit["per_new_token_s"], fit["per_causal_pair_s"])


@cache
def _record_names() -> list[str]:
    return sorted(file.name.removesuffix(".yaml") for file in files(__package__).joinpath("records").iterdir())


def record(name: str) -> Record:
    """The measured record called `name`. An unknown name raises `ValueError` with near matches."""
    require_name("name", name, _record_names())
    entry = dict(_read(f"records/{name}.yaml"))
    columns, rows = entry.pop("columns"), entry.pop("rows")
    return Record(name=name, rows=[dict(zip(columns, row, strict=True)) for row in rows], **entry)

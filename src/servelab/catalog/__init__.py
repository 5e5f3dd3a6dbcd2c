"""Models as data: each entry of the YAML files beside this module, with the source it was taken from."""

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

from ruamel.yaml import YAML


@dataclass(frozen=True)
class Model:
    """A decoder's shape, as far as serving it depends on it."""

    name: str
    num_layers: int
    hidden_size: int
    num_heads: int  # query heads
    num_kv_heads: int  # each serves num_heads // num_kv_heads query heads
    head_dim: int
    max_context: int  # tokens, max_position_embeddings
    source: str


@cache
def _entries(file_name: str) -> dict:
    return YAML(typ="safe", pure=True).load(files(__package__).joinpath(file_name).read_text(encoding="utf-8"))


def model(name: str) -> Model:
    """The model called `name`, such as "qwen3-8b". An unknown name raises `ValueError` with near matches."""
    entries = _entries("models.yaml")
    if name not in entries:
        near = get_close_matches(name, entries, n=3) or sorted(entries)
        raise ValueError(f"name is {name!r}, which the catalog does not have; did you mean {', '.join(near)}?")
    return Model(**entries[name])

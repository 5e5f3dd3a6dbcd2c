"""What an experiment is, and the model it runs on."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from servelab.checks import require_int, require_name
from servelab.model.load import load_checkpoint, load_retrieval
from servelab.model.retrieval import Task, make_task
from servelab.model.smollm2 import load_smollm2

RETRIEVAL = "retrieval"
SMOLLM2 = "smollm2"


def require_list(name: str, values) -> None:
    """Raise `ValueError` unless an option of an experiment's points is a list of at least one value."""
    if not isinstance(values, list | tuple) or not values:
        raise ValueError(f"{name} is {values!r}; it must be a list of at least one value")


def require_names(name: str, values, known) -> None:
    """Raise `ValueError` unless `values` is a list of at least one of the names `known`."""
    require_list(name, values)
    for value in values:
        require_name(name, value, known)


def require_counts(**options) -> None:
    """Raise `ValueError` unless each of `options` is a list of at least one integer, all from 1."""
    for name, values in options.items():
        require_list(name, values)
        for value in values:
            require_int(name, value, minimum=1)


def require_device(device: str) -> None:
    """Raise `ValueError` unless this PyTorch can compute on `device`."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device is {device!r}; it must be cpu, or cuda where PyTorch has it") from error


@dataclass(frozen=True)
class Experiment:
    """A question, the points at which it is measured, and what is drawn.

    name      as on the command line and in the report
    question  one sentence
    points    keyword options -> list of points; each a flat dict of JSON values, which says all that `measure` varies.
              In the order in which they are to run: trials outermost, so that a slow spell of the machine meets all
    measure   (subject, point) -> flat dict of JSON values
    predict   (step_cost, point) -> dict with some of the same keys: what the cost model says
    figure    rows -> Plotly figure, each row a point and its values, with what was predicted as row["predicted"]
    """

    name: str
    question: str
    points: Callable[..., list[dict]]
    measure: Callable[["Subject", dict], dict]
    predict: Callable[[object, dict], dict]
    figure: Callable[[list[dict]], object]


@dataclass(frozen=True)
class Subject:
    """The model that an experiment runs on: the shipped one, SmolLM2 where installed, or a local Qwen3 checkpoint."""

    name: str
    model: torch.nn.Module

    @classmethod
    def load(cls, name: str = RETRIEVAL, device: str = "cpu") -> "Subject":
        """`name` is "retrieval", "smollm2" or the folder of a checkpoint.

        Raises `ValueError` on a missing or damaged file or device, `ImportError` where SmolLM2 is not installed.
        """
        require_device(device)
        if name == RETRIEVAL:
            return cls(name, load_retrieval(device))
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
        if name == SMOLLM2:
            return cls(name, load_smollm2(dtype=dtype, device=device))
        return cls(Path(name).resolve().name, load_checkpoint(name, dtype, device))

    @property
    def answers(self) -> bool:
        """Whether it was trained for the retrieval task, so that its answers can be right or wrong."""
        return self.name == RETRIEVAL

    def task(self, num_records: int, seed: int) -> Task:
        """A document and a question; only the retrieval model can answer. Raises `ValueError` for any other."""
        if not self.answers:
            raise ValueError(f"model is {self.name!r}; it must be {RETRIEVAL!r}, as answers are judged")
        return make_task(num_records, seed)

    def prompt(self, num_tokens: int, seed: int) -> list[int]:
        """`num_tokens` token ids that depend on the arguments alone: for times, where no answer is judged."""
        require_int("num_tokens", num_tokens, minimum=1, maximum=self.model.config.max_position_embeddings)
        rng = random.Random(f"{num_tokens}/{seed}")
        return [rng.randrange(self.model.config.vocab_size) for _ in range(num_tokens)]

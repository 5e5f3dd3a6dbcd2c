"""The chapter's experiments, to be run again on the reader's machine: `python -m servelab run NAME`.

Each module holds one `EXPERIMENT`. They run on the shipped retrieval model, which really answers, so that times and
correct answers come from the same run. `run.run` measures an experiment's points one by one and keeps each.
"""

from importlib import import_module

from servelab.checks import require_name

# By the name on the command line, in the order of the chapter.
MODULES = {
    "batch-sweep": "batch_sweep",
    "token-budget": "token_budget",
    "blocks": "blocks",
    "agent-replay": "agent_replay",
    "drafts": "drafts",
    "capacity": "capacity",
    "kv-precision": "kv_precision",
    "serving": "serving",
}


def find(name: str):
    """The `Experiment` called `name`. An unknown name raises `ValueError` with near matches."""
    require_name("name", name, MODULES)
    return import_module(f"servelab.experiments.{MODULES[name]}").EXPERIMENT

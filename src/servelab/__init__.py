"""servelab: one tested engine behind every slider, figure, check and number of *Tokens per Second*.

Everything but `kernels`, `model`, `figures` and the array codecs runs on plain Python, so that the engine and
the exercises also run in a browser. Submodules are imported when first used: `servelab.memory` works after
`import servelab`.
"""

from importlib import import_module

__version__ = "0.1.0"

_MODULES = (
    "batching",
    "catalog",
    "check",
    "engine",
    "explore",
    "figures",
    "kernels",
    "measure",
    "memory",
    "units",
)


def __getattr__(name):
    if name in _MODULES:
        return import_module(f"servelab.{name}")
    raise AttributeError(f"module 'servelab' has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *_MODULES])

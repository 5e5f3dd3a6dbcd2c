"""servelab: one tested engine behind every slider, figure, check and number of *Tokens per Second*.

Everything but `kernels`, `model`, `figures` and the array codecs runs on plain Python, so that the engine and
the exercises also run in a browser. Submodules are imported when first used: `servelab.memory` works after
`import servelab`.
"""

import sys
from importlib import import_module

__version__ = "0.1.0"

PLAIN_MODULES = (
    *("batching", "catalog", "check", "cost", "engine", "latency", "memory"),
    *("offload", "planning", "quality", "quantization", "retention", "reuse", "service", "speculation", "units"),
)
_HEAVY_MODULES = ("explore", "figures", "kernels", "measure", "model")

if sys.platform == "emscripten":
    import_module("servelab.browser").explain_missing_packages()


def __getattr__(name):
    if name in PLAIN_MODULES or name in _HEAVY_MODULES:
        return import_module(f"servelab.{name}")
    raise AttributeError(f"module 'servelab' has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *PLAIN_MODULES, *_HEAVY_MODULES])

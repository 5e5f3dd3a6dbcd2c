"""In a browser (Pyodide) some packages cannot be had: whoever imports one is told what to do instead."""

import sys
from importlib.abc import MetaPathFinder

UNAVAILABLE = ("gguf", "numba", "numpy", "torch")


class _Unavailable(MetaPathFinder):
    """Asked last, so a package that the lab does have is found before."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname in UNAVAILABLE:
            raise ModuleNotFoundError(
                f"This lab runs in the browser, without {fullname}: run this page on your machine (`make lab`).",
                name=fullname,
            )


def explain_missing_packages() -> None:
    """Have imports of `UNAVAILABLE` packages say so, where nothing else provides them. Once is enough."""
    if not any(isinstance(finder, _Unavailable) for finder in sys.meta_path):
        sys.meta_path.append(_Unavailable())

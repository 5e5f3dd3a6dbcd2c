"""The library but for kernels, figures and array codecs on plain Python and ruamel.yaml, as in a browser."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import ruamel.yaml

import servelab

SCRIPT = """
import importlib.util, sys

for heavy in ("numpy", "numba", "torch", "plotly", "ipywidgets", "IPython"):
    assert importlib.util.find_spec(heavy) is None, heavy

import servelab
from servelab import catalog, engine, memory

for name in servelab.PLAIN_MODULES:
    getattr(servelab, name)

qwen = catalog.model("qwen3-8b")
assert memory.max_requests(12 * 1024**3, qwen, 8192, 256) == 10
requests = [engine.Request(f"r{i}", 0.0, 64, 4) for i in range(3)]
trace = engine.simulate(requests, catalog.step_cost("rtx-pro-6000", "qwen3-8b"))
assert trace.total_s > 0

from servelab.check import check, hint
check("8-3a", lambda lengths, block_size: [-length % block_size for length in lengths])
print("done")
"""


def test_plain_python_is_enough(tmp_path):
    """No site-packages at all: only the library itself and its one dependency."""
    shutil.copytree(Path(ruamel.yaml.__file__).parent, tmp_path / "ruamel" / "yaml")
    path = os.pathsep.join([str(Path(servelab.__file__).parents[1]), str(tmp_path)])
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYTEST"))}
    ran = subprocess.run(
        [sys.executable, "-S", "-c", SCRIPT], env=environment | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split("\n")[:2] == ["8-3a: right.", "done"]

"""The lab in the browser without a browser: what is in it, what it is made of, and what it says is missing."""

import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest
from nbformat import v4
from packaging.utils import canonicalize_name

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
import fetch_site_assets
import lab
import serve

from servelab import browser, explore
from servelab.figures import paging
from servelab.site.lab import lab_notebooks, needs, optional_packages

ROOT = Path(__file__).resolve().parents[1]

# Runs the code of each notebook with the packages gone that a browser lacks. Figures are drawn, not shown.
RUN = """
import json, sys

class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"gguf", "numba", "numpy", "pandas", "psutil", "torch", "tqdm", "transformers"}:
            raise ModuleNotFoundError(f"no {name} in a browser", name=name)

sys.meta_path.insert(0, Gone())
for notebook in sys.argv[1:]:
    names = {"__name__": "__main__"}
    for cell in json.load(open(notebook, encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            try:
                exec(compile("".join(cell["source"]), notebook, "exec"), names)
            except Exception as error:
                if "raises-exception" not in cell["metadata"].get("tags", []):
                    raise
print("all ran")
"""


def notebook_with(folder, *sources):
    path = folder / "some.ipynb"
    nbformat.write(v4.new_notebook(cells=[v4.new_code_cell(source) for source in sources]), path)
    return path


@pytest.mark.parametrize(
    ("source", "needed"),
    [
        ("from servelab import catalog, engine\nimport math", set()),
        ("import numpy as np", {"NumPy"}),
        ("from servelab import (\n    catalog,\n    kernels,\n)", {"Numba"}),
        ("from servelab.kernels.cpu import paged_attention", {"Numba"}),
        ("def late():\n    import torch.nn", {"PyTorch"}),
        ("from servelab.model.load import load_retrieval\nimport gguf", {"PyTorch", "gguf"}),
        ("import numpydoc, torchless", set()),
    ],
)
def test_what_a_notebook_needs(tmp_path, source, needed):
    assert needs(notebook_with(tmp_path, "1 + 1", source)) == needed


def test_the_notebooks_that_need_nothing_run_without_it():
    """Solutions stand for the exercises, whose stubs compute nothing."""
    free = [path for path in lab_notebooks(ROOT) if not needs(ROOT / path) and path.parts[0] != "exercises"]
    assert len(free) > 15
    ran = subprocess.run([sys.executable, "-c", RUN, *free], cwd=ROOT, capture_output=True, text=True, encoding="utf-8")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith("all ran\n")


def test_every_exercise_but_the_one_that_serves_a_model_is_in_the_lab():
    assert [path.stem for path in lab_notebooks(ROOT) if path.parts[0] == "exercises"] == [
        f"8-{n}" for n in range(1, 9)
    ]


def test_in_a_browser_an_explorer_carries_no_table(monkeypatch):
    shown = explore.explore(paging.paging_explorer, block_size=[4], lengths={"two": (5, 6)}, common_prefix=[0])
    assert explore.MIME_TYPE in shown._repr_mimebundle_()
    monkeypatch.setattr(sys, "platform", "emscripten")
    assert list(shown._repr_mimebundle_()) == ["text/plain"]


def test_what_a_browser_lacks_is_named_once(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = len(sys.meta_path)
    browser.explain_missing_packages()
    browser.explain_missing_packages()
    assert len(sys.meta_path) == before + 1
    finder = sys.meta_path[-1]
    with pytest.raises(ModuleNotFoundError, match="without numba: run this page on your machine") as raised:
        finder.find_spec("numba")
    assert raised.value.name == "numba"
    assert finder.find_spec("no_such_module") is None


def test_the_labs_pins_agree_with_the_books_and_with_pyodides():
    pins, books = (
        {canonicalize_name(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.M)}
        for text in (lab.REQUIREMENTS.read_text(), (ROOT / "requirements.txt").read_text())
    )
    fetch_site_assets.fetch_package(fetch_site_assets.PYODIDE, lab.VENDOR)
    pyodides = {name: entry["version"] for name, entry in lab.pyodide_lock()["packages"].items()}
    for name, version in pins.items():
        assert version == pyodides.get(name, books.get(name)), name
    assert {"plotly", "ipywidgets"} <= set(pins)


def wheel(folder, name, requires=()):
    path = folder / f"{name}-1.0-py3-none-any.whl"
    metadata = "".join(f"Requires-Dist: {each}\n" for each in requires)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", "")
        archive.writestr(f"{name}/deep/module.py", "")
        archive.writestr(
            f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{metadata}"
        )
    return path


def test_a_lock_entry_says_what_to_load_first(tmp_path):
    path = wheel(
        tmp_path,
        "one",
        ["Two_X>=1", 'pexpect; sys_platform != "emscripten"', 'tests; extra == "test"', "widgetsnbextension"],
    )
    entry = lab.lock_entry(path, {"one", "two-x"})
    assert entry["depends"] == ["two-x"]
    assert entry["imports"] == ["one"]
    assert entry["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(lab.AssetError, match=r"one-1\.0-py3-none-any\.whl needs two-x: name it in lab-requirements"):
        lab.lock_entry(path, {"one"})


def test_slim_wheels_keep_the_rest(tmp_path, monkeypatch):
    monkeypatch.setattr(lab, "UNUSED", ("one/deep/",))
    lab.write_slim(wheel(tmp_path, "one"), tmp_path / "slim.whl")
    with zipfile.ZipFile(tmp_path / "slim.whl") as slim:
        assert slim.namelist() == ["one/__init__.py", "one-1.0.dist-info/METADATA"]


def test_numpy_is_kept_only_at_the_hash_that_pyodide_names(tmp_path, monkeypatch):
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "numpy-1.whl").write_bytes(b"numpy")
    numpy = {"file_name": "numpy-1.whl", "sha256": hashlib.sha256(b"numpy").hexdigest()}
    monkeypatch.setattr(lab, "pyodide_lock", lambda: {"packages": {"numpy": numpy}})
    monkeypatch.setattr(lab, "fetch_package", lambda package, vendor: None)
    monkeypatch.setattr(lab, "VENDOR", tmp_path)
    assert optional_packages(tmp_path) == set()
    with serve.serving(tmp_path / "host") as host:
        numpy["sha256"] = "0" * 64
        with pytest.raises(lab.AssetError, match="is not the file that Pyodide's lock file names"):
            lab.fetch_numpy(host)
        assert optional_packages(tmp_path) == set()
        numpy["sha256"] = hashlib.sha256(b"numpy").hexdigest()
        assert lab.fetch_numpy(host).read_bytes() == b"numpy"
        (tmp_path / "host" / "numpy-1.whl").unlink()
        with pytest.raises(lab.AssetError, match="The lab does without NumPy, and its pages say so"):
            lab.fetch_numpy(host)
    assert optional_packages(tmp_path) == {"NumPy"}


SHOWN = """
import sys
from IPython.core.interactiveshell import InteractiveShell
sys.platform = "emscripten"
from servelab.figures import paging
shell = InteractiveShell.instance()
print(list(shell.display_formatter.format(paging.reserved_slots((9, 13), 16))[0]))
"""


def test_in_a_browser_a_figure_is_shown_by_its_numbers_alone():
    ran = subprocess.run([sys.executable, "-c", SHOWN], capture_output=True, text=True, encoding="utf-8")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "['application/vnd.plotly.v1+json', 'text/plain']"

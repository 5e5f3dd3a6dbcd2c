"""Which pages run in the browser lab (JupyterLite in the site's folder `lite/`), and the link to it on each."""

import ast
from pathlib import Path

import nbformat
from docutils import nodes
from sphinx.application import Sphinx

# What an import in a notebook needs that a browser may lack; the longest prefix counts.
NEEDS = {
    "gguf": "gguf",
    "numba": "Numba",
    "numpy": "NumPy",
    "torch": "PyTorch",
    "servelab.experiments": "PyTorch",
    "servelab.figures.predictions": "PyTorch",
    "servelab.kernels": "Numba",
    "servelab.model": "PyTorch",
}
PAGE = "lite/notebooks/index.html"  # from the root of the site; opens the notebook that ?path= names
COST = "about 40 MB the first time; ready when the circle at the top right has a tick, in some 15 seconds"


def _imported(code: str):
    """Dotted names that the code imports; `from a import b` gives a.b, which may be a module."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def needs(path: Path) -> set[str]:
    """Packages of `NEEDS` that the code of a notebook uses, by their usual names."""
    cells = nbformat.read(path, as_version=4).cells
    names = {name for cell in cells if cell.cell_type == "code" for name in _imported(cell.source)}
    return {
        package
        for module, package in NEEDS.items()
        if any(name == module or name.startswith(module + ".") for name in names)
    }


def lab_notebooks(root: Path) -> list[Path]:
    """The notebooks that run without PyTorch, as paths below `root`: these are in the lab."""
    found = [
        path for folder in ("book", "chapters", "exercises", "solutions") for path in root.glob(f"{folder}/*.ipynb")
    ]
    return sorted(path.relative_to(root) for path in found if "PyTorch" not in needs(path))


def optional_packages(vendor: Path) -> set[str]:
    """What the lab has beyond pure Python: NumPy where its wheel for WebAssembly could be fetched."""
    return {"NumPy"} if list((vendor / "numpy").glob("numpy-*.whl")) else set()


def _sentence(missing: set[str]) -> str:
    if not missing:
        return f" ({COST})."
    return f" ({COST}). Cells that need {' or '.join(sorted(missing))} say so there: a browser does not have it."


def _add_link(app: Sphinx, doctree, docname: str) -> None:
    """Below the title of each page that is in the lab."""
    notebook = Path(docname).with_suffix(".ipynb")
    if notebook not in app.config.servelab_lab_notebooks:
        return
    missing = needs(Path(app.confdir) / notebook) - optional_packages(
        Path(app.confdir) / app.config.servelab_lab_vendor
    )
    up = "../" * docname.count("/")
    link = nodes.reference("", "Run in your browser", internal=True, refuri=f"{up}{PAGE}?path={notebook.as_posix()}")
    line = nodes.paragraph("", "", link, nodes.Text(_sentence(missing)), classes=["sl-run"])
    title = next(doctree.findall(nodes.title))
    title.parent.insert(title.parent.index(title) + 1, line)


def _find_notebooks(app: Sphinx, config) -> None:
    config.servelab_lab_notebooks = lab_notebooks(Path(app.confdir))


def setup(app: Sphinx) -> None:
    app.add_config_value("servelab_lab_notebooks", [], "html")
    app.add_config_value("servelab_lab_vendor", "_build/lab", "html")
    app.connect("config-inited", _find_notebooks)
    app.connect("doctree-resolved", _add_link)

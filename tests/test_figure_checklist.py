"""Each of the chapter's 36 figures has a counterpart: a function that says so, drawn on a page, with alt text."""

import ast
import re
from pathlib import Path

import nbformat
import pytest

from servelab.explore import MIME_TYPE
from servelab.site.render import PLOTLY

ROOT = Path(__file__).resolve().parent.parent
FIGURES = [f"8-{number}" for number in range(1, 37)]


def counterparts():
    """{figure: the name of each function whose docstring calls it the counterpart}."""
    found = {figure: [] for figure in FIGURES}
    for path in sorted((ROOT / "src/servelab/figures").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                claim = re.match(r"Counterpart of figures? (8-[\d, and8-]+)", ast.get_docstring(node) or "")
                for figure in re.findall(r"8-\d+", claim.group(1)) if claim else []:
                    found[figure].append(node.name)
    return found


def drawn():
    """Source of every cell of a chapter page that shows a figure, and all that the figure says in words."""
    for path in sorted((ROOT / "chapters").glob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            for output in cell.get("outputs", []):
                for mime in (MIME_TYPE, PLOTLY):
                    if mime in output.get("data", {}):
                        yield cell.source, output.data[mime]


COUNTERPARTS = counterparts()
DRAWN = list(drawn())


def alt_texts(figure):
    if "leaves" in figure:
        return [text for path, _, texts, _ in figure["leaves"] if path[-1] == "alt" for text in texts]
    return [figure["layout"]["meta"]["alt"]]


@pytest.mark.parametrize("figure", FIGURES)
def test_has_a_counterpart_on_a_page(figure):
    functions = COUNTERPARTS[figure]
    assert functions, f"no function in servelab.figures says that it is the counterpart of figure {figure}"
    shown = [data for source, data in DRAWN if any(function in source for function in functions)]
    assert shown, f"no chapter page draws {' or '.join(functions)}"
    for data in shown:
        assert all(len(text) > 20 for text in alt_texts(data))
        assert alt_texts(data)

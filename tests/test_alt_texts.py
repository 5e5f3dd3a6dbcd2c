"""Every image of the book says what it shows. Plotly's figures are checked when the site is built."""

from pathlib import Path

import nbformat
import pytest
from alt_texts import alts_of_html, faults, is_alt_text
from nbformat import v4

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "book").glob("*.md")]
    + [path for folder in ("book", "chapters", "exercises", "solutions") for path in (ROOT / folder).glob("*.ipynb")]
)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_image_has_alt_text(path):
    assert not faults(path), "\n".join(faults(path))


GOOD = (
    "![Two bars](a.png)",
    '<img src="a.png" alt="Two bars">',
    'Text <img src="a.png" alt="Two bars"> text',
    "<svg><title>Two bars</title></svg>",
    "```{image} a.png\n:alt: Two bars\n```",
    ":::{figure} a.png\n:alt: Two bars\nA caption\n:::",
    "![two][bars]\n\n[bars]: a.png",
    "`![](a.png)` in code",
)
BAD = (
    "![](a.png)",
    "![ ](a.png)",
    "![a.png](a.png)",
    "![assets/a.SVG](a.svg)",
    '<img src="a.png">',
    'Text <img src="a.png" alt=""> text',
    "<svg><path/></svg>",
    "```{image} a.png\n```",
    ":::{figure} a.png\n:alt:\nA caption\n:::",
    "![][bars]\n\n[bars]: a.png",
)


@pytest.mark.parametrize("source", [*GOOD, *BAD])
def test_images_without_alt_text_are_found_in_pages_and_in_cells(tmp_path, source):
    page, notebook = tmp_path / "page.md", tmp_path / "page.ipynb"
    page.write_text(f"# Title\n\n{source}\n")
    nbformat.write(v4.new_notebook(cells=[v4.new_code_cell(), v4.new_markdown_cell(source)]), notebook)
    found = [line.partition(" that says")[0] for line in (*faults(page), *faults(notebook))]
    bad = ["page.md: an image needs alt text", "page.ipynb, cell 1: an image needs alt text"]
    assert found == (bad if source in BAD else [])


@pytest.mark.parametrize("mime", ["image/png", "image/svg+xml"])
@pytest.mark.parametrize(
    ("metadata", "says"), [({}, "None"), ({"alt": ""}, "''"), ({"alt": "x.png"}, "'x.png'"), ({"alt": "Bars"}, "")]
)
def test_images_without_alt_text_are_found_in_outputs(tmp_path, mime, metadata, says):
    output = v4.new_output("display_data", data={mime: PIXEL}, metadata={mime: metadata})
    path = tmp_path / "page.ipynb"
    nbformat.write(v4.new_notebook(cells=[v4.new_code_cell(outputs=[output])]), path)
    line = f"page.ipynb, output of cell 0: an image needs alt text that says what it shows, not {says}"
    assert faults(path) == ([line] if says else [])


def test_images_without_alt_text_are_found_in_html_outputs(tmp_path):
    output = v4.new_output("display_data", data={"text/html": '<p><img src="x"></p>'})
    path = tmp_path / "page.ipynb"
    nbformat.write(v4.new_notebook(cells=[v4.new_code_cell(outputs=[output])]), path)
    assert len(faults(path)) == 1


def test_the_site_shows_the_alt_text_of_an_output(tmp_path):
    """IPython stores it beside the image's data; MyST-NB alone would show the name of a file."""
    from sphinx.application import Sphinx

    output = v4.new_output("display_data", data={"image/png": PIXEL}, metadata={"image/png": {"alt": "Two bars"}})
    cells = [v4.new_markdown_cell("# Title"), v4.new_code_cell("1", outputs=[output])]
    nbformat.write(v4.new_notebook(cells=cells), tmp_path / "index.ipynb")
    settings = {"extensions": ["myst_nb"], "nb_execution_mode": "off", "html_theme": "basic"}
    app = Sphinx(tmp_path, None, tmp_path / "out", tmp_path / "trees", "html", settings, status=None, warning=None)
    app.build()
    alts = list(alts_of_html((tmp_path / "out/index.html").read_text("utf-8")))
    assert "Two bars" in alts
    assert all(map(is_alt_text, alts))

"""Below each page: with what its notebook was executed, and which servelab the book is of."""

import json
from pathlib import Path

from sphinx.application import Sphinx

from servelab import __version__

TEMPLATES = Path(__file__).parent / "templates"
NAMES = {"numpy": "NumPy", "torch": "PyTorch", "numba": "Numba", "plotly": "Plotly"}


def executed_line(record: dict) -> str:
    """One sentence from what `tools/notebooks.py execute` left in a notebook."""
    packages = record["packages"]
    versions = [f"Python {record['python']}", *(f"{title} {packages[name]}" for name, title in NAMES.items())]
    return f"Executed on {record['executed']} with {', '.join(versions)}; servelab {packages['servelab']}."


def _add_footers(app: Sphinx, config) -> None:
    config.templates_path.append(str(TEMPLATES))
    config.html_theme_options |= {
        "article_footer_items": ["executed.html"],
        # The theme puts these inside of main and leaves the page's own footer, a landmark, empty.
        "footer_content_items": [],
        "footer_start": ["author.html", "copyright.html", "extra-footer.html"],
        "extra_footer": f"{config.html_title}, servelab {__version__}",
    }


def _add_executed_line(app: Sphinx, pagename, templatename, context, doctree) -> None:
    record = app.env.metadata.get(pagename, {}).get("servelab")
    context["executed"] = record and executed_line(json.loads(record))


def setup(app: Sphinx) -> None:
    app.connect("config-inited", _add_footers)
    app.connect("html-page-context", _add_executed_line, priority=400)  # before the theme drops empty templates

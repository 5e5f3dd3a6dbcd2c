"""MyST-NB renderer: a figure or an explorer of a notebook becomes HTML that stands without scripts.

Controls, sentence and table are written here; `explore.js` only wakes them. Without it the table under the figure
still has the numbers.
"""

import json
from pathlib import Path
from typing import ClassVar

import jinja2
from docutils import nodes
from markupsafe import Markup
from myst_nb.core.render import MimeRenderPlugin
from sphinx.util import logging

from servelab.explore import MIME_TYPE
from servelab.states import state_at

PLOTLY = "application/vnd.plotly.v1+json"
TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=jinja2.StrictUndefined
)
LOGGER = logging.getLogger(__name__)


class ServelabRenderer(MimeRenderPlugin):
    """Renders Plotly figures and explorers, for the html builder and for message catalogs."""

    mime_priority_overrides: ClassVar = [
        (builder, mime, 1) for builder in ("html", "gettext") for mime in (MIME_TYPE, PLOTLY)
    ]

    @staticmethod
    def handle_mime(renderer, data, inline):
        if alt := data.output_metadata.get(data.mime_type, {}).get("alt"):  # of an image, from IPython.display.Image
            (image,) = renderer.render_image(data)
            image["alt"] = alt
            return [image]
        if inline or data.mime_type not in (MIME_TYPE, PLOTLY):
            return None
        content = data.content if isinstance(data.content, dict) else json.loads(data.content)
        if data.mime_type == PLOTLY:
            content = still(f"figure-{data.cell_index}", content)
        start = state_at(content, [axis["start"] for axis in content["axes"]])
        if not start["figure"]["layout"].get("meta", {}).get("alt"):
            # A warning fails the build, which knows the page; the cell is the rest of the address.
            LOGGER.warning(
                "the figure of cell %s has no alt text: pass it through servelab.figures.style.describe",
                data.cell_index,
            )
            return None
        return [nodes.raw("", page_html(content, start), format="html")]


def still(name: str, figure: dict) -> dict:
    """A plain figure as an explorer without axes."""
    return {"name": name, "axes": [], "leaves": [[[], [], [{"figure": figure, "text": ""}], [0]]]}


def page_html(content: dict, start: dict) -> str:
    layout = start["figure"]["layout"]
    # Inside a script element only "</" could end the data early.
    data = Markup(json.dumps(content, separators=(",", ":")).replace("</", "<\\/"))
    return TEMPLATES.get_template("figure.html.jinja").render(
        **{"name": content["name"], "axes": content["axes"], "text": start["text"], "data": data},
        **{"meta": layout["meta"], "height": layout["height"]},
    )

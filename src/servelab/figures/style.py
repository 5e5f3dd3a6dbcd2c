"""The look that all figures share: colours by meaning, axes, and the words that stand for a figure.

Colours follow Okabe and Ito's palette, which colour-blind readers can tell apart, darkened or lightened to 3:1
contrast on white as well as on the site's dark background (a test computes it). The same thing has the same colour
on every page. Fonts and grid lines take their colours from the page, so that one figure serves light and dark.
"""

import sys

import plotly.graph_objects as go
import plotly.io as pio

COLORS = {
    "kv": "#2b83ba",  # K and V of one request
    "shared": "#00926b",  # K and V that several requests reference
    "unused": "#868686",  # allocated, holds nothing
    "free": "#868686",  # not allocated
    "prefill": "#d0610e",
    "decode": "#2b83ba",
    "weights": "#9a6fb0",
    "cost": "#d0610e",  # what a technique adds
    "right": "#00926b",  # of answers
    "wrong": "#d0610e",
}

# Notebooks keep a figure's numbers; the default renderer would add plotly.js, 4 MB a notebook. Colab has no
# renderer for the plain numbers.
if "google.colab" not in sys.modules:
    pio.renderers.default = "plotly_mimetype"

if sys.platform == "emscripten":
    # In a browser a figure is shown by its plain numbers alone: the first of these needs nbformat, the second holds
    # plotly.js and asks another host for it.
    go.Figure._ipython_display_ = go.Figure._repr_html_ = None

TEMPLATE = go.layout.Template(
    layout={
        "font": {"size": 14},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 52, "r": 12, "t": 46, "b": 44},
        "xaxis": {"zeroline": False, "automargin": True},
        "yaxis": {"zeroline": False, "automargin": True},
        "dragmode": False,
        "showlegend": False,
        "bargap": 0.25,
    }
)


def figure(height: int = 300, **layout) -> go.Figure:
    """An empty figure of `height` pixels in the shared look."""
    return go.Figure(layout={"template": TEMPLATE, "height": height, **layout})


def color_key(entries) -> str:
    """What a figure's colours mean, in one line. An entry is (CSS colour, name) or (CSS colour, name, glyph)."""
    return "   ".join(
        f'<span style="color:{color}">{glyph[0] if glyph else "■"}</span> {name}' for color, name, *glyph in entries
    )


def add_heading(fig: go.Figure, text: str, axis: str = "", **more) -> None:
    """A line above the plot, at its left: the key of its colours, or what its numbers are.

    `axis`: "2", "3", ... for another plot of the figure than the first. `more`: as `add_annotation` takes it.
    """
    fig.add_annotation(
        **{"x": 0, "xref": f"x{axis} domain", "xanchor": "left"},
        **{"y": 1, "yref": f"y{axis} domain", "yanchor": "bottom"},
        **{"text": text, "showarrow": False, "font": {"size": 13}, **more},
    )


def describe(fig: go.Figure, alt: str, *tables: tuple[list[str], list[list]]) -> go.Figure:
    """Give `fig` its alt text (what it shows, in a sentence or two) and tables of all that is drawn.

    A table is (column names, rows). The site shows them under the figure; its build refuses a figure without alt text.
    """
    fig.update_layout(meta={"alt": alt, "tables": [{"columns": columns, "rows": rows} for columns, rows in tables]})
    return fig

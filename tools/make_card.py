"""Makes the picture shown with a shared link to the book: two states of the landing page's figure, in a browser.

python tools/make_card.py    writes src/servelab/site/static/card.png; run it again when that figure changes
"""

import json
import sys
from pathlib import Path

import fetch_site_assets
from browser import NONE_FOUND, find_browser, launched

from servelab.figures import start
from servelab.site import STATIC
from servelab.site.cards import CARD, CARD_SIZE

STATES = {"A": "16 long requests at once", "E": "prefix shared, drafts looked up"}
PAGE = """<!doctype html><style>
  body { margin: 0; padding: 48px 64px; font-family: sans-serif; color: #1f2937; background: #fff; }
  h1 { margin: 0; font-size: 72px; } h2 { margin: 4px 0 30px; font-size: 34px; font-weight: normal; color: #4b5563; }
  main { display: grid; grid-template-columns: 1fr 1fr; gap: 40px; } h3 { margin: 0; font-size: 28px; }
  p { margin: 8px 0 0; font-size: 25px; min-height: 2.4em; }
</style><h1>Tokens per Second</h1><h2>LLM inference optimization you can run</h2><main></main>"""
DRAW = """async states => {
  for (const {title, text, figure} of states) {
    const section = document.createElement("section"), plot = document.createElement("div");
    section.innerHTML = `<h3>${title}</h3><p>${text}</p>`;
    section.append(plot);
    document.querySelector("main").append(section);
    await Plotly.newPlot(plot, figure.data, figure.layout, {staticPlot: true});
  }
}"""


def states():
    """What is drawn: for each state its title, its sentence and its figure, with letters for a small picture."""
    for plan, title in STATES.items():
        figure, text = start.case_explorer(plan)
        figure.update_layout(height=290, width=516, font={"size": 24, "color": "#1f2937"})
        figure.update_xaxes(title={"text": "% of the limit", "font": {"size": 24}}, tickvals=[0, 100, 200])
        figure.update_traces(width=0.36)
        figure.update_annotations(yshift=6)
        yield {"title": title, "text": text, "figure": json.loads(figure.to_json())}


def main():
    path = find_browser()
    if path is None:
        sys.exit(NONE_FOUND)
    script = fetch_site_assets.fetch() / "plotly" / "plotly-cartesian.min.js"
    width, height = CARD_SIZE
    with launched(path) as browser:
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_content(PAGE)
        page.add_script_tag(path=script)
        page.evaluate(DRAW, list(states()))
        page.screenshot(path=STATIC / Path(CARD).name)


if __name__ == "__main__":
    main()

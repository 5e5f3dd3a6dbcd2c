"""Pictures of the figures for readers without the site's scripts: one SVG a figure, of its start, in the built pages.

A page names them in <noscript>, where figure.html.jinja left a comment for each figure. `tools/serve.py` runs this.
"""

import re
from html import escape

import browser

FOLDER = "_frames"
WIDTH = 560  # px: between a page's width on a desk and on a phone, so that its letters can be read on both
COMMENT = "<!-- frame of {} -->"

DRAWN = "[...document.querySelectorAll('.sl-figure')].every(figure => figure.dataset.drawn)"
DRAWINGS = """width => Promise.all([...document.querySelectorAll('.sl-figure')].map(async figure => {
    const {data, layout} = figure.querySelector('.sl-plot'), {height, meta} = layout;
    const options = {format: 'svg', width, height, imageDataOnly: true};
    const svg = await Plotly.toImage({data, layout: {...layout, paper_bgcolor: 'white'}}, options);
    return {name: figure.dataset.name, alt: meta.alt, height, svg};
}))"""


def shortened(svg):
    """Without digits that no screen shows."""
    return re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), svg)


def with_frame(html, drawing, source):
    """The page with the picture at `source` in the place that its comment keeps."""
    comment = COMMENT.format(drawing["name"])
    if html.count(comment) != 1:
        raise ValueError(f"html has {html.count(comment)} comments {comment!r}; there must be one")
    sizes = f'width="{WIDTH}" height="{drawing["height"]}" loading="lazy"'
    return html.replace(comment, f'<img class="sl-frame" src="{source}" alt="{escape(drawing["alt"])}" {sizes}>')


def add(site, url):
    """Draw the figures of all pages of `site` (a folder, served at `url`) and name the pictures in the pages.

    Without a browser say so and leave all as it is.
    """
    path = browser.find_browser()
    if path is None:
        print("No browser found: pages without their scripts will show no pictures of the figures.", flush=True)
        return
    print("Drawing the figures for readers without scripts.", flush=True)
    files = {}
    with browser.launched(path) as opened, opened.new_context(color_scheme="light") as context:
        context.route("**/mathjax/**", lambda route: route.abort())  # no figure has a formula; it takes longest
        page = context.new_page()
        for file in sorted(site.rglob("*.html")):
            html = file.read_text(encoding="utf-8")
            if COMMENT.split("{")[0] not in html:
                continue
            place = file.relative_to(site)
            page.goto(f"{url}/{place.as_posix()}")
            page.wait_for_function(DRAWN)
            for drawing in page.evaluate(DRAWINGS, WIDTH):
                name = f"{'-'.join(place.with_suffix('').parts)}-{drawing['name']}.svg"
                html = with_frame(html, drawing, f"{'../' * (len(place.parts) - 1)}{FOLDER}/{name}")
                files[site / FOLDER / name] = shortened(drawing["svg"])
            files[file] = html
    (site / FOLDER).mkdir(exist_ok=True)
    for file, text in files.items():
        file.write_text(text, encoding="utf-8", newline="\n")

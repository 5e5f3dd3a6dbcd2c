"""What other programs show of a page when its address is shared: title, description, picture (Open Graph).

Addresses in these must be whole. `SERVELAB_SITE_URL`, or `html.baseurl` in _config.yml, says where the site will be
published; without it the tags that need it are left out.
"""

import os
import re
from html import escape

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

CARD = "_static/card.png"  # made by tools/make_card.py
CARD_SIZE = (1200, 630)
CARD_ALT = "Tokens per Second: a request's memory and time, each against its limit, before and after"
MAX_DESCRIPTION = 200  # characters; longer ones are cut where they are shown


def shortened(text: str, limit: int) -> str:
    """As many of its sentences as fit into `limit` characters; if none does, its first words and an ellipsis."""
    if len(text) <= limit:
        return text
    ends = [match.end() for match in re.finditer(r"[.?!](?= )", text[: limit + 1])]
    return text[: ends[-1]] if ends else text[:limit].rpartition(" ")[0] + "…"


def description(doctree: nodes.document) -> str:
    """The first prose of a page: its paragraphs, not those of lists, tables and cells."""
    parts = [node for section in doctree.findall(nodes.section) for node in section.children]
    text = " ".join(node.astext() for node in parts if isinstance(node, nodes.paragraph))
    return shortened(" ".join(text.split()), MAX_DESCRIPTION)


def _choose_address(app: Sphinx, config) -> None:
    address = os.environ.get("SERVELAB_SITE_URL") or config.html_baseurl or ""
    if address and not re.fullmatch(r"https?://[^\s?#]+/", address):
        raise ExtensionError(f"SERVELAB_SITE_URL={address!r} must be an http or https address that ends with a slash")
    config.html_baseurl = address


def _add_tags(app: Sphinx, pagename, templatename, context, doctree) -> None:
    if doctree is None:
        return
    text = description(doctree)
    title, site = app.env.titles[pagename].astext(), app.config.html_title
    properties = {"og:title": title, "og:description": text, "og:type": "article", "og:site_name": site}
    names = {"description": text, "twitter:card": "summary"}
    if base := app.config.html_baseurl:
        width, height = map(str, CARD_SIZE)
        properties |= {"og:url": base + app.builder.get_target_uri(pagename), "og:image": base + CARD}
        properties |= {"og:image:width": width, "og:image:height": height, "og:image:alt": CARD_ALT}
        names["twitter:card"] = "summary_large_image"
    lines = [f'<meta property="{name}" content="{escape(content)}" />' for name, content in properties.items()]
    lines += [f'<meta name="{name}" content="{escape(content)}" />' for name, content in names.items()]
    context["metatags"] += "\n".join(["", *lines, ""])


def setup(app: Sphinx) -> None:
    app.connect("config-inited", _choose_address)
    app.connect("html-page-context", _add_tags)

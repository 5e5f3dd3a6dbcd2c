"""Sphinx extension of the book's site: figures and explorers, their scripts page by page, nothing foreign.

The scripts of others (plotly.js, MathJax) are fetched at build time into a folder that
`servelab_vendor` names, relative to the book; no page asks another host for anything.
"""

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from servelab import __version__
from servelab.site import cards, footer, hover, lab
from servelab.site.glossary import GlossaryAnchors

STATIC = Path(__file__).parent / "static"
# Scripts of the theme's launch buttons, which fetch from other hosts when pressed; the book has none.
UNWANTED_SCRIPTS = ("thebe",)


def _add_static_folders(app: Sphinx, config) -> None:
    vendor = Path(app.confdir) / config.servelab_vendor
    if not (vendor / "plotly").is_dir():
        raise ExtensionError(f"{vendor} has no plotly.js; run `python tools/fetch_site_assets.py` (`make book` does)")
    config.html_static_path += [str(STATIC), str(vendor)]


def _has_figures(doctree) -> bool:
    return any("sl-figure" in node.astext() for node in doctree.findall(nodes.raw))


def _choose_scripts(app: Sphinx, pagename, templatename, context, doctree) -> None:
    def unwanted(script):
        text = f"{getattr(script, 'filename', script)} {getattr(script, 'attributes', {}).get('body', '')}"
        return any(word in text for word in UNWANTED_SCRIPTS)

    if doctree and _has_figures(doctree):
        # Deferred scripts run in this order, after the page has been read.
        app.add_js_file("plotly/plotly-cartesian.min.js", defer="defer")
        for script in ("explore.js", "play.js", "download.js", "fallback.js"):
            app.add_js_file(script, defer="defer")
    if pagename == "search":
        app.add_js_file("search.js", defer="defer")
    context["script_files"] = [script for script in context["script_files"] if not unwanted(script)]


def _name_navigation_toggles(app: Sphinx, pagename, templatename, context, doctree) -> None:
    """The theme's buttons that unfold the navigation have an icon and no name for screen readers."""
    generate = context.get("generate_toctree_html")
    if generate is None:
        return

    def with_names(*args, **kwargs):
        html = generate(*args, **kwargs)
        for summary in html.find_all("summary"):
            summary["aria-label"] = "Show or hide the pages below"
        return html

    context["generate_toctree_html"] = with_names


def _plain_citations(app: Sphinx, pagename, templatename, context, doctree) -> None:
    """Take the role "list" from lists of citations: docutils gives their entries other roles, which it may not hold."""
    if "body" in context:
        context["body"] = context["body"].replace(
            '<div role="list" class="citation-list">', '<div class="citation-list">'
        )


def _remove_source_maps(app: Sphinx, exception) -> None:
    """The theme's, over a megabyte: only its own developers read them."""
    if exception is None and app.builder.format == "html":
        for file in (Path(app.outdir) / "_static").rglob("*.map"):
            file.unlink()


def setup(app: Sphinx) -> dict:
    app.add_config_value("servelab_vendor", "_build/vendor", "html")
    app.add_css_file("servelab.css")
    app.add_js_file("print.js", defer="defer")
    app.add_js_file("tables.js", defer="defer")
    app.add_transform(GlossaryAnchors)
    footer.setup(app)
    cards.setup(app)
    hover.setup(app)
    lab.setup(app)
    app.connect("config-inited", _add_static_folders)
    app.connect("html-page-context", _choose_scripts)
    app.connect("html-page-context", _plain_citations)
    app.connect("html-page-context", _name_navigation_toggles, priority=600)  # after the theme's own
    app.connect("build-finished", _remove_source_maps)
    return {"version": __version__, "parallel_read_safe": True, "parallel_write_safe": True}

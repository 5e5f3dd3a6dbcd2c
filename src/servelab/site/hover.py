"""Links to the glossary's terms and to papers say what is behind them: a title that `hover.js` shows as a tooltip.

Without scripts the browser shows the title itself.
"""

import html
import posixpath
import re
from pathlib import Path

from docutils import nodes
from pybtex.database import Entry, parse_file
from pybtex.richtext import Text
from sphinx.application import Sphinx

from servelab.site.cards import shortened
from servelab.site.glossary import GLOSSARY

MAX_LENGTH = 300  # characters
CLASS = "sl-hover"


def definitions(glossary: nodes.document) -> dict[str, str]:
    """{anchor: "term: definition"} of all terms."""
    found = {}
    for item in glossary.findall(nodes.definition_list_item):
        term, definition = item.children[0], item.children[-1]
        text = " ".join(f"{term.astext()}: {definition.astext()}".split())
        found |= dict.fromkeys(term["ids"], shortened(text, MAX_LENGTH))
    return found


def address(url: str) -> str:
    """What two links to the same paper have in common: no protocol, no version of an arXiv paper, no last slash."""
    bare = re.sub(r"^https?://", "", url).rstrip("/")
    return re.sub(r"^(arxiv\.org/)(?:abs|pdf)/([\d.]+\d)(?:v\d+)?$", r"\1\2", bare)


def plain(latex: str) -> str:
    r"""Text of a field of a bibliography: {\'e} is é, $\lambda$ is λ."""
    text = str(Text.from_latex(latex)).replace("$", "")
    return html.unescape(re.sub(r"\\([a-z]+) ?", r"&\1;", text))  # the two name Greek letters alike


def paper(entry: Entry) -> str:
    """Authors, year and title, such as "Kwon et al. (2023): Efficient Memory Management"."""
    names = [plain(" ".join([*person.prelast_names, *person.last_names])) for person in entry.persons["author"]]
    authors = names[0] if len(names) == 1 else f"{names[0]} et al."
    if len(names) == 2 and names[1] != "others":
        authors = " and ".join(names)
    return shortened(f"{authors} ({entry.fields['year']}): {plain(entry.fields['title'])}", MAX_LENGTH)


def papers(bibliography: Path) -> dict[str, str]:
    """{address: authors, year and title} of all entries of a BibTeX file."""
    found = {}
    for entry in parse_file(str(bibliography)).entries.values():
        url = entry.fields.get("url") or f"https://doi.org/{entry.fields['doi']}"
        found[address(url)] = paper(entry)
    return found


class Hover:
    """What links lead to, collected once all pages are read, and written to each page's links."""

    def collect(self, app: Sphinx, env) -> None:
        self.terms = definitions(env.get_doctree(GLOSSARY))
        self.glossary = app.builder.get_target_uri(GLOSSARY)
        self.papers = {}
        for name in app.config.bibtex_bibfiles:
            self.papers |= papers(Path(app.srcdir) / name)

    def behind(self, page: str, link: nodes.reference) -> str | None:
        """What to say of a link on the page with the address `page`."""
        if "refid" in link:
            return self.terms.get(link["refid"]) if page == self.glossary else None
        path, _, anchor = link.get("refuri", "").partition("#")
        if not link.get("internal"):
            return self.papers.get(address(path))
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
        return self.terms.get(anchor) if target == self.glossary else None

    def mark(self, app: Sphinx, doctree: nodes.document, docname: str) -> None:
        page = app.builder.get_target_uri(docname)
        for link in doctree.findall(nodes.reference):
            # An entry of the bibliography says it all already.
            if not isinstance(link.parent.parent, nodes.citation) and (text := self.behind(page, link)):
                link["reftitle"] = text
                link["classes"].append(CLASS)


def setup(app: Sphinx) -> None:
    hover = Hover()
    app.connect("env-check-consistency", hover.collect)
    app.connect("doctree-resolved", hover.mark)
    app.add_js_file("hover.js", defer="defer")

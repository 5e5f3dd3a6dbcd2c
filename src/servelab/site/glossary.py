"""Anchors of the glossary's terms: `notation.md#copy-on-write`, also where a line names several terms."""

from docutils import nodes
from myst_parser.mdit_to_docutils.base import default_slugify
from sphinx.errors import ExtensionError
from sphinx.transforms import SphinxTransform

GLOSSARY = "book/notation"


def term_slugs(terms: str) -> list[str]:
    """An anchor for each of the terms between commas, made as headings' are: "KV cache, slot" -> kv-cache, slot."""
    slugs = [default_slugify(term.strip()) for term in terms.split(",")]
    if not all(slugs):
        raise ValueError(f"terms={terms!r} must be terms with commas between them; one is empty")
    return slugs


class GlossaryAnchors(SphinxTransform):
    """Gives the terms of the glossary their anchors, and makes them known to Markdown links."""

    default_priority = 800  # before MyST resolves links within the page (879)

    def apply(self, **kwargs) -> None:
        if self.env.docname != GLOSSARY:
            return
        known = self.document.myst_slugs  # the same dictionary that links from other pages are looked up in
        for term in self.document.findall(nodes.term):
            for slug in term_slugs(term.astext()):
                if slug in known or slug in self.document.ids:
                    raise ExtensionError(f"{GLOSSARY}: the anchor #{slug} is there twice")
                term["ids"].append(slug)
                self.document.ids[slug] = term
                known[slug] = (term.line, slug, term.astext())

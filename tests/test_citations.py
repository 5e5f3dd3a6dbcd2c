"""The links of the prose: to papers, as the bibliography has them, and to terms of the glossary."""

import re
from collections import Counter
from pathlib import Path

import nbformat
import pytest
from markdown_it import MarkdownIt
from mdit_py_plugins.deflist import deflist_plugin
from myst_parser.mdit_to_docutils.base import default_slugify
from pybtex.database import parse_file

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = "book/notation.md"
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("book/*.md", "book/*.ipynb", "chapters/*.ipynb")
    for path in ROOT.glob(pattern)
)
CHAPTERS = [page for page in PAGES if page.startswith("chapters/")]
PAPERS = re.compile(r"https?://([\w.-]*\.)?(arxiv\.org|doi\.org|usenix\.org)/")
MARKDOWN = MarkdownIt("commonmark").enable("table").use(deflist_plugin)


def texts(page):
    """The Markdown of a page: the whole file, or each cell of a notebook."""
    path = ROOT / page
    if path.suffix == ".md":
        return [path.read_text("utf-8")]
    return [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown"]


def links(page_texts):
    """(the block it stands in, where it leads) of every link: `heading`, `th`, `td` or another block's name."""
    found = []
    for text in page_texts:
        block = None
        for token in MARKDOWN.parse(text):
            if token.type.endswith("_open"):
                block = token.type.removesuffix("_open")
            for child in token.children or []:
                if child.type == "link_open":
                    found.append((block, child.attrs["href"]))
    return found


def slugs(text):
    """The anchors of a glossary's terms, made as those of headings; "prefill, decode" has two."""
    tokens = MARKDOWN.parse(text)
    terms = [tokens[i + 1].content for i, token in enumerate(tokens) if token.type == "dt_open"]
    return [default_slugify(term) for line in terms for term in line.split(", ")]


LINKS = {page: links(texts(page)) for page in PAGES}
ENTRIES = parse_file(ROOT / "book/references.bib").entries
URLS = [entry.fields.get("url") for entry in ENTRIES.values()]
TERMS = slugs((ROOT / GLOSSARY).read_text("utf-8"))


def glossary_links(page):
    """(block, anchor) of the page's links into the glossary."""
    other = "notation.md#" if page.startswith("book/") else "../book/notation.md#"
    return [(block, target.removeprefix(other)) for block, target in LINKS[page] if target.startswith(other)]


def test_links_are_found_with_the_block_they_stand_in():
    text = "# A [b](c)\n\n- d [e](f)\n\n| g |\n|---|\n| [h](i) |\n"
    assert links([text, "[j](k) `[l](m)`"]) == [("heading", "c"), ("paragraph", "f"), ("td", "i"), ("paragraph", "k")]


def test_every_entry_has_an_address_of_its_own():
    assert None not in URLS, [key for key, entry in ENTRIES.items() if "url" not in entry.fields]
    assert len(set(URLS)) == len(URLS) >= 39


@pytest.mark.parametrize("key", ENTRIES)
def test_every_entry_is_linked_from_a_page(key):
    url = ENTRIES[key].fields["url"]
    assert any(url == target for page in PAGES for _, target in LINKS[page]), f"no page links to {url}"


@pytest.mark.parametrize("page", PAGES)
def test_every_paper_is_in_the_bibliography(page):
    papers = {target for _, target in LINKS[page] if PAPERS.match(target)}
    assert papers <= set(URLS)


def test_papers_are_told_from_other_links():
    for url in ("https://arxiv.org/abs/1", "http://www.arxiv.org/pdf/1", "https://doi.org/1"):
        assert PAPERS.match(url)
    assert not PAPERS.match("https://github.com/arxiv.org/")


def test_terms_have_anchors_of_their_own():
    assert slugs("# A\n\nKV cache, q8_0\n: One.\n\nn-gram draft\n: Two.\n") == ["kv-cache", "q8_0", "n-gram-draft"]
    assert len(set(TERMS)) == len(TERMS) > 50


@pytest.mark.parametrize("page", PAGES)
def test_links_to_terms_lead_to_one(page):
    assert {anchor for _, anchor in glossary_links(page)} <= set(TERMS)
    into_glossary = [target for _, target in LINKS[page] if "notation.md#" in target]
    assert len(into_glossary) == len(glossary_links(page)), f"not relative to {page}: {into_glossary}"


@pytest.mark.parametrize("page", CHAPTERS)
def test_a_section_links_a_few_terms_once_each_and_in_its_text(page):
    found = glossary_links(page)
    assert 2 <= len(found) <= 8
    assert max(Counter(anchor for _, anchor in found).values()) == 1
    assert {block for block, _ in found}.isdisjoint({"heading", "th", "td"})

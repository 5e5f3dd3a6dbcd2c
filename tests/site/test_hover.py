"""Links to terms and papers: what is said of them, and how it is shown."""

import pytest
from docutils import nodes
from pybtex.database import parse_string
from visits import DESKTOP, PHONE, visiting

from servelab.site.hover import MAX_LENGTH, address, definitions, paper

TERM_PAGE, TERM = "book/how-to-read.html", "a.sl-hover[href='notation.html#copy-on-write']"
PAPER_PAGE, PAPER = "chapters/8-3-1-paged-kv-cache.html", "a.sl-hover[href='https://arxiv.org/abs/2309.06180']"
SAYS = {
    TERM: "copy-on-write: Sequences share a block until one of them must write into it",
    PAPER: "Kwon et al. (2023): Efficient Memory Management for Large Language Model Serving with PagedAttention",
}


def glossary(*entries):
    """A definition list of (anchors, term, definition)."""
    items = [
        nodes.definition_list_item("", nodes.term("", term, ids=ids), nodes.definition("", nodes.paragraph("", text)))
        for ids, term, text in entries
    ]
    return nodes.definition_list("", *items)


def test_each_anchor_has_its_terms_definition():
    found = definitions(
        glossary((["prefill", "decode"], "prefill, decode", "Computing the\ninput."), (["slot"], "slot", "Room."))
    )
    assert found["prefill"] == found["decode"] == "prefill, decode: Computing the input."
    assert found["slot"] == "slot: Room."


def test_a_long_definition_is_cut():
    (text,) = definitions(glossary((["slot"], "slot", "Short. " + 60 * "word " + "end."))).values()
    assert text == "slot: Short."
    (text,) = definitions(glossary((["slot"], "slot", 60 * "words "))).values()
    assert len(text) <= MAX_LENGTH
    assert text.endswith("words…")


def entry(authors, title="A Title"):
    text = f"@misc{{key, title={{{title}}}, author={{{authors}}}, year={{2024}}, url={{https://arxiv.org/abs/1}}}}"
    return parse_string(text, "bibtex").entries["key"]


@pytest.mark.parametrize(
    ("authors", "names"),
    [
        ("Dao, Tri", "Dao"),
        ("Li, A and Wei, B", "Li and Wei"),
        ("Li, A and Wei, B and Xu, C", "Li et al."),
        ("Zhu, Kan and others", "Zhu et al."),
        ("{The ggml authors}", "The ggml authors"),
        ("R{\\'e}, Christopher", "Ré"),
        ("van der Berg, A", "van der Berg"),
    ],
)
def test_a_paper_is_named_by_its_authors_year_and_title(authors, names):
    assert paper(entry(authors)) == f"{names} (2024): A Title"


def test_a_papers_title_is_plain_text():
    assert paper(entry("Little, J", "Formula: $L = \\lambda W$")) == "Little (2024): Formula: L = λW"
    assert paper(entry("Little, J", "Better \\& {Faster}")) == "Little (2024): Better & Faster"


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("https://arxiv.org/pdf/2309.06180v2", True),
        ("http://arxiv.org/abs/2309.06180/", True),
        ("https://arxiv.org/abs/2309.0618", False),
        ("https://example.org/abs/2309.06180", False),
    ],
)
def test_links_to_the_same_paper_are_known(url, same):
    assert (address(url) == address("https://arxiv.org/abs/2309.06180")) == same


@pytest.mark.parametrize(("path", "link"), [(TERM_PAGE, TERM), (PAPER_PAGE, PAPER)], ids=["term", "paper"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_hover_and_focus_show_what_is_behind_a_link_and_escape_hides_it(
    browser, site_url, path, link, viewport, scheme
):
    with visiting(browser, site_url, path, viewport=viewport, color_scheme=scheme) as page:
        found, tip = page.locator(link).first, page.get_by_role("tooltip")
        found.scroll_into_view_if_needed()
        for show in (found.hover, found.focus):
            assert not tip.is_visible()
            show()
            assert tip.is_visible()
            assert tip.inner_text().startswith(SAYS[link])
            assert found.get_attribute("aria-describedby") == tip.get_attribute("id")
            box = tip.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= viewport["width"]
            page.keyboard.press("Escape")
            assert not tip.is_visible()
            assert found.get_attribute("aria-describedby") is None
            assert page.evaluate("document.activeElement.tagName") == ("BODY" if show == found.hover else "A")
            page.mouse.move(0, 0)


def test_the_pointer_may_move_onto_the_tooltip_and_leaving_both_hides_it(browser, site_url):
    with visiting(browser, site_url, TERM_PAGE) as page:
        tip = page.get_by_role("tooltip")
        page.locator(TERM).hover()
        tip.hover()
        page.wait_for_timeout(400)
        assert tip.is_visible()
        page.mouse.move(0, 0)
        tip.wait_for(state="hidden")


def test_without_javascript_the_browser_has_the_title(browser, site_url):
    with visiting(browser, site_url, TERM_PAGE, java_script_enabled=False) as page:
        assert page.locator(TERM).get_attribute("title").startswith(SAYS[TERM])

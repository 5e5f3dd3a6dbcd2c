"""Printed pages: light, whole figures no wider than the paper."""

import pytest
from visits import CHAPTER, visiting

PAPER = {"width": 680, "height": 980}  # what A4 leaves between usual margins, in CSS px

# The boxes that are wider than what they stand in, and drawings cut by their own box.
TOO_WIDE = """() => [...document.querySelectorAll('.sl-figure, .sl-figure .svg-container, .sl-figure .main-svg')]
    .map(box => [box.className.baseVal ?? box.className, Math.round(box.getBoundingClientRect().right)])
    .filter(([, right]) => right > document.documentElement.clientWidth)"""

# The lowest and rightmost words of a drawing lie in its box, once it has shrunk.
CUT = """() => [...document.querySelectorAll('.sl-plot')].flatMap(plot => {
    const box = plot.getBoundingClientRect();
    return [...plot.querySelectorAll('.main-svg text')].filter(text => {
        const own = text.getBoundingClientRect();
        return own.width && (own.right > box.right + 2 || own.bottom > box.bottom + 2);
    }).map(text => text.textContent);
})"""


@pytest.fixture(scope="module")
def printed(browser, site_url):
    """A chapter read at a desk, in the dark, moved, and laid out for paper as the browser does to print it."""
    with visiting(browser, site_url, f"{CHAPTER}#paging:block_size=8", color_scheme="dark") as page:
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")
        # Without a resize event, which printing has not either: Plotly must not draw again.
        page.evaluate("addEventListener('resize', event => event.stopImmediatePropagation(), true)")
        page.set_viewport_size(PAPER)
        yield page


def test_a_dark_page_prints_light(browser, site_url):
    with visiting(browser, site_url, CHAPTER, color_scheme="dark") as page:
        theme = "document.documentElement.dataset.theme"
        assert page.evaluate(theme) == "dark"
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate(theme) == "light"
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.evaluate(theme) == "dark"


def test_no_figure_is_wider_than_the_paper(printed):
    before = printed.locator("#paging .main-svg").first.get_attribute("width")
    assert int(before) > 680 * 0.9, "the page was not read at a desk"
    assert printed.evaluate(TOO_WIDE) == []
    assert printed.evaluate(CUT) == []


def test_controls_print_as_their_values(printed):
    figure = printed.locator("#paging")
    assert not figure.locator("button:visible, input:visible").count()
    assert figure.locator(".sl-control").first.inner_text() == "block size (tokens) 8"
    assert figure.locator(".sl-text").inner_text().startswith("Blocks of 8: 7 physical blocks")


def test_after_printing_the_figure_fills_the_page_again(browser, site_url):
    with visiting(browser, site_url, CHAPTER) as page:
        box = page.locator("#paging .svg-container")
        before = box.bounding_box()
        page.evaluate("dispatchEvent(new Event('beforeprint')); dispatchEvent(new Event('afterprint'))")
        page.set_viewport_size({"width": 500, "height": 900})
        page.wait_for_function(
            "() => { const svg = document.querySelector('#paging .main-svg');"
            " return svg.clientWidth === svg.closest('.sl-plot').clientWidth && !svg.hasAttribute('viewBox') }"
        )
        assert box.bounding_box()["width"] < before["width"]

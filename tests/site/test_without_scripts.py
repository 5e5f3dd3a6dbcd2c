"""Pages whose scripts do not run: each figure's start as a picture, its numbers, and what is missing."""

from contextlib import contextmanager

import pytest
import serve
from visits import CHAPTER, DESKTOP, visiting

# What a reader sees of the figures, once their pictures are there.
PICTURES = """async () => {
    const shown = [];
    for (const figure of document.querySelectorAll('.sl-figure')) {
        const picture = figure.querySelector('img.sl-frame');
        picture.scrollIntoView();
        await picture.decode();
        shown.push({
            wide: picture.naturalWidth, fits: picture.clientWidth <= figure.clientWidth && picture.clientWidth > 300,
            alt: picture.alt === figure.querySelector('.sl-plot').getAttribute('aria-label') && picture.alt !== '',
            gap: figure.querySelector('.sl-plot').clientHeight, says: figure.querySelector('.sl-missing').innerText,
        });
    }
    return shown;
}"""
ASLEEP = "This figure's script could not be loaded, or this browser is too old for it. Its numbers stand"
UNDRAWN = "The script that draws this figure could not be loaded. Its numbers stand in the table below."
OLD_BROWSER = {"body": "a ??= b ?? ;", "content_type": "text/javascript"}  # what one makes of a script of today


@contextmanager
def broken(browser, site_url, script, answer):
    """The chapter where requests for `script` get another answer."""
    with browser.new_context(viewport=DESKTOP) as context:
        context.route(f"**/{script}*", answer)
        page = context.new_page()
        page.goto(f"{site_url}/{CHAPTER}")
        yield page


def assert_pictures(page, says):
    pictures = page.evaluate(PICTURES)
    assert len(pictures) == 6
    for picture in pictures:
        assert picture.pop("says").startswith(says)
        assert picture == {"wide": 560, "fits": True, "alt": True, "gap": 0}


@pytest.mark.parametrize(
    ("script", "answer", "says"),
    [
        ("plotly-cartesian.min.js", lambda route: route.abort(), UNDRAWN),
        ("explore.js", lambda route: route.abort(), ASLEEP),
        ("explore.js", lambda route: route.fulfill(**OLD_BROWSER), ASLEEP),
    ],
    ids=["no plotly", "no explore", "old browser"],
)
def test_a_missing_script_is_named_under_the_picture(browser, site_url, script, answer, says):
    with broken(browser, site_url, script, answer) as page:
        assert_pictures(page, says)
        assert page.locator("#paging tbody tr").count() == 4 + 5


def test_without_javascript_picture_and_numbers_are_there(browser, site_url):
    with visiting(browser, site_url, CHAPTER, java_script_enabled=False) as page:
        assert_pictures(page, "This figure needs JavaScript")
        figure = page.locator("#paging")
        assert figure.locator(".sl-text").text_content().startswith("Blocks of 4: 13 physical blocks")
        assert figure.locator("tbody tr").count() == 4 + 5
        assert not page.locator(".sl-figure button:visible").count()


def test_without_plotly_controls_still_move_the_numbers(browser, site_url):
    with broken(browser, site_url, "plotly-cartesian.min.js", lambda route: route.abort()) as page:
        figure = page.locator("#paging")
        figure.locator("img.sl-frame").wait_for()
        figure.locator("input[data-axis=block_size]").press("ArrowLeft")
        figure.get_by_text("Blocks of 2: 23 physical blocks").wait_for()
        assert not figure.locator("img.sl-frame").is_visible(), "the picture shows another state than the sentence"
        figure.locator(".sl-reset").click()
        figure.locator("img.sl-frame").wait_for()


def test_pictures_are_small():
    sizes = [file.stat().st_size for file in (serve.build() / "_frames").glob("*.svg")]
    assert sum(sizes) <= 2_500_000
    assert max(sizes) <= 100_000

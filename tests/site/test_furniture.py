"""What stands around the text of every page: headings, landmarks, links to skip and to go on, search, copy, foot."""

import json
from pathlib import Path

import pytest
import serve
import visits
from bs4 import BeautifulSoup
from visits import CHAPTER, DESKTOP, PHONE, visiting

from servelab import __version__
from servelab.site.footer import executed_line

ROOT = Path(__file__).resolve().parents[2]
NO_CHAPTERS = {"genindex.html", "search.html"}


@pytest.fixture(scope="module")
def pages():
    """{path: parsed page} of all built pages; the site's index.html only sends on to the first."""
    names = [name for name in visits.pages() if name != "index.html"]
    return {name: BeautifulSoup((serve.SITE / name).read_bytes(), "html.parser") for name in names}


def test_every_page_has_one_heading_of_the_first_level(pages):
    assert {path for path, page in pages.items() if len(page.find_all("h1")) != 1} == set()


def test_every_page_has_a_main_part_and_begins_with_a_link_to_it(pages):
    for path, page in pages.items():
        (main,) = page.find_all("main")
        assert main["tabindex"] == "-1", f"{path}: the skip link could not move the focus"
        assert page.body.find("a")["href"] == f"#{main['id']}", path


def test_every_navigation_has_a_name_of_its_own(pages):
    for path, page in pages.items():
        names = [navigation.get("aria-label") for navigation in page.select("nav, [role=navigation]")]
        assert all(names), f"{path}: a navigation has no name"
        assert len(set(names)) == len(names), f"{path}: {names}"
        assert "Main" in names, path


def test_every_chapter_links_to_the_one_before_and_after(pages):
    chapters = {path: page for path, page in pages.items() if path not in NO_CHAPTERS}
    assert len(chapters) > 50
    ends = {path for path, page in chapters.items() if len(page.select(".prev-next-area a")) != 2}
    assert ends == {"book/index.html", "book/bibliography.html"}


def test_every_page_ends_with_title_and_version(pages):
    for path, page in pages.items():
        (footer,) = page.select("footer.bd-footer")
        assert footer.find_parent("main") is None, f"{path}: inside of main a footer is no landmark"
        assert f"Tokens per Second, servelab {__version__}" in footer.get_text(), path


def test_pages_of_notebooks_say_with_what_they_were_executed(pages):
    for path, page in pages.items():
        notebook = ROOT / Path(path).with_suffix(".ipynb")
        shown = [line.get_text() for line in page.select(".sl-executed")]
        if notebook.exists():
            assert shown == [executed_line(json.loads(notebook.read_text("utf-8"))["metadata"]["servelab"])], path
        else:
            assert shown == [], path


def test_what_a_notebook_was_executed_with_is_one_sentence():
    packages = {"numpy": "2.4.6", "torch": "2.13.0", "numba": "0.68.1", "plotly": "7.1.0", "servelab": "0.1.0"}
    assert executed_line({"executed": "2026-12-01", "python": "3.11", "packages": packages}) == (
        "Executed on 2026-12-01 with Python 3.11, NumPy 2.4.6, PyTorch 2.13.0, Numba 0.68.1, Plotly 7.1.0; "
        "servelab 0.1.0."
    )


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_skip_link_comes_first_is_seen_and_moves_the_focus(browser, site_url, viewport):
    with visiting(browser, site_url, CHAPTER, viewport=viewport) as page:
        page.keyboard.press("Tab")
        link = page.locator("#pst-skip-link a")
        assert link.evaluate("link => link === document.activeElement")
        page.wait_for_function("document.activeElement.getBoundingClientRect().top >= 0")
        assert link.bounding_box()["height"] > 10
        page.keyboard.press("Enter")
        page.wait_for_function("document.activeElement.id === 'main-content'")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('main') !== null")


def test_search_finds_a_term_without_a_foreign_request(browser, site_url):
    with visiting(browser, site_url, "book/index.html") as page:
        page.keyboard.press("Control+k")
        page.locator(".search-button__search-container input").press_sequentially("copy-on-write")
        page.keyboard.press("Enter")
        first = page.locator("#search-results ul.search > li").first
        first.locator(".context").wait_for()
        assert first.locator("a").inner_text() == "8.3.2 Sharing, copy-on-write, release"
        assert first.locator(".context").inner_text().startswith("8.3.2 Sharing, copy-on-write, release You will")


def test_code_has_a_button_that_copies_it(browser, site_url):
    with visiting(browser, site_url, CHAPTER, permissions=["clipboard-read", "clipboard-write"]) as page:
        cell = page.locator(".cell_input").first
        cell.hover()
        cell.locator("button.copybtn").click()
        page.wait_for_function("navigator.clipboard.readText().then(text => text.length > 0)")
        assert page.evaluate("navigator.clipboard.readText()").strip() == cell.locator("pre").inner_text().strip()
        with_button = page.locator(".cell_input .highlight:has(button.copybtn)").count()
        assert with_button == page.locator(".cell_input .highlight").count()

"""The lab in the browser: an exercise answered and an explorer moved, in Python for WebAssembly, nothing foreign."""

import json
import re

import pytest
import serve
from notebook_ui import move_slider_and_see_the_figure_change
from visits import DESKTOP, block_foreign_requests

from servelab.site.lab import lab_notebooks

SECONDS_TO_START = 180  # 15 on a machine at rest
BYTES_AT_MOST = 45_000_000  # every page says about 40 MB

WRONG = """def read_per_token(batch, context, weight_bytes, token_bytes):
    return weight_bytes / batch + context * token_bytes / batch"""
RIGHT = """def read_per_token(batch, context, weight_bytes, token_bytes):
    return weight_bytes / batch + context * token_bytes"""


@pytest.fixture
def visitor(browser, site_url):
    """A page with a fresh profile; on leaving, asserts that it asked no other host and how much it downloaded."""
    sizes = {}  # the page's service worker answers some requests again: a size each address
    with browser.new_context(viewport=DESKTOP) as context:
        foreign = block_foreign_requests(context, site_url)
        context.on(
            "response",
            lambda response: sizes.update({response.url: int(response.headers.get("content-length", 0))}),
        )
        page = context.new_page()
        page.set_default_timeout(SECONDS_TO_START * 1000)
        yield page
    assert not foreign
    assert 0 < sum(sizes.values()) <= BYTES_AT_MOST


def open_in_lab(page, site_url, path):
    """By the link that the page has for it; returns when Python runs: JupyterLab drops what is run before."""
    page.goto(f"{site_url}/{path}")
    page.get_by_role("link", name="Run in your browser").click()
    page.locator(".jp-KernelStatus-success").wait_for()


def run_cell(page, text, replacement=None):
    """Run the code cell that holds text, with other code in it if there is a replacement."""
    editor = page.locator(".jp-CodeCell .cm-content", has_text=text).first
    editor.click()
    if replacement is not None:
        page.keyboard.press("ControlOrMeta+a")
        page.keyboard.insert_text(replacement)
    page.keyboard.press("Shift+Enter")


def wait_for_verdict(page, part, says):
    output = page.locator(".jp-CodeCell", has_text=f'check("{part}"').locator(".jp-OutputArea-output")
    output.filter(has_text=re.compile(says)).first.wait_for()


def test_an_exercise_answered_wrong_then_right(visitor, site_url):
    open_in_lab(visitor, site_url, "exercises/8-1.html")
    run_cell(visitor, "from servelab.check import check")
    for answer, says in ((WRONG, "Do other requests use this request's KV"), (RIGHT, r"8-1a: right\.")):
        run_cell(visitor, "def read_per_token", answer)
        run_cell(visitor, 'check("8-1a"')
        wait_for_verdict(visitor, "8-1a", says)


def test_an_explorer_moves_and_a_missing_package_is_named(visitor, site_url):
    open_in_lab(visitor, site_url, "chapters/8-3-1-paged-kv-cache.html")
    run_cell(visitor, "lengths, max_length")
    run_cell(visitor, "paging.paging_explorer")
    move_slider_and_see_the_figure_change(visitor)
    run_cell(visitor, "lengths, max_length", "import numba")
    visitor.locator(".jp-OutputArea-output", has_text="runs in the browser, without numba").first.wait_for()


def test_each_notebook_of_the_lab_is_linked_from_its_page_and_from_no_other():
    site = serve.build()
    linked = {}
    for page in site.rglob("*.html"):
        found = re.search(r'href="([./]*)lite/notebooks/index\.html\?path=([^"]+)"', page.read_text("utf-8"))
        if found and "lite" not in page.relative_to(site).parts:
            assert (page.parent / found[1]).resolve() == site
            linked[found[2]] = page.relative_to(site).with_suffix(".ipynb").as_posix()
    assert linked == {path.as_posix(): path.as_posix() for path in lab_notebooks(serve.ROOT)}
    for path in linked:
        json.loads((site / "lite" / "files" / path).read_text("utf-8"))

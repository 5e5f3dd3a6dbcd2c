"""A real browser and the real site, each once a test process."""

import sys
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import serve
from browser import NONE_FOUND, find_browser

FLAGS = (
    "--no-sandbox",  # containers and CI have none
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",  # what the browser itself asks for must not count as a request of a page
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser():
    """Headless Chrome or Chromium with a fresh profile."""
    try:
        path = find_browser()
    except FileNotFoundError as error:
        pytest.fail(str(error), pytrace=False)
    if path is None:
        pytest.fail(NONE_FOUND, pytrace=False)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def site_url():
    """Base URL of the built site. A lock in `build` keeps two test processes from building twice."""
    with serve.serving(serve.build()) as url:
        yield url

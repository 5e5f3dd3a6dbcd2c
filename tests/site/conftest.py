"""A real browser and the real site, each once a test process."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import serve
from browser import NONE_FOUND, find_browser, launched


@pytest.fixture(scope="session")
def site_url():
    """Base URL of the built site. A lock in `build` keeps two test processes from building twice."""
    with serve.serving(serve.build()) as url:
        yield url


@pytest.fixture(scope="session")
def browser(site_url):
    """Headless Chrome or Chromium with a fresh profile. The site first: its build starts a browser of its own."""
    try:
        path = find_browser()
    except FileNotFoundError as error:
        pytest.fail(str(error), pytrace=False)
    if path is None:
        pytest.fail(NONE_FOUND, pytrace=False)
    with launched(path) as browser:
        yield browser

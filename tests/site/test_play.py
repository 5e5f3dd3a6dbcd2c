"""Explorers that are played step by step."""

import pytest
from visits import visiting

PAGE = "chapters/8-5-1-verification.html"
FIRST, START, LAST = 0, 3, 4  # of the five steps


@pytest.fixture(scope="module")
def visited(browser, site_url):
    """The page, with a clock that only the tests move."""
    with visiting(browser, site_url, PAGE) as page:
        page.clock.install()
        page.reload()
        yield page


@pytest.fixture
def opened(visited):
    visited.locator("#verify .sl-reset").click()
    return visited


def step(page):
    return int(page.locator("#verify-step").input_value())


def shown(page, drawn):
    page.clock.run_for(50)  # a frame
    page.wait_for_function(f"document.querySelector('#verify').dataset.drawn === '{drawn}'")


def test_it_plays_to_the_end_and_starts_over(opened):
    button = opened.locator("#verify .sl-play")
    assert button.inner_text() == "Play"
    button.press("Enter")  # the start is the step before the last
    assert step(opened) == LAST
    shown(opened, f"0,{LAST}")
    opened.clock.run_for(1300)
    assert (step(opened), button.inner_text()) == (LAST, "Play")
    button.press("Space")
    assert (step(opened), button.inner_text()) == (FIRST, "Pause")
    shown(opened, f"0,{FIRST}")
    for following in range(FIRST + 1, LAST + 1):
        opened.clock.run_for(1200)
        assert step(opened) == following
    assert button.inner_text() == "Play"
    opened.clock.run_for(3000)
    assert step(opened) == LAST
    assert opened.url.endswith("#verify:draft=a%20b%20c%20d;step=rollback")


@pytest.mark.parametrize(
    "touch",
    [
        lambda figure: figure.locator(".sl-play").click(),
        lambda figure: figure.locator("#verify-step").press("ArrowRight"),
        lambda figure: figure.locator("#verify-draft").press("ArrowDown"),
        lambda figure: figure.locator("#verify-step").click(),
    ],
    ids=["pause", "key", "menu", "pointer"],
)
def test_it_stops_when_a_control_is_touched(opened, touch):
    figure = opened.locator("#verify")
    figure.locator("#verify-step").press("End")
    figure.locator(".sl-play").click()
    opened.clock.run_for(1300)
    assert step(opened) == FIRST + 1
    touch(figure)
    assert figure.locator(".sl-play").inner_text() == "Play"
    here = step(opened)
    opened.clock.run_for(3000)
    assert step(opened) == here


def test_with_reduced_motion_nothing_moves_by_itself(browser, site_url):
    with visiting(browser, site_url, PAGE, reduced_motion="reduce") as page:
        page.clock.install()
        page.reload()
        button = page.locator("#verify .sl-play")
        assert button.inner_text() == "Next step"
        for following in (LAST, FIRST, FIRST + 1):
            button.click()
            page.clock.run_for(3000)
            assert step(page) == following


def test_only_steps_in_time_are_played(browser, site_url):
    with visiting(browser, site_url, "chapters/8-3-2-sharing-and-release.html") as page:
        assert page.locator("#sharing .sl-play").count() == 1
        assert page.locator("#branches .sl-play").count() == 0

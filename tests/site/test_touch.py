"""Figures under a finger, on a phone."""

import pytest
from visits import CHAPTER, PHONE, visiting

TOUCH = {"viewport": PHONE, "has_touch": True, "is_mobile": True}


@pytest.fixture(scope="module")
def phone(browser, site_url):
    with visiting(browser, site_url, CHAPTER, **TOUCH) as page:
        yield page


def test_a_tap_moves_the_slider(phone):
    slider = phone.locator("#paging input[data-axis=block_size]")
    phone.locator("#paging .sl-reset").tap()
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    slider.tap(position={"x": box["width"] - 8, "y": box["height"] / 2})
    phone.wait_for_function("document.querySelector('#paging').dataset.drawn === '4,0,0'")
    assert phone.locator("#paging .sl-text").text_content().startswith("Blocks of 16: 4 physical blocks")


def test_a_menu_takes_a_tap_and_a_choice(phone):
    menu = phone.locator("#paging select")
    phone.locator("#paging .sl-reset").tap()
    menu.tap()
    assert menu.evaluate("menu => menu === document.activeElement")
    menu.select_option("1, 1, 1, 1")
    phone.wait_for_function("document.querySelector('#paging').dataset.drawn === '2,3,0'")


def test_a_finger_on_a_figure_scrolls_the_page(phone):
    plot = phone.locator("#paging .sl-plot")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    before = phone.evaluate("scrollY")
    x, y = box["x"] + box["width"] / 2, min(box["y"] + box["height"], PHONE["height"]) - 100
    finger = phone.context.new_cdp_session(phone)
    for kind, moved in [("touchStart", 0), *(("touchMove", 25 * i) for i in range(1, 11)), ("touchEnd", None)]:
        points = [] if moved is None else [{"x": x, "y": y - moved}]
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    phone.wait_for_function("before => scrollY > before + 150", arg=before)


def test_the_longest_values_stand_whole_beside_their_sliders(browser, site_url):
    for path in ("chapters/8-3-3-prefix-reuse.html", "chapters/8-5-1-verification.html"):
        with visiting(browser, site_url, path, **TOUCH) as page:
            cut = page.evaluate(
                """() => [...document.querySelectorAll('.sl-figure')].flatMap(figure => {
                    const content = JSON.parse(figure.querySelector('.sl-data').textContent), page = innerWidth;
                    return content.axes.flatMap(axis => axis.control !== 'slider' ? [] : axis.options.filter(option => {
                        const output = figure.querySelector(`[data-axis="${axis.name}"] + output`);
                        output.textContent = option;
                        const text = document.createRange();
                        text.selectNodeContents(output);
                        const own = output.getBoundingClientRect(), words = text.getBoundingClientRect();
                        return words.right > own.right + 1 || own.right > page || text.getClientRects().length > 1;
                    }));
                })"""
            )
            assert cut == []

"""What a move of a control leaves alone until the hand rests, and what it must not cut."""

import pytest
from visits import CHAPTER, PHONE, visiting

GOODPUT = "chapters/8-6-2-goodput.html"
GOODPUT_LEFT = "document.querySelector('#goodput .sl-plot')._fullLayout._size.l"  # its margin, in px

# Drags a slider to and fro; how often the address was written while it moved.
DRAG = """async (slider, inputs) => {
    const write = history.replaceState;
    let written = 0;
    history.replaceState = (...address) => { written++; return write.apply(history, address); };
    for (let i = 0; i < inputs; i++) {
        slider.value = i % (Number(slider.max) + 1);
        slider.dispatchEvent(new Event('input', {bubbles: true}));
        await new Promise(requestAnimationFrame);
    }
    return written;
}"""

# What the axes of a figure say, and which of it the edge of the drawing cuts.
WORDS = """plot => {
    const whole = plot.querySelector('.main-svg').getBoundingClientRect();
    const words = [...plot.querySelectorAll('.xtick text, .ytick text, .xtitle, .ytitle')];
    const cut = words.filter(word => {
        const own = word.getBoundingClientRect();
        return own.left < whole.left - 1 || own.right > whole.right + 1 || own.bottom > whole.bottom + 1;
    });
    return {all: words.length, cut: cut.map(word => word.textContent)};
}"""


# How many headings the figures of a page have, and which of them the edge of the drawing cuts.
HEADINGS = """() => {
    const headings = [...document.querySelectorAll('.sl-plot .annotation-text')];
    const cut = headings.filter(heading => {
        const whole = heading.closest('.main-svg').getBoundingClientRect(), own = heading.getBoundingClientRect();
        return own.left < whole.left - 1 || own.right > whole.right + 1 || own.top < whole.top - 1;
    });
    return [headings.length, cut.map(heading => heading.textContent)];
}"""


def test_a_drag_writes_the_address_once_the_hand_rests(browser, site_url):
    """Safari throws at the 101st change within 10 seconds: what stands behind it would not be drawn."""
    with visiting(browser, site_url, CHAPTER) as page:
        slider = page.locator("#paging input[data-axis=block_size]")
        assert slider.evaluate(DRAG, 120) < 5
        label = page.locator("#paging output").first.text_content()
        page.wait_for_function("label => location.hash.startsWith(`#paging:block_size=${label};`)", arg=label)


def move_a_step(page):
    """The deadline of 8.6.2; returns what its figure says then."""
    page.evaluate("delete document.querySelector('#goodput').dataset.drawn")
    page.locator("#goodput-deadline").press("ArrowRight")
    page.wait_for_function("document.querySelector('#goodput').dataset.drawn")
    return page.locator("#goodput .sl-plot").evaluate(WORDS)


def test_margins_stay_while_a_slider_moves_unless_a_label_would_be_cut(browser, site_url):
    with visiting(browser, site_url, GOODPUT) as page:
        fitting = page.evaluate(GOODPUT_LEFT)
        page.evaluate(f"{GOODPUT_LEFT} += 30")
        move_a_step(page)
        assert page.evaluate(GOODPUT_LEFT) == fitting + 30
        page.evaluate(f"{GOODPUT_LEFT} = 5")
        move_a_step(page)
        page.wait_for_function(f"Math.abs({GOODPUT_LEFT} - {fitting}) < 10")  # once the hand rests
        words = page.locator("#goodput .sl-plot").evaluate(WORDS)
        assert words["all"] > 8
        assert words["cut"] == []


@pytest.mark.parametrize(
    "path", ["chapters/8-2-3-chunked-prefill.html", "chapters/8-5-2-cost-of-a-round.html", GOODPUT]
)
def test_headings_are_whole_on_the_smallest_phone(browser, site_url, path):
    with visiting(browser, site_url, path, viewport={"width": 320, "height": 640}) as page:
        headings, cut = page.evaluate(HEADINGS)
        assert headings >= 3
        assert cut == []


def test_a_moved_figure_follows_the_window(browser, site_url):
    with visiting(browser, site_url, GOODPUT) as page:
        move_a_step(page)
        page.set_viewport_size(PHONE)
        page.wait_for_function("document.querySelector('#goodput .main-svg').getBoundingClientRect().width < 390")
        words = page.locator("#goodput .sl-plot").evaluate(WORDS)
        assert words["all"] > 8
        assert words["cut"] == []

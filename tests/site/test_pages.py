"""The built website in a real browser, with every request to another host blocked and recorded."""

import pytest
import serve
from axe_playwright_python.sync_playwright import Axe
from visits import AT_REST, CHAPTER, DRAWN, PHONE, go_to, pages, visiting

SERIOUS = ("serious", "critical")


def axe_faults(page, exclude=(), **options):
    # preload would ask for style sheets again, by wrong addresses; what is in order need not be listed.
    options = {"preload": False, "resultTypes": ["violations"], **options}
    faults = Axe().run(page, context={"exclude": list(exclude)} if exclude else None, options=options).response
    return [
        f"{fault['id']}: {node['html'][:200]}"
        for fault in faults["violations"]
        if fault["impact"] in SERIOUS
        for node in fault["nodes"]
    ]


def turn_dark(page):
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"document.documentElement.dataset.theme === 'dark' && {DRAWN} && {AT_REST}")


def sideways_px(page):
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


CONTRAST = "color-contrast"  # takes longer than all other rules together
CODE = ".highlight"  # its colours are the same on all pages: a test of their own


def test_every_page_on_a_desk(browser, site_url):
    """Nothing foreign, no error; math, figures drawn, no sideways scroll, no serious fault for axe, light or dark."""
    paths = pages()
    with visiting(browser, site_url, paths[0], color_scheme="light") as page:
        for path in paths:
            page.emulate_media(color_scheme="light")
            go_to(page, f"{site_url}/{path}")
            assert sideways_px(page) <= 0, path
            assert axe_faults(page, [CODE]) == [], path
            turn_dark(page)
            # The other rules look at no colour.
            assert axe_faults(page, [CODE], runOnly=[CONTRAST]) == [], f"{path} in the dark"


def test_every_page_on_a_phone(browser, site_url):
    """The same but for colours, which do not change with the width."""
    paths = pages()
    with visiting(browser, site_url, paths[0], viewport=PHONE, color_scheme="light") as page:
        for path in paths:
            go_to(page, f"{site_url}/{path}")
            assert sideways_px(page) <= 0, path
            assert axe_faults(page, rules={CONTRAST: {"enabled": False}}) == [], path


def test_code_can_be_read(browser, site_url):
    with visiting(browser, site_url, CHAPTER, color_scheme="light") as page:
        assert page.locator(CODE).count() > 10
        assert axe_faults(page) == []
        turn_dark(page)
        assert axe_faults(page, runOnly=[CONTRAST]) == []


def test_no_page_is_heavy():
    """Beyond the scripts that all pages share."""
    sizes = {path: (serve.SITE / path).stat().st_size for path in pages()}
    assert {path: size for path, size in sizes.items() if size > 350_000} == {}


def test_arrow_keys_move_sentence_figure_table_and_address(browser, site_url):
    with visiting(browser, site_url, CHAPTER) as page:
        figure = page.locator("#paging")
        text = figure.locator(".sl-text")
        figure.locator("input[data-axis=block_size]").press("ArrowRight")
        page.wait_for_function("document.querySelector('#paging').dataset.drawn === '3,0,0'")
        assert text.text_content().startswith("Blocks of 8: 7 physical blocks give 56 slots, 14 of them unused")
        page.wait_for_function("location.hash.includes('block_size=8')")  # once the hand rests
        assert figure.locator("output").first.text_content() == "8"
        figure.locator(".sl-reset").press("Enter")
        page.wait_for_function("document.querySelector('#paging').dataset.drawn === '2,0,0'")
        assert text.text_content().startswith("Blocks of 4: 13 physical blocks")
        assert "#" not in page.url


@pytest.mark.parametrize(
    ("fragment", "says"),
    [
        ("paging:block_size=16;common_prefix=8", "fill no whole block"),
        ("paging:block_size=3", "The link names a setting that this figure does not have"),
        ("paging:nothing=%E0%A4%A", "The link names a setting that this figure does not have"),
        ("paging:", "Blocks of 4: 13"),
        ("paging:block_size=8;", "Blocks of 8: 7"),
        ("why-not-one-piece-a-request", "Blocks of 4: 13"),
    ],
)
def test_a_link_opens_its_setting(browser, site_url, fragment, says):
    with visiting(browser, site_url, f"{CHAPTER}#{fragment}") as page:
        assert says in page.locator("#paging .sl-text").text_content()


def test_figures_follow_the_theme(browser, site_url):
    with visiting(browser, site_url, CHAPTER, color_scheme="light") as page:
        tick = page.locator("#paging .xtick text").first
        color = "element => getComputedStyle(element).fill"
        light = tick.evaluate(color)
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        page.wait_for_function(
            "light => getComputedStyle(document.querySelector('#paging .xtick text')).fill !== light", arg=light
        )


def test_a_partial_link_means_the_start_for_the_rest(browser, site_url):
    with visiting(browser, site_url, f"{CHAPTER}#paging:block_size=16") as page:
        page.evaluate("location.hash = 'paging:common_prefix=8'")
        page.wait_for_function("document.querySelector('#paging').dataset.drawn === '2,0,4'")

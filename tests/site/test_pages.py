"""The built website in a real browser, with every request to another host blocked and recorded."""

import itertools
import json
import re
import statistics
from contextlib import contextmanager
from urllib.parse import quote

import pytest
import serve
from axe_playwright_python.sync_playwright import Axe

from servelab.states import state_at

CHAPTER = "chapters/8-3-1-paged-kv-cache.html"
EXPLORERS = {  # name: page
    "life": "chapters/8-1-1-life-of-a-request.html",
    "memory": "chapters/8-1-2-memory.html",
    "goals": "chapters/8-1-3-metrics-and-slo.html",
    "reads": "chapters/8-2-1-batching.html",
    "policy": "chapters/8-2-2-continuous-batching.html",
    "paging": CHAPTER,
    "sharing": "chapters/8-3-2-sharing-and-release.html",
    "branches": "chapters/8-3-2-sharing-and-release.html",
    "fit": "chapters/8-4-1-weight-formats.html",
    "formats": "chapters/8-4-2-kv-cache-formats.html",
    "fits": "chapters/8-4-2-kv-cache-formats.html",
    "offload": "chapters/8-4-3-offload.html",
    "verify": "chapters/8-5-1-verification.html",
    "paths": "chapters/8-5-1-verification.html",
    "draws": "chapters/8-5-1-verification.html",
    "queue": "chapters/8-6-1-arrivals.html",
    "goodput": "chapters/8-6-2-goodput.html",
    "plan": "chapters/8-6-3-planning.html",
    "recorded": "book/predicted-and-measured.html",
    "shipped": "book/predicted-and-measured.html",
}
REDRAW_P95_MS = 300  # generous: what is measured stands in the test report
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
SERIOUS = ("serious", "critical")

DRAWN = "[...document.querySelectorAll('.sl-figure')].every(figure => figure.dataset.drawn)"
MATH_DRAWN = "[...document.querySelectorAll('.math')].every(math => math.querySelector('mjx-container'))"

# Steps through all positions of a control; milliseconds from each input to the frame after the redraw.
REDRAW_TIMES = """async control => {
    const figure = control.closest('.sl-figure'), times = [];
    const positions = control.tagName === 'SELECT' ? control.options.length : Number(control.max) + 1;
    for (let i = 0; i < 2 * positions; i++) {
        const before = performance.now();
        delete figure.dataset.drawn;
        control.value = i % positions;
        control.dispatchEvent(new Event('input', {bubbles: true}));
        while (!figure.dataset.drawn) await new Promise(requestAnimationFrame);
        await new Promise(requestAnimationFrame);
        times.push(performance.now() - before);
    }
    return times;
}"""

FOCUSED = """() => {
    const element = document.activeElement, style = getComputedStyle(element);
    const outlined = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
    return element === document.body ? null : {
        outlined: outlined || style.boxShadow !== 'none',
        mark: element.dataset.tabMark ?? null,
    };
}"""


def pages():
    """Paths of all built pages, as the browser asks for them."""
    site = serve.build()
    built = [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]
    return [path.relative_to(site).as_posix() for path in built]


@contextmanager
def visiting(browser, site_url, path, **context):
    """A page with nothing foreign: on leaving, asserts that it asked no other host and logged no error."""
    foreign, errors = [], []
    with browser.new_context(viewport=context.pop("viewport", DESKTOP), **context) as opened:

        def guard(route):
            url = route.request.url
            if url.startswith((site_url + "/", "data:", "blob:")):
                route.continue_()
            else:
                foreign.append(url)
                route.abort()

        opened.route("**/*", guard)
        page = opened.new_page()
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on(
            "response", lambda response: errors.append(f"{response.status} {response.url}") if not response.ok else None
        )
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{site_url}/{path}")
        if context.get("java_script_enabled", True):
            page.wait_for_function(f"document.readyState === 'complete' && {DRAWN} && {MATH_DRAWN}")
        yield page
        assert not foreign, f"{path} asked other hosts: {foreign}"
        assert not errors, f"{path} logged errors: {errors}"


def overflow(page):
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def axe_faults(page):
    # preload would ask for style sheets again, by wrong addresses.
    faults = Axe().run(page, options={"preload": False}).response["violations"]
    return [
        f"{fault['id']}: {node['html'][:200]}"
        for fault in faults
        if fault["impact"] in SERIOUS
        for node in fault["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_every_page(browser, site_url, viewport, scheme):
    """Nothing foreign, no error, math and figures drawn, no sideways scroll, no serious fault for axe."""
    for path in pages():
        with visiting(browser, site_url, path, viewport=viewport, color_scheme=scheme) as page:
            assert overflow(page) <= 0, f"{path} scrolls sideways by {overflow(page)} px"
            assert axe_faults(page) == [], path


def test_the_tests_know_every_explorer():
    pages_with = {path for path in pages() if "sl-controls" in (serve.SITE / path).read_text(encoding="utf-8")}
    assert pages_with == set(EXPLORERS.values())


@pytest.mark.parametrize("name", EXPLORERS)
def test_explorers_redraw_in_time(browser, site_url, name, record_property):
    with visiting(browser, site_url, EXPLORERS[name]) as page:
        controls = page.locator(f"#{name} :is(.sl-control input, .sl-control select)").all()
        assert controls
        # Other tests run beside this one; a slow spell of theirs is no fault of the page.
        for attempt in range(1, 4):
            times = [time for control in controls for time in control.evaluate(REDRAW_TIMES)]
            p50, p95 = statistics.median(times), statistics.quantiles(times, n=20)[-1]
            record_property(
                f"redraw of {name}, try {attempt}", f"p50 {p50:.0f} ms, p95 {p95:.0f} ms of {len(times)} inputs"
            )
            if p95 <= REDRAW_P95_MS:
                return
    pytest.fail(f"p95 from input to redraw is {p95:.0f} ms in the last of three tries; at most {REDRAW_P95_MS}")


def words(markup):
    """Text as Plotly draws it: tags gone, each line by itself and joined without a break."""
    return re.sub(r"<[^>]*>", "", markup)


@pytest.mark.parametrize("name", EXPLORERS)
def test_every_state_is_what_python_computed(browser, site_url, name):
    with visiting(browser, site_url, EXPLORERS[name]) as page:
        figure = page.locator(f"#{name}")
        content = json.loads(figure.locator(".sl-data").text_content())
        for indices in itertools.product(*(range(len(axis["options"])) for axis in content["axes"])):
            settings = (
                f"{axis['name']}={quote(axis['options'][i])}" for axis, i in zip(content["axes"], indices, strict=True)
            )
            page.evaluate("hash => { location.hash = hash }", f"{name}:{';'.join(settings)}")
            drawn = ",".join(map(str, indices))
            page.wait_for_function(f"d => document.querySelector('#{name}').dataset.drawn === d", arg=drawn)
            state = state_at(content, list(indices))
            shown = figure.evaluate(
                """figure => ({
                    text: figure.querySelector('.sl-text').textContent,
                    alt: figure.querySelector('.sl-plot').getAttribute('aria-label'),
                    tables: [...figure.querySelectorAll('tbody')].map(
                        body => [...body.rows].map(row => [...row.cells].map(cell => cell.textContent))),
                    labels: [...figure.querySelectorAll('.annotation-text')].map(text => text.textContent),
                    bars: figure.querySelector('.sl-plot').data.map(trace => trace.x),
                })"""
            )
            meta = state["figure"]["layout"]["meta"]
            assert shown == {
                "text": state["text"],
                "alt": meta["alt"],
                "tables": [[[str(cell) for cell in row] for row in table["rows"]] for table in meta["tables"]],
                "labels": [words(annotation["text"]) for annotation in state["figure"]["layout"]["annotations"]],
                "bars": [trace["x"] for trace in state["figure"]["data"]],
            }


@pytest.mark.parametrize("path", EXPLORERS.values())
def test_every_control_is_reached_by_keyboard(browser, site_url, path):
    with visiting(browser, site_url, path) as page:
        wanted = page.evaluate(
            """() => {
                const all = document.querySelectorAll('.sl-figure :is(input, select, button, summary)');
                all.forEach((element, i) => { element.dataset.tabMark = i });
                return all.length;
            }"""
        )
        reached = {}
        for _ in range(400):
            page.keyboard.press("Tab")
            focused = page.evaluate(FOCUSED)
            if focused is None:
                break
            if focused["mark"] is not None:
                reached[int(focused["mark"])] = focused["outlined"]
        assert sorted(reached) == list(range(wanted))
        assert all(reached.values()), "a control in focus has no visible outline"


def test_arrow_keys_move_sentence_figure_table_and_address(browser, site_url):
    with visiting(browser, site_url, CHAPTER) as page:
        figure = page.locator("#paging")
        text = figure.locator(".sl-text")
        figure.locator("input[data-axis=block_size]").press("ArrowRight")
        page.wait_for_function("document.querySelector('#paging').dataset.drawn === '3,0,0'")
        assert text.text_content().startswith("Blocks of 8: 7 physical blocks give 56 slots, 14 of them unused")
        assert "block_size=8" in page.url
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


def test_a_dark_page_prints_light(browser, site_url):
    with visiting(browser, site_url, CHAPTER, color_scheme="dark") as page:
        theme = "document.documentElement.dataset.theme"
        assert page.evaluate(theme) == "dark"
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate(theme) == "light"
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.evaluate(theme) == "dark"


def test_without_javascript_the_numbers_are_there(browser, site_url):
    with visiting(browser, site_url, CHAPTER, java_script_enabled=False) as page:
        figure = page.locator("#paging")
        assert figure.locator(".sl-text").text_content().startswith("Blocks of 4: 13 physical blocks")
        assert "needs JavaScript" in figure.locator(".sl-plot").inner_text()
        assert figure.locator("tbody tr").count() == 4 + 5


def test_without_plotly_the_page_says_so(browser, site_url):
    with browser.new_context(viewport=DESKTOP) as context:
        context.route("**/plotly*", lambda route: route.abort())
        page = context.new_page()
        page.goto(f"{site_url}/{CHAPTER}")
        plot = page.locator("#paging .sl-plot")
        page.wait_for_function("document.querySelector('#paging .sl-plot').innerText.includes('could not be loaded')")
        page.locator("#paging input[data-axis=block_size]").press("ArrowLeft")
        assert page.locator("#paging .sl-text").text_content().startswith("Blocks of 2: 23 physical blocks")
        assert "could not be loaded" in plot.inner_text()

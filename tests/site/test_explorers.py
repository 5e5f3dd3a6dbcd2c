"""Every explorer of the site: each of its states, its redraw times, its controls."""

import itertools
import json
import random
import re
import statistics
from pathlib import Path
from urllib.parse import quote

import nbformat
import pytest
import serve
from visits import visiting

from servelab.explore import MIME_TYPE
from servelab.states import state_at

ROOT = Path(__file__).resolve().parents[2]
REDRAW_P95_MS = 300  # generous: what is measured stands in the test report
SAMPLE = 40  # states drawn of an explorer, beside those that move one control
INPUTS = 20
SLOW_CPU, SLOW_INPUTS = 4, 5  # as on a cheap phone; only reported, since a slow machine would be slowed again

# Opens each address in turn; what a reader finds there, and a screen reader says.
STATES_SHOWN = """async (figure, visits) => {
    const found = [];
    figure.scrollIntoView = () => {};  // half of the time
    for (const {hash, drawn} of visits) {
        location.hash = hash;
        while (figure.dataset.drawn !== drawn) await new Promise(done => setTimeout(done, 1));
        found.push({
            text: figure.querySelector('.sl-text').textContent,
            alt: figure.querySelector('.sl-plot').getAttribute('aria-label'),
            tables: [...figure.querySelectorAll('tbody')].map(
                body => [...body.rows].map(row => [...row.cells].map(cell => cell.textContent))),
            labels: [...figure.querySelectorAll('.annotation-text')].map(text => text.textContent),
            bars: figure.querySelector('.sl-plot').data.map(trace => trace.x),
        });
    }
    delete figure.scrollIntoView;
    return found;
}"""

# Moves each control in turn a step on; milliseconds from each input until the frame with the redraw is painted: what
# is posted while a frame is made runs after that.
REDRAW_TIMES = """async (figure, inputs) => {
    const controls = figure.querySelectorAll('.sl-control :is(input, select)'), times = [];
    for (let i = 0; i < inputs; i++) {
        const control = controls[i % controls.length];
        const positions = control.tagName === 'SELECT' ? control.options.length : Number(control.max) + 1;
        const before = performance.now();
        delete figure.dataset.drawn;
        control.value = (Number(control.value) + 1) % positions;
        control.dispatchEvent(new Event('input', {bubbles: true}));
        do await new Promise(requestAnimationFrame); while (!figure.dataset.drawn);
        await new Promise(painted => {
            const {port1, port2} = new MessageChannel();
            port1.onmessage = painted;
            port2.postMessage(null);
        });
        times.push(performance.now() - before);
        await new Promise(requestAnimationFrame);  // from frame to frame, as a hand's inputs come
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


def explorers():
    """(name, page) of every explorer in the committed notebooks."""
    for path in sorted([*ROOT.glob("book/*.ipynb"), *ROOT.glob("chapters/*.ipynb")]):
        for cell in nbformat.read(path, as_version=4).cells:
            for output in cell.get("outputs", []):
                if MIME_TYPE in output.get("data", {}):
                    yield output.data[MIME_TYPE]["name"], path.relative_to(ROOT).with_suffix(".html").as_posix()


EXPLORERS = list(explorers())


def test_names_are_unique_and_every_explorer_is_on_the_site():
    names, paths = zip(*EXPLORERS, strict=True)
    assert len(set(names)) == len(names)
    built = {path.relative_to(serve.build()): path for path in serve.build().rglob("*.html")}
    with_controls = {path.as_posix() for path, file in built.items() if "sl-controls" in file.read_text("utf-8")}
    assert with_controls == set(paths)


def words(markup):
    """Text as Plotly draws it: tags gone, each line by itself and joined without a break."""
    return re.sub(r"<[^>]*>", "", markup)


@pytest.fixture(scope="module", params=EXPLORERS, ids=[name for name, _ in EXPLORERS])
def explorer(request, browser, site_url):
    """One explorer, on a page that the tests of it share."""
    name, path = request.param
    with visiting(browser, site_url, path) as page:
        yield page.locator(f"#{name}")


def states_to_draw(content):
    """Each option of each axis, the others at their start, and some states by chance; indices an axis."""
    start = [axis["start"] for axis in content["axes"]]
    choices = [range(len(axis["options"])) for axis in content["axes"]]
    one_moved = {(*start[:i], index, *start[i + 1 :]) for i, choice in enumerate(choices) for index in choice}
    others = sorted(set(itertools.product(*choices)) - one_moved)
    return [*sorted(one_moved), *random.Random(content["name"]).sample(others, min(SAMPLE, len(others)))]


def test_states_are_what_python_computed(explorer):
    """Not all: `test_explore.py` has the tables themselves, and drawing each of thousands takes long."""
    content = json.loads(explorer.locator(".sl-data").text_content())
    states = states_to_draw(content)
    visits = []
    for indices in states:
        settings = (
            f"{axis['name']}={quote(axis['options'][i])}" for axis, i in zip(content["axes"], indices, strict=True)
        )
        visits.append({"hash": f"{content['name']}:{';'.join(settings)}", "drawn": ",".join(map(str, indices))})
    for indices, shown in zip(states, explorer.evaluate(STATES_SHOWN, visits), strict=True):
        state = state_at(content, list(indices))
        layout = state["figure"]["layout"]
        meta = layout["meta"]
        assert shown == {
            "text": state["text"],
            "alt": meta["alt"],
            "tables": [[[str(cell) for cell in row] for row in table["rows"]] for table in meta["tables"]],
            "labels": [words(annotation["text"]) for annotation in layout.get("annotations", [])],
            "bars": [trace["x"] for trace in state["figure"]["data"]],
        }


def test_explorers_redraw_in_time(explorer, record_property):
    name = explorer.get_attribute("id")
    slowed = explorer.page.context.new_cdp_session(explorer.page)
    slowed.send("Emulation.setCPUThrottlingRate", {"rate": SLOW_CPU})
    times = explorer.evaluate(REDRAW_TIMES, SLOW_INPUTS)
    slowed.send("Emulation.setCPUThrottlingRate", {"rate": 1})
    record_property(
        f"redraw of {name}, processor slowed {SLOW_CPU} times",
        f"p50 {statistics.median(times):.0f} ms, slowest {max(times):.0f} ms of {SLOW_INPUTS} inputs",
    )
    # Other tests run beside this one; a slow spell of theirs is no fault of the page.
    for attempt in range(1, 4):
        times = explorer.evaluate(REDRAW_TIMES, INPUTS)
        p50, p95 = statistics.median(times), statistics.quantiles(times, n=20, method="inclusive")[-1]
        record_property(f"redraw of {name}, try {attempt}", f"p50 {p50:.0f} ms, p95 {p95:.0f} ms of {INPUTS} inputs")
        if p95 <= REDRAW_P95_MS:
            return
        explorer.page.wait_for_timeout(5000 * attempt)
    pytest.fail(f"p95 from input to redraw is {p95:.0f} ms in the last of three tries; at most {REDRAW_P95_MS}")


# One template makes all controls; these pages have each kind: sliders and menus, one that plays, several figures.
@pytest.mark.parametrize("path", ["chapters/8-3-1-paged-kv-cache.html", "chapters/8-5-1-verification.html"])
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

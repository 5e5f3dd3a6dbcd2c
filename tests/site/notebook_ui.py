"""A notebook in JupyterLab or JupyterLite, used as a reader does."""

SECONDS_TO_REDRAW = 20

# What a reader sees of a figure. Not its HTML: that holds ids which change with each redraw.
FIGURE = """cell => {
    const svgs = [...cell.querySelectorAll('.js-plotly-plot svg.main-svg')];
    const drawn = svgs.flatMap(svg => [...svg.querySelectorAll('path, text')]);
    return JSON.stringify(drawn.map(shape => shape.getAttribute('d') ?? shape.textContent));
}"""


def choose_run_all(page):
    """Run > Run All Cells; returns at once."""
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()


def _settled_figure(page, explorer):
    """The figure once it has stopped changing: Plotly draws in steps, and a step is no answer to a slider."""
    now, before = explorer.evaluate(FIGURE), None
    while now == "[]" or now != before:
        page.wait_for_timeout(500)
        now, before = explorer.evaluate(FIGURE), now
    return now


def move_slider_and_see_the_figure_change(page):
    """The first slider of the page, one step, to the side where there is room."""
    explorer = page.locator(".jp-CodeCell", has=page.locator(".noUi-handle")).first
    explorer.scroll_into_view_if_needed()
    explorer.locator(".js-plotly-plot path").first.wait_for(state="attached")
    before = _settled_figure(page, explorer)
    handle = explorer.locator(".noUi-handle").first
    at_end = handle.get_attribute("aria-valuenow") == handle.get_attribute("aria-valuemax")
    handle.focus()
    page.keyboard.press("ArrowLeft" if at_end else "ArrowRight")
    page.wait_for_function(
        f"([cell, before]) => {{ const now = ({FIGURE})(cell); return now !== '[]' && now !== before; }}",
        arg=[explorer.element_handle(), before],
        timeout=SECONDS_TO_REDRAW * 1000,
    )

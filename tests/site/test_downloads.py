"""What the buttons under a figure save."""

import csv
import io
import re
from base64 import b64encode

import pytest
from visits import AT_REST, CHAPTER, PHONE, visiting

TABLES = """figure => [...figure.querySelectorAll('.sl-table table')].map(
    table => [...table.rows].map(row => [...row.cells].map(cell => cell.textContent)))"""

# Width, height, colour of the corner, and how many colours there are.
PIXELS = """async url => {
    const picture = await createImageBitmap(await (await fetch(url)).blob());
    const {width, height} = picture, canvas = new OffscreenCanvas(width, height), pen = canvas.getContext('2d');
    pen.drawImage(picture, 0, 0);
    const pixels = new Uint32Array(pen.getImageData(0, 0, width, height).data.buffer);
    return {width, height, corner: [...pen.getImageData(0, 0, 1, 1).data], colors: new Set(pixels).size};
}"""
CORNERS = {"light": [255, 255, 255, 255], "dark": [18, 18, 18, 255]}  # the theme's backgrounds


@pytest.fixture(scope="module")
def opened(browser, site_url):
    with visiting(browser, site_url, f"{CHAPTER}#paging:block_size=8", color_scheme="light") as page:
        yield page


def download(page, figure, kind):
    """(file name, content) of what the button of `kind` saves."""
    with page.expect_download() as waiting:
        page.locator(f"#{figure} .sl-{kind}").click()
    return waiting.value.suggested_filename, waiting.value.path().read_bytes()


def tables_of(content):
    """Tables of a file: a blank line stands between them."""
    tables = [[]]
    for row in csv.reader(io.StringIO(content.decode(), newline=""), strict=True):
        if row:
            tables[-1].append(row)
        else:
            tables.append([])
    return tables


def test_csv_has_the_tables_of_the_state(opened):
    name, content = download(opened, "paging", "csv")
    assert name == "paging-block_size-8-lengths-9-13-5-15-common_prefix-0.csv"
    tables = opened.locator("#paging").evaluate(TABLES)
    assert len(tables) == 2
    assert tables_of(content) == tables


def test_a_figure_without_controls_is_named_after_its_page(opened):
    figure = opened.locator(".sl-figure:not(:has(.sl-controls))").first.get_attribute("id")
    name, content = download(opened, figure, "csv")
    assert name == f"8-3-1-paged-kv-cache-{figure}.csv"
    assert tables_of(content) == opened.locator(f"#{figure}").evaluate(TABLES)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_png_is_the_figure_on_the_pages_colour(opened, scheme):
    opened.emulate_media(color_scheme=scheme)
    opened.wait_for_function(f"document.documentElement.dataset.theme === '{scheme}' && {AT_REST}")
    name, content = download(opened, "paging", "png")
    assert re.fullmatch(r"paging-block_size-8-[\w.-]+\.png", name)
    assert content.startswith(b"\x89PNG\r\n")
    pixels = opened.evaluate(PIXELS, f"data:image/png;base64,{b64encode(content).decode()}")
    plot = opened.locator("#paging .sl-plot").bounding_box()
    assert (pixels["width"], pixels["height"]) == (2 * plot["width"], 2 * plot["height"])
    assert pixels["corner"] == CORNERS[scheme]
    assert pixels["colors"] > 20
    assert opened.locator(".sl-away").count() == 0


def test_csv_quotes_what_csv_must(opened):
    hard = ['a "b"', "c,d", "e\nf", " g ", "=1+1", ""]
    opened.locator("#paging tbody tr").first.evaluate(
        "(row, cells) => row.replaceChildren(...cells.map(text => {"
        " const cell = document.createElement('td'); cell.textContent = text; return cell }))",
        hard,
    )
    _, content = download(opened, "paging", "csv")
    assert tables_of(content)[0][1] == hard


def test_names_are_safe_and_short(browser, site_url):
    with visiting(
        browser, site_url, "chapters/8-4-3-offload.html#offload:link=NVLink-C2C (GH200)", viewport=PHONE
    ) as page:
        name, _ = download(page, "offload", "csv")
        assert re.fullmatch(r"offload-[A-Za-z0-9._-]{1,150}\.csv", name)
        assert "NVLink-C2C-GH200" in name

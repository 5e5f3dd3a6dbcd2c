"""The site away from its server: packed into one file, and below any path of another server."""

import os
import re
import shutil
import zipfile

import pytest
import serve
import zip_site
from visits import CHAPTER, visiting

MAX_BYTES = 25_000_000  # without the lab
SUB_PATH = "some/sub/path"
# In an attribute: in the text of a page the address of `make book` may stand.
ABSOLUTE = re.compile(r"""(?:href|src|action|content|data-[\w-]+)=["'](?:/(?!/)|https?://(?:127\.0\.0\.1|localhost))""")


def small_site(folder):
    for name in ("index.html", "book/b.html", "book/a.html", "lite/lab.js", ".sources"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def test_the_same_site_gives_the_same_file_whatever_its_times(tmp_path):
    site = small_site(tmp_path / "site")
    assert zip_site.pack(site, tmp_path / "book.zip") == 3 + 1  # and the page in place of the lab
    first = (tmp_path / "book.zip").read_bytes()
    for path in site.rglob("*"):
        os.utime(path, (1, 1_000_000_000))
    zip_site.pack(site, tmp_path / "book.zip")
    assert (tmp_path / "book.zip").read_bytes() == first


@pytest.mark.parametrize("lab", [False, True])
def test_the_file_holds_the_site_in_one_folder_and_the_lab_where_asked(tmp_path, lab):
    site = small_site(tmp_path / "site")
    zip_site.pack(site, tmp_path / "book.zip", lab)
    with zipfile.ZipFile(tmp_path / "book.zip") as archive:
        own = "lab.js" if lab else "notebooks/index.html"
        names = ["book/book/a.html", "book/book/b.html", "book/index.html", f"book/lite/{own}"]
        assert archive.namelist() == names
        assert archive.read("book/book/a.html") == b"book/a.html"


def test_the_site_without_the_lab_is_small():
    site = serve.build()
    assert sum((site / path).stat().st_size for path in zip_site.files(site)) < MAX_BYTES


def test_no_page_holds_an_address_that_is_right_in_one_place_only():
    site = serve.build()
    pages = [path for path in zip_site.files(site) if path.suffix == ".html" and "_static" not in path.parts]
    assert len(pages) > 50
    found = {str(path): ABSOLUTE.findall((site / path).read_text("utf-8")) for path in pages}
    assert {path: addresses for path, addresses in found.items() if addresses} == {}


@pytest.mark.parametrize(
    ("html", "is_absolute"),
    [
        ('<a href="/book/index.html">', True),
        ('<script src="http://127.0.0.1:8000/a.js">', True),
        ('<a href="../book/index.html">', False),
        ('<a href="#top">', False),
        ('<a href="https://arxiv.org/abs/2309.06180">', False),
        ("<p>It is served at http://127.0.0.1:8000.</p>", False),
    ],
)
def test_such_addresses_are_told_from_others(html, is_absolute):
    assert bool(ABSOLUTE.search(html)) == is_absolute


def test_the_site_works_below_a_path_of_another_server(browser, tmp_path):
    shutil.copytree(serve.build(), tmp_path / SUB_PATH, ignore=shutil.ignore_patterns(zip_site.LAB, "_sources"))
    with serve.serving(tmp_path) as url:
        base = f"{url}/{SUB_PATH}"  # `visiting` blocks and reports all that is not below it
        with visiting(browser, base, "") as page:
            page.wait_for_url(f"{base}/book/index.html")
        with visiting(browser, base, CHAPTER) as page:
            page.locator("#paging input[data-axis=block_size]").press("ArrowRight")
            page.wait_for_function("document.querySelector('#paging').dataset.drawn === '3,0,0'")
            page.keyboard.press("Control+k")
            page.locator(".search-button__search-container input").fill("goodput")
            page.keyboard.press("Enter")
            page.locator("#search-results .context").first.wait_for()
            page.locator("#search-results ul.search a").first.click()
            page.wait_for_url(f"{base}/chapters/8-6-2-goodput.html*")

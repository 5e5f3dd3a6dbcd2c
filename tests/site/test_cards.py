"""What other programs show of a page when its address is shared."""

import struct

import pytest
import serve
from bs4 import BeautifulSoup
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from servelab.site import STATIC
from servelab.site.cards import CARD_SIZE, MAX_DESCRIPTION, shortened

NEED_AN_ADDRESS = {"og:url", "og:image", "og:image:width", "og:image:height", "og:image:alt"}


def tags(html):
    """{property or name: content} of a page's meta elements."""
    soup = BeautifulSoup(html, "html.parser")
    return {tag.get("property") or tag.get("name"): tag["content"] for tag in soup.find_all("meta", content=True)}


def built(folder):
    """The tags of a small page, built with the extension alone."""
    (folder / "sub").mkdir(parents=True)
    (folder / "index.md").write_text("# A & B\n\nFirst 1 < 2. Then:\n\n- a list\n\n```{toctree}\nsub/page\n```")
    (folder / "sub/page.md").write_text("# Page\n\nProse.")
    settings = {"extensions": ["myst_parser", "servelab.site.cards"], "html_theme": "basic", "html_title": "Book"}
    app = Sphinx(folder, None, folder / "out", folder / "trees", "html", settings, status=None, warning=None)
    app.build()
    return [tags((folder / "out" / name).read_text("utf-8")) for name in ("index.html", "sub/page.html")]


def test_a_published_page_names_its_address_and_the_card(tmp_path, monkeypatch):
    monkeypatch.setenv("SERVELAB_SITE_URL", "https://example.org/book/")
    first, second = built(tmp_path)
    assert first["og:title"] == "A & B"
    assert first["og:description"] == first["description"] == "First 1 < 2. Then:"
    assert (first["og:type"], first["og:site_name"]) == ("article", "Book")
    assert first["og:url"] == "https://example.org/book/index.html"
    assert first["og:image"] == "https://example.org/book/_static/card.png"
    assert first["twitter:card"] == "summary_large_image"
    assert second["og:url"] == "https://example.org/book/sub/page.html"


def test_without_an_address_the_tags_that_need_one_are_left_out(tmp_path, monkeypatch):
    monkeypatch.delenv("SERVELAB_SITE_URL", raising=False)
    for found in built(tmp_path):
        assert not NEED_AN_ADDRESS & set(found)
        assert found["twitter:card"] == "summary"


@pytest.mark.parametrize("address", ["example.org/", "https://example.org", "ftp://example.org/", "https://a b/"])
def test_an_address_that_cannot_be_is_refused(tmp_path, monkeypatch, address):
    monkeypatch.setenv("SERVELAB_SITE_URL", address)
    with pytest.raises(ExtensionError, match="must be an http or https address that ends with a slash"):
        built(tmp_path)


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("One. Two.", 9, "One. Two."),
        ("One. Two.", 8, "One."),
        ("Version 1.2 is out. Two.", 20, "Version 1.2 is out."),
        ("One two three", 8, "One two…"),
        ("", 8, ""),
    ],
)
def test_descriptions_are_cut_between_sentences_or_words(text, limit, expected):
    assert shortened(text, limit) == expected


def test_every_page_has_a_title_and_a_description_of_its_own_length():
    site = serve.build()
    folders = ("book", "chapters", "exercises", "solutions")
    pages = [path for folder in folders for path in (site / folder).glob("*.html")]
    assert len(pages) > 50
    for path in pages:
        found = tags(path.read_text("utf-8"))
        assert found["og:title"], path
        assert found["og:site_name"] == "Tokens per Second"
        assert 30 <= len(found["og:description"]) <= MAX_DESCRIPTION, f"{path}: {found['og:description']}"


def test_the_card_is_of_the_size_that_is_said_and_small():
    content = (STATIC / "card.png").read_bytes()
    assert struct.unpack(">II", content[16:24]) == CARD_SIZE
    assert len(content) < 100_000

"""The glossary's anchors."""

import re
from pathlib import Path

import pytest
import serve

from servelab.site.glossary import term_slugs

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("terms", "slugs"),
    [
        ("copy-on-write", ["copy-on-write"]),
        ("KV cache", ["kv-cache"]),
        ("prefill, decode", ["prefill", "decode"]),
        ("q8_0, q4_0", ["q8_0", "q4_0"]),
        ("n-gram draft", ["n-gram-draft"]),
    ],
)
def test_a_terms_anchor_is_its_slug(terms, slugs):
    assert term_slugs(terms) == slugs


@pytest.mark.parametrize("terms", ["", "prefill,", "prefill, , decode"])
def test_an_empty_term_is_refused(terms):
    with pytest.raises(ValueError, match="one is empty"):
        term_slugs(terms)


def test_every_term_has_its_anchor_on_the_site():
    source = (ROOT / "book/notation.md").read_text("utf-8")
    terms = re.findall(r"^(.+)\n: ", source, flags=re.MULTILINE)
    assert len(terms) > 30
    page = (serve.build() / "book/notation.html").read_text("utf-8")
    for slug in (slug for line in terms for slug in term_slugs(line)):
        assert page.count(f'id="{slug}"') == 1, slug

"""Finds images without alt text: in Markdown, in HTML, in directives, and in the outputs of notebook cells."""

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
from bs4 import BeautifulSoup
from markdown_it import MarkdownIt

FILE_NAME = re.compile(r"\S+\.(png|svg|jpe?g|gif|webp|avif)", re.IGNORECASE)
DIRECTIVE = re.compile(r"^(?P<fence>`{3,}|:{3,})\{(image|figure)\}.*?\n(?P<body>.*?)^(?P=fence)", re.M | re.S)
ALT_OPTION = re.compile(r"^:alt:[ ]*(.*)$", re.MULTILINE)


def is_alt_text(text: str | None) -> bool:
    """Whether it says something: neither nothing nor the name of a file."""
    return bool(text and text.strip()) and not FILE_NAME.fullmatch(text.strip())


def alts_of_html(html: str) -> Iterator[str | None]:
    """The alt text of each image and each drawing in a piece of HTML, None where it has none."""
    soup = BeautifulSoup(html, "html.parser")
    for image in soup.find_all("img"):
        yield image.get("alt")
    for drawing in soup.find_all("svg"):
        yield drawing.get("aria-label") or (drawing.title and drawing.title.get_text())


def alts_of_markdown(text: str) -> Iterator[str | None]:
    """The alt text of each image in Markdown, whichever of its three forms it has."""
    for directive in DIRECTIVE.finditer(text):
        option = ALT_OPTION.search(directive["body"])
        yield option and option[1]
    yield from alts_of_html(MarkdownIt().render(text))


def alts_of_output(output: nbformat.NotebookNode) -> Iterator[str | None]:
    """The alt text of each image that a cell shows: `IPython.display.Image(..., alt=...)` leaves it beside the data."""
    for mime, content in output.get("data", {}).items():
        if mime.startswith("image/"):
            yield output.metadata.get(mime, {}).get("alt")
        elif mime == "text/html":
            yield from alts_of_html(content)


def faults(path: Path) -> list[str]:
    """One line for each image of a page that lacks alt text, naming the cell in a notebook and what stands there."""
    if path.suffix == ".md":
        places = [("", alts_of_markdown(path.read_text("utf-8")))]
    else:
        places = []
        for index, cell in enumerate(nbformat.read(path, as_version=4).cells):
            if cell.cell_type == "markdown":
                places.append((f", cell {index}", alts_of_markdown(cell.source)))
            for output in cell.get("outputs", []):
                places.append((f", output of cell {index}", alts_of_output(output)))
    return [
        f"{path.name}{place}: an image needs alt text that says what it shows, not {alt!r}"
        for place, alts in places
        for alt in alts
        if not is_alt_text(alt)
    ]

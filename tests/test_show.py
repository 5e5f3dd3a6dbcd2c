"""Source as a page shows it."""

from servelab.engine import BlockTable
from servelab.show import source


class Example:
    """A class.

    With details.
    """

    def method(self):
        """Do it in
        two lines.

        With details.
        """
        return "code stays"

    def plain(self):
        return 1


def test_docstrings_are_cut_to_their_first_paragraph():
    shown = source(Example).data
    assert shown == (
        '```python\nclass Example:\n    """A class."""\n\n    def method(self):\n        """Do it in\n'
        '        two lines."""\n        return "code stays"\n\n    def plain(self):\n        return 1\n```'
    )


def test_several_methods_are_shown_at_the_left_margin():
    shown = source(BlockTable.append, BlockTable.slot).data.split("\n")
    assert [line for line in shown if line.startswith("def ")] == [
        "def append(self, num_tokens: int = 1) -> list[int]:",
        "def slot(self, position: int) -> tuple[int, int]:",
    ]

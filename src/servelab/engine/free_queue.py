"""The order in which free blocks are handed out."""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator


class FreeQueue:
    """Block numbers in a row, next to be handed out first.

    Each operation costs the same however long the row is, also the removal from its middle, which a hit in the
    prefix cache needs; a `deque` would search for the block.
    """

    def __init__(self, block_ids: Iterable[int] = ()):
        self._row = OrderedDict.fromkeys(block_ids)

    def __len__(self) -> int:
        return len(self._row)

    def __iter__(self) -> Iterator[int]:
        return iter(self._row)

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._row

    def popleft(self) -> int:
        """Take the first block; `KeyError` if there is none."""
        return self._row.popitem(last=False)[0]

    def remove(self, block_id: int) -> None:
        """Take `block_id` out, wherever it stands; `KeyError` if it is not there."""
        del self._row[block_id]

    def extend(self, block_ids: Collection[int]) -> None:
        """Put `block_ids`, none of which is here, behind the last, in this order."""
        length = len(self) + len(block_ids)
        self._row.update(dict.fromkeys(block_ids))
        assert len(self) == length, "a block is free twice"

    def extendleft(self, block_ids: Collection[int]) -> None:
        """Put each of `block_ids`, none of which is here, before the first: the last of them comes to stand first."""
        self.extend(block_ids)
        for block_id in block_ids:
            self._row.move_to_end(block_id, last=False)

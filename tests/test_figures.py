"""Figures of the sections: what their words, tables and bars say agrees with the engine."""

import pytest

from servelab.figures import paging

LENGTHS = (9, 13, 5, 15)


def slots(fig, kind):
    """Slots drawn in the colour of `kind`."""
    return sum(sum(bar.customdata) for bar in fig.data if bar.marker.color == paging.COLORS[kind])


def test_reserved_slots():
    fig = paging.reserved_slots(LENGTHS, 16)
    assert (slots(fig, "kv"), slots(fig, "unused")) == (42, 22)
    assert "fill 42 of 64" in fig.layout.meta["alt"]
    assert fig.layout.meta["rows"][-1] == ["all", 42, 64, 22]


@pytest.mark.parametrize(("prefix", "own", "shared"), [(0, 42, 0), (8, 26, 16)])
def test_paged_slots(prefix, own, shared):
    fig = paging.paged_slots(paging.place(LENGTHS, 4, prefix))
    # A shared block is drawn in both rows.
    assert (slots(fig, "kv"), slots(fig, "shared"), slots(fig, "unused")) == (own, shared, 10)


@pytest.mark.parametrize("block_size", paging.BLOCK_SIZES)
@pytest.mark.parametrize("prefix", [0, 3, 8, 12])
def test_place_counts(block_size, prefix):
    counts = paging.counts(paging.place(LENGTHS, block_size, prefix))
    shared = min(prefix, 9) // block_size
    blocks = sum(-(-length // block_size) for length in LENGTHS)
    assert counts == {
        "blocks": blocks - shared,
        "entries": blocks,
        "slots": (blocks - shared) * block_size,
        "unused": blocks * block_size - 42,
        "stored": 42 - shared * block_size,
    }


def test_block_table_names_what_is_free():
    table = paging.place((9,), 4)[0]
    table.pool.release(table.block_ids[2:])
    table.block_ids.pop()
    assert paging.block_table(table).layout.meta["alt"].endswith("physical blocks 0, 1, in this order. Free: 2.")

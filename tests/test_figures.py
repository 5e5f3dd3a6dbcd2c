"""Figures of the sections: what their words, tables and bars say agrees with the engine."""

import pytest

from servelab import catalog
from servelab.figures import batching, paging
from servelab.figures.style import COLORS

LENGTHS = (9, 13, 5, 15)


def slots(fig, kind):
    """Slots drawn in the colour of `kind`."""
    return sum(row[0] for bar in fig.data if bar.marker.color == COLORS[kind] for row in bar.customdata)


def test_reserved_slots():
    fig = paging.reserved_slots(LENGTHS, 16)
    assert (slots(fig, "kv"), slots(fig, "unused")) == (42, 22)
    assert "fill 42 of 64" in fig.layout.meta["alt"]
    assert fig.layout.meta["tables"][0]["rows"][-1] == ["all", 42, 64, 22]


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


def test_explorer_tables_hold_both_charts():
    fig, _ = paging.paging_explorer(4, LENGTHS, 8)
    by_sequence, by_size = fig.layout.meta["tables"]
    assert by_sequence["rows"][1] == ["B", 13, "0, 1, 3, 4", 3]
    assert by_size["rows"] == [[1, 42, 0, 34], [2, 23, 4, 19], [4, 13, 10, 11], [8, 7, 14, 6], [16, 4, 22, 4]]
    assert "table entries go from 42 to 4, unused slots from 0 to 22" in fig.layout.meta["alt"]


def test_explorer_takes_other_sequences():
    fig, text = paging.paging_explorer(16, (40, 50, 3, 2), 0)
    assert "(reserving takes 256)" in text
    assert fig.layout.xaxis.range[1] >= 50
    with pytest.raises(ValueError, match="number of sequences is 9; it must be an integer from 1 to 8"):
        paging.paging_explorer(16, (1,) * 9, 0)


def luminance(color):
    """Relative luminance of #rrggbb, WCAG 2.2."""
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("background", ["#ffffff", "#121212"])
@pytest.mark.parametrize("meaning", COLORS)
def test_colors_stand_out_in_light_and_dark(meaning, background):
    light, dark = sorted((luminance(COLORS[meaning]), luminance(background)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 3


def test_reads_explorer_says_what_the_library_computes():
    qwen = catalog.model("qwen3-8b")
    fig, text = batching.reads_explorer(qwen, 2048, "hbm", 64)
    assert text == (
        "Batch 64: an output token reads 0.22 GiB of weights and 0.281 GiB of KV from HBM. "
        "KV is the larger part from batch 51 on: more requests save little now."
    )
    assert fig.layout.meta["tables"][0]["rows"][0] == [1, "14.1", "0.281", "14.4"]
    assert "KV becomes the larger part at batch 13." in batching.reads_explorer(qwen, 8192, "hbm", 1)[1]
    fig, text = batching.reads_explorer(qwen, 8192, "rom", 4)
    assert "reads 0 GiB of weights and 1.12 GiB of KV" in text
    assert {sum(column) for column in zip(*(bar.y for bar in fig.data), strict=True)} == {1.125}


def test_batch_sweep_and_rows_state_their_ends():
    rows = catalog.record("batch-sweep").where(condition="2k_no_prefix")
    fig = batching.batch_sweep(rows, [8.6, 9.1, 11.1, 19.2])
    assert "from 26.3 to 29.6 ms" in fig.layout.meta["alt"]
    fig = batching.time_per_row({1: 2e-3, 64: 8e-3})
    assert fig.layout.meta["tables"][0]["rows"] == [[1, "2.00", "1.00", "1.000"], [64, "8.00", "4.00", "0.062"]]

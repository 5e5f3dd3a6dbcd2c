"""Figures of section 8.3.2: what is drawn is what the engine's pool does, and what the records say."""

import pytest

from servelab import catalog
from servelab.figures import branching, sharing


def test_story_copies_once_and_frees_after_the_step():
    moments = sharing.story()
    assert [moment.ref_counts for moment in moments] == [
        [1, 1, 0, 0], [2, 2, 0, 0], [2, 1, 1, 0], [2, 1, 1, 0], [2, 1, 1, 0],
        [2, 1, 1, 0], [2, 1, 1, 0], [1, 0, 1, 0], [1, 1, 1, 1], [0, 1, 0, 1],
    ]  # fmt: skip
    forked, appended = moments[1], moments[3]
    assert forked.tables["A"] == forked.tables["B"] == [0, 1]
    assert appended.contents == ["pqrs", "abcy", "abcx", "····"]
    assert [moment.state(1) for moment in moments[4:8]] == ["kv", "held", "held", "free"]
    assert "waits" in moments[6].text
    assert moments[8].tables["C"] == [1, 3]


@pytest.mark.parametrize("moment", sharing.MOMENTS)
def test_sharing_explorer_says_and_draws_the_moment(moment):
    fig, text = sharing.sharing_explorer(moment)
    now = sharing.story()[moment]
    by_sequence, by_block = fig.layout.meta["tables"]
    assert text == now.text
    assert [row[2] for row in by_block["rows"]] == now.ref_counts
    assert by_sequence["rows"][0][1] == (", ".join(map(str, now.tables["A"])) or "none")
    drawn = [shape.line.dash for shape in fig.layout.shapes]
    assert len(drawn) == sum(map(len, now.tables.values())) + sharing.NUM_BLOCKS
    assert drawn.count("dot") == len(now.free)
    assert drawn.count("dash") == (1 if moment in (5, 6) else 0)
    in_step = sum("in the step" in note.text for note in fig.layout.annotations)
    assert in_step == len(now.in_flight)


def test_reference_counts_mark_what_only_the_step_has():
    fig = sharing.reference_counts(sharing.story())
    assert [list(row) for row in fig.data[0].z] == [
        [1, 2, 2, 2, 2, 2, 2, 1, 1, 0],
        [1, 2, 1, 1, 1, 1, 1, 0, 1, 1],
        [0, 0, 1, 1, 1, 1, 1, 1, 1, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 1, 1],
    ]
    assert list(fig.data[0].text[1]) == ["1", "2", "1", "1", "1", "(1)", "(1)", "0", "1", "1"]


def test_cancellation_is_the_record():
    fig = sharing.cancellation()
    assert list(fig.data[0].x) == [1.55, 31.41]
    assert "104 blocks" in fig.layout.meta["alt"]
    assert "from 35 to 139" in fig.layout.meta["alt"]


def test_branches_are_the_recorded_ones():
    recorded = catalog.record("four-branches").rows[0]
    n = branching.parts(branching.branch(4, 16, recorded["prompt_tokens"]))
    assert n["references"] == recorded["table_references"]
    assert n["blocks"] == recorded["distinct_physical_blocks"]
    assert n["shared"] == recorded["shared_prefix_blocks"]
    assert n["private"] == 4 * recorded["private_blocks_per_branch"]


@pytest.mark.parametrize("way", branching.WAYS.values())
@pytest.mark.parametrize("prompt", branching.PROMPTS)
@pytest.mark.parametrize("block_size", [1, 16, 256])
@pytest.mark.parametrize("branches", [1, 4, 16])
def test_branches_explorer_follows_the_rule(branches, block_size, prompt, way):
    fig, text = branching.branches_explorer(branches, block_size, prompt, way)
    whole = (prompt if way == "fork" else prompt - 1) // block_size
    each = -(-(prompt + branching.OUTPUT - 1) // block_size)
    shared = whole if branches > 1 else 0
    blocks = whole + branches * (each - whole)
    references, drawn_shared, private = (bar.x[0] for bar in fig.data[:3])
    assert (references, drawn_shared, private) == (branches * each, shared, blocks - shared)
    row = next(row for row in fig.layout.meta["tables"][0]["rows"] if row[0] == branches)
    assert row == [branches, branches * each, shared, blocks - shared, blocks]
    assert ("saves nothing" in text) == (branches > 1 and whole == 0)


def test_unknown_way_is_refused():
    with pytest.raises(ValueError, match="way is 'copy'; it must be one of prefix, fork"):
        branching.branch(2, 16, 100, "copy")

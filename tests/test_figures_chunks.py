"""Figures of sections 8.2.3 and 8.2.4: what is drawn is what cost model, scheduler and record say."""

import pytest

from servelab import catalog
from servelab.cost import causal_pairs
from servelab.figures import chunks


@pytest.mark.parametrize("new_tokens", chunks.NEW_TOKENS)
@pytest.mark.parametrize("context", chunks.CONTEXTS)
def test_every_pair_is_one_cell(new_tokens, context):
    fig, text = chunks.pairs_explorer(new_tokens, context)
    (grid,) = [trace.z for trace in fig.data]
    for query, row in enumerate(grid):
        seen = [key for key, kind in enumerate(row) if kind < 2]
        assert seen == list(range(context + query + 1))  # itself and all before it, nothing later
        assert [key for key in seen if row[key] == 0] == list(range(context))
    assert sum(kind < 2 for row in grid for kind in row) == causal_pairs(new_tokens, context)
    assert f"= {causal_pairs(new_tokens, context)} pair" in text


def test_the_chapters_two_pictures():
    assert chunks.pairs_explorer(4, 0)[1] == "4 new tokens behind 0: 0 + 10 = 10 pairs."
    fig, text = chunks.pairs_explorer(4, 8)
    assert text.startswith("4 new tokens behind 8: 32 + 10 = 42 pairs.")
    assert "rectangle of 32 pairs with the context and a staircase of 10" in fig.layout.meta["alt"]


@pytest.mark.parametrize(
    ("new_tokens", "context", "fault"),
    [(0, 0, "new_tokens is 0"), (7, 0, "new_tokens is 7"), (4, 13, "context is 13"), (4, -1, "context is -1")],
)
def test_pairs_that_do_not_fit_the_picture_are_refused(new_tokens, context, fault):
    with pytest.raises(ValueError, match=fault):
        chunks.pairs_explorer(new_tokens, context)


@pytest.mark.parametrize("chunk", chunks.CHUNKS)
@pytest.mark.parametrize("prompt", chunks.PROMPTS)
@pytest.mark.parametrize("fixed_ms", chunks.FIXED_MS.values())
def test_chunks_explorer_draws_the_step_cost(chunk, prompt, fixed_ms):
    fig, text = chunks.chunks_explorer(chunk, prompt, fixed_ms)
    cost = chunks.step_cost(fixed_ms)
    drawn = [sum(bar.y[i] for bar in fig.data[:3]) for i in range(len(fig.data[0].y))]
    expected = [1e3 * cost.seconds([row]) for row in chunks.cut(prompt, chunk)]
    in_steps = fig.data[0].type == "scatter"  # its last value is held to the end of the prompt
    assert in_steps == (len(expected) > 64)
    assert drawn == pytest.approx([*expected, expected[-1]] if in_steps else expected, abs=0.02)
    assert f"{1e3 * cost.seconds([(prompt, 0)]):.0f} ms" in text
    assert bool(fig.data[3].y) == ("Recorded" in text) == (chunk == 512)


def test_cutting_keeps_tokens_and_pairs():
    for chunk in (100, 512, 8192):
        rows = chunks.cut(8192, chunk)
        assert sum(count for count, _ in rows) == 8192
        assert sum(causal_pairs(*row) for row in rows) == causal_pairs(8192, 0)


def test_chunks_explorer_shows_the_record():
    fig, text = chunks.chunks_explorer(512, 8192, 12.936)
    recorded = [row["step_ms_median"] for row in catalog.record("chunk-history").rows]
    assert list(fig.data[3].y) == recorded
    assert "Recorded up to 7680 tokens of context: 25.3 to 35.1 ms." in text
    assert len(chunks.chunks_explorer(512, 2048, 12.936)[0].data[3].y) == 4


def test_one_chunk_is_no_chunking():
    _, text = chunks.chunks_explorer(8192, 2048, 26.22)
    assert text.startswith("The whole prompt in one step: 95 ms.")


def test_bad_cuts_are_refused():
    with pytest.raises(ValueError, match="chunk is 0"):
        chunks.cut(8192, 0)
    with pytest.raises(ValueError, match="prompt is 0"):
        chunks.cut(0, 512)


def test_relative_times_start_at_one():
    fig = chunks.relative_times([0.02, 0.03, 0.05], [10, 30, 50])
    pairs, times = fig.data
    assert list(pairs.y) == [1, 3, 5]
    assert list(times.y) == pytest.approx([1, 1.5, 2.5])
    assert "pairs grow 5.0 times, the measured time 2.5 times" in fig.layout.meta["alt"]
    with pytest.raises(ValueError, match="seconds has 1 values, pairs 2"):
        chunks.relative_times([1.0], [1, 2])

"""Figures of section 8.3.4: values, stores and hits are drawn as the library computes them."""

import pytest

from servelab import catalog, retention
from servelab.figures import keeping
from servelab.units import MIB


def tables(fig):
    return [table["rows"] for table in fig.layout.meta["tables"]]


def test_value_explorer_has_the_chapters_times():
    fig, text = keeping.value_explorer(0.5, "pcie5-x16", 6144)
    assert list(fig.data[0].x) == pytest.approx([307.9, 14.15, 14.15], abs=0.1)
    assert fig.data[2].y[0] == pytest.approx(132.7, abs=0.1)
    assert "864 MiB: value 132.7 ms" in text
    assert "pays above 4.8%" in text
    assert "crosses 0 at 4.8%" in fig.layout.meta["alt"]


@pytest.mark.parametrize(("link", "pays"), [("pcie4-x16", False), ("pcie5-x16", True)])
def test_value_explorer_drops_what_does_not_pay(link, pays):
    fig, text = keeping.value_explorer(0.05, link, 6144)
    assert ("keep it" in text) == pays
    assert ("drop it" in text) != pays
    assert (fig.data[2].y[0] > 0) == pays
    with pytest.raises(ValueError, match=r"hit_probability is 1\.5"):
        keeping.value_explorer(1.5, link, 6144)


def test_same_room_holds_one_a_or_three_b():
    fig = keeping.same_room()
    a, b = fig.data
    assert [len(a.x), len(b.x)] == [1, 3]
    assert b.base[2] + b.x[2] == pytest.approx(a.base[0] + a.x[0])
    assert tables(fig)[0] == [["one A", 1, 864, "132.7"], ["three B", 3, 288, "120.9"]]
    assert "saves 132.7 ms" in fig.layout.meta["alt"]
    weaker = tables(keeping.same_room(0.45))[0]
    assert float(weaker[0][3]) < float(weaker[1][3])


@pytest.mark.parametrize("probability", keeping.OWN_PROBABILITIES)
def test_trace_asks_as_often_as_it_says(probability):
    rounds = keeping.trace_of(probability)
    asked = [prefix_id for each in rounds for prefix_id in each]
    assert asked.count("A") == round(probability * keeping.ROUNDS)
    assert all(asked.count(f"B{i}") == keeping.ROUNDS / 2 for i in (1, 2, 3))
    assert all(asked.count(f"once {number}") == 1 for number in range(keeping.ROUNDS))
    assert set(asked) <= set(keeping.prefixes_of(probability))


def test_a_higher_probability_only_adds_requests_for_a():
    few, many = keeping.trace_of(0.2), keeping.trace_of(0.9)
    for before, after in zip(few, many, strict=True):
        assert set(before) <= set(after)
        assert set(after) - set(before) <= {"A"}


def test_run_is_the_stores_replay():
    store, held = keeping.run(0.35, "pcie5-x16", 1152, "lru")
    asked = [prefix_id for each in keeping.trace_of(0.35) for prefix_id in each]
    again = retention.replay(asked, keeping.prefixes_of(0.35), 1152 * MIB, "lru")
    assert store.hits == again.hits
    assert store.saved_s == pytest.approx(again.saved_s)
    assert len(held) == keeping.ROUNDS
    assert sum(held[-1].values()) * MIB == store.used_bytes
    assert max(sum(sizes.values()) for sizes in held) <= 1152


def saved(probability, room):
    runs = {p: keeping.run(probability, "pcie5-x16", room, p)[0] for p in keeping.POLICIES.values()}
    return {policy: store.saved_s for policy, store in runs.items()}


def test_what_the_page_says_of_the_policies():
    assert saved(0.5, 864)["lru"] < 0.3 * saved(0.5, 864)["value_density"]
    assert saved(0.35, 864)["value"] < saved(0.35, 864)["value_density"]
    assert saved(0.35, 1152)["value"] > saved(0.35, 1152)["value_density"]


def test_store_explorer_draws_the_chosen_policy():
    fig, text = keeping.store_explorer(0.35, "pcie5-x16", 1152, "value_density")
    a, b, once, bars = fig.data
    assert [a.y[-1], b.y[-1], once.y[-1]] == [0, 864, 0]
    assert list(bars.marker.opacity) == [0.45, 0.45, 0.45, 1]
    assert list(bars.x) == list(saved(0.35, 1152).values())
    assert "57 hits" in text
    assert "1152 MiB ends with 0 MiB of A, 864 of B" in fig.layout.meta["alt"]
    with pytest.raises(ValueError, match="policy is 'fifo'"):
        keeping.store_explorer(0.35, "pcie5-x16", 1152, "fifo")


def test_pressure_has_the_recorded_hits():
    fig = keeping.pressure([455, 750, 950, 2730])
    alone, loaded = fig.data
    conditions = catalog.record("agent-conditions")
    assert set(alone.y) == {conditions.row(name="6gib_no_load")["hit_tokens"]}
    assert loaded.y[0] == conditions.row(name="1gib_other_load")["hit_tokens"] == 0
    assert loaded.y[3] == conditions.row(name="6gib_other_load")["hit_tokens"]
    assert list(loaded.y) == [0, 0, 16304, 16304]
    assert "950 blocks: 16,304 alone, 16,304 with load" in fig.layout.meta["alt"]
    with pytest.raises(ValueError, match="4000"):
        keeping.pressure([200])

"""What is worth keeping and what caches keep, and what is refused. Facts: test_facts_reuse.py."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servelab import catalog, retention, reuse
from servelab.units import GIB, MIB

QWEN = catalog.model("qwen3-8b")
GPU = catalog.accelerator("rtx-pro-6000")
GEN4, GEN5 = catalog.link("pcie4-x16"), catalog.link("pcie5-x16")
MFU = 0.62

TURNS = catalog.record("agent-turns").rows
LENGTHS = [turn["input_tokens"] for turn in TURNS]
COMMON = [turn["common_prefix_with_previous_turn_tokens"] for turn in TURNS]
LOAD = {"load_requests": 3, "load_tokens": 4000}
SECONDS = st.floats(0, 1e3)


def of_qwen(tokens, link=GEN5, hit_probability=0.5):
    return retention.Prefix.of_model(QWEN, tokens, GPU, MFU, link, hit_probability)


def test_value_of_keeping():
    assert retention.value_of_keeping(0.5, recompute_s=4, fetch_s=1, maintain_s=1) == 0.5
    assert retention.value_of_keeping(0.0, recompute_s=4, fetch_s=1, maintain_s=1) == -1  # kept for nothing
    assert retention.value_of_keeping(1.0, recompute_s=1, fetch_s=4, maintain_s=0) == -3  # fetched slower than made


@given(SECONDS, SECONDS, SECONDS, SECONDS)
def test_at_break_even_keeping_is_worth_what_was_asked(recompute_s, fetch_s, maintain_s, value_s):
    probability = retention.break_even_hit_probability(recompute_s, fetch_s, maintain_s, value_s)
    if probability <= 1:
        value = retention.value_of_keeping(probability, recompute_s, fetch_s, maintain_s)
        assert value == pytest.approx(value_s, abs=1e-6)
    else:  # not even a certain hit is worth that much
        assert retention.value_of_keeping(1, recompute_s, fetch_s, maintain_s) <= value_s + 1e-6


def test_no_hit_pays_if_fetching_is_no_faster():
    assert retention.break_even_hit_probability(2, 2, 0) == math.inf


@pytest.mark.parametrize(("link", "least"), [(GEN5, 0.4597), (GEN4, 0.4577)])
def test_one_long_prefix_against_three_short_ones(link, least):
    # Exercise 8-4: A of 6144 tokens takes as much room as three B of 2048.
    a, b = of_qwen(6144, link), of_qwen(2048, link)
    assert a.size_bytes == 3 * b.size_bytes == 864 * MIB
    assert a.value_s > 3 * b.value_s
    probability = retention.break_even_hit_probability(a.recompute_s, a.fetch_s, a.maintain_s, 3 * b.value_s)
    assert probability == pytest.approx(least, abs=5e-5)
    assert of_qwen(6144, link, probability).value_per_mib == pytest.approx(b.value_per_mib)


def test_a_prefix_that_stays_in_place_costs_nothing_to_fetch():
    kept = of_qwen(2048, link=None)
    assert (kept.fetch_s, kept.maintain_s) == (0, 0)
    assert kept.value_s == kept.recompute_s / 2


@given(st.integers(1, 40000), st.floats(0.5, 500))
def test_swap_or_recompute(tokens, gb_per_s):
    link = catalog.Link(name="any", gb_per_s=gb_per_s, source="test")
    both = retention.swap_or_recompute(QWEN, tokens, GPU, link, MFU)
    assert both.faster == ("swap" if link.bandwidth > both.break_even_bandwidth else "recompute")
    assert both.swap_s == pytest.approx(2 * tokens * 147456 / link.bandwidth)


def test_longer_texts_are_swapped_over_slower_links():
    # Attention makes computing again grow faster than the bytes to move.
    short, long = (retention.swap_or_recompute(QWEN, tokens, GPU, GEN5, MFU) for tokens in (512, 32768))
    assert short.faster == long.faster == "swap"
    assert long.break_even_bandwidth < short.break_even_bandwidth


SMALL = retention.Prefix(tokens=10, size_bytes=1, recompute_s=3.0, fetch_s=1.0, maintain_s=0.5, hit_probability=0.5)


def test_time_saved_counts_hits_and_admissions():
    store = retention.replay("xxxx", {"x": SMALL}, 1, "lru")
    assert store.hits == [False, True, True, True]
    assert (store.hit_tokens, store.recomputed_tokens) == (30, 10)
    assert store.saved_s == 3 * (3.0 - 1.0) - 0.5


def test_lru_forgets_what_returns_after_a_scan_and_lfu_does_not():
    prefixes = dict.fromkeys("habcd", SMALL)
    trace = "hhh" + "abcd" + "h"
    assert not retention.replay(trace, prefixes, 3, "lru").hits[-1]
    assert retention.replay(trace, prefixes, 3, "lfu").hits[-1]


def test_value_density_keeps_the_chapters_long_prefix_only_while_it_is_hit_often():
    b = of_qwen(2048)
    for probability, kept in [(0.5, ["a"]), (0.45, ["b1", "b2", "b3"])]:
        prefixes = {"a": of_qwen(6144, hit_probability=probability), "b1": b, "b2": b, "b3": b}
        for trace in (["a", "b1", "b2", "b3"], ["b1", "b2", "b3", "a"]):
            store = retention.replay(trace * 2, prefixes, 864 * MIB, "value_density")
            assert store.kept == kept


def test_value_alone_prefers_one_large_prefix_to_three_small_ones_worth_more():
    big = retention.Prefix(tokens=30, size_bytes=3, recompute_s=4.0)
    small = retention.Prefix(tokens=10, size_bytes=1, recompute_s=3.0)
    prefixes = {"big": big, "a": small, "b": small, "c": small}
    trace = ["a", "b", "c", "big"] * 5
    by_value, by_density = (retention.replay(trace, prefixes, 3, policy) for policy in ("value", "value_density"))
    assert (by_value.kept, by_density.kept) == (["big"], ["a", "b", "c"])
    assert by_density.saved_s > by_value.saved_s


def test_what_is_not_worth_keeping_is_not_admitted():
    rare = retention.Prefix(tokens=10, size_bytes=1, recompute_s=3.0, maintain_s=0.5, hit_probability=0.1)
    for policy, kept in [("lru", ["x"]), ("lfu", ["x"]), ("value", []), ("value_density", [])]:
        assert retention.replay("xx", {"x": rare}, 1, policy).kept == kept


def test_a_prefix_larger_than_the_store_pushes_nothing_out():
    prefixes = {"x": SMALL, "large": retention.Prefix(tokens=99, size_bytes=3, recompute_s=9.0)}
    for policy in retention.POLICIES:
        store = retention.replay(["x", "large", "x"], prefixes, 2, policy)
        assert store.hits == [False, False, True]
        assert store.evictions == 0


PREFIXES = st.fixed_dictionaries(
    {
        name: st.builds(
            retention.Prefix,
            tokens=st.integers(1, 50),
            size_bytes=st.integers(1, 6),
            recompute_s=st.integers(0, 9),
            fetch_s=st.integers(0, 3),
            maintain_s=st.integers(0, 3),
            hit_probability=st.sampled_from([0, 0.25, 0.5, 1]),
        )
        for name in "abcde"
    }
)
TRACES = st.lists(st.sampled_from("abcde"), max_size=40)


@given(TRACES, PREFIXES, st.integers(0, 12), st.sampled_from(list(retention.POLICIES)))
def test_a_store_keeps_to_its_capacity_and_its_accounts(trace, prefixes, capacity, policy):
    store = retention.PrefixStore(prefixes, capacity, policy)
    expected_s = 0
    for prefix_id in trace:
        before = store.kept
        hit = store.use(prefix_id)
        assert hit == (prefix_id in before)
        assert store.used_bytes <= capacity
        prefix = prefixes[prefix_id]
        admitted = prefix_id in store.kept and not hit
        expected_s += hit * (prefix.recompute_s - prefix.fetch_s) - admitted * prefix.maintain_s
    assert store.saved_s == expected_s
    assert store.hit_tokens + store.recomputed_tokens == sum(prefixes[prefix_id].tokens for prefix_id in trace)
    assert len(store.hits) == len(trace)


@given(TRACES, PREFIXES, st.integers(0, 12), st.sampled_from(["lru", "lfu"]))
def test_lru_and_lfu_against_stores_that_look_back(trace, prefixes, capacity, policy):
    """The oracle keeps no counters: it finds what goes first by searching the trace so far."""
    kept, since, expected = [], {}, []
    for now, prefix_id in enumerate(trace):
        expected.append(prefix_id in kept)
        if prefix_id in kept or prefixes[prefix_id].size_bytes > capacity:
            continue
        while sum(prefixes[other].size_bytes for other in [*kept, prefix_id]) > capacity:

            def goes_first(other, now=now):
                uses = [at for at in range(since[other], now) if trace[at] == other]
                return uses[-1] if policy == "lru" else (len(uses), uses[-1])

            kept.remove(min(kept, key=goes_first))
        kept.append(prefix_id)
        since[prefix_id] = now
    store = retention.replay(trace, prefixes, capacity, policy)
    assert store.hits == expected
    assert sorted(store.kept) == sorted(kept)


def test_a_refused_request_leaves_the_store_as_it_was():
    store = retention.replay("x", {"x": SMALL}, 1, "lru")
    before = dict(vars(store), hits=list(store.hits), _uses=dict(store._uses))
    with pytest.raises(ValueError, match="prefix_id is 'y'; it must be one of the 1 ids"):
        store.use("y")
    assert vars(store) == before


@pytest.mark.parametrize(("pool_gib", "column"), [(6, "hit_tokens_6gib_other_load"), (1, "hit_tokens_1gib_other_load")])
def test_the_twelve_agent_turns_under_load(pool_gib, column):
    num_blocks = pool_gib * GIB // (16 * 147456)
    assert num_blocks * 16 == {6: 43680, 1: 7280}[pool_gib]
    turns = reuse.stand_in_tokens(LENGTHS, COMMON)
    hit_tokens = retention.replay_turns(turns, num_blocks, **LOAD)
    assert hit_tokens == [turn[column] for turn in TURNS]
    assert sum(hit_tokens) == {6: 16304, 1: 0}[pool_gib]


def test_the_small_pool_would_do_without_the_load():
    turns = reuse.stand_in_tokens(LENGTHS, COMMON)
    assert sum(retention.replay_turns(turns, num_blocks=455)) == 16304


def test_common_and_actual_hit_ratio():
    # Exercise 8-4. 72 tokens of 16,376 are lost to partly filled blocks, the rest only to eviction.
    hits = [turn["hit_tokens_6gib_other_load"] for turn in TURNS]
    assert sum(COMMON) == 16376
    assert retention.hit_ratios(LENGTHS, COMMON, hits) == pytest.approx((0.8374, 0.8337), abs=5e-5)
    assert retention.hit_ratios(LENGTHS, COMMON, [0] * 12).actual == 0


def test_blocks_of_a_text():
    pool = retention.BlockLRU(num_blocks=10, block_size=4)
    assert pool.serve("abcdefgh") == 0
    assert pool.serve("abcdefgh") == 4  # its last token is computed again, and so the block that holds it
    assert pool.serve("abcdefghi") == 8
    assert pool.serve("abcdefxh") == 4  # hits are whole blocks
    assert pool.serve("xbcdefgh") == 0  # equal text behind a difference is different
    assert pool.num_cached == 5


def test_of_a_text_the_end_goes_first():
    pool = retention.BlockLRU(num_blocks=4, block_size=1)
    pool.serve("abc")
    pool.serve("xy")
    assert pool.serve("abcd") == 2  # one block had to go: c


@given(
    st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=9), max_size=12), st.integers(5, 12), st.integers(1, 3)
)
def test_block_lru_against_a_naive_one(texts, num_blocks, block_size):
    """The oracle holds whole beginnings of texts in a list and looks each one up by comparing tokens."""
    pool, cached = retention.BlockLRU(num_blocks, block_size), []
    for text in texts:
        blocks_needed = math.ceil(len(text) / block_size)
        if blocks_needed > num_blocks:
            continue
        blocks = [text[: end * block_size] for end in range(1, len(text) // block_size + 1)]
        found = []
        while len(found) < len(blocks) and blocks[len(found)] in cached and len(blocks[len(found)]) < len(text):
            found.append(blocks[len(found)])
        idle = [block for block in cached if block not in found]
        while len(idle) + blocks_needed > num_blocks:
            idle.pop(0)
        cached = [block for block in idle if block not in blocks] + blocks[::-1]
        assert pool.serve(text) == len(found) * block_size
        assert pool.num_cached == len(cached) <= num_blocks


def test_a_refused_text_leaves_the_pool_as_it_was():
    pool = retention.BlockLRU(num_blocks=2, block_size=4)
    pool.serve("abcdefgh")
    with pytest.raises(ValueError, match=re.escape("len(tokens) is 9; it must be an integer from 1 to 8")):
        pool.serve("abcdefghi")
    assert pool.num_cached == 2
    assert pool.serve("abcdefgx") == 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: retention.value_of_keeping(1.5, 1, 1, 1), "hit_probability is 1.5; .* at least 0 and at most 1"),
        (lambda: retention.value_of_keeping(-0.5, 1, 1, 1), "hit_probability is -0.5"),
        (lambda: retention.value_of_keeping(0.5, -1, 1, 1), "recompute_s is -1; it must be a .*number .*at least 0"),
        (lambda: retention.value_of_keeping(0.5, 1, math.nan, 1), "fetch_s is nan"),
        (lambda: retention.value_of_keeping(0.5, 1, 1, math.inf), "maintain_s is inf"),
        (lambda: retention.value_per_mib(1.0, 0), "size_bytes is 0; it must be an integer of at least 1"),
        (lambda: retention.value_per_mib("1", 1), "value_s is '1'"),
        (lambda: retention.break_even_hit_probability(-1, 0, 0), "recompute_s is -1"),
        (lambda: retention.break_even_hit_probability(1, -1, 0), "fetch_s is -1"),
        (lambda: retention.break_even_hit_probability(1, 0, -1), "maintain_s is -1"),
        (lambda: retention.break_even_hit_probability(1, 0, 0, -1), "value_s is -1"),
        (lambda: retention.recompute_seconds(QWEN, 0, GPU, 0.5), "tokens is 0; it must be an integer of at least 1"),
        (lambda: retention.recompute_seconds(QWEN, 1, GPU, 0), "mfu is 0; it must be a .*number above 0 and at most 1"),
        (lambda: retention.recompute_seconds(QWEN, 1, GPU, 62), "mfu is 62"),
        (lambda: retention.transfer_seconds(-1, GEN5), "num_bytes is -1"),
        (lambda: retention.Prefix(0, 1, 1.0), "tokens is 0"),
        (lambda: retention.Prefix(1, 0, 1.0), "size_bytes is 0"),
        (lambda: retention.Prefix(1, 1, -1.0), "recompute_s is -1.0"),
        (lambda: retention.Prefix(1, 1, 1.0, hit_probability=2), "hit_probability is 2"),
        (lambda: retention.Prefix.of_model(QWEN, -1, GPU, MFU), "tokens is -1"),
        (lambda: retention.Prefix.of_model(QWEN, 1, GPU, MFU, kv_dtype="fp7"), "kv_dtype is 'fp7'"),
        (lambda: retention.swap_or_recompute(QWEN, 0, GPU, GEN5, MFU), "tokens is 0"),
        (lambda: retention.swap_or_recompute(QWEN, 1, GPU, GEN5, 0), "mfu is 0"),
        (lambda: retention.PrefixStore({}, -1, "lru"), "capacity_bytes is -1"),
        (lambda: retention.PrefixStore({}, 1, "lri"), "policy is 'lri', which is not known; did you mean lru"),
        (lambda: retention.PrefixStore({"a": 7}, 1, "lru"), r"prefixes\['a'\] is 7; it must be a Prefix"),
        (
            lambda: retention.replay("xz", {"x": SMALL}, 1, "lru"),
            r"trace\[1\] is 'z'; it must be one of the 1 ids in prefixes",
        ),
        (lambda: retention.replay([1, 2], {1: SMALL}, 1, "lru"), r"trace\[1\] is 2; it must be one of"),
        (lambda: retention.replay("x", {"x": SMALL}, 1.5, "lru"), "capacity_bytes is 1.5"),
        (lambda: retention.BlockLRU(0), "num_blocks is 0"),
        (lambda: retention.BlockLRU(1, 0), "block_size is 0"),
        (lambda: retention.BlockLRU(1).serve([]), r"len\(tokens\) is 0; it must be an integer from 1 to 16"),
        (lambda: retention.replay_turns([[1]], 1, load_requests=-1), "load_requests is -1"),
        (lambda: retention.replay_turns([[1]], 1, load_tokens=0), "load_tokens is 0"),
        (lambda: retention.replay_turns([[1]] * 2, 1, load_requests=1, load_tokens=17), r"len\(tokens\) is 17"),
        (lambda: retention.hit_ratios([1, 2], [0], [0, 0]), "have 2, 1 and 2 entries; it must be one a turn"),
        (lambda: retention.hit_ratios([], [], []), "have 0, 0 and 0 entries"),
        (lambda: retention.hit_ratios([0], [0], [0]), "input_tokens is 0"),
        (lambda: retention.hit_ratios([2], [3], [0]), "common_tokens is 3; it must be an integer from 0 to 2"),
        (lambda: retention.hit_ratios([2], [1], [3]), "hit_tokens is 3; it must be an integer from 0 to 2"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=re.compile(message)):
        call()

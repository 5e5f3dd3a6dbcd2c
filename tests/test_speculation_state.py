"""The n-gram drafter, and what a round leaves behind: KV length, block references, grammar."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servelab import catalog
from servelab.engine import BlockPool, BlockTable, OutOfBlocks
from servelab.speculation import Automaton, NgramDrafter, SpeculativeState, Verification, verify_greedy

TOKENS = st.lists(st.integers(0, 2), max_size=30)


# ---- n-grams
def drafter_of(tokens, min_n=1, max_n=3):
    drafter = NgramDrafter(min_n, max_n)
    drafter.extend(tokens)
    return drafter


def search(tokens, length, min_n, max_n):
    """What the drafter must find, by looking through all of the text."""
    for n in range(min(max_n, len(tokens) - 1), min_n - 1, -1):
        for start in range(len(tokens) - n):
            if tokens[start : start + n] == tokens[-n:]:
                return tokens[start + n : start + n + length]
    return []


@pytest.mark.parametrize(
    ("text", "settings", "draft"),
    [
        ("the cat sat. the c", {}, "at s"),
        ("abcd", {}, ""),  # nothing occurred before
        ("abXabYab", {}, "XabY"),  # of two occurrences the earliest
        ("xabXabYyab", {"max_n": 2}, "XabY"),
        ("1234231", {"min_n": 2}, ""),
        ("123423", {"min_n": 2}, "423"),  # no more follows
        ("aaaa", {}, "a"),  # occurrences may overlap
        ("", {}, ""),
    ],
)
def test_draft(text, settings, draft):
    assert "".join(drafter_of(text, **settings).draft(4)) == draft


@settings(deadline=None)
@given(TOKENS, st.integers(0, 5), st.integers(1, 2), st.integers(0, 3), st.integers(0, 30))
def test_the_index_finds_what_a_search_finds(tokens, length, min_n, more, cut):
    drafter = NgramDrafter(min_n, min_n + more)
    drafter.extend(tokens[:cut])
    drafter.extend(tokens[cut:])
    assert drafter.draft(length) == search(tokens, length, min_n, min_n + more)


def test_a_repeated_text_takes_few_rounds():
    text = list(range(20)) * 3
    drafter, produced, rounds = drafter_of(text[:21]), text[:21], 0
    while len(produced) < 60:
        draft = drafter.draft(4)
        target = [*text[len(produced) : len(produced) + 5], None, None, None, None, None][: len(draft) + 1]
        tokens = verify_greedy(draft, target).tokens
        drafter.extend(tokens)
        produced, rounds = produced + list(tokens), rounds + 1
    assert (produced[:60], rounds) == (text, 8)  # 39 tokens, 5 a round


# ---- rollback
LETTERS = Automaton({"start": {"a": "end", "b": "start"}, "end": {"c": "start"}}, "start")


def letters():
    return Automaton(LETTERS.transitions, "start")


def state_of(prompt="prompt", num_blocks=8, block_size=4, grammar=None):
    pool = BlockPool(num_blocks, block_size)
    return SpeculativeState(prompt, BlockTable(pool), grammar)


def observed(state):
    grammar = state.grammar and (state.grammar.state, list(state.grammar.states))
    return list(state.tokens), list(state.table.block_ids), state.kv_length, state.table.pool.num_free, grammar


def test_a_rejected_draft_gives_its_blocks_back():
    state = state_of()  # 6 tokens, KV of 5 in two blocks
    assert state.begin_round("abcdefgh") == list("abcdefgh")
    assert (state.kv_length, len(state.table.block_ids)) == (5 + 1 + 8, 4)
    state.end_round(Verification(("a", "x"), 8))
    assert "".join(state.tokens) == "promptax"
    assert (state.kv_length, len(state.table.block_ids), state.table.pool.num_free) == (7, 2, 6)


@pytest.mark.parametrize("row", catalog.record("dflash-trace").rows, ids=lambda row: str(row["context_tokens_before"]))
def test_kv_length_falls_back_as_in_the_recorded_rounds(row):
    drafted = row["draft_tokens"]
    state = state_of(range(row["context_tokens_before"] - drafted), num_blocks=200, block_size=16)
    state.begin_round(range(drafted))
    assert state.kv_length == row["context_tokens_before"]
    accepted = row["accepted_draft_tokens"]
    state.end_round(Verification((*range(accepted), "corrected"), drafted))
    assert state.kv_length == row["context_tokens_after"]


def test_the_grammar_cuts_a_draft_and_steps_back():
    state = state_of(grammar=letters())
    assert state.begin_round("bacaa") == list("baca")  # behind an a must come a c
    assert state.grammar.state == "end"
    state.end_round(Verification(("b", "b"), 4))
    assert (state.grammar.state, state.grammar.allowed()) == ("start", ["a", "b"])
    assert state.kv_length == len(state.tokens) - 1


@settings(deadline=None)
@given(st.data())
def test_after_any_rounds_all_is_as_if_tokens_had_come_one_by_one(data):
    block_size = data.draw(st.integers(1, 5))
    state = state_of(data.draw(st.lists(st.integers(), min_size=1, max_size=9)), 60, block_size, letters())
    produced = []
    for _ in range(data.draw(st.integers(1, 5))):
        draft = state.begin_round(data.draw(st.text("abc", max_size=7)))
        accepted = data.draw(st.integers(0, len(draft)))
        last = data.draw(st.sampled_from(state.grammar.allowed(back=len(draft) - accepted)))
        produced += [*draft[:accepted], last]
        state.end_round(Verification((*draft[:accepted], last), len(draft)))
    plain = letters()
    for token in produced:
        plain.advance(token)
    assert state.tokens[-len(produced) :] == produced
    assert state.grammar.states == plain.states
    assert state.kv_length == len(state.tokens) - 1
    state.table.pool.check_integrity([state.table])


def test_full_prefix_blocks_stay_shared_and_untouched():
    pool = BlockPool(8, 4)
    first = SpeculativeState(range(9), BlockTable(pool))  # KV of 8 tokens: two full blocks
    other = first.table.share(8)
    first.begin_round("abc")
    first.end_round(Verification(("x",), 3))
    assert first.table.block_ids[:2] == other.block_ids
    pool.check_integrity([first.table, other])


def unchanged_by(state, error, message, call):
    before = observed(state)
    with pytest.raises(error, match=re.compile(message)):
        call(state)
    assert observed(state) == before


def in_round(draft="bac", **settings):
    state = state_of(grammar=letters(), **settings)
    state.begin_round(draft)
    return state


def forked():
    state = state_of()
    state.table.fork()
    return state


def forked_in_round():
    """A fork in the middle of a round shares the block that would have to be written again."""
    state = in_round()
    state.table.fork()
    return state


@pytest.mark.parametrize(
    ("make", "error", "message", "call"),
    [
        (lambda: state_of(num_blocks=2), OutOfBlocks, "1 blocks asked", lambda s: s.begin_round("abc")),
        (in_round, ValueError, "a round is in progress", lambda s: s.begin_round("b")),
        (state_of, ValueError, "no round is in progress", lambda s: s.end_round(Verification(("a",), 0))),
        (forked, ValueError, "table ends in a block that others reference", lambda s: s.begin_round("b")),
        (in_round, ValueError, "must be of the draft", lambda s: s.end_round(Verification(("b",), 2))),
        (in_round, ValueError, "must be of the draft", lambda s: s.end_round(Verification(("a", "a"), 3))),
        (in_round, ValueError, r"must end in one of \['c'\]", lambda s: s.end_round(Verification(("b", "a", "b"), 3))),
        (forked_in_round, ValueError, "shared or cached", lambda s: s.end_round(Verification(("b",), 3))),
        (in_round, ValueError, "num_tokens is 4; it must be an integer from 0 to 3", lambda s: s.grammar.rollback(4)),
        (in_round, ValueError, "token is 'c'; it must be one of .*'a', 'b'", lambda s: s.grammar.advance("c")),
        (in_round, ValueError, "back is 4", lambda s: s.grammar.allowed(back=4)),
    ],
)
def test_refused_and_unchanged(make, error, message, call):
    unchanged_by(make(), error, message, call)


def filled(pool):
    table = BlockTable(pool)
    table.append(1)
    return table


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: NgramDrafter(0, 3), ValueError, "min_n is 0"),
        (lambda: NgramDrafter(3, 2), ValueError, "max_n is 2; it must be an integer of at least 3"),
        (lambda: drafter_of("abab").draft(-1), ValueError, "draft_length is -1"),
        (lambda: state_of(""), ValueError, "prompt is empty"),
        (lambda: state_of("x" * 34), OutOfBlocks, "9 blocks asked for"),
        (lambda: SpeculativeState("a", filled(BlockPool(1, 1))), ValueError, "table has 1 tokens; it must be empty"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=re.compile(message)):
        call()

"""What can be reused, beyond the chapter's own numbers, and what the functions refuse. Facts: test_facts_reuse.py."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servelab import catalog, reuse
from servelab.units import MIB

TURNS = catalog.record("agent-turns").rows
LENGTHS = [turn["input_tokens"] for turn in TURNS]
COMMON = [turn["common_prefix_with_previous_turn_tokens"] for turn in TURNS]

TEXTS = st.lists(st.integers(0, 2), max_size=8)


@pytest.mark.parametrize(
    ("first", "second", "length"),
    [("abcd", "abxd", 2), ("ab", "abc", 2), ("", "a", 0), ([1, 2], (1, 2), 2), ("xabc", "yabc", 0)],
)
def test_common_prefix_length(first, second, length):
    assert reuse.common_prefix_length(first, second) == length


def test_common_prefixes_are_with_the_one_before():
    assert reuse.common_prefixes(["abc", "abd", "xbd", "xbde"]) == [0, 2, 0, 3]
    assert reuse.common_prefixes(["abc"]) == [0]
    assert reuse.common_prefixes([]) == []


def test_the_tree_of_the_first_four_agent_turns():
    # Figure 8-17; recorded as agent_replay_summary by experiment 8-4, turns counted from 1.
    tree = reuse.prefix_tree(reuse.stand_in_tokens(LENGTHS[:4], COMMON[:4]))
    assert [(node.parent, [1 + member for member in node.members], node.depth) for node in tree.nodes] == [
        (None, [1, 2, 3, 4], 206),
        (0, [1], 210),
        (0, [2, 3, 4], 312),
        (2, [2], 316),
        (2, [3, 4], 666),
        (4, [3], 670),
        (4, [4], 884),
    ]
    assert [node.edge_tokens for node in tree.nodes] == [206, 4, 106, 4, 354, 4, 218]
    assert (tree.shared_tokens, tree.private_tokens) == (666, 230)
    assert tree.saved_tokens == sum(COMMON[:4])


def test_a_tree_of_words():
    texts = [text.split() for text in ("You are a helpful assistant", "You are a coding agent", "Hello")]
    tree = reuse.prefix_tree(texts)
    assert [(node.parent, node.start, node.depth, node.members) for node in tree.nodes] == [
        (None, 0, 0, (0, 1, 2)),  # nothing in common
        (0, 0, 3, (0, 1)),
        (1, 3, 5, (0,)),
        (1, 3, 5, (1,)),
        (0, 0, 1, (2,)),
    ]


def test_a_tree_where_one_text_ends_inside_another_and_one_comes_twice():
    tree = reuse.prefix_tree(["ab", "abc", "ab"])
    assert [(node.depth, node.members) for node in tree.nodes] == [(2, (0, 1, 2)), (3, (1,))]
    assert (tree.shared_tokens, tree.private_tokens, tree.saved_tokens) == (2, 1, 4)


def test_a_conversation_of_many_turns_does_not_recurse():
    tree = reuse.prefix_tree([range(turn) for turn in range(1, 2000)])
    assert tree.saved_tokens == sum(range(1, 1999))


@given(st.lists(TEXTS, min_size=1, max_size=8))
def test_the_tree_loses_no_token(texts):
    tree = reuse.prefix_tree(texts)
    beginnings = {tuple(text[:end]) for text in texts for end in range(1, len(text) + 1)}
    assert tree.total_tokens == sum(map(len, texts))
    assert tree.shared_tokens + tree.private_tokens == len(beginnings)
    for member, text in enumerate(texts):
        path = [node for node in tree.nodes if member in node.members]
        assert sum(node.edge_tokens for node in path) == len(text)
    for node in tree.nodes:
        assert len({tuple(texts[member][: node.depth]) for member in node.members}) == 1


@given(st.lists(TEXTS, min_size=1, max_size=8))
def test_a_parent_is_what_its_children_share(texts):
    nodes = reuse.prefix_tree(texts).nodes
    for place, node in enumerate(nodes[1:], start=1):
        parent = nodes[node.parent]
        assert node.parent < place
        assert node.start == parent.depth
        assert node.edge_tokens > 0
        assert set(node.members) < set(parent.members) or texts[parent.members[0]][: parent.depth] == []


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8))
def test_stand_in_tokens_have_the_lengths_and_prefixes_asked_for(turns):
    lengths = [length for length, _ in turns]
    common = [0] + [min(*lengths[at - 1 : at + 1], turns[at][1]) for at in range(1, len(turns))]
    texts = reuse.stand_in_tokens(lengths, common)
    assert [len(text) for text in texts] == lengths
    assert reuse.common_prefixes(texts) == common


@pytest.mark.parametrize(
    ("matched", "checkpoint"), [(0, 0), (4095, 0), (4096, 4096), (8191, 4096), (10752, 8192), (99999, 8192)]
)
def test_restore_point(matched, checkpoint):
    assert reuse.restore_point(matched, [4096, 8192]) == checkpoint
    assert reuse.recomputed_tokens(matched, [8192, 4096]) == matched - checkpoint


def test_a_checkpoint_beyond_the_match_is_of_no_use():
    assert reuse.restore_point(100, [101]) == 0


@given(st.integers(1, 300), st.integers(1, 50))
def test_mean_recomputed_tokens(context_tokens, spacing):
    checkpoints = reuse.checkpoint_positions(context_tokens, spacing)
    again = [reuse.recomputed_tokens(matched, checkpoints) for matched in range(1, context_tokens + 1)]
    assert max(again) < spacing
    assert reuse.mean_recomputed_tokens(context_tokens, spacing) == pytest.approx(sum(again) / context_tokens)


@pytest.mark.parametrize(("spacing", "count", "mib"), [(4096, 2, 107.1), (1024, 8, 428.6), (256, 32, 1714.2)])
def test_denser_checkpoints_take_more(spacing, count, mib):
    # Companion of the source chapter, hybrid-prefix-state: Kimi K3 at tensor parallel 8, 8192 tokens, a card.
    size = int(catalog.record("hybrid-state").rows[0]["kda_checkpoint_mib_per_card"] * MIB)
    assert len(reuse.checkpoint_positions(8192, spacing)) == count
    assert reuse.checkpoint_bytes(8192, spacing, size) / MIB == pytest.approx(mib, abs=0.05)


@pytest.mark.parametrize(
    ("path", "replayed", "new_history", "kept_outputs", "exact"),
    [
        ("global_and_window", 0, 64, 64, True),
        ("global_only", 128, 64, 0, False),
        ("none", 0, 8256, 0, True),
    ],
)
def test_recovery_paths(path, replayed, new_history, kept_outputs, exact):
    recovery = reuse.recover(path, prefix_tokens=8192, appended_tokens=64)
    assert (recovery.replayed_tokens, recovery.new_history_tokens) == (replayed, new_history)
    assert (recovery.kept_outputs, recovery.is_encoder_exact) == (kept_outputs, exact)
    assert recovery.decoder_tokens == 128  # common to all paths
    assert recovery.token_layers == 20 * (replayed + new_history) + 20 * 128


def test_a_prefix_within_the_window_is_replayed_exactly():
    recovery = reuse.recover("global_only", prefix_tokens=100, appended_tokens=10)
    assert (recovery.replayed_tokens, recovery.is_encoder_exact, recovery.decoder_tokens) == (100, True, 110)


@given(st.integers(0, 500), st.integers(1, 500), st.integers(1, 40), st.integers(1, 40), st.integers(1, 200))
def test_the_more_is_cached_the_less_is_computed(prefix, appended, encoder_layers, decoder_layers, window):
    model = reuse.WindowedModel(encoder_layers, decoder_layers, window)
    both, history, nothing = (reuse.recover(path, prefix, appended, model) for path in reuse.RECOVERY_PATHS)
    assert appended == both.encoder_tokens <= history.encoder_tokens <= nothing.encoder_tokens == prefix + appended
    assert history.encoder_tokens - both.encoder_tokens == min(prefix, window)
    for recovery in (both, history, nothing):
        assert recovery.decoder_token_layers == min(prefix + appended, window) * decoder_layers
        assert recovery.token_layers == recovery.encoder_tokens * encoder_layers + recovery.decoder_token_layers
        assert recovery.kept_outputs <= max(0, window - appended)


@pytest.mark.parametrize("row", catalog.record("deepseek-state").rows)
def test_windowed_state_bytes(row):
    state = reuse.windowed_state_bytes(row["model"], row["context_tokens"])
    assert state == (row["global_history_bytes"], row["sliding_window_bytes"])


def test_windows_bring_the_models_closer_at_short_contexts():
    # Section 8.4.2: 3.20 times with windows at 8192 tokens, 3.95 times for the global history alone.
    v4, v41 = (reuse.windowed_state_bytes(model, 8192) for model in ("v4", "v4_1"))
    assert sum(v4) / sum(v41) == pytest.approx(3.20, abs=0.005)
    assert v4[0] / v41[0] == pytest.approx(3.95, abs=0.005)


K = 1024


@pytest.mark.parametrize(
    ("edit", "reused", "processed", "generated", "context"),
    [
        (reuse.append_context(8 * K, K), 8 * K, K, 0, 9 * K),
        (reuse.rewrite_context(8 * K, K), 0, 9 * K, 0, 9 * K),
        (reuse.summarize_context(8 * K, K, 2 * K), 0, 3 * K, 2 * K, 3 * K),
        (reuse.summarize_context(8 * K, K, 2 * K, kept_tokens=512), 512, 3 * K, 2 * K, 3 * K + 512),
    ],
)
def test_three_edits_of_the_same_history(edit, reused, processed, generated, context):
    # Figure 8-20.
    assert (edit.reused_tokens, edit.processed_tokens) == (reused, processed)
    assert (edit.generated_tokens, edit.context_tokens) == (generated, context)


@given(st.data())
def test_edits_by_length_are_edits_of_tokens(data):
    history, new, changed = (data.draw(st.integers(0, 20)) for _ in range(3))
    changed = min(changed, history)
    old, tail = list(range(history)), list(range(-new, 0))
    rewritten = [*old[:changed], *(["x"] if changed < history else []), *old[changed + 1 :], *tail]
    assert reuse.compare_contexts(old, old + tail) == reuse.append_context(history, new)
    assert reuse.compare_contexts(old, rewritten) == reuse.rewrite_context(history, new, changed)
    short = ["s"] * data.draw(st.integers(0, history - changed))
    edit, from_tokens = (
        reuse.summarize_context(history, new, len(short), changed),
        reuse.compare_contexts(old, [*old[:changed], *short, *tail]),
    )
    assert (edit.reused_tokens, edit.processed_tokens) == (from_tokens.reused_tokens, from_tokens.processed_tokens)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reuse.common_prefix_length(3, "a"), "first is 3; it must be a sequence of tokens"),
        (lambda: reuse.common_prefix_length("a", {1}), r"second is \{1\}; it must be a sequence"),
        (lambda: reuse.common_prefixes(["a", None]), "second is None"),
        (lambda: reuse.stand_in_tokens([1, 2], [0]), "common has 1 entries; it must have one for each of the 2"),
        (lambda: reuse.stand_in_tokens([1, -2], [0, 0]), r"lengths\[1\] is -2; it must be an integer of at least 0"),
        (lambda: reuse.stand_in_tokens([5, 3], [0, 4]), r"common\[1\] is 4; it must be an integer from 0 to 3"),
        (lambda: reuse.stand_in_tokens([5, 3], [1, 0]), r"common\[0\] is 1; it must be an integer from 0 to 0"),
        (lambda: reuse.prefix_tree([]), "sequences is empty; it must hold at least one"),
        (lambda: reuse.prefix_tree(["a", 2]), r"sequences\[1\] is 2; it must be a sequence of tokens"),
        (lambda: reuse.checkpoint_positions(-1, 5), "context_tokens is -1; it must be an integer of at least 0"),
        (lambda: reuse.checkpoint_positions(10, 0), "spacing is 0; it must be an integer of at least 1"),
        (lambda: reuse.restore_point(-1, [5]), "matched_tokens is -1"),
        (lambda: reuse.restore_point(7, [5, 0]), "checkpoints is 0; it must be an integer of at least 1"),
        (lambda: reuse.recomputed_tokens(1.5, [1]), "matched_tokens is 1.5"),
        (lambda: reuse.mean_recomputed_tokens(0, 5), "context_tokens is 0"),
        (lambda: reuse.mean_recomputed_tokens(5, 0), "spacing is 0"),
        (lambda: reuse.checkpoint_bytes(10, 5, 0), "bytes_per_checkpoint is 0"),
        (lambda: reuse.WindowedModel(0, 20, 128), "encoder_layers is 0"),
        (lambda: reuse.WindowedModel(20, 0, 128), "decoder_layers is 0"),
        (lambda: reuse.WindowedModel(20, 20, 0), "window is 0"),
        (lambda: reuse.recover("global", 1, 1), "path is 'global', which is not known; did you mean global_only"),
        (lambda: reuse.recover("none", -1, 1), "prefix_tokens is -1"),
        (lambda: reuse.recover("none", 1, 0), "appended_tokens is 0; it must be an integer of at least 1"),
        (lambda: reuse.long_term_storage_ratio(1.1, 0.5), "window_share is 1.1; .* at least 0 and at most 1"),
        (lambda: reuse.long_term_storage_ratio(0.5, -1), "global_ratio is -1"),
        (lambda: reuse.windowed_state_bytes("v5", 8192), "model is 'v5', which is not known; did you mean v4, v4_1"),
        (lambda: reuse.windowed_state_bytes("v4", 127), "context_tokens is 127; it must be an integer of at least 128"),
        (lambda: reuse.compare_contexts([1], 1), "second is 1"),
        (lambda: reuse.append_context(-1, 1), "history_tokens is -1"),
        (lambda: reuse.append_context(1, -1), "new_tokens is -1"),
        (lambda: reuse.rewrite_context(5, 1, 6), "first_changed is 6; it must be an integer from 0 to 5"),
        (lambda: reuse.summarize_context(5, 1, 6), "summary_tokens is 6; it must be an integer from 0 to 5"),
        (lambda: reuse.summarize_context(5, 1, 1, 6), "kept_tokens is 6; it must be an integer from 0 to 5"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=re.compile(message)):
        call()

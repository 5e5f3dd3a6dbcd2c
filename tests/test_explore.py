"""Explorers: the table of states gives back every state, and wrong axes are refused."""

import itertools
import json
import math

import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servelab.explore import MAX_STATES, MIME_TYPE, Axis, explore
from servelab.figures import paging
from servelab.states import compact, state_at

SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
DOCUMENTS = st.recursive(
    SCALARS | st.lists(SCALARS, max_size=3),
    lambda inner: (
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1)
        | st.lists(st.dictionaries(st.sampled_from("xy"), inner, min_size=1), min_size=1, max_size=3)
    ),
    max_leaves=8,
)


@st.composite
def explorers(draw):
    """Axis lengths, and a document for each state."""
    lengths = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    num_states = math.prod(lengths)
    documents = st.fixed_dictionaries({"figure": DOCUMENTS})
    return lengths, draw(st.lists(documents, min_size=num_states, max_size=num_states))


@settings(deadline=None)
@given(explorers())
def test_every_state_comes_back(explorer):
    lengths, documents = explorer
    content = {"axes": [{"options": [""] * length} for length in lengths], "leaves": compact(lengths, documents)}
    content = json.loads(json.dumps(content))
    for indices, document in zip(itertools.product(*map(range, lengths)), documents, strict=True):
        assert state_at(content, list(indices)) == document


def test_a_leaf_is_stored_once_over_the_axes_it_depends_on():
    documents = [{"constant": 7, "row": i, "both": 10 * i + j} for i in range(4) for j in range(3)]
    leaves = {tuple(path): (axes, len(values), len(rows)) for path, axes, values, rows in compact([4, 3], documents)}
    assert leaves == {("constant",): ([], 1, 1), ("row",): ([0], 4, 4), ("both",): ([0, 1], 12, 12)}


def paging_explorer():
    return explore(
        paging.paging_explorer,
        block_size=Axis(paging.BLOCK_SIZES, unit="tokens", start=4),
        lengths={"9, 13, 5, 15": (9, 13, 5, 15), "1, 1, 1, 1": (1, 1, 1, 1)},
        common_prefix=[0, 6, 8],
    )


def test_paging_explorer_says_what_it_shows():
    explorer = paging_explorer()
    content = explorer.table()
    assert [axis["control"] for axis in content["axes"]] == ["slider", "menu", "slider"]
    for indices in itertools.product(*(range(len(axis["options"])) for axis in content["axes"])):
        labels = [axis["options"][i] for axis, i in zip(content["axes"], indices, strict=True)]
        assert state_at(content, list(indices)) == explorer.state(labels)
    assert explorer.state(["4", "9, 13, 5, 15", "8"])["text"] == (
        "Blocks of 4: 11 physical blocks give 44 slots, 10 of them unused (reserving takes 64); the tables have "
        "13 entries. A and B share 2 blocks with 8 of their 8 common tokens."
    )
    says = [
        explorer.state(labels)["text"].split(". ", 1)[1]
        for labels in (
            ["16", "9, 13, 5, 15", "8"],
            ["1", "1, 1, 1, 1", "8"],
            ["2", "1, 1, 1, 1", "8"],
            ["4", "9, 13, 5, 15", "6"],
        )
    ]
    assert says == [
        "The 8 common tokens of A and B fill no whole block: nothing is shared.",
        "A and B share 1 block with 1 of their 1 common token (they hold only 1).",
        "The 1 common token of A and B (they hold only 1) fills no whole block: nothing is shared.",
        "A and B share 1 block with 4 of their 6 common tokens; 2 are stored twice.",
    ]


def test_widget_moves_and_resets():
    box = paging_explorer().widget()
    slider, menu, _, reset, text, figure = box.children
    assert text.value.startswith("Blocks of 4: 13 physical blocks")
    before = figure.outputs
    slider.value = "16"
    assert text.value.startswith("Blocks of 16: 4 physical blocks")
    assert figure.outputs != before
    menu.value = "1, 1, 1, 1"
    reset.click()
    assert (slider.value, menu.value) == ("4", "9, 13, 5, 15")
    assert figure.outputs == before


def test_display_has_the_table_and_a_sentence():
    bundle = paging_explorer()._repr_mimebundle_()
    assert bundle["text/plain"].startswith("Blocks of 4: 13")
    assert bundle[MIME_TYPE]["name"] == "paging"


def square(n, sign):
    return go.Figure(), f"{sign * n * n}"


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"n": [1]}, "axes are n; square takes n, sign"),
        ({"n": [1], "sign": [1], "more": [1]}, "axes are n, sign, more"),
        ({"n": [], "sign": [1]}, "values is empty"),
        ({"n": range(MAX_STATES), "sign": [1, -1]}, f"axes span {2 * MAX_STATES} states; at most {MAX_STATES}"),
    ],
)
def test_wrong_axes_are_refused(axes, message):
    with pytest.raises(ValueError, match=message):
        explore(square, **axes)


def test_only_a_slider_can_be_played():
    with pytest.raises(ValueError, match="play is True and values is a mapping"):
        Axis({"one": 1}, play=True)


def test_the_table_says_which_axis_plays():
    axes = explore(square, n=Axis([1, 2], play=True), sign=[1, -1]).table()["axes"]
    assert [axis.get("play") for axis in axes] == [True, None]


def test_player_and_slider_follow_each_other():
    box = explore(square, n=Axis([1, 2, 3], start=2, play=True), sign=[1]).widget()
    (play, slider), text, reset = box.children[0].children, box.children[3], box.children[2]
    assert (play.value, play.max) == (1, 2)
    play.value = 2
    assert (slider.value, text.value) == ("3", "9")
    slider.value = "1"
    assert (play.value, text.value) == (0, "1")
    reset.click()
    assert (play.value, slider.value) == (1, "2")


def test_start_must_be_a_value():
    with pytest.raises(ValueError, match="start is 3; it must be one of 1, 2"):
        Axis([1, 2], start=3)

"""A compact table of all states of an explorer: each leaf of its JSON once where it is constant, else only over
the axes that it depends on. `explore.js` puts a state together again; there is no second implementation of a figure.
"""

import itertools
import json

ABSENT = -1  # this state has no such leaf


def leaves(document, path=()):
    """Yield (path, value) for each leaf. Dicts, and lists that hold dicts, are walked; all else is a leaf."""
    if isinstance(document, dict):
        children = document.items()
    elif isinstance(document, list) and any(isinstance(item, dict) for item in document):
        children = enumerate(document)
    else:
        yield path, document
        return
    for key, child in children:
        yield from leaves(child, (*path, key))


def compact(axis_lengths: list[int], documents: list[dict]) -> list:
    """Leaves of `documents`, one document a state in row-major order of the axes.

    Returns [path, axes, distinct values, index of the value for each combination of those axes] a leaf, the last
    of the axes running fastest; a leaf that some state lacks has `ABSENT` there.
    """
    states = list(itertools.product(*map(range, axis_lengths)))
    flat = [dict(leaves(document)) for document in documents]
    # In order of the indices in them, so that whoever puts a state together only ever appends to a list.
    paths = sorted({path for state in flat for path in state}, key=_list_order)
    return [_compact_leaf(path, states, flat, len(axis_lengths)) for path in paths]


def _list_order(path):
    return [(isinstance(key, str), key) for key in path]  # a list's indices and a dict's keys do not compare


def _compact_leaf(path, states, flat, num_axes):
    values, indices, known = [], {}, {}
    for state, document in zip(states, flat, strict=True):
        if path not in document:
            indices[state] = ABSENT
            continue
        key = json.dumps(document[path])
        if key not in known:
            known[key] = len(values)
            values.append(document[path])
        indices[state] = known[key]
    axes = [axis for axis in range(num_axes) if _depends_on(axis, indices)]
    # One state for each combination of the axes that matter; the others stand at their first value.
    rows = [indices[state] for state in states if all(state[axis] == 0 for axis in range(num_axes) if axis not in axes)]
    return [list(path), axes, values, rows]


def _depends_on(axis, indices):
    return any(index != indices[(*state[:axis], 0, *state[axis + 1 :])] for state, index in indices.items())


def state_at(content: dict, indices: list[int]) -> dict:
    """The document at one index an axis: the inverse of `compact`, and what `stateAt` in `explore.js` does."""
    lengths = [len(axis["options"]) for axis in content["axes"]]
    document: dict = {}
    for path, axes, values, rows in content["leaves"]:
        row = 0
        for axis in axes:
            row = row * lengths[axis] + indices[axis]
        if rows[row] == ABSENT:
            continue
        if not path:
            return values[rows[row]]
        _put(document, path, values[rows[row]])
    return document


def _put(document, path, value) -> None:
    here = document
    for key, following in itertools.pairwise(path):
        here = _child(here, key, [] if isinstance(following, int) else {})
    _child(here, path[-1], value)


def _child(container, key, new):
    """`container[key]`, which becomes `new` if there is none. A list only grows at its end."""
    if isinstance(container, dict):
        return container.setdefault(key, new)
    if key == len(container):
        container.append(new)
    return container[key]

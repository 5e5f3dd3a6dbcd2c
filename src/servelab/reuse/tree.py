"""What texts have in common from their start: common prefixes and the tree that they form (section 8.3.3)."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from servelab import catalog
from servelab.checks import require_int


def common_prefix_length(first: Sequence, second: Sequence) -> int:
    """Tokens from the start in which two sequences agree; what comes after the first difference does not count.

    Tokens may be ids, words or characters. Raises `ValueError` for anything but sequences.
    """
    _require_sequence("first", first)
    _require_sequence("second", second)
    pairs = zip(first, second, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def common_prefixes(sequences: Iterable[Sequence]) -> list[int]:
    """For each sequence, the tokens that it has in common with the one before; 0 for the first (figure 8-18)."""
    sequences = list(sequences)
    return [0, *itertools.starmap(common_prefix_length, itertools.pairwise(sequences))][: len(sequences)]


def stand_in_tokens(lengths: Iterable[int], common: Iterable[int]) -> list[list[int]]:
    """Token ids with these lengths, each with `common` tokens taken from the one before and the rest seen nowhere else.

    For recorded conversations of which only lengths and common prefixes are known (record "agent-turns"). What a text
    has in common with one further back follows only if a beginning that was left never comes back: that is assumed.
    """
    lengths, common = list(lengths), list(common)
    if len(lengths) != len(common):
        raise ValueError(f"common has {len(common)} entries; it must have one for each of the {len(lengths)} lengths")
    for at, (length, shared) in enumerate(zip(lengths, common, strict=True)):
        require_int(f"lengths[{at}]", length)
        require_int(f"common[{at}]", shared, maximum=min(length, lengths[at - 1]) if at else 0)
    sequences, unused = [], 0
    for length, shared in zip(lengths, common, strict=True):
        fresh = range(unused, unused + length - shared)
        sequences.append([*(sequences[-1][:shared] if sequences else []), *fresh])
        unused = fresh.stop
    return sequences


def recorded_turns() -> list[list[int]]:
    """The twelve inputs of record "agent-turns": its lengths and common prefixes, with stand-ins for the words."""
    rows = catalog.record("agent-turns").rows
    common = [row["common_prefix_with_previous_turn_tokens"] for row in rows]
    return stand_in_tokens([row["input_tokens"] for row in rows], common)


@dataclass(frozen=True)
class PrefixNode:
    """A run of tokens after which its sequences part or end. The edge to its parent is what it adds."""

    parent: int | None  # its place in `PrefixTree.nodes`; None for the root
    start: int  # tokens before the edge: the depth of the parent, 0 for the root
    depth: int  # tokens from the start of the text to the end of the edge
    members: tuple[int, ...]  # the sequences that begin with these tokens

    @property
    def edge_tokens(self) -> int:
        return self.depth - self.start


@dataclass(frozen=True)
class PrefixTree:
    """Several sequences with each common run stored once. A parent stands before its children in `nodes`."""

    nodes: tuple[PrefixNode, ...]

    @property
    def shared_tokens(self) -> int:
        """Stored tokens that more than one sequence uses."""
        return sum(node.edge_tokens for node in self.nodes if len(node.members) > 1)

    @property
    def private_tokens(self) -> int:
        """Stored tokens of one sequence each."""
        return sum(node.edge_tokens for node in self.nodes if len(node.members) == 1)

    @property
    def total_tokens(self) -> int:
        """Tokens of all sequences, as if nothing were shared."""
        return sum(node.edge_tokens * len(node.members) for node in self.nodes)

    @property
    def saved_tokens(self) -> int:
        """Tokens that need not be stored again, or, in order of arrival, not be computed again."""
        return self.total_tokens - self.shared_tokens - self.private_tokens


def prefix_tree(sequences: Iterable[Sequence]) -> PrefixTree:
    """The compressed prefix tree (radix tree) of `sequences`; members are places in that list (figure 8-17).

    Its root holds what all have in common, 0 tokens if they differ from the start. Equal sequences end in one node.
    Zheng et al. 2023, SGLang, arXiv:2312.07104 (RadixAttention). Raises `ValueError` if there is no sequence.
    """
    sequences = list(sequences)
    if not sequences:
        raise ValueError("sequences is empty; it must hold at least one sequence")
    for at, sequence in enumerate(sequences):
        _require_sequence(f"sequences[{at}]", sequence)
    nodes = []
    # A stack instead of recursion: a conversation of n turns makes a tree n levels deep.
    pending = [(None, 0, tuple(range(len(sequences))))]
    while pending:
        parent, start, members = pending.pop()
        depth = _agreeing_depth([sequences[member] for member in members], start)
        nodes.append(PrefixNode(parent, start, depth, members))
        branches = {}
        for member in members:
            if len(sequences[member]) > depth:
                branches.setdefault(sequences[member][depth], []).append(member)
        pending.extend((len(nodes) - 1, depth, tuple(branch)) for branch in reversed(branches.values()))
    return PrefixTree(tuple(nodes))


def _agreeing_depth(sequences: list[Sequence], start: int) -> int:
    """How far all `sequences` agree that are known to agree up to `start`."""
    first, *others = sequences
    depth = len(first)
    for other in others:
        depth = start + common_prefix_length(first[start:depth], other[start:depth])
    return depth


def _require_sequence(name: str, tokens: Sequence) -> None:
    if not isinstance(tokens, Sequence):
        raise ValueError(f"{name} is {tokens!r}; it must be a sequence of tokens")

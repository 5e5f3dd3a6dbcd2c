"""The twelve agent turns, on two independent models of the cache: the engine's prefix cache and the block LRU."""

import pytest

from servelab import catalog, retention, reuse
from servelab.cost import StepCost
from servelab.engine import Request, simulate

TURNS = catalog.record("agent-turns").rows
TEXTS = reuse.stand_in_tokens(
    [turn["input_tokens"] for turn in TURNS], [turn["common_prefix_with_previous_turn_tokens"] for turn in TURNS]
)
LOAD = [f"{turn} {request}" for turn in range(1, 12) for request in range(3)]  # between the turns


def engine_hits(num_blocks):
    """Hit tokens of each turn in the engine: one request at a time, three foreign ones between two turns."""
    requests, time_s = [], 0.0
    for turn, text in enumerate(TEXTS):
        for name in (name for name in LOAD if name.split()[0] == str(turn)):
            first = 10**6 + 4000 * LOAD.index(name)
            requests.append(Request(name, time_s, range(first, first + 4000), 1))
            time_s += 10
        requests.append(Request(f"turn {turn}", time_s, text, 1))
        time_s += 10
    step_cost = StepCost(1e-3, 0, 0)
    trace = simulate(requests, step_cost, policy="continuous", num_blocks=num_blocks, prefix_caching=True)
    return [trace[f"turn {turn}"].num_cached_tokens for turn in range(len(TEXTS))]


@pytest.mark.parametrize(
    ("num_blocks", "total"), [(2730, 16304), (455, 0), (1000, None), (800, None)], ids=["6 GiB", "1 GiB", "1000", "800"]
)
def test_engine_and_block_lru_agree(num_blocks, total):
    hits = engine_hits(num_blocks)
    assert hits == retention.replay_turns(TEXTS, num_blocks, load_requests=3, load_tokens=4000)
    assert total is None or sum(hits) == total

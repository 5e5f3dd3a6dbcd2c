"""Figures of section 8.2.2: the four requests of its example under each policy."""

from functools import cache

from servelab import catalog
from servelab.cost import StepCost
from servelab.engine import Request, Trace, simulate
from servelab.figures.schedule import timeline

SIZES = [("r0", 2048, 8), ("r1", 2048, 2), ("r2", 8192, 2), ("r3", 2048, 4)]  # id, input, output tokens
ARRIVALS = {
    "0, 0, 20, 30 ms": (0.0, 0.0, 0.02, 0.03),
    "all at once": (0.0, 0.0, 0.0, 0.0),
    "every 200 ms": (0.0, 0.2, 0.4, 0.6),
}
POLICIES = {
    "static": "static",
    "continuous": "continuous",
    "chunked": "chunked",
    "one at a time": "serial",
}
MAX_RUNNING = [1, 2, 3, 4]
REFERENCE = catalog.step_cost("rtx-pro-6000", "qwen3-8b")  # fitted to experiment 8-1


@cache
def run(
    policy: str,
    max_running: int = 2,
    arrivals_s: tuple[float, ...] = ARRIVALS["0, 0, 20, 30 ms"],
    step_cost: StepCost = REFERENCE,
) -> Trace:
    """The four requests on the reference or another machine; chunks of 2048 tokens, 4096 tokens a step."""
    requests = [
        Request(name, arrival_s, prompt, output)
        for (name, prompt, output), arrival_s in zip(SIZES, arrivals_s, strict=True)
    ]
    return simulate(requests, step_cost, policy, max_running)


def policy_explorer(policy, max_running, arrivals, step_cost=REFERENCE):
    """Counterpart of figures 8-5, 8-6 and 8-7: the schedule of the four requests, on one time axis for all policies."""
    trace, static = (run(name, max_running, arrivals, step_cost) for name in (policy, "static"))
    end_s = max(run(name, 1, arrivals, step_cost).total_s for name in POLICIES.values())
    label = next(label for label, name in POLICIES.items() if name == policy)
    text = (
        f"{label.capitalize()}, at most {max_running} running: all done after {1e3 * trace.total_s:.0f} ms, "
        f"longest gap {1e3 * trace.max_itl_s:.0f} ms."
    )
    if policy != "static":
        text += f" Static: {1e3 * static.total_s:.0f} ms and {1e3 * static.max_itl_s:.0f} ms."
    return timeline(trace, end_s), text

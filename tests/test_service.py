"""A service under load: Little's law on every trace, admission, goodput and its knee."""

import re
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servelab import catalog, service
from servelab.cost import StepCost
from servelab.engine import BlockPool, Request, Scheduler, simulate
from servelab.service import Admission, Outcome

STEP = catalog.step_cost("rtx-pro-6000", "qwen3-8b")
QUICK = StepCost(1.0, 0.0, 0.0)  # one second a step


def scheduler(max_running=4, num_blocks=1000):
    return Scheduler(BlockPool(num_blocks, 16), "continuous", max_running)


def test_fixed_arrivals():
    assert service.fixed_arrivals(4, 3) == [0, 0.25, 0.5]


def test_poisson_arrivals_have_their_rate_and_repeat_with_their_seed():
    times = service.poisson_arrivals(5, 4000, seed=1)
    gaps = [later - earlier for earlier, later in zip([0, *times], times, strict=False)]
    assert statistics.mean(gaps) == pytest.approx(1 / 5, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(1 / 5, rel=0.05)  # exponential: as large as the mean
    assert times == service.poisson_arrivals(5, 4000, seed=1) != service.poisson_arrivals(5, 4000, seed=2)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 3), st.integers(1, 300), st.integers(1, 20)), min_size=1, max_size=12),
    st.sampled_from(["serial", "static", "continuous", "chunked"]),
    st.integers(1, 5),
)
def test_littles_law_holds_on_every_trace(asked, policy, max_running):
    requests = [Request(f"r{i}", *request) for i, request in enumerate(asked)]
    trace = simulate(requests, STEP, policy=policy, max_running=max_running, token_budget=64, chunk=32)
    assert service.littles_law(trace).holds


def test_littles_law_of_a_known_trace():
    """Two requests of one and two steps, one after the other: three seconds, stays of 1 s and 3 s."""
    trace = simulate([Request("a", 0, 8, 1), Request("b", 0, 8, 2)], QUICK, policy="serial")
    law = service.littles_law(trace)
    assert (law.mean_in_system, law.arrival_rate, law.mean_time_s) == pytest.approx((4 / 3, 2 / 3, 2))


def test_goodput_counts_what_is_right_and_in_time():
    results = [
        Outcome(0, 2.9),
        Outcome(1, 4.0),  # exactly at the deadline
        Outcome(1, 4.1),  # late
        Outcome(0, 1.0, correct=False),
        Outcome(0, None),  # refused
    ]
    assert service.goodput(results, deadline_s=3, window_s=2) == 1
    assert service.completion_rate(results, window_s=2) == 2


def test_goodput_of_the_recorded_requests_is_the_recorded_goodput():
    """From planned arrivals and completions of window 1 of experiment 8-9, for each of its seven conditions."""
    requests, windows = catalog.record("service-requests"), catalog.record("service-windows")
    for window in windows.where(window=1):
        condition = {key: window[key] for key in ("admission", "arrival_rate_req_per_s")}
        results = [
            Outcome(
                row["planned_arrival_s"],
                row["planned_arrival_s"] + row["completion_from_planned_arrival_s"],
                bool(row["correct"]),
            )
            for row in requests.where(**condition)
        ]
        rate = service.goodput(results, deadline_s=3, window_s=window["window_s"])
        assert rate == pytest.approx(window["goodput_req_per_s"], abs=1e-4), condition


def test_admission_by_memory():
    admission = Admission(5, 16, deadline_s=1e9, own_time_s=lambda request: 0, wait_s=lambda ahead: 0)
    requests = [Request(f"r{i}", 0.0, 17, 16) for i in range(4)]  # 32 tokens written: two blocks each
    trace, refused = service.serve(requests, scheduler(num_blocks=5), QUICK, admission)
    assert [record.id for record in trace.requests] == ["r0", "r1"]
    assert refused == {"r2": "needs 2 blocks, 1 of 5 are left", "r3": "needs 2 blocks, 1 of 5 are left"}


def test_admission_by_remaining_time_sees_who_has_left():
    admission = Admission(1000, 16, deadline_s=6, own_time_s=lambda request: request.max_tokens, wait_s=lambda n: 4 * n)
    requests = [Request("a", 0.0, 8, 4), Request("b", 1.0, 8, 4), Request("c", 5.0, 8, 4)]
    trace, refused = service.serve(requests, scheduler(max_running=1), QUICK, admission)
    assert refused == {"b": "would take 8.00 s of 6 s"}
    assert {record.id: record.finish_s for record in trace.requests} == {"a": 4, "c": 9}
    assert service.outcomes(trace)[1].is_good(deadline_s=6)


def test_admission_does_not_run_ahead_to_a_cancellation_of_who_has_left():
    """The engine is idle from 1 to 3 s, and a's cancellation at 7 s is void: b starts at 3 s."""
    admission = Admission(1000, 16, deadline_s=9, own_time_s=lambda request: 1, wait_s=lambda ahead: ahead)
    requests = [Request("a", 0, 8, 1, cancel_s=7), Request("b", 3, 8, 1, cancel_s=10)]
    trace, refused = service.serve(requests, scheduler(), QUICK, admission)
    assert not refused
    assert [(record.status, record.finish_s) for record in trace.requests] == [("finished", 1), ("finished", 4)]


def test_goodput_falls_beyond_the_knee():
    """The shape of figures 8-33 and 8-34: completions level off, goodput drops."""
    curve = service.load_curve([1, 2, 4, 16], 16, 4096, 46, STEP, 3.0, 4, token_budget=4096, chunk=2048)
    completed = [load.completed for load in curve]
    assert completed == sorted(completed)
    knee = service.knee(curve)
    assert 1 < knee.arrival_rate < 16
    assert curve[-1].goodput < 0.7 * knee.goodput
    assert all(load.goodput <= load.completed for load in curve)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: service.fixed_arrivals(0, 1), "rate is 0; it must be a finite number above 0"),
        (lambda: service.fixed_arrivals(1, -1), "count is -1"),
        (lambda: service.poisson_arrivals(-1, 1, 0), "rate is -1"),
        (lambda: service.poisson_arrivals(1, 1.5, 0), "count is 1.5"),
        (lambda: service.mean_in_system(-1, 1), "arrival_rate is -1"),
        (lambda: service.mean_in_system(1, float("inf")), "time_in_system_s is inf"),
        (
            lambda: service.littles_law(simulate([], QUICK)),
            "trace has requests that have not left; it must be finished",
        ),
        (lambda: service.completion_rate([], 0), "window_s is 0"),
        (lambda: service.goodput([], 0, 1), "deadline_s is 0"),
        (lambda: service.goodput([], 1, -1), "window_s is -1"),
        (lambda: service.knee([]), "curve is empty"),
        (lambda: service.requests_at([0.0], 0, 1), "prompt is 0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()

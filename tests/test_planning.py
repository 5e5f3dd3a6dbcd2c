"""Choosing configurations: feasibility with its reasons, costs, sensitivity, sweeps on any executor."""

import math
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servelab import chapter_plans, planning
from servelab.planning import Configuration, Workload
from servelab.units import GIB

CONFIGURATIONS = chapter_plans.configurations()
CASE = (CONFIGURATIONS["A"], chapter_plans.WORKLOAD, chapter_plans.MODEL)


def plans(pool_gib=12, **changes):
    workload = replace(chapter_plans.WORKLOAD, **changes)
    return {
        name: planning.evaluate(configuration, workload, chapter_plans.MODEL, round(pool_gib * GIB), power_w=600)
        for name, configuration in CONFIGURATIONS.items()
    }


def feasible_names(**changes):
    return "".join(name for name, plan in plans(**changes).items() if plan.feasible)


def test_each_rejection_says_why():
    reasons = {name: plan.reasons for name, plan in plans().items()}
    assert reasons == {
        "A": ("needs 18.56 GiB of 12.00 GiB", "takes 14.90 s of 7 s"),
        "B": ("takes 9.01 s of 7 s",),
        "C": ("takes 14.55 s of 7 s",),
        "D": (),
        "E": (),
    }


@pytest.mark.parametrize(
    ("changes", "feasible", "chosen"),
    [
        ({}, "DE", "D"),
        ({"pool_gib": 6}, "E", "E"),
        ({"pool_gib": 5}, "", None),
        ({"output_tokens": 16}, "BDE", "E"),  # E needs 8 rounds of 27.45 ms and no longer prefill
        ({"deadline_s": 5.0}, "D", "D"),
        ({"deadline_s": 15.0}, "BCDE", "D"),
    ],
)
def test_sensitivity(changes, feasible, chosen):
    assert feasible_names(**changes) == feasible
    choice = planning.choose(plans(**changes).values())
    assert (choice and choice.configuration.name) == chosen


def test_a_plan_without_good_results_costs_infinitely():
    late = plans()["B"]
    assert (late.good_results, late.gpu_s_per_good, late.joules_per_good) == (0, math.inf, math.inf)
    assert planning.choose([late]) is None


def test_accuracy_raises_the_cost_of_a_good_result():
    args = (CONFIGURATIONS["D"], chapter_plans.WORKLOAD, chapter_plans.MODEL, 12 * GIB, 600)
    all_good, half = planning.evaluate(*args), planning.evaluate(*args, accuracy=0.5)
    assert half.gpu_s_per_good == 2 * all_good.gpu_s_per_good


@given(st.floats(0, 1), st.floats(1, 100))
def test_amdahl_is_the_ratio_of_times(fraction, speedup):
    before, after = 100.0, 100 * (1 - fraction) + 100 * fraction / speedup
    assert planning.amdahl(fraction, speedup) == pytest.approx(before / after)
    free = planning.break_even_preparation(fraction, speedup)
    assert planning.amdahl(fraction, speedup, preparation=free) == pytest.approx(1)


def test_interpolate():
    points = [(1, 10), (3, 30), (4, 0)]
    assert [planning.interpolate(x, points) for x in (1, 2, 3, 3.5, 4)] == [10, 20, 30, 15, 0]


def total_at(pool_gib):
    """At module level, since it must reach other processes."""
    return feasible_names(pool_gib=pool_gib)


def test_sweep_runs_on_local_processes_and_on_any_executor():
    expected = ["", "E", "DE"]
    assert planning.sweep(total_at, [5, 6, 12]) == expected
    with ThreadPoolExecutor(2) as threads:
        assert planning.sweep(total_at, [5, 6, 12], executor=threads) == expected


def test_sweep_runs_on_a_dask_cluster():
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1")
    with cluster, Client(cluster) as client:
        assert planning.sweep(total_at, [5, 6, 12], executor=client.get_executor()) == ["", "E", "DE"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Workload(0, 1, 1, 1.0), "requests is 0"),
        (lambda: Workload(1, 10, 1, 1.0, shared_prefix=11), "shared_prefix is 11; it must be an integer from 0 to 10"),
        (lambda: Workload(1, 10, 1, 0), "deadline_s is 0; it must be a finite number above 0"),
        (lambda: Configuration("x", -1, 1), "prefill_s is -1"),
        (lambda: Configuration("x", 1, 0), "round_s is 0"),
        (lambda: Configuration("x", 1, 1, tokens_per_round=0.5), "tokens_per_round is 0.5"),
        (lambda: Configuration("x", 1, 1, extra_bytes=-1), "extra_bytes is -1"),
        (lambda: planning.evaluate(*CASE, pool_bytes=-1, power_w=600), "pool_bytes is -1"),
        (lambda: planning.evaluate(*CASE, pool_bytes=1, power_w=-1), "power_w is -1"),
        (lambda: planning.evaluate(*CASE, pool_bytes=1, power_w=1, accuracy=2), "accuracy is 2"),
        (lambda: planning.gpu_seconds(1, 0, 1, 1), "output_tokens is 0"),
        (lambda: planning.gpu_seconds(1, 1, 0, 1), "prefill_rate is 0"),
        (lambda: planning.interpolate(5, [(1, 1), (2, 2)]), "x is 5; it must be a finite number of at least 1 and"),
        (lambda: planning.interpolate(1, []), "points is []"),
        (lambda: planning.interpolate(1, [(1, 2)]), "points is [(1, 2)]; it must have two points or more"),
        (lambda: planning.interpolate(1, [(1, 2), (1, 3)]), "no two at one x"),
        (lambda: planning.amdahl(1.5, 2), "fraction is 1.5"),
        (lambda: planning.amdahl(0.5, 0), "speedup is 0"),
        (lambda: planning.break_even_preparation(0.5, 0.5), "speedup is 0.5"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()

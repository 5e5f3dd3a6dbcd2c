"""Numbers of section 8.6 and of exercises 8-8 and 8-9. Collected by test_facts.py."""

from dataclasses import replace
from statistics import median

from servelab import catalog, chapter_plans, cost, planning, service
from servelab.units import GIB, MIB

CONFIGURATIONS = chapter_plans.configurations()
CACHED = catalog.record("batch-sweep").row(condition="8k_6k_cached", batch=16)
RATES = {"prefill": CACHED["prefill_new_tok_per_s"], "decode": 16 / (CACHED["decode_step_ms"] / 1e3)}


WINDOWS = catalog.record("service-windows")
SATURATED = {"serial_4": ("serial", 4), "continuous_4": ("continuous", 4), "continuous_16": ("continuous", 16)}


def windows_total(*columns):
    return sum(sum(row[column] for column in columns) for row in WINDOWS.rows)


def window_median(column, admission, rate):
    """The median of a condition's three windows."""
    return median(row[column] for row in WINDOWS.where(admission=admission, arrival_rate_req_per_s=rate))


def medians(column, **conditions):
    return {name: window_median(column, *condition) for name, condition in conditions.items()}


def both_at_1():
    rates = [window_median("goodput_req_per_s", admission, 1) for admission in ("serial", "continuous")]
    return sum(rates) / 2


def plan(name, pool_gib=12, **changes):
    workload = replace(chapter_plans.WORKLOAD, **changes)
    return planning.evaluate(CONFIGURATIONS[name], workload, chapter_plans.MODEL, pool_gib * GIB, power_w=600)


def chosen(names, **settings):
    choice = planning.choose(plan(name, **settings) for name in names)
    return choice.configuration.name if choice else "none"


def plan_e():
    """Exercise 8-9 rounds the measured prefill of 2.0405 s to 2.04 s."""
    configuration = replace(CONFIGURATIONS["E"], prefill_s=2.04)
    return planning.evaluate(configuration, chapter_plans.WORKLOAD, chapter_plans.MODEL, 12 * GIB, power_w=600)


def gpu_s_b():
    return planning.gpu_seconds(8192 - 6144, 256, RATES["prefill"], RATES["decode"])


def amdahl_example(decode_s):
    speedup = planning.amdahl(decode_s / 100, 4)
    return [100 / speedup, speedup]


def agent_total(**halved):
    stages = {"prefill": 20, "decode": 50, "tools": 30}
    return sum(seconds / (2 if name in halved else 1) for name, seconds in stages.items())


COMPUTED = {
    "little": lambda: {
        f"4/s x {time_s:g} s": service.mean_in_system(arrival_rate=4, time_in_system_s=time_s) for time_s in (0.5, 2)
    },
    "service.counts": lambda: {
        "answers": windows_total("requests"),
        "correct": windows_total("correct"),
        "correct_and_in_time": windows_total("correct_within_3s"),
        "correct_late": windows_total("correct") - windows_total("correct_within_3s"),
    },
    "service.completion": lambda: medians("completed_req_per_s", **SATURATED),
    "service.goodput": lambda: {"both_1": both_at_1(), **medians("goodput_req_per_s", **SATURATED)},
    "service.energy": lambda: medians("energy_j_per_good_result", continuous_1=("continuous", 1), **SATURATED),
    "plan.memory": lambda: {name: plan(name).memory_bytes / MIB for name in "ABCD"},
    "plan.prefill": lambda: {name: CONFIGURATIONS[name].prefill_s for name in "ABCD"},
    "plan.work_a": lambda: cost.step_flops(chapter_plans.MODEL, [(8192, 0)] * 16) / 1e12,
    "plan.step": lambda: {name: 1e3 * CONFIGURATIONS[name].round_s for name in "ABCD"},
    "plan.verify_work": lambda: {
        "tflop": chapter_plans.verify_flops() / 1e12,
        "ms": 1e3 * chapter_plans.verify_flops() / chapter_plans.CARD.flops / CACHED["prefill_mfu"],
    },
    "plan.total": lambda: {name: plan(name).total_s for name in "BCD"},
    "plan.choice": lambda: {"12 GiB, 256 out": chosen("ABCD"), "6 GiB, 256 out": chosen("ABCD", pool_gib=6)},
    "plan.rates": lambda: RATES,
    "plan.gpu_seconds_per_request_b": lambda: {"each": gpu_s_b(), "sixteen": 16 * gpu_s_b()},
    "plan.gpu_seconds_per_good_d": lambda: plan("D").gpu_s_per_good,
    "plan.energy_per_good_d": lambda: plan("D").joules_per_good,
    "plan.short_output": lambda: {name: plan(name, output_tokens=16).total_s for name in "BD"},
    "amdahl": lambda: {"50 of 100 s, x4": amdahl_example(50), "20 of 100 s, x4": amdahl_example(20)},
    "agenttask.halves": lambda: {name: agent_total(**{name: True}) for name in ("prefill", "decode", "tools")},
    "agenttask.net": lambda: {
        "total": 100 / planning.amdahl(0.5, 4, preparation=0.08),
        "speedup": planning.amdahl(0.5, 4, preparation=0.08),
        "preparation_break_even": 100 * planning.break_even_preparation(0.5, 4),
    },
    "plan.e": lambda: {
        "memory_mib": plan_e().memory_bytes / MIB,
        "total_s": plan_e().total_s,
        "gpu_s_per_good": plan_e().gpu_s_per_good,
    },
}

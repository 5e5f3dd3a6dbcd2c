"""Contestants take turns in a rotating order, and ratios are taken within a round."""

import time

import pytest

from servelab import measure


def test_interleave_rotates_the_order_and_drops_the_warmup():
    calls = []
    samples = measure.interleave({name: lambda name=name: calls.append(name) for name in "abc"}, rounds=3, warmup=1)
    assert "".join(calls) == "abc" + "bca" + "cab" + "abc"
    assert {name: len(seconds) for name, seconds in samples.items()} == {"a": 3, "b": 3, "c": 3}
    assert all(second >= 0 for seconds in samples.values() for second in seconds)


def test_speedups_compare_within_a_round():
    # The machine is ten times as slow in the second round: b is twice as fast as a in each all the same.
    samples = {"a": [2.0, 20.0, 2.0], "b": [1.0, 10.0, 1.0]}
    assert measure.speedups(samples, "a") == {"a": 1, "b": 2}


def test_streaming_read_bandwidth_is_a_plausible_number():
    assert 1e8 < measure.streaming_read_bandwidth(16 * 2**20, rounds=3) < 1e13


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"contestants": {}}, "contestants is empty"),
        ({"contestants": {"a": int}, "rounds": 0}, "rounds is 0: allowed is 1 or more"),
        ({"contestants": {"a": int}, "warmup": -1}, "warmup is -1: allowed is 0 or more"),
    ],
)
def test_interleave_refuses_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        measure.interleave(**arguments)


def test_speedups_refuses_an_unknown_baseline():
    with pytest.raises(ValueError, match="baseline is 'c': allowed are 'a', 'b'"):
        measure.speedups({"a": [1.0], "b": [1.0]}, "c")


def test_process_clock_counts_work_and_waits_but_not_other_programs():
    clock = measure.ProcessClock()
    start = clock()
    time.sleep(0.05)
    assert clock() - start < 0.04  # the process did nothing
    clock.sleep(3)
    assert 3 <= clock() - start < 3.1
    before = clock()
    sum(range(200_000))
    assert clock() > before

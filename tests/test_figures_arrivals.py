"""Figure of 8.6.1: what is drawn and said of a queue is what its trace holds."""

import pytest

from servelab import service
from servelab.figures import arrivals


def numbers(fig):
    return dict(map(tuple, fig.layout.meta["tables"][0]["rows"]))


@pytest.mark.parametrize("rate", [0.5, 1.5, 4])
@pytest.mark.parametrize("refuse", [False, True])
@pytest.mark.parametrize("give_up", [False, True])
def test_every_request_has_one_fate_and_the_law_holds(rate, refuse, give_up):
    fig, text = arrivals.queue_explorer(rate, 128, refuse, give_up)
    rows = numbers(fig)
    trace, refused = arrivals.run(rate, 128, refuse, give_up)
    late = sum(not o.is_good(7) for o in service.outcomes(trace)) - rows["gave up"]
    assert rows["done within 7 s"] + late + rows["refused"] + rows["gave up"] == arrivals.NUM_REQUESTS
    assert rows["mean in the system, counted (L)"] == rows["λW"]
    assert rows["refused"] == refused
    assert f"{rows['done within 7 s']} of 40 are in time; {refused} refused" in text
    assert (rows["refused"] > 0) <= refuse
    assert (rows["gave up"] > 0) <= give_up


def test_areas_are_the_counts_over_time():
    """The upper edge's area over time is the mean in the system; the lower one never exceeds what may run."""
    fig, _ = arrivals.queue_explorer(1.5, 128, False, False)
    running, system = fig.data
    spans = [later - earlier for earlier, later in zip(system.x, system.x[1:], strict=False)]
    area = sum(span * count for span, count in zip(spans, system.y, strict=False))
    law = service.littles_law(arrivals.run(1.5, 128, False, False)[0])
    first_s = system.x[1]
    assert area / (system.x[-1] - first_s) == pytest.approx(law.mean_in_system, rel=0.01)
    assert max(running.y) == arrivals.MAX_RUNNING
    assert system.y[-1] == running.y[-1] == 0


def test_refusing_and_giving_up_bring_more_in_time():
    """The example of the page: 17 of 40; 25 if callers leave at the deadline; 35 if five are refused."""
    good = {
        choice: numbers(arrivals.queue_explorer(1.5, 128, *choice)[0])["done within 7 s"]
        for choice in ((False, False), (False, True), (True, False))
    }
    assert good == {(False, False): 17, (False, True): 25, (True, False): 35}


def test_alone_and_under_load():
    assert arrivals.alone_s(128) == pytest.approx(0.0948 + 127 * 0.0263, rel=0.01)  # prefill and decode steps of 8-1
    assert arrivals.busy_s(128) > arrivals.alone_s(128)


def test_alt_text_says_what_is_seen():
    fig, _ = arrivals.queue_explorer(1.5, 128, False, False)
    assert "up to 8 of them waiting" in fig.layout.meta["alt"]


def test_bad_input():
    with pytest.raises(ValueError, match="rate is 0"):
        arrivals.queue_explorer(0, 128, False, False)

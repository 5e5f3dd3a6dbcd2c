"""Figures of 8.4.3: bytes, timelines and copy times are the library's; bad input gets a clear error."""

import pytest

from servelab import catalog, offload
from servelab.figures import offloading

PCIE5, C2C = catalog.link("pcie5-x16"), catalog.link("nvlink-c2c")


def numbers(fig):
    return dict(fig.layout.meta["tables"][0]["rows"])


@pytest.mark.parametrize(("buffers", "net", "more"), [(1, "2304", "2 more contexts"), (2, "2016", "1 more context of")])
def test_explorer_frees_what_the_library_says(buffers, net, more):
    fig, text = offloading.offload_explorer(4, buffers, PCIE5, 1)
    assert more in text
    assert numbers(fig)["net (MiB)"] == net
    assert [bar.x[0] for bar in fig.data[:2]] == [int(net), 2592 - int(net)]


@pytest.mark.parametrize(
    ("buffers", "link", "ratio", "step_ms"),
    [(1, PCIE5, 1, "49.03"), (2, PCIE5, 1, "42.47"), (1, C2C, 1, "26.26"), (2, PCIE5, 0.25, "26.26")],
)
def test_explorer_draws_a_steady_step(buffers, link, ratio, step_ms):
    fig, _ = offloading.offload_explorer(4, buffers, link, ratio)
    assert numbers(fig)["step (ms)"] == step_ms
    copies, *layers = fig.data[2:]
    row = "copies of a step (ms)" if ratio == 1 else "copying and decompressing of a step (ms)"
    assert sum(copies.x) == pytest.approx(float(numbers(fig)[row]), rel=1e-3)
    assert sum(sum(bar.x) for bar in layers) == pytest.approx(26.26, abs=0.01)


def test_explorer_refuses_more_buffers_than_layers():
    with pytest.raises(ValueError, match="buffers is 4; it must be an integer from 1 to 3"):
        offloading.offload_explorer(12, 4, PCIE5, 1)


def test_copy_by_link_holds_the_floors():
    fig = offloading.copy_by_link([PCIE5, C2C], 2592 * 2**20, 0.02626)
    rows = fig.layout.meta["tables"][0]["rows"]
    assert [row[2:] for row in rows] == [["42.5", "10.83"], ["6.0", "1.54"]]
    assert list(fig.data[0].x) == pytest.approx([42.467, 6.040], abs=1e-3)


def test_measured_timelines_are_drawn_whole():
    timelines = {str(n): offload.pipeline([2e-3] * 3, range(3), 1e-3, buffers=n) for n in (1, 2)}
    fig = offloading.measured(timelines)
    assert fig.layout.meta["tables"][0]["rows"] == [
        ["1", "9.0", "3.0", "6.0", "3.0"],
        ["2", "7.0", "3.0", "6.0", "1.0"],
    ]
    assert sum(fig.data[0].x) == pytest.approx(3.0)

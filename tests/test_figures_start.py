"""The landing page's figure: the running case under each configuration."""

import pytest

from servelab.figures import start


@pytest.mark.parametrize(
    ("measure", "says"),
    [
        ("A", "18.6 of 12 GiB, 14.9 of 7 s. It does not fit and is too late."),
        ("B", "5.9 of 12 GiB, 9.0 of 7 s. It is too late."),
        ("C", "9.9 of 12 GiB, 14.6 of 7 s. It is too late."),
        ("D", "9.0 of 12 GiB, 4.6 of 7 s. It fits, and is in time."),
        ("E", "5.9 of 12 GiB, 5.6 of 7 s. It fits, and is in time."),
    ],
)
def test_the_running_case(measure, says):
    fig, text = start.case_explorer(measure)
    assert text == says
    assert says in fig.layout.meta["alt"]
    limits = [row[1:] for row in fig.layout.meta["tables"][0]["rows"]]
    drawn = [100 * float(needed) / limit for needed, limit in limits]
    assert list(fig.data[0].x) == pytest.approx(drawn, rel=0.01)


def test_every_measure_is_a_configuration():
    assert sorted(start.MEASURES.values()) == list("ABCDE")

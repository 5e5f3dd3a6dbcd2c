"""Every number of the chapter, through the public API: derived ones computed, measured ones read from the catalog.

`facts.yaml` has them as the chapter rounds them; `COMPUTED` of the facts_*.py modules says where each comes from.
"""

from pathlib import Path

import facts_formats
import facts_planning
import facts_reuse
import facts_serving
import pytest
from ruamel.yaml import YAML

FACTS = {fact["id"]: fact for fact in YAML(typ="safe").load(Path(__file__).with_name("facts.yaml"))["facts"]}
MODULES = (facts_serving, facts_reuse, facts_formats, facts_planning)
COMPUTED = {fact_id: compute for module in MODULES for fact_id, compute in module.COMPUTED.items()}


def flat(value):
    """{key path: value} of a number, text, list or mapping, nested at will."""
    if isinstance(value, dict):
        entries = value.items()
    elif isinstance(value, list):
        entries = enumerate(value)
    else:
        return {(): value}
    return {(key, *path): inner for key, nested in entries for path, inner in flat(nested).items()}


@pytest.mark.parametrize("fact_id", FACTS)
def test_fact(fact_id):
    fact = FACTS[fact_id]
    assert fact_id in COMPUTED, "this fact has no test: add it to COMPUTED of a facts_*.py module"
    expected, computed = flat(fact["value"]), flat(COMPUTED[fact_id]())
    if "tol" in fact:  # 1e-12: a half of the last digit may be hit exactly, but for what binary fractions add
        assert computed == pytest.approx(expected, rel=0, abs=fact["tol"] + 1e-12)
    else:
        assert computed == expected


def test_no_fact_is_computed_twice_or_unknown():
    computed = [fact_id for module in MODULES for fact_id in module.COMPUTED]
    assert sorted(computed) == sorted(FACTS)


@pytest.mark.parametrize("fact_id", facts_reuse.AT_MFU)
def test_fact_at_exactly_62_percent(fact_id):
    """The chapter writes 62 % and computes with the record's 62.2 %; both round to what it states."""
    fact = FACTS[fact_id]
    assert facts_reuse.AT_MFU[fact_id](0.62) == pytest.approx(fact["value"], abs=fact["tol"])

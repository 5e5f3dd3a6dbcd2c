"""The chapter's numbers, through the public API. `facts.yaml` has them as the chapter rounds them."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from servelab import catalog, memory
from servelab.engine import BlockPool, BlockTable
from servelab.figures.paging import counts, place
from servelab.units import GIB, MIB

FACTS = {fact["id"]: fact for fact in YAML(typ="safe").load(Path(__file__).with_name("facts.yaml"))["facts"]}

QWEN = catalog.model("qwen3-8b")
SHORT = {"input_tokens": 2048, "output_tokens": 256}
LONG = {"input_tokens": 8192, "output_tokens": 256}
PREFIX = 6144
POOL = 12 * GIB
LENGTHS = (9, 13, 5, 15)


def kv_mib(tokens):
    return tokens * memory.kv_bytes_per_token(QWEN) / MIB


def branches():
    """Four tables of 95 shared and 9 private blocks, in a pool."""
    pool = BlockPool(num_blocks=200, block_size=16)
    first = BlockTable(pool)
    first.append((95 + 9) * 16)
    tables = [first] + [first.share(95 * 16) for _ in range(3)]
    for table in tables[1:]:
        table.append(9 * 16)
    return counts(tables)


def paged(block_size=4, common_prefix=0):
    return place(LENGTHS, block_size, common_prefix)


COMPUTED = {
    "kv.bytes_per_token": lambda: memory.kv_bytes_per_token(QWEN),
    "kv.2048_tokens": lambda: kv_mib(2048),
    "kv.8192_tokens": lambda: kv_mib(8192),
    "kv.16_long_prefilled": lambda: kv_mib(16 * 8192) / 1024,
    "kv.100_long": lambda: kv_mib(100 * 8192) / 1024,
    "tokens.short_written": lambda: memory.written_tokens(**SHORT),
    "tokens.long_written": lambda: memory.written_tokens(**LONG),
    "kv.short_allocated": lambda: memory.request_kv_bytes(QWEN, **SHORT) / MIB,
    "kv.long_allocated": lambda: memory.request_kv_bytes(QWEN, **LONG) / MIB,
    "capacity.short_independent": lambda: memory.max_requests(POOL, QWEN, **SHORT),
    "capacity.long_independent": lambda: memory.max_requests(POOL, QWEN, **LONG),
    "capacity.short_by_prefill_only": lambda: memory.max_requests(POOL, QWEN, 2048, 1),
    "kv.42_short_finished": lambda: memory.batch_kv_bytes(QWEN, 42, **SHORT) / MIB,
    "paging.reserved": lambda: len(LENGTHS) * 16,
    "paging.paged_p4": lambda: [len(table.block_ids) * 4 for table in paged()],
    "paging.unused_reserved_paged": lambda: [len(LENGTHS) * 16 - sum(LENGTHS), counts(paged())["unused"]],
    "paging.shared_first_8": lambda: counts(paged(common_prefix=8))["slots"],
    "cow.branches_refs": lambda: branches()["entries"],
    "cow.branches_blocks": lambda: branches()["blocks"],
    "cow.saving": lambda: 100 * (1 - branches()["blocks"] / branches()["entries"]),
    "prefix.shared_16_long": lambda: memory.batch_kv_bytes(QWEN, 16, **LONG, shared_prefix=PREFIX) / MIB,
    "prefix.capacity_long_shared": lambda: memory.max_requests(POOL, QWEN, **LONG, shared_prefix=PREFIX),
    "prefix.independent_16_long": lambda: memory.batch_kv_bytes(QWEN, 16, **LONG) / MIB,
    "q8.long_allocated": lambda: memory.request_kv_bytes(QWEN, **LONG, kv_dtype="q8_0") / MIB,
    "q8.16_long": lambda: memory.batch_kv_bytes(QWEN, 16, **LONG, kv_dtype="q8_0") / GIB,
}


@pytest.mark.parametrize("fact_id", COMPUTED)
def test_fact(fact_id):
    fact = FACTS[fact_id]
    assert COMPUTED[fact_id]() == pytest.approx(fact["value"], abs=fact["tol"])


def test_every_fact_of_8_3_1_is_computed():
    assert {fact["id"] for fact in FACTS.values() if fact["section"] == "8.3.1"} <= set(COMPUTED)

"""Sizes of the KV cache beyond the chapter's own numbers, and what the functions refuse. Facts: test_facts.py."""

import re

import pytest

from servelab import catalog, memory
from servelab.units import GIB, format_bytes

QWEN = catalog.model("qwen3-8b")


@pytest.mark.parametrize(
    ("name", "kib"),
    [
        ("qwen3-0.6b", 112),  # 2 x 28 layers x 8 heads x 128 x 2 bytes
        ("llama-3.1-70b", 320),  # 2 x 80 x 8 x 128 x 2: KV heads count, the 64 query heads do not
    ],
)
def test_kv_bytes_per_token_counts_kv_heads(name, kib):
    assert memory.kv_bytes_per_token(catalog.model(name)) == kib * 1024


@pytest.mark.parametrize(
    ("kv_dtype", "ratio"), [("f32", 2), ("f16", 1), ("fp8", 0.5), ("q8_0", 34 / 64), ("q4_0", 18 / 64)]
)
def test_kv_formats(kv_dtype, ratio):
    assert memory.kv_bytes_per_token(QWEN, kv_dtype) == 147456 * ratio


@pytest.mark.parametrize(
    ("input_tokens", "shared_prefix", "block_size", "blocks"),
    [
        (8192, 6144, 16, 384),
        (100, 31, 16, 1),  # a partly filled block is not shared
        (32, 32, 16, 1),  # the last input token is computed again
        (33, 32, 16, 2),
        (100, 0, 16, 0),
    ],
)
def test_shared_blocks(input_tokens, shared_prefix, block_size, blocks):
    assert memory.shared_blocks(input_tokens, shared_prefix, block_size) == blocks


@pytest.mark.parametrize("num_adapters", [1, 3, 1000])
@pytest.mark.parametrize("shared_prefix", [0, 31, 32, 6144])
def test_what_fits_is_what_the_batch_takes(shared_prefix, num_adapters):
    settings = {"input_tokens": 6200, "output_tokens": 77, "shared_prefix": shared_prefix, "num_adapters": num_adapters}
    most = memory.max_requests(12 * GIB, QWEN, **settings)
    assert memory.batch_kv_bytes(QWEN, most, **settings) <= 12 * GIB
    assert memory.batch_kv_bytes(QWEN, most + 1, **settings) > 12 * GIB


def test_adapters_share_no_prefix():
    """Qwen3-8B: a prefix of 864 MiB for each adapter, 324 MiB for each of 16 requests."""
    mib = [
        memory.batch_kv_bytes(QWEN, 16, 8192, 256, shared_prefix=6144, num_adapters=adapters) // 2**20
        for adapters in (1, 4, 16, 100)
    ]
    assert mib == [864 + 5184, 4 * 864 + 5184, 19008, 19008]


def test_nothing_fits_when_the_prefix_alone_is_too_large():
    assert memory.max_requests(800 * 1024**2, QWEN, 8192, 256, shared_prefix=6144) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: memory.kv_bytes_per_token(QWEN, "fp7"), "kv_dtype is 'fp7', which is not known; did you mean fp8"),
        (lambda: memory.written_tokens(0, 1), "input_tokens is 0; it must be an integer of at least 1"),
        (lambda: memory.written_tokens(1, 0), "output_tokens is 0"),
        (lambda: memory.num_blocks(-1, 16), "tokens is -1"),
        (lambda: memory.num_blocks(1, 0), "block_size is 0"),
        (lambda: memory.unused_slots(1.0, 16), "tokens is 1.0"),
        (lambda: memory.shared_blocks(10, 11, 4), "shared_prefix is 11; it must be an integer from 0 to 10"),
        (lambda: memory.request_kv_bytes(QWEN, 10, 1, block_size=-4), "block_size is -4"),
        (lambda: memory.batch_kv_bytes(QWEN, -1, 10, 1), "requests is -1"),
        (lambda: memory.batch_kv_bytes(QWEN, 1, 10, 1, num_adapters=0), "num_adapters is 0"),
        (lambda: memory.max_requests(1, QWEN, 10, 1, num_adapters=0), "num_adapters is 0"),
        (lambda: memory.max_requests(-1, QWEN, 10, 1), "pool_bytes is -1"),
        (lambda: format_bytes(1, "MB"), "unit is 'MB', which is not known; did you mean"),
        (lambda: catalog.model("qwen-8b"), "name is 'qwen-8b'.*did you mean qwen3-8b"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=re.compile(message)):
        call()


def test_format_bytes_keeps_the_families_apart():
    assert format_bytes(12 * GIB, "GiB", 1) == "12.0 GiB"
    assert format_bytes(12 * GIB, "GB", 1) == "12.9 GB"
    assert format_bytes(19008 * 1024**2, "MiB") == "19,008 MiB"

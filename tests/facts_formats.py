"""The numbers of sections 8.4.1 to 8.4.3, 8.5 and exercise 8-7, through the public API. Collected by test_facts.py."""

from fractions import Fraction

from servelab import catalog, cost, memory, offload, quantization, speculation
from servelab.units import GB, GIB, MIB

QWEN, QWEN_235B = catalog.model("qwen3-8b"), catalog.model("qwen3-235b-a22b")
PCIE5, C2C = catalog.link("pcie5-x16").bandwidth, catalog.link("nvlink-c2c").bandwidth
LONG = {"input_tokens": 8192, "output_tokens": 256}
FORMATS = quantization.FORMATS
MS = 1e-3


# ---- 8.4.1
def file_235b():
    layout = catalog.record("weight-q2k-layout").rows
    total = weight_file("Q2_K")
    stored = [quantization.stored_bytes(row["values"], row["storage_type"].lower()) for row in layout]
    payload, metadata = (sum(part) for part in zip(*stored, strict=True))
    return {
        "total": total,
        "payload": payload,
        "metadata": metadata,
        "header_padding": total - payload - metadata,
    }


def weight_file(variant):
    return catalog.record("weight-files").row(variant=variant)["file_bytes"]


def left_gib(weight_bytes):
    m2_max = catalog.accelerator("m2-max").memory_bytes
    return quantization.memory_left(m2_max, 8 * GIB, weight_bytes) / GIB


def file_235b_gib():
    size = file_235b()
    gib = {part: size[part] / GIB for part in ("total", "payload", "metadata")}
    return gib | {"ud_variant": weight_file("UD-Q2_K_XL") / GIB, "budget": left_gib(0)}


# ---- 8.4.2
def saved_8k(kv_dtype="q8_0"):
    return 8192 * (memory.kv_bytes_per_token(QWEN) - memory.kv_bytes_per_token(QWEN, kv_dtype))


def read_bandwidth():
    """Bytes a second that the step of 64 requests reached: 65 % of the peak."""
    step = catalog.record("batch-sweep").row(condition="2k_no_prefix", batch=64)
    return step["nominal_read_bytes_per_step"] / (step["decode_step_ms"] * MS)


def net_saving_ms(conversion_ms):
    return quantization.net_saving_s(saved_8k(), read_bandwidth(), conversion_ms * MS) / MS


def fit_values(context):
    return [quantization.itl_fit(kv_dtype).seconds(context) / MS for kv_dtype in ("bf16", "fp8")]


def deepseek_8k():
    rows = {row["model"]: row for row in catalog.record("deepseek-state").where(context_tokens=8192)}
    new, old = rows["v4_1"], rows["v4"]
    total = new["global_history_bytes"] + new["sliding_window_bytes"]
    old_total = old["global_history_bytes"] + old["sliding_window_bytes"]
    return {
        "global": new["global_history_bytes"] / MIB,
        "window": new["sliding_window_bytes"] / MIB,
        "total": total / MIB,
        "v4_total": old_total / MIB,
        "ratio": old_total / total,
    }


# ---- 8.4.3
LAYERS = offload.every_nth(QWEN.num_layers, 4)
FREED = offload.freed_bytes(offload.ffn_bytes(QWEN), len(LAYERS))


def net(buffers):
    return offload.net_bytes(offload.ffn_bytes(QWEN), len(LAYERS), buffers)


def extra(request_bytes):
    return [offload.extra_requests(net(buffers), request_bytes) for buffers in (1, 2)]


# ---- 8.5
TARGET = {"A": Fraction(1, 4), "B": Fraction(3, 4)}
DECODE = catalog.record("batch-sweep").row(condition="2k_no_prefix", batch=1)
DECODE_S = DECODE["decode_step_ms"] * MS
LOOKUP_S = 0.1 * MS


def acceptance(symbol):
    return speculation.acceptance_rate(TARGET, {symbol: 1})


def mean_tokens(symbol):
    return speculation.expected_tokens(acceptance(symbol), 4)


def lookup_s_per_token(symbol):
    round_s = DECODE_S + speculation.draft_s("lookup", LOOKUP_S, 4)
    return speculation.time_per_token([round_s], [mean_tokens(symbol)])


def both(function):
    return {symbol * 4: float(function(symbol)) for symbol in "AB"}


def seconds_of_256():
    rounds = speculation.expected_rounds(float(acceptance("B")), 4, 256)
    return {"decode": 256 * DECODE_S, "with_index": 2 + rounds * (DECODE_S + LOOKUP_S)}


def verify_extra_gflop():
    plain, verify = cost.step_flops(QWEN, [(1, 2048)]), cost.step_flops(QWEN, [(5, 2048)], logit_rows=5)
    return (verify - plain) / 1e9


def forward_s():
    """One forward of the draft model, at the bandwidth that a decode step of one request reaches."""
    weights = catalog.record("dflash-draft-model").rows[0]["weight_gib"] * GIB
    return weights / (DECODE["nominal_read_bytes_per_step"] / DECODE_S)


def drafted_ms_per_token(source, tokens):
    round_s = speculation.draft_s(source, forward_s(), 4) + DECODE_S
    return speculation.time_per_token([round_s], [tokens]) / MS


def short_task(configuration):
    row = catalog.record("dflash-tasks").row(configuration=configuration, concurrency=1, task="short_lookup")
    return row["completion_ms_median"]


def median_step(configuration):
    return catalog.record("dflash-summary").row(configuration=configuration)["engine_step_ms_median"]


# ---- exercise 8-7
def length_ms_per_token(length, group=1):
    round_ms = 26.3 + speculation.draft_s("serial", 3.6, length, group)
    return speculation.time_per_token([round_ms], [speculation.expected_tokens(0.75, length)])


COMPUTED = {
    "q2k.group_bytes": lambda: FORMATS["q2_k"].block_bytes,
    "q2k.bits": lambda: FORMATS["q2_k"].bits_per_value,
    "q2k.metadata_share": lambda: 100 * FORMATS["q2_k"].metadata_share,
    "file235b.bytes": file_235b,
    "file235b.gib": file_235b_gib,
    "file235b.left": lambda: [left_gib(weight_file(variant)) for variant in ("Q2_K", "UD-Q2_K_XL")],
    "kv235b.8k_32k": lambda: [tokens * memory.kv_bytes_per_token(QWEN_235B) / GIB for tokens in (8192, 32768)],
    "q8.block_bytes": lambda: {
        "bf16": 32 * FORMATS["bf16"].block_bytes,
        "q8_0": FORMATS["q8_0"].block_bytes,
        "q4_0": FORMATS["q4_0"].block_bytes,
    },
    "q8.kv_8192": lambda: {fmt: 8192 * memory.kv_bytes_per_token(QWEN, fmt) / MIB for fmt in ("q8_0", "q4_0")},
    "q8.bits": lambda: {fmt: FORMATS[fmt].bits_per_value for fmt in ("q8_0", "q4_0")},
    "q8.long_allocated": lambda: memory.request_kv_bytes(QWEN, **LONG, kv_dtype="q8_0") / MIB,
    "q8.16_long": lambda: memory.batch_kv_bytes(QWEN, 16, **LONG, kv_dtype="q8_0") / GIB,
    "q8.read_saving": lambda: net_saving_ms(0),
    "q8.net_saving": lambda: {conversion: net_saving_ms(conversion) for conversion in (0.2, 0.8)},
    "fp8.fit_crossover": lambda: quantization.crossing(quantization.itl_fit("bf16"), quantization.itl_fit("fp8")),
    "fp8.fit_values": lambda: {context: fit_values(context) for context in (2048, 16384)},
    "mla.8k": lambda: 8192 * memory.kv_bytes_per_token(catalog.model("deepseek-v3")) / MIB,
    "v41.8k_state": deepseek_8k,
    "offload.freed": lambda: FREED / MIB,
    "offload.net": lambda: [net(buffers) / MIB for buffers in (1, 2)],
    "offload.more_prefilled": lambda: extra(8192 * memory.kv_bytes_per_token(QWEN)),
    "offload.more_complete": lambda: extra(memory.request_kv_bytes(QWEN, **LONG)),
    "offload.copy_pcie5": lambda: offload.copy_s(FREED, PCIE5) / MS,
    "offload.copy_c2c": lambda: offload.copy_s(FREED, C2C) / MS,
    "offload.255_steps": lambda: [255 * offload.copy_s(FREED, bandwidth) for bandwidth in (PCIE5, C2C)],
    "offload.max_throughput_b4": lambda: offload.max_throughput(
        4, offload.step_lower_bound_s(offload.copy_s(FREED, PCIE5), DECODE_S)
    ),
    "offload.min_bandwidth_1s": lambda: offload.min_bandwidth(FREED, 255, 1) / GB,
    "compress.times": lambda: [offload.copy_s(96 * MIB // part, PCIE5) / MS for part in (1, 4)],
    "compress.min_decoder": lambda: offload.min_decoder(PCIE5, 0.25) / GB,
    "spec.mean_tokens": lambda: both(mean_tokens),
    "spec.ratio_of_sums": lambda: {
        "right": speculation.time_per_token([1.5, 1.5], [1, 5]),
        "wrong": speculation.mean_of_ratios([1.5, 1.5], [1, 5]),
    },
    "spec.verify_extra_flops": verify_extra_gflop,
    "spec.ms_per_token": lambda: both(lambda symbol: lookup_s_per_token(symbol) / MS),
    "spec.lookup_break_even": lambda: both(
        lambda symbol: speculation.draft_budget_s(mean_tokens(symbol), DECODE_S, DECODE_S) / MS
    ),
    "spec.index_break_even": lambda: speculation.index_break_even_tokens(2, DECODE_S, lookup_s_per_token("B")),
    "spec.256_tokens": seconds_of_256,
    "dflash.forward": lambda: forward_s() / MS,
    "dflash.ms_per_token": lambda: {
        "serial_3": drafted_ms_per_token("serial", 3),
        "parallel_3": drafted_ms_per_token("parallel", 3),
        "parallel_2": drafted_ms_per_token("parallel", 2),
    },
    "dflash.short_task": lambda: {
        "plain": short_task("baseline"),
        "K7": short_task("dflash_k7"),
        "K15": short_task("dflash_k15"),
    },
    "dflash.round_median": lambda: {"K7_round": median_step("dflash_k7"), "plain_step": median_step("baseline")},
    "draftlen.mean_tokens": lambda: {length: speculation.expected_tokens(0.75, length) for length in (1, 2, 4, 8)},
    "draftlen.ms_per_token": lambda: {length: length_ms_per_token(length) for length in (1, 2, 4, 8)},
    "draftlen.grouped": lambda: {length: length_ms_per_token(length, group=4) for length in (4, 5)},
}

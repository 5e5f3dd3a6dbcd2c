"""The numbers of sections 8.3.3, 8.3.4 and 8.4.4, through the public API. Collected by test_facts.py."""

from functools import partial

from servelab import catalog, cost, quality, retention, reuse
from servelab.units import MIB

QWEN = catalog.model("qwen3-8b")
GPU = catalog.accelerator("rtx-pro-6000")
TURNS = catalog.record("agent-turns").rows
PREFILL_MFU = catalog.record("batch-sweep").row(condition="2k_no_prefix", batch=1)["prefill_mfu"]  # 62.2 %
FORMATS = {"bf16_kv": "bf16_kv_bf16_q", "fp8_original": "fp8_kv_fp8_q", "fp8_kv_bf16_q": "fp8_kv_bf16_q"}


def prefix(tokens, mfu, link="pcie5-x16"):
    return retention.Prefix.of_model(QWEN, tokens, GPU, mfu, catalog.link(link))


def break_even_percent(mfu, link):
    kept = prefix(6144, mfu, link)
    return 100 * retention.break_even_hit_probability(kept.recompute_s, kept.fetch_s, kept.maintain_s)


def tflop(tokens):
    return cost.step_flops(QWEN, [(tokens, 0)], logit_rows=0) / 1e12


# By the efficiency at which prefixes are computed again: the chapter says 62 %, its record has 62.2 %.
AT_MFU = {
    "evict.recompute_6144": lambda mfu: 1e3 * retention.recompute_seconds(QWEN, 6144, GPU, mfu),
    "evict.recompute_2048": lambda mfu: 1e3 * retention.recompute_seconds(QWEN, 2048, GPU, mfu),
    "evict.value_a_gen5": lambda mfu: 1e3 * prefix(6144, mfu).value_s,
    "evict.value_b_gen5": lambda mfu: 1e3 * prefix(2048, mfu).value_s,
    "evict.break_even_gen5_gen4": lambda mfu: [break_even_percent(mfu, link) for link in ("pcie5-x16", "pcie4-x16")],
    "evict.value_per_mib": lambda mfu: [1e3 * prefix(tokens, mfu).value_per_mib for tokens in (6144, 2048)],
}


def checkpoints_mib(count):
    size = catalog.record("hybrid-state").rows[0]["kda_checkpoint_mib_per_card"] * MIB
    return reuse.checkpoint_bytes(8192, 8192 // count, bytes_per_checkpoint=int(size)) / MIB


def turn_totals():
    tokens = sum(turn["input_tokens"] for turn in TURNS)
    hits = sum(turn["hit_tokens_6gib_other_load"] for turn in TURNS)
    return [tokens, hits, tokens - hits]


def kv_outcomes(name):
    return quality.outcomes(catalog.record("kv-quality").where(kv_q_format=FORMATS[name]))


def flips():
    (first, before), (second, after) = quality.changed_tasks(
        kv_outcomes("bf16_kv"), kv_outcomes("fp8_kv_bf16_q")
    ).items()
    assert after == before[::-1]
    names = f"{before[0]}/4 with BF16 KV, {before[1]}/4 with FP8 KV + BF16 Q"
    return f"task {first}: {names}; task {second} the reverse"


def retries():
    total = quality.total_cost(quality.recorded_costs(catalog.record("retries").rows))
    return {"retries": total.retries, "extra_s": total.retry_s, "extra_tokens": total.retry_tokens}


COMPUTED = {
    "agent.first_common_prefix": lambda: TURNS[1]["common_prefix_with_previous_turn_tokens"],
    "hybrid.recompute": lambda: reuse.recomputed_tokens(10752, reuse.checkpoint_positions(10752, spacing=4096)),
    "hybrid.checkpoint_bytes": lambda: {count: checkpoints_mib(count) for count in (1, 2, 32)},
    "v41.storage_ratio": lambda: reuse.long_term_storage_ratio(window_share=1 / 2, global_ratio=1 / 4),
    "evict.recompute_flops_6144": lambda: tflop(6144),
    "evict.length_ratio": lambda: tflop(6144) / tflop(2048),
    "evict.fetch_6144_gen5_gen4": lambda: [
        1e3 * prefix(6144, PREFILL_MFU, link).fetch_s for link in ("pcie5-x16", "pcie4-x16")
    ],
    "evict.fetch_2048_gen5": lambda: 1e3 * prefix(2048, PREFILL_MFU).fetch_s,
    **{fact_id: partial(at_mfu, PREFILL_MFU) for fact_id, at_mfu in AT_MFU.items()},
    "agent.tokens_total_hit_new": turn_totals,
    "quality.correct": lambda: {name: sum(kv_outcomes(name).values()) for name in FORMATS},
    "quality.flips": flips,
    "quality.retry": retries,
}

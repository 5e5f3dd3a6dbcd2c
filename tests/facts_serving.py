"""Numbers of sections 8.1 to 8.3.2: memory, batching, schedules, paging. Collected by test_facts.py."""

from servelab import batching, catalog, cost, latency, memory
from servelab.engine import BlockPool, BlockTable, Request, simulate
from servelab.figures.paging import counts, place
from servelab.units import GB, GIB, MIB

QWEN = catalog.model("qwen3-8b")
CARD = catalog.accelerator("rtx-pro-6000")
STEP = catalog.step_cost("rtx-pro-6000", "qwen3-8b")
SWEEP = catalog.record("batch-sweep")
SHORT = {"input_tokens": 2048, "output_tokens": 256}
LONG = {"input_tokens": 8192, "output_tokens": 256}
PREFIX = 6144
POOL = 12 * GIB
LENGTHS = (9, 13, 5, 15)


def kv_mib(tokens):
    return tokens * memory.kv_bytes_per_token(QWEN) / MIB


def sweep(batch, column):
    return SWEEP.row(condition="2k_no_prefix", batch=batch)[column]


def measured(record, column, **where):
    return catalog.record(record).row(**where)[column]


def per_token_gib(batch, context=2048):
    return batching.read_bytes_per_token(QWEN, batch, context) / GIB


def short_request(extra_s=0.0):
    """The chapter's example: 0.1 s in the queue, then what experiment 8-1 saw at batch 1."""
    return latency.uniform_request_time(0.1 + extra_s, 0.096, 26.5e-3, 256)


def six_requests_queue_ms(budget):
    """Median queue of r4, which arrives behind the long r3; the record gives it for each budget."""
    return measured("six-requests-itl", "r4_queue_ms_median", configuration=f"budget{budget}_chunked_eager")


def schedule(policy):
    """The four requests of section 8.2.2, at most two running."""
    asked = [("r0", 0.0, 2048, 8), ("r1", 0.0, 2048, 2), ("r2", 0.02, 8192, 2), ("r3", 0.03, 2048, 4)]
    return simulate([Request(*request) for request in asked], STEP, policy=policy)


def pairs_ratio():
    return cost.causal_pairs(512, 7680) / cost.causal_pairs(512, 0)


def chunk_work(history):
    return cost.step_flops(QWEN, [(512, history)], logit_rows=0)


def chunk_ms(chunk):
    return measured("chunk-history", "step_ms_median", chunk=chunk)


def ffn_read_mib(chunks):
    return chunks * QWEN.ffn_parameters_per_layer * 2 / MIB


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
    "weights.gib": lambda: batching.weight_bytes(QWEN) / GIB,
    "time.short_prefill": lambda: sweep(1, "ttft_ms_median") / 1e3,
    "time.short_itl_client": lambda: sweep(1, "client_itl_ms_median"),
    "time.short_request": short_request,
    "time.short_request_one_prefill_inserted": lambda: short_request(extra_s=0.096),
    "time.itl_with_prefill_inserted": lambda: 26.5 + 96,
    "time.ttft_example": lambda: latency.ttft(0, [0.1 + 0.096]),
    "time.decode_sum_example": lambda: short_request() - 0.196,
    "throughput.batch16": lambda: 16 / (sweep(16, "decode_step_ms") / 1e3),
    "throughput.batch1": lambda: 1 / (sweep(1, "decode_step_ms") / 1e3),
    "lora.adapter_size": lambda: batching.lora_bytes(QWEN, rank=16) / MIB,
    "lora.100_adapters": lambda: 100 * batching.lora_bytes(QWEN, rank=16) / GIB,
    "weights.read_gib": lambda: batching.weight_read_bytes(QWEN) / GIB,
    "read.weight_share_b16": lambda: per_token_gib(16, context=0),
    "read.weight_share_b64": lambda: per_token_gib(64, context=0),
    "read.2k_b1": lambda: per_token_gib(1),
    "read.2k_b64": lambda: per_token_gib(64),
    "read.2k_ratio": lambda: per_token_gib(1) / per_token_gib(64),
    "crossover.2k": lambda: batching.crossover_batch(QWEN, 2048),
    "crossover.8k": lambda: batching.crossover_batch(QWEN, 8192),
    "resident.64x2k_after_one_step": lambda: (
        (batching.weight_bytes(QWEN) + 64 * 2049 * memory.kv_bytes_per_token(QWEN)) / GB
    ),
    "sweep.throughput_b1_b64": lambda: [sweep(b, "throughput_tok_per_s_median") for b in (1, 64)],
    "sweep.ttft_b1_b64": lambda: [sweep(b, "ttft_ms_median") for b in (1, 64)],
    "sweep.itl_b1_b64": lambda: [sweep(b, "client_itl_ms_median") for b in (1, 64)],
    "step.decode_2k": lambda: 1e3 * STEP.seconds([(1, 2048)]),
    "step.prefill_2k": lambda: 1e3 * STEP.seconds([(2048, 0)]),
    **{
        f"schedule.{policy}_{name}": lambda policy=policy, column=column: 1e3 * getattr(schedule(policy), column)
        for policy in ("static", "continuous", "chunked")
        for name, column in (("total", "total_s"), ("max_itl", "max_itl_s"))
    },
    "schedule.continuous_saving": lambda: 100 * (1 - schedule("continuous").total_s / schedule("static").total_s),
    "weights.read_floor": lambda: 1e3 * batching.weight_read_bytes(QWEN) / CARD.bandwidth,
    "pairs.c512_h0": lambda: cost.causal_pairs(512, 0),
    "pairs.c512_h7680": lambda: cost.causal_pairs(512, 7680),
    "pairs.ratio": pairs_ratio,
    "pairs.c4_h0_h8": lambda: [cost.causal_pairs(4, 0), cost.causal_pairs(4, 8)],
    "chunk.work_ratio": lambda: 100 * (chunk_work(7680) / chunk_work(0) - 1),
    "chunk.time_first_last": lambda: [chunk_ms(1), chunk_ms(16)],
    "chunk.time_ratio": lambda: 100 * (chunk_ms(16) / chunk_ms(1) - 1),
    "ffn.layer_weights": lambda: ffn_read_mib(1),
    "ffn.two_chunks_read": lambda: ffn_read_mib(2),
    "graph.padded_rows": lambda: {rows: cost.padded_rows(rows, [16, 32]) for rows in (16, 17, 18)},
    "sixreq.queue_budget_512_8192": lambda: [six_requests_queue_ms(512), six_requests_queue_ms(8192)],
    "sixreq.max_itl_512_8192": lambda: [
        measured("six-requests-itl", "itl_ms_max", configuration=f"budget{n}_chunked_eager") for n in (512, 8192)
    ],
    "cancel.times": lambda: [measured("cancel", "call_return_ms"), measured("cancel", "blocks_released_ms")],
    "preempt.extra_tokens": lambda: (
        measured("pool-pressure", "scheduled_token_positions", name="small")
        - measured("pool-pressure", "scheduled_token_positions", name="large")
    ),
    "efficiency.bytes": lambda: {b: batching.step_read_bytes(QWEN, b, 2048) / GB for b in (1, 4, 16, 64)},
    "efficiency.floor": lambda: {b: 1e3 * cost.roofline(QWEN, CARD, [(1, 2048)] * b).read_s for b in (1, 4, 16, 64)},
    "efficiency.step": lambda: {b: sweep(b, "decode_step_ms") for b in (1, 4, 16, 64)},
    "efficiency.mbu": lambda: {
        b: 100 * cost.mbu(batching.step_read_bytes(QWEN, b, 2048), sweep(b, "decode_step_ms") / 1e3, CARD)
        for b in (1, 4, 16, 64)
    },
    "efficiency.mfu": lambda: {b: 100 * sweep(b, "prefill_mfu") for b in (1, 4, 16, 64)},
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
}

"""Replay recorded traces of vLLM's scheduler on this one and compare step by step.

    python -m servelab.engine.replay FILE...

Prints the first difference of each file, or how much agreed; exits 1 if there is a difference. Block numbers and
the order of the free queue are compared too, where the file has them. Recorded block 0 is vLLM's null block.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from servelab.engine.batch import Batch
from servelab.engine.blocks import BlockPool
from servelab.engine.request import Request
from servelab.engine.scheduler import Scheduler


def scheduler_for(config: dict) -> Scheduler:
    """Our scheduler, set up as the recorded one was."""
    return Scheduler(
        BlockPool(config["num_gpu_blocks"] - 1, config["block_size"]),
        policy="chunked" if config["enable_chunked_prefill"] else "continuous",
        max_running=config["max_num_seqs"],
        token_budget=config["max_num_scheduled_tokens"] or config["max_num_batched_tokens"],
        chunk=config["long_prefill_token_threshold"] or None,
        prefix_caching=config["enable_prefix_caching"],
    )


def replay(recording: dict) -> Iterator[tuple[int, dict, dict]]:
    """Yields (step, recorded, ours) for each step of `recording`; both are dicts with the same keys when they agree."""
    scheduler = scheduler_for(recording["config"])
    results = recording["requests_result"]
    for step, recorded in enumerate(recording["steps"]):
        ours = {"step": step}
        for key, event in (("arrived", "arrival_step"), ("aborted", "abort_step")):
            entries = [entry for entry in recording["requests"] if entry.get(event) == step]
            for entry in entries:
                if key == "arrived":
                    scheduler.add(Request(entry["id"], step, entry["prompt_token_ids"], entry["max_tokens"]))
                else:
                    scheduler.cancel(entry["id"])
            if entries:
                ours[key] = [entry["id"] for entry in entries]
        batch = scheduler.schedule()
        ours |= _scheduled(scheduler, batch)
        sampled = [row.request for row in batch.rows if row.num_samples]
        if batch.rows:
            ours["sampled"] = [request.id for request in sampled]
        finished = scheduler.update(batch, [_recorded_tokens(row, results) for row in batch.rows])
        scheduler.check_integrity()
        ours |= {"finished": [request.id for request in finished], "free_blocks_end": scheduler.pool.num_free}
        if "free_queue" in recorded:
            ours["free_queue"] = [block_id + 1 for block_id in scheduler.pool.free_queue]
            ours["cached_blocks"] = sorted(block_id + 1 for block_id in scheduler.pool.prefix_cache)
        yield step, recorded, ours


def _recorded_tokens(row, results: dict) -> list[int]:
    """The token that the recorded run sampled here; 0, which no recorded text has, if it sampled none."""
    if row.num_samples == 0:
        return []
    tokens = results[row.request.id]["output_token_ids"]
    position = row.request.num_output_tokens
    return [tokens[position] if position < len(tokens) else 0]


def _scheduled(scheduler: Scheduler, batch: Batch) -> dict:
    return {
        "scheduled": [_row(row) for row in batch.rows],
        "total_tokens": batch.num_tokens,
        "preempted": [request.id for request in batch.preempted],
        "running": [request.id for request in scheduler.running],
        "waiting": [request.id for request in scheduler.waiting],
        "free_blocks": batch.num_free_blocks,
    }


def _row(row) -> dict:
    block_ids = [block_id + 1 for block_id in row.request.table.block_ids]
    entry = {
        "id": row.request.id,
        "kind": row.kind,
        "tokens": row.num_tokens,
        "computed": row.num_computed_tokens,
        "blocks": len(block_ids),
        "new_blocks": len(row.new_blocks),
    }
    if row.kind != "running":
        entry |= {"hit_tokens": row.num_computed_tokens, "block_ids": block_ids}
    elif row.new_blocks:
        entry["new_block_ids"] = [block_id + 1 for block_id in row.new_blocks]
    return entry


def first_difference(recording: dict) -> str | None:
    """Where ours first differs from `recording`, in words; `None` if every step agrees."""
    for step, recorded, ours in replay(recording):
        for path, theirs, mine in _differences(recorded, ours, ""):
            return f"step {step}: {path} is {mine}, recorded {theirs}"
    return None


def _differences(recorded, ours, path: str) -> Iterator[tuple[str, object, object]]:
    """(where, recorded, ours) of each part that differs."""
    if isinstance(recorded, dict) and isinstance(ours, dict):
        for key in [*recorded, *(key for key in ours if key not in recorded)]:
            where = f"{path}.{key}" if path else key
            yield from _differences(recorded.get(key, "absent"), ours.get(key, "absent"), where)
    elif isinstance(recorded, list) and isinstance(ours, list) and len(recorded) == len(ours):
        for position, (theirs, mine) in enumerate(zip(recorded, ours, strict=True)):
            yield from _differences(theirs, mine, f"{path}[{position}]")
    elif recorded != ours:
        yield path, recorded, ours


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m servelab.engine.replay", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    num_different = 0
    for path in parser.parse_args(arguments).files:
        try:
            recording = json.loads(path.read_text(encoding="utf-8"))
            difference = first_difference(recording)
        except (OSError, ValueError, LookupError, TypeError) as error:
            difference = f"cannot be replayed: {type(error).__name__}: {error}"
        num_different += difference is not None
        agreed = f"all {len(recording['steps'])} steps agree" if difference is None else ""
        print(f"{path.name}: {difference or agreed}")
    return 1 if num_different else 0


if __name__ == "__main__":
    sys.exit(main())

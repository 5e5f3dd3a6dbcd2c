"""Train the retrieval model from nothing and judge it: `make train`.

python tools/train_retrieval.py                      the shipped recipe, seeds 0, 1, 2, into _build/retrieval
python tools/train_retrieval.py --seeds 7 --out DIR  another seed, elsewhere
python tools/train_retrieval.py --max-records 16     a quick look
python tools/train_retrieval.py --draft --seeds 0    the small model that drafts for it

Writes the best seed's weights and its card after each seed, so that stopping loses only the seed under way. The same
seed gives the same weights on the same machine with the same number of threads.
"""

import argparse
import hashlib
import json
import os
import platform
import sys
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import safetensors
import torch
from safetensors.torch import save

from servelab.model import retrieval
from servelab.model.config import DecoderConfig
from servelab.model.decoder import Decoder
from servelab.model.generate import generate
from servelab.model.load import DRAFT_FOLDER, RETRIEVAL_FOLDER
from servelab.model.training import (
    CONFIG,
    DRAFT_CONFIG,
    DRAFT_RECIPE,
    RECIPE,
    Progress,
    Recipe,
    TrainingStuckError,
    train,
)

ROOT = Path(__file__).resolve().parents[1]
FIRST_TASK = 1_000_000  # seeds of the judging tasks: training draws from other streams
LONG_ANSWER = 47  # tokens: twelve records


def main(arguments: list[str] | None = None, recipe: Recipe = RECIPE) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--draft", action="store_true", help="train the draft model, for shorter documents")
    parser.add_argument("--max-records", type=int)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tasks", type=int, default=500, help="for each length of document, to judge with")
    parser.add_argument("--out", type=Path, help="default _build/retrieval, or _build/retrieval-draft")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    config, recipe = (DRAFT_CONFIG, DRAFT_RECIPE) if options.draft else (CONFIG, recipe)
    shipped_folder = DRAFT_FOLDER if options.draft else RETRIEVAL_FOLDER
    out = options.out or ROOT / "_build" / shipped_folder.name
    if options.max_records is not None:
        recipe = replace(recipe, max_records=options.max_records)
    judged, best, weights = [], -1.0, None
    for seed in options.seeds:
        start_s = time.perf_counter()
        try:
            model, progress = train(seed, recipe, Line(seed, start_s), config)
        except TrainingStuckError as error:  # recorded like a success: who reads the card learns how often it happens
            judged.append({"seed": seed, "failed": str(error)})
            print(f"seed {seed} failed: {error}")
            continue
        result = {"seed": seed, "steps": progress.step, "seconds": round(time.perf_counter() - start_s)}
        result["first_step_of_records"] = progress.reached
        lengths = sorted({min(128, recipe.max_records), recipe.max_records})
        result["accuracy"] = {str(length): accuracy(model, length, options.tasks) for length in lengths}
        few = -(-options.tasks // 5)
        result["accuracy_47_tokens"] = {str(length): accuracy(model, length, few, LONG_ANSWER) for length in lengths}
        print(json.dumps(result), flush=True)
        judged.append(result)
        mean = sum(score["share"] for score in result["accuracy"].values()) / len(lengths)
        if mean > best:
            best, chosen, weights = mean, seed, to_bytes(model)
        write(out, config, weights, card(config, recipe, options.threads, judged, chosen, weights))
    if weights is None:
        sys.exit("No seed succeeded; nothing is written.")
    write(
        out, config, weights, card(config, recipe, options.threads, judged, chosen, weights)
    )  # the last may have failed
    shipped = shipped_folder / "model.safetensors"
    same = shipped.exists() and shipped.read_bytes() == weights
    print(f"Seed {chosen} is in {out}; its weights {'equal' if same else 'differ from'} the shipped ones.")


class Line:
    """Prints where a training is, every few seconds; on a terminal in one line."""

    def __init__(self, seed: int, start_s: float):
        self.seed = seed
        self.start_s = self.next_s = start_s

    def __call__(self, progress: Progress) -> None:
        now_s = time.perf_counter()
        if now_s < self.next_s and progress.steps_left != 0:
            return
        self.next_s = now_s + (1 if sys.stdout.isatty() else 20)
        text = (
            f"seed {self.seed}: {now_s - self.start_s:4.0f} s, step {progress.step}, {progress.num_records} records, "
            f"{progress.accuracy:.1%} right"
        )
        if progress.steps_left is not None:
            text += f", {progress.steps_left} steps left"
        print(text, end="\r" if sys.stdout.isatty() and progress.steps_left != 0 else "\n", flush=True)


def accuracy(model: Decoder, num_records: int, num_tasks: int, num_tokens: int = retrieval.ANSWER_TOKENS) -> dict:
    """Share of fresh documents for which the freely decoded answer is right, and its 95 % Wilson interval."""
    right = 0
    for seed in range(FIRST_TASK, FIRST_TASK + num_tasks):
        task = retrieval.make_task(num_records, seed)
        right += task.is_correct(generate(model, task.prompt_ids, num_tokens))
    low, high = retrieval.wilson_interval(right, num_tasks)
    share = round(right / num_tasks, 4)
    return {"right": right, "tasks": num_tasks, "share": share, "interval_95": [round(low, 4), round(high, 4)]}


def to_bytes(model: Decoder) -> bytes:
    """The weights as a safetensors file, the embedding once."""
    tensors = {name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    return save(tensors, metadata={"format": "pt"})


def card(config: DecoderConfig, recipe: Recipe, threads: int, judged: list[dict], chosen: int, weights: bytes) -> dict:
    """What a reader of the weights should know, and the hash by which `load_retrieval` knows them."""
    return {
        "name": "Retrieval model" if config == CONFIG else "Draft model of the retrieval model",
        "task": "Documents of records, a key and six digits; a question asks for one. See servelab.model.retrieval.",
        "license": "BSD-3-Clause",
        "sha256": hashlib.sha256(weights).hexdigest(),
        "parameters": sum(parameter.numel() for parameter in Decoder(config).parameters()),
        "chosen_seed": chosen,
        "seeds": judged,
        "judged": "Greedy, freely decoded, float32; right if every digit is. Wilson interval, 95 %.",
        "recipe": asdict(recipe),
        "optimizers": "torch.optim.Muon for the matrices of the layers, torch.optim.AdamW for embedding and norms",
        "threads": threads,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "safetensors": safetensors.__version__,
        },
        "date": datetime.now(UTC).date().isoformat(),
    }


def write(folder: Path, config: DecoderConfig, weights: bytes, card: dict) -> None:
    """Each file is complete or not there: it is written beside its place and then moved."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (
        ("model.safetensors", weights),
        ("config.json", (json.dumps(config.to_dict(), indent=2) + "\n").encode()),
        ("card.json", (json.dumps(card, indent=2) + "\n").encode()),
    ):
        partial = folder / f"{name}.partial"
        partial.write_bytes(content)
        partial.replace(folder / name)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nStopped; what finished before is written.")

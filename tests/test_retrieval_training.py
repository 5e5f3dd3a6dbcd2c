"""Training: what it trains on, that it repeats with its seed, and, where asked for, that it learns."""

import json
import os
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from servelab.model import retrieval, training  # noqa: E402
from servelab.model.load import load_checkpoint  # noqa: E402
from servelab.model.training import IGNORED, RECIPE, Recipe, make_batch, share_right, train  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

import train_retrieval  # noqa: E402

BRIEF = Recipe(first_records=2, max_records=2, tokens_per_step=128, pass_accuracy=-1, final_steps=4)

slow = pytest.mark.skipif(
    os.environ.get("SERVELAB_SLOW") != "1", reason="takes minutes: set SERVELAB_SLOW=1 to retrain the model"
)


@pytest.fixture(autouse=True)
def one_thread():
    """Sums are added in another order by another number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("num_records", [1, 2, 16, 100])
def test_labels_are_the_answers(num_records):
    """Every label is the token that the document has after the key or pair; nothing else is trained."""
    token_ids, labels = make_batch(num_records, RECIPE, random.Random(1))
    assert token_ids.shape == labels.shape
    for row, label in zip(token_ids.tolist(), labels.tolist(), strict=True):
        document = retrieval.Document(tuple(row[: 1 + 4 * num_records]))
        position, asked = 1 + 4 * num_records, []
        assert set(label[:position]) == {IGNORED}
        while position < len(row) and row[position] == retrieval.TOKEN_IDS["?"]:
            key = row[position + 1]
            record = document.token_ids[1::4].index(key)
            asked.append(record)
            end = position + 2
            while end < len(row) and label[end - 1] != IGNORED:
                end += 1
            answer = row[position + 2 : end]
            assert len(answer) >= 3
            assert answer == document.answer(record, len(answer))
            assert label[position:end] == [IGNORED, *answer, IGNORED]
            position = end
        assert set(row[position:]) <= {0}
        assert len(asked) == len(set(asked)) == min(num_records, RECIPE.max_questions)


def test_share_right_counts_whole_answers():
    labels = torch.tensor(
        [[IGNORED, 4, 5, 6, IGNORED, IGNORED, 7, 8, 9], [1, 2, 3, IGNORED, 1, 1, 1, IGNORED, IGNORED]]
    )
    assert share_right(labels, labels) == 1
    predicted = labels.clone()
    predicted[0, 2] = 0
    predicted[0, 0] = 99  # not trained
    assert share_right(predicted, labels) == 0.75
    predicted[1, :3] = 0  # two mistakes more are one answer more
    assert share_right(predicted, labels) == 0.5


def test_training_repeats_with_its_seed():
    first, progress = train(3, BRIEF)
    again, _ = train(3, BRIEF)
    other, _ = train(4, BRIEF)
    assert progress.steps_left == 0
    assert progress.step == 5
    assert train_retrieval.to_bytes(first) == train_retrieval.to_bytes(again) != train_retrieval.to_bytes(other)


def test_a_training_that_gets_nowhere():
    with pytest.raises(training.TrainingStuckError, match="documents of 2 records after 3 steps; seed 0"):
        train(0, replace(BRIEF, pass_accuracy=1.0, max_steps=3))


def test_the_command_writes_what_loads(tmp_path, capsys):
    train_retrieval.main(["--seeds", "1", "2", "--tasks", "3", "--out", str(tmp_path)], BRIEF)
    card = json.loads((tmp_path / "card.json").read_text(encoding="utf-8"))
    assert [seed["seed"] for seed in card["seeds"]] == [1, 2]
    assert card["chosen_seed"] in (1, 2)
    assert not list(tmp_path.glob("*.partial"))
    assert load_checkpoint(tmp_path).config == training.CONFIG
    assert "its weights differ from the shipped ones" in capsys.readouterr().out


def test_lengths_between_powers_of_two():
    _, progress = train(0, replace(BRIEF, max_records=5))
    assert list(progress.reached) == [2, 4, 5]
    with pytest.raises(ValueError, match="max_records is 1; it must be an integer from 2 to 1024"):
        replace(BRIEF, max_records=1)


def test_no_seed_succeeds(tmp_path, capsys):
    with pytest.raises(SystemExit, match="No seed succeeded; nothing is written"):
        train_retrieval.main(["--seeds", "1", "--out", str(tmp_path / "none")], replace(BRIEF, max_steps=0))
    assert "seed 1 failed: documents of 2 records after 0 steps" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()


@slow
@pytest.mark.parametrize("seed", [0, 1])
def test_training_learns(seed):
    """In about a minute it answers questions about documents of 16 records."""
    model, _ = train(seed, replace(RECIPE, max_records=16, final_steps=100))
    score = train_retrieval.accuracy(model.eval(), 16, 100)
    assert score["share"] >= 0.85

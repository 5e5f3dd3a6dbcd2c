"""The retrieval task, and the model that ships for it."""

import hashlib
import json
import random
import shutil
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servelab.model import retrieval
from servelab.model.retrieval import Document, decode, encode, make_document, make_task, wilson_interval


def test_a_document_as_text():
    text = "<document>\nbaba 830192\nbabi 004417\n? babi"
    document = Document(tuple(encode("<document> baba 830192 babi 004417")))
    token_ids = [*document.token_ids, *document.question(1)]
    assert decode(token_ids) == text
    assert encode(text) == token_ids
    assert len(token_ids) == 1 + 2 * 4 + 2
    assert document.num_records == 2
    assert decode(document.answer(1)) == "004417"
    assert decode(document.answer(0, 7)) == "830192\nbabi 004417"
    assert document.answer(1, 10) == document.answer(1)  # there the document ends


@given(st.lists(st.integers(0, retrieval.VOCAB_SIZE - 1), max_size=40))
def test_encode_takes_back_what_decode_gives(token_ids):
    assert encode(decode(token_ids)) == token_ids


@given(st.integers(1, retrieval.MAX_RECORDS), st.integers(0, 10**9))
def test_documents(num_records, seed):
    task = make_task(num_records, seed)
    assert task == make_task(num_records, seed)
    token_ids = task.document.token_ids
    assert len(token_ids) == 1 + 4 * num_records
    keys = token_ids[1::4]
    assert len(set(keys)) == num_records
    assert all(retrieval.FIRST_KEY <= key < retrieval.VOCAB_SIZE for key in keys)
    for slot in (2, 3, 4):
        assert all(retrieval.FIRST_PAIR <= pair < retrieval.FIRST_KEY for pair in token_ids[slot::4])
    answer = task.document.answer(task.record)
    assert task.is_correct(answer)
    assert task.is_correct(task.document.answer(task.record, 47))


def test_what_is_asked_for_varies():
    tasks = [make_task(128, seed) for seed in range(400)]
    assert len({task.document for task in tasks}) == 400
    assert min(task.record for task in tasks) < 5
    assert max(task.record for task in tasks) > 122
    assert make_task(127, 0).document.token_ids[1:5] != tasks[0].document.token_ids[1:5]


def test_every_token_of_an_answer_counts():
    task = make_task(16, 3)
    answer = task.document.answer(task.record, 7)
    for position in range(len(answer)):
        wrong = list(answer)
        wrong[position] = retrieval.FIRST_PAIR + (wrong[position] + 1) % 100
        assert not task.is_correct(wrong)
    assert not task.is_correct(answer[:2])  # too short
    assert not task.is_correct([])
    last = retrieval.Task(task.document, 15)
    assert last.is_correct([*last.document.answer(15), 0, 1, 2])  # nothing is right or wrong after the end


def test_keys_are_distinct_words():
    assert len(set(retrieval.TOKENS)) == retrieval.VOCAB_SIZE == 2 + 100 + 1024
    assert all(key.isalpha() for key in retrieval.KEYS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_task(0, 1), "num_records is 0; it must be an integer from 1 to 1024"),
        (lambda: make_task(1025, 1), "num_records is 1025"),
        (lambda: make_task(8, -1), "seed is -1"),
        (lambda: make_task(8, 1).document.question(8), "record is 8; it must be an integer from 0 to 7"),
        (lambda: make_task(8, 1).document.answer(-1), "record is -1"),
        (lambda: encode("baba 12345"), "text has '12345'; a word must be a key such as 'baba'"),
        (lambda: encode("baba ²²"), "text has '²²'"),
        (lambda: encode("Baba"), "text has 'Baba'"),
        (lambda: decode([retrieval.VOCAB_SIZE]), r"token_ids\[0\] is 1126"),
        (lambda: wilson_interval(3, 2), "right is 3"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_wilson_interval():
    """Against numbers of R's prop.test(correct = FALSE)."""
    assert wilson_interval(0, 10) == pytest.approx((0, 0.2775), abs=1e-4)
    assert wilson_interval(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson_interval(10, 10) == pytest.approx((0.7225, 1), abs=1e-4)
    low, high = wilson_interval(494, 500)
    assert low < 0.988 < high


def test_the_task_needs_no_pytorch():
    code = "import sys, servelab.model.retrieval; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_training_documents_come_from_elsewhere():
    """The judging tasks' seeds are strings, training's are numbers: the streams differ."""
    task = make_task(8, 0)
    assert task.document != make_document(8, random.Random(0))


# The shipped model.


@pytest.fixture(scope="module")
def model():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from servelab.model.load import load_retrieval

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # its steps are too small to share: on busy cores, threads would wait for each other
    yield load_retrieval()
    torch.set_num_threads(threads)


def share_right(model, num_records, num_tasks, num_tokens=3):
    from servelab.model.generate import generate

    tasks = [make_task(num_records, seed) for seed in range(num_tasks)]
    return sum(task.is_correct(generate(model, task.prompt_ids, num_tokens)) for task in tasks) / num_tasks


@pytest.mark.parametrize(("num_records", "num_tasks"), [(2, 60), (16, 60), (128, 60), (512, 10)])
def test_the_shipped_model_answers(model, num_records, num_tasks):
    assert share_right(model, num_records, num_tasks) >= 0.9


def test_the_shipped_model_goes_on(model):
    assert share_right(model, 128, 15, num_tokens=47) >= 0.8  # twelve records, every token right


def test_transformers_says_the_same(model):
    """The shipped folder is a Qwen3 checkpoint for everybody."""
    transformers = pytest.importorskip("transformers", reason="transformers, the oracle, is not installed")
    import torch

    from servelab.model.generate import generate
    from servelab.model.load import RETRIEVAL_FOLDER

    theirs = transformers.Qwen3ForCausalLM.from_pretrained(RETRIEVAL_FOLDER).eval()
    options = {"max_new_tokens": 47, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    for seed in range(3):
        prompt = make_task(64, seed).prompt_ids
        expected = theirs.generate(torch.tensor([prompt]), **options)[0, len(prompt) :]
        assert generate(model, prompt, 47) == expected.tolist()


def test_several_questions_about_one_document(model):
    """As an agent asks: each prompt holds the earlier questions and answers."""
    from servelab.model.generate import generate

    document = make_task(64, 5).document
    prompt, right = list(document.token_ids), 0
    for record in (3, 60, 17, 41, 3, 25, 8, 33):
        prompt += document.question(record)
        answer = generate(model, prompt, 3)
        right += answer == document.answer(record)
        prompt += answer
    assert right >= 7


def test_the_card_is_about_these_weights(model):
    from servelab.model.load import RETRIEVAL_FOLDER

    card = json.loads((RETRIEVAL_FOLDER / "card.json").read_text(encoding="utf-8"))
    weights = (RETRIEVAL_FOLDER / "model.safetensors").read_bytes()
    assert card["sha256"] == hashlib.sha256(weights).hexdigest()
    assert card["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    chosen = next(seed for seed in card["seeds"] if seed["seed"] == card["chosen_seed"])
    for score in chosen["accuracy"].values():
        low, high = score["interval_95"]
        assert 0.95 <= score["share"] == round(score["right"] / score["tasks"], 4)
        assert (low, high) == pytest.approx(wilson_interval(score["right"], score["tasks"]), abs=1e-4)


def test_changed_weights_are_refused(tmp_path, monkeypatch):
    from servelab.model import load

    shutil.copytree(load.RETRIEVAL_FOLDER, tmp_path / "retrieval")
    monkeypatch.setattr(load, "RETRIEVAL_FOLDER", tmp_path / "retrieval")
    load.load_retrieval()
    path = tmp_path / "retrieval" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.safetensors is not the file that was shipped"):
        load.load_retrieval()
    path.unlink()
    with pytest.raises(ValueError, match=r"model\.safetensors is not the file that was shipped"):
        load.load_retrieval()

"""Training of the retrieval model from nothing.

Documents begin with few records. Whenever the running accuracy passes a bar the number is doubled: finding the right
one of many is learned in seconds once it works among few, and hardly ever without. At the full length the learning
rates fall to zero. `tools/train_retrieval.py` runs this, judges the result and writes weights and card.

Muon: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/
"""

import random
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn import functional

from servelab.checks import require_int
from servelab.model import retrieval
from servelab.model.config import DecoderConfig
from servelab.model.decoder import Decoder

CONFIG = DecoderConfig(
    vocab_size=retrieval.VOCAB_SIZE,
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=128,  # what the paged attention kernels are compiled for
    rope_theta=10_000.0,
    max_position_embeddings=8192,  # trained on up to about 2700
    tie_word_embeddings=True,
)
# The draft model: it fits the kernels' other head_dim, and reads shorter documents.
DRAFT_CONFIG = replace(CONFIG, hidden_size=64, intermediate_size=128, num_attention_heads=1, head_dim=64)
IGNORED = -100  # the label of a token whose prediction is not trained


@dataclass(frozen=True)
class Recipe:
    """How to train; see the head of this file."""

    first_records: int = 4
    max_records: int = 512
    tokens_per_step: int = 1024  # or one document
    max_questions: int = 48  # about one document
    plain_below: int = 32  # records, below which all documents are of equal length and no answer is longer
    recite_every: int = 3  # one question in this many is answered with more than its record
    recite_records: int = 12  # that many at most
    matrix_lr: float = 0.006  # Muon; with 0.01 and little warm-up one seed in three stays at four records
    other_lr: float = 0.01  # AdamW: embedding and norms
    pass_accuracy: float = 0.85
    memory: float = 0.9  # of the running accuracy, from step to step
    warmup_steps: int = 150
    final_steps: int = 500  # at the full length, while the learning rates fall to zero
    max_steps: int = 3000  # before that

    def __post_init__(self):
        require_int("max_records", self.max_records, minimum=self.first_records, maximum=retrieval.MAX_RECORDS)


RECIPE = Recipe()  # of the shipped model
DRAFT_RECIPE = replace(RECIPE, max_records=128)


class TrainingStuckError(RuntimeError):
    """A training that did not reach documents of full length in the steps it had."""


@dataclass
class Progress:
    """Where a training is, for who watches it."""

    step: int = 0
    num_records: int = 2
    accuracy: float = 0.0  # running share of records answered right, each token with the right ones before it
    loss: float = 0.0
    steps_left: int | None = None  # known once the full length is reached
    reached: dict[int, int] = field(default_factory=dict)  # records: the step at which their documents began


def make_batch(num_records: int, recipe: Recipe, rng: random.Random) -> tuple[Tensor, Tensor]:
    """Documents, each followed by questions and their answers. Returns token ids and labels, each (batch, seq).

    A label is the token after; only tokens of answers are trained, as no other can be known.
    """
    num_questions = min(num_records, recipe.max_questions)
    length = 1 + retrieval.TOKENS_PER_RECORD * num_records + 5 * num_questions
    rows, labels = [], []
    for _ in range(max(1, recipe.tokens_per_step // length)):
        document = retrieval.make_document(num_records, rng)
        row = list(document.token_ids)
        label = [IGNORED] * len(row)
        for record in rng.sample(range(num_records), num_questions):
            is_long = num_records >= recipe.plain_below and rng.randrange(recipe.recite_every) == 0
            num_recited = rng.randint(2, recipe.recite_records) if is_long else 1
            question = document.question(record)
            answer = document.answer(record, retrieval.TOKENS_PER_RECORD * num_recited - 1)
            row += question + answer
            label += [IGNORED, *answer, IGNORED]
        rows.append(row)
        labels.append(label)
    seq = max(len(row) for row in rows)
    # What is filled in at the end is seen by no token that counts.
    token_ids = torch.tensor([row + [0] * (seq - len(row)) for row in rows])  # (batch, seq)
    return token_ids, torch.tensor([label + [IGNORED] * (seq - len(label)) for label in labels])


def initialise(model: Decoder) -> None:
    """Small random matrices; norms stay 1."""
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.02)


def optimizers(model: Decoder, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon for the matrices, AdamW for the embedding and the norms."""
    matrices = [parameter for parameter in model.model.layers.parameters() if parameter.ndim == 2]
    chosen = {id(parameter) for parameter in matrices}
    others = [parameter for parameter in model.parameters() if id(parameter) not in chosen]
    return [
        torch.optim.Muon(matrices, lr=recipe.matrix_lr, weight_decay=0.0),
        torch.optim.AdamW(others, lr=recipe.other_lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def share_right(predicted: Tensor, labels: Tensor) -> float:
    """Share of answers whose first record is right. Both (batch, seq)."""
    counted = labels != IGNORED
    starts = counted & ~functional.pad(counted, (1, 0))[:, :-1]
    record = sum(functional.pad(starts, (slot, 0))[:, : labels.shape[1]] for slot in range(retrieval.ANSWER_TOKENS)) > 0
    right = (predicted == labels)[record].view(-1, retrieval.ANSWER_TOKENS)  # (answers, tokens)
    return right.all(1).float().mean().item()


def train(
    seed: int, recipe: Recipe = RECIPE, watch=lambda progress: None, config: DecoderConfig = CONFIG
) -> tuple[Decoder, Progress]:
    """A trained model of shape `config`, and how it went. `watch` is called after each step with the progress so far.

    Raises `TrainingStuckError` if `recipe.max_steps` do not suffice to reach documents of full length.
    """
    torch.manual_seed(seed)
    rng = random.Random(seed)
    model = Decoder(config)
    initialise(model)
    steppers = optimizers(model, recipe)
    full_rates = [stepper.param_groups[0]["lr"] for stepper in steppers]
    progress = Progress(num_records=recipe.first_records, reached={recipe.first_records: 0})
    while progress.steps_left != 0:
        if progress.steps_left is None and progress.step == recipe.max_steps:
            raise TrainingStuckError(
                f"documents of {progress.num_records} records after {progress.step} steps; seed {seed}"
            )
        left = 1.0 if progress.steps_left is None else progress.steps_left / recipe.final_steps
        for stepper, rate in zip(steppers, full_rates, strict=True):
            stepper.param_groups[0]["lr"] = rate * left * min(1, (progress.step + 1) / recipe.warmup_steps)
        # Every other step has shorter documents: a model that has seen one length only fails on others. Not so in the
        # beginning, where they and longer answers distract from learning to find a record.
        is_full = progress.num_records < recipe.plain_below or rng.random() < 0.5
        num_records = progress.num_records if is_full else rng.randint(1, progress.num_records)
        token_ids, labels = make_batch(num_records, recipe, rng)
        counted = labels != IGNORED
        logits = model.logits(model.hidden(token_ids)[counted])  # (answer tokens, vocab_size)
        loss = functional.cross_entropy(logits, labels[counted])
        loss.backward()
        for stepper in steppers:
            stepper.step()
            stepper.zero_grad()
        if is_full:
            predicted = torch.zeros_like(labels)
            predicted[counted] = logits.argmax(-1)
            accuracy = share_right(predicted, labels)
            progress.accuracy = recipe.memory * progress.accuracy + (1 - recipe.memory) * accuracy
        progress.step += 1
        progress.loss = loss.item()
        if progress.steps_left is not None:
            progress.steps_left -= 1
        elif progress.accuracy > recipe.pass_accuracy:
            if progress.num_records == recipe.max_records:
                progress.steps_left = recipe.final_steps
            else:
                progress.num_records = min(2 * progress.num_records, recipe.max_records)
                progress.accuracy = 0.0
                progress.reached[progress.num_records] = progress.step
        watch(progress)
    return model, progress

"""The task of the shipped model: find one record of a long document. Plain Python, no PyTorch.

A document has records of a key and six digits; a question names a key:

    bako 830192
    kide 004417
    ? bako

and the right answer is `830192`, of which every digit counts. A model that goes on is right if it goes on as the
document does: `830192`, `kide 004417` and so on. So answers of any length can be asked for and checked.

A key is one token, six digits are three tokens of two digits each. Everything depends on the seed alone.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from servelab.checks import require_int

NUM_PAIRS = 100
SYLLABLES = [consonant + vowel for consonant in "bdfgklmn" for vowel in "aiou"]  # 32
KEYS = [first + second for first in SYLLABLES for second in SYLLABLES]
DOCUMENT = "<document>"
QUESTION = "?"
TOKENS = [DOCUMENT, QUESTION, *(f"{pair:02}" for pair in range(NUM_PAIRS)), *KEYS]
TOKEN_IDS = {token: token_id for token_id, token in enumerate(TOKENS)}
VOCAB_SIZE = len(TOKENS)

FIRST_PAIR = TOKEN_IDS["00"]
FIRST_KEY = TOKEN_IDS[KEYS[0]]
TOKENS_PER_RECORD = 4
ANSWER_TOKENS = 3
MAX_RECORDS = len(KEYS)


@dataclass(frozen=True)
class Document:
    """Records in their order: `token_ids` has a mark of the start, then four tokens for each record."""

    token_ids: tuple[int, ...]

    @property
    def num_records(self) -> int:
        return len(self.token_ids) // TOKENS_PER_RECORD

    def question(self, record: int) -> list[int]:
        """The two tokens that ask for record `record` (0 is the first)."""
        require_int("record", record, maximum=self.num_records - 1)
        return [TOKEN_IDS[QUESTION], self.token_ids[1 + TOKENS_PER_RECORD * record]]

    def answer(self, record: int, num_tokens: int = ANSWER_TOKENS) -> list[int]:
        """What is right after that question: the record's digits and, if more tokens are asked for, what follows.

        Shorter than `num_tokens` if the document ends before.
        """
        require_int("record", record, maximum=self.num_records - 1)
        start = 2 + TOKENS_PER_RECORD * record
        return list(self.token_ids[start : start + num_tokens])


@dataclass(frozen=True)
class Task:
    """One question about one document; `is_correct` judges an answer."""

    document: Document
    record: int

    @property
    def prompt_ids(self) -> list[int]:
        return [*self.document.token_ids, *self.document.question(self.record)]

    def is_correct(self, output_ids: Sequence[int]) -> bool:
        """Whether the output has at least the six digits, and every token of it is right.

        What a model says after the document's last record is not judged.
        """
        right = self.document.answer(self.record, max(len(output_ids), ANSWER_TOKENS))
        return list(output_ids[: len(right)]) == right


def make_document(num_records: int, rng: random.Random) -> Document:
    """Distinct keys and six digits for each, uniformly drawn."""
    require_int("num_records", num_records, minimum=1, maximum=MAX_RECORDS)
    token_ids = [TOKEN_IDS[DOCUMENT]]
    for key in rng.sample(range(MAX_RECORDS), num_records):
        digits = rng.randrange(NUM_PAIRS**3)
        token_ids += [
            FIRST_KEY + key,
            FIRST_PAIR + digits // NUM_PAIRS**2,
            FIRST_PAIR + digits // NUM_PAIRS % NUM_PAIRS,
            FIRST_PAIR + digits % NUM_PAIRS,
        ]
    return Document(tuple(token_ids))


def make_task(num_records: int, seed: int) -> Task:
    """A document and a question about one of its records; equal arguments give equal tasks."""
    require_int("seed", seed)
    rng = random.Random(f"{num_records}/{seed}")
    document = make_document(num_records, rng)
    return Task(document, rng.randrange(num_records))


def decode(token_ids: Sequence[int]) -> str:
    """Text of token ids, one record a line. `encode` takes it back."""
    text = ""
    for position, token_id in enumerate(token_ids):
        require_int(f"token_ids[{position}]", token_id, maximum=VOCAB_SIZE - 1)
        token = TOKENS[token_id]
        if not text or (token.isdigit() and text[-1].isdigit()):
            text += token  # pairs of digits stand together
        elif token.isdigit() or text[-1] == QUESTION:
            text += " " + token
        else:
            text += "\n" + token
    return text


def encode(text: str) -> list[int]:
    """Token ids of a text of keys, digits in pairs, `?` and `<document>`, with spaces or lines between them."""
    token_ids = []
    for word in text.split():
        if word.isdigit() and len(word) % 2 == 0:
            parts = [word[start : start + 2] for start in range(0, len(word), 2)]
        else:
            parts = [word]
        for part in parts:
            if part not in TOKEN_IDS:
                raise ValueError(
                    f"text has {word!r}; a word must be a key such as {KEYS[0]!r}, an even number of digits, "
                    f"{QUESTION!r} or {DOCUMENT!r}"
                )
            token_ids.append(TOKEN_IDS[part])
    return token_ids


def wilson_interval(right: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """Where the true share lies with 95 % confidence if `right` of `total` were right.

    Unlike share +- z * standard error it stays within 0 to 1, and is no point when all or none were right.
    Source: Wilson 1927, doi:10.1080/01621459.1927.10502953.
    """
    require_int("total", total, minimum=1)
    require_int("right", right, maximum=total)
    share = right / total
    middle = share + z**2 / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z**2 / (4 * total**2))
    scale = 1 + z**2 / total
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)

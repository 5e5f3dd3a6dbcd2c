"""One request: what was asked for, and how far it has come. Names are those of vLLM V1."""

from collections.abc import Sequence
from copy import copy
from enum import Enum
from operator import index

from servelab.checks import require_int, require_number
from servelab.engine.prefix import extend_keys

MAX_TOKEN_ID = 2**63 - 1  # what a block's key can hold


class Status(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"  # waiting again, to be recomputed
    FINISHED = "finished"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in (Status.FINISHED, Status.CANCELLED)


class Request:
    """`prompt` in, up to `max_tokens` tokens out.

    id            unique name
    arrival_s     when it reaches the engine, in seconds of the engine's clock
    prompt        token ids, or their number: then the text is unknown and nothing of it is ever found in a prefix cache
    max_tokens    it ends after this many output tokens, or with the first one out of `stop_tokens`
    adapter, salt part of the key of its blocks: requests share only with requests that have the same
    n             samples: when the prompt is computed, the request forks into `n` that share its blocks
    cancel_s      when the caller gives it up; `None` means never
    temperature   0 for the most likely token each time, else tokens are drawn; for executors that run a model
    seed          equal seeds draw equal texts, whatever runs beside them

    A request is used once: it carries its own progress. `fresh()` makes an unused copy.
    """

    __slots__ = (
        *("id", "arrival_s", "prompt", "max_tokens", "adapter", "salt", "n", "stop_tokens", "cancel_s", "parent"),
        *("temperature", "seed", "sample", "spec_token_ids"),
        *("token_ids", "num_prompt_tokens", "num_tokens", "num_computed_tokens", "num_cached_blocks"),
        *("status", "num_preemptions", "table", "admission", "_keys"),
    )

    def __init__(
        self,
        id: str,
        arrival_s: float,
        prompt: Sequence[int] | int,
        max_tokens: int,
        adapter: str | None = None,
        salt: str | None = None,
        n: int = 1,
        stop_tokens: Sequence[int] = (),
        cancel_s: float | None = None,
        temperature: float = 0.0,
        seed: int = 0,
    ):
        require_number("arrival_s", arrival_s)
        require_int("max_tokens", max_tokens, minimum=1)
        require_int("n", n, minimum=1)
        require_number("temperature", temperature)
        require_int("seed", seed)
        if cancel_s is not None:
            require_number("cancel_s", cancel_s)
            if cancel_s < arrival_s:
                raise ValueError(f"cancel_s is {cancel_s}; it must be at least arrival_s, {arrival_s}")
        self.token_ids = _token_ids(prompt)  # prompt and output; None if the text is unknown
        self.id = id
        self.arrival_s = arrival_s
        self.prompt = prompt
        self.num_prompt_tokens = index(prompt) if self.token_ids is None else len(self.token_ids)
        self.max_tokens = max_tokens
        self.adapter = adapter
        self.salt = salt
        self.n = n
        self.stop_tokens = frozenset(stop_tokens)
        self.cancel_s = cancel_s
        self.temperature = temperature
        self.seed = seed
        # Progress. The scheduler changes it, nobody else.
        self.status = Status.WAITING
        self.num_tokens = self.num_prompt_tokens  # prompt and output so far
        self.num_computed_tokens = 0  # of these, whose KV exists when the scheduled step has finished
        self.num_cached_blocks = 0  # first blocks of its table that are in the prefix cache
        self.num_preemptions = 0
        self.spec_token_ids: list[int] = []  # a draft of what follows, to be verified in the next step
        self.table = None  # BlockTable, once the scheduler has taken it
        self.admission = None  # its place in the order of admissions; running requests are served in this order
        self.parent = None  # id of the request it was forked from
        self.sample = 0  # which of that request's samples it is
        self._keys: list[bytes] = []

    def fresh(self) -> "Request":
        """An unused request that asks for the same."""
        return Request(
            self.id,
            self.arrival_s,
            self.prompt,
            self.max_tokens,
            adapter=self.adapter,
            salt=self.salt,
            n=self.n,
            stop_tokens=self.stop_tokens,
            cancel_s=self.cancel_s,
            temperature=self.temperature,
            seed=self.seed,
        )

    @property
    def sample_ids(self) -> list[str]:
        """Ids of its samples: its own, and id/1, id/2, ... for the forks."""
        return [self.id, *(f"{self.id}/{sample}" for sample in range(1, self.n))]

    @property
    def num_output_tokens(self) -> int:
        return self.num_tokens - self.num_prompt_tokens

    @property
    def output_token_ids(self) -> list[int] | None:
        """Output so far; `None` if the text is unknown."""
        return None if self.token_ids is None else self.token_ids[self.num_prompt_tokens :]

    @property
    def num_uncomputed_tokens(self) -> int:
        return self.num_tokens - self.num_computed_tokens

    @property
    def takes_draft(self) -> bool:
        """Whether its next step is a decode whose text is known: only then has a draft a place."""
        return self.num_uncomputed_tokens == 1 and self.num_output_tokens > 0 and self.token_ids is not None

    @property
    def max_written_tokens(self) -> int:
        """Tokens whose KV it writes at most: the last output token is never fed back."""
        return self.num_prompt_tokens + self.max_tokens - 1

    @property
    def has_ended(self) -> bool:
        """Whether its output is complete."""
        if self.num_tokens == self.num_prompt_tokens + self.max_tokens:
            return True
        return bool(self.stop_tokens) and self.num_output_tokens > 0 and self.token_ids[-1] in self.stop_tokens

    def append_token(self, token_id: int | None) -> None:
        """One more output token. Its id is `None` if and only if the text is unknown."""
        if self.token_ids is not None:
            self.token_ids.append(index(token_id))
        self.num_tokens += 1

    def block_keys(self, block_size: int) -> list[bytes]:
        """Keys of its full blocks, output included; none if the text is unknown."""
        if self.token_ids is not None and len(self._keys) < self.num_tokens // block_size:
            extend_keys(self._keys, self.token_ids, block_size, self.adapter, self.salt)
        return self._keys

    def fork(self, sample: int) -> "Request":
        """Sample `sample` of `sample_ids`: a running copy with the same history, blocks included (`BlockTable.fork`).

        The scheduler places it.
        """
        other = copy(self)
        other.id, other.parent, other.sample, other.n = self.sample_ids[sample], self.id, sample, 1
        other.num_preemptions = 0
        other.table = self.table.fork()
        other.token_ids = None if self.token_ids is None else list(self.token_ids)
        other._keys = list(self._keys)
        return other

    def __repr__(self) -> str:
        return (
            f"<Request {self.id}: {self.status.value}, {self.num_computed_tokens} of {self.num_tokens} tokens computed>"
        )


def _token_ids(prompt) -> list[int] | None:
    """A list of its own, or `None` for a number of tokens. Raises `ValueError` on anything else."""
    if hasattr(prompt, "__index__") or not hasattr(prompt, "__iter__") or isinstance(prompt, str):
        require_int("prompt", prompt, minimum=1)
        return None
    token_ids = list(prompt)
    if not token_ids:
        raise ValueError("prompt is empty; it must have at least one token")
    for position, token_id in enumerate(token_ids):
        if type(token_id) is not int or not 0 <= token_id <= MAX_TOKEN_ID:  # nearly always a plain int
            require_int(f"prompt[{position}]", token_id, maximum=MAX_TOKEN_ID)
    return [index(token_id) for token_id in token_ids]

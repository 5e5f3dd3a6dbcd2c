"""`TorchExecutor`: the engine's scheduler drives a real model, its KV in pages (sections 8.2 and 8.3).

The tokens of all rows of a batch go through the model as one flat row; only attention knows where requests begin and
end. What is the same whatever runs beside a request: which K and V its tokens see, and which random numbers draw them.
What is not: the last bits of a float, since a matrix product of 1 row and one of 16 add in different orders. So greedy
texts are equal wherever the best logit leads by more than that rounding (in float32 about 1e-5 of the logits).
"""

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from servelab.checks import require_int
from servelab.engine import Batch, Request, Row
from servelab.model.decoder import Decoder
from servelab.model.generate import check_logits, draw_at, sample
from servelab.model.kv_formats import KVFormat
from servelab.model.paged import PagedKV, Sequences
from servelab.speculation import verify_greedy

WatchLogits = Callable[[list[Row], Sequence[Tensor]], None]


class TorchExecutor:
    """Runs batches on `model`, where that is, and reads the wall clock. Satisfies `engine.Executor`.

    num_blocks, block_size  those of the scheduler's pool, or more blocks
    kv_dtype                how K and V are stored: a name of `kv_formats.FORMATS`, or a `KVFormat`
    kernels                 whether the library's CPU kernels serve the cache; `None`: where they can
    clock, sleep            seconds from any start, and waiting; a test gives others. Time 0 is the first look at it
    watch_logits            called with the rows of a batch and the logits of each, (count, vocab_size), before any
                            token is sampled

    Making one compiles the kernels, for a few seconds the first time, so that no step does.
    A request is drawn by its own `temperature` and `seed`, as `generate` draws it.
    """

    def __init__(
        self,
        model: Decoder,
        num_blocks: int,
        block_size: int = 16,
        kv_dtype: str | KVFormat = "f32",
        kernels: bool | None = None,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
        watch_logits: WatchLogits = lambda rows, logits: None,
    ):
        self.model = model
        self.kv = PagedKV(model.config, num_blocks, block_size, kv_dtype, model.device, kernels)
        self.watch_logits = watch_logits
        self._clock = clock
        self._sleep = sleep
        self._start_s: float | None = None
        self._warm_up()

    @torch.inference_mode()
    def _warm_up(self) -> None:
        """One token through all layers, before the clock starts: the first call of a kernel compiles for seconds."""
        self._forward([0], [0], self.kv.plan([(0, 1, [0])]))  # block 0 is nobody's yet

    def now(self) -> float:
        time_s = self._clock()
        if self._start_s is None:
            self._start_s = time_s
        return time_s - self._start_s

    def wait_until(self, time_s: float) -> None:
        while (left_s := time_s - self.now()) > 0:
            self._sleep(left_s)

    def require_runnable(self, request: Request) -> None:
        """Raise `ValueError` if the model cannot run `request`: its prompt must be token ids that the model has."""
        config = self.model.config
        if request.token_ids is None:
            raise ValueError(f"prompt is {request.prompt}, a number of tokens; a model needs their ids")
        largest = max(request.token_ids)
        if largest >= config.vocab_size:
            position = request.token_ids.index(largest)
            require_int(f"prompt[{position}]", largest, maximum=config.vocab_size - 1)
        if request.max_written_tokens > config.max_position_embeddings:
            raise ValueError(
                f"request {request.id!r} needs {request.max_written_tokens} positions; "
                f"it must be at most {config.max_position_embeddings}, the model's"
            )
        if request.adapter is not None:
            raise ValueError(f"adapter is {request.adapter!r}; it must be None, as this executor has no adapters")

    @torch.inference_mode()
    def execute(self, batch: Batch) -> list[list[int]]:
        """Run the batch: see `Executor`. Raises `FloatingPointError` naming the request if its logits are not finite.

        Then nothing was sampled, for no request.
        """
        self._require_same_pool(batch)
        self._require_known_tokens(batch)
        self.kv.copy_blocks(batch.copies)
        hidden = self._hidden(batch)  # (num_tokens, hidden_size)
        ends, counts, end = [], [], 0  # of each row, how many of its last tokens' logits are wanted
        for row in batch.rows:
            end += row.num_tokens
            counts.append(1 + len(row.spec_token_ids) if row.num_samples else 0)
            ends += range(end - counts[-1], end)
        logits = self.model.logits(hidden[torch.tensor(ends, dtype=torch.int64, device=hidden.device)])
        logits = logits.split(counts)  # of each row (count, vocab_size)
        require_finite(batch.rows, logits)
        self.watch_logits(batch.rows, logits)
        sampled = [sample_row(row, own) for row, own in zip(batch.rows, logits, strict=True)]
        if hidden.is_cuda:
            torch.cuda.synchronize(hidden.device)  # no row may have sampled: the clock must not run ahead
        return sampled

    def _require_same_pool(self, batch: Batch) -> None:
        pool = batch.rows[0].request.table.pool
        if pool.block_size != self.kv.block_size or pool.num_blocks > self.kv.num_blocks:
            raise ValueError(
                f"the scheduler's pool has {pool.num_blocks} blocks of {pool.block_size} tokens; "
                f"it must have at most {self.kv.num_blocks} of {self.kv.block_size}, the executor's"
            )

    def _require_known_tokens(self, batch: Batch) -> None:
        """Of drafts only: prompts were looked at, and all else comes from the model."""
        for row in batch.rows:
            for token_id in row.spec_token_ids:
                if token_id >= self.model.config.vocab_size:
                    require_int(f"draft of request {row.request.id!r}", token_id, 0, self.model.config.vocab_size - 1)

    def _hidden(self, batch: Batch) -> Tensor:
        """Run the layers on the new tokens of all rows. Returns (num_tokens, hidden_size)."""
        token_ids, positions = [], []
        for row in batch.rows:
            token_ids += row.token_ids
            positions += row.positions
        rows = [(row.num_computed_tokens, row.num_tokens, row.request.table.block_ids) for row in batch.rows]
        return self._forward(token_ids, positions, self.kv.plan(rows))

    def _forward(self, token_ids: list[int], positions: list[int], sequences: Sequences) -> Tensor:
        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            self.kv.write(layer, sequences, key, value)  # of all rows, before any reads: one may hit another's block
            return self.kv.attend(layer, sequences, query)

        device = self.model.device
        return self.model.hidden(torch.tensor(token_ids, device=device), torch.tensor(positions, device=device), attend)


def require_finite(rows: list[Row], logits: Sequence[Tensor]) -> None:
    """Raise `FloatingPointError`, naming the request, unless the logits of all rows are finite."""
    for row, own in zip(rows, logits, strict=True):
        try:
            check_logits(own)
        except FloatingPointError as error:
            raise FloatingPointError(f"request {row.request.id!r}: {error}") from None


def sample_row(row: Row, logits: Tensor) -> list[int]:
    """The tokens that `row` yields, from the logits (count, vocab_size) of its last tokens.

    A draft is verified with the very numbers that would have drawn its tokens one by one: it is kept up to the first
    token that would have been another. That accepts a drafted token as often as rejection sampling does where the draft
    is certain of it, and the text is the one without a draft, token by token.
    """
    request, position = row.request, row.num_computed_tokens + row.num_tokens - len(row.spec_token_ids)
    if request.temperature == 0:
        target = logits.argmax(-1).tolist()  # all at once
    else:
        target = [
            sample(own, request.temperature, draw_at(position + ahead, request.seed, request.sample))
            for ahead, own in enumerate(logits)
        ]
    if row.spec_token_ids:
        return list(verify_greedy(row.spec_token_ids, target).tokens)
    if row.num_samples <= 1 or request.temperature == 0:
        return target * row.num_samples
    more = (draw_at(position, request.seed, index) for index in range(1, row.num_samples))
    return target + [sample(logits[0], request.temperature, draw) for draw in more]

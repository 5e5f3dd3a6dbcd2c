"""`TorchExecutor`: the engine's scheduler drives a real model, its KV in pages (sections 8.2 and 8.3).

The tokens of all rows of a batch go through the model as one flat row; only attention knows where requests begin and
end. What is the same whatever runs beside a request: which K and V its tokens see, and which random numbers draw them.
What is not: the last bits of a float, since a matrix product of 1 row and one of 16 add in different orders. So greedy
texts are equal wherever the best logit leads by more than that rounding (in float32 about 1e-5 of the logits).
"""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from servelab.checks import require_int
from servelab.engine import Batch, Request, Row
from servelab.model.decoder import Decoder
from servelab.model.generate import check_logits, draw_at, sample
from servelab.model.kv_formats import KVFormat
from servelab.model.paged import PagedKV


class TorchExecutor:
    """Runs batches on `model`, where that is, and reads the wall clock. Satisfies `engine.Executor`.

    num_blocks, block_size  those of the scheduler's pool, or more blocks
    kv_dtype                how K and V are stored: a name of `kv_formats.FORMATS`, or a `KVFormat`
    kernels                 whether the library's CPU kernels serve the cache; `None`: where they can
    clock, sleep            seconds from any start, and waiting; a test gives others. Time 0 is the first look at it

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
    ):
        self.model = model
        self.kv = PagedKV(model.config, num_blocks, block_size, kv_dtype, model.device, kernels)
        self._clock = clock
        self._sleep = sleep
        self._start_s: float | None = None

    def now(self) -> float:
        if self._start_s is None:
            self._start_s = self._clock()
        return self._clock() - self._start_s

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
        self.kv.copy_blocks(batch.copies)
        hidden = self._hidden(batch)  # (num_tokens, hidden_size)
        ends, rows = [], []
        end = 0
        for row in batch.rows:
            end += row.num_tokens
            if row.num_samples:
                rows.append(row)
                ends.append(end - 1)
        logits = self.model.logits(hidden[torch.tensor(ends, dtype=torch.int64, device=hidden.device)])
        self._require_finite(rows, logits)
        tokens = iter(self._sample(rows, logits))
        if hidden.is_cuda:
            torch.cuda.synchronize(hidden.device)  # no row may have sampled: the clock must not run ahead
        return [next(tokens) if row.num_samples else [] for row in batch.rows]

    def _require_same_pool(self, batch: Batch) -> None:
        pool = batch.rows[0].request.table.pool
        if pool.block_size != self.kv.block_size or pool.num_blocks > self.kv.num_blocks:
            raise ValueError(
                f"the scheduler's pool has {pool.num_blocks} blocks of {pool.block_size} tokens; "
                f"it must have at most {self.kv.num_blocks} of {self.kv.block_size}, the executor's"
            )

    def _hidden(self, batch: Batch) -> Tensor:
        """Run the layers on the new tokens of all rows. Returns (num_tokens, hidden_size)."""
        kv, device = self.kv, self.model.device
        token_ids, positions = [], []
        for row in batch.rows:
            token_ids += row.token_ids
            positions += row.positions
        sequences = kv.plan(
            [(row.num_computed_tokens, row.num_tokens, row.request.table.block_ids) for row in batch.rows]
        )

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            kv.write(layer, sequences, key, value)  # of all rows, before any reads: one may hit another's block
            return kv.attend(layer, sequences, query)

        return self.model.hidden(torch.tensor(token_ids, device=device), torch.tensor(positions, device=device), attend)

    def _require_finite(self, rows: list[Row], logits: Tensor) -> None:
        try:
            check_logits(logits)
        except FloatingPointError:
            for row, own in zip(rows, logits, strict=True):
                try:
                    check_logits(own)
                except FloatingPointError as error:
                    raise FloatingPointError(f"request {row.request.id!r}: {error}") from None

    def _sample(self, rows: list[Row], logits: Tensor) -> list[list[int]]:
        """The tokens of each row from `logits`, (len(rows), vocab_size)."""
        best = logits.argmax(-1).tolist()  # all at once: sampling is the exception
        tokens = []
        for row, own, likeliest in zip(rows, logits, best, strict=True):
            request, position = row.request, row.num_computed_tokens + row.num_tokens
            if request.temperature == 0:
                tokens.append([likeliest] * row.num_samples)
                continue
            samples = range(request.sample, request.sample + row.num_samples)
            tokens.append(
                [sample(own, request.temperature, draw_at(position, request.seed, index)) for index in samples]
            )
        return tokens

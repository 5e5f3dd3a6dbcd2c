"""How long a step takes: fitted, or bounded by a roofline; efficiency (sections 8.2.1 to 8.2.4 and 8.6.3).

Times are seconds, work is operations (a multiply and an add are two), sizes are bytes.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from servelab import batching, memory
from servelab.catalog import Accelerator, Model
from servelab.checks import require_int, require_number


def causal_pairs(new_tokens: int, context: int) -> int:
    """Pairs of query and key that attention computes for `new_tokens` behind `context` tokens: c*h + c*(c+1)/2.

    The first new token sees the context and itself, the last one all new tokens too (figures 8-8 and 8-9).
    """
    require_int("new_tokens", new_tokens)
    require_int("context", context)
    return new_tokens * context + new_tokens * (new_tokens + 1) // 2


@dataclass(frozen=True)
class StepCost:
    """A step's time as fitted to measurements: a fixed part, a part a new token, a part a causal pair; in seconds.

    The chapter's fit to experiment 8-1 (Qwen3-8B, RTX PRO 6000, batch 1) is `StepCost(26.22e-3, 30.4e-6, 3e-9)`.
    """

    fixed_s: float
    per_new_token_s: float
    per_causal_pair_s: float

    @classmethod
    def from_fit(cls, fit: Mapping) -> "StepCost":
        """Of an entry of the catalog or of a calibration, which says more beside it."""
        return cls(**{field.name: fit[field.name] for field in fields(cls)})

    def __post_init__(self):
        for field in fields(self):
            require_number(field.name, getattr(self, field.name))

    def seconds(self, rows: Iterable[tuple[int, int]]) -> float:
        """Seconds of one step; each of `rows` is a request's (new tokens, context computed before the step)."""
        new_tokens = pairs = 0
        for count, context in rows:  # causal_pairs unchecked: this is the simulator's innermost loop
            new_tokens += count
            pairs += count * context + count * (count + 1) // 2
        return self.fixed_s + self.per_new_token_s * new_tokens + self.per_causal_pair_s * pairs


def step_flops(model: Model, rows: Iterable[tuple[int, int]], logit_rows: int | None = None) -> int:
    """Matrix operations of one step; each of `rows` is a request's (new tokens, context computed before).

    Projections and FFN cost the same for each new token, attention 4 operations for each causal pair, head and head
    dimension. `logit_rows`: positions that go through the output head; one a request if None.
    """
    rows = list(rows)
    new_tokens = sum(count for count, _ in rows)
    pairs = sum(causal_pairs(count, context) for count, context in rows)
    logit_rows = len(rows) if logit_rows is None else logit_rows
    require_int("logit_rows", logit_rows, maximum=new_tokens)
    per_token = 2 * model.num_layers * model.active_parameters_per_layer
    per_pair = 4 * model.num_layers * model.num_heads * model.head_dim
    return new_tokens * per_token + pairs * per_pair + logit_rows * 2 * model.embedding_parameters


@dataclass(frozen=True)
class Roofline:
    """Lower bounds of one step: it takes at least the longer of computing and reading."""

    compute_s: float
    read_s: float

    @property
    def seconds(self) -> float:
        return max(self.compute_s, self.read_s)

    @property
    def bound(self) -> str:
        """ "compute" or "read", whichever takes longer."""
        return "compute" if self.compute_s > self.read_s else "read"


def roofline(model: Model, accelerator: Accelerator, rows, kv_dtype="bf16", mfu=1.0, mbu=1.0, weights_in_rom=False):
    """The `Roofline` of one step over `rows`, (new tokens, context computed before) of each request.

    `mfu` and `mbu` are the shares of peak compute and bandwidth that are reached; 1 gives the floor. Reads: the
    weights once (none from HBM with `weights_in_rom`) and each request's context. What a step writes is left out.
    """
    rows = list(rows)
    require_number("mfu", mfu, maximum=1, above=True)
    require_number("mbu", mbu, maximum=1, above=True)
    new_tokens = sum(count for count, _ in rows)
    weights = 0 if weights_in_rom else batching.weight_read_bytes(model, rows=new_tokens)
    kv = sum(context for _, context in rows) * memory.kv_bytes_per_token(model, kv_dtype)
    return Roofline(
        compute_s=step_flops(model, rows) / (accelerator.flops * mfu),
        read_s=(weights + kv) / (accelerator.bandwidth * mbu),
    )


def compute_bound_batch(model: Model, accelerator: Accelerator, context: int, largest: int = 65536, **efficiency):
    """The smallest decode batch whose computing takes longer than its reading, or None up to `largest`.

    With a long context there is none: KV reads grow with the batch as computing does, and faster.
    """
    require_int("largest", largest, minimum=1)

    def is_compute_bound(batch):
        return roofline(model, accelerator, [(1, context)] * batch, **efficiency).bound == "compute"

    if not is_compute_bound(largest):
        return None
    return bisect_left(range(1, largest + 1), True, key=is_compute_bound) + 1


def padded_rows(rows: int, captured: Iterable[int]) -> int:
    """Rows that are computed when `rows` run in the smallest captured shape that holds them.

    Beyond the largest shape nothing is captured: the step runs unpadded, and its launches cost time again.
    """
    require_int("rows", rows, minimum=1)
    captured = sorted(captured)
    for shape in captured:
        require_int("captured", shape, minimum=1)
    return next((shape for shape in captured if shape >= rows), rows)


def mfu(flops: float, seconds: float, accelerator: Accelerator) -> float:
    """Model FLOP utilization: the share of the accelerator's peak that the model's operations reach."""
    require_number("seconds", seconds, above=True)
    return flops / seconds / accelerator.flops


def mbu(read_bytes: float, seconds: float, accelerator: Accelerator) -> float:
    """Model bandwidth utilization: the share of peak bandwidth that the necessary reads reach."""
    require_number("seconds", seconds, above=True)
    return read_bytes / seconds / accelerator.bandwidth

"""What happened: a table of steps and a table of requests, from which all times and figures come."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import NamedTuple


@dataclass(slots=True)
class Segment:
    """Consecutive steps in which a request got `num_tokens` tokens each; in step i of them its context was
    `num_computed_tokens + i * num_tokens`. Stored instead of rows: a decode of 255 steps is one segment."""

    first_step: int
    num_steps: int
    num_tokens: int
    num_computed_tokens: int  # its context in the first step
    num_samples: int  # tokens it yielded in each step
    admission: int  # orders the rows of a step
    num_drafted: int = 0  # of its tokens, how many were a draft

    @property
    def num_accepted(self) -> int:
        """Drafted tokens that became output: all that it yielded but one, which the model chose."""
        return max(0, self.num_samples - 1) if self.num_drafted else 0

    @property
    def steps(self) -> range:
        return range(self.first_step, self.first_step + self.num_steps)


@dataclass(slots=True)
class RequestRecord:
    """One request's history. Times are seconds of the engine's clock; `None` until (or unless) it comes to that."""

    id: str
    arrival_s: float
    num_prompt_tokens: int
    max_tokens: int
    parent: str | None = None
    status: str = "waiting"  # a value of `Status`
    finish_s: float | None = None  # when it left: finished, or cancelled and off the accelerator
    num_preemptions: int = 0
    num_cached_tokens: int = 0  # found in the prefix cache when it was first admitted
    output_token_ids: list[int] | None = None
    segments: list[Segment] = field(default_factory=list)
    steps: "Steps" = field(default=None, repr=False, compare=False)

    @property
    def token_s(self) -> list[float]:
        """When each output token was there: the end of its step."""
        return [
            self.steps.end_s[step]
            for segment in self.segments
            for step in segment.steps
            for _ in range(segment.num_samples)
        ]

    @property
    def num_output_tokens(self) -> int:
        return sum(segment.num_steps * segment.num_samples for segment in self.segments)

    @property
    def num_drafted(self) -> int:
        """Tokens that were drafted for it and verified."""
        return sum(segment.num_drafted for segment in self.segments)

    @property
    def num_accepted(self) -> int:
        """Of these, how many became output."""
        return sum(segment.num_accepted for segment in self.segments)

    @property
    def admitted_s(self) -> float | None:
        """Start of the first step it took part in."""
        return self.steps.start_s[self.segments[0].first_step] if self.segments else None

    @property
    def first_token_s(self) -> float | None:
        first = next((segment for segment in self.segments if segment.num_samples), None)
        return None if first is None else self.steps.end_s[first.first_step]

    @property
    def ttft_s(self) -> float | None:
        """Time to first token, from arrival: waiting and prefill."""
        return None if self.first_token_s is None else self.first_token_s - self.arrival_s

    @property
    def itl_s(self) -> list[float]:
        """Inter-token latencies: the gap before each output token but the first."""
        return [later - earlier for earlier, later in pairwise(self.token_s)]

    @property
    def max_itl_s(self) -> float | None:
        return max(self.itl_s, default=None)

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first: the mean of this request's gaps."""
        times = self.token_s
        return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None

    @property
    def latency_s(self) -> float | None:
        """From arrival until it left."""
        return None if self.finish_s is None else self.finish_s - self.arrival_s


class StepRow(NamedTuple):
    """One request's part in a step."""

    request_id: str
    num_tokens: int
    num_computed_tokens: int  # context
    num_samples: int
    kind: str  # "prefill" (first time or again) or "decode"
    num_drafted: int = 0  # of its tokens
    num_accepted: int = 0  # of these


class Step(NamedTuple):
    index: int
    start_s: float
    end_s: float
    rows: list[StepRow]  # in scheduling order
    preempted: list[str]
    num_free_blocks: int  # after scheduling

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s

    @property
    def num_tokens(self) -> int:
        return sum(row.num_tokens for row in self.rows)

    @property
    def is_decode(self) -> bool:
        """Whether it computes no prompt: each of its rows decodes."""
        return all(row.kind == "decode" for row in self.rows)


class Steps(Sequence):
    """The steps in order. Columns are stored; rows are put together from the requests' segments when asked for."""

    _STRIDE = 64  # steps that share one list of candidate segments

    def __init__(self, requests: list[RequestRecord]):
        self.start_s: list[float] = []
        self.end_s: list[float] = []
        self.num_free_blocks: list[int] = []
        self.preempted: dict[int, list[str]] = {}  # by step, where there were any
        self._requests = requests
        self._candidates: dict[int, list] | None = None

    def append(self, start_s: float, end_s: float, num_free_blocks: int) -> None:
        self.start_s.append(start_s)
        self.end_s.append(end_s)
        self.num_free_blocks.append(num_free_blocks)
        self._candidates = None

    def __len__(self) -> int:
        return len(self.end_s)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        position = range(len(self))[index]  # negative and out of range as in a list
        return Step(
            position,
            self.start_s[position],
            self.end_s[position],
            [row for _, row in sorted(self._rows(position), key=lambda entry: entry[0])],
            self.preempted.get(position, []),
            self.num_free_blocks[position],
        )

    def __iter__(self) -> Iterator[Step]:
        return (self[position] for position in range(len(self)))

    def _rows(self, step: int) -> Iterator[tuple[int, StepRow]]:
        if self._candidates is None:
            self._candidates = defaultdict(list)
            for request in self._requests:
                for segment in request.segments:
                    for stride in range(segment.steps[0] // self._STRIDE, segment.steps[-1] // self._STRIDE + 1):
                        self._candidates[stride].append((request, segment))
        for request, segment in self._candidates.get(step // self._STRIDE, []):
            # A fork's first token comes from its parent's row: it has no row of its own in that step.
            if step in segment.steps and segment.num_tokens:
                context = segment.num_computed_tokens + (step - segment.first_step) * segment.num_tokens
                is_decode = segment.num_tokens - segment.num_drafted == 1 and context >= request.num_prompt_tokens
                kind = "decode" if is_decode else "prefill"
                drafts = (segment.num_drafted, segment.num_accepted)
                row = StepRow(request.id, segment.num_tokens, context, segment.num_samples, kind, *drafts)
                yield segment.admission, row


class Trace:
    """`steps` and `requests` of one run, in order of steps and of adding; `config` says how it was run."""

    def __init__(self, config: dict | None = None):
        self.config = config or {}
        self.requests: list[RequestRecord] = []
        self.steps = Steps(self.requests)

    @property
    def total_s(self) -> float:
        """When the last step ended, on a clock that starts at 0."""
        return self.steps.end_s[-1] if len(self.steps) else 0.0

    @property
    def max_itl_s(self) -> float | None:
        """The longest gap between two consecutive output tokens of a request; `None` if there is no gap."""
        gaps = (request.max_itl_s for request in self.requests)
        return max((gap for gap in gaps if gap is not None), default=None)

    @property
    def num_output_tokens(self) -> int:
        return sum(request.num_output_tokens for request in self.requests)

    @property
    def num_drafted(self) -> int:
        return sum(request.num_drafted for request in self.requests)

    @property
    def num_accepted(self) -> int:
        return sum(request.num_accepted for request in self.requests)

    @property
    def num_preemptions(self) -> int:
        return sum(request.num_preemptions for request in self.requests)

    def __getitem__(self, request_id: str) -> RequestRecord:
        """The record of the request with this id; `KeyError` if there is none."""
        for request in self.requests:
            if request.id == request_id:
                return request
        raise KeyError(request_id)

    def __eq__(self, other) -> bool:
        return isinstance(other, Trace) and self._as_dict() == other._as_dict()

    def _as_dict(self) -> dict:
        def columns(request: RequestRecord) -> dict:
            return {
                name: [list(asdict(segment).values()) for segment in request.segments]
                if name == "segments"
                else getattr(request, name)
                for name in RequestRecord.__slots__
                if name != "steps"
            }

        steps = self.steps
        return {
            "config": self.config,
            "requests": [columns(request) for request in self.requests],
            "steps": {
                "start_s": steps.start_s,
                "end_s": steps.end_s,
                "num_free_blocks": steps.num_free_blocks,
                "preempted": [[step, ids] for step, ids in steps.preempted.items()],
            },
        }

    def to_json(self) -> str:
        """All of it; floats keep their exact value."""
        return json.dumps({"format": "servelab-trace-1", **self._as_dict()})

    @classmethod
    def from_json(cls, text: str) -> "Trace":
        """The trace that `to_json` wrote. Raises `ValueError` if `text` is something else."""
        try:
            data = json.loads(text)
            if data["format"] != "servelab-trace-1":
                raise ValueError(f"format is {data['format']!r}; it must be 'servelab-trace-1'")
            trace = cls(data["config"])
            for entry in data["requests"]:
                segments = [Segment(*values) for values in entry.pop("segments")]
                trace.requests.append(RequestRecord(**entry, segments=segments, steps=trace.steps))
            columns = data["steps"]
            for values in zip(columns["start_s"], columns["end_s"], columns["num_free_blocks"], strict=True):
                trace.steps.append(*values)
            trace.steps.preempted.update(columns["preempted"])
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"text is no trace: {type(error).__name__}: {error}") from error
        return trace

    def to_pandas(self) -> tuple:
        """Two DataFrames: rows of steps (one line a request and step), and requests. Needs pandas."""
        import pandas

        steps = [
            {"step": step.index, "start_s": step.start_s, "end_s": step.end_s, **row._asdict()}
            for step in self.steps
            for row in step.rows
        ]
        names = "id arrival_s admitted_s ttft_s tpot_s max_itl_s finish_s num_prompt_tokens num_output_tokens"
        names = [*names.split(), "num_cached_tokens", "num_preemptions", "status"]
        requests = [{name: getattr(request, name) for name in names} for request in self.requests]
        return pandas.DataFrame(steps), pandas.DataFrame(requests, columns=names)

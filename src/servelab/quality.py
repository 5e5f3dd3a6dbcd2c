"""Did a faster configuration change the answers, and what does a wrong one cost (section 8.4.4)?

Outcomes are a dict from a run to whether its answer was right. A run is any key; `outcomes` makes it a tuple, the
task first: the same task with the same concurrency and repeat number. Times are seconds.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from servelab.checks import require_int, require_name, require_number


def outcomes(rows: Iterable[Mapping], run_columns: Sequence[str] = ("task", "concurrency", "repeat")) -> dict:
    """Outcomes of one configuration from rows with `run_columns` and "correct" (0 or 1), as in record "kv-quality"."""
    results = {}
    for row in rows:
        for column in (*run_columns, "correct"):
            require_name("run_columns", column, row)
        run = tuple(row[column] for column in run_columns)
        if run in results:
            raise ValueError(f"rows has the run {run} twice; it must have each once: name more columns")
        if row["correct"] not in (0, 1):
            raise ValueError(f"correct is {row['correct']!r} in run {run}; it must be 0 or 1")
        results[run] = bool(row["correct"])
    return results


def grid(results: Mapping[tuple, bool]) -> dict[Hashable, tuple[bool, ...]]:
    """Outcomes as a table: a row a task, a column for each other part of the run, in their first order (figure 8-26).

    Raises `ValueError` unless every task has the same columns.
    """
    columns = {}
    for task, *column in results:
        columns.setdefault(task, []).append(tuple(column))
    expected = next(iter(columns.values()), [])
    for task, found in columns.items():
        if set(found) != set(expected):
            raise ValueError(f"results has the runs {found} of task {task!r}; it must have {expected}, as of others")
    return {task: tuple(results[task, *column] for column in expected) for task in columns}


@dataclass(frozen=True)
class Pairing:
    """Runs of the same tasks with two configurations, by who was right."""

    both: tuple[Hashable, ...]
    only_first: tuple[Hashable, ...]  # flipped to wrong
    only_second: tuple[Hashable, ...]  # flipped to right
    neither: tuple[Hashable, ...]

    @property
    def flips(self) -> int:
        """Runs whose outcome changed; equal numbers of right answers can hide any number of them."""
        return len(self.only_first) + len(self.only_second)

    @property
    def p_value(self) -> float:
        """`mcnemar_p_value` of the flips. It takes runs as independent: repeats of one task are not."""
        return mcnemar_p_value(len(self.only_first), len(self.only_second))


def pair(first: Mapping[Hashable, bool], second: Mapping[Hashable, bool]) -> Pairing:
    """Compare two configurations run by run. Raises `ValueError` unless both have the same runs."""
    if first.keys() != second.keys():
        unpaired = sorted(first.keys() ^ second.keys(), key=repr)
        raise ValueError(f"second lacks, or has beyond first, the runs {unpaired}; it must have the same as first")

    def runs(*results):
        return tuple(run for run in first if (first[run], second[run]) == results)

    return Pairing(runs(True, True), runs(True, False), runs(False, True), runs(False, False))


def changed_tasks(first: Mapping[tuple, bool], second: Mapping[tuple, bool]) -> dict[Hashable, tuple[int, int]]:
    """Tasks with a flip, and how many of their runs were right with the first and with the second configuration."""
    pairing = pair(first, second)
    changed = {task for task, *_ in pairing.only_first + pairing.only_second}
    before, after = grid(first), grid(second)
    return {task: (sum(before[task]), sum(after[task])) for task in before if task in changed}


def mcnemar_p_value(only_first: int, only_second: int) -> float:
    """Exact two-sided McNemar test: how likely flips so one-sided are if either direction is as likely.

    Given n flips, those in one direction are binomial(n, 1/2); runs that did not change say nothing. Twice the smaller
    tail, at most 1; 1 without flips. McNemar 1947, doi:10.1007/BF02295996, in its exact form.
    """
    require_int("only_first", only_first)
    require_int("only_second", only_second)
    flips = only_first + only_second
    tail = sum(math.comb(flips, count) for count in range(min(only_first, only_second) + 1))
    return float(min(Fraction(1), Fraction(2 * tail, 2**flips)))


@dataclass(frozen=True)
class Attempt:
    """One generated answer: its time and output tokens, and whether it was right."""

    generate_s: float
    output_tokens: int
    is_correct: bool

    def __post_init__(self):
        require_number("generate_s", self.generate_s)
        require_int("output_tokens", self.output_tokens)


@dataclass(frozen=True)
class RetryCost:
    """What tasks cost until their last attempt, summed over tasks. Times are seconds."""

    succeeded: int  # tasks whose last attempt was right
    retries: int
    total_s: float  # generating, checking and switching, from the first attempt to the last
    last_only_s: float  # generating in the last attempts: what a count of successes alone would show
    retry_s: float  # generating in all attempts but the first
    retry_tokens: int

    @property
    def hidden_s(self) -> float:
        """What counting only the last attempts leaves out."""
        return self.total_s - self.last_only_s


def retry_cost(attempts: Sequence[Attempt], check_s: float = 0.0) -> RetryCost:
    """Cost of one task with `attempts` in order; `check_s`: checking all answers and switching configuration.

    Raises `ValueError` without attempts, or if one follows a right answer: there is nothing to retry then.
    """
    require_number("check_s", check_s)
    if not attempts:
        raise ValueError("attempts is empty; it must hold at least one attempt")
    if any(attempt.is_correct for attempt in attempts[:-1]):
        raise ValueError("attempts goes on after a right answer; it must end with the first one")
    generate_s = [attempt.generate_s for attempt in attempts]
    return RetryCost(
        succeeded=int(attempts[-1].is_correct),
        retries=len(attempts) - 1,
        total_s=sum(generate_s) + check_s,
        last_only_s=generate_s[-1],
        retry_s=sum(generate_s[1:]),
        retry_tokens=sum(attempt.output_tokens for attempt in attempts[1:]),
    )


def total_cost(costs: Iterable[RetryCost]) -> RetryCost:
    """The sum over tasks, each with its `retry_cost`."""
    costs = list(costs)
    if not costs:
        raise ValueError("costs is empty; it must hold the cost of at least one task")
    return RetryCost(*(sum(getattr(cost, name) for cost in costs) for name in RetryCost.__dataclass_fields__))


def recorded_costs(rows: Iterable[Mapping]) -> list[RetryCost]:
    """The `retry_cost` of each row of record "retries"."""
    costs = []
    for row in rows:
        require_int("attempts", row["attempts"], minimum=1, maximum=2)
        first = Attempt(row["first_answer_s"], row["first_output_tokens"], bool(row["first_answer_correct"]))
        again = Attempt(row["retry_s"], row["retry_output_tokens"], bool(row["final_answer_correct"]))
        costs.append(retry_cost([first, again][: row["attempts"]], row["check_and_switch_s"]))
    return costs


def expected_task_seconds(answer_s: float, error_rate: float, retry_s: float, check_s: float = 0.0) -> float:
    """Expected time of a task with at most one retry: each answer is checked, a wrong first one is generated again."""
    require_number("answer_s", answer_s)
    require_number("error_rate", error_rate, maximum=1)
    require_number("retry_s", retry_s)
    require_number("check_s", check_s)
    return answer_s + check_s + error_rate * (retry_s + check_s)


def break_even_error_rate(saved_s: float, retry_s: float, check_s: float = 0.0) -> float:
    """Errors a faster first answer may add before retries eat up the `saved_s` that it saves: a difference of rates.

    Above 1: it pays even if every answer must be repeated. Raises `ValueError` if a retry takes no time.
    """
    require_number("saved_s", saved_s)
    require_number("retry_s", retry_s, above=True)
    require_number("check_s", check_s)
    return saved_s / (retry_s + check_s)

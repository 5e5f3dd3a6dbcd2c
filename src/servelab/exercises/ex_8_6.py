"""Exercise 8-6: what compressed KV saves, which answers it changes, what retries cost (sections 8.4.2 and 8.4.4)."""

import itertools
import math

from servelab import catalog, memory, quality
from servelab.exercises.mistakes import in_other_units
from servelab.exercises.part import Choice, Part, Wrong

MODEL = catalog.model("qwen3-8b")
VALUES_A_TOKEN = memory.kv_bytes_per_token(MODEL) // 2  # BF16 takes 2 bytes a value
INPUT, REQUEST = 8192, memory.request_kv_bytes(MODEL, 8192, 256) // (2 * VALUES_A_TOKEN)  # tokens held
CODE_BITS = {"q8_0": 8, "q4_0": 4}
FORMATS = ("bf16_kv_bf16_q", "fp8_kv_bf16_q", "fp8_kv_fp8_q")
RETRIES = catalog.record("retries").rows


def recorded_outcomes(kv_q_format):
    """One list a task, of its four runs: 1 where the answer was right."""
    found = quality.grid(quality.outcomes(catalog.record("kv-quality").where(kv_q_format=kv_q_format)))
    return [[int(right) for right in runs] for runs in found.values()]


def recorded_attempts(rows=RETRIES):
    """One list a task, of [seconds, right] for each attempt."""
    first = [[row["first_answer_s"], row["first_answer_correct"]] for row in rows]
    again = [[row["retry_s"], row["final_answer_correct"]] for row in rows]
    return [[a, b][: row["attempts"]] for a, b, row in zip(first, again, rows, strict=True)]


def grouped_bytes(num_values, code_bits, group, scale_bytes):
    return math.ceil(num_values / group) * (group * code_bits // 8 + scale_bytes)


def by_run(tasks):
    return {(task, run): bool(right) for task, runs in enumerate(tasks, 1) for run, right in enumerate(runs)}


def changed_tasks(first, second):
    return list(quality.changed_tasks(by_run(first), by_run(second)))


def flips(first, second):
    pairing = quality.pair(by_run(first), by_run(second))
    return [len(pairing.only_first), len(pairing.only_second)]


def successful(tasks):
    return [attempts for attempts in tasks if attempts[-1][1]]


def success_seconds(tasks):
    everything = sum(seconds for attempts in successful(tasks) for seconds, _ in attempts)
    return [float(everything), float(sum(attempts[-1][0] for attempts in successful(tasks)))]


def draw_grouped(random):
    group = random.choice([16, 32, 64, 128, 256])
    return (
        random.randint(1, 10 ** random.choice([1, 2, 4, 8, 11])),
        random.choice([2, 4, 8]),
        group,
        random.choice([2, 4]),
    )


def draw_outcomes(random):
    tasks, runs = random.randint(1, 8), random.randint(1, 4)
    first = [[random.randint(0, 1) for _ in range(runs)] for _ in range(tasks)]
    return first, [[right ^ (random.random() < 0.25) for right in task] for task in first]


def draw_tasks(random):
    """At most three attempts, the last of which may be wrong too."""
    tasks = []
    for _ in range(random.randint(1, 6)):
        wrong = [[random.randint(1, 40) / 8, 0] for _ in range(random.randint(0, 2))]
        tasks.append([*wrong, [random.randint(1, 40) / 8, int(random.random() < 0.75)]])
    return (tasks,)


BYTES = Part(
    id="8-6a",
    title="Bytes of grouped codes",
    returns="one int, in bytes",
    expected=grouped_bytes,
    book=tuple((tokens * VALUES_A_TOKEN, bits, 32, 2) for tokens in (INPUT, REQUEST) for bits in CODE_BITS.values()),
    others=((32, 8, 32, 2), (32, 4, 32, 2), (64, 4, 32, 2), (16, 8, 16, 4), (33, 8, 32, 2), (1, 2, 16, 2)),
    draw=draw_grouped,
    wrong=(
        *in_other_units(grouped_bytes),
        Wrong("no scales", lambda n, b, g, s: math.ceil(n / g) * g * b // 8, "you leave out the scales, one a group."),
        Wrong("one scale", lambda n, b, g, s: math.ceil(n / g) * g * b // 8 + s, "every group has a scale of its own."),
        Wrong("a scale a value", lambda n, b, g, s: math.ceil(n / g) * g * b // 8 + n * s,
              "a group shares one scale. That is what the group is for."),
        Wrong("bits for bytes", lambda n, b, g, s: math.ceil(n / g) * (g * b + s),
              "codes are given in bits. How many bytes are they?"),
        Wrong("scale in bits", lambda n, b, g, s: math.ceil(n / g) * (g * b + s) // 8,
              "you take the scale's bytes for bits."),
        Wrong("groups rounded down", lambda n, b, g, s: n // g * (g * b // 8 + s),
              "right if the values fill their groups. What of a last group that is not full?"),
        Wrong("group not padded", lambda n, b, g, s: math.ceil(n * b / 8) + math.ceil(n / g) * s,
              "a last group that is not full is stored whole."),
    ),
    hints=(
        "How many groups are there? A group that is not full is stored whole.",
        "A group holds group x code_bits / 8 bytes of codes, and its scale.",
        "ceil(num_values / group) x (group x code_bits // 8 + scale_bytes).",
    ),
)  # fmt: skip


def gained_lost(first, second):
    """Tasks whose number of right answers differs."""
    return [task for task, (a, b) in enumerate(zip(first, second, strict=True), 1) if sum(a) != sum(b)]


def only(before, after):
    """Tasks with a run that went from `before` to `after`."""
    return lambda first, second: [
        task
        for task, (a, b) in enumerate(zip(first, second, strict=True), 1)
        if any(bool(x) is before and bool(y) is after for x, y in zip(a, b, strict=True))
    ]


CHANGED = Part(
    id="8-6b",
    title="Tasks whose answers changed",
    returns="one list of ints, the numbers of tasks from 1 on, in order",
    expected=changed_tasks,
    book=tuple(itertools.combinations(map(recorded_outcomes, FORMATS), 2)),
    others=(([[1]], [[1]]), ([[1]], [[0]]), ([[0], [1]], [[1], [1]]), ([[1, 0]], [[0, 1]]),
            ([[1, 1], [0, 1]], [[1, 1], [1, 0]]), ([[0], [1]], [[1], [0]])),
    draw=draw_outcomes,
    wrong=(
        Wrong("counted from 0", lambda first, second: [task - 1 for task in changed_tasks(first, second)],
              "tasks are numbered from 1 on."),
        Wrong("right answers differ", gained_lost,
              "you compare how many runs of a task were right. As many may be right while others are."),
        Wrong("got worse", only(True, False), "you list tasks that got worse. Others may have got better."),
        Wrong("got better", only(False, True), "you list tasks that got better. Others may have got worse."),
        Wrong("all", lambda first, second: list(range(1, len(first) + 1)), "you list every task. Which ones changed?"),
        Wrong("unchanged", lambda first, second: [
            task for task in range(1, len(first) + 1) if task not in changed_tasks(first, second)],
            "these are the tasks that did not change."),
        Wrong("how many", lambda first, second: len(changed_tasks(first, second)),
              "this is how many tasks changed. Their numbers are wanted."),
        Wrong("always wrong in one", lambda first, second: [
            task for task, (a, b) in enumerate(zip(first, second, strict=True), 1) if any(a) != any(b)],
            "you look whether a task was ever right. One of its runs may have changed all the same."),
    ),
    hints=(
        "Compare run by run: the same task, the same run, both configurations.",
        "A task belongs in the list if at least one of its runs differs.",
        "[task for task, (a, b) in enumerate(zip(first, second), 1) if a != b].",
    ),
)  # fmt: skip

FLIPS = Part(
    id="8-6c",
    title="Flips in both directions",
    returns="two ints: runs that became wrong, runs that became right",
    expected=flips,
    book=CHANGED.book,
    others=CHANGED.others,
    draw=draw_outcomes,
    wrong=(
        Wrong("swapped", lambda *case: flips(*case)[::-1], "the two numbers are in the other order."),
        Wrong("net", lambda first, second: [
            max(0, sum(map(sum, first)) - sum(map(sum, second))), max(0, sum(map(sum, second)) - sum(map(sum, first)))],
            "you subtract totals. Runs that became wrong and runs that became right cancel there."),
        Wrong("right answers", lambda first, second: [sum(map(sum, first)), sum(map(sum, second))],
              "these are the right answers of each configuration. How many runs changed?"),
        Wrong("all flips", lambda *case: sum(flips(*case)), "you add both directions. Return them apart."),
        Wrong("tasks", lambda *case: [len(only(True, False)(*case)), len(only(False, True)(*case))],
              "you count tasks. A task has several runs, and each may change."),
        Wrong("wrong in both", lambda first, second: [
            sum(not right for runs in tasks for right in runs) for tasks in (second, first)],
            "you count wrong answers. Some of them were wrong before as well."),
        Wrong("shares", lambda first, second: [n / (sum(map(len, first)) or 1) for n in flips(first, second)],
              "these are shares of all runs. Numbers of runs are wanted."),
        Wrong("signed", lambda *case: [-flips(*case)[0], flips(*case)[1]], "both are numbers of runs, without a sign."),
    ),
    hints=(
        "Compare run by run, as in part b.",
        "Count the runs that were right first and wrong then, and the other way round.",
        "Two sums over zip(first, second) and, within, zip(a, b): of `x and not y`, and of `y and not x`.",
    ),
)  # fmt: skip

COST = Part(
    id="8-6d",
    title="Seconds of tasks that succeeded",
    returns="two numbers, in seconds: all their attempts, their last attempts",
    expected=success_seconds,
    book=tuple((recorded_attempts(rows),) for rows in (RETRIES, RETRIES[:4], RETRIES[4:])),
    others=(([[[1, 1]]],), ([[[1, 0], [2, 1]]],), ([[[1, 0]]],), ([[[2, 1]], [[1, 0], [1, 0]]],),
            ([[[1, 1]], [[2, 0], [3, 1]]],), ([[[1, 0], [1, 0], [2, 1]]],)),
    draw=draw_tasks,
    wrong=(
        Wrong("all tasks", lambda tasks: [
            sum(s for task in tasks for s, _ in task), sum(task[-1][0] for task in tasks)],
            "you count tasks that never succeeded as well."),
        Wrong("right attempts only", lambda tasks: [success_seconds(tasks)[1]] * 2,
              "the first number leaves out the attempts that failed before. They took time as well."),
        Wrong("first attempts", lambda tasks: [
            success_seconds(tasks)[0], sum(task[0][0] for task in successful(tasks))],
            "the second number counts first attempts. Which attempt gave the right answer?"),
        Wrong("retries", lambda tasks: [
            sum(s for task in successful(tasks) for s, _ in task[1:]), success_seconds(tasks)[1]],
            "the first number has retries only. First answers took time as well."),
        Wrong("right at once", lambda tasks: [sum(task[0][0] for task in tasks if task[0][1])] * 2,
              "you count tasks that were right at once. Others succeeded later."),
        Wrong("means", lambda tasks: [total / (len(successful(tasks)) or 1) for total in success_seconds(tasks)],
              "these are means a task. Sums are wanted."),
        Wrong("swapped", lambda tasks: success_seconds(tasks)[::-1], "the two numbers are in the other order."),
        Wrong("hidden", lambda tasks: [
            success_seconds(tasks)[0] - success_seconds(tasks)[1], success_seconds(tasks)[1]],
            "the first number is what the last attempts hide. All attempts together are wanted."),
    ),
    hints=(
        "Which tasks succeeded? Those whose last attempt was right.",
        "For each of them: the seconds of all attempts, and those of the last one.",
        "Two sums over tasks with task[-1][1]: of all s in the task, and of task[-1][0].",
    ),
)  # fmt: skip

CLAIM = Choice(
    id="8-6e",
    title="What these records show",
    options={
        "a": "FP8 KV with BF16 query is as good as BF16 KV: both have 28 of 32 right.",
        "b": "FP8 KV with BF16 query changed two tasks of eight, one each way. The retries say what an error costs "
             "in another set, with FP8 weights, and both are of one document.",
        "c": "FP8 KV causes two retries in eight answers, which eats up what it saves.",
        "d": "The 32 runs of a configuration are 32 independent samples, so 28 and 28 prove that both are equal.",
    },
    right="b",
    wrong={
        "a": "The totals are equal. Were the same answers right? Part b says it.",
        "c": "Look at the weights of the retry records, and at the documents that were asked again.",
        "d": "Four runs of one task gave the same answer nearly every time. How many tasks are there?",
    },
    hints=(
        "What do equal totals say about single answers?",
        "Read what the two records are about: print(catalog.record(name).what) for kv-quality and retries.",
        "How many tasks changed? Of how many documents are the retries?",
    ),
)  # fmt: skip

PARTS = (BYTES, CHANGED, FLIPS, COST, CLAIM)

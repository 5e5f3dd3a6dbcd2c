"""8-2e to 8-2h: the records of six requests, a budget for each of two goals, and what decides.

In wrong answers, m is what was measured and x the limit.
"""

from statistics import mean, median

from servelab import catalog
from servelab.exercises.part import Choice, Part, Wrong

MEASURED_BUDGETS = (512, 8192)


def queue_rows():
    """(budget, trial, request, queue_ms) of the two configurations with chunked prefill and no graphs."""
    rows = catalog.record("six-requests").rows
    return [
        (row["step_token_cap"], row["trial"], row["request"], row["engine_queue_ms"])
        for row in rows
        if row["configuration"].endswith("_chunked_eager")
    ]


def measured():
    """(budget, longest interval, median queue of r4) of the same configurations, in ms."""
    rows = catalog.record("six-requests-itl").rows
    return [
        (row["step_token_cap"], row["itl_ms_max"], row["r4_queue_ms_median"])
        for row in rows
        if row["configuration"].endswith("_chunked_eager")
    ]


def times(records, budget, request):
    return [row[3] for row in records if row[0] == budget and row[2] == request]


def median_queue_ms(records, budget, request):
    return float(median(times(records, budget, request)))


def of_times(compute):
    return lambda records, budget, request: compute(times(records, budget, request))


def draw_records(random):
    """An odd or even number of trials, in any order."""
    budgets, names, trials = random.sample([256, 512, 1024, 4096, 8192], 2), ["r0", "r4", "r5"], random.randint(3, 6)
    records = [(b, t, name, round(random.uniform(0, 200), 3)) for b in budgets for t in range(trials) for name in names]
    random.shuffle(records)
    return records, random.choice(budgets), random.choice(names)


QUEUE = Part(
    id="8-2e",
    title="How long a later request queues",
    returns="one number, in ms",
    expected=median_queue_ms,
    book=tuple((queue_rows(), budget, request) for budget in MEASURED_BUDGETS for request in ("r4", "r5")),
    others=(([(512, 0, "r4", 7.0)], 512, "r4"),
            ([(512, 0, "r4", 7.0), (512, 1, "r4", 1.0), (512, 2, "r4", 2.0)], 512, "r4"),
            ([(512, 0, "r4", 9.0), (512, 0, "r5", 3.0), (8192, 0, "r4", 1.0)], 512, "r4"),
            ([(512, 0, "r4", 8.0), (512, 1, "r4", 2.0), (8192, 0, "r4", 1.0), (8192, 1, "r4", 3.0)], 8192, "r4")),
    draw=draw_records,
    wrong=(
        Wrong("mean", of_times(mean), "this is the mean. One slow trial moves it; the median is asked for."),
        Wrong("longest", of_times(max), "this is the longest of the trials. The median is asked for."),
        Wrong("shortest", of_times(min), "this is the shortest of the trials. The median is asked for."),
        Wrong("first", of_times(lambda values: values[0]), "this is one trial only. How many were there?"),
        Wrong("sum", of_times(sum), "this is the sum of the trials. The median is asked for."),
        Wrong("not sorted", of_times(lambda values: values[len(values) // 2]),
              "this is the middle of the list as it stands. A median needs the values in order."),
        Wrong("upper middle", of_times(lambda values: sorted(values)[len(values) // 2]),
              "right for an odd number of trials. What is the median of an even number of them?"),
        Wrong("all requests", lambda records, budget, _: median(row[3] for row in records if row[0] == budget),
              "you mix all requests of the budget. Only the one that is named is asked for."),
        Wrong("all budgets", lambda records, _, request: median(row[3] for row in records if row[2] == request),
              "you mix the budgets. Only the one that is named is asked for."),
        Wrong("all", lambda records, budget, request: median(row[3] for row in records),
              "you use every row. Which of them belong to this budget and this request?"),
    ),
    hints=(
        "Which rows have this budget and this request? There is one for each trial.",
        "Take the fourth number of those rows and put them in order. The middle one is the median.",
        "statistics.median([queue for b, trial, name, queue in records if b == budget and name == request]).",
    ),
)  # fmt: skip


def least(rows, column):
    return min(rows, key=lambda row: row[column], default=(None, None, None))


def below(m, x):
    return [row for row in m if row[1] < x]


def budgets(measured, limit_ms):
    return least(below(measured, limit_ms), 2)[0], least(measured, 2)[0]


def draw_measured(random):
    """Times in no order of the budget, so that its size alone decides nothing; sometimes a limit that is just met."""
    names = random.sample([256, 512, 1024, 2048, 4096, 8192], random.randint(2, 6))
    rows = [(name, round(random.uniform(5, 200), 1), round(random.uniform(0, 200), 2)) for name in names]
    return rows, random.choice([random.randint(1, 210), random.choice(rows)[1]])


BUDGETS = Part(
    id="8-2f",
    title="A token budget for each goal",
    returns="two budgets, (for the interval goal, for the admission goal), the first None if no budget will do",
    expected=budgets,
    book=tuple((measured(), limit) for limit in (30, 50, 200)),
    others=(([(512, 10, 5)], 20), ([(512, 10, 5)], 10), ([(512, 10, 5), (1024, 20, 3)], 30),
            ([(512, 10, 5), (1024, 20, 3)], 20), ([(512, 10, 5), (1024, 20, 3), (2048, 30, 1)], 25),
            ([(512, 20, 3), (1024, 10, 5)], 15), ([(512, 10, 2), (1024, 20, 3)], 30)),
    draw=draw_measured,
    wrong=(
        Wrong("swapped", lambda m, x: budgets(m, x)[::-1],
              "both budgets are there, in the wrong order: the interval goal first."),
        Wrong("up to the limit", lambda m, x: (least([row for row in m if row[1] <= x], 2)[0], least(m, 2)[0]),
              "the longest interval must be below the limit. One of yours just reaches it."),
        Wrong("shortest interval", lambda m, x: (least(below(m, x), 1)[0], least(m, 2)[0]),
              "your first budget has the shortest interval. Of those below the limit, which has the shortest queue?"),
        Wrong("largest budget below", lambda m, x: (max(below(m, x), default=[None])[0], least(m, 2)[0]),
              "for the first goal you take the largest budget below the limit. The times decide, not its size."),
        Wrong("smallest budget below", lambda m, x: (min(below(m, x), default=[None])[0], least(m, 2)[0]),
              "for the first goal you take the smallest budget below the limit. The times decide, not its size."),
        Wrong("largest budget", lambda m, x: (budgets(m, x)[0], max(m)[0]),
              "for the second goal you take the largest budget. Which one has the shortest queue in the records?"),
        Wrong("limit for both", lambda m, x: (budgets(m, x)[0],) * 2,
              "the limit belongs to the first goal only."),
        Wrong("limit for none", lambda m, x: (budgets(m, x)[1],) * 2,
              "the first goal has a limit. Does the longest interval of your budget stay below it?"),
        Wrong("something for the first goal", lambda m, x: (least(below(m, x) or m, 2 if below(m, x) else 1)[0],
              least(m, 2)[0]), "right where a budget meets the limit. If none does, None is asked for."),
        Wrong("times", lambda m, x: (least(below(m, x), 2)[1], least(m, 2)[2]),
              "these are times. The budgets that have them are asked for."),
    ),
    hints=(
        "For the first goal, which rows are allowed at all? For the second, all of them are.",
        "Among the allowed rows, take the one with the shortest queue. What if no row is allowed?",
        "min(rows, key=lambda row: row[2]) gives the row; its first number is the budget. No row: None.",
    ),
)  # fmt: skip

INTERVAL_ITEM = Choice(
    id="8-2g",
    title="What decides the interval goal",
    options={
        "a": "The median interval: half of the intervals are longer.",
        "b": "The 95th percentile of the intervals: it counts the slow ones.",
        "c": "The longest interval: the step that takes in the longest input at once.",
        "d": "The time that a later request queues before its first step.",
    },
    right="c",
    wrong={
        "a": "Compare the medians of the two budgets. Would they tell the budgets apart?",
        "b": "Compare this percentile at 512 and at 8,192. Which of the two budgets would it choose?",
        "d": "Which budget queues longer? Is that the one which the limit of 50 ms rules out?",
    },
    hints=(
        "Look at the four columns of intervals in the record. Which ones differ much between the budgets?",
        "The goal speaks of every interval, also of one in 1,998. Which number says something about every one?",
        "r3 brings 4,096 input tokens. In how many steps does a budget of 8,192 compute them?",
    ),
)

ADMISSION_ITEM = Choice(
    id="8-2h",
    title="What decides the admission goal",
    options={
        "a": "The time until a later request's first token: it falls as much as its time in the queue.",
        "b": "The time that a later request queues in the engine while chunks of an earlier input use up the budget.",
        "c": "The time until a later request's last token: a larger budget shortens every output interval.",
        "d": "The fixed part of a step: with a larger budget it is smaller.",
    },
    right="b",
    wrong={
        "a": "Compare r4's client_ttft_ms at both budgets: by how much does it fall, by how much the queue?",
        "c": "Is the last token part of being admitted? And is the longest interval shorter with the larger budget?",
        "d": "Does the fixed part depend on how many tokens a step computes? How many steps are there?",
    },
    hints=(
        "The goal is admission: what must happen before a request is in a step for the first time?",
        "r3's input is longer than 512 tokens. What is left of the budget for r4 while it is computed?",
        "Which of the columns of the record changes most from 512 to 8,192 for r4?",
    ),
)

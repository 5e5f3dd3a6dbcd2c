"""8-2c and 8-2d: what a step of continuous batching holds, and why one output interval is so long.

In wrong answers, r are the contexts of running requests, w the inputs of waiting ones, m the most that may run.
"""

from servelab.exercises.part import Choice, Part, Wrong


def decodes(running):
    return [(1, context) for context in running]


def prefills(waiting):
    return [(length, 0) for length in waiting]


def step_rows(running, waiting, max_running):
    return decodes(running) + prefills(waiting[: max_running - len(running)])


def draw_step(random):
    max_running = random.randint(1, 8)
    running = [random.randint(1, 9000) for _ in range(random.randint(0, max_running))]
    return running, [random.randint(1, 9000) for _ in range(random.randint(0 if running else 1, 6))], max_running


def draw_rows(case, answer):
    """The learner's step: what each row computes, behind which context."""
    rows = ["Drawn, your rows: - a token of the context, # a new token:"]
    for new_tokens, context in answer:
        if not 0 <= new_tokens <= 40 or not 0 <= context <= 40:
            return None
        rows.append("-" * context + "#" * new_tokens)
    return "\n".join(rows)


ROWS = Part(
    id="8-2c",
    title="Rows of a step of continuous batching",
    returns="a list with a pair (new tokens, context) for each request of the step",
    expected=step_rows,
    book=(([], [2048, 2048], 2), ([2048, 2048], [8192, 2048], 2), ([2049], [8192, 2048], 2), ([2050, 8192], [2048], 2)),
    others=(([], [3], 1), ([4], [], 1), ([4], [3], 1), ([4], [3], 2), ([4], [3, 2], 2), ([4], [3, 2], 3),
            ([4, 5], [6, 3], 4), ([], [5, 2, 4], 2)),
    draw=draw_step,
    picture=draw_rows,
    wrong=(
        Wrong("nothing admitted", lambda r, w, m: decodes(r),
              "no waiting request is ever admitted. When is there a place for one?"),
        Wrong("all admitted", lambda r, w, m: decodes(r) + prefills(w),
              "you admit every waiting request. How many may run at once?"),
        Wrong("running ones not counted", lambda r, w, m: decodes(r) + prefills(w[:m]),
              "you admit max_running of the waiting ones. Some places are taken already."),
        Wrong("one at a time", lambda r, w, m: decodes(r) + prefills(w[: min(1, m - len(r))]),
              "you admit at most one. If two places are free, two waiting requests enter the same step."),
        Wrong("whole groups", lambda r, w, m: decodes(r) or prefills(w[:m]),
              "this is a fixed batch: nobody enters until all have left. Continuous batching refills at each step."),
        Wrong("decodes wait", lambda r, w, m: prefills(w[: m - len(r)]) or decodes(r),
              "running requests pause while new ones are admitted. Here they generate in the same step."),
        Wrong("prefills first", lambda r, w, m: prefills(w[: m - len(r)]) + decodes(r),
              "the rows are there, in another order: running requests first, then admitted ones."),
        Wrong("shortest first", lambda r, w, m: step_rows(r, sorted(w), m),
              "you admit the shortest inputs first. Here the request that arrived first enters first."),
        Wrong("last first", lambda r, w, m: step_rows(r, w[::-1], m),
              "you admit from the end of the list. The request that arrived first enters first."),
        Wrong("context after the step", lambda r, w, m: [(c, h + c) for c, h in step_rows(r, w, m)],
              "the context is what was computed before the step, without the new tokens."),
        Wrong("whole context again", lambda r, w, m: [(h + 1, 0) for h in r] + prefills(w[: m - len(r)]),
              "a running request has the KV of its context. How many new tokens does it compute in a step?"),
        Wrong("first input token is context", lambda r, w, m: decodes(r) + [(c - 1, 1) for c, _ in step_rows([], w,
              m - len(r))], "an admitted request has no KV yet: all of its input is new, and its context is 0."),
    ),
    hints=(
        "A running request computes one new token a step, behind its context. What does an admitted one compute?",
        "The free places are max_running - len(running). Who takes them, and in which order?",
        "[(1, context) for each running one] + [(length, 0) for the first waiting ones, as many as places are free].",
    ),
)  # fmt: skip

CAUSE = Choice(
    id="8-2d",
    title="Cause of the longest interval",
    options={
        "a": "r0 has no part in that step: it must leave its place to r2 and wait for the next step.",
        "b": "r0's own token takes longer there, because its context has grown.",
        "c": "The fixed part of the step is paid twice, once for each request.",
        "d": "r0's token comes out of the same step as all of r2's input, and a step ends for all at once.",
    },
    right="d",
    wrong={
        "a": "Look at the rows of that step: which of them belongs to r0?",
        "b": "Compute what r0's row adds to that step: one token and its pairs. How many ms is that?",
        "c": "All rows share one fixed part. Which items of your step time have grown from the step before?",
    },
    hints=(
        "Print the rows of the step before and of this one. What is new?",
        "Split the long step into its three items, and each item by request. Which one is the largest?",
        "When does r0 get its next token: after its own row, or when the whole step is done?",
    ),
)

"""The four-request example of section 8.2.2, run by the learner's functions and written down step by step."""

from servelab.exercises.ex_8_2.times import BOOK_COSTS

REQUESTS = {"r0": (0, 2048, 8), "r1": (0, 2048, 2), "r2": (20, 8192, 2), "r3": (30, 2048, 4)}  # ms, input, output
MOST_STEPS = 40


def replayed(step_rows, step_ms, max_running=2) -> str:
    """A line for each step: when it ran, how long, and what each request computed in it.

    Follows the rows that `step_rows` gives, and says where they fit no request. One "-" for functions that are not
    written yet.
    """
    now, lines = 0.0, []
    waiting, running, left = list(REQUESTS), {}, {name: output for name, (_, _, output) in REQUESTS.items()}
    while waiting or running:
        arrived = [name for name in waiting if REQUESTS[name][0] <= now]
        if not running and not arrived:
            now = min(REQUESTS[name][0] for name in waiting)
            continue
        rows = step_rows(list(running.values()), [REQUESTS[name][1] for name in arrived], max_running)
        millis = None if rows is None or rows is ... else step_ms(rows, *BOOK_COSTS) if rows else 0.0
        if millis is None or millis is ...:
            return "-"
        names = [*running, *arrived][: len(rows)]
        fits = len(names) == len(rows) and [(1, running[name]) for name in running] == [
            tuple(row) for row in rows[: len(running)]
        ]
        if not rows or not fits or len(lines) == MOST_STEPS:
            return "\n".join([*lines, f"{now:6.1f} ms  here your rows fit no request: {rows}"])
        does = ", ".join(f"{name} {'decode' if name in running else 'prefill'}" for name in names)
        lines.append(f"{now:6.1f} ms  step of {millis:5.1f} ms: {does}  {rows}")
        now += millis
        for name, (new_tokens, context) in zip(names, rows, strict=True):
            running[name], left[name] = context + new_tokens, left[name] - 1
        waiting = [name for name in waiting if name not in running]
        running = {name: context for name, context in running.items() if left[name]}
    return "\n".join([*lines, f"{now:6.1f} ms  all done"])

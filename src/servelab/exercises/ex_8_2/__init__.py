"""Exercise 8-2: step times, the longest output interval, and a token budget for a goal (sections 8.2.2 to 8.2.4)."""

from servelab.exercises.ex_8_2.records import ADMISSION_ITEM, BUDGETS, INTERVAL_ITEM, QUEUE
from servelab.exercises.ex_8_2.replay import replayed
from servelab.exercises.ex_8_2.scheduling import CAUSE, ROWS
from servelab.exercises.ex_8_2.times import PAIRS, STEP

PARTS = (PAIRS, STEP, ROWS, CAUSE, QUEUE, BUDGETS, INTERVAL_ITEM, ADMISSION_ITEM)

__all__ = ["PARTS", "replayed"]

"""Exercise 8-8: what a faster stage does for a whole task, and what preparing it may cost (section 8.6.3).

In wrong answers, s are the seconds of the stages, i the one that gets faster, k how many times, x the preparation.
"""

from servelab import planning
from servelab.exercises.part import Choice, Part, Wrong

STAGES = [20, 50, 30]  # the book's task of 100 s: prefill, decode, tools and waiting
DECODE = 1


def speedup(stages_s, stage, factor, preparation_s=0.0):
    total_s = sum(stages_s)
    return planning.amdahl(stages_s[stage] / total_s, factor, preparation_s / total_s)


def task_s(stages_s, stage, factor):
    return sum(stages_s) / speedup(stages_s, stage, factor)


def net_speedup(stages_s, stage, factor, preparation_s):
    return speedup(stages_s, stage, factor, preparation_s)


def break_even_s(stages_s, stage, factor):
    total_s = sum(stages_s)
    return total_s * planning.break_even_preparation(stages_s[stage] / total_s, factor)


def limit_speedup(stages_s, stage):
    total_s = sum(stages_s)
    return total_s / (total_s - stages_s[stage])


def draw_stages(random):
    stages = [random.randint(1, 90) for _ in range(random.randint(2, 5))]
    return stages, random.randrange(len(stages))


def draw_factor(random):
    return *draw_stages(random), random.choice([1.5, 2, 3, 4, 8, 10])


def draw_preparation(random):
    return *draw_factor(random), random.randint(0, 40)


def without(stages_s, stage):
    return sum(stages_s) - stages_s[stage]


TASK = Part(
    id="8-8a",
    title="The task with one faster stage",
    returns="one number, in seconds",
    expected=task_s,
    book=tuple((STAGES, stage, 2) for stage in range(3)),
    others=(([1, 1], 0, 2), ([2, 4], 1, 2), ([2, 4], 0, 4), ([3, 1, 2], 0, 3), ([4, 4, 4], 2, 4)),
    draw=draw_factor,
    wrong=(
        Wrong("all stages", lambda s, i, k: sum(s) / k, "you make every stage faster. How many change?"),
        Wrong("seconds saved", lambda s, i, k: s[i] - s[i] / k,
              "these are the seconds saved. How long does the task take then?"),
        Wrong("that stage", lambda s, i, k: s[i] / k, "this is the faster stage alone. What of the others?"),
        Wrong("slower", lambda s, i, k: without(s, i) + s[i] * k, "the stage gets slower with you, not faster."),
        Wrong("stage left out", lambda s, i, k: without(s, i), "the stage gets faster, it does not go away."),
        Wrong("speed-up", lambda *case: speedup(*case), "this is the speed-up. The task's seconds are wanted."),
        Wrong("one stage earlier", lambda s, i, k: task_s(s, i - 1, k),
              "you change another stage. Stages are counted from 0."),
        Wrong("half", lambda s, i, k: task_s(s, i, 2), "right if the stage takes half as long. What of other factors?"),
    ),
    hints=(
        "Only one stage changes. What becomes of its time?",
        "The others take as long as before.",
        "sum(stages_s) - stages_s[stage] + stages_s[stage] / factor.",
    ),
)  # fmt: skip

NET = Part(
    id="8-8b",
    title="Net speed-up",
    returns="one number, how many times as fast",
    expected=net_speedup,
    book=((STAGES, DECODE, 4, 8), (STAGES, DECODE, 4, 0), (STAGES, DECODE, 4, 40)),
    others=(([1, 1], 0, 2, 0), ([2, 4], 1, 2, 1), ([2, 4], 1, 2, 3), ([3, 1, 2], 0, 3, 2), ([4, 4, 4], 2, 4, 5)),
    draw=draw_preparation,
    wrong=(
        Wrong("no preparation", lambda s, i, k, x: speedup(s, i, k), "you leave out the preparation."),
        Wrong("of the stage", lambda s, i, k, x: s[i] / (s[i] / k + x),
              "this is how much faster the stage became. How much faster is the task?"),
        Wrong("preparation faster as well", lambda s, i, k, x: sum(s) / (without(s, i) + (s[i] + x) / k),
              "you speed the preparation up as well. It takes its time once, as it is."),
        Wrong("upside down", lambda *case: 1 / net_speedup(*case),
              "this is new time over old. A speed-up is old over new."),
        Wrong("new total", lambda s, i, k, x: task_s(s, i, k) + x,
              "these are the task's new seconds. How many times as fast is that?"),
        Wrong("preparation before as well", lambda s, i, k, x: (sum(s) + x) / (task_s(s, i, k) + x),
              "the original task has no preparation."),
        Wrong("percent", lambda *case: 100 * (net_speedup(*case) - 1),
              "this is in percent. The ratio of times is wanted."),
        Wrong("share saved", lambda s, i, k, x: 1 - (task_s(s, i, k) + x) / sum(s),
              "this is the share of time saved. The ratio of times is wanted."),
    ),
    hints=(
        "Old seconds over new seconds, of the whole task.",
        "The new task has the faster stage, the other stages, and the preparation.",
        "sum(stages_s) / (task_s(stages_s, stage, factor) + preparation_s).",
    ),
)  # fmt: skip

EVEN = Part(
    id="8-8c",
    title="Preparation at which nothing is saved",
    returns="one number, in seconds",
    expected=break_even_s,
    book=((STAGES, DECODE, 4), (STAGES, DECODE, 2)),
    others=(([1, 1], 0, 2), ([2, 4], 1, 2), ([2, 4], 0, 4), ([3, 1, 2], 0, 3), ([4, 4, 4], 2, 4)),
    draw=draw_factor,
    wrong=(
        Wrong("the whole stage", lambda s, i, k: s[i],
              "you count the stage as gone. It still takes a part of its time."),
        Wrong("what is left", lambda s, i, k: s[i] / k, "this is what the stage still takes. What is saved?"),
        Wrong("new total", lambda s, i, k: task_s(s, i, k),
              "this is the new task without preparation. How much may be added to it?"),
        Wrong("book's preparation", lambda s, i, k: break_even_s(s, i, k) - 8,
              "you subtract the book's 8 s. All preparation that makes up for the saving is asked for."),
        Wrong("per factor", lambda s, i, k: (s[i] - s[i] / k) / k,
              "preparation is not sped up. Why divide the saving once more?"),
        Wrong("saved of the whole", lambda s, i, k: sum(s) * (1 - 1 / k), "only one stage saves time."),
        Wrong("share", lambda s, i, k: break_even_s(s, i, k) / sum(s),
              "this is a share of the task. Seconds are wanted."),
        Wrong("other stages", lambda s, i, k: without(s, i), "these are the other stages. They do not change."),
    ),
    hints=(
        "What does the faster stage save, in seconds?",
        "Preparation that takes just as long leaves the task as it was.",
        "stages_s[stage] x (1 - 1 / factor).",
    ),
)  # fmt: skip

LIMIT = Part(
    id="8-8d",
    title="What no factor exceeds",
    returns="one number, how many times as fast",
    expected=limit_speedup,
    book=tuple((STAGES, stage) for stage in range(3)),
    others=(([1, 1], 0), ([2, 4], 1), ([2, 4], 0), ([3, 1, 2], 0), ([4, 4, 4], 2)),
    draw=draw_stages,
    wrong=(
        Wrong("share", lambda s, i: s[i] / sum(s), "this is the stage's share. How fast is the task without it?"),
        Wrong("one over share", lambda s, i: sum(s) / s[i],
              "you keep the stage and drop all others. It is the other way round."),
        Wrong("seconds left", without, "these are the seconds left. How many times as fast is that?"),
        Wrong("share left", lambda s, i: without(s, i) / sum(s),
              "this is new time over old. A speed-up is old over new."),
        Wrong("ten times", lambda s, i: speedup(s, i, 10),
              "this is a factor of 10. What if the stage took no time at all?"),
        Wrong("four times", lambda s, i: speedup(s, i, 4),
              "this is a factor of 4. What if the stage took no time at all?"),
        Wrong("percent", lambda s, i: 100 * limit_speedup(s, i), "this is in percent. The ratio of times is wanted."),
        Wrong("no limit", lambda s, i: float("inf"), "even if the stage took no time, the others would."),
    ),
    hints=(
        "Let the factor grow without end. What becomes of the stage's time?",
        "What is left of the task then?",
        "sum(stages_s) / (sum(stages_s) - stages_s[stage]).",
    ),
)  # fmt: skip

WHERE = Choice(
    id="8-8e",
    title="Where to start",
    options={
        "a": "With decode: any factor brings most there, as it has the largest share.",
        "b": "With tools and waiting, as no model has to be changed for them.",
        "c": "With decode, as long as what the change adds elsewhere stays below what it saves. Its share bounds the "
             "gain, and falls as decode gets faster.",
        "d": "With whichever stage can be made faster by the largest factor.",
    },
    right="c",
    wrong={
        "a": "Compare your part c: with enough preparation a factor of four saves nothing at all.",
        "b": "Halving them saves 15 s. What does halving decode save?",
        "d": "Make prefill ten times as fast and decode twice. Which task is done first?",
    },
    hints=(
        "Use part a: what does halving each of the stages save?",
        "Use part b with 40 s of preparation. What is the largest share worth then?",
        "Use part a on a task whose decode is already four times as fast. Which stage is the largest now?",
    ),
)  # fmt: skip

PARTS = (TASK, NET, EVEN, LIMIT, WHERE)

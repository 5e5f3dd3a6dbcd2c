"""Judges an answer to a part. Prints nothing, so that a grader uses it as `check` does.

No verdict holds the expected value: it says that an answer is right, or what to think about.
"""

import contextlib
import copy
import dis
import inspect
import io
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass

from servelab.exercises.part import Choice, Measured, Part
from servelab.exercises.values import cut, equal, plain, same_form, shown, without_address

NEARLY = 1e-3  # relative; what rounding to three places leaves


@dataclass(frozen=True)
class Verdict:
    """`kind` is "right", "not answered", "known mistake", "off" (wrong on some input) or "misuse"."""

    part_id: str
    kind: str
    message: str

    @property
    def right(self) -> bool:
        return self.kind == "right"

    @property
    def text(self) -> str:
        return f"{self.part_id}: {self.message}"


@dataclass
class Outcome:
    """What the learner's function did on one input."""

    case: tuple
    value: object = None  # plain
    error: BaseException | None = None
    printed: str = ""


def judge(part: Part | Choice | Measured, answer) -> Verdict:
    """The verdict on `answer`: a function for a `Part`, a letter for a `Choice`, what a `Measured` part says."""
    if answer is None or answer is ...:
        return Verdict(part.id, "not answered", "not answered yet.")
    if isinstance(part, Measured):
        kind, message = part.judge(answer)
    else:
        kind, message = (judge_choice if isinstance(part, Choice) else judge_function)(part, answer)
    return Verdict(part.id, kind, message)


def judge_choice(choice: Choice, answer) -> tuple[str, str]:
    letter = answer.strip(" ().").lower() if isinstance(answer, str) else None
    if letter not in choice.options:
        letters = ", ".join(map(repr, choice.options))
        return "misuse", f"the answer must be one of {letters}, not {shown(answer)}."
    if letter == choice.right:
        return "right", "right."
    return "known mistake", f"not {letter}. {choice.wrong[letter]}"


def judge_function(part: Part, function) -> tuple[str, str]:
    problem = call_problem(part, function)
    if problem:
        return "misuse", problem
    outcomes = [run(function, case) for case in part.cases()]
    if does_nothing(function) or all(is_placeholder(outcome) for outcome in outcomes):
        return "not answered", "not answered yet."
    if all(outcome.error is None and outcome.value is None for outcome in outcomes):
        return "off", "your function returns nothing. Is its `return` missing?"

    wanted = [plain(part.expected(*outcome.case)) for outcome in outcomes]
    off = [
        (outcome, want)
        for outcome, want in zip(outcomes, wanted, strict=True)
        if not is_right(outcome, want, part.rel_tolerance)
    ]
    if not off:
        return "right", "right."
    problem = order_problem(part, function)
    if problem:
        return "misuse", problem
    known = known_mistake(part, outcomes)
    if known:
        return "known mistake", known
    if is_constant(outcomes) and not is_constant([Outcome((), want) for want in wanted]):
        return "off", (
            "your function returns the same whatever its arguments are. Compute from the arguments: "
            "the check also uses numbers that the text does not name."
        )
    book_is_right = not any(outcome.case in part.book for outcome, _ in off)
    outcome, want = off[0]
    return "off", counter_example(part, outcome, want, book_is_right, run(function, outcome.case))


def call_problem(part: Part, function) -> str | None:
    """Why `function` cannot be called with the part's arguments, or None."""
    if not callable(function):
        name = part.expected.__name__
        return f'give the function itself, without calling it: check("{part.id}", {name}).'
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in functions have none
        return None
    try:
        signature.bind(*part.arguments)
    except TypeError:
        wanted = ", ".join(part.arguments)
        return f"the function must take ({wanted}), in this order; yours takes {signature}."
    return None


def order_problem(part: Part, function) -> str | None:
    """Says that parameters with the expected names stand in another order, or None."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    places = {name: place for place, name in enumerate(part.arguments)}
    if all(places.get(name, place) == place for place, name in enumerate(signature.parameters)):
        return None
    return f"the parameters are in another order: yours takes {signature}, wanted is ({', '.join(part.arguments)})."


@contextlib.contextmanager
def exit_raises():
    """In Jupyter `exit()` asks the shell to stop the kernel. Here it raises `SystemExit`, as in plain Python."""
    ipython = sys.modules.get("IPython")  # not imported: where it is not loaded, there is no such `exit`
    shell = ipython.get_ipython() if ipython else None
    if shell is None:
        yield
        return

    def ask_exit():
        raise SystemExit

    shell.ask_exit = ask_exit  # covers the method
    try:
        yield
    finally:
        vars(shell).pop("ask_exit", None)


def run(function, case) -> Outcome:
    """Call `function` on a copy of the arguments: it may change them. What it prints is kept back.

    Whatever it raises is its own, `SystemExit` too; only an interrupt gets through.
    """
    outcome = Outcome(case)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), exit_raises():
        try:
            outcome.value = plain(function(*copy.deepcopy(case)))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            outcome.error = error
    outcome.printed = printed.getvalue()
    return outcome


def does_nothing(function) -> bool:
    """Whether the body is only `...`, `pass` or a docstring: untouched, not just without a `return`."""
    if not hasattr(function, "__code__"):
        return False
    nothing = {"RESUME", "NOP", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST"}
    steps = list(dis.get_instructions(function))
    returns_none = all(step.argval is None for step in steps if "CONST" in step.opname)
    return returns_none and all(step.opname in nothing for step in steps)


def is_placeholder(outcome: Outcome) -> bool:
    return outcome.value is ... or isinstance(outcome.error, NotImplementedError)


def is_right(outcome: Outcome, want, rel_tolerance: float) -> bool:
    return outcome.error is None and same_form(outcome.value, want) and equal(outcome.value, want, rel_tolerance)


def known_mistake(part: Part, outcomes: list[Outcome]) -> str | None:
    """The message of the usual wrong answer that this one equals on every input, or None."""
    if any(outcome.error for outcome in outcomes):
        return None
    for wrong in part.wrong:
        if all(equal(outcome.value, plain(wrong.compute(*outcome.case)), part.rel_tolerance) for outcome in outcomes):
            return wrong.message
    return None


def is_constant(outcomes: list[Outcome]) -> bool:
    first = outcomes[0].value
    return all(outcome.error is None and equal(outcome.value, first, 0) for outcome in outcomes)


def counter_example(part: Part, outcome: Outcome, want, book_is_right: bool, again: Outcome) -> str:
    """The smallest input on which the answer is off, and what the learner's function made of it.

    `again` is what it made of the same input later: something else, if it keeps state between calls.
    """
    start = "right on the book's numbers, not on all others." if book_is_right else "not right yet."
    given = zip(part.arguments, outcome.case, strict=True)
    lines = [
        f"{start} The smallest input where it goes wrong:",
        "    " + ", ".join(f"{name} = {shown(value)}" for name, value in given),
    ]
    if outcome.error:
        lines.append(f"    your function raised {describe_error(outcome.error)}")
    else:
        lines.append(f"    your function returned {shown(outcome.value)}{form_note(part, outcome, want)}")
        if same_form(outcome.value, want) and has_float(want) and equal(outcome.value, want, NEARLY):
            lines.append("    that is close: did you round, or compute with float32?")
        if part.picture and same_form(outcome.value, want):
            drawn = part.picture(outcome.case, outcome.value) or ""
            lines += [f"    {line}" for line in drawn.splitlines()]
    if gist(again) != gist(outcome):
        lines.append(
            "    called with the same arguments again, it answers differently: it remembers earlier calls. "
            "Does it change a global, or a default such as `[]`?"
        )
    if outcome.printed:
        lines.append(f"    it printed {shown(outcome.printed)}")
    return "\n".join(lines)


def gist(outcome: Outcome) -> str:
    """What two calls with the same arguments must have in common."""
    return without_address(repr(type(outcome.error) if outcome.error else outcome.value))


def form_note(part: Part, outcome: Outcome, want) -> str:
    """What is wrong with the answer's type, or an empty string."""
    if same_form(outcome.value, want):
        return ""
    if outcome.value is None:
        return ". Does every path through it end in a `return`?"
    note = f". Wanted: {part.returns}."
    if isinstance(outcome.value, Iterator):
        note += " Put list(...) around it, or use `return`, not `yield`."
    if has_float(outcome.value) and not has_float(want):
        note += " Whole numbers come from `//`; `/`, `np.ceil` and float factors make floats."
    return note


def has_float(value) -> bool:
    return any(map(has_float, value)) if isinstance(value, list) else isinstance(value, float)


def describe_error(error: BaseException) -> str:
    """The traceback's last line and, where it can be found, the line of the function that raised."""
    text = cut(traceback.format_exception_only(error)[-1].strip())
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is `run` itself
    # A library's frames say little to the learner; theirs are in the file, or cell, of the first frame.
    own = [frame for frame in frames if frame.filename == frames[0].filename]
    return f"{text}\n    at: {own[-1].line}" if own and own[-1].line else text

"""The judge of answers, on a toy part: n + 1."""

import asyncio
import json
import sys

import numpy as np
import pytest

from servelab.exercises import find_part
from servelab.exercises.judge import judge
from servelab.exercises.part import Part, Wrong, size


def toy(expected=lambda n: n + 1, **changes):
    fields = {
        "id": "0-0a", "title": "", "returns": "one int", "expected": expected, "book": ((5,), (7,)),
        "others": ((1,), (3,)), "wrong": (Wrong("same", lambda n: n, "that is n itself."),),
        "hints": ("one", "two", "three"), "draw": lambda random: (random.randint(1, 50),),
    }  # fmt: skip
    return Part(**(fields | changes))


def test_shows_the_smallest_input_and_the_answer():
    verdict = judge(toy(), lambda n: n + 1 if n < 6 else 0)
    smallest = min(n for (n,) in toy().cases() if n >= 6)
    assert verdict.kind == "off"
    assert verdict.text == (
        "0-0a: not right yet. The smallest input where it goes wrong:\n"
        f"    n = {smallest}\n    your function returned 0"
    )


def test_a_rounded_answer_is_told_that_it_is_close():
    part = toy(lambda n: n / 7, returns="one number")
    assert "did you round" in judge(part, lambda n: round(n / 7, 4)).message
    assert "did you round" not in judge(part, lambda n: n / 8).message
    assert "did you round" not in judge(toy(lambda n: 10**6 + n), lambda n: 10**6).message


def test_order_of_size_is_count_then_sum():
    assert size(([9, 1], 2)) < size(([1, 1, 1], 1))
    assert size(([2, 1], 2)) < size(([9, 1], 2))
    assert size(({"x": [1, 2]}, "text")) == (2, 3)


def test_what_fails_only_on_other_numbers_says_so():
    assert judge(toy(), lambda n: n + 1 if n in (5, 7) else 0).message.startswith("right on the book's numbers")


def test_a_constant_is_told_to_compute():
    assert "whatever its arguments are" in judge(toy(), lambda n: 6).message


def test_an_exception_is_reported_with_its_input_and_line():
    def divides(n):
        ratio = n / 0
        return ratio

    text = judge(toy(), divides).text
    assert "    n = 1\n    your function raised ZeroDivisionError: division by zero" in text
    assert "    at: ratio = n / 0" in text


def test_endless_recursion_is_an_exception():
    def recurses(n):
        return recurses(n)

    assert "raised RecursionError: maximum recursion depth exceeded" in judge(toy(), recurses).text


@pytest.mark.parametrize("error", [SystemExit(1), GeneratorExit(), asyncio.CancelledError(), BaseException("odd")])
def test_no_exception_of_the_function_ends_the_kernel(error):
    def leaves(n):
        raise error

    text = judge(toy(), leaves).text
    assert "your function raised" in text
    assert type(error).__name__ in text


def test_exit_is_reported():
    def leaves(n):
        sys.exit("bye")

    assert '    n = 1\n    your function raised SystemExit: bye\n    at: sys.exit("bye")' in judge(toy(), leaves).text


def test_the_line_shown_is_the_learners_own():
    def reads(n):
        return json.loads("{")

    assert judge(toy(), reads).text.endswith('at: return json.loads("{")')


def test_an_interrupt_gets_through():
    def interrupted(n):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge(toy(), interrupted)


NO_FLOATS = "Whole numbers come from `//`; `/`, `np.ceil` and float factors make floats."


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda n: float(n + 1), f"returned 2.0. Wanted: one int. {NO_FLOATS}"),
        (lambda n: np.ceil(n + 0.5), f"returned 2.0. Wanted: one int. {NO_FLOATS}"),
        (lambda n: [n + 1], "returned [2]. Wanted: one int."),
        (lambda n: str(n + 1), "returned '2'. Wanted: one int."),
        (lambda n: n == 1, "returned True. Wanted: one int."),
        (lambda n: n + 1 if n > 5 else None, "returned None. Does every path through it end in a `return`?"),
        (lambda n: (n, n + 1), "returned [1, 2]. Wanted: one int."),
    ],
)
def test_wrong_types(answer, said):
    assert judge(toy(), answer).text.splitlines()[2].endswith(said)


def test_wrong_length():
    part = toy(expected=lambda n: [n, n], returns="two ints", wrong=())
    assert "returned [1]. Wanted: two ints." in judge(part, lambda n: [n]).text
    assert "returned [1.5, 1]. Wanted: two ints. Whole numbers" in judge(part, lambda n: (n + 0.5, n)).text


def test_an_iterator_is_told_to_become_a_list():
    part = toy(expected=lambda n: [n, n], returns="two ints", wrong=())

    def yields(n):
        yield from (n, n)

    note = "Put list(...) around it, or use `return`, not `yield`."
    said = f"generator object test_an_iterator_is_told_to_become_a_list.<locals>.yields>. Wanted: two ints. {note}"
    assert judge(part, yields).text.splitlines()[2].endswith(said)
    for answer in (lambda n: (n for _ in range(2)), lambda n: map(abs, [n, n]), lambda n: zip([n], [n], strict=True)):
        text = judge(part, answer).text
        assert text.endswith(note)
        assert "0x" not in text


def test_state_kept_between_calls_is_named():
    part = toy(expected=lambda n: [n, n + 1], wrong=())
    collected = []

    def in_a_global(n):
        collected.extend((n, n + 1))
        return collected

    def in_a_default(n, found=[]):  # noqa: B006
        found += [n, n + 1]
        return found

    def in_a_default_that_breaks(n, calls=[]):  # noqa: B006
        calls.append(n)
        return [n, n + 1] if len(calls) < 5 else calls[len(calls)]

    for answer in (in_a_global, in_a_default):
        assert "answers differently: it remembers earlier calls" in judge(part, answer).text
    assert "raised IndexError" in judge(part, in_a_default_that_breaks).text
    for answer in (lambda n: [n, n], lambda n: iter([n]), lambda n: [float("nan")] * 2, lambda n: n / 0):
        assert "earlier calls" not in judge(part, answer).text


def test_a_missing_return_is_not_called_untouched():
    def forgets(n):
        n + 1

    assert judge(toy(), forgets).message == "your function returns nothing. Is its `return` missing?"


@pytest.mark.parametrize("answer", [lambda: 1, lambda n, m: 1, lambda *, n: 1])
def test_a_wrong_signature_is_refused(answer):
    verdict = judge(toy(), answer)
    assert verdict.kind == "misuse"
    assert "the function must take (n), in this order; yours takes (" in verdict.message


def test_parameters_in_another_order_are_named():
    part = toy(lambda items, step: [item // step for item in items], book=(([4], 2),), others=(), draw=None, wrong=())
    for answer in (lambda step, items: [item // step for item in items], lambda step, numbers: [step, *numbers]):
        verdict = judge(part, answer)
        assert verdict.kind == "misuse"
        assert verdict.message.startswith("the parameters are in another order: yours takes (step, ")
        assert verdict.message.endswith("wanted is (items, step).")
    assert judge(part, lambda things, by: [thing // by for thing in things]).right
    assert "'int' object is not iterable" in judge(part, lambda by, things: [thing // by for thing in things]).text


def test_a_right_answer_stays_right_whatever_its_parameters_are_called():
    part = toy(lambda a, b: a * b, book=((5, 7),), others=(), draw=None, wrong=())
    assert judge(part, lambda b, a: a * b).right


def test_other_parameter_names_and_defaults_are_fine():
    assert judge(toy(), lambda tokens, extra=1: tokens + extra).right
    assert judge(toy(), lambda *numbers: sum(numbers) + 1).right


@pytest.mark.parametrize("answer", [6, [1, 2], "n + 1"])
def test_a_called_function_is_refused(answer):
    assert "give the function itself, without calling it" in judge(find_part("8-3a"), answer).message


def test_answers_may_be_arrays_tuples_or_numpy_numbers():
    pairs = toy(expected=lambda n: (n, n + 1), wrong=())
    for make in (list, tuple, np.array, lambda pair: [np.int32(pair[0]), pair[1]]):
        assert judge(pairs, lambda n, make=make: make((n, n + 1))).right
    assert judge(toy(), lambda n: np.int64(n + 1)).right
    assert not judge(toy(), lambda n: np.float64(n + 1)).right


def test_floats_have_a_tolerance():
    third = toy(expected=lambda n: n / 3, returns="one float", wrong=(), rel_tolerance=0.01)
    assert judge(third, lambda n: n * 0.3333).right
    assert judge(third, lambda n: np.float32(n / 3)).right
    assert not judge(third, lambda n: n * 0.32).right
    assert not judge(third, lambda n: float("nan") if n > 9 else n / 3).right
    assert not judge(third, lambda n: 10**400 * n).right


def test_strings_and_nested_lists():
    part = toy(expected=lambda n: [("even", n / 2) if n % 2 == 0 else ("odd", n / 2)], wrong=())
    assert judge(part, lambda n: [[("even", "odd")[n % 2], n / 2]]).right
    assert not judge(part, lambda n: [["odd", n / 2]]).right


def test_a_function_may_change_its_arguments():
    part = toy(expected=lambda values: sum(values), book=(([5],),), others=(([1, 2],),), draw=None, wrong=())

    def empties(values):
        total = 0
        while values:
            total += values.pop()
        return total

    assert judge(part, empties).right
    assert part.book == (([5],),)


def test_prints_are_kept_back_and_shown_with_a_counter_example(capsys):
    def talks(n):
        print("n is", n)
        return n + 1 if n > 1 else 7

    verdict = judge(toy(), talks)
    assert capsys.readouterr().out == ""
    assert verdict.text.endswith("it printed 'n is 1\\n'")


def test_a_picture_is_drawn_only_for_an_answer_of_the_right_form():
    part = toy(picture=lambda case, answer: f"{case} gave\n{answer}", wrong=())
    assert judge(part, lambda n: n * 3).text.endswith("    (1,) gave\n    3")
    assert "gave" not in judge(part, lambda n: "text").text

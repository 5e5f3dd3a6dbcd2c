"""Grades as tables for a terminal, as CSV, and as JUnit XML."""

import csv
import io
from collections.abc import Iterable
from itertools import groupby
from xml.etree import ElementTree

from servelab.grading.notebook import Grade

WRONG = ("off", "known mistake", "misuse", "not answered")  # a JUnit failure; all else that is not right is an error
COLUMNS = ("learner", "exercise", "part", "verdict", "message")


def by_notebook(grades: Iterable[Grade]):
    """(learner, exercise, its grades) in the order in which they come."""
    for (learner, exercise), group in groupby(grades, key=lambda grade: (grade.learner, grade.exercise)):
        yield learner, exercise, list(group)


def parts_table(grades: Iterable[Grade]) -> str:
    """A line for each part: its id, its verdict, and the first line of what to think about."""
    lines = []
    for _, exercise, group in by_notebook(grades):
        lines.append(f"{exercise}  {sum(grade.right for grade in group)} of {len(group)} right")
        lines += [f"  {grade.part_id}  {_gist(grade)}" for grade in group]
    return "\n".join(lines)


def _gist(grade: Grade) -> str:
    first, _, more = grade.message.partition("\n")
    if first.endswith(":"):
        first += " " + more.partition("\n")[0].strip()
    return first if grade.kind in ("right", "not answered") else f"{grade.kind}: {first}"


def score_table(grades: Iterable[Grade]) -> str:
    """A line for each learner and exercise: right parts of all, and the others by name."""
    rows = [
        (
            learner,
            exercise,
            f"{sum(grade.right for grade in group)}/{len(group)}",
            ", ".join(f"{grade.part_id} {grade.kind}" for grade in group if not grade.right),
        )
        for learner, exercise, group in by_notebook(grades)
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)] if rows else []
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]]).rstrip()
        for row in rows
    )


def csv_text(grades: Iterable[Grade]) -> str:
    """A row for each part of each learner, under the names of `COLUMNS`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for grade in grades:
        writer.writerow((grade.learner, grade.exercise, grade.part_id, grade.kind, grade.message))
    return text.getvalue()


def junit_xml(grades: Iterable[Grade]) -> str:
    """A test suite for each notebook, a test case for each part: right passes, wrong fails, all else is an error."""
    suites = ElementTree.Element("testsuites")
    for learner, exercise, group in by_notebook(grades):
        counts = {
            "tests": len(group),
            "failures": sum(grade.kind in WRONG for grade in group),
            "errors": sum(not grade.right and grade.kind not in WRONG for grade in group),
        }
        suite = ElementTree.SubElement(
            suites, "testsuite", {"name": f"{learner} {exercise}"} | {key: str(count) for key, count in counts.items()}
        )
        for grade in group:
            case = ElementTree.SubElement(suite, "testcase", classname=f"{learner}.{exercise}", name=grade.part_id)
            if not grade.right:
                found = ElementTree.SubElement(case, "failure" if grade.kind in WRONG else "error", type=grade.kind)
                text = _printable(grade.message)
                found.set("message", text.partition("\n")[0])
                found.text = text
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    """Without control characters, which XML cannot hold: a learner's function may return or print any."""
    return "".join(character if character.isprintable() or character in "\n\t" else "?" for character in text)

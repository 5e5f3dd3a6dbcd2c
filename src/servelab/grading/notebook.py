"""Run one notebook within limits and judge every part of its exercise."""

import logging
import time
from dataclasses import dataclass

import nbformat
from nbclient.exceptions import DeadKernelError

from servelab.checks import require_int, require_number
from servelab.exercises import parts
from servelab.grading.kernel import VERDICT
from servelab.grading.submissions import Submission, checks, read
from servelab.notebooks import client_for
from servelab.units import MIB

NOT_REACHED = "not reached"
IN_KERNEL = "__import__('servelab.grading.kernel').grading.kernel"  # whatever names the notebook uses


@dataclass(frozen=True)
class Grade:
    """What became of one part.

    `kind` is that of a verdict ("right", "not answered", "known mistake", "off", "misuse"), or one of
    missing       the notebook has no check of this part
    error         the answer could not even be named: an exception
    time limit    the check did not come to an end
    not reached   the kernel died, or the notebook's time was up, before this check
    unreadable    the file is no notebook
    """

    learner: str
    exercise: str
    part_id: str
    kind: str
    message: str

    @property
    def right(self) -> bool:
        return self.kind == "right"


def grade_notebook(
    submission: Submission, seconds: float = 300, seconds_a_cell: float = 60, memory_mib: int = 4096
) -> list[Grade]:
    """One grade for each part of the exercise, in order. The file is not changed.

    Every cell runs as it stands, errors and all, in a fresh kernel of at most `memory_mib` of address space; a cell
    is interrupted after `seconds_a_cell`, the notebook ends after `seconds`. Behind each cell that checks a part, the
    answer that it names is judged by the package itself; the last check of a part counts.
    """
    require_number("seconds", seconds, minimum=1)
    require_number("seconds_a_cell", seconds_a_cell, minimum=1)
    require_int("memory_mib", memory_mib, minimum=512)
    wanted = {part.id for part in parts(submission.exercise)}
    try:
        notebook = read(submission.path)
    except ValueError as error:
        found, otherwise = {}, ("unreadable", str(error))
    else:
        named = {check.part_id for cell in code_cells(notebook) for check in checks(cell.source)}
        run = Run(notebook, submission.path, seconds, seconds_a_cell, memory_mib)
        found, ended = run.verdicts(wanted)
        found = {part_id: (NOT_REACHED, ended) for part_id in named} | found
        call = f'check("{submission.exercise}a", ...)'
        otherwise = ("missing", f"no check of this part, such as {call}, could be read in the notebook.")
    return [
        Grade(submission.learner, submission.exercise, part.id, *found.get(part.id, otherwise))
        for part in parts(submission.exercise)
    ]


def code_cells(notebook) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


class Run:
    """One execution of a notebook, and the verdicts on its way."""

    def __init__(self, notebook, path, seconds: float, seconds_a_cell: float, memory_mib: int):
        self._cells = code_cells(notebook)
        self._deadline = time.monotonic() + seconds
        self._seconds_a_cell = seconds_a_cell
        self._memory_bytes = memory_mib * MIB
        self._earlier = ""  # the first error since the last verdict: often why an answer has no name
        self._client = client_for(
            nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell()]),  # nbclient writes what ran into its cell 0
            path.parent,
            timeout_func=self._seconds_left,
            interrupt_on_timeout=True,
            error_on_timeout={"ename": "CellTimeoutError", "evalue": "", "traceback": []},
            allow_errors=True,
        )
        self._client.log.setLevel(logging.CRITICAL)  # time limits are reported as grades

    def _seconds_left(self, cell=None) -> float:
        return max(1, min(self._seconds_a_cell, self._deadline - time.monotonic()))

    def verdicts(self, wanted: set[str]) -> tuple[dict[str, tuple[str, str]], str]:
        """(kind, message) of each of the `wanted` parts that was reached, and why the run ended where it did."""
        found: dict[str, tuple[str, str]] = {}
        number = 0
        try:
            with self._client.setup_kernel():
                self._execute(f"{IN_KERNEL}.limit_memory({self._memory_bytes})")
                for number, cell in enumerate(self._cells, 1):
                    if time.monotonic() >= self._deadline:
                        return found, f"the notebook's time was up before code cell {number}."
                    outputs, named = self._execute(cell.source), checks(cell.source)
                    if not named:
                        self._note_error(number, outputs)
                    for check in named:
                        if check.part_id in wanted:
                            found[check.part_id] = self._judge(check)
        except DeadKernelError:
            return found, f"the kernel died in code cell {number}."
        return found, "the notebook ended before it."

    def _judge(self, check) -> tuple[str, str]:
        call = f"{IN_KERNEL}.report({check.part_id!r}, {check.answer})"
        outputs = self._execute(call)
        for output in reversed(outputs):  # the last is the package's own; a function may display what it likes before
            if output.output_type == "display_data" and VERDICT in output.data:
                self._earlier = ""
                return output.data[VERDICT]["kind"], output.data[VERDICT]["message"]
        errors = [output for output in outputs if output.output_type == "error"]
        if errors and errors[0].ename != "KeyboardInterrupt":
            return "error", f"{errors[0].ename}: {errors[0].evalue}{self._earlier}"
        return "time limit", f"the check was stopped after {self._seconds_a_cell:g} s."

    def _note_error(self, number: int, outputs) -> None:
        error = next((output for output in outputs if output.output_type == "error"), None)
        if error is None or self._earlier:
            return
        stopped = error.ename in ("KeyboardInterrupt", "CellTimeoutError")
        what = f"was stopped after {self._seconds_a_cell:g} s" if stopped else f"raised {error.ename}: {error.evalue}"
        self._earlier = f" (code cell {number} before it {what})"

    def _execute(self, source: str) -> list[nbformat.NotebookNode]:
        cell = nbformat.v4.new_code_cell(source)
        self._client.execute_cell(cell, 0)
        return cell.outputs

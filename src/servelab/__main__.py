"""Commands: `python -m servelab run NAME`, `calibrate`, `progress` and `grade`."""

import argparse
import inspect
import json
import os
import sys
from pathlib import Path

STOPPED = 130  # as a shell reports Ctrl-C


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit status: 0, 1 if it failed, 2 on wrong arguments, 130 after Ctrl-C."""
    options = parser().parse_args(arguments)
    try:
        return options.command(options)
    except (ValueError, OSError, ImportError) as error:  # ImportError: SmolLM2 is a package of its own
        print(f"servelab: {error}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    from servelab.experiments import MODULES

    top = argparse.ArgumentParser(prog="servelab", description="The commands of Tokens per Second.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run an experiment of the chapter on this machine")
    run.add_argument("name", choices=MODULES, metavar="NAME", help=", ".join(MODULES))
    run.add_argument("--output", type=Path, metavar="FILE", help="report, default runs/NAME.json; its figure beside it")
    run.add_argument(
        "--model", default="retrieval", help="'retrieval' (default), 'smollm2', or the folder of a Qwen3 checkpoint"
    )
    run.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    run.add_argument("--threads", type=int, default=1, help="threads (default 1: the model is small)")
    run.add_argument("--fresh", action="store_true", help="begin anew, whatever the report holds")
    run.add_argument(
        "--set", action="append", default=[], metavar="OPTION=JSON", help="an option of the experiment's points"
    )
    run.set_defaults(command=run_experiment)

    calibrate = commands.add_parser("calibrate", help="measure this machine; under two minutes")
    calibrate.add_argument(
        "--model", default="retrieval", help="'retrieval' (default), 'smollm2', or a checkpoint's folder"
    )
    calibrate.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    calibrate.add_argument("--threads", type=int, default=1, help="threads (default 1)")
    calibrate.set_defaults(command=calibrate_machine)

    progress = commands.add_parser("progress", help="check all parts of your exercises, print a table")
    progress.add_argument("folder", nargs="?", type=Path, default=Path("exercises"), help="default: exercises")
    progress.set_defaults(command=show_progress)

    grade = commands.add_parser("grade", help="run and judge the notebooks of many learners")
    grade.add_argument("folder", nargs="+", type=Path, help="with a folder for each learner, or that of one learner")
    grade.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML")
    grade.add_argument("--csv", type=Path, metavar="FILE", help="write CSV, a row for each part")
    grade.add_argument("--seconds", type=float, default=300, help="limit for a notebook (default 300)")
    grade.add_argument("--seconds-a-cell", type=float, default=60, help="limit for a cell (default 60)")
    grade.add_argument("--memory-mib", type=int, default=4096, help="limit for a kernel (default 4096)")
    grade.set_defaults(command=grade_learners)
    return top


class Progress:
    """A progress bar on a terminal, nothing elsewhere; called with (done, total) it moves, as text it says both."""

    def __init__(self, unit: str):
        from tqdm import tqdm

        self.bar = tqdm(unit=unit, disable=None)
        self.done = self.total = 0

    def __call__(self, done: int, total: int) -> None:
        self.bar.total = total
        self.bar.update(done - self.done)
        self.done, self.total = done, total

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self) -> None:
        self.bar.close()

    def __str__(self) -> str:
        return f"{self.done} of {self.total}"


def run_experiment(options: argparse.Namespace) -> int:

    from servelab import experiments
    from servelab.experiments import run
    from servelab.experiments.experiment import Subject

    chosen = experiments.find(options.name)
    values = point_options(chosen.points, options.set)
    path = options.output or Path("runs") / f"{options.name}.json"
    if path.suffix == ".html":
        raise ValueError(f"--output is {str(path)!r}; the figure goes to .html, so the report must end otherwise")
    set_threads(options.threads)
    subject = Subject.load(options.model, options.device)
    print(chosen.question)
    with Progress("point") as progress:
        try:
            report = run.run(chosen, subject, path, values, options.fresh, progress)
        except KeyboardInterrupt:
            progress.close()
            print(f"Stopped: {progress} points are in {path}. The same command goes on from there.")
            return STOPPED
        except OSError as error:
            progress.close()
            raise OSError(f"{progress} points are in {path}; the next could not be written: {error}") from error
    figure = path.with_suffix(".html")
    chosen.figure(run.rows_of(report)).write_html(figure)
    if report["step_cost"] is None:
        print("No prediction: this machine is not calibrated for this model (python -m servelab calibrate).")
    print(f"{path}: {len(report['rows'])} points. {figure}: their figure.")
    return 0


def point_options(points, assignments: list[str]) -> dict:
    """Keyword arguments of `points` from OPTION=JSON; raises `ValueError` on an unknown option or no JSON."""
    known = inspect.signature(points).parameters
    values = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if name not in known or not equals:
            raise ValueError(f"--set is {assignment!r}; it must be OPTION=JSON with one of {', '.join(known)}")
        try:
            values[name] = json.loads(text)
        except ValueError as error:
            raise ValueError(f"--set {name} is {text!r}; it must be JSON, such as [1, 2]: {error}") from error
    return values


def set_threads(count: int) -> None:
    """Threads of PyTorch and of the CPU kernels: with more than work is worth, each step waits for the slowest."""
    import numba
    import torch

    from servelab.checks import require_int

    require_int("threads", count, minimum=1)
    torch.set_num_threads(count)
    numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))


def calibrate_machine(options: argparse.Namespace) -> int:

    from servelab import calibration
    from servelab.experiments.experiment import Subject

    set_threads(options.threads)
    subject = Subject.load(options.model, options.device)
    with Progress("part") as progress:
        try:
            result = calibration.calibrate(subject, progress)
        except KeyboardInterrupt:
            progress.close()
            print("Stopped: nothing was changed.")
            return STOPPED
    path = calibration.save(result)
    print(calibration.describe(result))
    print(f"Kept in {path}.")
    return 0


def show_progress(options: argparse.Namespace) -> int:
    from servelab.grading import reports

    grades, stopped = grades_of([options.folder])
    print(reports.parts_table(grades))
    return STOPPED if stopped else 0


def grade_learners(options: argparse.Namespace) -> int:
    """Grades of all are written even where some notebooks fail; the status is 1 only if a report cannot be."""
    from servelab.grading import reports

    for name, path in (("--junit", options.junit), ("--csv", options.csv)):  # before minutes of grading
        if path and (path.is_dir() or not os.access(path.parent, os.W_OK)):
            raise ValueError(f"{name} is {str(path)!r}; it must be a file in a folder that can be written to")
    limits = {name: getattr(options, name) for name in ("seconds", "seconds_a_cell", "memory_mib")}
    grades, stopped = grades_of(options.folder, **limits)
    print(reports.score_table(grades))
    for path, text in ((options.junit, reports.junit_xml), (options.csv, reports.csv_text)):
        if path:
            path.write_text(text(grades), encoding="utf-8")
            print(f"Written: {path}")
    return STOPPED if stopped else 0


def grades_of(folders: list[Path], **limits) -> tuple[list, bool]:
    """Grades of all notebooks; whether Ctrl-C came first, so that they are only those graded before it."""
    from servelab.grading.notebook import grade_notebook
    from servelab.grading.submissions import left_out, submissions

    found, grades = submissions(folders), []
    for path in left_out(folders):
        print(f"Left out, as its name holds no exercise such as 8-3: {path}", file=sys.stderr)
    with Progress("notebook") as progress:
        progress(0, len(found))
        for done, submission in enumerate(found, 1):
            try:
                grades += grade_notebook(submission, **limits)
            except KeyboardInterrupt:
                progress.close()
                print(f"Stopped: {progress} notebooks are graded.", file=sys.stderr)
                return grades, True
            progress(done, len(found))
    return grades, False


if __name__ == "__main__":
    sys.exit(main())

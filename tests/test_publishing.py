"""What publishes the book: workflows that name what exists, Binder's files, the citation."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import servelab

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
BUILT = (".venv/", "_build/")  # made by the steps before
# All that https://github.com/citation-file-format schema 1.2.0 asks for, and what the book uses of the rest.
CITATION_REQUIRED = {"cff-version", "message", "title", "authors"}
CITATION_OPTIONAL = {"abstract", "type", "version", "license", "keywords", "date-released", "repository-code", "url"}


def load(path):
    return YAML(typ="safe").load(path)


def steps(path):
    return [step for job in load(path)["jobs"].values() for step in job["steps"]]


def missing(command):
    """What a shell command names and the repository has not: files, and targets of make."""
    words = command.split()
    named = [word for word in words if "/" in word and not word.startswith(BUILT)]
    targets = words[1:] if words[0] == "make" else []
    rules = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)) | {".venv/.installed"}
    return [name for name in named if not (ROOT / name).is_file()] + [name for name in targets if name not in rules]


def test_there_are_both_workflows():
    assert [path.name for path in WORKFLOWS] == ["book.yml", "cold.yml"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_what_exists_with_few_rights_and_pinned_actions(path):
    workflow = load(path)
    assert {"name", "on", "permissions", "concurrency", "jobs"} == set(workflow)
    assert workflow["permissions"]["contents"] == "read"
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 180
        assert set(job.get("needs", "").split()) <= set(workflow["jobs"])
    for step in steps(path):
        assert ("run" in step) != ("uses" in step)
        if "uses" in step:
            assert re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"])
        else:
            assert missing(step["run"]) == [], step["run"]


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (".ci/run", []),
        ("make test", []),
        ("make .venv/.installed", []),
        (".venv/bin/python tools/serve.py --build-only", []),
        (".venv/bin/python tools/gone.py", ["tools/gone.py"]),
        ("make gone", ["gone"]),
    ],
)
def test_what_a_workflow_names_and_is_not_there_is_found(command, found):
    assert missing(command) == found


def test_a_push_and_a_pull_request_are_tested_as_make_test_tests():
    workflow = load(ROOT / ".github/workflows/book.yml")
    assert set(workflow["on"]) == {"push", "pull_request"}
    assert workflow["jobs"]["test"]["steps"][-1] == {"run": ".ci/run"}


def test_only_main_is_published_after_its_tests_with_its_address():
    jobs = load(ROOT / ".github/workflows/book.yml")["jobs"]
    assert "refs/heads/main" in jobs["build"]["if"]
    assert (jobs["build"]["needs"], jobs["deploy"]["needs"]) == ("test", "build")
    assert "write" not in jobs["build"]["permissions"].values()
    assert jobs["deploy"]["permissions"] == {"pages": "write", "id-token": "write"}
    (build,) = [step for step in jobs["build"]["steps"] if "tools/serve.py" in step.get("run", "")]
    assert build["env"]["SERVELAB_SITE_URL"].endswith("base_url }}/")


def gh(folder, titles):
    """A stand-in for GitHub's program: lists `titles` as open issues, and keeps what it was asked to create."""
    folder.mkdir()
    program = folder / "gh"
    program.write_text(
        "#!/usr/bin/env bash\n"
        'if [ "$2" = list ]; then\n'
        f'  for title in {titles}; do [ "$title" = "${{TITLE// /_}}" ] && n=1; done; echo "${{n:-0}}"\n'
        f'else printf "%s\\n" "$@" > "{folder}/created"; fi\n'
    )
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "RUN_URL": "https://run"}
    subprocess.run([ROOT / ".ci/open-issue"], env=environment, check=True, capture_output=True)
    created = folder / "created"
    return created.read_text() if created.exists() else None


@pytest.mark.skipif(os.name == "nt", reason="the script runs on GitHub's Linux")
def test_a_failed_cold_run_opens_one_issue(tmp_path):
    created = gh(tmp_path / "none", "Another_issue")
    assert created.startswith("issue\ncreate\n--title\nThe cold run fails with the newest packages\n")
    assert "Run: https://run" in created
    assert gh(tmp_path / "one", "Another_issue The_cold_run_fails_with_the_newest_packages") is None


def test_the_cold_run_resolves_anew_then_tests_then_tells():
    commands = [step["run"] for step in steps(ROOT / ".github/workflows/cold.yml") if "run" in step]
    assert commands[0] == "python tools/lock.py"
    assert commands[-2:] == [".ci/run", ".ci/open-issue"]
    assert steps(ROOT / ".github/workflows/cold.yml")[-1]["if"] == "failure()"


def test_binder_installs_the_pins_and_servelab():
    binder = ROOT / "binder"
    assert (binder / "requirements.txt").read_text().split() == ["-r", "../requirements.txt"]
    assert (binder / "../requirements.txt").is_file()
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    assert (binder / "runtime.txt").read_text() == f"python-{oldest}\n"
    script = binder / "postBuild"
    assert "pip install --no-build-isolation --no-deps -e ." in script.read_text()
    assert script.stat().st_mode & 0o100


def test_the_citation_is_complete_and_of_this_version():
    citation = load(ROOT / "CITATION.cff")
    assert set(citation) >= CITATION_REQUIRED
    assert set(citation) <= CITATION_REQUIRED | CITATION_OPTIONAL
    assert (citation["cff-version"], citation["type"]) == ("1.2.0", "software")
    assert all(set(author) == {"name"} for author in citation["authors"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["version"] == project["version"] == servelab.__version__
    assert citation["license"] == project["license"]

"""Writes requirements.txt: every package at an exact version, from requirements.in. `make lock` runs this."""

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OLDEST_PYTHON = (3, 11)
HEADER = "# Written by `make lock` from requirements.in; change that file, not this one.\n"
NOT_ON_MACOS = ' ; sys_platform != "darwin"'
OPTIONS = (
    "--quiet",
    "--upgrade",
    "--allow-unsafe",
    "--strip-extras",
    "--no-header",
    "--no-annotate",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--no-emit-trusted-host",
)


def portable(line):
    """One pin as any machine may read it.

    A local version (torch's `+cpu`) is only that of the machine that locked. macOS has no CUDA wheels, and
    pip-compile gives a marker to what requirements.in names but not to what that brings along.
    """
    line = re.sub(r"\+[\w.]+", "", line)
    needs_marker = line.startswith(("cuda-", "nvidia-", "numba-cuda")) and ";" not in line
    return line + NOT_ON_MACOS if needs_marker else line


def compile_pins(folder):
    """The lines of pip-compile, run in a virtual environment of its own inside folder."""
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
    subprocess.run([programs / "python", "-m", "pip", "install", "--quiet", "pip-tools"], check=True)
    output = folder / "requirements.txt"
    command = [programs / "pip-compile", *OPTIONS, "-o", output, ROOT / "requirements.in"]
    subprocess.run(command, check=True)
    return output.read_text().splitlines()


def main():
    if sys.version_info[:2] != OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        sys.exit(f"Lock with the oldest Python that the book runs on: make lock PYTHON=python{oldest}")
    print("Resolving requirements.in.", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        pins = compile_pins(Path(folder))
    lines = [portable(line) for line in pins if line and not line.startswith("#")]
    (ROOT / "requirements.txt").write_text(HEADER + "\n".join(lines) + "\n")
    print(f"requirements.txt holds {len(lines)} packages. `make test` installs and tries them.")


if __name__ == "__main__":
    main()

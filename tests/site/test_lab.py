"""A chapter in a real JupyterLab: every cell runs, and moving a slider changes the figure."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import nbformat
import pytest
from notebook_ui import choose_run_all, move_slider_and_see_the_figure_change

CHAPTERS = Path(__file__).resolve().parents[2] / "chapters"
NOTEBOOK = "8-3-1-paged-kv-cache.ipynb"
NEWS = "@jupyterlab/apputils-extension:announcements"  # asks another host
SECONDS_TO_START = 90
SECONDS_TO_RUN = 300

CODE_CELLS = """() => window.jupyterapp.shell.currentWidget.content.widgets
    .map(cell => cell.model)
    .filter(model => model.type === 'code' && model.sharedModel.getSource().trim())
    .map(model => ({
        done: model.executionCount !== null && model.executionState !== 'running',
        mayFail: (model.sharedModel.getMetadata().tags ?? []).includes('raises-exception'),
        errors: model.outputs.toJSON().filter(output => output.output_type === 'error')
                     .map(output => `${output.ename}: ${output.evalue}`),
    }))"""

KERNEL_IS_IDLE = "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def copy_without_results(source, target):
    """Copy the notebooks, the one under test with no outputs: what is seen later was made by this run."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    notebook = nbformat.read(target / NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbformat.write(notebook, target / NOTEBOOK)


def environment(folder):
    """Jupyter's own files go to folder, so that neither the user's settings nor their kernels play a part."""
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    places = {name: folder / name.lower() for name in names}
    settings = places["JUPYTER_CONFIG_DIR"] / "labconfig" / "page_config.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"disabledExtensions": {NEWS: True}}))
    return os.environ | {name: str(place) for name, place in places.items()}


def wait_until_up(server, url, log):
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()}", pytrace=False)


@pytest.fixture
def lab(tmp_path):
    """URL of the notebook in a JupyterLab of its own, on a copy of the chapters."""
    copy_without_results(CHAPTERS, tmp_path / "chapters")
    port, token, log = free_port(), secrets.token_hex(16), tmp_path / "lab.log"
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}"]
    command += [
        "--ServerApp.ip=127.0.0.1",
        "--ServerApp.port_retries=0",
        f"--ServerApp.root_dir={tmp_path / 'chapters'}",
        f"--IdentityProvider.token={token}",
        "--LabApp.expose_app_in_browser=True",  # lets the test ask how far each cell is
    ]
    with log.open("w") as output:
        server = subprocess.Popen(command, env=environment(tmp_path), stdout=output, stderr=output)
        try:
            wait_until_up(server, f"http://127.0.0.1:{port}/api/status?token={token}", log)
            yield f"http://127.0.0.1:{port}/lab/tree/{NOTEBOOK}?token={token}"
        finally:
            server.terminate()
            server.wait(timeout=30)


def run_all_cells(page):
    """As a reader does; returns when every cell is done or one has failed."""
    choose_run_all(page)
    deadline = time.monotonic() + SECONDS_TO_RUN
    while time.monotonic() < deadline:
        cells = page.evaluate(CODE_CELLS)
        errors = [error for cell in cells if not cell["mayFail"] for error in cell["errors"]]
        assert not errors, f"{NOTEBOOK} in JupyterLab: {errors[0]}"
        if all(cell["done"] for cell in cells):
            return
        page.wait_for_timeout(200)
    pytest.fail(f"{NOTEBOOK} is not done after {SECONDS_TO_RUN} s: {json.dumps(cells)}", pytrace=False)


def test_a_chapter_runs_in_jupyterlab_and_its_slider_moves_the_figure(browser, lab):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(lab)
    page.wait_for_function(KERNEL_IS_IDLE, timeout=SECONDS_TO_START * 1000)
    run_all_cells(page)

    move_slider_and_see_the_figure_change(page)
    page.close()

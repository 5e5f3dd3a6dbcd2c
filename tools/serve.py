"""The site on this machine: built when its sources changed, served at 127.0.0.1. `make book` runs this."""

import argparse
import errno
import hashlib
import os
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fetch_site_assets
import frames
import lab
from filelock import FileLock

from servelab.site.lab import optional_packages

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "html"
STAMP = SITE / ".sources"
SOURCES = (
    "book",
    "chapters",
    "exercises",
    "solutions",
    "src/servelab",
    "_config.yml",
    "_toc.yml",
    "requirements.txt",
    "pyproject.toml",
    "tools/fetch_site_assets.py",
    "tools/frames.py",
    "tools/lab.py",
    "tools/lab-requirements.txt",
)
NOT_SOURCES = {"__pycache__", ".ipynb_checkpoints"}
PORTS_TO_TRY = 50


def source_files(root=ROOT):
    """Every file the site is made of, in a fixed order."""
    for name in SOURCES:
        path = root / name
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (file for file in files if file.is_file() and not NOT_SOURCES & set(file.parts))


def fingerprint(root=ROOT):
    """A hash of names and contents: times would rebuild after each checkout and miss a deleted page."""
    digest = hashlib.sha256(os.environ.get("SERVELAB_SITE_URL", "").encode())  # pages hold it, see site/cards.py
    digest.update(" ".join(optional_packages(lab.VENDOR)).encode())  # they say what the lab has
    for file in source_files(root):
        digest.update(f"{file.relative_to(root).as_posix()}\0{file.stat().st_size}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def add_frames():
    with serving(SITE) as url:
        frames.add(SITE, url)


def build():
    """Build the site unless it is that of the present sources; return its folder. Warnings are errors."""
    SITE.parent.mkdir(exist_ok=True)
    with FileLock(SITE.parent / "site.lock"):  # test workers and `make book` share the folder
        fetch_site_assets.fetch()
        now = fingerprint()
        if STAMP.is_file() and STAMP.read_text() == now:
            if not (SITE / frames.FOLDER).is_dir():  # built where there was no browser
                add_frames()
            print("The site is up to date.", flush=True)
            return SITE
        # From nothing each time: what Sphinx keeps would hide the warnings of the last try and deleted pages.
        shutil.rmtree(SITE, ignore_errors=True)
        print("Building the site.", flush=True)
        program = Path(sys.executable).with_name("jupyter-book")
        subprocess.run([program, "build", ROOT, "--all", "--warningiserror", "--keep-going"], check=True)
        add_frames()
        lab.build(SITE / "lite")
        STAMP.write_text(now)
    return SITE


class Handler(SimpleHTTPRequestHandler):
    """Static files. Types are stated here, since Windows takes them from a registry that may be wrong."""

    extensions_map = SimpleHTTPRequestHandler.extensions_map | {
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def end_headers(self):
        self.send_header("Cache-Control", "no-cache")  # a rebuilt page shows on reload
        super().end_headers()

    def log_message(self, format, *args):
        pass


class Server(ThreadingHTTPServer):
    allow_reuse_address = os.name != "nt"  # on Windows it would let two servers share a port

    def handle_error(self, request, client_address):
        """A browser that leaves a page half loaded is no error of ours; any other is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def listen(folder, port):
    """A server for folder at the first free port from `port` on; port 0 takes any."""
    handler = partial(Handler, directory=str(folder))
    last = port + PORTS_TO_TRY if port else 0
    for candidate in range(port, last + 1):
        try:
            return Server(("127.0.0.1", candidate), handler)
        except OSError as error:
            taken = error.errno in (errno.EADDRINUSE, errno.EACCES)
            if not taken or candidate == last:
                raise
    raise ValueError(f"port={port} must be from 0 to 65535")


@contextmanager
def serving(folder, port=0):
    """Serve folder in the background; yields the base URL, without a slash at its end."""
    with listen(folder, port) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def serve(folder, port):
    """Serve folder until Ctrl-C."""
    with listen(folder, port) as server:
        if server.server_port != port:
            print(f"Port {port} is taken.")
        print(f"The book is at http://127.0.0.1:{server.server_port} - Ctrl-C stops it.", flush=True)
        server.serve_forever()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000, help="first port to try (8000)")
    parser.add_argument("--build-only", action="store_true", help="build, do not serve")
    arguments = parser.parse_args()
    try:
        site = build()
        if not arguments.build_only:
            serve(site, arguments.port)
    except KeyboardInterrupt:
        print("\nStopped.")
    except (fetch_site_assets.AssetError, FileNotFoundError) as error:  # the latter: SERVELAB_BROWSER is wrong
        sys.exit(str(error))
    except subprocess.CalledProcessError:
        sys.exit("The site was not built: the warnings and errors above say where.")


if __name__ == "__main__":
    main()

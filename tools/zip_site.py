"""The built site as one file, to be read without a network: _build/tokens-per-second.zip. `make zip` runs this.

Names are sorted and times fixed, so that the same site gives the same file.
"""

import argparse
import os
import zipfile

import serve

from servelab.site.lab import PAGE

TARGET = serve.ROOT / "_build" / "tokens-per-second.zip"
LAB = "lite"  # a JupyterLab with its own Python, many times larger than the pages
NO_LAB = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Not in this copy</title>
<p>This copy of the book has no lab in the browser: it was made without (<code>make zip ARGS=--lab</code> has it).
The book's repository has the notebooks: <code>make lab</code>.</p></html>
"""
EPOCH = (1980, 1, 1, 0, 0, 0)  # the first time that the format can hold


def files(site, lab=False):
    """Paths of what goes in, relative to `site`, in a fixed order; what only this machine's builds use stays out."""
    paths = (path.relative_to(site) for path in site.rglob("*") if path.is_file())
    kept = (path for path in paths if not path.parts[0].startswith(".") and (lab or path.parts[0] != LAB))
    return sorted(kept, key=lambda path: path.as_posix())


def pack(site, target, lab=False):
    """Write the archive; all its files lie in one folder with the archive's name. Returns how many they are.

    Without the lab, a page in its place says so: other pages link to it.
    """
    contents = {path.as_posix(): (site / path).read_bytes() for path in files(site, lab)}
    if not lab:
        contents[PAGE] = NO_LAB.encode()
    with zipfile.ZipFile(target, "w") as archive:
        for path, content in contents.items():
            entry = zipfile.ZipInfo(f"{target.stem}/{path}", EPOCH)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            entry.create_system = 3  # Unix, wherever it is made
            archive.writestr(entry, content, compresslevel=9)
    return len(contents)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lab", action="store_true", help=f"with the lab in the browser, the folder {LAB}/")
    count = pack(serve.build(), TARGET, parser.parse_args().lab)
    print(f"{os.path.relpath(TARGET)}: {count} files, {TARGET.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()

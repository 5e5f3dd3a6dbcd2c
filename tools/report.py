"""Where the benches leave their numbers."""

import json
import os
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "bench"


def write_report(name: str, report: dict) -> None:
    """Keep `report` as bench/NAME.json and say so."""
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / f"{name}.json"
    file.write_text(json.dumps(report, indent=1) + "\n")
    print(f"wrote {os.path.relpath(file)}")

"""`python -m tools.dashboards`: write the boards that differ, and name them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.dashboards.admins import ADMINS
from tools.dashboards.grafana import Board, document
from tools.dashboards.leads import LEADS

FOLDER = Path(__file__).resolve().parents[2] / "deploy/helm/queuer/files/dashboards"
BOARDS: Mapping[str, Board] = {"leads.json": LEADS, "admins.json": ADMINS}


def made(name: str) -> str:
    """The text of a file."""
    return json.dumps(document(BOARDS[name]), indent=1) + "\n"


def main() -> None:
    """Write the chart's boards."""
    for name in BOARDS:
        path, text = FOLDER / name, made(name)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            sys.stdout.write(f"{path.name} written\n")


if __name__ == "__main__":
    main()

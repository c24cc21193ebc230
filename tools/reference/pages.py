"""All pages by file name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tools.reference import cli, crds, kinds, labels, metrics, reasons, rest, settings, values

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGES: Mapping[str, Callable[[], str]] = {
    "cli.md": cli.made,
    "crds.md": crds.made,
    "kinds.md": kinds.made,
    "labels.md": labels.made,
    "metrics.md": metrics.made,
    "openapi.json": rest.schema,
    "reasons.md": reasons.made,
    "rest.md": rest.made,
    "settings.md": settings.made,
    "values.md": values.made,
}

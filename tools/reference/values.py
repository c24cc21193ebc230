"""Values of the chart, from the comments of its values.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tools.reference.markdown import code, page, table

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "queuer"
_KEY = re.compile(r"^( *)([A-Za-z]+):(?: +(.*?))?(?: {2,}#.*)?$")


def made() -> str:
    """The page."""
    said = (
        "Values of the chart `deploy/helm/queuer`, each with its default. [Install](../install.md) says which ones "
        "an installation needs; `values.schema.json` refuses a value that is not here."
    )
    return page("Values of the chart", said, table(("value", "default", "meaning"), list(_rows())))


def _rows() -> Iterator[tuple[str, str, str]]:
    """Path, default and comment of each value. A comment belongs to the key that follows it at once."""
    path: list[tuple[int, str]] = []
    said: list[str] = []
    for line in (CHART / "values.yaml").read_text().splitlines():
        if line.lstrip().startswith("#"):
            said.append(line.strip(" #"))
            continue
        if found := _KEY.match(line):
            depth = len(found[1])
            path = [(at, name) for at, name in path if at < depth] + [(depth, found[2])]
            if found[3] or said:
                yield code(".".join(name for _, name in path)), code(found[3] or ""), " ".join(said)
        said = []

"""The paths through the code in docs/architecture.md name functions that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOP = re.compile(r"^\| (\d+) \| `([\w/]+\.py)` \| `([\w.]+)` \| (.+) \|$", re.MULTILINE)


def test_each_hop_of_the_path_exists() -> None:
    hops = HOP.findall((ROOT / "docs" / "architecture.md").read_text())
    starts = [i for i, (number, *_) in enumerate(hops) if number == "1"]
    tables = [hops[i:end] for i, end in zip(starts, [*starts[1:], len(hops)], strict=True)]
    assert len(tables) == 2
    for table in tables:
        assert 8 <= len(table) <= 14
        assert [int(number) for number, *_ in table] == list(range(1, len(table) + 1))
    missing = [f"{path}: {name}" for _, path, name, _ in hops if name not in _functions(ROOT / path)]
    assert missing == []
    assert all(said.endswith(".") for *_, said in hops)


def _functions(path: Path) -> set[str]:
    """`function` and `Class.method` of a module."""
    found = set[str]()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            methods = (m for m in node.body if isinstance(m, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}.{method.name}" for method in methods}
    return found

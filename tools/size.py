"""`make size`: lines of Python by package, beside an earlier count and the bounds that the project set itself.

A module has 150 to 300 lines. Above 400 it has two reasons to change; below 60 it probably belongs to its only caller.
Modules of `cli` (one a verb) may be short, and so may `__init__` and `__main__`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
LONGEST, SHORTEST, MOST_SHORT = 400, 60, 25
THEN = {
    "queuer": 49_397, "queuer/api": 10_175, "queuer/cli": 4_457, "queuer/controller": 7_478, "queuer/domain": 3_572,
    "queuer/kube": 3_287, "queuer/local": 2_379, "queuer/sim": 2_445, "queuer/solver": 8_939, "queuer/store": 6_653,
    "tests": 38_676, "bench": 5_024, "migrations": 1_002,
}  # fmt: skip
"""Lines at commit d70903c."""
BOUNDS = {
    "queuer": 42_500, "queuer/api": 7_900, "queuer/cli": 3_800, "queuer/controller": 6_900, "queuer/solver": 8_300,
    "queuer/store": 5_600, "tests": 33_500,
}  # fmt: skip


def modules(folder: str) -> Iterator[tuple[Path, int]]:
    """The modules in a folder and below, each with its number of lines."""
    for path in sorted((TOP / folder).rglob("*.py")):
        yield path.relative_to(TOP), path.read_bytes().count(b"\n")


def report() -> Iterator[str]:
    """The lines to print."""
    yield f"{'':20}{'then':>8}{'now':>8}{'at most':>9}"
    for folder, then in THEN.items():
        now = sum(lines for _, lines in modules(folder))
        bound = f"{BOUNDS[folder]:9,}" if folder in BOUNDS else ""
        yield f"{folder:20}{then:8,}{now:8,}{bound}"
    sizes = dict(modules("queuer"))
    long = [f"{path} {lines}" for path, lines in sizes.items() if lines > LONGEST]
    short = [
        f"{path} {lines}"
        for path, lines in sizes.items()
        if lines < SHORTEST and not path.name.startswith("__") and path.parts[1] != "cli"
    ]
    yield f"{len(sizes)} modules; above {LONGEST} lines: {', '.join(long) or 'none'}"
    yield f"below {SHORTEST} lines: {len(short)}, at most {MOST_SHORT}: {', '.join(short) or 'none'}"


if __name__ == "__main__":
    print("\n".join(report()))

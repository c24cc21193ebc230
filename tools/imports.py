"""What `queuer import` makes of a folder of manifests, a line for each file: `python -m tools.imports kueue FOLDER`.

For Kueue it compares, by resource, the sum of nominal quotas of ClusterQueues with the sum of guarantees of leaves.
Files without an object of the system are passed over; a file that is refused is told with its reason.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from queuer.cli.imports import READERS, manifests_of
from queuer.domain.document import export, parse
from queuer.domain.errors import QueuerError
from queuer.domain.quantity import parse_quantity
from queuer.domain.queue import QueueTree
from queuer.imports.records import Imported, Manifest

_SUFFIXES = (".yaml", ".yml", ".json")


def report(system: str, folder: Path) -> Counter[str]:
    """Print a line for each file; the counts of all."""
    total: Counter[str] = Counter()
    for path in sorted(p for p in folder.rglob("*") if p.suffix in _SUFFIXES):
        try:
            manifests = manifests_of([path])
            imported = READERS[system](manifests)
        except QueuerError as error:
            if "holds no " not in error.message:
                total["files refused"] += 1
                print(f"refused  {path.relative_to(folder)}: {error.message[:160]}")
            continue
        assert parse(export(imported.document)) == imported.document
        counts = Counter(f"{f.fate}" for f in imported.findings) + Counter(
            queues=len(imported.document.queues)
        )
        counts += Counter(manifest.kind for manifest in manifests)
        equal = _equal(manifests, imported) if system == "kueue" else "not compared"
        total += counts + Counter({"files mapped": 1, f"quota {equal}": 1})
        print(f"mapped   {path.relative_to(folder)}: quota {equal}; {_counts(counts)}")
    return total


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))


def _equal(manifests: list[Manifest], imported: Imported) -> str:
    """Whether leaves are guaranteed, resource by resource, what ClusterQueues have as nominal quota."""
    wanted: Counter[str] = Counter()
    for manifest in manifests:
        spec: Any = manifest.body.get("spec") or {}
        groups = spec.get("resourceGroups") or [] if manifest.kind == "ClusterQueue" else []
        for row in (r for g in groups for flavor in g["flavors"] for r in flavor["resources"]):
            wanted[row["name"]] += parse_quantity(row.get("nominalQuota", 0), resource=row["name"])
    tree, got = QueueTree.of(imported.document.queues), Counter[str]()
    for row in (row for leaf in tree.leaves for row in tree[leaf].quota):
        got[row.resource] += row.guaranteed or 0
    return "equal" if +wanted == +got else f"DIFFERS: {dict(wanted)} became {dict(got)}"


if __name__ == "__main__":
    print(_counts(report(sys.argv[1], Path(sys.argv[2]))))

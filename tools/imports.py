"""What `queuer import` makes of a folder of manifests, a line for each file: `python -m tools.imports kueue FOLDER`.

It compares by resource: for Kueue the sum of nominal quotas of ClusterQueues with the sum of guarantees of leaves, for
YuniKorn the guarantees and limits of all queues.
Files without an object of the system are passed over; a file that is refused is told with its reason.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from queuer.cli.imports import READERS, manifests_of, unpacked
from queuer.domain.document import export, parse
from queuer.domain.errors import QueuerError
from queuer.domain.quantity import parse_quantity
from queuer.domain.queue import QueueTree
from queuer.imports.records import Imported, Manifest

Amounts = Counter[str]
"""Base units by resource."""
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
        compare = _COMPARED.get(system)
        equal = "not compared" if compare is None else _equal(*compare(manifests, imported))
        total += counts + Counter({"files mapped": 1, f"quota {equal}": 1})
        print(f"mapped   {path.relative_to(folder)}: quota {equal}; {_counts(counts)}")
    return total


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))


def _equal(wanted: Amounts, got: Amounts) -> str:
    return "equal" if +wanted == +got else f"DIFFERS: {dict(wanted)} became {dict(got)}"


def _kueue(manifests: list[Manifest], imported: Imported) -> tuple[Amounts, Amounts]:
    """What ClusterQueues have as nominal quota, and what leaves are guaranteed."""
    wanted: Amounts = Counter()
    for manifest in manifests:
        spec: Any = manifest.body.get("spec") or {}
        groups = spec.get("resourceGroups") or [] if manifest.kind == "ClusterQueue" else []
        for row in (r for g in groups for flavor in g["flavors"] for r in flavor["resources"]):
            wanted[row["name"]] += parse_quantity(row.get("nominalQuota", 0), resource=row["name"])
    tree, got = QueueTree.of(imported.document.queues), Amounts()
    for row in (row for leaf in tree.leaves for row in tree[leaf].quota):
        got[row.resource] += row.guaranteed or 0
    return wanted, got


def _yunikorn(manifests: list[Manifest], imported: Imported) -> tuple[Amounts, Amounts]:
    """What all queues of the first partition have as guaranteed and max, and what is guaranteed and limit."""
    wanted, got = Amounts(), Amounts()
    left: list[Any] = [each for m in unpacked(manifests) for each in m.body["partitions"][0]["queues"]]
    while left:
        queue = left.pop()
        left += queue.get("queues") or []
        for which, amounts in (queue.get("resources") or {}).items():
            for name, amount in amounts.items():
                resource = "cpu" if name == "vcore" else name
                wanted[f"{which} {resource}"] += parse_quantity(amount, resource=resource)
    for row in (row for queue in imported.document.queues for row in queue.quota):
        got[f"guaranteed {row.resource}"] += row.guaranteed or 0
        got[f"max {row.resource}"] += row.limit or 0
    return wanted, got


_COMPARED = {"kueue": _kueue, "yunikorn": _yunikorn}

if __name__ == "__main__":
    print(_counts(report(sys.argv[1], Path(sys.argv[2]))))

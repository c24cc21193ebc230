"""Owners of quota in Kueue, ClusterQueues and Cohorts, with their amounts by flavor as they are written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from queuer.domain.fields import Reader
from queuer.imports.kueue_notes import CLUSTER_QUEUE
from queuer.imports.records import Account, Fate, Findings, Manifest, name_in

LEAST_WEIGHT = 0.001
"""For a weight of 0, which Kueue takes for "after everybody else"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """Kueue's amounts of one resource in one flavor, base units; None = not given."""

    nominal: int
    borrowing: int | None
    lending: int | None


Group = list[tuple[str, dict[str, Amounts]]]
"""A resource group: flavors in their order, each with its amounts by resource."""


@dataclass(slots=True, kw_only=True)
class Owner:
    """A ClusterQueue or a Cohort. `above`: name of its Cohort."""

    about: str
    name: str
    above: str | None
    spec: Reader | None = None
    groups: list[Group] = field(default_factory=list)
    weight: float = 1.0
    path: str = ""
    rows: dict[Account, Amounts] = field(default_factory=dict)

    def main(self, labelled: Collection[str]) -> int:
        """Which of its groups keeps its flavors: the one that tells most nodes apart, then the one with devices.
        `labelled`: the flavors that name some nodes.
        """

        def rank(index: int) -> tuple[int, bool, int]:
            flavors = self.groups[index]
            named = sum(name in labelled for name, _ in flavors)
            return named, any("/" in name for _, amounts in flavors for name in amounts), -index

        return max(range(len(self.groups)), key=rank, default=0)


def read_cluster_queue(manifest: Manifest, found: Findings) -> Owner:
    """A ClusterQueue."""
    spec = found.spec(manifest, known=CLUSTER_QUEUE)
    above = name_in(spec, "cohortName", "cohort")
    return _owner(manifest, spec, above, found)


def read_cohort(manifest: Manifest, found: Findings) -> Owner:
    """A Cohort."""
    spec = found.spec(manifest, known=("parentName", "parent", "resourceGroups", "fairSharing"))
    return _owner(manifest, spec, name_in(spec, "parentName", "parent"), found)


def _owner(manifest: Manifest, spec: Reader, above: str | None, found: Findings) -> Owner:
    about = f"{manifest.kind} {manifest.name}"
    groups = [
        _group(item, f"{spec.path('resourceGroups')}[{n}]", about, found)
        for n, item in enumerate(spec.items("resourceGroups"))
    ]
    sharing = found.open(
        spec.values.get("fairSharing"), at=spec.path("fairSharing"), about=about, known=("weight",)
    )
    said = sharing.values.get("weight", 1)
    milli = found.amount(said, "cpu", sharing.path("weight"))  # a quantity such as "0.5" or 500m
    weight = 1.0 if milli is None else milli / 1000
    if not weight > 0:
        found.tell(Fate.APPROXIMATED, about, f"fairSharing.weight {said} became weight {LEAST_WEIGHT}")
        weight = LEAST_WEIGHT
    return Owner(about=about, name=manifest.name, above=above, spec=spec, groups=groups, weight=weight)


def _group(item: Any, at: str, about: str, found: Findings) -> Group:
    group = found.open(item, at=at, about=about, known=("coveredResources", "flavors"))
    flavors: Group = []
    for n, each in enumerate(group.items("flavors")):
        flavor = found.open(each, at=f"{at}.flavors[{n}]", about=about, known=("name", "resources"))
        amounts = {}
        for m, row in enumerate(flavor.items("resources")):
            known = ("name", "nominalQuota", "borrowingLimit", "lendingLimit")
            reader = found.open(row, at=f"{flavor.at}.resources[{m}]", about=about, known=known)
            name = (reader.text("name") if reader.need("name") else None) or ""
            nominal, borrowing, lending = (
                found.amount(reader.values[key], name, reader.path(key)) if reader.said(key) else None
                for key in known[1:]
            )
            amounts[name] = Amounts(nominal=nominal or 0, borrowing=borrowing, lending=lending)
        flavors.append(((flavor.text("name") if flavor.need("name") else None) or "", amounts))
    return flavors

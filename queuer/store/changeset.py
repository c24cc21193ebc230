"""A changeset: objects of the configuration before and after, and how that was judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from queuer.domain.document import (
    export_flavor,
    export_queue,
    export_topology,
    parse_flavor,
    parse_queue,
    parse_topology,
)
from queuer.domain.errors import FieldProblem
from queuer.domain.nodes import Flavor, Topology
from queuer.domain.queue import ManagedBy, Queue
from queuer.store.config import Config, Name, ObjectKind

Form = Mapping[str, Any]
"""An object as a QueueTree document spells it (a flavor with its `position` in the list)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One object before and after; None = not there."""

    kind: ObjectKind
    name: str
    before: Form | None
    after: Form | None

    @property
    def action(self) -> str:
        """`create`, `update` or `delete`."""
        if self.before is None:
            return "create"
        return "delete" if self.after is None else "update"

    @property
    def fields(self) -> tuple[tuple[str, Any, Any], ...]:
        """The fields that differ: (field, before, after), None = not said."""
        before, after = self.before or {}, self.after or {}
        names = sorted(before.keys() | after.keys())
        return tuple((n, before.get(n), after.get(n)) for n in names if before.get(n) != after.get(n))


@dataclass(frozen=True, slots=True, kw_only=True)
class Changeset:
    """What would change from revision `base`.

    `problems`: why the result would be wrong; `conflicts`: what belongs to another writer; either forbids `apply`.
    `warnings`: what is legal and worth knowing. `reverts`: the revision that this one takes back.
    """

    base: int
    writer: ManagedBy
    changes: tuple[Change, ...]
    problems: tuple[FieldProblem, ...] = ()
    conflicts: tuple[FieldProblem, ...] = ()
    warnings: tuple[FieldProblem, ...] = ()
    reverts: int | None = None


def changes_of(rows: Iterable[Mapping[str, Any]]) -> tuple[Change, ...]:
    """Changes as they were stored."""
    return tuple(Change(**{**row, "kind": ObjectKind(row["kind"])}) for row in rows)


def forms(config: Config) -> dict[Name, Form]:
    """The present configuration in document form."""
    found: dict[Name, Form] = {(ObjectKind.QUEUE, queue.path): export_queue(queue) for queue in config.tree}
    for position, flavor in enumerate(config.flavors):
        found[ObjectKind.FLAVOR, flavor.name] = export_flavor(flavor) | {"position": position}
    if (ObjectKind.TOPOLOGY, ObjectKind.TOPOLOGY) in config.writers:
        found[ObjectKind.TOPOLOGY, ObjectKind.TOPOLOGY] = export_topology(config.topology)
    return found


def queues_after(config: Config, changes: Iterable[Change]) -> dict[str, Queue]:
    """The queues that a changeset leaves, by path; not judged."""
    queues = {queue.path: queue for queue in config.tree}
    for change in changes:
        if change.kind is ObjectKind.QUEUE and change.after is None:
            queues.pop(change.name, None)
        elif change.kind is ObjectKind.QUEUE:
            queues[change.name] = parse_queue(change.name, change.after)
    return queues


def flavors_after(config: Config, changes: Iterable[Change]) -> tuple[Flavor, ...]:
    """The flavors that a changeset leaves, in their order."""
    placed = {flavor.name: (position, flavor) for position, flavor in enumerate(config.flavors)}
    for change in changes:
        if change.kind is ObjectKind.FLAVOR and change.after is None:
            placed.pop(change.name, None)
        elif change.kind is ObjectKind.FLAVOR and change.after is not None:
            placed[change.name] = (change.after["position"], flavor_of(change.after))
    return tuple(flavor for _, flavor in sorted(placed.values(), key=lambda pair: (pair[0], pair[1].name)))


def flavor_of(form: Form) -> Flavor:
    """The flavor of a form, which has its `position` besides."""
    return parse_flavor({key: value for key, value in form.items() if key != "position"})


def topology_after(config: Config, changes: Iterable[Change]) -> Topology:
    """The topology that a changeset leaves."""
    said = [change.after for change in changes if change.kind is ObjectKind.TOPOLOGY]
    if not said:
        return config.topology
    return Topology() if said[0] is None else parse_topology(said[0])

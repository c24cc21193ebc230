"""A changeset: objects of the configuration before and after, and how that was judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from queuer.domain.document import (
    export_flavor,
    export_queue,
    export_topology,
    parse_queue,
    parse_topology,
)
from queuer.domain.errors import FieldProblem
from queuer.domain.nodes import Topology
from queuer.domain.queue import ManagedBy, QueueTree
from queuer.domain.rules import Rules
from queuer.store.config import Config, Name, ObjectKind, flavor_at

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
    """Changes to revision `base`, as this writer. `reverts`: the revision that they take back."""

    base: int
    writer: ManagedBy
    changes: tuple[Change, ...]
    reverts: int | None = None

    @property
    def queues(self) -> tuple[Change, ...]:
        """The changes of queues."""
        return tuple(change for change in self.changes if change.kind is ObjectKind.QUEUE)

    @property
    def deleted(self) -> list[str]:
        """Paths of queues that go."""
        return [change.name for change in self.queues if change.after is None]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedChangeset(Changeset):
    """A changeset beside the configuration that it was judged by. `after`: the rules that it leaves.

    `problems`: why the result would be wrong (`after` is `before` then); `conflicts`: what belongs to another writer.
    Either forbids `apply`.
    """

    before: Config
    after: Rules
    problems: tuple[FieldProblem, ...] = ()
    conflicts: tuple[FieldProblem, ...] = ()


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


def rules_after(rules: Rules, changes: Iterable[Change]) -> Rules:
    """The rules that these changes leave. Raises InvalidInput where they would be wrong."""
    queues = {queue.path: queue for queue in rules.tree}
    flavors = {flavor.name: (position, flavor) for position, flavor in enumerate(rules.flavors)}
    topology = rules.topology
    for change in changes:
        name, form = change.name, change.after
        if change.kind is ObjectKind.TOPOLOGY:
            topology = Topology() if form is None else parse_topology(form)
        elif form is None:
            (queues if change.kind is ObjectKind.QUEUE else flavors).pop(name, None)
        elif change.kind is ObjectKind.QUEUE:
            queues[name] = parse_queue(name, form)
        else:
            flavors[name] = flavor_at(form)
    in_order = sorted(flavors.values(), key=lambda pair: (pair[0], pair[1].name))
    return Rules(
        tree=QueueTree.of(queues.values()),
        flavors=tuple(flavor for _, flavor in in_order),
        topology=topology,
    )

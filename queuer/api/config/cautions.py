"""Findings on a sound changeset: legal, but most likely a mistake. `queuer.store.judge` finds what forbids one.

They come from the configuration itself, the jobs seen so far, and nodes and PriorityClasses of the newest cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from queuer.domain.capacity import Use, allocatable, live_capacity, lost_in_use
from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.fields import nearest
from queuer.domain.nodes import DEFAULT_FLAVOR, Node, flavor_of
from queuer.domain.quantity import Resources, readable, short
from queuer.domain.queue import ROOT, SYSTEM_CLASSES, Queue, QuotaRow
from queuer.domain.quota import charge_of
from queuer.domain.rules import Rules
from queuer.solver.ask import RulesDifference
from queuer.solver.kept_cycle import DecidedCycle
from queuer.solver.verified import UnsoundPlan
from queuer.solver.whatif import Difference
from queuer.store.changeset import JudgedChangeset
from queuer.store.config import ObjectKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Cautions:
    """The warnings on a changeset, by what it is held against."""

    changeset: JudgedChangeset

    @property
    def before(self) -> Rules:
        """The configuration as it is."""
        return self.changeset.before

    @property
    def after(self) -> Rules:
        """The configuration that would be."""
        return self.changeset.after

    def of_waiting(self, waiting: Mapping[str, int]) -> Iterator[FieldProblem]:
        """Workloads that wait in a queue that goes. `waiting`: their number, by queue."""
        for path, count in waiting.items():
            yield FieldProblem(
                field=f"queues.{path}", message=f"{count} waiting workloads will have no queue"
            )

    def of_flavors(self) -> Iterator[FieldProblem]:
        """Quota rows that name a flavor which nobody declared: they count nothing until it is declared."""
        known = {flavor.name for flavor in self.after.flavors} or {DEFAULT_FLAVOR}
        for path, _ in self._queues():
            for index, row in enumerate(self.after.tree[path].quota):
                if row.flavor is not None and row.flavor not in known:
                    yield FieldProblem(
                        field=f"queues.{path}.quota[{index}].flavor",
                        message=f"flavor {row.flavor} is not declared",
                        hint=nearest(row.flavor, known),
                    )

    def of_namespaces(self, namespaces: Collection[str]) -> Iterator[FieldProblem]:
        """Namespaces newly named that no job was ever seen in. `namespaces`: those of all jobs ever seen."""
        for path, old in self._queues():
            for index, name in enumerate(self.after.tree[path].namespaces):
                if name not in namespaces and name not in old.namespaces and namespaces:
                    yield FieldProblem(
                        field=f"queues.{path}.namespaces[{index}]",
                        message=f"no job was ever seen in a namespace {name}",
                        hint=nearest(name, namespaces),
                    )

    def of_use(self) -> Iterator[FieldProblem]:
        """Leaves that nobody may use any more, or from the start."""
        tree, before = self.after.tree, self.before.tree
        for leaf in tree.leaves:
            could = leaf not in before or before.namespaces(leaf)
            if could and not tree.namespaces(leaf):
                yield FieldProblem(
                    field=f"queues.{leaf}.namespaces",
                    message="nobody may use it: no queue on its path names a namespace",
                    hint=f"write namespaces: [TEAM] on {leaf} or above it",
                )

    def of_classes(self, priorities: Mapping[str, int]) -> Iterator[FieldProblem]:
        """Highest classes newly named that do not exist. `priorities`: see `highest_priority`."""
        known = {name for name in priorities if name and not name.startswith(SYSTEM_CLASSES)}
        for path, old in self._queues():
            name = self.after.tree[path].access.max_priority
            if name is not None and name != old.access.max_priority and name not in known:
                yield FieldProblem(
                    field=f"queues.{path}.access.maxPriority",
                    message=f"there is no PriorityClass {name}: jobs of the default priority are the most",
                    hint=nearest(name, known) if known else "kubectl create priorityclass",
                )

    def of_nodes(self, nodes: Sequence[Node], uses: Iterable[Use] = ()) -> Iterator[FieldProblem]:
        """Amounts, labels and levels that these nodes do not have. `uses`: of running work."""
        flavors = self.after.flavors
        counts: Counter[str | None] = Counter(flavor_of(node, flavors) for node in nodes)
        lost = lost_in_use({node.name: node for node in nodes}, flavors, uses)
        capacity = live_capacity(allocatable(nodes, flavors), lost)
        yield from self._quota(capacity)
        yield from self._per_user({resource for amounts in capacity.values() for resource in amounts})
        yield from self._flavors(nodes, counts)
        if any(change.kind is ObjectKind.TOPOLOGY for change in self.changeset.changes):
            for index, key in enumerate(self.after.topology.keys[:-1]):
                if not any(key in node.labels for node in nodes):
                    yield FieldProblem(
                        field=f"topology.levels[{index}]", message=f"no node has the label {key}"
                    )

    def _queues(self) -> Iterator[tuple[str, Queue]]:
        """Queues that change, with what they were."""
        tree = self.before.tree
        for change in self.changeset.queues:
            if change.after is not None:
                path = change.name
                yield path, tree[path] if path in tree else Queue(path=path)

    def _quota(self, capacity: Mapping[str, Resources]) -> Iterator[FieldProblem]:
        live, tree = charge_of(capacity), self.after.tree
        known = {resource for _, resource in live}
        for path, old in self._queues():
            for index, row in enumerate(tree[path].quota):
                if row in old.quota:
                    continue
                at, there = f"queues.{path}.quota[{index}]", live.get((row.flavor, row.resource), 0)
                if row.resource not in known:
                    message = f"no node has {row.resource}"
                    yield FieldProblem(
                        field=f"{at}.resource", message=message, hint=nearest(row.resource, known)
                    )
                elif not there:
                    message = f"no {row.flavor} node has {row.resource}"
                    yield FieldProblem(field=f"{at}.resource", message=message)
                elif row.guaranteed and (total := tree.guaranteed(ROOT, row.flavor, row.resource)) > there:
                    yield FieldProblem(field=f"{at}.guaranteed", message=_too_much(row, total, there))

    def _per_user(self, known: Collection[str]) -> Iterator[FieldProblem]:
        for path, old in self._queues():
            said = self.after.tree[path].access.per_user
            if said is None or said == old.access.per_user:
                continue
            for resource in said.limits:
                if resource not in known:
                    at = f"queues.{path}.access.perUser.limits.{resource}"
                    hint = nearest(resource, known)
                    yield FieldProblem(field=at, message=f"no node has {resource}", hint=hint)

    def _flavors(self, nodes: Sequence[Node], counts: Counter[str | None]) -> Iterator[FieldProblem]:
        changed = {change.name for change in self.changeset.changes if change.kind is ObjectKind.FLAVOR}
        if not changed:
            return
        for index, flavor in enumerate(self.after.flavors):
            if flavor.name in changed and not counts[flavor.name]:
                taken = any(flavor.matches(node) for node in nodes)
                message = (
                    "all nodes with these labels belong to an earlier flavor"
                    if taken
                    else "no node has these labels"
                )
                yield FieldProblem(field=f"flavors[{index}].nodeLabels", message=message)
        if counts[None]:
            first = next(node.name for node in nodes if flavor_of(node, self.after.flavors) is None)
            message = f"{counts[None]} of {len(nodes)} nodes belong to no flavor, {first} for one"
            yield FieldProblem(
                field="flavors", message=message, hint="a last flavor without nodeLabels takes the rest"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequences:
    """A question about the newest cycle: findings about its nodes and classes, and what it decides with the changes.

    `impact`: whether the latter is asked, which takes as long as a cycle.
    """

    cautions: Cautions
    impact: bool = True

    def answer(self, cycle: DecidedCycle) -> tuple[list[FieldProblem], Difference | None]:
        """None: there is no sound decision, or it is not asked for."""
        cautions, snapshot = self.cautions, cycle.stored.snapshot
        uses = (Use(a.workload, a.flavors, a.bound) for a in snapshot.admitted)
        found = [
            *cautions.of_classes(cycle.stored.priorities),
            *cautions.of_nodes([state.node for state in snapshot.nodes], uses),
        ]
        if not self.impact:
            return found, None
        try:
            return found, RulesDifference(before=cautions.before, after=cautions.after).answer(cycle)
        except (UnsoundPlan, InvalidInput):
            return found, None


def _too_much(row: QuotaRow, total: int, there: int) -> str:
    of = f" on {row.flavor}" if row.flavor else ""
    said, live = (readable(n, resource=row.resource) for n in (total, there))
    return f"{said} {short(row.resource)}{of} are guaranteed in all, and the nodes have {live}"

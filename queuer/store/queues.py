"""How queues, flavors and topology change: plan, look, apply, revert.

A changeset is planned against one revision of the configuration and applied as a whole, or refused when the
configuration has moved. Each queue and flavor has one writer (`ManagedBy`); the others are told who it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.document import TreeDocument, export_flavor, export_queue, export_topology, parse_queue
from queuer.domain.errors import Conflict, FieldProblem, InvalidInput, NotFound
from queuer.domain.fields import nearest
from queuer.domain.queue import ROOT, ManagedBy, QueueState, QueueTree
from queuer.store.codec import rows_json, to_json
from queuer.store.config import Config, Kind, Name, load_config, revision, write
from queuer.store.events import Event, append

__all__ = [
    "Change",
    "Changeset",
    "Config",
    "Kind",
    "apply",
    "load_config",
    "plan",
    "plan_revert",
    "revert",
    "revision",
]

_LOCK = text("""
    SELECT revision, extract(epoch FROM now())::float8 AS at FROM configuration WHERE id = 1 FOR UPDATE
""")
_MOVE = text("UPDATE configuration SET revision = :revision WHERE id = 1")
_RECORD = text("""
    INSERT INTO changeset (revision, actor, source, writer, reason, changes, reverts)
    VALUES (:revision, :actor, :source, :writer, :reason, CAST(:changes AS jsonb), :reverts)
""")
_AUDIT = text("""
    INSERT INTO audit (actor, source, action, reason, revision, detail)
    VALUES (:actor, :source, :action, :reason, :revision, CAST(:detail AS jsonb))
""")
_CHANGESET = text("SELECT changes, writer FROM changeset WHERE revision = :revision")
_HOLDERS = text("""
    SELECT queue, count(DISTINCT uid) AS workloads FROM ledger
    WHERE closed IS NULL AND queue = ANY(:paths) GROUP BY queue
""")
_WAITING = text("""
    SELECT queue, count(*) AS workloads FROM workload
    WHERE state IN ('Queued', 'Held') AND deleted_at IS NULL AND queue = ANY(:paths) GROUP BY queue
""")

Form = Mapping[str, Any]
"""An object as a QueueTree document spells it (a flavor with its `position` in the list)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One object before and after; None = not there."""

    kind: Kind
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
        """What differs: (field, before, after), None = not said."""
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


async def plan(
    connection: AsyncConnection, desired: TreeDocument, *, writer: ManagedBy, prune: bool | None = None
) -> Changeset:
    """What has to change for `desired` to hold. Writes nothing and raises nothing for a wrong wish: see Changeset.

    `prune` (default: what the document says) deletes queues of this writer below `desired.root` that it does not
    name. A queue that still has admitted workloads is not deleted: for CRs it drains first, for others it is a problem.
    """
    config = await load_config(connection)
    wanted = _wanted(desired, config, writer=writer, prune=desired.prune if prune is None else prune)
    return await _judged(connection, config, wanted, writer=writer)


async def apply(
    connection: AsyncConnection, changeset: Changeset, *, actor: str, source: str, reason: str
) -> int:
    """Write a changeset with its audit row and events; answers the new revision (the old one for no change).

    Raises InvalidInput (problems), Conflict (other writer; configuration moved since the plan; a queue to delete got
    admitted work meanwhile).
    """
    if changeset.problems:
        raise InvalidInput(*changeset.problems)
    if changeset.conflicts:
        raise Conflict("; ".join(str(conflict) for conflict in changeset.conflicts))
    if not changeset.changes:
        return changeset.base
    present = (await connection.execute(_LOCK)).one()
    if present.revision != changeset.base:
        raise Conflict(
            f"the configuration moved from revision {changeset.base} to {present.revision} since this was planned",
            hint="plan again and look at the difference",
        )
    gone = [c.name for c in changeset.changes if c.kind is Kind.QUEUE and c.after is None]
    for path, count in (await _count(connection, _HOLDERS, gone)).items():
        raise Conflict(f"{path} got {count} admitted workloads since this was planned", hint="plan again")
    number = changeset.base + 1
    forms = {(change.kind, change.name): change.after for change in changeset.changes}
    await write(connection, forms, writer=changeset.writer, revision=number)
    await connection.execute(_MOVE, {"revision": number})
    who = {"actor": actor, "source": source, "reason": reason, "revision": number}
    changes = rows_json(changeset.changes)
    await connection.execute(
        _RECORD, {**who, "writer": changeset.writer, "changes": changes, "reverts": changeset.reverts}
    )
    action = "config.apply" if changeset.reverts is None else "config.revert"
    detail = to_json({"changes": len(changeset.changes), "reverts": changeset.reverts})
    await connection.execute(_AUDIT, {**who, "action": action, "detail": detail})
    append(connection, [_event(change, number, at=present.at) for change in changeset.changes])
    return number


async def plan_revert(connection: AsyncConnection, of: int) -> Changeset:
    """The changeset that takes back revision `of`, by the same writer. What changed again since is a conflict.

    Raises NotFound.
    """
    row = (await connection.execute(_CHANGESET, {"revision": of})).one_or_none()
    if row is None:
        raise NotFound(f"there is no changeset {of}")
    config = await load_config(connection)
    present = _forms(config)
    changes = [Change(**{**change, "kind": Kind(change["kind"])}) for change in row.changes]
    moved = tuple(
        FieldProblem(
            field=f"{c.kind}s.{c.name}", message=f"changed again after revision {of}", hint="edit it instead"
        )
        for c in changes
        if present.get((c.kind, c.name)) != c.after
    )
    wanted = {(c.kind, c.name): c.before for c in changes}
    judged = await _judged(connection, config, wanted, writer=ManagedBy(row.writer))
    return Changeset(
        base=judged.base,
        writer=judged.writer,
        changes=judged.changes,
        problems=judged.problems,
        conflicts=judged.conflicts + moved,
        warnings=judged.warnings,
        reverts=of,
    )


async def revert(connection: AsyncConnection, of: int, *, actor: str, source: str, reason: str) -> int:
    """`plan_revert` and `apply` in one step."""
    changeset = await plan_revert(connection, of)
    return await apply(connection, changeset, actor=actor, source=source, reason=reason)


def _forms(config: Config) -> dict[Name, Form]:
    """The present configuration in document form."""
    found: dict[Name, Form] = {(Kind.QUEUE, queue.path): export_queue(queue) for queue in config.tree}
    for position, flavor in enumerate(config.flavors):
        found[Kind.FLAVOR, flavor.name] = export_flavor(flavor) | {"position": position}
    if (Kind.TOPOLOGY, Kind.TOPOLOGY) in config.writers:
        found[Kind.TOPOLOGY, Kind.TOPOLOGY] = export_topology(config.topology)
    return found


def _wanted(
    desired: TreeDocument, config: Config, *, writer: ManagedBy, prune: bool
) -> dict[Name, Form | None]:
    """Document forms of all that the wish speaks of; None = to be deleted."""
    wanted: dict[Name, Form | None] = {(Kind.QUEUE, q.path): export_queue(q) for q in desired.queues}
    own = [name for name, owner in config.writers.items() if owner is writer]
    if prune:
        for kind, path in own:
            inside = desired.root in config.tree.lineage(path) if kind is Kind.QUEUE else False
            if inside and (kind, path) not in wanted:
                # The root is always there; one that nobody describes any more says nothing.
                wanted[kind, path] = {} if path == ROOT else None
            elif kind is Kind.TOPOLOGY and writer is ManagedBy.CRD:
                wanted[kind, path] = (
                    None  # a cluster's objects are a whole: what none of them says is not said
                )
    if desired.flavors is not None:
        wanted |= {name: None for name in own if name[0] is Kind.FLAVOR}
        for position, flavor in enumerate(desired.flavors):
            wanted[Kind.FLAVOR, flavor.name] = export_flavor(flavor) | {"position": position}
    if desired.topology is not None:
        wanted[Kind.TOPOLOGY, Kind.TOPOLOGY] = export_topology(desired.topology)
    return wanted


async def _judged(
    connection: AsyncConnection,
    config: Config,
    wanted: Mapping[Name, Form | None],
    *,
    writer: ManagedBy,
) -> Changeset:
    present = _forms(config)
    deleted = [path for (kind, path), form in wanted.items() if kind is Kind.QUEUE and form is None]
    holders = await _count(connection, _HOLDERS, deleted)
    problems: list[FieldProblem] = []
    warnings = [
        FieldProblem(field=f"queues.{path}", message=f"{count} waiting workloads will have no queue")
        for path, count in (await _count(connection, _WAITING, deleted)).items()
    ]
    if holders and writer is ManagedBy.CRD:
        wanted = {**wanted, **_drained(config, deleted, holders)}
        warnings += [
            _busy(path, count, hint="it drains and goes with the last") for path, count in holders.items()
        ]
    else:
        hint = "set state: draining and delete it when they are gone"
        problems += [_busy(path, count, hint=hint) for path, count in holders.items()]
    changes = tuple(
        Change(kind=name[0], name=name[1], before=present.get(name), after=form)
        for name, form in sorted(wanted.items())
        if present.get(name) != form
    )
    return Changeset(
        base=config.revision,
        writer=writer,
        changes=changes,
        problems=(*problems, *_tree_problems(config, changes)),
        conflicts=tuple(_conflicts(config, changes, writer=writer)),
        warnings=(*warnings, *_unknown_flavors(present, changes)),
    )


def _drained(config: Config, deleted: list[str], holders: Mapping[str, int]) -> dict[Name, Form]:
    """Queues that cannot go yet, with the ancestors that they need: kept as they are, letting nothing new in."""
    kept = {above for path in holders for above in config.tree.lineage(path)}.intersection(deleted)
    return {
        (Kind.QUEUE, path): {**export_queue(config.tree[path]), "state": str(QueueState.DRAINING)}
        for path in kept
    }


def _busy(path: str, count: int, *, hint: str) -> FieldProblem:
    return FieldProblem(field=f"queues.{path}", message=f"has {count} admitted workloads", hint=hint)


def _tree_problems(config: Config, changes: tuple[Change, ...]) -> tuple[FieldProblem, ...]:
    queues = {queue.path: queue for queue in config.tree}
    for change in changes:
        if change.kind is Kind.QUEUE and change.after is None:
            queues.pop(change.name, None)
        elif change.kind is Kind.QUEUE:
            queues[change.name] = parse_queue(change.name, change.after)
    try:
        QueueTree.of(queues.values())
    except InvalidInput as error:
        return error.problems
    return ()


def _conflicts(config: Config, changes: tuple[Change, ...], *, writer: ManagedBy) -> Iterator[FieldProblem]:
    for change in changes:
        owner = config.writers.get((change.kind, change.name), writer)
        if owner is not writer:
            yield FieldProblem(
                field=f"{change.kind}s.{change.name}",
                message=f"is managed by {owner}, {writer} cannot {change.action} it",
                hint=f"change it where {owner} keeps it",
            )


def _unknown_flavors(present: Mapping[Name, Form], changes: tuple[Change, ...]) -> Iterator[FieldProblem]:
    """Quota rows that name a flavor nobody declared count nothing until it is declared."""
    flavors = {name for kind, name in present if kind is Kind.FLAVOR}
    for change in changes:
        if change.kind is Kind.FLAVOR:
            (flavors.discard if change.after is None else flavors.add)(change.name)
    known = flavors or {"default"}
    for change in changes:
        rows = (change.after or {}).get("quota", ()) if change.kind is Kind.QUEUE else ()
        for index, row in enumerate(rows):
            if row.get("flavor") is not None and row["flavor"] not in known:
                yield FieldProblem(
                    field=f"queues.{change.name}.quota[{index}].flavor",
                    message=f"flavor {row['flavor']} is not declared",
                    hint=nearest(row["flavor"], known),
                )


async def _count(connection: AsyncConnection, statement: Any, paths: list[str]) -> dict[str, int]:
    if not paths:
        return {}
    return {row.queue: row.workloads for row in await connection.execute(statement, {"paths": paths})}


def _event(change: Change, revision: int, *, at: float) -> Event:
    return Event(
        at=at,
        type=f"{change.kind}.{change.action}d",
        queue=change.name if change.kind is Kind.QUEUE else None,
        data={"name": change.name, "revision": revision},
    )

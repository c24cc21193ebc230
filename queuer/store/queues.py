"""How queues, flavors and topology change: plan, look, apply, take back.

A changeset is planned against one revision of the configuration and applied as a whole, or refused when the
configuration has moved. Each queue and flavor has one writer (`ManagedBy`); the others are told who it is.
"""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.document import TreeDocument, export_flavor, export_queue, export_topology
from queuer.domain.errors import Conflict, FieldProblem, InvalidInput, NotFound
from queuer.domain.queue import ROOT, ManagedBy, QueueState
from queuer.store.changeset import Change, Changeset, Form, JudgedChangeset, changes_of, forms
from queuer.store.codec import rows_json, to_json
from queuer.store.config import Config, Name, ObjectKind, load_config, write
from queuer.store.events import Event, append
from queuer.store.judge import holders, judged

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


class Moved(Conflict):
    """Objects that a changeset touches were changed since it was planned on revision `base`. `names`: which."""

    def __init__(self, names: frozenset[Name], *, base: int) -> None:
        listed = ", ".join(sorted(name for _, name in names))
        super().__init__(
            f"changed since this was planned on revision {base}: {listed}",
            hint="plan again and look at the difference",
        )
        self.names, self.base = names, base


async def plan(
    connection: AsyncConnection, desired: TreeDocument, *, writer: ManagedBy, prune: bool | None = None
) -> JudgedChangeset:
    """The changes after which `desired` holds, judged. Writes nothing and raises nothing for a wrong wish.

    `prune` (default: what the document says) deletes queues of this writer below `desired.root` that it does not
    name. A queue that still has admitted workloads is not deleted: for CRs it drains first, for others it is a problem.
    """
    config = await load_config(connection)
    wanted = _wanted(desired, config, writer=writer, prune=desired.prune if prune is None else prune)
    return await judged(connection, config, wanted, writer=writer)


async def apply(
    connection: AsyncConnection, changeset: JudgedChangeset, *, actor: str, source: str, reason: str
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
    for path, count in (await holders(connection, changeset.deleted)).items():
        raise Conflict(f"{path} got {count} admitted workloads since this was planned", hint="plan again")
    number = changeset.base + 1
    wanted = {(change.kind, change.name): change.after for change in changeset.changes}
    await write(connection, wanted, writer=changeset.writer, revision=number)
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


async def lock(connection: AsyncConnection) -> None:
    """Until the transaction ends nobody else's edit comes between a plan and its application."""
    await connection.execute(_LOCK)


async def plan_state(
    connection: AsyncConnection, path: str, state: QueueState, *, writer: ManagedBy
) -> JudgedChangeset:
    """That a queue of the tree be open, held or draining, and nothing else. Raises NotFound."""
    config = await load_config(connection)
    if path not in config.tree:
        raise NotFound(f"there is no queue {path}")
    wanted = {(ObjectKind.QUEUE, path): export_queue(replace(config.tree[path], state=state))}
    return await judged(connection, config, wanted, writer=writer)


async def plan_revert(connection: AsyncConnection, of: int) -> JudgedChangeset:
    """The changeset that takes back revision `of`, by the same writer. A change since is a conflict.

    Raises NotFound.
    """
    row = (await connection.execute(_CHANGESET, {"revision": of})).one_or_none()
    if row is None:
        raise NotFound(f"there is no changeset {of}")
    config = await load_config(connection)
    present = forms(config)
    changes = changes_of(row.changes)
    moved = tuple(
        FieldProblem(
            field=f"{c.kind}s.{c.name}", message=f"changed again after revision {of}", hint="edit it instead"
        )
        for c in changes
        if present.get((c.kind, c.name)) != c.after
    )
    wanted = {(c.kind, c.name): c.before for c in changes}
    found = await judged(connection, config, wanted, writer=ManagedBy(row.writer))
    return replace(found, conflicts=found.conflicts + moved, reverts=of)


async def rebase(connection: AsyncConnection, planned: Changeset) -> JudgedChangeset:
    """The same changes to the configuration as it is now, which is locked until the transaction ends.

    Raises Moved where an object that they touch has been changed. Changes of others beside it do no harm.
    """
    await connection.execute(_LOCK)
    config = await load_config(connection)
    present = forms(config)
    moved = {
        (c.kind, c.name) for c in planned.changes if present.get((c.kind, c.name)) not in (c.before, c.after)
    }
    if moved:
        raise Moved(frozenset(moved), base=planned.base)
    wanted = {(c.kind, c.name): c.after for c in planned.changes}
    found = await judged(connection, config, wanted, writer=planned.writer)
    return replace(found, reverts=planned.reverts)


def _wanted(
    desired: TreeDocument, config: Config, *, writer: ManagedBy, prune: bool
) -> dict[Name, Form | None]:
    """Document forms of all that the wish speaks of; None = to be deleted."""
    wanted: dict[Name, Form | None] = {(ObjectKind.QUEUE, q.path): export_queue(q) for q in desired.queues}
    own = [name for name, owner in config.writers.items() if owner is writer]
    if prune:
        for kind, path in own:
            inside = desired.root in config.tree.lineage(path) if kind is ObjectKind.QUEUE else False
            if inside and (kind, path) not in wanted:
                # The root is always there; one that nobody describes any more says nothing.
                wanted[kind, path] = {} if path == ROOT else None
            elif kind is ObjectKind.TOPOLOGY and writer is ManagedBy.CRD:
                wanted[kind, path] = (
                    None  # a cluster's objects are a whole: what none of them says is not said
                )
    if desired.flavors is not None:
        wanted |= {name: None for name in own if name[0] is ObjectKind.FLAVOR}
        for position, flavor in enumerate(desired.flavors):
            wanted[ObjectKind.FLAVOR, flavor.name] = export_flavor(flavor) | {"position": position}
    if desired.topology is not None:
        wanted[ObjectKind.TOPOLOGY, ObjectKind.TOPOLOGY] = export_topology(desired.topology)
    return wanted


def _event(change: Change, revision: int, *, at: float) -> Event:
    return Event(
        at=at,
        type=f"{change.kind}.{change.action}d",
        queue=change.name if change.kind is ObjectKind.QUEUE else None,
        data={"name": change.name, "revision": revision},
    )

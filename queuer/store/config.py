"""The rows of queues, flavors and topology: read as one value, written change by change.

`queuer.store.queues` decides what may be written, and by whom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.access import ACCESS
from queuer.domain.document import (
    POLICY,
    parse_flavor,
    parse_queue,
    parse_topology,
)
from queuer.domain.errors import QueuerError, Unavailable
from queuer.domain.nodes import Flavor, Toleration, Topology
from queuer.domain.queue import ManagedBy, Queue, QueueState, QueueTree, QuotaRow
from queuer.domain.routing import export_routing, read_routing
from queuer.domain.rules import Rules
from queuer.store.codec import record_of, rows_json

_REVISION = text("SELECT revision FROM configuration WHERE id = 1")
_QUEUES = text("""
    SELECT id, path, weight, state, policy, access, namespaces, routing, managed_by, revision FROM queue
    ORDER BY path
""")
_QUOTA = text("""
    SELECT queue_id, flavor, resource, guaranteed, "limit", lend FROM queue_quota ORDER BY queue_id, position
""")
_FLAVORS = text("SELECT name, node_labels, tolerations, managed_by FROM flavor ORDER BY position, name")
_TOPOLOGY = text("SELECT levels, managed_by FROM topology WHERE id = 1")
_DELETE = {
    "queue": text("DELETE FROM queue WHERE path = ANY(:names)"),
    "flavor": text("DELETE FROM flavor WHERE name = ANY(:names)"),
    "topology": text("DELETE FROM topology"),
}
_PUT_QUEUES = text("""
    INSERT INTO queue (path, parent_id, weight, state, policy, access, routing, namespaces, managed_by, revision)
    SELECT r.path, p.id, r.weight, r.state, r.policy, r.access, r.routing,
        ARRAY(SELECT jsonb_array_elements_text(r.namespaces)), :writer, :revision
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(path text, parent text, weight double precision,
        state text, policy jsonb, access jsonb, routing jsonb, namespaces jsonb)
    LEFT JOIN queue p ON p.path = r.parent
    ON CONFLICT (path) DO UPDATE SET weight = excluded.weight, state = excluded.state, policy = excluded.policy,
        access = excluded.access, routing = excluded.routing, namespaces = excluded.namespaces,
        managed_by = excluded.managed_by, revision = excluded.revision
""")
_CLEAR_QUOTA = text("""
    DELETE FROM queue_quota USING queue WHERE queue.id = queue_quota.queue_id AND queue.path = ANY(:paths)
""")
_PUT_QUOTA = text("""
    INSERT INTO queue_quota (queue_id, position, flavor, resource, guaranteed, "limit", lend)
    SELECT q.id, r.position, r.flavor, r.resource, r.guaranteed, r."limit", r.lend
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(path text, position int, flavor text, resource text,
        guaranteed bigint, "limit" bigint, lend bigint)
    JOIN queue q ON q.path = r.path
""")
_PUT_FLAVORS = text("""
    INSERT INTO flavor (name, position, node_labels, tolerations, managed_by, revision)
    SELECT r.name, r.position, r.node_labels, r.tolerations, :writer, :revision
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(name text, position int, node_labels jsonb,
        tolerations jsonb)
    ON CONFLICT (name) DO UPDATE SET position = excluded.position, node_labels = excluded.node_labels,
        tolerations = excluded.tolerations, managed_by = excluded.managed_by, revision = excluded.revision
""")
_PUT_TOPOLOGY = text("""
    INSERT INTO topology (levels, managed_by, revision) VALUES (:levels, :writer, :revision)
    ON CONFLICT (id) DO UPDATE SET levels = excluded.levels, managed_by = excluded.managed_by,
        revision = excluded.revision
""")


class ObjectKind(StrEnum):
    """The kinds of object that are configured."""

    QUEUE = "queue"
    FLAVOR = "flavor"
    TOPOLOGY = "topology"


Name = tuple[ObjectKind, str]
"""What a configured object is called; the one topology is called `topology`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Rules):
    """The stored rules with their `writers`: the manager of each object; an absent object has none yet."""

    writers: Mapping[Name, ManagedBy]


async def revision(connection: AsyncConnection) -> int:
    """The present revision, for a cheap look whether anything moved."""
    return int((await connection.execute(_REVISION)).scalar_one())


class RulesMoved(QueuerError):
    """The configuration in force is not the one that a decision was made by."""

    code = "rules_moved"


async def check_revision(connection: AsyncConnection, expected: int) -> None:
    """Raise RulesMoved unless this revision is in force. After `events.put` it stays so until the transaction ends:
    a changeset writes events.
    """
    if (present := await revision(connection)) != expected:
        raise RulesMoved(f"decided by revision {expected}, revision {present} is in force")


class ConfigUnreadable(Unavailable):
    """The rows of the configuration are none that this version can read."""

    code = "configuration_unreadable"


async def load_config(connection: AsyncConnection) -> Config:
    """Everything configured. Raises ConfigUnreadable."""
    try:
        return await _load(connection)
    except SQLAlchemyError:
        raise
    except Exception as error:
        raise ConfigUnreadable(
            f"the configuration in the database cannot be read: {error}",
            hint="mend its row, or run the version that wrote it",
        ) from error


async def _load(connection: AsyncConnection) -> Config:
    at = await revision(connection)
    quota: dict[int, list[QuotaRow]] = {}
    for row in await connection.execute(_QUOTA):
        quota.setdefault(row.queue_id, []).append(record_of(QuotaRow, row))
    queues = (await connection.execute(_QUEUES)).all()
    flavors = (await connection.execute(_FLAVORS)).all()
    topology = (await connection.execute(_TOPOLOGY)).one_or_none()
    writers = {(ObjectKind.QUEUE, row.path): ManagedBy(row.managed_by) for row in queues if row.managed_by}
    writers |= {(ObjectKind.FLAVOR, row.name): ManagedBy(row.managed_by) for row in flavors}
    if topology is not None:
        writers[ObjectKind.TOPOLOGY, ObjectKind.TOPOLOGY] = ManagedBy(topology.managed_by)
    return Config(
        tree=QueueTree.of(_queue(row, quota.get(row.id, ())) for row in queues),
        flavors=tuple(_flavor(row) for row in flavors),
        topology=Topology() if topology is None else Topology(keys=tuple(topology.levels)),
        revision=at,
        writers=writers,
    )


async def write(
    connection: AsyncConnection,
    forms: Mapping[Name, Mapping[str, Any] | None],
    *,
    writer: ManagedBy,
    revision: int,
) -> None:
    """Bring rows to these document forms; None deletes. Parents may come with their children."""
    for kind in ObjectKind:
        gone = [name for (of, name), form in forms.items() if of is kind and form is None]
        if gone:
            await connection.execute(
                _DELETE[kind], {"names": gone} if kind is not ObjectKind.TOPOLOGY else {}
            )
    wanted = {name: form for name, form in forms.items() if form is not None}
    values = {"writer": writer, "revision": revision}
    queues = [parse_queue(path, form) for (kind, path), form in wanted.items() if kind is ObjectKind.QUEUE]
    await _write_queues(connection, queues, values)
    flavors = [_flavor_row(form) for (kind, _), form in wanted.items() if kind is ObjectKind.FLAVOR]
    if flavors:
        await connection.execute(_PUT_FLAVORS, {"rows": rows_json(flavors), **values})
    for (kind, _), form in wanted.items():
        if kind is ObjectKind.TOPOLOGY:
            levels = list(parse_topology(form).keys)
            await connection.execute(_PUT_TOPOLOGY, {"levels": levels, **values})


async def _write_queues(
    connection: AsyncConnection, queues: Sequence[Queue], values: Mapping[str, Any]
) -> None:
    # Level by level, because a child's row names its parent's id.
    for depth in sorted({queue.path.count(".") for queue in queues}):
        level = [_queue_row(queue) for queue in queues if queue.path.count(".") == depth]
        await connection.execute(_PUT_QUEUES, {"rows": rows_json(level), **values})
    if queues:
        await connection.execute(_CLEAR_QUOTA, {"paths": [queue.path for queue in queues]})
        rows = [
            {"path": queue.path, "position": position, "flavor": row.flavor, "resource": row.resource,
             "guaranteed": row.guaranteed, "limit": row.limit, "lend": row.lend}
            for queue in queues
            for position, row in enumerate(queue.quota)
        ]  # fmt: skip
        await connection.execute(_PUT_QUOTA, {"rows": rows_json(rows)})


def _queue_row(queue: Queue) -> dict[str, Any]:
    return {
        "path": queue.path,
        "parent": queue.parent,
        "weight": queue.weight,
        "state": queue.state,
        "policy": POLICY.show(queue.policy),
        "access": ACCESS.show(queue.access),
        "namespaces": queue.namespaces,
        "routing": export_routing(queue.placement),
    }


def flavor_at(form: Mapping[str, Any]) -> tuple[int, Flavor]:
    """The position and the flavor of a form."""
    body = {key: value for key, value in form.items() if key != "position"}
    return form["position"], parse_flavor(body)


def _flavor_row(form: Mapping[str, Any]) -> dict[str, Any]:
    position, flavor = flavor_at(form)
    return {
        "name": flavor.name,
        "position": position,
        "node_labels": flavor.node_labels,
        "tolerations": flavor.tolerations,
    }


def _queue(row: Row[Any], quota: Sequence[QuotaRow]) -> Queue:
    return Queue(
        path=row.path,
        weight=row.weight,
        quota=tuple(quota),
        policy=POLICY.parse(row.policy, at=f"queues.{row.path}.policy"),
        access=ACCESS.parse(row.access, at=f"queues.{row.path}.access"),
        namespaces=tuple(row.namespaces),
        placement=read_routing(row.routing, at=f"queues.{row.path}"),
        state=QueueState(row.state),
        managed_by=ManagedBy(row.managed_by or ManagedBy.API),
        revision=row.revision,
    )


def _flavor(row: Row[Any]) -> Flavor:
    return Flavor(
        name=row.name,
        node_labels=row.node_labels,
        tolerations=tuple(Toleration(**toleration) for toleration in row.tolerations),
    )

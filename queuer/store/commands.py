"""Commands to the leader about a workload: rows that are put here with an audit row, taken up, and answered.

A command is carried out and answered in one transaction, so a crash between the two is a replay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.errors import NotFound
from queuer.domain.events import ORDERED, event_text, utc
from queuer.domain.override import Override
from queuer.domain.workload import State
from queuer.store.codec import execute_rows, record_of, seconds
from queuer.store.events import Event, append
from queuer.store.leader import check_epoch
from queuer.store.tables import CommandOutcome, CommandVerb

EXPIRES = 600.0
"""Seconds from when a command is due until it is refused because no controller has taken it up."""
_SLACK = 30.0
"""Seconds more until readers say so: a transaction that carries it out may be under way."""
_UNLED = 60.0
"""Seconds without a leader that a failover takes at most, about."""

_ADD = text("""
    WITH put AS (
        INSERT INTO command (due, actor, source, verb, uid, administers, arguments, reason, request)
        SELECT now() + make_interval(secs => r.delay), :actor, :source, r.verb, r.uid, r.administers, r.arguments,
            :reason, :request
        FROM ROWS FROM (jsonb_to_recordset(CAST(:rows AS jsonb))
            AS (verb text, uid text, administers text, arguments jsonb, delay double precision)) WITH ORDINALITY
            AS r(verb, uid, administers, arguments, delay, number)
        WHERE r.administers IS NOT NULL OR NOT EXISTS (
            SELECT FROM command c WHERE c.uid = r.uid AND c.verb = r.verb AND c.administers IS NULL
                AND c.done_at IS NULL AND c.due + make_interval(secs => :expires) > now()
        )
        ORDER BY r.number
        RETURNING *
    ), told AS (
        INSERT INTO audit (actor, source, action, reason, detail)
        SELECT put.actor, put.source, 'workload.' || put.verb, put.reason, jsonb_build_object('command', put.id,
            'uid', put.uid, 'namespace', w.namespace, 'kind', w.kind, 'name', w.name, 'queue', w.queue,
            'arguments', put.arguments)
        FROM put JOIN workload w USING (uid) ORDER BY put.id
    )
    SELECT *, false AS expired FROM put ORDER BY id
""")
_EXPIRED = "done_at IS NULL AND due + make_interval(secs => :expires) < now() AS expired"
_ONE = text(f"SELECT *, {_EXPIRED} FROM command WHERE id = :id")
_SOME = text(f"SELECT *, {_EXPIRED} FROM command WHERE id = ANY(:ids) ORDER BY id")
_REQUESTED = text(f"""
    SELECT *, {_EXPIRED} FROM command WHERE split_part(request, ':', 1) = split_part(:request, ':', 1) ORDER BY id
""")
_ANY = text("SELECT EXISTS (SELECT FROM command WHERE done_at IS NULL AND due <= now())")
# Turns by namespace; in one namespace by number, so that commands on a job keep their order.
_UNDONE = text(f"""
    SELECT * FROM (
        SELECT c.*, {_EXPIRED}, row_number() OVER (PARTITION BY w.namespace ORDER BY c.id) AS turn
        FROM command c JOIN workload w USING (uid)
        WHERE c.done_at IS NULL AND c.due <= now()
            AND (c.uid <> ALL(:but) OR c.due + make_interval(secs => :expires) < now())
    ) AS due ORDER BY turn, id LIMIT :count
""")
_ANSWER = text("""
    WITH r AS (
        SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(id bigint, outcome text, message text)
    ), done AS (
        UPDATE command c SET done_at = to_timestamp(:at), outcome = r.outcome, message = r.message
        FROM r WHERE c.id = r.id AND c.done_at IS NULL
        RETURNING c.*
    ), asked AS (
        SELECT a.id, done.outcome, done.message FROM done CROSS JOIN LATERAL (
            SELECT id FROM audit
            WHERE at = done.at AND revision IS NULL AND detail->'command' = to_jsonb(done.id) LIMIT 1
        ) AS a WHERE done.outcome <> 'done'
    ), told AS (
        UPDATE audit a SET detail = a.detail || jsonb_build_object('outcome', asked.outcome, 'message', asked.message)
        FROM asked WHERE a.id = asked.id
    )
    SELECT done.*, w.queue FROM done JOIN workload w USING (uid) ORDER BY done.id
""")
_OVERRIDE = text("""
    UPDATE workload w SET override = r.override, priority = r.priority
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(uid text, override jsonb, priority int)
    WHERE w.uid = r.uid
""")
_TARGETS = text("""
    SELECT uid, kind, namespace, name, queue, state, deleted_at IS NOT NULL AS deleted,
        EXISTS (SELECT FROM ledger l WHERE l.uid = w.uid AND l.closed IS NULL) AS holds
    FROM workload w WHERE uid = ANY(:uids)
""")


_EVICTABLE = ", ".join(f"'{state}'" for state in State if state.evictable)
_ORDERED = f"""FROM command c WHERE verb = 'evict' AND done_at IS NULL AND due > now() AND EXISTS (
    SELECT FROM workload w WHERE w.uid = c.uid AND w.deleted_at IS NULL AND w.state IN ({_EVICTABLE}))"""
_ORDERED_OF = text(
    f"SELECT DISTINCT ON (uid) uid, due, reason {_ORDERED} AND uid = ANY(:uids) ORDER BY uid, due"
)
_OPEN_ORDERS = text("""
    SELECT id, uid, actor AS by, due AS at, reason,
        due > now() AND at > (SELECT since FROM leader WHERE id = 1) - make_interval(secs => :unled) AS news
    FROM command
    WHERE done_at IS NULL AND verb = 'evict' AND due > at AND id <> ALL(:known) ORDER BY id
""")
_ORDERED_ALL = text(f"SELECT count(DISTINCT uid) AS jobs, min(due) AS first {_ORDERED}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCommand:
    """A request for a command. `administers`: the workload's queue, where the actor administers it. `delay`: seconds
    until it is due. `arguments`: of evict `hold`, of prioritise `priority` (a number, a class, None = the job's own).
    """

    verb: CommandVerb
    uid: str
    administers: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    delay: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command as it is stored. Times in seconds. `expired`: no controller took it up in time.

    `request`: as of `add`.
    """

    id: int
    at: float
    due: float
    actor: str
    source: str
    verb: CommandVerb
    uid: str
    administers: str | None
    arguments: Mapping[str, Any]
    reason: str
    done_at: float | None
    outcome: CommandOutcome | None
    message: str | None
    request: str | None = None
    expired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAnswer:
    """How a command ended, in a sentence."""

    id: int
    uid: str
    outcome: CommandOutcome
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A workload that somebody wants to command. `holds`: its pods are charged still, after its end, too."""

    uid: str
    kind: str
    namespace: str
    name: str
    queue: str
    ended: bool
    holds: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """An eviction that somebody has ordered for later: when, in seconds, and why."""

    at: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionOrder:
    """An eviction for later. `id`: of the command; `by`: who ordered it; `at`: when it is due, in seconds. `news`:
    whether it was ordered in this term, or while nobody may have led before it.
    """

    id: int
    uid: str
    by: str
    at: float
    reason: str
    news: bool = True

    @property
    def text(self) -> str:
        """As events and the job tell it."""
        return event_text(ORDERED, {"by": self.by, "due": utc(self.at), "reason": self.reason})


async def add(
    connection: AsyncConnection,
    rows: Sequence[NewCommand],
    *,
    actor: str,
    source: str,
    reason: str,
    request: str | None = None,
) -> list[Command]:
    """Put commands, with an audit row each; answers them in the order given.

    An eviction that is not due at once is told as an event. A workload has one open command of a verb from all who do
    not administer its queue: another one is left out.
    `request`: `key:body`, digests of what asks for them. One key puts at most one command on a workload.
    """
    if not rows:
        return []
    found = await execute_rows(
        connection, _ADD, rows, actor=actor, source=source, reason=reason, request=request, expires=EXPIRES
    )
    made = [record_of(Command, row) for row in found]
    append(
        connection, [_order(each) for each in made if each.verb is CommandVerb.EVICT and each.due > each.at]
    )
    return made


async def orders(connection: AsyncConnection, *, known: Collection[int]) -> list[EvictionOrder]:
    """Evictions for later that are not carried out. Without those of the commands `known`: one may be committed after a
    later one.
    """
    values = {"known": list(known), "unled": _UNLED}
    return [record_of(EvictionOrder, row) for row in await connection.execute(_OPEN_ORDERS, values)]


async def requested(connection: AsyncConnection, request: str) -> list[Command]:
    """The commands put under the key of this request, which may have had another body."""
    found = await connection.execute(_REQUESTED, {"request": request, "expires": EXPIRES + _SLACK})
    return [record_of(Command, row) for row in found]


async def one(connection: AsyncConnection, id: int) -> Command:
    """A command by its number. Raises NotFound."""
    row = (await connection.execute(_ONE, {"id": id, "expires": EXPIRES + _SLACK})).one_or_none()
    if row is None:
        raise no_command(id)
    return record_of(Command, row)


def no_command(id: int) -> NotFound:
    """There is no such command."""
    return NotFound(f"there is no command {id}", hint="commands are kept for 30 days after their end")


async def some(connection: AsyncConnection, ids: Iterable[int]) -> list[Command]:
    """Those of these commands that there are, by number."""
    found = await connection.execute(_SOME, {"ids": list(ids), "expires": EXPIRES + _SLACK})
    return [record_of(Command, row) for row in found]


async def waiting(connection: AsyncConnection) -> bool:
    """Whether a command is due."""
    return bool((await connection.execute(_ANY)).scalar_one())


async def ordered(connection: AsyncConnection, uids: Iterable[str]) -> dict[str, Ordered]:
    """The evictions of these workloads by commands that are not due yet, the first of each."""
    rows = await connection.execute(_ORDERED_OF, {"uids": list(uids)})
    return {row.uid: Ordered(at=row.due.timestamp(), reason=row.reason) for row in rows}


async def all_ordered(connection: AsyncConnection) -> tuple[int, float | None]:
    """How many workloads are to be evicted by commands that are not due yet, and when the first of them."""
    row = (await connection.execute(_ORDERED_ALL)).one()
    return row.jobs, seconds(row.first)


async def undone(connection: AsyncConnection, *, count: int, but: Collection[str] = ()) -> list[Command]:
    """The commands that are due: one of each namespace in turn, the oldest first. `but`: workloads whose commands wait
    until they expire.
    """
    values = {"count": count, "but": list(but), "expires": EXPIRES}
    return [record_of(Command, row) for row in await connection.execute(_UNDONE, values)]


async def answer(
    connection: AsyncConnection, epoch: int, answers: Sequence[CommandAnswer], *, at: float
) -> None:
    """Say how these ended, those that were not done in the audit, too; one that was answered keeps its answer. Raises
    LeadershipLost.
    """
    if not answers:
        return
    await check_epoch(connection, epoch)
    append(
        connection, [_event(row, at=at) for row in await execute_rows(connection, _ANSWER, answers, at=at)]
    )


async def put_overrides(
    connection: AsyncConnection, epoch: int, overrides: Mapping[str, tuple[Override | None, int]]
) -> None:
    """Let these count instead of the jobs' own words (None = nothing does), with the priority that each job has by
    that; by uid. Raises LeadershipLost.
    """
    if not overrides:
        return
    await check_epoch(connection, epoch)
    rows = ({"uid": uid, "override": own, "priority": number} for uid, (own, number) in overrides.items())
    await execute_rows(connection, _OVERRIDE, rows)


async def targets(connection: AsyncConnection, uids: Iterable[str]) -> dict[str, Target]:
    """The workloads of these uids; those that are not known are absent."""
    return {
        row.uid: record_of(Target, row, ended=row.deleted or State(row.state).ended)
        for row in await connection.execute(_TARGETS, {"uids": list(uids)})
    }


def _event(row: Row[Any], *, at: float) -> Event:
    data = {"command": row.id, "verb": row.verb, "by": row.actor, "reason": row.reason,
            "outcome": row.outcome, "message": row.message}  # fmt: skip
    return Event(at=at, type="workload.command", uid=row.uid, queue=row.queue, data=data)


def _order(made: Command) -> Event:
    data = {"command": made.id, "by": made.actor, "due": utc(made.due), "reason": made.reason}
    return Event(at=made.at, type=ORDERED, uid=made.uid, queue=made.administers, data=data)

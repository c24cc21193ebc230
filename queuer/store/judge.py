"""Whether a wish may be put in the place of the configuration: what is wrong with it, and whose it is.

`queuer.api.config.cautions` tells what is legal and yet odd.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.document import export_queue
from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.queue import ManagedBy, QueueState
from queuer.domain.rules import Rules
from queuer.store.changeset import Change, Form, JudgedChangeset, forms, rules_after
from queuer.store.config import Config, Name, ObjectKind

_HOLDERS = text("""
    SELECT queue, count(DISTINCT uid) AS workloads FROM ledger
    WHERE closed IS NULL AND queue = ANY(:paths) GROUP BY queue
""")
_WAITING = text("""
    SELECT queue, count(*) AS workloads FROM workload
    WHERE state IN ('Queued', 'Held') AND deleted_at IS NULL AND queue = ANY(:paths)
        AND token IS DISTINCT FROM 'Misconfigured'
    GROUP BY queue
""")


async def judged(
    connection: AsyncConnection,
    config: Config,
    wanted: Mapping[Name, Form | None],
    *,
    writer: ManagedBy,
) -> JudgedChangeset:
    """The changeset that brings objects to these forms; None deletes."""
    present = forms(config)
    deleted = [path for (kind, path), form in wanted.items() if kind is ObjectKind.QUEUE and form is None]
    busy = await holders(connection, deleted)
    if writer is ManagedBy.CRD:
        wanted, busy = {**wanted, **_drained(config, deleted, busy)}, {}
    changes = tuple(
        Change(kind=name[0], name=name[1], before=present.get(name), after=form)
        for name, form in sorted(wanted.items())
        if present.get(name) != form
    )
    after, wrong = _after(config, changes)
    return JudgedChangeset(
        base=config.revision,
        writer=writer,
        changes=changes,
        before=config,
        after=after,
        problems=(
            *(_busy(path, count) for path, count in busy.items()),
            *await _leaves_with_work(connection, config, changes),
            *wrong,
        ),
        conflicts=tuple(_conflicts(config, changes, writer=writer)),
    )


async def holders(connection: AsyncConnection, paths: Sequence[str]) -> dict[str, int]:
    """How many workloads hold something in each of these queues, where any does."""
    return await _count(connection, _HOLDERS, paths)


async def waiting_in(connection: AsyncConnection, paths: Sequence[str]) -> dict[str, int]:
    """How many workloads wait in each of these queues, where any does."""
    return await _count(connection, _WAITING, paths)


def _drained(config: Config, deleted: list[str], holders: Mapping[str, int]) -> dict[Name, Form]:
    """Queues that cannot go yet, with the ancestors that they need: kept as they are, letting nothing new in."""
    kept = {above for path in holders for above in config.tree.lineage(path)}.intersection(deleted)
    return {
        (ObjectKind.QUEUE, path): {**export_queue(config.tree[path]), "state": str(QueueState.DRAINING)}
        for path in kept
    }


def _busy(path: str, count: int) -> FieldProblem:
    return FieldProblem(
        field=f"queues.{path}",
        message=f"has {count} admitted workloads",
        hint="set state: draining and delete it when they are gone",
    )


async def _leaves_with_work(
    connection: AsyncConnection, config: Config, changes: tuple[Change, ...]
) -> list[FieldProblem]:
    """Leaves that would get children although they have work, which an inner queue cannot have."""
    new = {
        c.name.rpartition(".")[0]: c.name for c in changes if c.kind is ObjectKind.QUEUE and c.before is None
    }
    leaves = [path for path in sorted(new) if path in config.tree and config.tree.is_leaf(path)]
    admitted, waiting = await holders(connection, leaves), await waiting_in(connection, leaves)
    return [
        FieldProblem(
            field=f"queues.{new[path]}",
            message=f"{path} would become an inner queue, which takes no jobs, and has "
            f"{waiting.get(path, 0)} waiting and {admitted.get(path, 0)} admitted workloads",
            hint=f"set state: draining on {path} and add queues below it when they are gone",
        )
        for path in leaves
        if path in waiting or path in admitted
    ]


def _after(config: Config, changes: tuple[Change, ...]) -> tuple[Rules, tuple[FieldProblem, ...]]:
    """The rules that these changes leave, or the present ones and what is wrong with the changes."""
    try:
        return rules_after(config, changes), ()
    except InvalidInput as error:
        return config, error.problems


def _conflicts(config: Config, changes: tuple[Change, ...], *, writer: ManagedBy) -> Iterator[FieldProblem]:
    for change in changes:
        owner = config.writers.get((change.kind, change.name), writer)
        if owner is not writer:
            yield FieldProblem(
                field=f"{change.kind}s.{change.name}",
                message=f"is managed by {owner}, {writer} cannot {change.action} it",
                hint=f"change it where {owner} keeps it",
            )


async def _count(connection: AsyncConnection, statement: Any, paths: Sequence[str]) -> dict[str, int]:
    if not paths:
        return {}
    return {row.queue: row.workloads for row in await connection.execute(statement, {"paths": list(paths)})}

"""Lists of workloads: pages by keyset, and groups of those that are alike.

A list is of live jobs (a few thousand, one index) or goes back in time by submit time. It has an index for each
filter that may match little. A condition is part of a statement only if it is asked for. A condition that is always
there, and often true, keeps the planner from all indexes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.queue import ROOT
from queuer.domain.reasons import Token, Verdict
from queuer.domain.workload import State
from queuer.store.codec import instant, record_of
from queuer.store.waiting import UNSTARTABLE, VERDICT
from queuer.store.workloads import StoredWorkload, stored_of

# A plan for any values suits none of them: what matches little would go back through all of the past.
_BY_VALUES = text("SET LOCAL plan_cache_mode = force_custom_plan")
FEW = 32
"""Namespaces that are looked into one by one; jobs of more are met soon where one goes back in time."""
LIVE = "state NOT IN ('Succeeded', 'Failed') AND deleted_at IS NULL"
"""As the index of live jobs has it."""
_TOKEN = "coalesce(token, CASE state WHEN 'Held' THEN 'OnHold' WHEN 'Queued' THEN 'PendingEvaluation' END)"
ANY = "*"
"""Stands for any text, none too, in what names and users are compared with. No index serves that, so that it is looked
for among live jobs and the newest so many.
"""
RECENT = 20_000
_RECENT = """submitted >= coalesce(
    (SELECT submitted FROM workload ORDER BY submitted DESC OFFSET {} LIMIT 1), '-infinity')"""


def _matched(column: str, wanted: str | None) -> dict[str, str | None]:
    """The condition of a column, and its value."""
    if wanted is None or ANY not in wanted:
        return {column: wanted}
    plain = wanted.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return {f"{column}_like": plain.replace(ANY, "%")}


def _below(column: str) -> str:
    return f"({column} = :queue OR starts_with({column}, :queue || '.'))"  # no dot is inside a segment


_CONDITIONS = {
    "namespaces": "namespace = ANY(:namespaces)",
    "namespace": "namespace = :namespace",
    "queue": _below("queue"),
    "name": "name = :name",
    "user": "user_name = :user",
    "name_like": "name LIKE :name_like",
    "user_like": "user_name LIKE :user_like",
    "tokens": f"{_TOKEN} = ANY(:tokens)",
    "unstartable": f"({UNSTARTABLE}) = :unstartable",
    "verdicts": f"state IN ('Queued', 'Held') AND {VERDICT} = ANY(:verdicts)",
    "since": "submitted >= :since",
    "until": "submitted < :until",
}


def steps(column: str) -> str:
    """All values of an indexed column, one step of the index each, however many rows there are."""
    return f"""
        WITH RECURSIVE found AS (
            SELECT min({column}) AS value FROM workload
            UNION ALL
            SELECT (SELECT min({column}) FROM workload WHERE {column} > found.value) FROM found
            WHERE found.value IS NOT NULL
        )
        SELECT value FROM found WHERE value IS NOT NULL"""


class Order(StrEnum):
    """By what a list of live jobs may be ordered. By `submitted` all others are, too."""

    SUBMITTED = "submitted"
    PRIORITY = "priority"
    NAME = "name"
    QUEUE = "queue"
    USER = "user"


_KEYS = {order: order.value for order in Order} | {Order.USER: "user_name"}


class By(StrEnum):
    """The common figures of a group of jobs. `name`: namespace and name, but for numbers and generated
    suffixes.
    """

    QUEUE = "queue"
    REASON = "reason"
    STATE = "state"
    USER = "user"
    NAME = "name"


# Suffixes that Kubernetes generates have five of these letters: no vowels, so hardly a word is one.
_ALIKE = r"""namespace || '/' || regexp_replace(
    regexp_replace(name, '-[bcdfghjklmnpqrstvwxz2456789]{5}$', '-*'), '[0-9]+', '*', 'g')"""
_GROUP_KEYS = {By.QUEUE: "queue", By.REASON: _TOKEN, By.STATE: "state", By.USER: "user_name", By.NAME: _ALIKE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which workloads. Nothing given: all whose object is there.

    `namespaces`: of these alone. `queue`: with all below it. `name`, `user`: `*` is any text. `deleted`: jobs that are
    gone, too. `since`, `until`: submit times in seconds, from and before. `tokens`: live jobs with one of these.
    `unstartable`: live jobs that can never start as they are, or those that might. `verdicts`: waiting jobs whose
    reason has one of these.
    """

    namespaces: Collection[str] | None = None
    states: Sequence[State] = ()
    queue: str | None = None
    namespace: str | None = None
    name: str | None = None
    user: str | None = None
    tokens: Sequence[Token] = ()
    unstartable: bool | None = None
    verdicts: Sequence[Verdict] = ()
    deleted: bool = False
    since: float | None = None
    until: float | None = None

    @property
    def live(self) -> bool:
        """Whether live jobs alone are wanted: what has ended or is gone waits for nothing."""
        running = bool(self.states) and not any(state.ended for state in self.states)
        return (
            bool(self.tokens or self.verdicts)
            or self.unstartable is not None
            or (running and not self.deleted)
        )

    @property
    def values(self) -> dict[str, Any]:
        """Parameters by condition, those that are asked for."""
        given = {
            "namespaces": None if self.namespaces is None else sorted(self.namespaces),
            "namespace": self.namespace,
            "queue": self.queue,
            **_matched("name", self.name),
            **_matched("user", self.user),
            "tokens": list(self.tokens) or None,
            "unstartable": self.unstartable,
            "verdicts": list(self.verdicts) or None,
            "since": None if self.since is None else instant(self.since),
            "until": None if self.until is None else instant(self.until),
        }
        return {name: value for name, value in given.items() if value is not None}

    def condition(self, *, without: str = "") -> str:
        """In SQL; `without` one of them. Words of states stand in it, so that the planner sees which partial index has
        them.
        """
        parts = [_CONDITIONS[name] for name in self.values if name != without]
        if self.live:
            parts.append(LIVE)
        elif not self.deleted:
            parts.append("deleted_at IS NULL")
        if not self.live and any(ANY in wanted for wanted in (self.name, self.user) if wanted):
            parts.append(f"(({LIVE}) OR {_RECENT.format(RECENT)})")
        if self.states:
            words = ", ".join(f"'{state}'" for state in self.states)
            parts.append(f"state IN ({words})")
        return " AND ".join(parts) or "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Live jobs that are alike. `key`: what they have in common, None = they have none; `amounts`: what all of them
    ask for, base units; `oldest`, `newest`: submit times.
    """

    key: str | None
    jobs: int
    amounts: Mapping[str, int]
    oldest: float
    newest: float


async def workloads(
    connection: AsyncConnection,
    wanted: Wanted | None = None,
    *,
    order: Order = Order.SUBMITTED,
    rising: bool = False,
    after: tuple[Any, str] | None = None,
    count: int = 100,
) -> list[StoredWorkload]:
    """Up to `count`, after the one of this key (submit time in seconds) and uid. Equal keys are in the order of uids.

    Orders other than by submit time are for live jobs: no index serves them for all of the past.
    """
    statement, values = select(wanted or Wanted(), order=order, rising=rising, after=after, count=count)
    await connection.execute(_BY_VALUES)
    return [stored_of(row) for row in await connection.execute(text(statement), values)]


def select(
    asked: Wanted, *, order: Order, rising: bool, after: tuple[Any, str] | None, count: int
) -> tuple[str, dict[str, Any]]:
    """The statement of `workloads`, and its values."""
    key, direction, sign = _KEYS[order], "ASC" if rising else "DESC", ">" if rising else "<"
    values, place = {**asked.values, "count": count}, ""
    if after is not None:
        values |= {"key": instant(after[0]) if order is Order.SUBMITTED else after[0], "uid": after[1]}
        place = f"AND ({key}, uid) {sign} (:key, :uid)"
    end = f"ORDER BY {key} {direction}, uid {direction} LIMIT :count"
    driver = None if asked.live else _driver(asked)
    if driver is None:
        return f"SELECT * FROM workload WHERE {asked.condition()} {place} {end}", values
    where = f"{driver.column} = each.value AND {asked.condition(without=driver.condition)} {place}"
    statement = f"""
        SELECT w.* FROM (
            SELECT page.uid FROM ({driver.keys}) AS each CROSS JOIN LATERAL (
                SELECT submitted, uid FROM workload WHERE {where} {end}
            ) AS page {end}
        ) AS best CROSS JOIN LATERAL (SELECT * FROM workload WHERE uid = best.uid) AS w {end}"""
    return statement, values


@dataclass(frozen=True, slots=True, kw_only=True)
class _Driver:
    """An index is asked for a page of each value of its `column`. `condition`: what the values see to already."""

    column: str
    keys: str
    condition: str


def _driver(wanted: Wanted) -> _Driver | None:
    """None where the planner finds an index for what is asked by itself."""
    if wanted.namespace is not None:
        return None
    if wanted.namespaces is not None and len(wanted.namespaces) <= FEW:
        keys = "SELECT unnest(CAST(:namespaces AS text[])) AS value"
        return _Driver(column="namespace", keys=keys, condition="namespaces")
    if wanted.name is not None and ANY not in wanted.name:
        return _Driver(column="namespace", keys=steps("namespace"), condition="")
    if wanted.queue not in (None, ROOT):
        keys = f"SELECT value FROM ({steps('queue')}) AS known WHERE {_below('value')}"
        return _Driver(column="queue", keys=keys, condition="queue")
    return None


async def others(connection: AsyncConnection, wanted: Wanted) -> int | None:
    """How many live jobs of other namespaces are alike; None where that is not told: it would say who they are."""
    if wanted.namespaces is None:
        return 0
    if not wanted.live or any((wanted.namespace, wanted.name, wanted.user, wanted.since, wanted.until)):
        return None
    statement = text(f"""
        SELECT count(*) FROM workload
        WHERE {wanted.condition(without="namespaces")} AND namespace <> ALL(:namespaces)""")
    return int((await connection.execute(statement, wanted.values)).scalar_one())


async def groups(
    connection: AsyncConnection, wanted: Wanted, by: By, *, count: int
) -> tuple[list[Group], int]:
    """The `count` groups of most jobs, and how many groups there are. Of live jobs alone."""
    statement = text(f"""
        WITH alike AS (
            SELECT {_GROUP_KEYS[by]} AS key, pod_sets, count(*) AS jobs, min(submitted) AS oldest,
                max(submitted) AS newest
            FROM workload WHERE {wanted.condition()} AND {LIVE} GROUP BY 1, 2
        ), made AS (
            SELECT key, sum(jobs)::bigint AS jobs, min(oldest) AS oldest, max(newest) AS newest,
                count(*) OVER () AS total
            FROM alike GROUP BY key ORDER BY jobs DESC, key LIMIT :count
        )
        SELECT made.*, (
            SELECT jsonb_object_agg(resource, amount) FROM (
                SELECT asked.key AS resource,
                    sum(a.jobs * (pod_set->>'count')::numeric * asked.value::numeric) AS amount
                FROM alike a CROSS JOIN LATERAL jsonb_array_elements(a.pod_sets) AS pod_set
                CROSS JOIN LATERAL jsonb_each_text(pod_set->'requests') AS asked
                WHERE a.key IS NOT DISTINCT FROM made.key GROUP BY asked.key
            ) AS sums
        ) AS amounts FROM made ORDER BY jobs DESC, key""")
    rows = (await connection.execute(statement, {**wanted.values, "count": count})).all()
    found = [
        record_of(Group, row, amounts={name: int(amount) for name, amount in (row.amounts or {}).items()})
        for row in rows
    ]
    return found, rows[0].total if rows else 0

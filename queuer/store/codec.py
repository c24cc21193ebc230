"""Records to rows and JSON, and back. Floats of seconds become timestamptz here and nowhere else.

Bulk writes send their rows as one JSON parameter, which PostgreSQL turns into a record set: one statement per
table and `MOST_BYTES`, however many rows. The planner knows nothing of a record set's size. So statements
look their rows up by key in a LATERAL subquery, which it cannot turn into a product of two scans.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar
from uuid import UUID

import msgspec
from sqlalchemy import Row, TextClause
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.assignments import Assignment
from queuer.domain.reasons import Explanation, Reason, Token
from queuer.domain.workload import Workload

T = TypeVar("T")


def to_json(value: Any) -> str:
    """JSON text of plain values, mappings and dataclasses of the domain."""
    return msgspec.json.encode(value, enc_hook=plain).decode()


def plain(value: Any) -> Any:
    """Read-only mappings and sets as JSON knows them (an `enc_hook` of msgspec)."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, frozenset):
        return sorted(value)
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


MOST = 2**62
"""The largest number in a row that counts anything: sums must stay within 64 bits."""
MOST_BYTES = 1_000_000
"""Of JSON in one statement: a larger one holds up the loop while it is made, and the server while it is read."""


def instant(seconds: float) -> datetime:
    """Seconds since the epoch as timestamptz; microseconds are what survives."""
    return datetime.fromtimestamp(seconds, tz=UTC)


def seconds(at: datetime | None) -> float | None:
    """The inverse of `instant`; NULL stays None."""
    return None if at is None else at.timestamp()


def record_of(kind: type[T], row: Row[Any], **given: Any) -> T:
    """A record from a row whose columns have the names of its fields, but for those `given`.

    Instants become seconds; UUIDs and words of an enum become what the record declares. Raises ValueError where a value
    is not of the declared type.
    """
    columns = {name: value for name, value in row._mapping.items() if name not in given}
    for name, value in columns.items():
        if isinstance(value, datetime):
            columns[name] = value.timestamp()
        elif isinstance(value, UUID):
            columns[name] = str(value)
    return msgspec.convert(columns | given, kind)


def rows_json(rows: Iterable[Any]) -> str:
    """The JSON parameter of a record set: mappings or dataclasses, one per row."""
    return to_json(list(rows))


async def execute_rows(
    connection: AsyncConnection,
    statement: TextClause,
    rows: Iterable[Any],
    *,
    most: int = MOST_BYTES,
    **values: Any,
) -> list[Row[Any]]:
    """Execute a statement over the record set `:rows`, as often as slices of `most` bytes of JSON need, in order.

    Answers the rows of all slices, none where the statement returns nothing. One row may be larger than a slice.
    """
    found: list[Row[Any]] = []
    for part in slices(rows, most):
        result = await connection.execute(statement, {**values, "rows": part})
        found += result.all() if result.returns_rows else ()
    return found


def slices(rows: Iterable[Any], most: int = MOST_BYTES) -> Iterator[str]:
    """`rows_json` of these in parts of at most `most` bytes, or one row."""
    part, size = list[str](), 0
    for text in map(to_json, rows):
        if part and size + len(text) > most:
            yield f"[{','.join(part)}]"
            part, size = [], 0
        part.append(text)
        size += len(text) + 1
    if part:
        yield f"[{','.join(part)}]"


_AS_THEY_ARE = (
    "uid", "kind", "namespace", "name", "queue", "priority", "preemptible", "submitted", "required", "preferred",
    "max_runtime", "estimate", "hold", "pod_sets",
)  # fmt: skip


def workload_row(workload: Workload) -> dict[str, Any]:
    """A workload as the columns of its table; `submitted` stays seconds for the record set."""
    row = {name: getattr(workload, name) for name in _AS_THEY_ARE}
    return row | {"user_name": workload.user}


def workload_of(row: Row[Any]) -> Workload:
    """A workload from its row."""
    return record_of(Workload, row, user=row.user_name)


def assignment_json(assignment: Assignment) -> dict[str, Any]:
    """An assignment as rows and REST show it."""
    return {
        "podSet": assignment.pod_set,
        "flavor": assignment.flavor,
        "nodes": dict(assignment.nodes),
        "selector": dict(assignment.selector),
        "hosts": assignment.hosts,
    }


class _AssignmentForm(msgspec.Struct, rename="camel"):
    pod_set: str
    flavor: str
    nodes: dict[str, Annotated[int, msgspec.Meta(ge=0, le=MOST)]]
    selector: dict[str, str]
    hosts: tuple[str, ...] | None


def assignments_of(value: Any) -> tuple[Assignment, ...] | None:
    """The inverse, of a whole list. None where it cannot be read: somebody has edited it by hand."""
    try:
        forms = msgspec.convert(value, list[_AssignmentForm])
    except msgspec.ValidationError:
        return None
    return tuple(Assignment(**msgspec.structs.asdict(form)) for form in forms)


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """`{primary: {token, text, params}, others[], detail, …}` in plain values, with the marks that SQL reads.

    Changes that would admit a job are worked out when somebody asks, and not stored.
    """
    primary = explanation.primary
    found: dict[str, Any] = msgspec.to_builtins(
        {
            "unstartable": primary.unstartable,
            "verdict": primary.verdict,
            "lacksRoom": primary.lacks_room,
            "limitedBy": primary.limited_by,
            "primary": _reason_json(primary),
            "others": [_reason_json(other) for other in explanation.others],
            "detail": explanation.detail,
        },
        enc_hook=plain,
    )
    return found


def explanation_of(value: Mapping[str, Any]) -> Explanation:
    """The inverse of `explanation_json`."""
    return Explanation(
        primary=_reason(value["primary"]),
        others=tuple(_reason(other) for other in value["others"]),
        detail=value["detail"],
    )


def _reason_json(reason: Reason) -> dict[str, Any]:
    return {"token": reason.token, "text": reason.text, "params": reason.shown}


def _reason(value: Mapping[str, Any]) -> Reason:
    return Reason.read(Token(value["token"]), value["text"], value["params"])

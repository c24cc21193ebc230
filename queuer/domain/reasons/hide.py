"""A reader sees other jobs by name in namespaces that they read, and all others by queue and amounts alone.

A reason speaks of another job in a mapping with its `namespace`, wherever in an explanation that stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from queuer.domain.reasons.changes import JobChange
from queuer.domain.reasons.reason import Explanation, Reason

T = TypeVar("T")
Readable = Callable[[str], bool]
"""Whether the reader may see the jobs of a namespace."""
_NAMES = frozenset({"namespace", "name", "uid", "owner", "workload", "reservation", "beneficiary", "user"})
"""Keys that say who a job is."""
_TEXTS = frozenset({"why", "note"})
"""Keys of sentences about a job, which may name its pod sets or others."""


def namespaces_in(value: Any) -> Iterator[str]:
    """The namespaces that an explanation, or a part of one, names. Some may come twice."""
    match value:
        case Explanation():
            yield from namespaces_in([value.primary, *value.others, *value.would_admit, value.detail])
        case Reason():
            yield from namespaces_in(value.params)
        case JobChange():
            yield from namespaces_in(value.job)
        case Mapping():
            if isinstance(value.get("namespace"), str):
                yield value["namespace"]
            for part in value.values():
                yield from namespaces_in(part)
        case list() | tuple():
            for part in value:
                yield from namespaces_in(part)


def hide(value: T, readable: Readable) -> T:
    """The value without what says who a job is that the reader may not see. If it names none, it is the same object."""
    if all(map(readable, namespaces_in(value))):
        return value
    hidden: Any = value
    match value:
        case Explanation():
            hidden = replace(
                value,
                primary=hide(value.primary, readable),
                others=hide(value.others, readable),
                would_admit=hide(value.would_admit, readable),
                detail=hide(value.detail, readable),
            )
        case Reason():
            hidden = replace(value, params=hide(value.params, readable))
        case JobChange():
            hidden = replace(value, job=hide(value.job, readable))
        case Mapping():
            foreign = "namespace" in value and not readable(value["namespace"])
            left_out = _NAMES | _TEXTS if foreign else frozenset[str]()
            hidden = {key: hide(part, readable) for key, part in value.items() if key not in left_out}
        case list() | tuple():
            hidden = type(value)(hide(part, readable) for part in value)
    return cast("T", hidden)

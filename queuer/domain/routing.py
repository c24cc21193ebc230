"""Routing: to which queue below it an inner queue hands a job that names only the inner one.

The rules stand under `placement` of the inner queue.

    root:
      placement:                                       # the first that matches
      - {user: alice, queue: root.research.alice}
      - {namespace: team-b, group: ml, queue: root.research.ml}
      - {queue: root.rest}                             # everybody else

A rule may hand on to an inner queue, whose own rules then decide. Every rule leads down, so that ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from queuer.domain.errors import FieldProblem
from queuer.domain.fields import Problems, Reader

_WHO = ("namespace", "user", "group")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingRule:
    """Jobs of this namespace, user and group go to `queue`; None = of any."""

    queue: str
    namespace: str | None = None
    user: str | None = None
    group: str | None = None

    def matches(self, *, namespace: str, user: str, groups: Collection[str]) -> bool:
        """Whether a job of this namespace, queued by this user of these groups, is meant."""
        return (
            self.namespace in (None, namespace)
            and self.user in (None, user)
            and (self.group is None or self.group in groups)
        )


def parse_routing(reader: Reader, key: str = "placement") -> tuple[RoutingRule, ...]:
    """The rules of a queue's body; what is wrong with them is noted."""
    found = []
    for index, item in enumerate(reader.items(key)):
        at = f"{reader.path(key)}[{index}]"
        rule = Reader(item, at=at, known=(*_WHO, "queue"), problems=reader.problems)
        queue = rule.text("queue") if rule.need("queue") else None
        found.append(RoutingRule(queue=queue or "", **{name: rule.text(name) for name in _WHO}))
    return tuple(found)


def read_routing(items: object, *, at: str) -> tuple[RoutingRule, ...]:
    """The rules of a stored row. Raises InvalidInput."""
    problems = Problems()
    rules = parse_routing(Reader({"placement": items}, at=at, known=("placement",), problems=problems))
    problems.settle()
    return rules


def export_routing(rules: Collection[RoutingRule]) -> list[dict[str, Any]]:
    """The rules as plain data."""
    return [
        {key: value for key in (*_WHO, "queue") if (value := getattr(rule, key)) is not None}
        for rule in rules
    ]


def routing_problems(
    path: str, rules: Collection[RoutingRule], queues: Mapping[str, object]
) -> Iterator[FieldProblem]:
    """Rules of a queue that lead to none of `queues` below it."""
    for index, rule in enumerate(rules):
        if rule.queue in queues and rule.queue.startswith(f"{path}."):
            continue
        below = rule.queue.startswith(f"{path}.")
        yield FieldProblem(
            field=f"queues.{path}.placement[{index}].queue",
            message=f"{rule.queue} {'does not exist' if below else f'is not below {path}'}",
            hint="name a queue below it, or take the rule out",
        )

"""Routing: to which queue below it an inner queue hands a job that names only the inner one.

The rules stand under `placement` of the inner queue.

    root:
      placement:                                       # the first that matches
      - {user: alice, queue: root.research.alice}
      - {namespace: team-b, group: ml, queue: root.research.ml}
      - {namespace: team-c, labels: {kueue.x-k8s.io/queue-name: night}, queue: root.night}
      - {queue: root.rest}                             # everybody else

A rule may hand on to an inner queue, whose own rules then decide. Every rule leads down, so that ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from queuer.domain.errors import FieldProblem
from queuer.domain.fields import Problems, Reader
from queuer.domain.nodes import NO_LABELS

_WHO = ("namespace", "user", "group")
_FIELDS = ("namespace", "user", "group", "labels", "queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingRule:
    """Jobs of this namespace, user and group go to `queue`; None = of any. `labels`: all of which the job carries."""

    queue: str
    namespace: str | None = None
    user: str | None = None
    group: str | None = None
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)

    def matches(
        self, *, namespace: str, user: str, groups: Collection[str], labels: Mapping[str, str] = NO_LABELS
    ) -> bool:
        """Whether a job with these labels of this namespace, queued by this user of these groups, is meant."""
        return (
            self.namespace in (None, namespace)
            and self.user in (None, user)
            and (self.group is None or self.group in groups)
            and self.labels.items() <= labels.items()
        )


def parse_routing(reader: Reader, key: str = "placement") -> tuple[RoutingRule, ...]:
    """The rules of a queue's body; what is wrong with them is noted."""
    found = []
    for index, item in enumerate(reader.items(key)):
        at = f"{reader.path(key)}[{index}]"
        rule = Reader(item, at=at, known=_FIELDS, problems=reader.problems)
        queue = rule.text("queue") if rule.need("queue") else None
        who = {name: rule.text(name) for name in _WHO}
        found.append(RoutingRule(queue=queue or "", labels=rule.labels("labels"), **who))
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
        {key: dict(value) if key == "labels" else value for key in _FIELDS if (value := getattr(rule, key))}
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

"""The queue tree: nodes with quota, weight and policy, addressed by dotted path.

A tree is an immutable value. It is validated as a whole, because only the whole can be right or wrong.
Children's guarantees fit a stated guarantee of the parent, weights are above zero, paths are well formed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from itertools import takewhile
from typing import TypeVar

from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.nodes import NO_LABELS
from queuer.domain.quantity import beyond, readable, short
from queuer.domain.routing import RoutingRule, routing_problems

ROOT = "root"
MAX_PATH = 63
"""Paths are used as label values, which Kubernetes limits to 63 characters."""
_SEGMENT = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class QueueState(StrEnum):
    """`held`: nothing new starts; `draining`: nor is anything new queued."""

    OPEN = "open"
    HELD = "held"
    DRAINING = "draining"


class ManagedBy(StrEnum):
    """The one writer of a queue."""

    API = "api"
    CRD = "crd"
    FILE = "file"


class Order(StrEnum):
    """How a leaf offers its workloads, see docs/decision.md, "Order"."""

    PRIORITY = "priority"
    STRICT = "strict"
    PACKED = "packed"


class Sharing(StrEnum):
    """How an inner queue chooses among children that borrow."""

    FAIR = "fair"
    PRIORITY = "priority"


class Preempt(StrEnum):
    """The reach of higher priority."""

    NEVER = "never"
    WITHIN_QUEUE = "within-queue"
    LOWER_PRIORITY = "lower-priority"


P = TypeVar("P", "Policy", "Access")


def _over(own: P, inherited: P) -> P:
    said = {f.name: value for f in fields(own) if (value := getattr(own, f.name)) is not None}
    return replace(inherited, **said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A queue's own policy; None = as the nearest ancestor says. Times in seconds."""

    order: Order | None = None
    sharing: Sharing | None = None
    preempt: Preempt | None = None
    reclaim: bool | None = None
    min_runtime: float | None = None
    max_wait: float | None = None
    half_life: float | None = None
    reservations: int | None = None

    def over(self, inherited: Policy) -> Policy:
        """This policy with everything unsaid taken from `inherited`."""
        return _over(self, inherited)


DEFAULT_POLICY = Policy(
    order=Order.PRIORITY,
    sharing=Sharing.FAIR,
    preempt=Preempt.WITHIN_QUEUE,
    reclaim=True,
    min_runtime=0.0,
    reservations=1,
)
"""`max_wait` and `half_life` stay None: no hold after a wait, no decayed past use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerUser:
    """The most that one user may have admitted at a time in a queue and all below it.

    `limits`: amounts in base units by resource, all flavors together. `max_running`: jobs; None = any number.
    """

    limits: Mapping[str, int] = field(default_factory=dict)
    max_running: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The users of a queue, and bounds for their jobs; None = as the nearest ancestor says.

    `users`, `groups`: who of its namespaces may; said together, and none on the whole path = everybody.
    `max_priority`: the highest PriorityClass, by its value; None on the whole path = any. `max_runtime`: seconds that
    a job must promise to need at most; None on the whole path = it need not. `max_pending`: how many jobs of one
    namespace may wait in one queue. `per_user` is not inherited: it counts where it is said, beside those above it.
    """

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    max_priority: str | None = None
    max_runtime: float | None = None
    max_pending: int | None = None
    per_user: PerUser | None = None

    def over(self, inherited: Access) -> Access:
        """This access with everything unsaid taken from `inherited`."""
        named = self if self.users or self.groups else inherited
        found = _over(self, inherited)
        return replace(found, users=named.users, groups=named.groups, per_user=self.per_user)

    def admits(self, user: str, groups: Collection[str]) -> bool:
        """Whether this user of these groups is among who is named."""
        everybody = not (self.users or self.groups)
        return everybody or user in self.users or not set(self.groups).isdisjoint(groups)


DEFAULT_ACCESS = Access(max_pending=5000)
HIGHEST_PRIORITY = 1_000_000_000
"""The highest value of a PriorityClass that is not Kubernetes' own."""
SYSTEM_CLASSES = "system-"
"""PriorityClasses of this prefix are for the cluster's own pods: they never order a queued job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRow:
    """Amounts of one resource in base units; `flavor=None` counts all flavors together; None = not given."""

    resource: str
    flavor: str | None = None
    guaranteed: int | None = None
    limit: int | None = None
    lend: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """One node of the tree. Jobs go to leaves only. `namespaces=()` means: as the nearest ancestor says.

    `placement`: where a job goes that names this inner queue.
    """

    path: str
    weight: float = 1.0
    quota: tuple[QuotaRow, ...] = ()
    policy: Policy = field(default_factory=Policy)
    access: Access = field(default_factory=Access)
    namespaces: tuple[str, ...] = ()
    placement: tuple[RoutingRule, ...] = ()
    state: QueueState = QueueState.OPEN
    managed_by: ManagedBy = ManagedBy.API
    revision: int = 0

    @property
    def name(self) -> str:
        """Last segment of the path."""
        return self.path.rsplit(".", 1)[-1]

    @property
    def parent(self) -> str | None:
        """Path of the parent, None for root."""
        return self.path.rpartition(".")[0] or None


def common_ancestor(left: str, right: str) -> str:
    """The lowest queue that both are, or are below; paths as they are, whether or not there are such queues."""
    pairs = zip(left.split("."), right.split("."), strict=False)
    return ".".join(name for name, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def child_towards(queue: str, below: str) -> str:
    """The child of a queue on the way down to another one; `below` itself where that is the queue."""
    return ".".join(below.split(".")[: queue.count(".") + 2])


def check_path(path: str, *, field: str = "path") -> None:
    """Raise InvalidInput unless `path` is `root` or `root.` and DNS-1123 segments, 63 characters at most."""
    hint = "write e.g. root.research.team-a: lower-case letters, digits and hyphens between dots"
    segments = path.split(".")
    if segments[0] != ROOT or not all(_SEGMENT.fullmatch(s) for s in segments):
        raise InvalidInput.at(field, f"{path!r} is not a queue path", hint)
    if len(path) > MAX_PATH:
        raise InvalidInput.at(field, f"{path!r} has {len(path)} characters, {MAX_PATH} at most")


@dataclass(frozen=True)
class QueueTree:
    """All queues by path; `root` is always there. Build it with `QueueTree.of`."""

    queues: Mapping[str, Queue]

    @classmethod
    def of(cls, queues: Iterable[Queue]) -> QueueTree:
        """A validated tree. Raises InvalidInput with every problem found, each naming queue and field."""
        by_path = {queue.path: queue for queue in queues}
        by_path.setdefault(ROOT, Queue(path=ROOT))
        tree = cls(dict(sorted(by_path.items())))
        problems = tuple(tree.problems())
        if problems:
            raise InvalidInput(*problems)
        return tree

    def __contains__(self, path: str) -> bool:
        return path in self.queues

    def __getitem__(self, path: str) -> Queue:
        return self.queues[path]

    def __iter__(self) -> Iterator[Queue]:
        return iter(self.queues.values())

    @cached_property
    def children(self) -> Mapping[str, tuple[str, ...]]:
        """Child paths by parent path, sorted; leaves map to ()."""
        found: dict[str, list[str]] = {path: [] for path in self.queues}
        for queue in self:
            if queue.parent is not None and queue.parent in found:
                found[queue.parent].append(queue.path)
        return {path: tuple(sorted(kids)) for path, kids in found.items()}

    def is_leaf(self, path: str) -> bool:
        """Whether jobs may go to this queue."""
        return not self.children[path]

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """Paths of all leaves, sorted."""
        return tuple(path for path in self.queues if self.is_leaf(path))

    def lineage(self, path: str) -> tuple[str, ...]:
        """The queue and its ancestors, from itself up to `root`."""
        parts = path.split(".")
        return tuple(".".join(parts[:n]) for n in range(len(parts), 0, -1))

    def policy(self, path: str) -> Policy:
        """The policy in force at `path`: its own words over its ancestors' over the defaults."""
        return self._policies[path]

    @cached_property
    def _policies(self) -> Mapping[str, Policy]:
        found: dict[str, Policy] = {}
        for queue in self:  # sorted by path, so parents come first
            above = DEFAULT_POLICY if queue.parent is None else found[queue.parent]
            found[queue.path] = queue.policy.over(above)
        return found

    def access(self, path: str) -> Access:
        """Bounds for jobs of the queue: its own words over its ancestors' over the defaults."""
        return self._accesses[path]

    @cached_property
    def _accesses(self) -> Mapping[str, Access]:
        found: dict[str, Access] = {}
        for queue in self:  # sorted by path, so parents come first
            above = DEFAULT_ACCESS if queue.parent is None else found[queue.parent]
            found[queue.path] = queue.access.over(above)
        return found

    @cached_property
    def per_user(self) -> Mapping[str, tuple[tuple[str, PerUser], ...]]:
        """By queue, the queues of its path that limit each user, from itself up; queues without are left out."""
        said = {queue.path: queue.access.per_user for queue in self if queue.access.per_user is not None}
        found = {
            queue.path: tuple((p, said[p]) for p in self.lineage(queue.path) if p in said) for queue in self
        }
        return {path: rows for path, rows in found.items() if rows}

    def namespaces(self, path: str) -> tuple[str, ...]:
        """Namespaces that may use the queue, from the nearest queue on the path that names any; () = nobody."""
        return next((self[p].namespaces for p in self.lineage(path) if self[p].namespaces), ())

    def routed(
        self,
        path: str,
        *,
        namespace: str,
        user: str,
        groups: Collection[str],
        labels: Mapping[str, str] = NO_LABELS,
    ) -> tuple[tuple[str, RoutingRule], ...]:
        """By which rules a job that names this queue goes on, with the queue of each; () = it stays where it is."""
        steps: list[tuple[str, RoutingRule]] = []
        while path in self:
            matching = (
                rule
                for rule in self[path].placement
                if rule.matches(namespace=namespace, user=user, groups=groups, labels=labels)
            )
            rule = next(matching, None)
            if rule is None:
                break
            steps.append((path, rule))
            path = rule.queue
        return tuple(steps)

    def effective_state(self, path: str) -> QueueState:
        """The strictest state on the path to root."""
        states = {self[p].state for p in self.lineage(path)}
        return next((s for s in (QueueState.DRAINING, QueueState.HELD) if s in states), QueueState.OPEN)

    def nearest(self, path: str) -> tuple[str, ...]:
        """Up to three leaves whose paths resemble `path`, best first: the answer to a mistyped name."""
        return tuple(difflib.get_close_matches(path, self.leaves, n=3, cutoff=0.6))

    def problems(self) -> Iterator[FieldProblem]:
        """Everything that is wrong with this tree, naming queue, field and numbers."""
        for queue in self:
            where = f"queues.{queue.path}"
            try:
                check_path(queue.path, field=where)
            except InvalidInput as error:
                yield from error.problems
                continue
            if queue.parent is not None and queue.parent not in self:
                yield FieldProblem(
                    field=where, message=f"parent {queue.parent} does not exist", hint="add it to the tree"
                )
            if not queue.weight > 0:
                yield FieldProblem(field=f"{where}.weight", message=f"{queue.weight} is not above 0")
            yield from routing_problems(queue.path, queue.placement, self.queues)
            yield from self._quota_problems(queue, where=where)
        rows = [(row.guaranteed or 0, queue.path, row.resource) for queue in self for row in queue.quota]
        for resource in beyond({name: amount} for amount, _, name in rows):
            _, path, _ = max(row for row in rows if row[2] == resource)
            message = f"guarantees of all queues are beyond 2^62 {resource} together"
            yield FieldProblem(field=f"queues.{path}.quota", message=message, hint="lower it")

    def _quota_problems(self, queue: Queue, *, where: str) -> Iterator[FieldProblem]:
        seen: set[tuple[str | None, str]] = set()
        for index, row in enumerate(queue.quota):
            at = f"{where}.quota[{index}]"
            if (row.flavor, row.resource) in seen:
                yield FieldProblem(field=at, message=f"second row for {row.flavor or 'any'} {row.resource}")
            seen.add((row.flavor, row.resource))
            for low, high in (("guaranteed", "limit"), ("lend", "guaranteed")):
                less, more = getattr(row, low), getattr(row, high)
                if less is not None and more is not None and less > more:
                    yield FieldProblem(
                        field=f"{at}.{low}",
                        message=f"{_show(less, row)} is above {high} {_show(more, row)}",
                    )
            yield from self._sum_problems(queue, row, at=at)

    def _sum_problems(self, queue: Queue, row: QuotaRow, *, at: str) -> Iterator[FieldProblem]:
        if row.guaranteed is None or not self.children[queue.path]:
            return
        shares = {kid: self.guaranteed(kid, row.flavor, row.resource) for kid in self.children[queue.path]}
        total = sum(shares.values())
        if total > row.guaranteed:
            parts = " + ".join(f"{kid.rsplit('.', 1)[-1]} {_show(n, row)}" for kid, n in shares.items() if n)
            yield FieldProblem(
                field=f"{at}.guaranteed",
                message=f"children of {queue.path} are guaranteed {_show(total, row)} {short(row.resource)} ({parts}), "
                f"more than its {_show(row.guaranteed, row)}",
                hint="raise the parent or lower a child",
            )

    def guaranteed(self, path: str, flavor: str | None, resource: str) -> int:
        """Guarantee of a queue in an account: its row's, else its children's sum, else 0. For any flavor its
        own rows by flavor are summed before 0. Base units.
        """
        rows = self[path].quota
        stated = next((r.guaranteed for r in rows if r.flavor == flavor and r.resource == resource), None)
        if stated is not None:
            return stated
        below = sum(self.guaranteed(kid, flavor, resource) for kid in self.children[path])
        if below or flavor is not None:
            return below
        return sum(r.guaranteed or 0 for r in rows if r.flavor is not None and r.resource == resource)


def _show(amount: int, row: QuotaRow) -> str:
    return readable(amount, resource=row.resource)

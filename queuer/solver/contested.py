"""The one interface between `decide()` and an exact solver: questions about gangs that greedy refused, and
their answers.

DESIGN 3.4: a gang is refused only when no arrangement of the gangs admitted before it, with every permitted
victim set, would let it start. Greedy finds most arrangements. For the rest `decide()` asks an `ExactSolver`,
which answers with an arrangement, a proof that there is none, or nothing in time. Without one (ortools not
installed, budget 0) every contested gang waits as `SolverDeferred`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from queuer.domain.reasons import Deferral
from queuer.domain.workload import Workload
from queuer.solver.frame import Frame, Mask, Matrix
from queuer.solver.prices import Prices
from queuer.solver.problem import Assignment, Eviction, Pending, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One choice of flavors and sizes for a gang, both by pod set name."""

    flavors: Mapping[str, str]
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A gang that this cycle has settled before the contested one; `variant` is fixed, the place is open.

    Not `bound`: it starts now, and must still start now in every arrangement. Bound: to what its own `victims`
    leave, to what others leave, or both.
    """

    pending: Pending
    variant: Variant
    assignments: tuple[Assignment, ...]
    bound: bool = False
    victims: tuple[Eviction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A bond of an earlier cycle, or with `awaits` a gang that awaits pods of one: place and quota are held; neither is
    open. `victims`: those that are not gone yet.
    """

    pending: Pending
    assignments: tuple[Assignment, ...]
    victims: tuple[str, ...] = ()
    awaits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reserved:
    """A reservation of another than the asked gang, as far as it binds who would still run at its `start`. Amounts are
    vectors of R by node number.

    `settled`: what such gangs that are settled may take of its nodes together: what leaves it whole, or what they take
    now. `asked`: for each variant, what they may take of a node on which the asked gang lies, too; None = that does not
    have to leave it whole. Both without what victims leave. `displacers`: of those settled the ones that may come onto
    its place all the same, by uid.

    For a hold alone: `lacks`, how much of its place is missing on a node as things are. What victims leave there fills
    that up first; until it is full, those settled take no more of the node than they do now, which is `takes`.
    """

    start: float
    settled: Mapping[int, Matrix]
    asked: Sequence[Mapping[int, Matrix] | None] = ()
    displacers: frozenset[str] = frozenset()
    lacks: Mapping[int, Matrix] = field(default_factory=dict)
    takes: Mapping[int, Matrix] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Can `gang` start too?

    `settled`: in tournament order. `variants`: allowed, best first. `evict=False`: the gang must start now.
    `evict=True`: it may be bound; if the rules permit it victims (see `Prey.has_rights`), all victims
    of this cycle are open and a joint set is looked for. Otherwise nobody goes but those of `settled`, of whom those
    stay whom nobody needs any more, and it takes no room or quota for which somebody must go who leaves anyway.
    `blocked`: nodes by gang uid that are closed to it, beside what its terms say and those it avoids. `reserved`:
    reservations that stay whole. `budget`: deterministic time that may be spent.
    """

    snapshot: Snapshot
    now: float
    seed: int
    settled: tuple[Settled, ...]
    standing: tuple[Standing, ...]
    gang: Pending
    variants: tuple[Variant, ...]
    evict: bool
    budget: float
    blocked: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    reserved: Sequence[Reserved] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """A place for every settled gang and the asked one; pins (`selector`, `hosts`) are left to the caller.

    `assignments`: by uid. `evictions`: all new ones, those of one beneficiary in the order in which the rule
    permits them to go. `spent`: deterministic time. `proven`: optimal in all levels (only from `improve`).
    """

    assignments: Mapping[str, tuple[Assignment, ...]]
    evictions: tuple[Eviction, ...] = ()
    spent: float = 0.0
    proven: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """There is no such arrangement. `prices`: those that prove it, if any do."""

    spent: float = 0.0
    prices: Prices | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Neither found nor refuted, and why."""

    spent: float = 0.0
    cause: Deferral = Deferral.TIME


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Laid:
    """A gang on the nodes: its place by pod set and node number (none yet if it is asked for), the nodes closed to it
    (N), and whether it starts now or is bound. `form`: equal for gangs that placement cannot tell apart.
    """

    form: object
    workload: Workload
    variant: Variant
    closed: Mask | None
    starts: bool
    spreads: Mapping[str, Mapping[int, int]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def uid(self) -> str:
        """The workload's uid."""
        return self.workload.uid


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """Is there a place for all that is settled and for `asked`? Victims are as they are, quota is left aside.

    `now`, `later`: what is free at once and with the victims gone (N x R), the places of `settled` open. What starts
    needs both, what is bound the latter. `found`: whether places are looked for; else it is only asked whether
    prices prove that there are none. `budget`: deterministic time.
    """

    frame: Frame
    now: Matrix
    later: Matrix
    settled: tuple[Laid, ...]
    asked: Laid
    found: bool
    seed: int
    budget: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Places by uid, pod set and node number."""

    spreads: Mapping[str, Mapping[str, Mapping[int, int]]]
    spent: float = 0.0


Clashes = Callable[[Arrangement], Collection[str]]
"""Gangs of an arrangement that could not land in it, with those that lie on their hosts, by uid."""


class ExactSolver(Protocol):
    """An exact solver behind `decide()`. Pure: the same question gives the same answer."""

    def lay(self, question: Layout) -> Places | Proof | Unknown:
        """Places for all that is settled and one more, or a proof that there are none."""

    def settle(self, question: Question) -> Arrangement | Proof | Unknown:
        """Answer for the contested gang. An arrangement lets all settled gangs start that started before."""

    def improve(
        self,
        *,
        snapshot: Snapshot,
        now: float,
        seed: int,
        settled: tuple[Settled, ...],
        standing: tuple[Standing, ...],
        budget: float,
        clashes: Clashes,
        reserved: Sequence[Reserved] = (),
    ) -> Arrangement | Unknown:
        """The admitted set and its sizes fixed: better evictions, flavors, narrowness, fragmentation, in this
        order. Only what has no `clashes` counts.
        """

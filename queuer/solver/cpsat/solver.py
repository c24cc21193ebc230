"""Answers to contested gangs, and the lexicographic passes: one level after the other on one growing model.

A pass keeps what it reached by a row and hands its solution on as a hint. Nothing found in time is never an answer:
a proof is INFEASIBLE on the model with all nodes and all permitted victims.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from queuer.domain.reasons import Deferral
from queuer.solver.arrays import Arrays
from queuer.solver.contested import (
    Arrangement,
    Clashes,
    Layout,
    Places,
    Proof,
    Question,
    Reserved,
    Settled,
    Standing,
    Unknown,
)
from queuer.solver.cpsat.checks import chosen, in_order, keep_apart, places_hold, sets_land, within_quota
from queuer.solver.cpsat.data import Data, Limits, gather
from queuer.solver.cpsat.layout import lay
from queuer.solver.cpsat.model import Model, TooLarge
from queuer.solver.cpsat.needed import Needless, needed_by
from queuer.solver.cpsat.objective import (
    EVICTION_LEVELS,
    GANGS,
    broken_up,
    eviction_level,
    idle_bonds,
    looseness,
    shared,
    width,
)
from queuer.solver.cpsat.proto import Status, Terms, scaled
from queuer.solver.problem import Assignment, Eviction, Snapshot

CUTS = 200
"""Solutions of one pass that may turn out not to be permitted before it gives up."""
CLASHES = 24
"""Solutions of one search in which gangs, or sets of one, could not land beside each other, or somebody would go whom
nobody needs, before it gives up.
"""
Level = Callable[[], Terms]


class CpSat:
    """An `ExactSolver` (see `queuer.solver.contested`)."""

    def __init__(self, arrays: Arrays | None = None) -> None:
        """`arrays`: of the snapshot that most questions will be about."""
        self._arrays = arrays

    def _of(self, snapshot: Snapshot) -> Arrays:
        if self._arrays is None or self._arrays.snapshot is not snapshot:
            self._arrays = Arrays.of(snapshot)
        return self._arrays

    def settle(self, question: Question) -> Arrangement | Proof | Unknown:
        """The first variant for which there is an arrangement; a proof needs one for every variant."""
        spent = 0.0
        cause: Deferral | None = None
        for number, variant in enumerate(question.variants):
            left = question.budget - spent
            if left <= 0:
                cause = Deferral.TIME
                break
            data = gather(
                arrays=self._of(question.snapshot),
                now=question.now,
                settled=question.settled,
                standing=question.standing,
                blocked=question.blocked,
                asked=(question.gang, variant, question.evict),
                reserved=[Limits.of(one, number) for one in question.reserved],
            )
            if not question.evict and _no_quota(data):
                continue
            search = _Search(data, seed=question.seed, budget=left)
            levels = [*(_evictions(search) if question.evict else []), _level(search, shared)]
            status = search.run(levels)
            spent += search.spent
            if status in (Status.FOUND, Status.BEST):
                # Another gang's earlier variant that stayed open does not matter: any arrangement keeps the promise.
                return search.arrangement(spent=spent)
            if status is Status.UNKNOWN:
                cause = search.cause
        return Proof(spent=spent) if cause is None else Unknown(spent=spent, cause=cause)

    def lay(self, question: Layout) -> Places | Proof | Unknown:
        """See `queuer.solver.cpsat.layout`."""
        return lay(question)

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
        """The settled gangs at their sizes and flavors, arranged as well as time allows."""
        if not settled:
            return Unknown()
        data = gather(
            arrays=self._of(snapshot),
            now=now,
            settled=settled,
            standing=standing,
            blocked={},
            reserved=[Limits.of(one, None) for one in reserved],
        )
        search = _Search(data, seed=seed, budget=budget, clashes=clashes)
        levels: list[Level] = [
            *_evictions(search),
            *(_level(search, f) for f in (width, broken_up, shared, looseness)),
        ]
        status = search.run(levels)
        if status in (Status.FOUND, Status.BEST):
            return search.arrangement(spent=search.spent, proven=status is Status.BEST)
        return Unknown(spent=search.spent)


def _no_quota(data: Data) -> bool:
    """Whether the asked gang, last of the items and counted already, breaks a limit as things are now."""
    item = data.items[-1]
    usage = data.board.now.usage.copy()
    usage.add(item.workload.queue, item.charge, times=-1)
    return not usage.fits(item.workload.queue, item.charge)


def _evictions(search: _Search) -> list[Level]:
    def level(n: int) -> Level:
        return lambda: eviction_level(search.need(), n)

    return [*(level(n) for n in range(EVICTION_LEVELS)), _level(search, idle_bonds)]


def _level(search: _Search, make: Callable[[Model], Terms]) -> Level:
    return lambda: make(search.need())


class _Search:
    """One model, its best solution so far, and what it cost."""

    def __init__(self, data: Data, *, seed: int, budget: float, clashes: Clashes | None = None) -> None:
        self._data = data
        self._budget = budget
        self._clashes = clashes
        self._clashed = 0
        self._unsure = False  # whether a solution was cut off in which all may be needed
        self._values: Sequence[int] = ()
        self._evictions: tuple[Eviction, ...] = ()
        self.cause = Deferral.TIME
        self._model: Model | None = None
        try:
            self._model = Model(data, seed=seed)
            self._decided = len(self._model.rows.bounds)  # variables that say who lies where and who goes
        except (TooLarge, OverflowError):
            self.cause = Deferral.SIZE

    @property
    def spent(self) -> float:
        """Deterministic time."""
        return 0.0 if self._model is None else self._model.rows.spent

    def need(self) -> Model:
        """The model, which must have been built."""
        assert self._model is not None
        return self._model

    def run(self, levels: Iterable[Level]) -> Status:
        """Find any solution, then improve it level by level. BEST = every level proven."""
        if self._model is None:
            return Status.UNKNOWN
        status = self._solve(None)
        if status in (Status.NONE, Status.UNKNOWN):
            return status
        result = Status.BEST
        for level in levels:
            exact, shift = scaled(level(), self._model.rows)
            if not any(exact.values()):
                continue
            before = self._values
            status = self._solve(exact)
            if status is not Status.BEST or shift:
                result = Status.FOUND
            if status in (Status.NONE, Status.UNKNOWN) and self._value(exact, before) is None:
                break  # the last solution does not know this level's variables; nothing to hold on to
            reached = self._value(exact, self._values)
            if reached is None:
                break
            self._model.rows.row(exact, high=reached)
        return result

    @staticmethod
    def _value(terms: Terms, values: Sequence[int]) -> int | None:
        if any(v >= len(values) for v in terms):
            return None
        return sum(c * values[v] for v, c in terms.items())

    def _solve(self, minimise: Terms | None) -> Status:
        """Solve until a solution is permitted by what rows do not say, or none is left."""
        model = self.need()
        for _ in range(CUTS):
            left = self._budget - model.rows.spent
            if left <= 0:
                return Status.UNKNOWN
            status, values = model.rows.solve(budget=left, minimise=minimise)
            if status is Status.NONE and self._clashed:
                return Status.UNKNOWN  # not everything that was cut off was looked at
            if status in (Status.NONE, Status.UNKNOWN):
                return status
            if self._values and values[: self._decided] == self._values[: self._decided]:
                return self._kept(values, status)
            evicted = chosen(model, values)
            order = in_order(model, evicted)
            if order is None or not within_quota(model, evicted):
                continue
            if not places_hold(model, values, evicted):
                self.cause = Deferral.LANDING  # pods that have still to land may take the place
                return Status.UNKNOWN
            evictions = needed_by(model, values, evicted, order)
            if not sets_land(model, values, evicted):
                self.cause = Deferral.CROSSING
                minimise = minimise or shared(model)  # where any would do, one on hosts of their own lands
            elif isinstance(evictions, Needless):
                self.cause = Deferral.UNSOUND
                self._unsure |= not evictions.sure
                minimise = minimise or eviction_level(model, GANGS)
            elif together := self._clashing(values, evictions):
                keep_apart(model, values, evicted, together)
            else:
                self._evictions = evictions
                return self._kept(values, status)
            if self._clashed == CLASHES:
                return Status.UNKNOWN
            self._clashed += 1
        return Status.UNKNOWN

    def _kept(self, values: Sequence[int], status: Status) -> Status:
        """The solution is permitted, its evictions are known."""
        self._values = values
        self.need().rows.hint = dict(enumerate(values))
        return Status.FOUND if self._unsure else status

    def _clashing(self, values: Sequence[int], evictions: Sequence[Eviction]) -> Collection[str]:
        """Gangs that do not land beside each other in this solution."""
        return self._clashes(self._arranged(values, evictions, spent=0.0)) if self._clashes else ()

    def arrangement(self, *, spent: float, proven: bool = False) -> Arrangement:
        """The best solution as places by uid."""
        return self._arranged(self._values, self._evictions, spent=spent, proven=proven)

    def _arranged(
        self, values: Sequence[int], evictions: Sequence[Eviction], *, spent: float, proven: bool = False
    ) -> Arrangement:
        model, names = self.need(), self._data.board.frame.names
        found: dict[str, tuple[Assignment, ...]] = {}
        for i, item in model.items():
            rows = []
            for p, part in enumerate(item.parts):
                pods = {names[n]: values[model.x[i, p, n]] for n in self._data.nodes if (i, p, n) in model.x}
                nodes = {name: count for name, count in pods.items() if count}
                rows.append(
                    Assignment(pod_set=part.name, flavor=item.variant.flavors[part.name], nodes=nodes)
                )
            found[item.workload.uid] = tuple(rows)
        return Arrangement(assignments=found, evictions=tuple(evictions), spent=spent, proven=proven)

"""Asking the exact solver about contested gangs, and taking over what it answers (DESIGN 3.4, the promise).

Contested is a gang that greedy could not place and that no bound excludes. Without a solver, or without an
answer in time, such a gang waits as deferred, never as lacking capacity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from queuer.solver.board import Board, Horizon
from queuer.solver.capacity import Spread
from queuer.solver.contested import (
    Arrangement,
    Proof,
    Question,
    Rearranger,
    Settled,
    Standing,
    Unknown,
    Variant,
)
from queuer.solver.frame import Matrix
from queuer.solver.greedy import Chosen, Greedy, assignments
from queuer.solver.order import Gang
from queuer.solver.problem import Assignment, Bond, Budget

MOST = 120
"""Gangs settled in one cycle up to which the exact solver is asked at all."""
QUESTIONS = 24
"""Questions asked in one cycle."""


class Contest:
    """The exact solver in one decision: its questions, its budget, and the adoption of its answers."""

    def __init__(
        self,
        greedy: Greedy,
        rearranger: Rearranger | None,
        *,
        seed: int,
        budget: Budget,
        bonds: Mapping[str, Bond],
    ) -> None:
        self._greedy = greedy
        self._board: Board = greedy.board
        self._rearranger = rearranger
        self._seed = seed
        self._left = budget.deterministic
        self._share = budget.deterministic / 4
        self._bonds = bonds
        self._asked = 0

    def settle(self, gang: Gang, variants: Sequence[Variant], *, evict: bool) -> Chosen | Proof | None:
        """An arrangement in which the gang starts (or, with `evict`, is bound), adopted; a proof; None =
        unknown.
        """
        greedy = self._greedy
        greedy.counts.contested += not evict
        if self._rearranger is None or not self._may_ask():
            return None
        self._asked += 1
        question = Question(
            snapshot=self._board.snapshot,
            now=self._board.time,
            seed=self._seed,
            settled=self._settled(),
            standing=self._standing(),
            gang=gang.pending,
            variants=tuple(variants),
            evict=evict,
            budget=min(self._left, self._share),
            blocked=self._blocked([*(c.gang for c in greedy.chosen.values()), gang]),
        )
        answer = self._rearranger.settle(question)
        self._left -= answer.spent
        if isinstance(answer, Arrangement):
            return self._adopt(answer, new=gang)
        return answer if isinstance(answer, Proof) else None

    def improve(self) -> Arrangement | Unknown:
        """A better arrangement of all that is settled, not adopted yet."""
        worth = len(self._greedy.chosen) > 1 or any(c.evictions for c in self._greedy.chosen.values())
        if self._rearranger is None or not self._may_ask() or not worth:
            return Unknown(note="not asked")
        answer = self._rearranger.improve(
            snapshot=self._board.snapshot,
            now=self._board.time,
            seed=self._seed,
            settled=self._settled(),
            standing=self._standing(),
            budget=self._left,
            blocked=self._blocked([c.gang for c in self._greedy.chosen.values()]),
        )
        self._left -= answer.spent
        return answer

    def adopt(self, answer: Arrangement) -> None:
        """Take an improvement over."""
        self._adopt(answer, new=None)

    def _may_ask(self) -> bool:
        return self._left > 0 and self._asked < QUESTIONS and len(self._greedy.chosen) <= MOST

    def _settled(self) -> tuple[Settled, ...]:
        return tuple(
            Settled(
                pending=c.gang.pending,
                variant=c.variant,
                assignments=assignments(self._board, c),
                victims=c.evictions,
            )
            for c in self._greedy.chosen.values()
            if not c.bound or c.evictions
        )

    def _standing(self) -> tuple[Standing, ...]:
        """Bonds of earlier cycles, and gangs that are bound to what victims of others leave."""
        workloads = {p.workload.uid: p for p in self._board.snapshot.pending}
        there = [
            Standing(
                pending=workloads[bond.uid],
                assignments=bond.assignments,
                victims=tuple(v for v in bond.victims if v in self._board.holds),
            )
            for bond in self._bonds.values()
        ]
        there += [
            Standing(pending=c.gang.pending, assignments=assignments(self._board, c), victims=())
            for c in self._greedy.chosen.values()
            if c.bound and not c.evictions
        ]
        return tuple(there)

    def _blocked(self, gangs: Sequence[Gang]) -> dict[str, frozenset[str]]:
        """Nodes that reservations close to gangs which would still run when they start."""
        if not self._board.horizons:
            return {}
        found: dict[str, frozenset[str]] = {}
        for gang in gangs:
            nodes = [n for h in self._board.horizons.values() if self._binds(h, gang) for n in h.nodes]
            if nodes:
                found[gang.uid] = frozenset(self._board.frame.names[n] for n in nodes)
        return found

    def _binds(self, horizon: Horizon, gang: Gang) -> bool:
        charge = gang.shape.charges[0]
        return self._board.binds(horizon, gang.pending.workload, rank=self._greedy.rank(gang, charge))

    def _adopt(self, answer: Arrangement, *, new: Gang | None) -> Chosen | None:
        """Lay everything out anew; what an answer names wrongly is refused and the old layout restored."""
        greedy, before = self._greedy, dict(self._greedy.chosen)
        moved: list[Chosen] = []
        for old in before.values():
            if old.bound and not old.evictions:
                moved.append(old)
                continue
            rows = answer.assignments.get(old.gang.uid)
            if rows is None:
                return None
            moved.append(self._moved(old.gang, rows, answer))
        if new is not None:
            moved.append(self._moved(new, answer.assignments[new.uid], answer))
        greedy.lift(before.values())
        greedy.chosen.clear()
        for chosen in moved:
            greedy.take(chosen)
        self._board.epoch += 1
        if self._overdrawn(moved):
            greedy.lift(moved)
            greedy.chosen.clear()
            for chosen in before.values():
                greedy.take(chosen)
            return None
        if new is None:
            return None
        greedy.counts.rearranged += 1
        return greedy.chosen[new.uid]

    def _moved(self, gang: Gang, rows: Sequence[Assignment], answer: Arrangement) -> Chosen:
        index = self._board.frame.index
        spreads: dict[str, Spread] = {
            r.pod_set: {index[n]: count for n, count in r.nodes.items()} for r in rows
        }
        counts = {p.name: sum(spreads.get(p.name, {}).values()) for p in gang.pending.workload.pod_sets}
        variant = Variant(flavors={r.pod_set: r.flavor for r in rows}, counts=counts)
        mine = tuple(e for e in answer.evictions if e.beneficiary == gang.uid)
        return Chosen(
            gang=gang,
            variant=variant,
            charge=self._board.charge(gang.pending.workload, variant.flavors, counts),
            spreads=spreads,
            evictions=mine,
            bound=bool(mine),
        )

    def _overdrawn(self, moved: Sequence[Chosen]) -> bool:
        """Whether the answer puts more on a node than is free there: then it is not to be trusted."""
        sheets: list[Matrix] = [sheet.free for sheet in self._board.sheets()]
        for chosen in moved:
            free = sheets[-1:] if chosen.bound else sheets
            for node, row in self._board.rows(chosen.gang.pending.workload, chosen.spreads):
                if any(bool(((sheet[node] < 0) & (row > 0)).any()) for sheet in free):
                    return True
        return False

"""Asking the exact solver about contested gangs (DESIGN 3.4, the promise).

Contested is a gang that greedy could not place and that no bound excludes. Without a solver, or without an
answer in time, such a gang waits as deferred, never as lacking capacity.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from queuer.domain.quota import Charge
from queuer.domain.reasons import Deferral
from queuer.solver.adoption import Adoption
from queuer.solver.best import at_best
from queuer.solver.board import Board
from queuer.solver.contested import (
    Arrangement,
    ExactSolver,
    Proof,
    Question,
    Settled,
    Standing,
    Unknown,
    Variant,
)
from queuer.solver.greedy import Greedy
from queuer.solver.layouts import Layouts
from queuer.solver.limits import limits
from queuer.solver.order import Gang
from queuer.solver.outcome import Chosen, assignments
from queuer.solver.prices import Prices
from queuer.solver.problem import Bond, Budget
from queuer.solver.victims import Reach

MOST_SETTLED = 64
"""Gangs settled in one cycle up to which the exact solver is asked at all."""
WORTH = 1e-4
"""Deterministic time for each node and gang that must be left for a model of all that is settled: what it costs to
build is counted by the model itself, but a large one is not solved in the rest either.
"""
QUESTIONS = 12
"""Questions asked in one cycle, those about places alone aside."""
SMALL_MODEL = 2_000
"""Nodes times gangs up to which the model of single nodes is asked, which looks at how gangs land, too."""


class Contest:
    """The exact solver in one decision: its questions and its budget.

    Deterministic time by what it was spent on: `questions`, `layouts`, `improvement` (see `Passes`).
    """

    def __init__(
        self,
        greedy: Greedy,
        solver: ExactSolver | None,
        *,
        seed: int,
        budget: Budget,
        bonds: Mapping[str, Bond],
        prices: deque[Prices],
        late: Callable[[], Sequence[Chosen]],
        crosses: Callable[[Chosen], bool],
    ) -> None:
        """`prices`: see `Layouts`; `late`: the gangs that could not land as things are; `crosses`: see `Pinner`."""
        self._greedy = greedy
        self._board: Board = greedy.board
        self._solver = solver
        self._seed = seed
        self.questions = self.layouts = self.improvement = 0.0
        self._budget = budget.deterministic
        self._share = budget.deterministic / 4
        self._bonds = bonds
        self._asked = 0
        self._prey = greedy.prey
        self._late = late
        self._adoption = Adoption(greedy, late=late, crosses=crosses)
        self._layouts = None
        if solver is not None:
            self._layouts = Layouts(greedy, solver, seed=seed, share=self._share, prices=prices)
        self.at_best = False

    @property
    def spent(self) -> float:
        """Deterministic time."""
        return self.questions + self.layouts + self.improvement

    @property
    def _left(self) -> float:
        return self._budget - self.spent

    def settle(self, gang: Gang, variants: Sequence[Variant], *, evict: bool) -> Chosen | Proof | Deferral:
        """An arrangement in which the gang starts (or, with `evict`, is bound), adopted; a proof; or why there is
        neither.
        """
        if self._solver is None:
            return Deferral.TIME
        joint, unasked = evict and any(map(self.opens, self._reaches(gang, variants))), self.unasked()
        if unasked is not None or not (joint or self._small()):
            found = self._in_place(gang, variants, evict=evict)
            # With victims as they are, nothing is said about its own.
            return unasked if joint and unasked is not None and isinstance(found, Proof) else found
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
            blocked=self._crowded((*self._gangs(), gang)),
            reserved=limits(self._greedy, gang, self._charges(gang, variants), bound=evict),
        )
        answer = self._solver.settle(question)
        self.questions += answer.spent
        if isinstance(answer, Proof):
            answer, question = self._displacing(answer, gang, question)
        if isinstance(answer, Arrangement):
            return self._adoption.settle(answer, gang, evict=evict)
        return self._proof(answer, question)

    def _displacing(
        self, proof: Proof, gang: Gang, question: Question
    ) -> tuple[Arrangement | Proof | Unknown, Question]:
        """The answer where others may be moved onto reservations that they outrank, as the gang does, too: only where
        there is no other, as these are lost then.
        """
        charges = self._charges(gang, question.variants)
        reserved = limits(self._greedy, gang, charges, bound=question.evict, displacing=True)
        if self._solver is None or not any(one.displacers for one in reserved):
            return proof, question
        if self._left <= self._worth():
            return Unknown(cause=Deferral.TIME), question
        again = replace(question, reserved=reserved, budget=min(self._left, self._share))
        answer = self._solver.settle(again)
        self.questions += answer.spent
        return answer, again

    def _proof(self, answer: Proof | Unknown, question: Question) -> Proof | Deferral:
        """The proof, if it is one: where nodes were closed only so that others land there, only with these open."""
        if isinstance(answer, Unknown):
            return answer.cause
        if not question.blocked or self._solver is None:
            return answer
        if self._left <= self._worth():
            return Deferral.TIME
        again = self._solver.settle(replace(question, blocked={}, budget=min(self._left, self._share)))
        self.questions += again.spent
        if isinstance(again, Arrangement):
            return Deferral.LANDING
        return again if isinstance(again, Proof) else again.cause

    def _reaches(self, gang: Gang, variants: Sequence[Variant]) -> list[Reach]:
        return [self._prey.reach(gang.pending, charge) for charge in self._charges(gang, variants)]

    def opens(self, reach: Reach) -> bool:
        """See `outcome.Arbiter`."""
        return self._prey.anybody(reach) or (self.unasked() is None and self._prey.has_rights(reach))

    def _charges(self, gang: Gang, variants: Sequence[Variant]) -> list[Charge]:
        return [self._board.charge(gang.pending.workload, v.flavors, v.counts) for v in variants]

    def _gangs(self) -> list[Gang]:
        """Whoever is settled."""
        return [c.gang for c in self._greedy.chosen.values()]

    def _small(self) -> bool:
        return len(self._board.frame.names) * (len(self._greedy.chosen) + 1) <= SMALL_MODEL

    def _in_place(self, gang: Gang, variants: Sequence[Variant], *, evict: bool) -> Chosen | Proof | Deferral:
        """The same, with the victims as they are, for clusters of any size."""
        if self._layouts is None:
            return Deferral.TIME
        answer, variant = self._layouts.settle(gang, variants, evict=evict, budget=self._left)
        self.layouts += answer.spent
        if isinstance(answer, Unknown):
            return answer.cause
        if isinstance(answer, Proof):
            # Beside gangs that keep off nodes only so that others land, nothing is proven.
            return Deferral.LANDING if self._greedy.kept_apart else answer
        assert variant is not None
        return self._adoption.lay(answer, gang, variant, evict=evict)

    def improve(self, most: float) -> Arrangement | Unknown | None:
        """A better arrangement of all that is settled, not adopted yet; None = there was nothing to ask. `most`:
        deterministic time.
        """
        chosen, late = self._greedy.chosen, bool(self._late())
        worth = late or len(chosen) > 1 or any(c.evictions for c in chosen.values())
        if self._solver is None or self.unasked() is not None or not worth:
            return None
        self.at_best = not late and at_best(self._board, chosen.values())
        if self.at_best:
            return None
        budget = min(self._left, self._share, most) - self._worth()
        if budget <= 0:
            return None
        answer = self._solver.improve(
            snapshot=self._board.snapshot,
            now=self._board.time,
            seed=self._seed,
            settled=self._settled(),
            standing=self._standing(),
            budget=budget,
            reserved=limits(self._greedy),
            clashes=self._adoption.clashes,
        )
        self.improvement += answer.spent
        return answer

    def adopt(self, answer: Arrangement) -> bool:
        """Take an improvement over; whether it was sound."""
        return self._adoption.improve(answer)

    def asks_readily(self) -> bool:
        """See `outcome.Arbiter`."""
        return self.unasked() is None and self._small()

    def unasked(self) -> Deferral | None:
        """Why no question about all that is settled can be asked; None = it can."""
        worth = self._worth()
        if len(self._greedy.chosen) > MOST_SETTLED or (self._solver is not None and worth >= self._budget):
            return Deferral.SIZE
        out_of_time = self._solver is None or self._asked >= QUESTIONS or self._left <= worth
        return Deferral.TIME if out_of_time else None

    def _worth(self) -> float:
        """What must be left for a model of all that is settled."""
        return WORTH * len(self._board.frame.names) * (len(self._greedy.chosen) + 1)

    def _settled(self) -> tuple[Settled, ...]:
        return tuple(
            Settled(
                pending=c.gang.pending,
                variant=c.variant,
                assignments=assignments(self._board, c),
                bound=c.bound,
                victims=c.evictions,
            )
            for c in self._greedy.in_turn(self._greedy.chosen.values())
        )

    def _standing(self) -> tuple[Standing, ...]:
        """Bonds of earlier cycles, and who awaits pods of one."""
        gangs = self._board.arrays.offers.gangs
        bonds = (
            Standing(
                pending=gangs[bond.uid].pending,
                assignments=bond.assignments,
                victims=tuple(v for v in bond.victims if v in self._board.holds),
            )
            for bond in self._bonds.values()
        )
        awaiting = (
            Standing(pending=one.gang.pending, assignments=assignments(self._board, one), awaits=True)
            for one in self._greedy.awaiting.values()
        )
        return (*bonds, *awaiting)

    def _crowded(self, gangs: Iterable[Gang]) -> dict[str, frozenset[str]]:
        """Nodes that gangs keep off so that others land there, by uid."""
        return {gang.uid: nodes for gang in gangs if (nodes := self._greedy.keeps_off(gang.uid))}

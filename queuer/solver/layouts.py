"""Contested gangs that may evict nobody: places for them, or proofs that serve other gangs too.

What has no place once today's victims have gone cannot start now either. While nobody else leaves, such a proof holds
for the rest of the cycle, and for every gang that asks for as much or more in a domain no wider. Prices that proved it
are tried first when more leave, and for other gangs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from queuer.domain.reasons import Deferral
from queuer.solver.board import Board
from queuer.solver.contested import ExactSolver, Laid, Layout, Places, Proof, Unknown, Variant
from queuer.solver.cycle import Cycle
from queuer.solver.floor import key_of
from queuer.solver.frame import Mask, Matrix
from queuer.solver.kept import Kept
from queuer.solver.market import Market
from queuer.solver.order import Gang
from queuer.solver.outcome import Chosen
from queuer.solver.prices import Prices

LOOK = 4e-9
"""Deterministic time that it is taken to cost to look at one node for what a pod set pays there."""

PARTS = 16
"""Part of its time that a question has at least, after others have used up theirs."""
VAIN = 4
"""Questions in a row that use up even that before no more places are looked for: prices alone are asked for then."""


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """Gangs that placement cannot tell apart, by one of them. `levels`: that of its domain first (-1 = anywhere), then
    the wider ones inside a domain of which any of its domains lies. `pods`: how many, by who is open to them, what
    keeps them apart, and the amounts that one asks for.
    """

    gang: Gang
    variant: Variant
    levels: tuple[int, ...]
    pods: Mapping[tuple[int, object, tuple[int, ...]], int]

    def within(self, other: Form) -> bool:
        """Whether wherever the other has a place, this one would have one instead of it."""
        if self.levels[0] not in other.levels:
            return False
        if len(self.pods) > 1:
            return all(other.pods.get(pod, 0) >= n for pod, n in self.pods.items())
        ((open_, apart, amounts), count) = next(iter(self.pods.items()))
        there = 0
        for (where, how, larger), n in other.pods.items():
            if (where, how) == (open_, apart):
                times = min((b // a for a, b in zip(amounts, larger, strict=True) if a), default=1)
                there += n * (times if apart is None else min(times, 1))
        return there >= count


class Layouts:
    """The exact solver's answers about places in one cycle, and what they prove for other gangs."""

    def __init__(
        self, cycle: Cycle, solver: ExactSolver, *, seed: int, share: float, prices: deque[Prices]
    ) -> None:
        """`share`: deterministic time for one question at most. `prices`: that proved something on these nodes before,
        the last first; they are checked wherever they are tried, and added to.
        """
        self._cycle = cycle
        self._board = cycle.board
        self._solver = solver
        self._seed = seed
        self._share, self._least = share, share / PARTS
        self._vain = 0
        self._forms: dict[object, Form] = {}
        self._nowhere: list[Form] = []
        self._not_now: list[Form] = []
        self._not_beside_started: list[Form] = []
        self._open: dict[object, Deferral] = {}  # asked about in vain, and why
        self._version = self._lifts = -1
        self._leaving: set[str] = set()
        self._settled: set[str] = set()
        self._laid_out = LaidOut(cycle)
        self._prices = prices
        self._left = 0.0

    def settle(
        self, gang: Gang, variants: Sequence[Variant], *, evict: bool, budget: float
    ) -> tuple[Places | Proof | Unknown, Variant | None]:
        """Places with the gang started (or, with `evict`, bound) at this variant; else a proof, else nothing. Without
        `budget` what is proven already is all that is said.
        """
        self._left, cause = budget, None
        self._follow()
        for variant in variants:
            form = self.form(gang, variant)
            if self._has_none(form):
                continue
            key = (self._cycle.key(gang, variant), evict)
            if key in self._open:
                cause = self._open[key]
                continue
            if not evict and self._cannot_start(form, gang):
                continue
            answer = self._ask(form, gang, starts=not evict)
            if isinstance(answer, Places):
                return replace(answer, spent=budget - self._left), variant
            if isinstance(answer, Unknown):
                cause = self._open[key] = answer.cause
        spent = budget - self._left
        if cause is not None:
            return Unknown(spent=spent, cause=cause), None
        return Proof(spent=spent), None

    # Proofs

    def _follow(self) -> None:
        """Proofs hold while nobody else leaves and nothing that is settled is taken back."""
        if self._version == self._board.version:
            return
        leaving, settled = self._board.leaving, self._cycle.chosen
        if self._lifts == self._cycle.lifts:  # so both have only grown
            taken_back, more = False, len(leaving) > len(self._leaving)
        else:
            taken_back, more = not self._settled <= settled.keys(), not leaving <= self._leaving
            self._leaving, self._settled = set(), set()
        if taken_back or more:
            self._nowhere.clear()
            self._not_now.clear()
            self._open.clear()
        if taken_back:
            self._not_beside_started.clear()
        if len(leaving) > len(self._leaving):
            self._leaving = set(leaving)
        self._settled.update(one.gang.uid for one in self._cycle.settled_since(len(self._settled)))
        self._version, self._lifts = self._board.version, self._cycle.lifts

    def _has_none(self, form: Form) -> bool:
        """Whether it is proven that it has no place once today's victims have gone."""
        if _covered(form, self._nowhere):
            return True
        if self._left <= 0 or not self._too_dear(form, starts=False, started_only=False):
            return False
        self._nowhere.append(form)
        return True

    def _cannot_start(self, form: Form, gang: Gang) -> bool:
        """Whether it is proven that it cannot start now. What is free now does not depend on who leaves, so a proof
        that looks at nothing but what has started holds for the rest of the cycle.
        """
        if _covered(form, self._not_now) or _covered(form, self._not_beside_started):
            return True
        if self._left <= 0:
            return False
        if not self._too_dear(form, starts=True, started_only=True):
            if self._nobody_bound and self._cycle.closed(gang) is None:
                return False  # the question to come is this one
            question = self._question(self._laid(form), started_only=True, found=False)
            if not isinstance(self._answer(question), Proof):
                return False
        self._not_beside_started.append(form)
        return True

    def _too_dear(self, form: Form, *, starts: bool, started_only: bool) -> bool:
        """Whether prices that are known prove that there is no place."""
        asked, before = self._laid(form, starts=starts), self._laid_out.looked
        found = next(
            (p for p in self._prices if self._laid_out.excludes(p, asked, started_only=started_only)), None
        )
        self._left -= LOOK * (self._laid_out.looked - before)
        if found is not None:
            self._used(found)
        return found is not None

    def _used(self, prices: Prices) -> None:
        """The last that proved something comes first."""
        if prices in self._prices:
            self._prices.remove(prices)
        self._prices.appendleft(prices)

    @property
    def _nobody_bound(self) -> bool:
        return self._board.later is self._board.now

    # Forms

    def form(self, gang: Gang, variant: Variant) -> Form:
        """The form of a gang."""
        key = _key(gang, variant)
        if key not in self._forms:
            frame, workload = self._board.frame, gang.pending.workload
            pods: dict[tuple[int, object, tuple[int, ...]], int] = {}
            usable = np.zeros(len(frame.names), dtype=bool)
            for pod_set in workload.pod_sets:
                if variant.counts[pod_set.name]:
                    own = (pod_set.name, pod_set.required, pod_set.exclusive_host)
                    apart = own if pod_set.exclusive_host or pod_set.required is not None else None
                    open_ = frame.open_to(pod_set, variant.flavors[pod_set.name])
                    usable |= open_
                    pod = (id(open_), apart, tuple(frame.row(pod_set.requests).tolist()))
                    pods[pod] = pods.get(pod, 0) + variant.counts[pod_set.name]
            single = sum(variant.counts.values()) == 1
            levels = self._levels(workload.required, usable, single=single)
            self._forms[key] = Form(gang, variant, levels, pods)
        return self._forms[key]

    def _levels(self, required: str | None, usable: Mask, *, single: bool) -> tuple[int, ...]:
        frame = self._board.frame
        if required is None:
            return (-1,)
        level = frame.snapshot.topology.find(required)
        if level is None:  # fits nowhere, and tells nothing about others
            return (len(frame.domains),)
        has = frame.domains[level] >= 0
        if single and not np.any(usable & ~has):  # one pod is in one domain wherever it is
            return (-1,)
        wider = [w for w in range(level) if frame.nested(usable, level, w)]
        return (level, *wider, -1)

    # Questions

    def _ask(self, form: Form, gang: Gang, *, starts: bool) -> Places | Proof | Unknown:
        """About this gang as it is. A proof is kept where no node is closed to it."""
        if self._left <= 0:
            return Unknown()
        closed = self._cycle.closed(gang)
        asked = Laid(
            form=self._cycle.key(gang, form.variant),
            workload=gang.pending.workload,
            variant=form.variant,
            closed=closed,
            starts=starts,
        )
        found = self._vain < VAIN
        answer = self._answer(self._question(asked, started_only=False, found=found))
        if isinstance(answer, Proof) and closed is None:
            now = self._not_beside_started if self._nobody_bound else self._not_now
            proven = now if starts else self._nowhere
            proven[:] = [*(known for known in proven if not form.within(known)), form]
        return answer

    def _answer(self, question: Layout) -> Places | Proof | Unknown:
        answer = self._solver.lay(question)
        self._left -= answer.spent
        late = answer.spent >= question.budget
        if question.found:
            self._vain = self._vain + 1 if late and self._share == self._least else 0
        if late:
            self._share = max(self._share / 2, self._least)  # who comes later shall have time, too
        if isinstance(answer, Proof) and answer.prices is not None:
            self._used(answer.prices)
        return answer

    def _question(self, asked: Laid, *, started_only: bool, found: bool) -> Layout:
        now, later = self._laid_out.free(started_only=started_only)
        return Layout(
            frame=self._board.frame,
            now=now,
            later=later,
            settled=tuple(self._laid_out.settled(started_only=started_only)),
            asked=asked,
            found=found,
            seed=self._seed,
            budget=min(self._left, self._share),
        )

    @staticmethod
    def _laid(form: Form, *, starts: bool = True) -> Laid:
        """Any gang of the form, no node closed to it."""
        workload = form.gang.pending.workload
        key = _key(form.gang, form.variant)
        return Laid(form=key, workload=workload, variant=form.variant, closed=None, starts=starts)


class LaidOut:
    """What a cycle has settled, as parts of questions, and the nodes with these places open. `looked`: see `Market`."""

    def __init__(self, cycle: Cycle) -> None:
        self.looked = 0
        self._cycle = cycle
        self._board: Board = cycle.board
        self._known: dict[str, tuple[Chosen, Laid]] = {}
        self._listed = Kept[list[Laid]](lambda: self._board.version)
        # Settled gangs take no more than what is open in their places.
        self._opened = Kept[tuple[Matrix, Matrix]](lambda: self._board.ground)
        self._markets = Kept[Market](lambda: self._board.ground)

    def settled(self, *, started_only: bool) -> list[Laid]:
        """All settled gangs, or those that start."""

        def listed() -> list[Laid]:
            everyone = [self._laid(one) for one in self._cycle.chosen.values()]
            return [one for one in everyone if one.starts or not started_only]

        return self._listed.of(started_only, listed)

    def _laid(self, one: Chosen) -> Laid:
        known = self._known.get(one.gang.uid)
        if known is None or known[0] is not one:
            laid = Laid(
                form=self._cycle.key(one.gang, one.variant),
                workload=one.gang.pending.workload,
                variant=one.variant,
                closed=self._cycle.closed(one.gang),
                starts=not one.bound,
                spreads=one.spreads,
            )
            known = self._known[one.gang.uid] = (one, laid)
        return known[1]

    def free(self, *, started_only: bool) -> tuple[Matrix, Matrix]:
        """What is free now, and once today's victims have gone (N x R each); `started_only`: now, twice."""

        def opened() -> tuple[Matrix, Matrix]:
            now, later = self._cycle.opened()
            return (now, now) if started_only else (now, later)

        return self._opened.of(started_only, opened)

    def excludes(self, prices: Prices, asked: Laid, *, started_only: bool) -> bool:
        """See `Market.excludes`."""
        market = self._markets.of(
            started_only, lambda: Market(self._board.frame, *self.free(started_only=started_only))
        )
        before = market.looked
        found = market.excludes(prices, self.settled(started_only=started_only), asked)
        self.looked += market.looked - before
        return found


def _covered(form: Form, proven: Sequence[Form]) -> bool:
    return any(known.within(form) for known in proven)


def _key(gang: Gang, variant: Variant) -> object:
    """The form of a gang, the nodes that it keeps off aside: what has no place without them has none with them."""
    return key_of(gang.pending.workload, variant, form=gang.shape.form, avoid=frozenset())

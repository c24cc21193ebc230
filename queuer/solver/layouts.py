"""Contested gangs that may evict nobody: places for them, or proofs that serve all harder ones too.

What has no place once today's victims have gone cannot start now either. While nobody else leaves, such a proof holds
for the rest of the cycle, and for every gang that asks for as much or more in a domain no wider. When more leave, the
easiest forms that had no place are asked about again, all in one question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from queuer.solver.contested import Laid, Layout, Places, Proof, Rearranger, Unknown, Variant
from queuer.solver.cycle import Cycle
from queuer.solver.floor import key_of
from queuer.solver.frame import Mask
from queuer.solver.order import Gang

RETRIES = 2
"""Forms that may have got a place before all proofs are given up when more leave."""


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

    def __init__(self, cycle: Cycle, solver: Rearranger, *, seed: int, share: float) -> None:
        """`share`: deterministic time for one question at most."""
        self._cycle = cycle
        self._board = cycle.board
        self._solver = solver
        self._seed = seed
        self._share = share
        self._forms: dict[object, Form] = {}
        self._nowhere: list[Form] = []
        self._not_now: list[Form] = []
        self._not_beside_started: list[Form] = []
        self._leaving: frozenset[str] = frozenset()
        self._settled: frozenset[str] = frozenset()
        self._question: tuple[int, Layout] | None = None
        self._left = 0.0

    def settle(
        self, gang: Gang, variants: Sequence[Variant], *, evict: bool, budget: float
    ) -> tuple[Places | Proof | Unknown, Variant | None]:
        """Places with the gang started (or, with `evict`, bound) at this variant; else a proof, else nothing."""
        self._left, proven = budget, True
        self._follow()
        for variant in variants:
            form = self.form(gang, variant)
            if _covered(form, self._nowhere) or (not evict and self._cannot_start(form)):
                continue
            answer = self._ask([form], gang=gang, starts=not evict)
            if isinstance(answer, Places):
                return Places(spreads=answer.spreads, asked=0, spent=budget - self._left), variant
            proven &= isinstance(answer, Proof)
        spent = budget - self._left
        if not proven:
            return Unknown(spent=spent), None
        return Proof(argument="no arrangement with today's victims", spent=spent), None

    # Proofs

    def _follow(self) -> None:
        """Proofs hold while nobody else leaves and nothing that is settled is taken back."""
        leaving, settled = frozenset(self._board.leaving), frozenset(self._cycle.chosen)
        taken_back = not self._settled <= settled
        same = leaving <= self._leaving and not taken_back
        self._leaving, self._settled = leaving, settled
        if same:
            return
        self._not_now.clear()
        if taken_back:
            self._not_beside_started.clear()
        before, self._nowhere = self._nowhere, []
        for _ in range(RETRIES):
            if not before:
                break
            answer = self._ask(before)
            if not isinstance(answer, Places):
                break
            del before[answer.asked]

    def _cannot_start(self, form: Form) -> bool:
        """Whether it is proven that it cannot start now. What is free now does not depend on who leaves, so a proof
        that looks at nothing but what has started holds for the rest of the cycle.
        """
        if _covered(form, self._not_now) or _covered(form, self._not_beside_started):
            return True
        if self._left <= 0:
            return False
        question = self._settled_so_far()
        started = tuple(one for one in question.settled if one.starts)
        question = replace(
            question,
            later=question.now,
            settled=started,
            asked=(self._laid(form, starts=True),),
            budget=min(self._left, self._share),
        )
        answer = self._solver.lay(question)
        self._left -= answer.spent
        if isinstance(answer, Proof):
            self._not_beside_started.append(form)
        return isinstance(answer, Proof)

    # Forms

    def form(self, gang: Gang, variant: Variant) -> Form:
        """The form of a gang."""
        key = _key(gang, variant)
        if key not in self._forms:
            frame, workload = self._board.frame, gang.pending.workload
            pods: dict[tuple[int, object, tuple[int, ...]], int] = {}
            for pod_set in workload.pod_sets:
                if variant.counts[pod_set.name]:
                    alone = pod_set.exclusive_host or pod_set.required is not None
                    apart = (pod_set.name, pod_set.required) if alone else None
                    where = id(frame.open_to(pod_set, variant.flavors[pod_set.name]))
                    pod = (where, apart, tuple(frame.row(pod_set.requests).tolist()))
                    pods[pod] = pods.get(pod, 0) + variant.counts[pod_set.name]
            self._forms[key] = Form(gang, variant, self._levels(workload.required), pods)
        return self._forms[key]

    def _levels(self, required: str | None) -> tuple[int, ...]:
        frame = self._board.frame
        if required is None:
            return (-1,)
        level = frame.snapshot.topology.find(required)
        if level is None:  # fits nowhere, and tells nothing about others
            return (len(frame.domains),)
        has = frame.domains[level] >= 0
        wider = [w for w in range(level) if bool(np.all(frame.domains[w][has] >= 0))]
        return (level, *wider, -1)

    # Questions

    def _ask(
        self, forms: Sequence[Form], *, gang: Gang | None = None, starts: bool = False
    ) -> Places | Proof | Unknown:
        """About these forms, none of them started and no node closed to them; or about this gang, as it is. A proof is
        kept.
        """
        if self._left <= 0:
            return Unknown(note="the time was used up")
        closed = None if gang is None else self._cycle.closed(gang)
        asked = tuple(self._laid(form, gang=gang, closed=closed, starts=starts) for form in forms)
        question = replace(
            self._settled_so_far(), asked=asked, found=gang is not None, budget=min(self._left, self._share)
        )
        answer = self._solver.lay(question)
        self._left -= answer.spent
        if isinstance(answer, Proof) and starts and closed is None:
            self._not_now += forms
        elif isinstance(answer, Proof) and closed is None:
            rest = [known for known in self._nowhere if not any(form.within(known) for form in forms)]
            self._nowhere = [*rest, *forms]
        return answer

    @staticmethod
    def _laid(form: Form, *, starts: bool, gang: Gang | None = None, closed: Mask | None = None) -> Laid:
        return Laid(
            form=(_key(form.gang, form.variant), closed is None),
            workload=(gang or form.gang).pending.workload,
            variant=form.variant,
            closed=closed,
            starts=starts,
        )

    def _settled_so_far(self) -> Layout:
        """The question but for what is asked, made once while nothing changes."""
        cycle, board = self._cycle, self._board
        if self._question is not None and self._question[0] == board.version:
            return self._question[1]
        now, later = board.now.free.copy(), board.later.free.copy()
        settled = []
        for one in cycle.chosen.values():
            cycle.spend(later, one, times=-1)
            if not one.bound:
                cycle.spend(now, one, times=-1)
            laid = Laid(
                form=cycle.key(one.gang, one.variant),
                workload=one.gang.pending.workload,
                variant=one.variant,
                closed=cycle.closed(one.gang),
                starts=not one.bound,
                spreads=one.spreads,
            )
            settled.append(laid)
        question = Layout(
            frame=board.frame,
            now=now,
            later=later,
            settled=tuple(settled),
            asked=(),
            found=False,
            seed=self._seed,
            budget=0.0,
        )
        self._question = (board.version, question)
        return question


def _covered(form: Form, proven: Sequence[Form]) -> bool:
    return any(known.within(form) for known in proven)


def _key(gang: Gang, variant: Variant) -> object:
    """The form of a gang, the nodes that it keeps off aside: what has no place without them has none with them."""
    return key_of(gang.pending.workload, variant, form=gang.shape.form, avoid=frozenset())

"""Contested gangs that may evict nobody: places for them, or proofs that serve all harder ones too.

What has no place once today's victims have gone cannot start now either. While nobody else leaves, such a proof holds
for the rest of the cycle, and for every gang that asks for as much or more in a domain no wider. When more leave, the
easiest forms that had no place are asked about again, all in one question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from queuer.domain.quota import Charge
from queuer.solver.contested import Laid, Layout, Places, Proof, Rearranger, Unknown, Variant
from queuer.solver.cycle import Cycle
from queuer.solver.floor import key_of
from queuer.solver.order import Gang

RETRIES = 2
"""Forms that may have got a place before all proofs are given up when more leave."""


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """Gangs that placement cannot tell apart, by one of them. `level`: of the domain, wider first, -1 = anywhere.
    `pods`: how many, by who is open to them and the amounts that one asks for.
    """

    gang: Gang
    variant: Variant
    charge: Charge
    level: int
    pods: Mapping[tuple[object, tuple[int, ...]], int]

    @property
    def size(self) -> tuple[int, int]:
        """Smaller is easier, if they can be compared at all."""
        return (sum(sum(amounts) * n for (_, amounts), n in self.pods.items()), self.level)

    def within(self, other: Form) -> bool:
        """Whether wherever the other has a place, this one would have one instead of it."""
        if self.level > other.level:
            return False
        if len(self.pods) > 1:
            return all(other.pods.get(pod, 0) >= n for pod, n in self.pods.items())
        ((open_, amounts), count) = next(iter(self.pods.items()))
        there = sum(
            n * min(b // a for a, b in zip(amounts, big, strict=True) if a)
            for (o, big), n in other.pods.items()
            if o == open_
        )
        return there >= count


class Layouts:
    """The exact solver's answers about places in one cycle, and what they prove for other gangs."""

    def __init__(
        self, cycle: Cycle, solver: Rearranger, *, gangs: Sequence[Gang], seed: int, share: float
    ) -> None:
        """`gangs`: all that take part; `share`: deterministic time for one question at most."""
        self._cycle = cycle
        self._board = cycle.board
        self._solver = solver
        self._gangs = gangs
        self._seed = seed
        self._share = share
        self._forms: dict[object, Form] = {}
        self._nowhere: list[Form] = []
        self._not_now: set[object] = set()
        self._placed: set[object] = set()
        self._leaving: frozenset[str] = frozenset()
        self._settled: frozenset[str] = frozenset()
        self._left = 0.0

    def settle(
        self, gang: Gang, variants: Sequence[Variant], *, evict: bool, budget: float
    ) -> tuple[Places | Proof | Unknown, Variant | None]:
        """Places with the gang started (or, with `evict`, bound) at this variant; else a proof, else nothing."""
        self._left, proven = budget, True
        self._follow()
        for variant in variants:
            form = self._form(gang, variant)
            if self._has_none(form) or (not evict and _key(gang, variant) in self._not_now):
                continue
            easier = self._easiest(form)
            if easier is not form and isinstance(self._ask([easier]), Proof):
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
        same = leaving <= self._leaving and self._settled <= settled
        self._leaving, self._settled = leaving, settled
        if same:
            return
        self._not_now.clear()
        self._placed.clear()
        before, self._nowhere = self._nowhere, []
        for _ in range(RETRIES):
            if not before:
                break
            answer = self._ask(before)
            if not isinstance(answer, Places):
                break
            del before[answer.asked]

    def _has_none(self, form: Form) -> bool:
        return any(known.within(form) for known in self._nowhere)

    def _easiest(self, form: Form) -> Form:
        """The easiest contested form whose proof would be one for this, too; itself if there is none."""
        easier = [
            other
            for key, other in self._waiting().items()
            if key not in self._placed and other.within(form) and self._contested(other)
        ]
        return min(easier, key=lambda other: other.size, default=form)

    def _contested(self, form: Form) -> bool:
        """Whether greedy finds no place for a form though no bound excludes one."""
        cycle, board, gang = self._cycle, self._board, form.gang
        rank = cycle.rank(gang, form.charge) if board.horizons else (False, 0)
        floor = board.floor_later(gang.pending.workload, rank=rank)
        if cycle.on(floor, gang, form.variant).spreads is not None:
            return False
        return not cycle.excluded(cycle.pool(gang, form.charge, later=True), gang, form.variant)

    # Forms

    def _waiting(self) -> Mapping[object, Form]:
        if not self._forms:
            for gang in {gang.shape.form: gang for gang in self._gangs}.values():
                for full in gang.shape.variants:
                    variant, _ = self._cycle.resized(gang, full, gang.shape.least)
                    self._form(gang, variant)
        return self._forms

    def _form(self, gang: Gang, variant: Variant) -> Form:
        key = _key(gang, variant)
        if key not in self._forms:
            frame, workload = self._board.frame, gang.pending.workload
            level = None if workload.required is None else frame.snapshot.topology.find(workload.required)
            pods: dict[tuple[object, tuple[int, ...]], int] = {}
            for pod_set in workload.pod_sets:
                if variant.counts[pod_set.name]:
                    alone = pod_set.name if pod_set.exclusive_host or pod_set.required else None
                    terms = (id(frame.open_to(pod_set, variant.flavors[pod_set.name])), alone)
                    pod = (terms, tuple(frame.row(pod_set.requests).tolist()))
                    pods[pod] = pods.get(pod, 0) + variant.counts[pod_set.name]
            charge = self._board.charge(workload, variant.flavors, variant.counts)
            self._forms[key] = Form(gang, variant, charge, -1 if level is None else level, pods)
        return self._forms[key]

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
        asked = tuple(
            Laid(
                workload=(gang or form.gang).pending.workload,
                variant=form.variant,
                closed=closed,
                starts=starts,
            )
            for form in forms
        )
        answer = self._solver.lay(self._question(asked, found=gang is not None))
        self._left -= answer.spent
        keys = [_key(form.gang, form.variant) for form in forms]
        if isinstance(answer, Places):
            self._placed.add(keys[answer.asked])
        elif isinstance(answer, Proof) and starts and closed is None:
            self._not_now.update(keys)
        elif isinstance(answer, Proof) and closed is None:
            rest = [known for known in self._nowhere if not any(form.within(known) for form in forms)]
            self._nowhere = [*rest, *forms]
        return answer

    def _question(self, asked: tuple[Laid, ...], *, found: bool) -> Layout:
        board, chosen = self._board, list(self._cycle.chosen.values())
        now, later = board.now.free.copy(), board.later.free.copy()
        for one in chosen:
            self._cycle.spend(later, one, times=-1)
            if not one.bound:
                self._cycle.spend(now, one, times=-1)
        settled = tuple(
            Laid(
                workload=one.gang.pending.workload,
                variant=one.variant,
                closed=self._cycle.closed(one.gang),
                starts=not one.bound,
                spreads=one.spreads,
            )
            for one in chosen
        )
        return Layout(
            frame=board.frame,
            now=now,
            later=later,
            settled=settled,
            asked=asked,
            found=found,
            seed=self._seed,
            budget=min(self._left, self._share),
        )


def _key(gang: Gang, variant: Variant) -> object:
    """The form of a gang, the nodes that it keeps off aside: what has no place without them has none with them."""
    return key_of(gang.pending.workload, variant, form=gang.shape.form, avoid=frozenset())

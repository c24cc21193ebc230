"""Brute force of evictions for `oracle`: who may go for whom, in which order, and what costs least (DESIGN 3.3)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from queuer.domain.queue import Preempt, QueueTree
from queuer.domain.workload import Workload
from queuer.solver.problem import Admitted, Eviction, EvictionRule, Pending, Snapshot
from queuer.solver.score import eviction_cost, live_capacity
from queuer.solver.verify.quota import Key, Uses, broken_limits
from tests.solver.oracle_needed import Ground, Needing
from tests.solver.oracle_room import Free, Turn, charged, taken

Cost = tuple[int, int, int, int]
Permit = tuple[str, EvictionRule, tuple[Key, ...] | None]
"""The same, with the victim's uid in the first place."""


class Evicting(Needing):
    """`gone`: whose work is lost, as settled at the turn of who evicts. `permitted`: whom a gang could evict at its
    turn, and why.
    """

    def __init__(self, snapshot: Snapshot, now: float) -> None:
        super().__init__(snapshot, now)
        self.gone: tuple[str, ...] = ()
        self.permitted: dict[str, list[Permit]] = {}
        self._trying: Collection[str] = ()
        self.dearest: Cost | None = None
        self.spared = {p.workload.uid: self._displacers(p.displaced_by) for p in snapshot.pending}

    def _displacers(self, uids: frozenset[str]) -> frozenset[str]:
        """These, and for whose sake they were evicted, as far as that leads among what waits or runs."""
        rows: tuple[Pending | Admitted, ...] = (*self.snapshot.pending, *self.snapshot.admitted)
        beyond = uids.union(*(row.displaced_by for row in rows if row.workload.uid in uids))
        return uids if beyond == uids else self._displacers(beyond)

    def possible(self, turn: Turn) -> tuple[str, ...] | None:
        """The least costly victims with which all settled gangs and this one have quota and a place; None = there are
        none such.

        A gang that may evict nobody takes the victims as they are, and neither room nor quota for which somebody must
        go who leaves anyway: it has no eviction to spare.
        """
        if not self.allowed(turn):
            return None
        everyone = [*self.settled, turn]
        if turn.bound:
            self.permitted[turn.workload.uid] = list(self._victims(turn, self.claimed()))
            if self._anybody(turn.workload):
                return self.least(everyone)
            if self._wants_quota_of_vacating(turn):
                return None
            self.modest = turn.workload.uid
        elif not self.has_quota(turn):
            return None
        found = self.arranged(everyone, self.gone)
        self.modest = None
        return self.gone if found else None

    def arranged(self, everyone: Sequence[Turn], gone: Sequence[str]) -> bool:
        """See `Room`; each victim is needed by somebody who may evict it."""
        before, self._trying = self._trying, gone
        found = super().arranged(everyone, gone)
        self._trying = before
        return found

    def _place(self, everyone: Sequence[Turn], at: int, now: Free, later: Free) -> bool:
        found = super()._place(everyone, at, now, later)
        if not found or at < len(everyone) or not self._trying:
            return found
        laid = {t.workload.uid: taken(t.workload, self.place(t.workload.uid)) for t in everyone}
        return self.all_needed(everyone, laid, self._trying)

    def grounds(self, turn: Turn, uid: str) -> list[Ground]:
        """See `Needing`."""
        permits = self.permitted.get(turn.workload.uid, ()) if turn.bound else ()
        return [(turn.workload.queue, rule, keys) for other, rule, keys in permits if other == uid]

    def may_go(self, named: Mapping[str, Ground]) -> bool:
        """See `Needing`; and for less than `dearest`. Who may go last, all others gone, may go last in any order."""
        capacity = live_capacity(self.snapshot.nodes, self.snapshot.flavors)
        gone = [(self.admitted[uid], rule) for uid, (_, rule, _) in named.items()]
        if self.dearest and eviction_cost(gone, capacity=capacity, now=self.now) >= self.dearest:
            return False
        left = dict(named)
        while left:
            before = len(left)
            for uid, (queue, _, keys) in list(left.items()):
                use = self._once_released(without=left.keys() - {uid})
                if self._borrows(use, self.admitted[uid], queue, keys):
                    del left[uid]
            if len(left) == before:
                return False
        return True

    def _wants_quota_of_vacating(self, turn: Turn) -> bool:
        """Whether limits bear it beside all bound gangs only if those go who leave anyway."""
        before, after = self.later(self.gone), self.later(self.gone)
        for use in (before, after):
            for one in self.settled:
                if one.bound:
                    use.count(one.workload.queue, one.asks)
            for uid in self.vacating():
                use.count(self.admitted[uid].workload.queue, charged(self.admitted[uid]))
        after.count(turn.workload.queue, turn.asks)
        return next(broken_limits(before, after, [(turn.workload.queue, turn.asks)]), None) is not None

    def _anybody(self, workload: Workload) -> bool:
        """Whether anyone might go: if all of them leave for others, these might take somebody else."""
        use = self._once_released()
        return any(
            self._borrows(use, self.admitted[uid], workload.queue, keys)
            for uid, _, keys in self.permitted[workload.uid]
        )

    def _victims(self, turn: Turn, use: Uses) -> Iterator[Permit]:
        tree, gang = self.snapshot.tree, turn.workload
        for uid, a in self.admitted.items():
            victim = a.workload
            if not victim.preemptible or a.releasing or uid in self.spared[gang.uid]:
                continue
            lower = victim.priority < gang.priority
            if victim.queue == gang.queue:
                if lower and tree.policy(gang.queue).preempt is not Preempt.NEVER:
                    yield uid, EvictionRule.PREEMPT, None
                continue
            common = _common(tree, gang.queue, victim.queue)
            mine = tree.lineage(gang.queue)
            at = mine[mine.index(common) - 1]
            claims = tuple(self.rows.claims(gang.queue, turn.asks))
            entitled = tree.policy(gang.queue).reclaim and use.entitled(gang.queue, turn.asks, at=at)
            if entitled and any(charged(a).get(claim) for claim in claims):
                yield uid, EvictionRule.RECLAIM, claims
            if lower and tree.policy(common).preempt is Preempt.LOWER_PRIORITY:
                said = self.rows.claims(victim.queue, turn.asks)
                yield uid, EvictionRule.PREEMPT, tuple(said) or None

    def victim_sets(self, everyone: Sequence[Turn]) -> Iterator[tuple[str, ...]]:
        """Every set of victims that may go in some order, the cheapest first."""
        priced = self.costs(everyone)
        yield from sorted((tuple(sorted(gone)) for gone in priced), key=lambda g: (priced[frozenset(g)], g))

    def costs(self, everyone: Sequence[Turn]) -> dict[frozenset[str], Cost]:
        """Every set of victims that may go in some order, with what that costs in the order that costs least."""
        by_uid, left = self._grounds(everyone), [frozenset[str]()]
        capacity = live_capacity(self.snapshot.nodes, self.snapshot.flavors)
        found: dict[frozenset[str], Cost] = {frozenset(): (0, 0, 0, 0)}
        for before in left:  # by size, so that what a set costs is known when its turn comes
            use = self._once_released(without=before)
            for uid in sorted(by_uid.keys() - before):
                a = self.admitted[uid]
                rules = {rule for queue, rule, keys in by_uid[uid] if self._borrows(use, a, queue, keys)}
                for rule in rules:
                    more = eviction_cost([(a, rule)], capacity=capacity, now=self.now)
                    cost = _sum(found[before], more)
                    gone = before | {uid}
                    if gone not in found:
                        left.append(gone)
                    found[gone] = min(found.get(gone, cost), cost)
        return found

    def _grounds(self, everyone: Sequence[Turn]) -> dict[str, list[Ground]]:
        """Who may be evicted, with every permission."""
        found: dict[str, list[Ground]] = {}
        for turn in everyone:
            if turn.bound:
                for uid, rule, keys in self.permitted[turn.workload.uid]:
                    found.setdefault(uid, []).append((turn.workload.queue, rule, keys))
        return found

    def _once_released(self, *, without: Collection[str] = ()) -> Uses:
        """Use once these and all that is releasing have gone."""
        return self.use(without=[*without, *(uid for uid, a in self.admitted.items() if a.releasing)])

    def _borrows(self, use: Uses, victim: Admitted, queue: str, keys: tuple[Key, ...] | None) -> bool:
        if keys is None:
            return True
        common = _common(self.snapshot.tree, queue, victim.workload.queue)
        lineage = self.snapshot.tree.lineage(victim.workload.queue)
        path = lineage[: lineage.index(common)]
        own = charged(victim)
        return any(own.get(k) and all(use.over(p, k) for p in path) for k in keys)

    def least(self, everyone: Sequence[Turn]) -> tuple[str, ...] | None:
        """Victims of least cost with which all these can be arranged."""
        return next((gone for gone in self.victim_sets(everyone) if self.arranged(everyone, gone)), None)

    def cheapest(self) -> Cost:
        """The least eviction cost with which all that is settled can be arranged."""
        gone = self.least(self.settled)
        assert gone is not None
        return self.costs(self.settled)[frozenset(gone)]

    def evictions(self, turn: Turn) -> tuple[Eviction, ...]:
        """Those of the settled victims that are named for this gang, the first that may evict them."""
        earlier = self.settled[: self.settled.index(turn)]
        taken = {uid for one in earlier if one.bound for uid, _, _ in self.permitted[one.workload.uid]}
        mine = {uid: rule for uid, rule, _ in (self.permitted[turn.workload.uid] if turn.bound else ())}
        return tuple(
            Eviction(uid=uid, beneficiary=turn.workload.uid, rule=rule)
            for uid, rule in mine.items()
            if uid in self.gone and uid not in taken
        )


def _sum(left: Cost, right: Cost) -> Cost:
    return (left[0] + right[0], left[1] + right[1], left[2] + right[2], left[3] + right[3])


def _common(tree: QueueTree, left: str, right: str) -> str:
    """The lowest queue on both paths to root."""
    above = set(tree.lineage(right))
    return next(path for path in tree.lineage(left) if path in above)

"""Brute force of DESIGN 3 for small worlds: the tournament of 3.4 with every arrangement and every permitted set of
victims tried, nothing clever and nothing shared with the decision but the records and the verifier's sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations, product

from queuer.domain.queue import Preempt, Sharing
from queuer.domain.workload import PodSet, Workload
from queuer.solver.problem import Admitted, Eviction, EvictionRule, Snapshot
from queuer.solver.score import allowed_flavors, eviction_cost, live_capacity
from queuer.solver.verify.quota import Amounts, Key, Rows, Uses, amounts_of, broken_limits

STARTED, BOUND, WAITING = 2, 1, 0
Cost = tuple[int, int, int, int]
Free = dict[str, dict[str, int]]
Ground = tuple[str, EvictionRule, tuple[Key, ...] | None]
"""A permission to evict: for a gang of which queue, by which rule, where above the guarantee; None = anywhere."""


@dataclass(frozen=True, eq=False)
class Turn:
    """A settled gang: its flavor by pod set, and whether it starts or is bound."""

    workload: Workload
    flavors: Mapping[str, str]
    bound: bool

    @property
    def asks(self) -> Amounts:
        """Amounts by account."""
        return amounts_of(self.workload, {p.name: p.count for p in self.workload.pod_sets}, self.flavors)


@dataclass(eq=False)
class Oracle:
    """The state of the tournament. `order`: uids in turn; `flags`: what became of them. `gone`: whose work is lost, as
    settled at the turn of who evicts.
    """

    snapshot: Snapshot
    now: float
    order: list[str] = field(default_factory=list)
    flags: dict[str, int] = field(default_factory=dict)
    settled: list[Turn] = field(default_factory=list)
    gone: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.rows = Rows(self.snapshot)
        self.admitted = {a.workload.uid: a for a in self.snapshot.admitted}
        self.permitted: dict[str, list[tuple[str, EvictionRule, tuple[Key, ...] | None]]] = {}

    # Use

    def use(self, *, without: Sequence[str] = (), started: bool = True) -> Uses:
        """Use of the admitted, less some, and of what this cycle has started."""
        found = Uses(self.rows)
        for uid, a in self.admitted.items():
            if uid not in without:
                found.count(a.workload.queue, charged(a))
        for turn in self.settled:
            if started and not turn.bound:
                found.count(turn.workload.queue, turn.asks)
        return found

    def claimed(self) -> Uses:
        """Use, and what is held for bound gangs: entitlement and shares are judged by it."""
        found = self.use()
        for turn in self.settled:
            if turn.bound:
                found.count(turn.workload.queue, turn.asks)
        return found

    # The tournament

    def run(self) -> None:
        """Give everyone a turn."""
        lines = {
            leaf: sorted(
                (p.workload for p in self.snapshot.pending if p.workload.queue == leaf),
                key=lambda w: (-w.priority, w.submitted),
            )
            for leaf in self.snapshot.tree.leaves
        }
        while any(lines.values()):
            workload = self._best("root", lines, self.claimed())
            assert workload is not None
            lines[workload.queue].remove(workload)
            self.order.append(workload.uid)
            self.flags[workload.uid] = self._turn(workload)

    def _best(self, path: str, lines: Mapping[str, list[Workload]], use: Uses) -> Workload | None:
        children = self.snapshot.tree.children[path]
        if not children:
            return lines[path][0] if lines[path] else None
        offered = {child: self._best(child, lines, use) for child in children}
        found = [(self._key(path, c, w, use), w) for c, w in offered.items() if w is not None]
        return min(found, key=lambda pair: pair[0])[1] if found else None

    def _key(self, path: str, child: str, workload: Workload, use: Uses) -> tuple[bool, float, int, float]:
        choices = list(self.flavor_choices(workload))
        asks = [amounts_of(workload, {p.name: p.count for p in workload.pod_sets}, c) for c in choices]
        borrows = not any(use.entitled(workload.queue, a, at=child) for a in asks)
        share = 0.0
        if borrows and self.snapshot.tree.policy(path).sharing is Sharing.FAIR and asks:
            share = self._share(child, asks[0], use) + self._past_share(child)
        return (borrows, share, -workload.priority, workload.submitted)

    def _share(self, path: str, asks: Amounts, use: Uses) -> float:
        names = [f.name for f in self.snapshot.flavors] or ["default"]
        shares = []
        for resource in sorted({r for _, r in asks} | self._used_resources()):
            live = self.rows.limit("root", (None, resource))
            by_flavor = any(self.rows.guaranteed(path, (f, resource)) for f in names)
            keys: list[Key] = [(f, resource) for f in names] if by_flavor else [(None, resource)]
            excess = sum(
                max(0, use.used(path, k) + asks.get(k, 0) - self.rows.guaranteed(path, k)) for k in keys
            )
            if live:
                shares.append(excess / live)
        return max(shares, default=0.0) / self.snapshot.tree[path].weight

    def _past_share(self, path: str) -> float:
        past = self.snapshot.past.get(path, {})
        shares = [n / live for r, n in past.items() if (live := self.rows.limit("root", (None, r)))]
        return max(shares, default=0.0) / self.snapshot.tree[path].weight

    def _used_resources(self) -> set[str]:
        return {r for a in self.admitted.values() for p in a.workload.pod_sets for r in p.requests}

    def flavor_choices(self, workload: Workload) -> Iterator[dict[str, str]]:
        """Flavors by pod set in the allowed order, those that have a node for it."""
        names = [p.name for p in workload.pod_sets]
        allowed = [
            [
                f
                for f in allowed_flavors(
                    p, queue=workload.queue, tree=self.snapshot.tree, flavors=self.snapshot.flavors
                )
                if any(self._flavor(s.node.labels) == f for s in self.snapshot.nodes)
            ]
            for p in workload.pod_sets
        ]
        for picks in product(*allowed):
            yield dict(zip(names, picks, strict=True))

    def _flavor(self, labels: Mapping[str, str]) -> str:
        return labels.get("f", "default")

    def _turn(self, workload: Workload) -> int:
        choices = list(self.flavor_choices(workload))
        for bound in (False, True):
            for flavors in choices:
                turn = Turn(workload, flavors, bound)
                gone = self.possible(turn)
                if gone is not None:
                    self.settled.append(turn)
                    self.gone = gone
                    return BOUND if bound else STARTED
        return WAITING

    # One turn

    def possible(self, turn: Turn) -> tuple[str, ...] | None:
        """The least costly victims with which all settled gangs and this one have quota and a place; None = there are
        none such.

        A gang that may evict nobody as things are takes the victims as they are.
        """
        workload, claimed = turn.workload, self.claimed()
        if not workload.preemptible and not claimed.entitled(workload.queue, turn.asks, at=workload.queue):
            return None
        everyone = [*self.settled, turn]
        if turn.bound:
            self.permitted[workload.uid] = list(self._victims(turn, claimed))
            if self._anybody(workload):
                return self.least(everyone)
        elif not self._has_quota(self.use(), turn):
            return None
        return self.gone if self.arranged(everyone, self.gone) else None

    def _anybody(self, workload: Workload) -> bool:
        """Whether anyone who is not leaving already may go after those who are."""
        use = self._once_released()
        for uid in self.gone:
            use.count(self.admitted[uid].workload.queue, charged(self.admitted[uid]), times=-1)
        return any(
            uid not in self.gone and self._borrows(use, self.admitted[uid], workload.queue, keys)
            for uid, _, keys in self.permitted[workload.uid]
        )

    def _has_quota(self, use: Uses, turn: Turn) -> bool:
        after = self.use()
        after.count(turn.workload.queue, turn.asks)
        return next(broken_limits(use, after, [(turn.workload.queue, turn.asks)]), None) is None

    def _victims(self, turn: Turn, use: Uses) -> Iterator[tuple[str, EvictionRule, tuple[Key, ...] | None]]:
        tree, gang = self.snapshot.tree, turn.workload
        for uid, a in self.admitted.items():
            victim = a.workload
            if not victim.preemptible or a.releasing:
                continue
            lower = victim.priority < gang.priority
            if victim.queue == gang.queue:
                if lower and tree.policy(gang.queue).preempt is not Preempt.NEVER:
                    yield uid, EvictionRule.PREEMPT, None
                continue
            common = tree.common_ancestor(gang.queue, victim.queue)
            mine = tree.lineage(gang.queue)
            at = mine[mine.index(common) - 1]
            if tree.policy(gang.queue).reclaim and use.entitled(gang.queue, turn.asks, at=at):
                yield uid, EvictionRule.RECLAIM, tuple(self.rows.claims(gang.queue, turn.asks))
            elif lower and tree.policy(common).preempt is Preempt.LOWER_PRIORITY:
                said = self.rows.claims(victim.queue, turn.asks)
                yield uid, EvictionRule.PREEMPT, tuple(said) or None

    def victim_sets(self, everyone: Sequence[Turn]) -> Iterator[tuple[str, ...]]:
        """Every set of victims that may go in some order, the cheapest first."""
        by_uid = self._grounds(everyone)
        sizes = range(len(by_uid) + 1)
        sets = [gone for size in sizes for gone in combinations(sorted(by_uid), size)]
        priced = ((self.cost(everyone, gone), gone) for gone in sets)
        yield from (gone for _, gone in sorted((cost, gone) for cost, gone in priced if cost is not None))

    def _grounds(self, everyone: Sequence[Turn]) -> dict[str, list[Ground]]:
        """Who may be evicted, with every permission."""
        found: dict[str, list[Ground]] = {}
        for turn in everyone:
            if turn.bound:
                for uid, rule, keys in self.permitted[turn.workload.uid]:
                    found.setdefault(uid, []).append((turn.workload.queue, rule, keys))
        return found

    def _going(self, order: Sequence[str], by_uid: Mapping[str, list[Ground]]) -> list[EvictionRule] | None:
        """By which rule each of these may go at its moment, reclaim where it can be; None = one may not."""
        use, found = self._once_released(), []
        for uid in order:
            a = self.admitted[uid]
            rules = {rule for queue, rule, keys in by_uid[uid] if self._borrows(use, a, queue, keys)}
            if not rules:
                return None
            found.append(EvictionRule.RECLAIM if EvictionRule.RECLAIM in rules else EvictionRule.PREEMPT)
            use.count(a.workload.queue, charged(a), times=-1)
        return found

    def _once_released(self) -> Uses:
        """Use once all that is releasing has gone."""
        return self.use(without=[uid for uid, a in self.admitted.items() if a.releasing])

    def _borrows(self, use: Uses, victim: Admitted, queue: str, keys: tuple[Key, ...] | None) -> bool:
        if keys is None:
            return True
        common = self.snapshot.tree.common_ancestor(queue, victim.workload.queue)
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
        cost = self.cost(self.settled, gone)
        assert cost is not None
        return cost

    def cost(self, everyone: Sequence[Turn], gone: Sequence[str]) -> Cost | None:
        """What it costs at least to evict these, in the order that costs least; None = they may go in no order."""
        capacity = live_capacity(self.snapshot.nodes, self.snapshot.flavors)
        by_uid = self._grounds(everyone)
        mildest = [min(self._rank(rule) for _, rule, _ in by_uid[uid]) for uid in gone]
        best: Cost | None = None
        for order in permutations(gone):
            rules = self._going(order, by_uid)
            if rules is None:
                continue
            victims = [(self.admitted[uid], rule) for uid, rule in zip(order, rules, strict=True)]
            cost = eviction_cost(victims, capacity=capacity, now=self.now)
            best = cost if best is None else min(best, cost)
            if sorted(map(self._rank, rules)) == sorted(mildest):
                break
        return best

    @staticmethod
    def _rank(rule: EvictionRule) -> int:
        return 0 if rule is EvictionRule.RECLAIM else 1

    def evictions(self, turn: Turn) -> tuple[Eviction, ...]:
        """Those of the settled victims that are named for this gang, the first that may evict them."""
        earlier = self.settled[: self.settled.index(turn)]
        taken = {uid for one in earlier if one.bound for uid, _, _ in self.permitted[one.workload.uid]}
        return tuple(
            Eviction(uid=uid, beneficiary=turn.workload.uid, rule=rule)
            for uid, rule, _ in (self.permitted[turn.workload.uid] if turn.bound else ())
            if uid in self.gone and uid not in taken
        )

    # Arrangements

    def arranged(self, everyone: Sequence[Turn], gone: Sequence[str]) -> bool:
        """Whether limits hold and all pods have a node, now for those that start and with victims gone for all."""
        before = self.use(without=gone, started=False)
        after = self.use(without=gone, started=False)
        for turn in everyone:
            after.count(turn.workload.queue, turn.asks)
            if next(broken_limits(before, after, [(turn.workload.queue, turn.asks)]), None) is not None:
                return False
            before.count(turn.workload.queue, turn.asks)
        now, later = self._free(()), self._free(gone)
        return self._place(everyone, 0, now, later)

    def _free(self, gone: Sequence[str]) -> Free:
        free = {
            s.node.name: {r: n - s.used.get(r, 0) for r, n in s.node.allocatable.items()}
            for s in self.snapshot.nodes
        }
        for uid in gone:
            for name, amounts in self.admitted[uid].bound.items():
                for resource, amount in amounts.items():
                    free[name][resource] += amount
        return free

    def _place(self, everyone: Sequence[Turn], at: int, now: Free, later: Free) -> bool:
        if at == len(everyone):
            return True
        turn = everyone[at]
        sheets = [later] if turn.bound else [now, later]
        return any(self._pods(everyone, at, pods, sheets, now, later, {}) for pods in self._scopes(turn))

    def _scopes(self, turn: Turn) -> Iterator[dict[str, list[str]]]:
        """Nodes by pod set, once for each domain of the required level."""
        topology, level = self.snapshot.topology, turn.workload.required
        index = None if level is None else topology.find(level)
        domains = (
            [None]
            if index is None
            else sorted({topology.domain(s.node, index) for s in self.snapshot.nodes} - {None}, key=str)
        )
        for domain in domains:
            yield {
                p.name: [
                    s.node.name
                    for s in self.snapshot.nodes
                    if s.node.accepts(p.terms)
                    and self._flavor(s.node.labels) == turn.flavors[p.name]
                    and (index is None or topology.domain(s.node, index) == domain)
                ]
                for p in turn.workload.pod_sets
            }

    def _pods(
        self,
        everyone: Sequence[Turn],
        at: int,
        scope: Mapping[str, list[str]],
        sheets: Sequence[Free],
        now: Free,
        later: Free,
        done: Mapping[str, int],
    ) -> bool:
        """Pods of one gang one by one, each on a node not before the last one's of its set."""
        turn = everyone[at]
        pod_set = next((p for p in turn.workload.pod_sets if done.get(p.name, 0) < p.count), None)
        if pod_set is None:
            return self._lands(turn, sheets) and self._place(everyone, at + 1, now, later)
        number = done.get(pod_set.name, 0)
        start = done.get(f"{pod_set.name} last", 0)
        for i, name in enumerate(scope[pod_set.name]):
            if i < start or not self._bears(everyone, at, name, pod_set.requests, sheets):
                continue
            self._spend(turn, name, pod_set, sheets)
            rest = {**done, pod_set.name: number + 1, f"{pod_set.name} last": i + pod_set.exclusive_host}
            if self._pods(everyone, at, scope, sheets, now, later, rest):
                return True
            self._spend(turn, name, pod_set, sheets, times=-1)
        return False

    def _bears(
        self,
        everyone: Sequence[Turn],
        at: int,
        name: str,
        requests: Mapping[str, int],
        sheets: Sequence[Free],
    ) -> bool:
        """Whether a node has room for one pod more of the gang whose turn is number `at`."""
        return all(f[name].get(r, 0) >= n for f in sheets for r, n in requests.items() if n)

    def _spend(
        self, turn: Turn, name: str, pod_set: PodSet, sheets: Sequence[Free], *, times: int = 1
    ) -> None:
        """One pod of the gang comes to a node."""
        for f in sheets:
            for r, n in pod_set.requests.items():
                f[name][r] -= n * times

    def _lands(self, turn: Turn, sheets: Sequence[Free]) -> bool:
        """Whether the place just found for the gang is one where it lands; the brute force knows no landing (3.5)."""
        return True


def charged(admitted: Admitted) -> dict[Key, int]:
    """Amounts of an admitted workload by account."""
    return amounts_of(admitted.workload, admitted.counts, admitted.flavors)


def answer(snapshot: Snapshot, *, now: float) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Uids in the order of the tournament, and what must become of each: 2 started, 1 bound, 0 waiting."""
    oracle = Oracle(snapshot, now)
    oracle.run()
    return tuple(oracle.order), tuple(oracle.flags[uid] for uid in oracle.order)

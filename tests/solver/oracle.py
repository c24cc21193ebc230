"""Brute force of DESIGN 3 for small worlds: the tournament of 3.4 with every arrangement and every permitted set of
victims tried, nothing clever and nothing shared with the decision but the records and the verifier's sums.

What fits is asked in `oracle_room`, whom it costs in `oracle_victims`; reservations are beside it, in
`oracle_reservations`.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from itertools import product

from queuer.domain.queue import Sharing
from queuer.domain.workload import Workload
from queuer.solver.problem import Bond, Snapshot
from queuer.solver.score import allowed_flavors
from queuer.solver.verify.quota import Amounts, Key, Uses, amounts_of
from tests.solver.oracle_room import Held, Turn, add, flavor_at, place_of, sized, taken
from tests.solver.oracle_victims import Evicting

STARTED, BOUND, WAITING = 2, 1, 0


class Oracle(Evicting):
    """The tournament. `order`: uids in turn, those that were bound before first; `flags`: what became of them.
    `elsewhere`: bound gangs that start in another place than the one that was held; `lying`: what those take that start
    in theirs.
    """

    def __init__(self, snapshot: Snapshot, now: float, *, elsewhere: Container[str] = ()) -> None:
        super().__init__(snapshot, now)
        self.elsewhere = elsewhere
        self.lying: dict[str, dict[str, dict[str, int]]] = {}
        self.order: list[str] = []
        self.flags: dict[str, int] = {}

    # Bonds of earlier cycles

    def resume(self) -> None:
        """Bonds hold before anyone has a turn; then, in their order, who has a place now starts.

        Whoever starts must leave whole what is held for the others once their own victims have gone: its victims leave
        for nobody any more.
        """
        workloads = {p.workload.uid: p.workload for p in self.snapshot.pending}
        for bond in self.snapshot.bonds:
            if bond.uid in workloads and (held := self._standing(workloads[bond.uid], bond)) is not None:
                self.held[bond.uid] = held
        self.bonded = frozenset(self.held)
        self.flags |= dict.fromkeys(self.held, BOUND)
        before = len(self.held) + 1
        while len(self.held) < before:  # what those who started had held may be what others lacked
            before = len(self.held)
            for uid in list(self.held):
                self._start(uid)
        for uid in [bond.uid for bond in self.snapshot.bonds if bond.uid in self.held and self._over(bond)]:
            del self.held[uid], self.flags[uid]
        self.bonded = frozenset(self.flags)
        self.order += [uid for uid in workloads if uid in self.flags]

    def _over(self, bond: Bond) -> bool:
        """Whether its deadline has passed, which is later where its victims are known to take longer."""
        waits = (self.admitted[v].gone_by or 0.0 for v in self._still(bond))
        return max([bond.deadline, *waits]) <= self.now

    def _still(self, bond: Bond) -> frozenset[str]:
        """Its victims that are still leaving."""
        return frozenset(v for v in bond.victims if v in self.admitted and self.admitted[v].releasing)

    def _standing(self, workload: Workload, bond: Bond) -> Held | None:
        """None = the bond has ended: its deadline has passed while somebody leaves for it, or its place is closed to
        the gang or will not be free.
        """
        place = place_of(bond.assignments)
        flavors = {row.pod_set: row.flavor for row in bond.assignments}
        counts = {name: sum(nodes.values()) for name, nodes in place.items()}
        sizes = {p.name: range(p.min_count or p.count, p.count + 1) for p in workload.pod_sets}
        still = self._still(bond)
        if (still and self._over(bond)) or counts.keys() != sizes.keys():
            return None
        if flavors not in list(self.flavor_choices(workload)) or any(
            counts[n] not in sizes[n] for n in counts
        ):
            return None
        turn = self.turn_of(sized(workload, counts), flavors, bound=True)
        if not (self.as_asked(turn, place) and self._comes_true(taken(workload, place))):
            return None
        return Held(turn, place, still)

    def _comes_true(self, place: Mapping[str, Mapping[str, int]]) -> bool:
        """Whether there is room beside the bonds before it once all who are leaving have gone, other pods aside."""
        free = {s.node.name: dict(s.node.allocatable) for s in self.snapshot.nodes}
        for one in self.admitted.values():
            if not one.releasing:
                add(free, one.bound, times=-1)
        for held in self.held.values():
            add(free, taken(held.turn.workload, held.place), times=-1)
        return all(
            free[n].get(r, 0) >= amount for n, row in place.items() for r, amount in row.items() if amount
        )

    def _start(self, uid: str) -> None:
        before = self.held
        held, self.held = before[uid], {other: one for other, one in before.items() if other != uid}
        turn = self.turn_of(held.turn.workload, held.turn.flavors, bound=False)
        if self.has_quota(turn) and self._has_place(turn, held):
            self.settled.append(turn)
            self.flags[uid] = STARTED
        else:
            self.held = before

    def _has_place(self, turn: Turn, held: Held) -> bool:
        """Its own, while those before it lie where they started, or another if it takes one: it is owed no other."""
        uid = turn.workload.uid
        if uid in self.elsewhere:
            return self.arranged([*self.settled, turn], ())
        sheets, own = (self.free_now(), self.free_later(())), taken(turn.workload, held.place)
        self.lying[uid] = own
        for sheet, place in product(sheets, self.lying.values()):
            add(sheet, place, times=-1)
        asked = [(n, r) for n, amounts in own.items() for r, amount in amounts.items() if amount]
        others = [one for one in self.settled if one.workload.uid not in self.lying]
        found = all(s[n][r] >= 0 for s in sheets for n, r in asked) and self.place_all(others, *sheets)
        if not found:
            del self.lying[uid]
        return found

    def turn_of(self, workload: Workload, flavors: Mapping[str, str], *, bound: bool) -> Turn:
        """A turn of the gang at this size."""
        return Turn(workload, flavors, bound)

    # The tournament

    def run(self) -> None:
        """Give everyone a turn."""
        self.resume()
        while (workload := self.next()) is not None:
            self.order.append(workload.uid)
            self.flags[workload.uid] = self._turn(workload)

    def next(self) -> Workload | None:
        """Whose turn it is."""
        waiting = [p.workload for p in self.snapshot.pending if p.workload.uid not in self.flags]
        waiting.sort(key=lambda w: (-w.priority, w.submitted))
        lines = {leaf: [w for w in waiting if w.queue == leaf] for leaf in self.snapshot.tree.leaves}
        return self._best("root", lines, self.claimed())

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
                if any(flavor_at(s.node.labels) == f for s in self.snapshot.nodes)
            ]
            for p in workload.pod_sets
        ]
        for picks in product(*allowed):
            yield dict(zip(names, picks, strict=True))

    def _turn(self, workload: Workload) -> int:
        choices = list(self.flavor_choices(workload))
        for bound in (False, True):
            for flavors in choices:
                turn = self.turn_of(workload, flavors, bound=bound)
                gone = self.possible(turn)
                if gone is not None:
                    self.settled.append(turn)
                    self.gone = gone
                    return BOUND if bound else STARTED
        return WAITING


def answer(snapshot: Snapshot, *, now: float) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Uids in the order of the tournament, and what must become of each: 2 started, 1 bound, 0 waiting."""
    oracle = Oracle(snapshot, now)
    oracle.run()
    return tuple(oracle.order), tuple(oracle.flags[uid] for uid in oracle.order)

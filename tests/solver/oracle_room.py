"""Brute force of quota and nodes for `oracle`: what is used and free, now and once all who leave have gone, and whether
some arrangement of gangs fits both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from queuer.domain.workload import PodSet, Workload
from queuer.solver.problem import Admitted, Assignment, Snapshot
from queuer.solver.verify.quota import Amounts, Key, QuotaRows, Uses, amounts_of, broken_limits

Free = dict[str, dict[str, int]]
Place = Mapping[str, Mapping[str, int]]
"""Pods by pod set and node."""


@dataclass(frozen=True, eq=False)
class Turn:
    """A settled gang: its flavor by pod set, and whether it starts or is bound. `workload`: at the size that was
    settled.
    """

    workload: Workload
    flavors: Mapping[str, str]
    bound: bool

    @property
    def asks(self) -> Amounts:
        """Amounts by account."""
        return amounts_of(self.workload, {p.name: p.count for p in self.workload.pod_sets}, self.flavors)


@dataclass(frozen=True, eq=False)
class Held:
    """A bond of an earlier cycle that stands. `victims`: those of it that are still leaving."""

    turn: Turn
    place: Place
    victims: frozenset[str]


class Room:
    """What is settled so far, and whether more fits beside it. `held`: bonds that stand and wait, by uid; their
    places are not open. `bonded`: those and who started from such a bond, as quota was held for them. `laid`: pods by
    uid in the arrangement that was found last, as pod set and node. `modest`: who takes no room for which somebody must
    go who leaves anyway.
    """

    def __init__(self, snapshot: Snapshot, now: float) -> None:
        self.snapshot = snapshot
        self.now = now
        self.rows = QuotaRows(snapshot)
        self.admitted = {a.workload.uid: a for a in snapshot.admitted}
        self._asked = {p.workload.uid: p.workload for p in snapshot.pending}
        self.avoid = {p.workload.uid: p.avoid for p in snapshot.pending}
        self.settled: list[Turn] = []
        self.held: dict[str, Held] = {}
        self.bonded = frozenset[str]()
        self.laid: dict[str, list[tuple[str, str]]] = {}
        self.modest: str | None = None

    # Use

    def leaving(self) -> set[str]:
        """Victims of the bonds that wait, who are still there, and who leaves anyway within five minutes."""
        return {uid for one in self.held.values() for uid in one.victims} | self.vacating()

    def vacating(self) -> set[str]:
        """Who leaves anyway within five minutes."""
        by = {uid: a.gone_by for uid, a in self.admitted.items() if a.releasing}
        return {uid for uid, at in by.items() if at is not None and self.now < at <= self.now + 300}

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

    def later(self, gone: Sequence[str], *, started: bool = True) -> Uses:
        """Use once these and the victims of bonds that wait have gone, with what is held for those."""
        found = self.use(without=[*gone, *self.leaving()], started=started)
        for one in self.held.values():
            found.count(one.turn.workload.queue, one.turn.asks)
        return found

    def claimed(self) -> Uses:
        """Use, and what is held for bound gangs: entitlement and shares are judged by it."""
        found = self.use()
        for turn in (*self.settled, *(one.turn for one in self.held.values())):
            if turn.bound:
                found.count(turn.workload.queue, turn.asks)
        return found

    def allowed(self, turn: Turn) -> bool:
        """Whether it may borrow, or need not."""
        workload = turn.workload
        return workload.preemptible or self.claimed().entitled(workload.queue, turn.asks, at=workload.queue)

    def has_quota(self, turn: Turn) -> bool:
        """Whether limits bear it now."""
        before, after = self.use(), self.use()
        after.count(turn.workload.queue, turn.asks)
        return next(broken_limits(before, after, [(turn.workload.queue, turn.asks)]), None) is None

    # Arrangements

    def arranged(self, everyone: Sequence[Turn], gone: Sequence[str]) -> bool:
        """Whether limits hold and all pods have a node, now for those that start and with victims gone for all."""
        before, after = (self.later(gone, started=False) for _ in range(2))
        for turn in everyone:
            after.count(turn.workload.queue, turn.asks)
            broken = broken_limits(before, after, [(turn.workload.queue, turn.asks)])
            if turn.workload.uid not in self.bonded and next(broken, None) is not None:
                return False
            before.count(turn.workload.queue, turn.asks)
        return self.place_all(everyone, self.free_now(), self.free_later(gone))

    def place_all(self, everyone: Sequence[Turn], now: Free, later: Free) -> bool:
        """Whether there are places for all of them on what is free."""
        self.laid = {}
        return self._place(everyone, 0, now, later)

    def free_now(self) -> Free:
        """What no pod takes."""
        return {
            s.node.name: {r: n - s.used.get(r, 0) for r, n in s.node.allocatable.items()}
            for s in self.snapshot.nodes
        }

    def free_later(self, gone: Sequence[str]) -> Free:
        """What is free once these and the victims of bonds that wait have gone, beside the places held for those."""
        free = self.free_now()
        for uid in {*gone, *self.leaving()}:
            add(free, self.admitted[uid].bound)
        for one in self.held.values():
            add(free, taken(one.turn.workload, one.place), times=-1)
        return free

    def _place(self, everyone: Sequence[Turn], at: int, now: Free, later: Free) -> bool:
        if at == len(everyone):
            found = all(self._lands(turn, [later] if turn.bound else [now, later]) for turn in everyone)
            return found and (self.modest is None or self._beside_vacating(self.modest, later))
        turn = everyone[at]
        sheets = [later] if turn.bound else [now, later]
        return any(self._pods(everyone, at, pods, sheets, now, later, {}) for pods in self._scopes(turn))

    def _beside_vacating(self, uid: str, left: Free) -> bool:
        """Whether the nodes of this gang would do for all if those stayed who leave anyway, by what all leave."""
        free = {name: dict(amounts) for name, amounts in left.items()}
        for other in self.vacating():
            add(free, self.admitted[other].bound, times=-1)
        sets = {p.name: p.requests for p in self._asked[uid].pod_sets}
        return all(free[node][r] >= 0 for name, node in self.laid[uid] for r, n in sets[name].items() if n)

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
                    and flavor_at(s.node.labels) == turn.flavors[p.name]
                    and s.node.name not in self.avoid[turn.workload.uid]
                    and (index is None or topology.domain(s.node, index) == domain)
                ]
                for p in turn.workload.pod_sets
            }

    def as_asked(self, turn: Turn, place: Mapping[str, Mapping[str, int]]) -> bool:
        """Whether a place of an earlier cycle is what the gang asks for still: nodes, domains, one pod a host."""
        alone = all(max(place[p.name].values()) == 1 for p in turn.workload.pod_sets if p.exclusive_host)
        return alone and any(_lies_in(place, scope) for scope in self._scopes(turn))

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
            return self._place(everyone, at + 1, now, later)
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
        """One pod of the gang comes to a node, or leaves it again with `times=-1`."""
        for f in sheets:
            add(f, {name: pod_set.requests}, times=-times)
        laid = self.laid.setdefault(turn.workload.uid, [])
        if times > 0:
            laid.append((pod_set.name, name))
        else:
            laid.pop()

    def _lands(self, turn: Turn, sheets: Sequence[Free]) -> bool:
        """Whether its sets find their hosts however they come, all others in place and, where it is bound, all gone
        who are leaving; see `oracle_landing` for how others land beside it.
        """
        place = self.place(turn.workload.uid)
        before = [{n: dict(amounts) for n, amounts in sheet.items()} for sheet in sheets]
        gone = [a.bound for uid, a in self.admitted.items() if a.releasing and uid not in self.leaving()]
        for sheet in before:
            add(sheet, taken(turn.workload, place))
            for rows in gone if turn.bound else ():
                add(sheet, rows)
        scope = next(s for s in self._scopes(turn) if _lies_in(place, s))
        return all(lands(turn.workload, place, sheet, scope) for sheet in before)

    def place(self, uid: str) -> Place:
        """Where the gang lies in the arrangement that was found last."""
        found: dict[str, dict[str, int]] = {}
        for pod_set, node in self.laid.get(uid, ()):
            there = found.setdefault(pod_set, {})
            there[node] = there.get(node, 0) + 1
        return found


def flavor_at(labels: Mapping[str, str]) -> str:
    """The flavor of a node of these worlds."""
    return labels.get("f", "default")


def place_of(rows: Iterable[Assignment]) -> dict[str, Mapping[str, int]]:
    """Pods by pod set and node."""
    return {row.pod_set: row.nodes for row in rows}


def charged(admitted: Admitted) -> dict[Key, int]:
    """Amounts of an admitted workload by account."""
    return amounts_of(admitted.workload, admitted.counts, admitted.flavors)


def sized(workload: Workload, counts: Mapping[str, int]) -> Workload:
    """The gang at a size."""
    sets = tuple(replace(p, count=counts[p.name], min_count=None) for p in workload.pod_sets)
    return replace(workload, pod_sets=sets)


def _lies_in(place: Place, scope: Mapping[str, Sequence[str]]) -> bool:
    return all(set(nodes) <= set(scope[name]) for name, nodes in place.items())


def lands(workload: Workload, place: Place, free: Free, scope: Mapping[str, Sequence[str]]) -> bool:
    """Whether the sets of one gang land in whatever order and wherever they come, each on its own hosts or on all hosts
    of the gang that it may use. `scope`: nodes by pod set.
    """
    if len(place) < 2 or all(len(nodes) == 1 for nodes in place.values()):
        return True
    hosts = {n for nodes in place.values() for n in nodes}
    pins = [(sorted(place[name]), sorted(hosts.intersection(scope[name]))) for name in place]
    return any(_land(workload, dict(zip(place, some, strict=True)), free) for some in product(*pins))


def _land(workload: Workload, pins: Mapping[str, Sequence[str]], free: Free) -> bool:
    sets = {p.name: p for p in workload.pod_sets if p.name in pins}
    hosts = sorted({n for nodes in pins.values() for n in nodes})
    left = {n: dict(free[n]) for n in hosts}
    seen: set[object] = set()

    def stuck(there: dict[tuple[str, str], int]) -> bool:
        key = tuple(sorted(there.items()))
        if key in seen:
            return False
        seen.add(key)
        for name, pod_set in sets.items():
            missing = pod_set.count - sum(c for (s, _), c in there.items() if s == name)
            if not missing:
                continue
            some = False
            for node in pins[name]:
                if pod_set.exclusive_host and there.get((name, node)):
                    continue
                if any(left[node].get(r, 0) < n for r, n in pod_set.requests.items() if n):
                    continue
                some = True
                add(left, {node: pod_set.requests}, times=-1)
                more = {**there, (name, node): there.get((name, node), 0) + 1}
                caught = stuck(more)
                add(left, {node: pod_set.requests})
                if caught:
                    return True
            if not some:
                return True
        return False

    return not stuck({})


def taken(workload: Workload, place: Place) -> dict[str, dict[str, int]]:
    """What a place takes of each node."""
    found: dict[str, dict[str, int]] = {}
    for pod_set in workload.pod_sets:
        for name, count in place.get(pod_set.name, {}).items():
            at = found.setdefault(name, {})
            for r, n in pod_set.requests.items():
                at[r] = at.get(r, 0) + n * count
    return found


def add(free: Free, rows: Mapping[str, Mapping[str, int]], *, times: int = 1) -> None:
    """Give amounts back to nodes; `times=-1` takes them."""
    for name, amounts in rows.items():
        for r, n in amounts.items():
            free[name][r] = free[name].get(r, 0) + n * times

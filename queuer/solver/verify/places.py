"""The verifier's look at nodes: what is planned fits, what is pinned lands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf

from queuer.domain.quantity import Resources
from queuer.solver.problem import Assignment, waits_for
from queuer.solver.verify.case import Case, Rule, Violation
from queuer.solver.verify.landing import Group, certain_slots, fitting


def free_at(case: Case, names: Iterable[str], gone: Iterable[str] = ()) -> dict[str, dict[str, int]]:
    """What no pod takes of these nodes once the admitted workloads `gone` have left, by name; names of no node
    are left out. Negative where foreign pods overfill a node.
    """
    free: dict[str, dict[str, int]] = {}
    for name in names:
        if state := case.states.get(name):
            free[name] = {r: n - state.used.get(r, 0) for r, n in state.node.allocatable.items()}
    for uid in gone:
        for name, amounts in case.running[uid].bound.items() if uid in case.running else ():
            if name in free:
                for resource, amount in amounts.items():
                    free[name][resource] = free[name].get(resource, 0) + amount
    return free


def planned(
    case: Case, places: Mapping[str, Sequence[Assignment]], *, on: Collection[str] | None = None
) -> dict[str, dict[str, int]]:
    """Requests of all assigned pods, by node; `on`: of these nodes only."""
    total: dict[str, dict[str, int]] = {}
    for uid, rows in places.items():
        sets = case.sets(uid)
        for row in rows:
            requests = sets[row.pod_set].requests
            for name, count in row.nodes.items():
                if on is not None and name not in on:
                    continue
                at = total.setdefault(name, {})
                for resource, amount in requests.items():
                    at[resource] = at.get(resource, 0) + amount * count
    return total


def check_capacity(case: Case) -> Iterator[Violation]:
    """Node by node: what starts fits beside every pod; what is held fits once the victims are gone, and what is held
    anew also beside pods that have still to land, on each node of their pin.
    """
    starts = planned(case, case.started)
    yield from _short(starts, starts, free_at(case, starts), when="now")
    places = {**case.bound, **case.started}
    both = planned(case, places)
    touched = both if len(case.new) == len(places) else planned(case, case.new)
    free = free_at(case, touched, case.leaving)
    yield from _short(touched, both, free, when="with the victims gone")
    held = planned(case, {uid: rows for uid, rows in case.bound.items() if uid in case.new})
    for name, amounts in _coming(case, held).items():
        free[name] = _plus(free[name], amounts, times=-1)
        yield from _short({name: held[name]}, both, free, when="with the victims gone and all landed")


def _coming(case: Case, names: Collection[str]) -> Mapping[str, Resources]:
    """What those take of these nodes who have still to land, as if all that fit came to each."""
    free, coming = free_at(case, names, case.leaving), dict[str, Resources]()
    for group in unbound(case) if free else ():
        for name in group.hosts & free.keys() if group.uid not in case.leaving else ():
            number = fitting(group, free[name])
            coming[name] = _plus(coming.get(name, {}), group.requests, times=number)
    return coming


def _short(
    touched: Mapping[str, Resources],
    taken: Mapping[str, Resources],
    free: Mapping[str, Resources],
    *,
    when: str,
) -> Iterator[Violation]:
    for name, amounts in sorted(touched.items()):
        for resource, amount in sorted(amounts.items()):
            have, asked = free[name].get(resource, 0), taken[name].get(resource, 0)
            if amount and asked > have:
                text = f"{name} has {have} {resource} free {when}, {asked} are planned"
                yield Violation(rule=Rule.CAPACITY, uid="", at=name, text=text)


def check_landing(case: Case) -> Iterator[Violation]:
    """Every group of pods finds its slots after the worst choice of those that may come before it."""
    waves = {a.uid: a.wave for a in case.plan.admissions}
    landing = _alike(g for g in unbound(case) if g.uid not in case.leaving)
    going = _alike(g for g in unbound(case) if g.uid in case.leaving)
    starting = _alike(_groups(case, case.started, waves))
    there = _ByHost([*landing, *starting])
    everyone = _ByHost([*landing, *going, *starting])  # a victim's pods may land before they are deleted
    free, alloc = free_at(case, everyone.hosts), _alloc(case, everyone.hosts)
    for group in starting:
        rivals = [g for g in everyone.near(group) if g.wave <= group.wave]
        yield from _judge(group, certain_slots(group, rivals, free, alloc))
    for group in landing:
        near = there.near(group)
        before = [g for g in near if g.wave < 0 and not waits_for(g.turn, group.turn)]
        first = [g for g in near if g.wave == 0]
        rooms = (None, alloc) if first else ()
        sure = [room for room in rooms if certain_slots(group, before, free, room) >= group.count]
        left = (certain_slots(group, [*before, *first], free, room) for room in sure)
        yield from _judge(group, min(left, default=group.count))
    yield from _held(case, there)


def _alloc(case: Case, names: Iterable[str]) -> dict[str, Resources]:
    """What these nodes have in all."""
    return {name: case.states[name].node.allocatable for name in names if name in case.states}


class _ByHost:
    """Groups of pods by the hosts on which they may land."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self._at: dict[str, list[Group]] = {}
        for group in groups:
            for host in group.hosts:
                self._at.setdefault(host, []).append(group)
        self.hosts = self._at.keys()

    def near(self, group: Group) -> list[Group]:
        """Those that may land on a host of the group, itself included."""
        return list({id(g): g for host in sorted(group.hosts) for g in self._at.get(host, ())}.values())


def _held(case: Case, coming: _ByHost) -> Iterator[Violation]:
    """Nothing that lands meanwhile takes the place that a bond holds."""
    groups = {uid: list(_groups(case, {uid: rows}, {uid: inf})) for uid, rows in case.bound.items()}
    hosts = {host for own in groups.values() for group in own for host in group.hosts}
    held = planned(case, case.bound)
    left: dict[str, Resources] = {
        name: _plus(free, held.get(name, {}), times=-1)
        for name, free in free_at(case, hosts, case.leaving | case.releasing).items()
    }
    for uid, own in groups.items():
        mine, new = planned(case, {uid: case.bound[uid]}), uid in case.new
        reach = {host for group in own for host in group.hosts if host in left}
        free = {host: _plus(left[host], mine[host]) if host in mine else left[host] for host in reach}
        whole = new or all(
            free[h].get(r, 0) >= n for h, asked in mine.items() if h in free for r, n in asked.items()
        )
        near = [coming.near(group) for group in own]
        before = [[g for g in there if g.wave < 0] for there in near]
        sure = new or _all_land(own, before, free)  # of a gang that may fail alone no pod set is safe
        for group, there in zip(own, near, strict=True) if whole and sure else ():
            yield from _judge(group, certain_slots(group, [*there, *own], free))


def _all_land(own: Sequence[Group], before: Sequence[Sequence[Group]], free: Mapping[str, Resources]) -> bool:
    """Whether all pod sets of a gang land beside each other and beside those that come before each."""
    return all(
        certain_slots(group, [*there, *own], free) >= group.count
        for group, there in zip(own, before, strict=True)
    )


def _plus(left: Resources, right: Resources, *, times: int = 1) -> dict[str, int]:
    return {r: left.get(r, 0) + times * right.get(r, 0) for r in {*left, *right}}


def _judge(group: Group, found: int) -> Iterator[Violation]:
    if found < group.count:
        text = f"pod set {group.pod_set} may find only {found} of {group.count} places inside its pin"
        yield Violation(rule=Rule.LANDING, uid=group.uid, text=text)


def _groups(
    case: Case, places: Mapping[str, Sequence[Assignment]], waves: Mapping[str, float]
) -> Iterator[Group]:
    for uid, rows in places.items():
        sets = case.sets(uid)
        for row in rows:
            pod_set = sets[row.pod_set]
            yield Group(
                uid=uid,
                pod_set=row.pod_set,
                count=row.count,
                requests=pod_set.requests,
                hosts=case.pin(pod_set, row),
                wave=waves.get(uid, 0),
                exclusive=pod_set.exclusive_host,
            )


def unbound(case: Case) -> Iterator[Group]:
    """Pods of earlier cycles that have still to land."""
    for admitted in case.snapshot.admitted:
        sets = {p.name: p for p in admitted.workload.pod_sets}
        for rest in admitted.unbound:
            if rest.pod_set in sets:
                yield Group(
                    uid=admitted.workload.uid,
                    pod_set=rest.pod_set,
                    count=rest.count,
                    requests=sets[rest.pod_set].requests,
                    hosts=frozenset(rest.hosts),
                    wave=-1,
                    exclusive=sets[rest.pod_set].exclusive_host,
                    turn=admitted.turn,
                )


def _alike(groups: Iterable[Group]) -> list[Group]:
    """Pods of one shape, pin and wave as one group: they take each other's places without harm. Gangs of several sets
    by themselves, as it counts whose a rival is.
    """
    found: dict[tuple[object, ...], list[Group]] = {}
    groups = list(groups)
    sets = Counter(group.uid for group in groups)
    for group in groups:
        own = (group.uid, group.pod_set) if group.exclusive or sets[group.uid] > 1 else ()
        key = (group.hosts, tuple(sorted(group.requests.items())), group.wave, group.turn, own)
        found.setdefault(key, []).append(group)
    return [
        Group(
            uid=alike[0].uid,
            pod_set=alike[0].pod_set,
            count=sum(g.count for g in alike),
            requests=alike[0].requests,
            hosts=alike[0].hosts,
            wave=alike[0].wave,
            exclusive=alike[0].exclusive,
            turn=alike[0].turn,
        )
        for alike in found.values()
    ]

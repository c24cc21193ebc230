"""The verifier's look at nodes: what is planned fits, what is pinned lands, what is reserved stays free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf

from queuer.domain.quantity import Resources
from queuer.solver.problem import Assignment
from queuer.solver.verify_case import Case, Rule, Violation
from queuer.solver.verify_landing import Group, certain_slots


def free_now(case: Case) -> dict[str, dict[str, int]]:
    """What no pod takes, by node; negative where foreign pods overfill a node."""
    return {
        s.node.name: {r: n - s.used.get(r, 0) for r, n in s.node.allocatable.items()}
        for s in case.snapshot.nodes
    }


def free_after(case: Case, gone: Iterable[str]) -> dict[str, dict[str, int]]:
    """`free_now` with all pods of the admitted workloads `gone` away."""
    free, away = free_now(case), set(gone)
    for admitted in case.snapshot.admitted:
        if admitted.workload.uid in away:
            for name, amounts in admitted.bound.items():
                if name in free:
                    for resource, amount in amounts.items():
                        free[name][resource] = free[name].get(resource, 0) + amount
    return free


def planned(case: Case, places: Mapping[str, Sequence[Assignment]]) -> dict[str, dict[str, int]]:
    """Requests of all assigned pods, by node."""
    total: dict[str, dict[str, int]] = {}
    for uid, rows in places.items():
        sets = {p.name: p for p in case.workload(uid).pod_sets}
        for row in rows:
            for name, count in row.nodes.items():
                at = total.setdefault(name, {})
                for resource, amount in sets[row.pod_set].requests.items():
                    at[resource] = at.get(resource, 0) + amount * count
    return total


def check_capacity(case: Case) -> Iterator[Violation]:
    """Node by node: what starts fits beside every pod; what is held fits once the victims are gone."""
    starts = planned(case, case.started)
    yield from _short(starts, starts, free_now(case), when="now")
    touched = planned(case, case.new)
    both = planned(case, {**case.bound, **case.started})
    yield from _short(touched, both, free_after(case, case.leaving), when="with the victims gone")


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
                yield Violation(rule=Rule.CAPACITY, uid="", text=text)


def check_landing(case: Case) -> Iterator[Violation]:
    """Every group of pods finds its slots after the worst choice of those that may come before it."""
    free = free_now(case)
    waves = {a.uid: a.wave for a in case.plan.admissions}
    landing = _alike(_unbound(case))
    starting = _alike(_groups(case, case.started, waves))
    for group in starting:
        rivals = [*landing, *(g for g in starting if g.wave <= group.wave)]
        yield from _judge(group, certain_slots(group, rivals, free))
    first = [g for g in starting if g.wave == 0]
    for group in landing:
        if any(not group.hosts.isdisjoint(g.hosts) for g in first):
            alone = certain_slots(group, landing, free)
            if alone >= group.count:
                yield from _judge(group, certain_slots(group, [*landing, *first], free))
    yield from _held(case, [*landing, *starting], landing)


def _held(case: Case, coming: Sequence[Group], landing: Sequence[Group]) -> Iterator[Violation]:
    """Nothing that lands meanwhile takes the place that a bond holds."""
    left = free_after(case, case.leaving)
    for name, amounts in planned(case, case.bound).items():
        if name in left:
            left[name] = _plus(left[name], amounts, times=-1)
    for uid, rows in case.bound.items():
        free: dict[str, Resources] = dict(left)
        for name, amounts in planned(case, {uid: rows}).items():
            if name in free:
                free[name] = _plus(free[name], amounts)
        own = list(_groups(case, {uid: rows}, {uid: inf}))
        for group in own:
            siblings = [g for g in own if g is not group]
            if uid in case.new or certain_slots(group, [*landing, *siblings], free) >= group.count:
                yield from _judge(group, certain_slots(group, [*coming, *siblings], free))


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
        sets = {p.name: p for p in case.workload(uid).pod_sets}
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


def _unbound(case: Case) -> Iterator[Group]:
    for admitted in case.snapshot.admitted:
        sets = {p.name: p for p in admitted.workload.pod_sets}
        for rest in admitted.unbound:
            if rest.pod_set in sets and admitted.workload.uid not in case.leaving:
                yield Group(
                    uid=admitted.workload.uid,
                    pod_set=rest.pod_set,
                    count=rest.count,
                    requests=sets[rest.pod_set].requests,
                    hosts=frozenset(rest.hosts),
                    wave=-1,
                    exclusive=sets[rest.pod_set].exclusive_host,
                )


def _alike(groups: Iterable[Group]) -> list[Group]:
    """Pods of one shape, pin and wave as one group: they take each other's places without harm."""
    found: dict[tuple[object, ...], list[Group]] = {}
    for group in groups:
        own = (group.uid, group.pod_set) if group.exclusive else ()
        key = (group.hosts, tuple(sorted(group.requests.items())), group.wave, own)
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
        )
        for alike in found.values()
    ]


def check_reservations(case: Case) -> Iterator[Violation]:
    """What starts now and does not end before a reservation leaves its place whole."""
    for reservation in case.plan.reservations:
        if reservation.uid in case.started:
            continue
        ended = {
            a.workload.uid
            for a in case.snapshot.admitted
            if a.releasing or (a.expected_end is not None and a.expected_end <= reservation.start)
        }
        free = free_after(case, ended | case.leaving)
        kept = planned(case, {reservation.uid: reservation.assignments})
        staying = {u: rows for u, rows in case.started.items() if _ends(case, u) > reservation.start}
        for name, amounts in planned(case, staying).items():
            for resource, amount in amounts.items():
                need, have = kept.get(name, {}).get(resource, 0), free[name].get(resource, 0)
                if amount and need and need <= have < need + amount:
                    text = f"{name} keeps {need} {resource} for it, of {have}; {amount} start there now"
                    yield Violation(rule=Rule.RESERVATION, uid=reservation.uid, text=text)


def _ends(case: Case, uid: str) -> float:
    workload = case.workload(uid)
    return case.now + min(
        (t for t in (workload.estimate, workload.max_runtime) if t is not None), default=inf
    )

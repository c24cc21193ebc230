"""Whether pods land whatever kube-scheduler picks inside their pins (DESIGN 3.5): the worst choice.

A group's pods are alike, so alone they always land when the hosts have slots enough. Rivals, which may come
first, can only take slots away; they do most harm when all of them come before the group does. So a group
lands for certain when the slots left after the most harmful placement of its rivals are enough. The harm is
counted exactly where that is cheap and bounded from above elsewhere: an answer "lands" is always right. A rival finds
those in its way that are pinned to one host only if they are of an earlier wave; others it may keep from landing. Where
room that gets free is reckoned with it finds nobody: they may have ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from queuer.domain.quantity import Resources
from queuer.solver.problem import Turn

EXACT_STATES = 400
"""Exact counting up to this many combinations of rivals left, times hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Pods that are alike and may land on any of `hosts`. `wave`: it comes after all lower waves. `turn`: of pods of
    earlier cycles, see `Admitted`.
    """

    uid: str
    pod_set: str
    count: int
    requests: Resources
    hosts: frozenset[str]
    wave: float = 0
    exclusive: bool = False
    turn: Turn | None = None


def slots(free: Resources, requests: Resources) -> int:
    """How many pods of one shape fit into `free`; a pod that asks for nothing fits without end."""
    return max(0, min((free.get(r, 0) // n for r, n in requests.items() if n), default=2**31))


def certain_slots(
    group: Group,
    rivals: Iterable[Group],
    free: Mapping[str, Resources],
    alloc: Mapping[str, Resources] | None = None,
) -> int:
    """A lower bound of the group's slots after the worst choice of its rivals; in small cases close to it.

    `free`: by host, before any of these pods. Hosts outside `free` have no room. `alloc`: what the hosts have in all,
    as whatever else lies there may go before other gangs come; None = that is not reckoned with.
    """
    hosts = sorted(h for h in group.hosts if h in free)
    rivals = [r for r in rivals if r is not group and r.count and not r.hosts.isdisjoint(group.hosts)]
    if not rivals:
        return sum(fitting(group, free[h]) for h in hosts)
    near = _alike(group, rivals)
    left = {
        h: _beside(group, [r for r in rivals if r.hosts == {h}], free[h], (alloc or free)[h]) for h in hosts
    }
    loose = [r for r in near if len(r.hosts) > 1]
    alone = sum(fitting(group, left[h]) for h in hosts)
    if not loose or alone < group.count:
        return alone
    most = [
        _most_there(r, near, free) if alloc is None or r.uid == group.uid else _most_there(r, (), alloc)
        for r in loose
    ]
    bounds = [
        sum(fitting(group, _all_come(loose, [there.get(h, 0) for there in most], left[h])) for h in hosts),
        alone - _most_harm(group, loose, hosts, left),
        alone - sum(r.count * _harm(group, r) for r in loose),
    ]
    if max(bounds) >= group.count or prod(r.count + 1 for r in loose) * len(hosts) > EXACT_STATES:
        return max(bounds)
    return _exact(group, loose, hosts, left, most)


def _most_there(rival: Group, near: Iterable[Group], room: Mapping[str, Resources]) -> dict[str, int]:
    """How many of a rival's pods fit each of its hosts alone, beside those that are there before it comes: where these
    have room together, or nobody knows which of them are.
    """
    before = [r for r in near if len(r.hosts) == 1 and max(r.wave, 0) < rival.wave]
    found: dict[str, int] = {}
    for host in rival.hosts & room.keys():
        left = _minus_all(room[host], [r for r in before if r.hosts == {host}], room[host])
        found[host] = fitting(rival, left if min(left.values(), default=0) >= 0 else room[host])
    return found


def _beside(group: Group, pinned: Iterable[Group], free: Resources, alloc: Resources) -> Resources:
    """What is left of a host after rivals that can go nowhere else; those of other gangs with so much in all."""
    own = [rival for rival in pinned if rival.uid == group.uid]
    left = _minus_all(free, own, free)
    return _minus_all(left, [rival for rival in pinned if rival.uid != group.uid], alloc)


def _minus_all(free: Resources, pinned: Iterable[Group], room: Resources) -> Resources:
    """What is left of a host after rivals that can go nowhere else, but for those that do not fit there with so much
    room.
    """
    count: dict[tuple[object, ...], int] = {}
    shape: dict[tuple[object, ...], Group] = {}
    for rival in pinned:
        asked = tuple(sorted((r, n) for r, n in rival.requests.items() if n))
        key: tuple[object, ...] = (asked, id(rival) if rival.exclusive else None)
        count[key] = count.get(key, 0) + rival.count
        shape[key] = rival
    for key, rival in shape.items():
        most = min(slots(room, rival.requests), 1 if rival.exclusive else count[key])
        free = _minus(free, rival.requests, most)
    return free


def _harm(group: Group, rival: Group) -> int:
    """Slots that one pod of a rival can take at most, wherever it lands."""
    return max((-(-rival.requests.get(r, 0) // n) for r, n in group.requests.items() if n), default=0)


def fitting(group: Group, free: Resources) -> int:
    """How many pods of a group one host with this much free takes."""
    found = slots(free, group.requests)
    return min(found, 1) if group.exclusive else min(found, group.count)


def _alike(group: Group, rivals: Iterable[Group]) -> list[Group]:
    """Rivals of one shape on one host set as one, unless their pods keep off each other; those of the group's own gang
    by themselves.
    """
    merged: dict[tuple[object, ...], int] = {}
    shape: dict[tuple[object, ...], Group] = {}
    for rival in rivals:
        own = (rival.uid, rival.pod_set) if rival.exclusive else ()
        sibling = rival.uid == group.uid
        key = (rival.hosts, tuple(sorted(rival.requests.items())), rival.wave, own, sibling)
        merged[key] = merged.get(key, 0) + rival.count
        shape.setdefault(key, rival)
    return [
        Group(
            uid=g.uid,
            pod_set=g.pod_set,
            count=merged[key],
            requests=g.requests,
            hosts=g.hosts,
            wave=g.wave,
            exclusive=g.exclusive,
        )
        for key, g in shape.items()
    ]


def _minus(free: Resources, requests: Resources, times: int) -> dict[str, int]:
    return {r: n - times * requests.get(r, 0) for r, n in free.items()}


def _all_come(rivals: Sequence[Group], most: Sequence[int], free: Resources) -> Resources:
    """What is left on a host if every rival sends it the most that it can: never less than can happen."""
    left = dict(free)
    for rival, number in zip(rivals, most, strict=True):
        left = _minus(left, rival.requests, number)
    return {r: max(0, n) for r, n in left.items()}


def _most_harm(
    group: Group, rivals: Sequence[Group], hosts: Sequence[str], free: Mapping[str, Resources]
) -> int:
    """An upper bound of the slots that all rivals together can take: each pod as large as the largest of them
    in every resource, spread by the concave hull of each host's loss (a fractional knapsack)."""
    largest: dict[str, int] = {}
    for rival in rivals:
        for resource, amount in rival.requests.items():
            largest[resource] = max(largest.get(resource, 0), amount)
    gains: list[tuple[float, int]] = []
    for host in hosts:
        if any(host in r.hosts for r in rivals):
            gains += _hull(_steps(group, free[host], largest))
    left, harm = sum(r.count for r in rivals), 0.0
    for slope, length in sorted(gains, reverse=True):
        taken = min(left, length)
        harm += slope * taken
        left -= taken
    return int(harm + 1e-6)


def _steps(group: Group, free: Resources, largest: Resources) -> list[tuple[int, int]]:
    """(pods, slots lost) points of one host: the fewest rival pods after which so many slots are gone."""
    have = fitting(group, free)
    points = []
    for left in range(have - 1, -1, -1):
        need = [
            (free.get(r, 0) - (left + 1) * n) // largest[r] + 1
            for r, n in group.requests.items()
            if n and largest.get(r)
        ]
        if not need:
            break
        points.append((max(1, min(need)), have - left))
    return points


def _hull(points: Sequence[tuple[int, int]]) -> list[tuple[float, int]]:
    """Slopes and lengths of the least concave function above the points, from (0, 0)."""
    found: list[tuple[float, int]] = []
    x, y = 0, 0
    while ahead := [(px, py) for px, py in points if px > x and py > y]:
        best = max(ahead, key=lambda p: ((p[1] - y) / (p[0] - x), p[1]))
        found.append(((best[1] - y) / (best[0] - x), best[0] - x))
        x, y = best
    return found


def _exact(
    group: Group,
    rivals: Sequence[Group],
    hosts: Sequence[str],
    free: Mapping[str, Resources],
    most: Sequence[Mapping[str, int]],
) -> int:
    """The slots left after the most harmful placement, host by host over how many rivals still come.

    `free`: beside those who are pinned to one host; `most`: by rival, how many of it each host holds at most.
    """
    best = {tuple(r.count for r in rivals): 0}
    for host in hosts:
        after: dict[tuple[int, ...], int] = {}
        for taken in product(*(range(there.get(host, 0) + 1) for there in most)):
            left: Resources = free[host]
            for rival, number in zip(rivals, taken, strict=True):
                left = _minus(left, rival.requests, number)
            kept = fitting(group, left)
            for coming, total in best.items():
                rest = tuple(c - t for c, t in zip(coming, taken, strict=True))
                if min(rest) >= 0:
                    after[rest] = min(after.get(rest, total + kept), total + kept)
        best = after
    return min(best.values())

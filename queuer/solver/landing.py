"""Whether pods land for certain inside their pins, whatever kube-scheduler picks (DESIGN 3.5).

Pods that are alike land if their hosts have slots enough after the worst that their rivals can do. Lower bounds of what
is left are asked one after the other, the cheapest first: each rival pod destroys as many slots as it ever can; every
rival sends each host all that fits there; at last, where that is a small sum, the worst itself. Rivals that are pinned
to one host are simply taken off it, and if they are of an earlier wave others find them there, unless room that gets
free is reckoned with: by then they may have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from queuer.solver.frame import Mask, Matrix, Need
from queuer.solver.problem import Turn

STATES = 400
"""The worst is looked for up to this many numbers of rivals still to come, times hosts. More would be of no use: the
verifier looks no further.
"""

FEW_SETS = 3
"""Pod sets of a gang up to which hosts are tried for one of them at a time."""

MOST_KNOWN = 20_000_000
"""Bytes of questions whose answers are kept, about."""

LOOK = 8
"""Steps of a search for a place that a look costs whether one set lands."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """Pods of one set of one gang that may land on any of `hosts` (node numbers). `wave`: all lower ones have landed
    before they come. `open`: nodes that they may be given (N), None = no others. `turn`: see `Admitted`.
    """

    uid: str
    count: int
    need: Need
    row: Matrix
    hosts: frozenset[int]
    wave: int = 0
    open: Mask | None = None
    turn: Turn | None = None


Lands = Callable[[Group, Iterable[Group], Matrix, Matrix | None], bool]
"""Answers as `lands` does."""


@dataclass(slots=True, eq=False)
class Effort:
    """Steps that may still be spent on places for gangs of several sets; below zero there are none left. `ask`: who
    answers whether a set lands; None = `lands`.
    """

    left: int
    ask: Lands | None = None


def lands(group: Group, rivals: Iterable[Group], free: Matrix, alloc: Matrix | None = None) -> bool:
    """Whether the group finds its slots after the worst choice of all rivals, which land for certain themselves.

    `free`: before any of them (N x R). `alloc`: what nodes have in all (N x R), up to which other gangs may come into
    room that gets free meanwhile; None = that is not reckoned with.
    """
    return _lands(group, _near(group, rivals), free, alloc)


def _near(group: Group, rivals: Iterable[Group]) -> list[Group]:
    return [r for r in rivals if r is not group and r.count and not r.hosts.isdisjoint(group.hosts)]


def _lands(group: Group, near: Sequence[Group], free: Matrix, alloc: Matrix | None) -> bool:
    hosts = sorted(group.hosts)
    at = {host: i for i, host in enumerate(hosts)}
    fixed = [(at[next(iter(r.hosts))], r) for r in near if len(r.hosts) == 1]
    loose = [r for r in near if len(r.hosts) > 1]
    room = free if alloc is None else alloc
    left = _without(free[hosts], [one for one in fixed if one[1].uid == group.uid], room=free[hosts])
    left = _without(left, [one for one in fixed if one[1].uid != group.uid], room=room[hosts])
    spare = int(np.minimum(group.need.slots(left), group.count).sum()) - group.count
    if spare < 0 or not loose:
        return spare >= 0
    if sum(_harm(group, rival) for rival in loose) <= spare:
        return True
    loose = _alike(group, loose)
    most = np.zeros((len(loose), len(hosts)), dtype=np.int64)
    for number, rival in enumerate(loose):
        shared = [at[h] for h in rival.hosts if h in at]
        if alloc is None or rival.uid == group.uid:
            before = [(i, r) for i, r in fixed if r.wave < rival.wave]
            found = _beside(free[hosts], before)[shared]
        else:
            found = alloc[hosts][shared]  # those of earlier waves may have ended by then, too
        most[number, shared] = np.minimum(rival.need.slots(found), rival.count)
    rows = np.array([rival.row for rival in loose])
    if int(np.minimum(group.need.slots(left - most.T @ rows), group.count).sum()) >= group.count:
        return True
    return _least(group, [rival.count for rival in loose], rows, most, left) >= group.count


class Landings:
    """`lands` and `together` with what was asked before: gangs are tried beside each other over and over, and few of
    them have moved in between.
    """

    def __init__(self) -> None:
        self._known: dict[object, bool] = {}
        self._size = 0

    def lands(self, group: Group, rivals: Iterable[Group], free: Matrix, alloc: Matrix | None = None) -> bool:
        """See `lands`."""
        near = _near(group, rivals)
        hosts = sorted(group.hosts)
        there = free[hosts].tobytes() + (b"" if alloc is None else alloc[hosts].tobytes())
        key = (*_kind(group), there, *[(*_kind(r), r.wave, r.uid == group.uid) for r in near])
        known = self._known.get(key)
        if known is None:
            if self._size > MOST_KNOWN:
                self._known.clear()
                self._size = 0
            known = self._known[key] = _lands(group, near, free, alloc)
            self._size += len(there) + 100 * (len(near) + 1)
        return known

    def together(
        self, groups: Sequence[Group], rivals: Sequence[Group], free: Matrix, alloc: Matrix | None = None
    ) -> tuple[Group, ...] | None:
        """See `together`."""
        return together(groups, rivals, free, alloc=alloc, ask=self.lands)


def _kind(group: Group) -> tuple[object, ...]:
    return (group.need, group.count, group.hosts)


def together(
    groups: Sequence[Group],
    rivals: Sequence[Group],
    free: Matrix,
    effort: Effort | None = None,
    *,
    alloc: Matrix | None = None,
    ask: Lands | None = None,
) -> tuple[Group, ...] | None:
    """The sets of one gang, on hosts of the gang on which each lands beside the others and these rivals, see `lands`.
    None = no such hosts were found, which is no proof.

    All who do not land are given more hosts: first those of the sets with which they share some, then those of all.
    But as what others may do is bounded and not known, more hosts for one can keep another from landing: of up to
    `FEW_SETS` it is tried, too, to give more to one alone. Of more sets none of those who do not land may have all
    hosts that are open to it already.
    Once no `effort` is left, only the hosts that were given are looked at.
    """
    ask = ask or (effort.ask if effort else None) or lands
    left, seen = [tuple(groups)], set[object]()
    while left:
        found = left.pop()
        stuck = [i for i, g in enumerate(found) if not ask(g, [*rivals, *found], free, alloc)]
        if not stuck:
            return found
        if effort is not None:
            effort.left -= LOOK * len(found)
            if effort.left < 0:
                return None
        wider = {i: one for i in stuck if (one := _wider(found, i)) is not None}
        few = len(found) <= FEW_SETS
        if not few and len(wider) < len(stuck):
            return None
        ways = [*([i] for i in reversed(wider) if few and len(wider) > 1), [*wider]] if wider else []
        for some in ways:
            tried = tuple([wider[i] if i in some else g for i, g in enumerate(found)])
            key = tuple([g.hosts for g in tried])
            if key not in seen:
                seen.add(key)
                left.append(tried)
    return None


def _wider(groups: Sequence[Group], number: int) -> Group | None:
    """One of them on more hosts of the gang; None = it has all that are open to it."""
    one = groups[number]
    beside = (g.hosts for g in groups if not g.hosts.isdisjoint(one.hosts))
    hosts = _more(one, beside) or _more(one, (g.hosts for g in groups))
    return None if hosts is None else replace(one, hosts=hosts)


def _more(group: Group, others: Iterable[frozenset[int]]) -> frozenset[int] | None:
    """Its hosts and those of others that are open to it; None = these are no more."""
    open_, all_hosts = group.open, group.hosts.union(*others)
    if open_ is None or all_hosts == group.hosts:
        return None
    hosts = group.hosts.union(host for host in all_hosts if open_[host])
    return None if hosts == group.hosts else hosts


def _without(free: Matrix, fixed: Iterable[tuple[int, Group]], *, room: Matrix) -> Matrix:
    """What is free (rows by host) once these have come, each to its only host, but for those that do not fit there by
    themselves with so much `room`.
    """
    left = free.copy()
    count: dict[tuple[object, ...], int] = {}
    shape: dict[tuple[object, ...], tuple[int, Group]] = {}
    for row, rival in fixed:
        key: tuple[object, ...] = (row, rival.row.tobytes(), id(rival) if rival.need.exclusive else None)
        count[key] = count.get(key, 0) + rival.count
        shape[key] = (row, rival)
    for key, (row, rival) in shape.items():
        left[row] -= rival.row * min(count[key], int(rival.need.slots(room[[row]])[0]))
    return left


def _beside(free: Matrix, fixed: Iterable[tuple[int, Group]]) -> Matrix:
    """What is left (rows by host) beside these, which have landed; all of a host on which they have no room together:
    nobody knows who of them is there.
    """
    left = _without(free, fixed, room=free)
    return np.where((left < 0).any(axis=1, keepdims=True), free, left)


def _harm(group: Group, rival: Group) -> int:
    """Slots that a rival can take at most, wherever it lands."""
    asked = rival.row[group.need.columns]
    return rival.count * int(np.max(-(-asked // group.need.amounts), initial=0))


def _alike(group: Group, rivals: Sequence[Group]) -> list[Group]:
    """Rivals of one shape, wave and pin as one, as any of them comes instead of another; not where pods keep apart.
    Those of its own gang by themselves.
    """
    found: dict[object, Group] = {}
    for rival in rivals:
        own = rival.uid == group.uid
        key = id(rival) if rival.need.exclusive else (own, rival.hosts, rival.wave, rival.row.tobytes())
        found[key] = replace(rival, count=rival.count + found[key].count) if key in found else rival
    return list(found.values())


def _least(group: Group, counts: Sequence[int], rows: Matrix, most: Matrix, left: Matrix) -> int:
    """The fewest slots that rivals (V) leave, host by host (H) over how many of each still come; 0 where that is too
    large a sum. `rows`: of one pod (V x R); `most`: how many a host holds (V x H); `left`: free there (H x R).
    """
    coming = tuple(count + 1 for count in counts)
    if prod(coming) * len(left) > STATES:
        return 0
    never = group.count * len(left) + 1
    kept = np.full(coming, never)
    kept[tuple(counts)] = 0
    for free, there in zip(left, most.T.tolist(), strict=True):
        choices = np.array(list(product(*(range(n + 1) for n in there))))
        slots = np.minimum(group.need.slots(free - choices @ rows), group.count)
        after = np.full(coming, never)
        for taken, own in zip(choices.tolist(), slots.tolist(), strict=True):
            before = kept[tuple(slice(n, None) for n in taken)]
            rest = after[tuple(slice(size - n) for size, n in zip(coming, taken, strict=True))]
            np.minimum(rest, before + own, out=rest)
        kept = after
    return int(kept.min())

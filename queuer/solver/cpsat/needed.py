"""For whom the victims of a solution go: nobody does whom the gangs up to the beneficiary could do without.

In the model the room that victims leave is everybody's, or there would be a variable for each amount, victim and gang.
A gang with the right to evict could so make room for one that has none. Rows exclude that where quota is never why
somebody goes; what they leave is looked at solution by solution, and rows are added for those who would go for nothing
(`lacking`), else that solution alone is cut off.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import inf, prod
from typing import TYPE_CHECKING

import numpy as np

from queuer.domain.queue import ROOT
from queuer.domain.quota import Account
from queuer.solver.cpsat.data import Data, Item
from queuer.solver.frame import Matrix
from queuer.solver.needs import Needs
from queuer.solver.problem import Eviction
from queuer.solver.sheet import Hold
from queuer.solver.victims import Candidate

if TYPE_CHECKING:
    from queuer.solver.cpsat.checks import Going
    from queuer.solver.cpsat.model import Model

Places = Mapping[int, Sequence[tuple[int, Matrix]]]
"""What items take, by node."""
WAYS = 64
"""Ways to say for whom the victims of a solution go up to which all are looked at."""


def limit_to_needed(model: Model) -> QuotaLeft:
    """Rows: somebody goes for a gang only where that one or one before it lies where it runs. The last gang has nobody
    after it for whom others could go. Answers what limits leave then.
    """
    data, left = model.data, QuotaLeft(model.data)
    so_far: dict[int, dict[int, int]] = {}
    for i, item in list(model.items())[:-1]:
        left.settle(item)
        for p, _ in enumerate(item.parts):
            for node in data.nodes:
                if (i, p, node) in model.x:
                    so_far.setdefault(node, {})[model.x[i, p, node]] = 1
        for candidate in item.candidates:
            if left.may_lack(candidate.hold):
                continue
            terms = {model.evicted(candidate, item): 1}
            for node in sorted({*candidate.hold.bound, *candidate.hold.loose} & so_far.keys()):
                so_far[node] = _summed(model, so_far[node])
                terms |= dict.fromkeys(so_far[node], -1)
            model.rows.row(terms, high=0)
    for item in data.items[-1:]:
        left.settle(item)
    return left


def _summed(model: Model, terms: dict[int, int]) -> dict[int, int]:
    """The sum as one variable, so that a row for each victim and gang stays short."""
    if len(terms) == 1:
        return terms
    total = model.rows.variable(0, sum(model.rows.bounds[v][1] for v in terms))
    model.rows.row({**terms, total: -1}, low=0, high=0)
    return {total: 1}


class QuotaLeft:
    """What limits leave within which the items ask that have had their turns."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self._asked: dict[tuple[str, Account], int] = {}
        self._left = cache(self._find_left)

    def settle(self, item: Item) -> None:
        """An item has its turn. What starts is used already."""
        for queue in self._data.board.book.lineage(item.workload.queue):
            for account, amount in item.charge.items():
                before = self._asked.get((queue, account), 0)
                self._asked[queue, account] = before + amount * item.bound

    def may_lack(self, hold: Hold) -> bool:
        """Whether one of them could be broken with this one there though the items have room on nodes."""
        lineage = self._data.board.book.lineage(hold.admitted.workload.queue)
        rows = ((queue, account) for queue in lineage for account in hold.charge)
        return any(self._asked[row] > self._left(row) for row in rows if row in self._asked)

    def _find_left(self, row: tuple[str, Account]) -> float:
        """What the limit leaves while all are there."""
        (queue, account), data = row, self._data
        live = queue == ROOT and not _nodes_are_tighter(data, account)
        limit = data.board.book.limit(queue, account, live=live)
        return inf if limit is None else limit - data.board.later.usage.held(queue, account, surely=True)


def _nodes_are_tighter(data: Data, account: Account) -> bool:
    """Whether what is free on nodes is no more than what live capacity leaves: not so where queues keep back some of
    theirs, or what is used is on no node.
    """
    board, (flavor, resource) = data.board, account
    if board.book.initial[ROOT].get(account):
        return False
    inside = [mask for name, mask in board.frame.in_flavor.items() if flavor in (None, name)]
    free = np.maximum(data.later[np.any(inside, axis=0), board.frame.column[resource]], 0).sum()
    started = sum(item.charge.get(account, 0) for item in data.items if not item.bound)
    left = board.book.live.get(account, 0) - board.later.usage.used(ROOT, account) + started
    return int(free) <= left


@dataclass(frozen=True, slots=True, kw_only=True)
class _Victim:
    """`named`: the item for which the solution evicts it; `takers`: all that may, by the same rule. `size`: the largest
    part of live capacity that it frees.
    """

    uid: str
    hold: Hold
    named: int
    takers: frozenset[int]
    size: float

    def spared_first(self, item: int, places: Places) -> tuple[bool, bool, float, bool, str]:
        """Sorts those first whom a gang leaves for later ones, that lie where these run or need quota, too; the large
        ones, so that nobody is left who alone is too little.
        """
        later = [i for i in self.takers if i > item]
        there = {*self.hold.bound, *self.hold.loose}
        wanted = any(node in there for i in later for node, _ in places.get(i, ()))
        return not later, not wanted, -self.size, self.named == item, self.uid


@dataclass(frozen=True, slots=True)
class Needless:
    """Nobody found needs one of the victims of a solution, which is cut off. `sure`: all ways were looked at to say for
    whom these go.
    """

    sure: bool


def needed_by(
    model: Model, values: Sequence[int], evicted: Going, order: Sequence[Eviction]
) -> tuple[Eviction, ...] | Needless:
    """The evictions, in this order, each for a gang that may evict it and needs it: the first, if that will do for
    all.
    """
    places, found = _places(model, values), dict[str, int]()
    for victims in _apart(model, _victims(model, evicted)):
        its = _first(model, victims, places)
        if len(its) < len(victims):
            others = (way for way in _ways(victims) if _all_needed(model, victims, places, way))
            its = next(others, its)
        if len(its) < len(victims):
            uids = {victim.uid for victim in victims}
            if not model.lacking.add(uids):
                _cut_off(model, values, evicted, uids)
            return Needless(sure=_few(victims))
        found |= its
    names = {i: item.workload.uid for i, item in model.items()}
    return tuple(replace(eviction, beneficiary=names[found[eviction.uid]]) for eviction in order)


def _apart(model: Model, victims: Sequence[_Victim]) -> list[list[_Victim]]:
    """Apart who runs on no common node: whether these are needed has nothing to do with each other. Where quota may be
    why somebody is, all are looked at together after that.
    """
    found: list[tuple[set[int], list[_Victim]]] = []
    for victim in victims:
        nodes, group = {*victim.hold.bound, *victim.hold.loose}, [victim]
        near = [one for one in found if not one[0].isdisjoint(nodes)]
        for one in near:
            found.remove(one)
            nodes, group = nodes | one[0], one[1] + group
        found.append((nodes, group))
    groups = [
        group for _, group in found if not any(model.quota_left.may_lack(victim.hold) for victim in group)
    ]
    return groups if sum(map(len, groups)) == len(victims) else [*groups, list(victims)]


def _few(victims: Sequence[_Victim]) -> bool:
    return prod(len(victim.takers) for victim in victims) <= WAYS


def _ways(victims: Sequence[_Victim]) -> Iterator[dict[str, int]]:
    """The items for which they could go, by uid: as the solution says, then in each way where these are few."""
    yield {victim.uid: victim.named for victim in victims}
    for way in product(*(sorted(victim.takers) for victim in victims)) if _few(victims) else ():
        yield {victim.uid: i for victim, i in zip(victims, way, strict=True)}


def _all_needed(model: Model, victims: Sequence[_Victim], places: Places, way: Mapping[str, int]) -> bool:
    """Whether each is needed by the item for which it goes."""
    for i, _, turns in _turns(model, places):
        mine = [victim.hold for victim in victims if way[victim.uid] == i]
        for hold in mine:
            turns.sheet.release(hold)
        if not all(map(turns.needs, mine)):
            return False
    return True


def _first(model: Model, left: Sequence[_Victim], places: Places) -> dict[str, int]:
    """By victim the first item that may evict it and needs it."""
    found = dict[str, int]()
    for i, _, turns in _turns(model, places):
        mine = [victim for victim in left if i in victim.takers]
        for victim in mine:
            turns.sheet.release(victim.hold)
        for victim in sorted(mine, key=lambda v: v.spared_first(i, places)):
            if turns.needs(victim.hold):
                found[victim.uid] = i
        left = [victim for victim in left if victim.uid not in found]
    return found


def _victims(model: Model, evicted: Going) -> list[_Victim]:
    data = model.data
    numbers = {item.workload.uid: i for i, item in model.items()}
    takers: dict[object, set[int]] = {}
    for i, item in model.items():
        for candidate in item.candidates:
            takers.setdefault(_permit(candidate), set()).add(i)

    def victim(uid: str, beneficiary: str, may: frozenset[int]) -> _Victim:
        hold, named = data.board.holds[uid], numbers[beneficiary]
        live = data.board.book.live
        size = max((n / live[a] for a, n in hold.charge.items() if live.get(a)), default=0.0)
        return _Victim(uid=uid, hold=hold, named=named, takers=may, size=size)

    return [victim(c.uid, uid, frozenset(takers[_permit(c)])) for c, uid in evicted]


def _permit(candidate: Candidate) -> object:
    return candidate.uid, candidate.rule, candidate.lines


def _places(model: Model, values: Sequence[int]) -> Places:
    found: dict[int, list[tuple[int, Matrix]]] = {}
    for (i, p, node), variable in model.x.items():
        if values[variable]:
            row = model.data.items[i].parts[p].row
            found.setdefault(i, []).append((node, row * values[variable]))
    return found


def _turns(model: Model, places: Places) -> Iterator[tuple[int, Item, Needs]]:
    """The items one after the other as they come to lie in a solution."""
    data = model.data
    sheet = data.board.later.copy()
    for item in data.items:
        if not item.bound:
            sheet.usage.add(item.workload.queue, item.charge, times=-1)
    turns = Needs(sheet)
    for i, item in model.items():
        turns.settle(item.workload.queue, item.charge, places.get(i, ()))
        yield i, item, turns


def _cut_off(model: Model, values: Sequence[int], evicted: Going, uids: Collection[str]) -> None:
    """One of these evicted stays or goes by another permission, or more lies where they were. Where quota may be why
    they go, or somebody else goes, too: with that one gone a limit may be kept for which all are needed.
    """
    needless = [candidate for candidate, _ in evicted if candidate.uid in uids]
    permits = {_permit(candidate) for candidate in needless}
    terms = {
        model.evicted(candidate, item): 1
        for _, item in model.items()
        for candidate in item.candidates
        if _permit(candidate) in permits
    }
    hosts = {node for one in needless for node in (*one.hold.bound, *one.hold.loose)}
    for (_, _, node), variable in model.x.items():
        if node in hosts and values[variable] < model.rows.bounds[variable][1]:
            more = model.rows.boolean()
            model.rows.row({variable: 1, more: -values[variable] - 1}, low=0)
            terms[more] = -1
    if any(model.quota_left.may_lack(one.hold) for one in needless):
        gone = {candidate.uid for candidate, _ in evicted}
        for uid in model.data.victims().keys() - gone:
            terms.update(model.gone(uid, times=-1))
    model.rows.row(terms, high=len(needless) - 1)

"""Rows for what gangs would lack if a victim stayed, so that nobody goes for one that could do without.

For all victims and gangs they would be most of a model, and few questions need them: they are added for those victims
that would go for nothing, once some solutions were cut off for that one by one. They ask for no more than `Needs` does,
so nothing that it permits is cut off: not for all of it on nodes where pods have still to land, and where what is kept
back is too much for a limit anyway.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from queuer.domain.quota import Account
from queuer.domain.usage import Usage
from queuer.solver.cpsat.data import Data
from queuer.solver.cpsat.proto import Terms
from queuer.solver.sheet import Hold

if TYPE_CHECKING:
    from queuer.solver.cpsat.model import Model

MOST = 10_000
"""Variables times items of a model up to which they are added."""
CUT_OFF = 8
"""Solutions of a model that are cut off one by one before: most models need no more, and rows make each pass longer."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """After the turn of an item: those before it and it have their victims gone, but for one that `stays`. Items up to
    `placed` are counted.
    """

    turn: int
    placed: int
    stays: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Amount:
    """A sum of variables and a constant."""

    terms: Terms
    plus: int

    def less(self, other: _Amount) -> _Amount:
        """The difference."""
        terms = defaultdict[int, int](int, self.terms)
        for variable, amount in other.terms.items():
            terms[variable] -= amount
        return _Amount(terms, self.plus - other.plus)


class Lacking:
    """The rows of one model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._rows = model.rows
        self._data: Data = model.data
        self._known = set[str]()
        self._failed = 0
        self._permits = cache(self._find_permits)
        self._charged = cache(self._find_charged)
        self._used = cache(self._find_used)
        self._roomy = cache(self._find_roomy)
        self._usage = cache(self._find_usage)
        self._seen = cache(self._find_seen)
        self._frees = cache(model.frees)
        self._takes = cache(self._find_takes)

    def add(self, uids: Iterable[str]) -> bool:
        """A solution fails as these go for nothing: add their rows; False = it must be cut off."""
        self._failed += 1
        new = sorted(set(uids) - self._known)
        large = len(self._rows.bounds) * len(self._data.items) > MOST
        if not new or large or self._failed <= CUT_OFF:
            return False
        self._known.update(new)
        try:
            for uid in new:
                self._add(uid)
        except OverflowError:
            return False
        return True

    def _add(self, uid: str) -> None:
        names = defaultdict[int, list[int]](list)
        for turn, variable in self._permits()[uid]:
            names[turn].append(variable)
        for turn, variables in names.items():
            reasons = [*self._on_nodes(uid, turn), *self._in_limits(uid, turn)]
            self._rows.row({**dict.fromkeys(variables, 1), **dict.fromkeys(reasons, -1)}, high=0)

    def _gone(self, uid: str, moment: _Moment) -> list[int]:
        """Variables of which one is 1 where it has gone."""
        if uid == moment.stays:
            return []
        return [variable for turn, variable in self._permits()[uid] if turn <= moment.turn]

    def _find_permits(self) -> Mapping[str, Sequence[tuple[int, int]]]:
        """Who may go: for the turn of which item, by which variable."""
        found = defaultdict[str, list[tuple[int, int]]](list)
        for i, item in self._model.items():
            for candidate in item.candidates:
                found[candidate.uid].append((i, self._model.evicted(candidate, item)))
        return found

    # Nodes

    def _on_nodes(self, uid: str, turn: int) -> Iterator[int]:
        """Variables that are 1 only if a node is overdrawn with this one there, and not without."""
        hold, awaiting = self._data.board.holds[uid], self._data.board.later.awaiting
        for node, row in sorted(hold.rows.items()):
            for column, amount in enumerate(row.tolist()):
                if amount and (asked := self._asked(turn, node, column)):
                    yield (reason := self._rows.boolean())
                    self._only_if(reason, _Amount(asked, 0), low=1)
                    if node not in awaiting:
                        self._only_if(reason, self._left(turn, node, column), low=0, high=amount - 1)

    def _find_roomy(self, turn: int) -> int:
        """1 only if no node is overdrawn on which these lie; without victims none is."""
        roomy = self._rows.boolean()
        for node, column in sorted(self._frees()):
            free = int(self._data.later[node, column])
            if free >= 0 and node not in self._data.board.later.awaiting:
                self._only_if(roomy, self._left(turn, node, column), low=0)
        return roomy

    def _left(self, turn: int, node: int, column: int) -> _Amount:
        terms = {v: -amount for v, amount in self._asked(turn, node, column).items()}
        for uid, amount in self._frees().get((node, column), ()):
            terms |= dict.fromkeys(self._gone(uid, _Moment(turn, turn)), amount)
        return _Amount(terms, int(self._data.later[node, column]))

    def _asked(self, turn: int, node: int, column: int) -> Terms:
        return {v: amount for i, v, amount in self._takes().get((node, column), ()) if i <= turn}

    def _find_takes(self) -> dict[tuple[int, int], list[tuple[int, int, int]]]:
        """What pods take by node and column: item, variable and amount."""
        found: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        for (i, p, node), variable in self._model.x.items():
            need = self._data.items[i].parts[p].need
            for column, amount in zip(need.columns.tolist(), need.amounts.tolist(), strict=True):
                if amount:
                    found.setdefault((node, column), []).append((i, variable, amount))
        return found

    # Limits

    def _in_limits(self, uid: str, turn: int) -> Iterator[int]:
        """Variables that are 1 only if a limit is broken with this one there, and not without, while no node is
        overdrawn.
        """
        hold, book = self._data.board.holds[uid], self._data.board.book
        for queue, account, limit in self._limits(hold, turn):
            used = self._used(_Moment(turn, turn), queue, account)
            low = limit + 1 - hold.charge[account]
            if self._bounds(used)[1] >= low:
                yield (reason := self._reason(turn))
                self._only_if(reason, used, low=low, high=limit)
            if book.initial[queue].get(account) or book.kept(queue, account):
                seen, without = (
                    self._seen(_Moment(turn, placed, uid), queue, account) for placed in (turn, -1)
                )
                if self._bounds(seen)[1] > limit:
                    yield (reason := self._reason(turn))
                    self._only_if(reason, seen, low=limit + 1)
                    self._only_if(reason, seen.less(without), low=1)

    def _reason(self, turn: int) -> int:
        reason = self._rows.boolean()
        self._rows.row({reason: 1, self._roomy(turn): -1}, high=0)
        return reason

    def _limits(self, hold: Hold, turn: int) -> Iterator[tuple[str, Account, int]]:
        """Those on its path within which the items ask."""
        book, items = self._data.board.book, self._data.items[: turn + 1]
        for queue in book.lineage(hold.admitted.workload.queue):
            inside = [item for item in items if queue in book.lineage(item.workload.queue)]
            for account in hold.charge:
                limit = book.limit(queue, account)
                if limit is not None and any(account in item.charge for item in inside):
                    yield queue, account, limit

    def _find_usage(self, placed: int) -> Usage:
        """What is used with all victims there."""
        usage = self._data.board.later.usage.copy()
        for i, item in self._model.items():
            if item.bound == (i <= placed):
                usage.add(item.workload.queue, item.charge, times=1 if item.bound else -1)
        return usage

    def _find_used(self, moment: _Moment, queue: str, account: Account) -> _Amount:
        usage, terms = self._usage(moment.placed), dict[int, int]()
        for uid, amount in self._charged().get((queue, account), ()):
            terms |= dict.fromkeys(self._gone(uid, moment), -amount)
        return _Amount(terms, usage.used(queue, account))

    def _find_charged(self) -> Mapping[tuple[str, Account], Sequence[tuple[str, int]]]:
        """Victims with what they hold, by queue and account."""
        found = defaultdict[tuple[str, Account], list[tuple[str, int]]](list)
        for uid, candidate in self._data.victims().items():
            hold = candidate.hold
            for queue in self._data.board.book.lineage(hold.admitted.workload.queue):
                for account, amount in hold.charge.items():
                    if amount:
                        found[queue, account].append((uid, amount))
        return found

    def _find_seen(self, moment: _Moment, queue: str, account: Account) -> _Amount:
        """What counts above a queue: what is kept back below, too."""
        book, found = self._data.board.book, self._used(moment, queue, account)
        for kid in book.tree.children[queue] if book.initial[queue].get(account) else ():
            idle = self._used(moment, kid, account).less(self._seen(moment, kid, account))
            found = found.less(idle)
        return self._at_least(found, book.kept(queue, account))

    def _at_least(self, one: _Amount, least: int) -> _Amount:
        """The larger of both."""
        low, high = self._bounds(one)
        if low >= least:
            return one
        if high <= least:
            return _Amount({}, least)
        larger, above = self._rows.variable(least, high), self._rows.boolean()
        more = _Amount({larger: 1}, 0).less(one)
        self._rows.row(more.terms, low=-more.plus)
        self._only_if(above, more, high=0)
        self._rows.row({larger: 1, above: least - high}, high=least)
        return _Amount({larger: 1}, 0)

    # Rows

    def _bounds(self, one: _Amount) -> tuple[int, int]:
        ends = [
            sorted((c * low, c * high)) for v, c in one.terms.items() for low, high in [self._rows.bounds[v]]
        ]
        return one.plus + sum(low for low, _ in ends), one.plus + sum(high for _, high in ends)

    def _only_if(self, reason: int, one: _Amount, *, low: int | None = None, high: int | None = None) -> None:
        """The variable is 1 only with an amount between these."""
        least, most = self._bounds(one)
        if low is not None and low > least:
            self._rows.row({**one.terms, reason: least - low}, low=least - one.plus)
        if high is not None and high < most:
            self._rows.row({**one.terms, reason: most - high}, high=most - one.plus)

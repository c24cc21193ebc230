"""The cheapest set of permitted victims that is enough for one gang (DESIGN 3.3).

Feasibility grows with the set of victims, so a set is found by a prefix of an order, then thinned. The orders are tried
in the places that can be the cheapest; for few candidates, such as those on one host, all subsets in the order of cost.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from queuer.solver.asker import Asker
from queuer.solver.board import Board
from queuer.solver.problem import Eviction
from queuer.solver.scopes import scopes, weight
from queuer.solver.trial import Trial
from queuer.solver.victims import Candidate, Cost, Prey, by_cost

SUBSETS = 600
"""How many sets are tried in the order of cost."""
FEW = 12
"""Up to so many candidates all subsets are worth trying."""
PLACES = 24
"""Places looked into for one gang, the one with the lowest bound first."""


class Search:
    """Looks for the cheapest sufficient set of victims for one gang."""

    def __init__(
        self,
        board: Board,
        prey: Prey,
        asker: Asker,
        found: Sequence[Candidate],
        *,
        work: int,
        counting: bool = False,
    ) -> None:
        """`found`: the candidates, cheapest first; `work`: steps after which no further set is tried; a step is a
        victim that goes or comes back. `counting`: see `Trial`.
        """
        self._board = board
        self._found = found
        self._places = scopes(board, prey, asker, found)
        self._trial = Trial(board, asker, found, counting=counting)
        self._twofold = {c.uid: c for c in found if c.otherwise is not None}
        self._single = sum(asker.variant.counts.values()) == 1
        self._most = work
        self.work = 0

    def newest(self) -> list[Candidate] | None:
        """The set of a plain rule, as others use it: the newest of the lowest priority, wherever they are, until the
        gang fits; then those come back who went in vain, the last first.
        """
        trial, gone = self._trial, list[Candidate]()
        for candidate in sorted(self._found, key=_by_age):
            if (victim := trial.going(candidate)) is not None:
                trial.remove(victim)
                gone.append(victim)
                if trial.fits():
                    break
        enough = bool(gone) and trial.fits()
        return self._back(gone, list(reversed(gone[:-1])) if enough else None)

    def cheapest(self) -> list[Candidate] | None:
        """The best set found, in an order in which each is permitted; None = none was found.

        Those who hold the quota need not be where the gang has a place: where it is short, all of them are tried last.
        """
        best: list[Candidate] | None = None
        known = set[tuple[int, ...]]()
        for place in islice(self._places, PLACES):
            if self.work > self._most or (best is not None and place.bound > weight(_cost(best))):
                break
            members = tuple([id(c) for c in place.members])
            if members not in known:
                known.add(members)
                best = self._better(best, place.members)
        if self._trial.short and self.work <= self._most:
            best = self._better(best, list(self._found))
        if best is not None and len(self._found) <= FEW and self.work <= self._most:
            best = self._by_cost(self._found, best)
        return best

    def _better(self, best: list[Candidate] | None, members: list[Candidate]) -> list[Candidate] | None:
        alone = not self._trial.short or len(members) == len(self._found)
        if alone and best is not None and members[0].cost >= _cost(best):
            return best
        if self._single and not self._trial.short and len(members) <= FEW:
            return self._by_cost(members, best)
        for number, order in enumerate(self._orders(members)):
            got, whole = self._prefix(order)
            if got is not None and (best is None or _cost(got) < _cost(best)):
                best = got
            if number == 0 and got is not None and len(got) == 1 and whole and alone:
                break  # cheapest first: of those who cost less than this one, all together are not enough
        return best

    def _orders(self, members: list[Candidate]) -> Iterator[list[Candidate]]:
        """Cheapest first; least loss for what they free; those on the same host together. Where quota is short, too,
        those elsewhere follow.
        """
        rest: list[Candidate] = []
        if self._trial.short:
            inside = {c.uid for c in members}
            rest = [c for c in self._found if c.uid not in inside]
        yield members + rest
        if len(members) < 2:
            return
        yield sorted(members, key=lambda c: (weight(c.cost) / self._size(c), c.uid)) + rest
        yield _host_by_host(members) + rest

    def _size(self, candidate: Candidate) -> float:
        charge, capacity = candidate.hold.charge, self._board.capacity
        shares = [n / capacity[r] for (f, r), n in charge.items() if f is None and capacity.get(r)]
        return max([1e-12, *shares])

    def _prefix(self, order: Sequence[Candidate]) -> tuple[list[Candidate] | None, bool]:
        """The shortest prefix that is enough, thinned: the most expensive are put back first; and whether all of the
        prefix might go, by the rules that cost least.
        """
        trial, gone, enough, whole = self._trial, list[Candidate](), False, True
        for candidate in order:
            victim = trial.going(candidate)
            whole = whole and victim is candidate
            if victim is not None:
                trial.remove(victim)
                gone.append(victim)
                enough = trial.fits()
                if enough:
                    break
        return self._back(gone, sorted(gone, key=by_cost, reverse=True) if enough else None), whole

    def _back(self, gone: Sequence[Candidate], order: Sequence[Candidate] | None) -> list[Candidate] | None:
        """All come back. Those of them who are needed if they are thinned in this order, each by the rule that costs
        least now that fewer go before it; None = there is no order, as all are not enough.
        """
        kept = None if order is None else self._thinned(gone, order)
        for candidate in gone if kept is None else kept:
            self._trial.put_back(candidate)
        self.work += 2 * len(gone)
        if kept is None or self._twofold.keys().isdisjoint(c.uid for c in kept):
            return kept
        return self._going([self._twofold.get(c.uid, c) for c in kept])

    def _thinned(self, gone: Sequence[Candidate], order: Sequence[Candidate]) -> list[Candidate]:
        """Without those that turn out, in this order, not to be needed; nobody is permitted less when others stay."""
        kept = list(gone)
        for candidate in order:
            if len(kept) == 1:
                break
            self._trial.put_back(candidate)
            if self._trial.fits():
                kept.remove(candidate)
            else:
                self._trial.remove(candidate)
        return kept

    def _going(self, chosen: Sequence[Candidate]) -> list[Candidate] | None:
        """These by the rules by which they may go in this order; None = they may not, or the gang does not fit then."""
        trial, gone = self._trial, list[Candidate]()
        for candidate in chosen:
            victim = trial.going(candidate)
            if victim is None:
                break
            trial.remove(victim)
            gone.append(victim)
        enough = len(gone) == len(chosen) and trial.fits()
        for victim in gone:
            trial.put_back(victim)
        self.work += 2 * len(gone)
        return gone if enough else None

    def _by_cost(self, found: Sequence[Candidate], best: list[Candidate] | None) -> list[Candidate] | None:
        """Subsets in the order of cost until one is enough; never worse than `best`."""
        limit = None if best is None else _cost(best)
        queue: list[tuple[Cost, tuple[int, ...]]] = [(found[0].cost, (0,))]
        for _ in range(SUBSETS):
            if not queue:
                break
            cost, picks = heapq.heappop(queue)
            if limit is not None and cost >= limit:
                break
            chosen = self._going(sorted((found[i] for i in picks), key=lambda c: (self._size(c), c.uid)))
            if chosen is not None and (limit is None or _cost(chosen) < limit):
                best, limit = chosen, _cost(chosen)
            last = picks[-1]
            if last + 1 < len(found):
                for following in ((*picks, last + 1), (*picks[:-1], last + 1)):
                    heapq.heappush(queue, (_cost(found[i] for i in following), following))
        return best


def _host_by_host(members: Sequence[Candidate]) -> list[Candidate]:
    """Host after host, the one first that costs least for the pods on it; who has gone with another costs no more."""
    there: dict[int, list[Candidate]] = {}
    for candidate in members:
        for node in candidate.hold.rows:
            there.setdefault(node, []).append(candidate)
    lost = {node: sum(weight(c.cost) for c in on) for node, on in there.items()}
    queue = [(cost, node) for node, cost in lost.items()]
    heapq.heapify(queue)
    order: dict[str, Candidate] = {}
    while queue:
        cost, node = heapq.heappop(queue)
        if cost != lost[node]:
            continue
        for candidate in there[node]:
            if candidate.uid not in order:
                order[candidate.uid] = candidate
                for other in candidate.hold.rows:
                    if other != node:
                        lost[other] -= weight(candidate.cost)
                        heapq.heappush(queue, (lost[other], other))
    return list(order.values())


def _by_age(candidate: Candidate) -> tuple[int, float, str]:
    admitted = candidate.hold.admitted
    return (admitted.workload.priority, -admitted.since, candidate.uid)


def _cost(chosen: Iterable[Candidate]) -> Cost:
    total = [0, 0, 0, 0]
    for candidate in chosen:
        total = [a + b for a, b in zip(total, candidate.cost, strict=True)]
    return (total[0], total[1], total[2], total[3])


def evictions(chosen: Iterable[Candidate], *, beneficiary: str) -> tuple[Eviction, ...]:
    """The chosen as evictions, in their order."""
    return tuple(c.evicted_for(beneficiary) for c in chosen)

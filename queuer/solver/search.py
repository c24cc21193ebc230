"""The cheapest set of permitted victims that is enough for one gang (DESIGN 3.3).

Feasibility grows with the set of victims, so a set is found by a prefix of an order, then thinned; several
orders and, for few candidates, all subsets in the order of cost are tried, and the cheapest answer is taken.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence

from queuer.domain.quota import Charge, Usage
from queuer.solver.board import Board, Hold, Sheet
from queuer.solver.problem import Eviction
from queuer.solver.victims import Candidate, Cost

SUBSETS = 600
"""How many sets are tried in the order of cost."""
FEW = 12
"""Up to so many candidates all subsets are worth trying."""


class Trial:
    """A set of victims being tried: the quota and nodes without them, and the line they must not have
    crossed.

    Usage is kept up in the accounts of `charge` only.
    """

    def __init__(self, board: Board, charge: Charge) -> None:
        self.sheet = board.later.copy()
        self._accounts = frozenset(charge)
        self._line: Usage = board.line().copy()

    def _count(self, hold: Hold, *, times: int) -> None:
        self._line.add(hold.admitted.workload.queue, hold.charge, times=times, only=self._accounts)

    def permitted(self, candidate: Candidate) -> bool:
        """Whether the rule permits it now that those before it have gone."""
        return candidate.permitted(self._line)

    def remove(self, candidate: Candidate) -> None:
        """It goes."""
        self.sheet.release(candidate.hold, only=self._accounts)
        self._count(candidate.hold, times=-1)

    def put_back(self, candidate: Candidate) -> None:
        """It stays after all."""
        self.sheet.release(candidate.hold, times=-1, only=self._accounts)
        self._count(candidate.hold, times=1)


Fits = Callable[[Sheet], bool]


class Search:
    """Looks for the cheapest sufficient set of victims for one gang.

    `charge`: the accounts that quota and lines depend on; `fits`: whether the gang has quota, in these
    accounts, and place on a sheet from which a set has gone.
    """

    def __init__(
        self, board: Board, found: Sequence[Candidate], charge: Charge, fits: Fits, *, work: int
    ) -> None:
        """`work`: steps after which no further set is tried; a step is a victim that goes or comes back."""
        self._board = board
        self._found = found
        self._charge = charge
        self._judge = fits
        self._toll = 10 + len(board.frame.names) // 32
        self._most = work
        self.work = 0

    def _fits(self, sheet: Sheet) -> bool:
        self.work += self._toll
        return self._judge(sheet)

    def cheapest(self) -> list[Candidate] | None:
        """The best set found, in an order in which each is permitted; None = none was found."""
        best: list[Candidate] | None = None
        for order in _orders(self._board, self._found):
            if self.work > self._most:
                break
            got = self._prefix(order)
            if got is not None and (best is None or _cost(got) < _cost(best)):
                best = got
        if best is not None and len(self._found) <= FEW and self.work <= self._most:
            best = self._by_cost(best)
        return best

    def _prefix(self, order: Sequence[Candidate]) -> list[Candidate] | None:
        """The shortest prefix that is enough, thinned: the most expensive are put back first."""
        trial = Trial(self._board, self._charge)
        self.work += len(order)
        gone: list[Candidate] = []
        due = 1
        for candidate in order:
            if not trial.permitted(candidate):
                continue
            trial.remove(candidate)
            gone.append(candidate)
            if len(gone) >= due:
                if self._fits(trial.sheet):
                    break
                due = 2 * len(gone)
        if not gone or not self._fits(trial.sheet):
            return None
        kept = self._shorten(trial, gone)
        for candidate in sorted(kept, key=lambda c: (c.cost, c.uid), reverse=True):
            trial.put_back(candidate)
            if len(kept) > 1 and self._fits(trial.sheet):
                kept.remove(candidate)  # nobody after it is permitted less, as more is used without this one
            else:
                trial.remove(candidate)
        return kept

    def _shorten(self, trial: Trial, gone: list[Candidate]) -> list[Candidate]:
        """By bisection; leaves the trial with the answer gone."""
        low, high, at = len(gone) // 2, len(gone), len(gone)
        while True:
            middle = (low + high) // 2 if low < high else high
            for candidate in gone[at:middle]:
                trial.remove(candidate)
            for candidate in gone[middle:at]:
                trial.put_back(candidate)
            at = middle
            if low >= high:
                return gone[:high]
            if middle and self._fits(trial.sheet):
                high = middle
            else:
                low = middle + 1

    def _enough(self, chosen: Sequence[Candidate]) -> bool:
        """Whether these may go in this order and the gang fits then."""
        trial = Trial(self._board, self._charge)
        for candidate in chosen:
            if not trial.permitted(candidate):
                return False
            trial.remove(candidate)
        return self._fits(trial.sheet)

    def _by_cost(self, best: list[Candidate]) -> list[Candidate]:
        """Subsets in the order of cost until one is enough; never worse than `best`."""
        found, limit = self._found, _cost(best)
        queue: list[tuple[Cost, tuple[int, ...]]] = [(found[0].cost, (0,))]
        for _ in range(SUBSETS):
            if not queue:
                break
            cost, picks = heapq.heappop(queue)
            if cost >= limit:
                break
            chosen = sorted((found[i] for i in picks), key=lambda c: (_size(self._board, c), c.uid))
            if self._enough(chosen):
                return chosen
            last = picks[-1]
            if last + 1 < len(found):
                for following in ((*picks, last + 1), (*picks[:-1], last + 1)):
                    heapq.heappush(queue, (_cost(found[i] for i in following), following))
        return best


def _orders(board: Board, found: Sequence[Candidate]) -> Iterable[list[Candidate]]:
    """Cheapest first; least loss for what they free; those in the same place together."""
    yield list(found)
    if len(found) > 1:
        yield sorted(found, key=lambda c: (c.cost[0] > 0, c.cost[1] / max(1, _size(board, c)), c.uid))
        host: dict[int, int] = {}
        for candidate in found:
            for node in candidate.hold.rows:
                host[node] = host.get(node, 0) + candidate.cost[1]
        yield sorted(
            found,
            key=lambda c: (
                c.cost[0] > 0,
                min((host[n], n) for n in c.hold.rows) if c.hold.rows else (0, 0),
                c.uid,
            ),
        )


def _size(board: Board, candidate: Candidate) -> int:
    return sum(
        n * 10**6 // board.capacity[r]
        for (f, r), n in candidate.hold.charge.items()
        if f is None and board.capacity.get(r)
    )


def _cost(chosen: Iterable[Candidate]) -> Cost:
    total = [0, 0, 0, 0]
    for candidate in chosen:
        total = [a + b for a, b in zip(total, candidate.cost, strict=True)]
    return (total[0], total[1], total[2], total[3])


def evictions(chosen: Iterable[Candidate], *, beneficiary: str) -> tuple[Eviction, ...]:
    """The chosen as evictions, in their order."""
    return tuple(Eviction(uid=c.uid, beneficiary=beneficiary, rule=c.rule) for c in chosen)

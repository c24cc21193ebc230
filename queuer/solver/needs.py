"""Whether a victim is needed: whether the gangs that have had their turns, as they lie, lack something if it stays."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from queuer.domain.quota import Account, Charge
from queuer.solver.frame import Matrix
from queuer.solver.sheet import Hold, Sheet


class Needs:
    """A sheet of its own on which gangs settle one after the other. `sheet`: without them, their victims there."""

    def __init__(self, sheet: Sheet) -> None:
        self.sheet = sheet
        self._asked: dict[int, Matrix] = {}
        self._limited: set[tuple[str, Account]] = set()
        self._charged: defaultdict[Account, Counter[str]] = defaultdict(Counter)

    def settle(self, queue: str, charge: Charge, place: Iterable[tuple[int, Matrix]]) -> None:
        """A gang has its turn. `place`: amounts by node."""
        for node, row in place:
            self.sheet.free[node] -= row
            self._asked[node] = self._asked.get(node, 0) + row
        self.sheet.usage.add(queue, charge)
        lineage = self.sheet.usage.book.lineage(queue)
        self._limited |= {(path, account) for path in lineage for account in charge}
        for account, amount in charge.items():
            self._charged[account][queue] += amount

    def needs(self, hold: Hold) -> bool:
        """Whether the gangs so far lack something if this one stays. If not, it does. Where one of them lies in room
        of a later gang's victim quota is no reason: it is short because the node is.
        """
        overdrawn, broken = {*self._overdrawn(hold)}, {*self._broken(hold)}
        self.sheet.release(hold, times=-1)
        lacks = not overdrawn.issuperset(self._overdrawn(hold))
        if lacks or not broken.issuperset(self._broken(hold)):
            self.sheet.release(hold)
            if lacks or not any(map(self._short, self._asked)):
                return True
            self.sheet.release(hold, times=-1)
        return False

    def _short(self, node: int) -> list[int]:
        """Columns for which these gangs ask on a node and of which it has not enough."""
        short: list[int] = ((self._asked[node] > 0) & (self.sheet.free[node] < 0)).nonzero()[0].tolist()
        return short

    def _overdrawn(self, hold: Hold) -> Iterator[object]:
        """What is short where it runs."""
        for node in self._asked.keys() & {*hold.bound, *hold.loose}:
            yield from ((node, column) for column in self._short(node))

    def _broken(self, hold: Hold) -> Iterator[object]:
        """Limits of its queues that these gangs break: in what is used, and in what is seen where they raise it (DESIGN
        3.1). Each counts by itself, as what is kept back may be too much for a limit anyway.
        """
        usage = self.sheet.usage
        for queue in usage.book.lineage(hold.admitted.workload.queue):
            for account in hold.charge:
                limit = usage.book.limit(queue, account)
                if limit is None or (queue, account) not in self._limited:
                    continue
                if usage.used(queue, account) > limit:
                    yield queue, account, "used"
                if usage.seen(queue, account) > limit and self._raise(queue, account):
                    yield queue, account, "seen"

    def _raise(self, queue: str, account: Account) -> bool:
        """Whether more is seen of the queue with these gangs than without."""
        usage = self.sheet.usage
        if not (usage.book.initial[queue].get(account) or usage.book.kept(queue, account)):
            return True  # all that is used is seen
        without = usage.copy()
        for path, amount in self._charged[account].items():
            without.add(path, {account: amount}, times=-1)
        return usage.seen(queue, account) > without.seen(queue, account)

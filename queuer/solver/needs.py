"""Whether a victim is needed: whether the gangs that have had their turns, as they lie, lack something if it stays."""

from __future__ import annotations

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

    def settle(self, queue: str, charge: Charge, place: Iterable[tuple[int, Matrix]]) -> None:
        """A gang has its turn. `place`: amounts by node."""
        for node, row in place:
            self.sheet.free[node] -= row
            self._asked[node] = self._asked.get(node, 0) + row
        self.sheet.usage.add(queue, charge)
        lineage = self.sheet.usage.book.lineage(queue)
        self._limited |= {(path, account) for path in lineage for account in charge}

    def needs(self, hold: Hold) -> bool:
        """Whether the gangs so far lack something if this one stays. If not, it does. Where one of them lies in room
        of a later gang's victim quota is no reason: it is short because the node is.
        """
        roomy = not any(map(self._short, self._asked))
        before = {*self._overdrawn(hold), *self._broken(hold)}
        self.sheet.release(hold, times=-1)
        after = {*self._overdrawn(hold), *(self._broken(hold) if roomy else ())}
        if after <= before:
            return False
        self.sheet.release(hold)
        return True

    def _short(self, node: int) -> list[int]:
        """Columns for which these gangs ask on a node and of which it has not enough."""
        short: list[int] = ((self._asked[node] > 0) & (self.sheet.free[node] < 0)).nonzero()[0].tolist()
        return short

    def _overdrawn(self, hold: Hold) -> Iterator[object]:
        """What is short where it runs."""
        for node in self._asked.keys() & {*hold.bound, *hold.loose}:
            yield from ((node, column) for column in self._short(node))

    def _broken(self, hold: Hold) -> Iterator[object]:
        """Limits of its queues that these gangs ask within, and that do not hold."""
        usage = self.sheet.usage
        for queue in usage.book.lineage(hold.admitted.workload.queue):
            for account in hold.charge:
                limit = usage.book.limit(queue, account)
                if limit is None or (queue, account) not in self._limited:
                    continue
                if usage.held(queue, account, surely=True) > limit:
                    yield queue, account

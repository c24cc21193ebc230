"""A set of victims being tried for one gang: what they leave free, and the lines that they must not have crossed.

Victims come and go thousands of times in one search, so slots, domains and usage are kept up step by step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from queuer.domain.usage import Entry
from queuer.solver.asker import Asker
from queuer.solver.board import Board
from queuer.solver.capacity import place
from queuer.solver.parts import Part, Spread
from queuer.solver.pod_slots import PodSlots, pod_slots
from queuer.solver.sheet import Hold
from queuer.solver.slots import Slots
from queuer.solver.victims import Candidate


class Trial:
    """The state once some candidates have gone; at first nobody has, and in the end all must have come back: what is
    used is counted on the board itself. `short`: quota is in the way, too; `placed`: the nodes alone.
    """

    def __init__(
        self, board: Board, asker: Asker, found: Sequence[Candidate], *, counting: bool = False
    ) -> None:
        """`counting`: room alone is looked at, which is all for one pod set without a level of its own; else gangs with
        more are placed to see whether they fit.
        """
        queue, charge = asker.workload.queue, asker.charge
        binding = {a: charge[a] for a in board.claimed.binding(queue, charge)}
        self.short = not board.later.usage.fits(queue, binding)
        accounts = {account for c in found for way in c.by_rule for account, _ in way.lines or ()}
        self._queue, self._asked = queue, binding
        self._usage = board.later.usage if self.short else None
        self._line = board.line() if accounts else None
        self._counted = [usage for usage in (self._usage, self._line) if usage is not None]
        self._accounts = frozenset(accounts | set(binding))
        self._entries: dict[str, Entry] = {}
        parts = asker.parts(board)
        counts = counting or _slots_decide(parts)
        self.placed: PodSlots | Placing = (pod_slots if counts else Placing)(board, asker, parts)

    def going(self, candidate: Candidate) -> Candidate | None:
        """See `Candidate.going`, now that those before it have gone."""
        return candidate if self._line is None else candidate.going(self._line)

    def remove(self, candidate: Candidate) -> None:
        """It goes."""
        self._move(candidate, 1)

    def put_back(self, candidate: Candidate) -> None:
        """It stays after all."""
        self._move(candidate, -1)

    def _move(self, candidate: Candidate, times: int) -> None:
        self.placed.move(candidate.hold, times)
        for usage in self._counted:
            if candidate.uid not in self._entries:
                self._entries[candidate.uid] = self._entry(candidate.hold)
            usage.enter(self._entries[candidate.uid], times=-times)

    def _entry(self, hold: Hold) -> Entry:
        """What it uses in the accounts that decide anything here."""
        return self._counted[0].entry(hold.admitted.workload.queue, hold.charge, self._accounts)

    def fits(self) -> bool:
        """Whether the gang has quota and a place."""
        has_quota = self._usage is None or self._usage.fits(self._queue, self._asked)
        return has_quota and self.placed.fits()


def _slots_decide(parts: Sequence[Part]) -> bool:
    """Whether the gang is one pod set with no level of its own."""
    return len(parts) == 1 and parts[0].required is None and parts[0].preferred is None


class Placing:
    """Nodes for a gang of several pod sets, which is placed to see whether it fits, once its most pods and one of
    another set have slots. The last place found stands while the nodes there are as they were.
    """

    def __init__(self, board: Board, asker: Asker, parts: Sequence[Part]) -> None:
        self._board, self._asker = board, asker
        self._sheet = board.later.copy()
        self._slots = Slots(board.frame, self._sheet.free)
        self._pods = pod_slots(board, asker, parts)
        self._moves: dict[str, tuple[Hold, int]] = {}  # those that are not on the sheet yet
        self._hosts = frozenset[int]()  # of the last place found
        self._moved = set[str]()  # who has gone from there, or come back, since

    def move(self, hold: Hold, times: int) -> None:
        """The hold goes, or comes back with `times=-1`."""
        uid = hold.admitted.workload.uid
        if self._moves.pop(uid, None) is None:
            self._moves[uid] = (hold, times)
        self._pods.move(hold, times)
        if not self._hosts.isdisjoint(hold.rows):
            self._moved ^= {uid}

    def fits(self) -> bool:
        """Whether there is a place."""
        if not self._pods.fits():
            return False
        if self._hosts and not self._moved:
            return True
        found = self._place()
        if found is not None:
            self._hosts, self._moved = frozenset(chain.from_iterable(found.values())), set()
        return found is not None

    def _place(self) -> Mapping[str, Spread] | None:
        board, asker = self._board, self._asker
        for hold, times in self._moves.values():
            self._sheet.vacate(hold, times=times)
            self._slots.renew(*hold.rows)
        self._moves.clear()
        slots = self._slots
        if asker.bars:
            left = asker.behind(board, self._sheet.free, more=self._pods.credit.more)
            slots = Slots(board.frame, left)
        return place(
            board.frame,
            slots.free,
            asker.workload,
            asker.variant,
            closed=asker.closed,
            limits=board.limits(),
            slots=slots,
        )

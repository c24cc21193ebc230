"""Who is expected to end when: what will be free after so many ends, if nothing else starts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np

from queuer.domain.queue import ROOT
from queuer.domain.quota import Account, Charge
from queuer.domain.usage import Usage
from queuer.solver.board import Board
from queuer.solver.ends import end_of, expected_end
from queuer.solver.frame import Matrix, summed
from queuer.solver.outcome import Chosen
from queuer.solver.sheet import leaves


class _End(NamedTuple):
    """What is free again at some time: `rows` on nodes, `charge` in a queue."""

    at: float
    since: float
    uid: str
    rows: Mapping[int, Matrix]
    queue: str
    charge: Charge


class _Wait(NamedTuple):
    """A bound gang that those keep from starting who leave anyway."""

    for_whom: frozenset[str]
    queue: str
    charge: Charge


class Timeline:
    """The ends of all that holds nodes, in order: known ones by time, then the unknown ones, the longest running first.

    A *step* is a number of ends: at step 3 the first three have come. `times`: when the known ones do. At step 0
    victims have gone; who leaves anyway is gone when that is expected. It is of the moment at which it was made:
    whatever happens on the board after that is not in it.
    """

    def __init__(self, board: Board, started: Iterable[Chosen]) -> None:
        """`started`: what starts in this cycle, or has its place kept."""
        self._frame, self._book = board.frame, board.book
        self._began = board.later.free.copy()
        self._used, self._waits = [board.later.usage.copy()], tuple[_Wait, ...]()
        before = board.later.before_landing()
        ends = [
            _End(
                expected_end(h.admitted, now=board.time),
                h.admitted.since,
                uid,
                leaves(h.bound, h.loose, before),
                h.admitted.workload.queue,
                h.charge,
            )
            for uid, h in board.holds.items()
            if uid not in board.leaving or uid in board.vacating
        ]
        if board.vacating:
            vacating = [end for end in ends if end.uid in board.vacating]
            meanwhile, self._waits = _meanwhile(board, vacating)
            self._used.append(meanwhile)
            for end in vacating:
                for node, row in end.rows.items():
                    self._began[node] -= row
        for one in started:
            workload = one.gang.pending.workload
            at = end_of(workload, start=board.time)
            rows = summed(board.rows(workload, one.spreads))
            ends.append(
                _End(inf if at is None else at, board.time, workload.uid, rows, workload.queue, one.charge)
            )
        ends.sort(key=lambda end: end[:3])
        self.times = [end.at for end in ends if end.at < inf]
        self.steps = len(ends)
        self._ends = ends
        self._vacating = board.vacating
        self._lengths = np.cumsum([0, *(len(end.rows) for end in ends)])
        self._nodes = np.array([node for end in ends for node in end.rows], dtype=np.intp)
        amounts = [row for end in ends for row in end.rows.values()]
        self._amounts = np.array(amounts, dtype=np.int64).reshape(len(amounts), self._began.shape[1])

    def step_at(self, time: float) -> int:
        """How many have ended by then."""
        return bisect_right(self.times, time)

    def free(self, step: int) -> Matrix:
        """What is free at a step (N x R)."""
        free = self._began.copy()
        length = self._lengths[step]
        np.add.at(free, self._nodes[:length], self._amounts[:length])
        return free

    @cached_property
    def overdrawn(self) -> frozenset[Account]:
        """Where less is left of the live capacity than nodes have free, as what is used is on no node or too much for
        one: that a gang has a place is not enough there, at any step.
        """
        frame, free = self._frame, np.maximum(self._began, 0)
        left: dict[str | None, Matrix] = {
            flavor: free[mask].sum(axis=0) for flavor, mask in frame.in_flavor.items()
        }
        left[None] = sum(left.values(), start=np.zeros_like(free[0]))
        return frozenset(
            (flavor, r)
            for (flavor, r), live in self._book.live.items()
            for used in self._used
            if live - used.used(ROOT, (flavor, r)) < left[flavor][frame.column[r]]
        )

    def usages(self, step: int, *, only: frozenset[Account]) -> Iterator[Usage]:
        """What is used at a step in these accounts: with all bound gangs in place and gone who leaves anyway; and with
        those there still, and not the gangs that wait for them.
        """
        gone = {end.uid for end in self._ends[:step]}
        for number, used in enumerate(self._used):
            usage = used.copy()
            for end in self._ends[:step]:
                if number or end.uid not in self._vacating:
                    usage.enter(usage.entry(end.queue, end.charge, only), times=-1)
            for wait in self._waits if number else ():
                if wait.for_whom <= gone:
                    usage.enter(usage.entry(wait.queue, wait.charge, only))
            yield usage


def _meanwhile(board: Board, vacating: Iterable[_End]) -> tuple[Usage, tuple[_Wait, ...]]:
    """What is used while these are there still, which is not what is held for those who wait for them; and these."""
    usage, waits = board.later.usage.copy(), list[_Wait]()
    for end in vacating:
        usage.add(end.queue, end.charge)
    bonds = {bond.uid: bond for bond in board.snapshot.bonds}
    for uid, (gang, charge) in board.bound.items():
        awaited = board.vacating.intersection(bonds[uid].victims) if uid in bonds else frozenset[str]()
        if awaited:
            usage.add(gang.queue, charge, times=-1)
            waits.append(_Wait(awaited, gang.queue, charge))
    return usage, tuple(waits)

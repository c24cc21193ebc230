"""Bonds that stand at the start of a cycle: hold what they hold, and let those start whose place is free
(DESIGN 3.3).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from queuer.domain.workload import Workload
from queuer.solver.board import Board
from queuer.solver.capacity import place
from queuer.solver.contested import Variant
from queuer.solver.frame import Matrix, Numbers
from queuer.solver.greedy import Greedy
from queuer.solver.order import Gang
from queuer.solver.outcome import Block, Chosen
from queuer.solver.parts import Spread
from queuer.solver.problem import Assignment, Bond
from queuer.solver.sheet import Hold


def resume(greedy: Greedy, gangs: Mapping[str, Gang]) -> dict[str, Bond]:
    """Put the standing bonds on the board and start those that can. Returns all that were put on the board, by uid.

    A bond ends at its deadline, with its gang, when its place is no longer usable, or when that will not be free though
    all who are leaving go; its gang then takes its turn like any other. Victims that are known to take longer to leave
    prolong it: else others would be evicted in their stead. Whose victims have all gone by the deadline may
    start still.
    """
    board = greedy.board
    held: list[tuple[Bond, Chosen]] = []
    room = _in_the_end(board) if board.snapshot.bonds else board.frame.alloc
    for bond in (prolonged(bond, board.holds) for bond in board.snapshot.bonds):
        gang = gangs.get(bond.uid)
        over = bond.deadline <= board.time
        lost = gang is None or (over and bool(leaving(board, bond)))
        chosen = None if gang is None or lost else restored(board, gang, bond.assignments)
        if chosen is None or not _room(greedy, chosen, room):
            continue
        greedy.spend(room, chosen)
        _hold(board, chosen, leaving(board, bond))
        held.append((bond, chosen))
    waiting = {bond.uid: (bond, chosen) for bond, chosen in held}
    before = len(waiting) + 1
    elsewhere: Collection[Chosen] | None = _ready(greedy, [chosen for _, chosen in held]) if held else ()
    while len(waiting) < before:  # what those who started had held may be what others lacked
        before = len(waiting)
        for uid in list(waiting):
            _start(greedy, uid, waiting, elsewhere=elsewhere)
        elsewhere = None
    for bond, chosen in list(waiting.values()):
        if bond.deadline <= board.time:
            board.unbind(chosen.gang.pending.workload, chosen.charge, chosen.spreads)
    return {bond.uid: bond for bond, _ in held if bond.deadline > board.time}


def prolonged(bond: Bond, holds: Mapping[str, Hold]) -> Bond:
    """With the deadline that it has: later where those it waits for are known to take longer to leave."""
    going = (holds[victim].admitted for victim in bond.victims if victim in holds)
    late = max((one.gone_by for one in going if one.gone_by is not None), default=0.0)
    return bond if late <= bond.deadline else replace(bond, deadline=late)


def _in_the_end(board: Board) -> Matrix:
    """What is left of the nodes (N x R) once all who are leaving have gone. Pods that are not ours come and go. A
    node on which less is taken than our workloads say that they hold there has what it says.
    """
    left, told = board.frame.alloc.copy(), board.frame.bound_free.copy()
    for hold in board.holds.values():
        for node, row in hold.bound.items():
            if hold.admitted.releasing:
                told[node] += row
            else:
                left[node] -= row
    return np.maximum(left, told)


@contextmanager
def held_again(board: Board, gangs: Mapping[str, Gang], bonds: Iterable[Bond]) -> Iterator[None]:
    """While these stand, as if their gangs had not started."""
    held = []
    for bond in bonds:
        if (chosen := restored(board, gangs[bond.uid], bond.assignments)) is not None:
            gone = [victim for victim in leaving(board, bond) if victim not in board.leaving]
            _hold(board, chosen, gone)
            held.append((chosen, gone))
    yield
    for chosen, gone in held:
        board.unbind(chosen.gang.pending.workload, chosen.charge, chosen.spreads)
        for victim in gone:
            board.stay(victim)


def leaving(board: Board, bond: Bond) -> list[str]:
    """Its victims that are on their way out: not those that have gone, waited and started again."""
    return [v for v in bond.victims if v in board.holds and board.holds[v].admitted.releasing]


def _hold(board: Board, chosen: Chosen, victims: Sequence[str]) -> None:
    board.bind(chosen.gang.pending.workload, chosen.charge, chosen.spreads, victims=victims)


def restored(board: Board, gang: Gang, rows: Sequence[Assignment]) -> Chosen | None:
    """A held place as a choice; None where it no longer fits the gang, its queue, the nodes or their domains."""
    workload = gang.pending.workload
    sets = {p.name: p for p in workload.pod_sets}
    spreads: dict[str, Spread] = {}
    for row in rows:
        if row.pod_set not in sets or row.flavor not in board.frame.flavors:
            return None
        open_ = board.frame.open_to(sets[row.pod_set], row.flavor)
        if any(
            n not in board.frame.index or not open_[board.frame.index[n]] or n in gang.pending.avoid
            for n in row.nodes
        ):
            return None
        spreads[row.pod_set] = {board.frame.index[n]: count for n, count in row.nodes.items()}
    counts = {p.name: sum(spreads.get(p.name, {}).values()) for p in workload.pod_sets}
    if any(not gang.shape.least[p.name] <= counts[p.name] <= p.count for p in workload.pod_sets):
        return None
    if not _as_asked(board, workload, spreads):
        return None
    flavors = {row.pod_set: row.flavor for row in rows}
    if all(flavors != variant.flavors for variant in gang.shape.variants):
        return None  # its queue allows them no more
    variant = Variant(flavors=flavors, counts=counts)
    charge = board.charge(workload, variant.flavors, variant.counts)
    return Chosen(gang=gang, variant=variant, charge=charge, spreads=spreads, bound=True)


def _as_asked(board: Board, workload: Workload, spreads: Mapping[str, Spread]) -> bool:
    """Whether a place lies in one domain where one is asked, and has one pod a host where that is asked."""
    everywhere = [node for spread in spreads.values() for node in spread]
    asked = [(workload.required, everywhere)]
    for pod_set in workload.pod_sets:
        spread = spreads.get(pod_set.name, {})
        if pod_set.exclusive_host and any(count > 1 for count in spread.values()):
            return False
        asked.append((pod_set.required, list(spread)))
    for level, nodes in asked:
        at = board.snapshot.topology.find(level) if level else None
        if level and (at is None or not _in_one(board.frame.domains[at][nodes])):
            return False
    return True


def _in_one(domains: Numbers) -> bool:
    return bool((domains >= 0).all() and (domains == domains[:1]).all())


def _ready(greedy: Greedy, held: Iterable[Chosen]) -> list[Chosen]:
    """Those whose places are free now, beside each other."""
    free, found = greedy.board.now.free.copy(), []
    for chosen in held:
        if _room(greedy, chosen, free):
            greedy.spend(free, chosen)
            found.append(chosen)
    return found


def _start(
    greedy: Greedy,
    uid: str,
    waiting: dict[str, tuple[Bond, Chosen]],
    *,
    elsewhere: Collection[Chosen] | None,
) -> None:
    """Start a bound gang in its held place, or in another, if it fits now and leaves whole what is held for others.
    `elsewhere`: who could start in theirs, and should find them free, where any other place will do; None = none does.

    Its victims leave for nobody any more then: nothing new is promised on their room, unless they are known to be gone
    soon. Its quota was held, so only use can be in its way: what its queue has borrowed meanwhile is not, though nobody
    may evict it.
    """
    board = greedy.board
    bond, chosen = waiting[uid]
    workload, spreads = chosen.gang.pending.workload, None
    shared = {victim for other, (one, _) in waiting.items() if other != uid for victim in one.victims}
    shared |= board.vacating
    own = [victim for victim in bond.victims if victim in board.leaving and victim not in shared]
    board.unbind(workload, chosen.charge, chosen.spreads)
    for victim in own:
        board.stay(victim)
    blocked = greedy.quota_block(workload, chosen.variant, chosen.charge, (board.now,))
    if (blocked is None or blocked.block is Block.ENTITLEMENT) and not greedy.waits_apart(uid):
        free = np.minimum(board.now.free, board.later.free)
        if _room(greedy, chosen, free):
            spreads = chosen.spreads
        elif elsewhere is not None:
            ready = [one for one in elsewhere if one is not chosen and one.gang.uid in waiting]
            spreads = _other_place(greedy, chosen, free, ready)
    if spreads is None:
        _hold(board, chosen, leaving(board, bond))
    else:
        del waiting[uid]
        greedy.take(Chosen(gang=chosen.gang, variant=chosen.variant, charge=chosen.charge, spreads=spreads))


def _other_place(
    greedy: Greedy, chosen: Chosen, free: Matrix, ready: Collection[Chosen]
) -> dict[str, Spread] | None:
    """A place on what is free (N x R), if there is one beside those in which these could start."""
    board, workload, beside = greedy.board, chosen.gang.pending.workload, greedy.board.now.free.copy()
    for one in ready:
        greedy.spend(beside, one)
    closed = board.closed(chosen.gang.pending.avoid)
    for some in (np.minimum(beside, free), free) if ready else (free,):
        spreads = place(board.frame, some, workload, chosen.variant, closed=closed, limits=board.limits())
        if spreads is not None:
            return spreads
    return None


def _room(greedy: Greedy, chosen: Chosen, free: Matrix) -> bool:
    """Whether the held place is free (N x R)."""
    free = free.copy()
    greedy.spend(free, chosen)
    sets, column = chosen.gang.pending.workload.pod_sets, greedy.board.frame.column
    asked = sorted({column[r] for p in sets for r, n in p.requests.items() if n})
    return bool((free[np.ix_(sorted(chosen.nodes), asked)] >= 0).all())

"""A question in arrays: who is to be placed, on which nodes, who may be evicted for whom.

Nodes that nothing tells apart are cut down to as many as the gangs have pods: more can never be used, and any
answer on others is an answer on these. No other node or victim is left out, so what is infeasible here is
infeasible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from queuer.domain.quota import Charge
from queuer.domain.usage import Usage
from queuer.domain.workload import Workload
from queuer.solver.arrays import Arrays
from queuer.solver.board import Board
from queuer.solver.contested import Reserved, Settled, Standing, Variant
from queuer.solver.frame import Matrix
from queuer.solver.parts import Part, parts_of
from queuer.solver.problem import Assignment, Eviction, Pending
from queuer.solver.victims import Candidate, Prey, Reach


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """A gang to be placed. `bound`: only once the victims have gone. `known`: its place so far, by part and node
    number. `room`: slots by part at most, all victims gone (N). `candidates`: each once for every rule by which it may
    go.
    """

    pending: Pending
    variant: Variant
    charge: Charge
    bound: bool
    parts: Sequence[Part]
    known: Mapping[str, Mapping[int, int]]
    room: Sequence[Matrix]
    reach: Reach | None = None
    candidates: Sequence[Candidate] = ()

    @property
    def workload(self) -> Workload:
        """The gang."""
        return self.pending.workload


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Limits:
    """What those who still run when a reservation starts may take of its nodes: `Reserved` for one question. `asked`:
    with the asked gang, the last item, there; None = nobody is asked about, or it need not leave the place whole.
    """

    start: float
    settled: Mapping[int, Matrix]
    asked: Mapping[int, Matrix] | None
    displacers: frozenset[str]
    lacks: Mapping[int, Matrix]
    takes: Mapping[int, Matrix]

    @classmethod
    def of(cls, reserved: Reserved, number: int | None) -> Limits:
        """Of a reservation. `number`: of the asked gang's variant; None = nobody is asked about."""
        return cls(
            start=reserved.start,
            settled=reserved.settled,
            asked=None if number is None else reserved.asked[number],
            displacers=reserved.displacers,
            lacks=reserved.lacks,
            takes=reserved.takes,
        )

    def at(self, node: int) -> object:
        """Equal for nodes with equal limits; None where there are none."""
        if node not in self.settled:
            return None
        rows = (self.settled, self.asked or {}, self.lacks, self.takes)
        return tuple([row[node].tobytes() if node in row else None for row in rows])


@dataclass(slots=True, eq=False)
class Data:
    """Everything the model needs. `now`, `later`: free amounts (N x R) without the items. `line`: use of the
    queues by which a victim's queue is judged to be above its guarantee. `held`: nodes of standing bonds. `evictions`:
    those of the items so far. `others`: how many items are settled already, the first ones. `limits`: of reservations.
    `modest`: the asked gang, the last item, is to be bound and may evict nobody, so it takes no room or quota for which
    somebody must go who leaves anyway.
    """

    board: Board
    items: list[Item]
    now: Matrix
    later: Matrix
    line: Usage
    prey: Prey
    nodes: list[int] = field(default_factory=list)
    held: set[int] = field(default_factory=set)
    evictions: set[Eviction] = field(default_factory=set)
    others: int = 0
    limits: Sequence[Limits] = ()
    modest: bool = False

    @property
    def two_sheets(self) -> bool:
        """Whether the state with the victims gone differs from now."""
        return self.now is not self.later or any(item.bound for item in self.items)

    def victims(self) -> dict[str, Candidate]:
        """Candidates of all items by uid."""
        return {c.uid: c for item in self.items for c in item.candidates}


def gather(
    *,
    arrays: Arrays,
    now: float,
    settled: Sequence[Settled],
    standing: Sequence[Standing],
    blocked: Mapping[str, frozenset[str]],
    asked: tuple[Pending, Variant, bool] | None = None,
    reserved: Sequence[Limits] = (),
) -> Data:
    """The data of a question. `asked`: the contested gang, its variant, and whether it may be bound."""
    board = Board(arrays, now=now)
    for bond in standing:
        _hold(board, bond)
    board.claimed = board.claimed.copy()
    data = Data(
        board=board,
        items=[],
        now=board.now.free,
        later=board.later.free,
        line=board.now.usage,
        prey=Prey(board),
        others=len(settled),
        limits=reserved,
    )
    for one in settled:
        known = {row.pod_set: _numbers(board, row) for row in one.assignments}
        _add(data, one.pending, one.variant, one.bound, known, blocked)
        data.evictions.update(one.victims)
    if asked is not None:
        _add(data, asked[0], asked[1], asked[2], {}, blocked)
    if asked is None or _has_rights(data, data.items[-1]):
        _open_victims(data)
    else:
        _keep_victims(data, settled)
        data.modest = asked[2] and bool(board.vacating)
    data.held = {n for bond in standing for row in bond.assignments for n in _numbers(board, row)}
    data.line = _line(board)
    _measure(data)
    data.nodes = _distinct(data)
    return data


def _hold(board: Board, one: Standing) -> None:
    workload = one.pending.workload
    spreads = {row.pod_set: dict(_numbers(board, row)) for row in one.assignments}
    flavors = {row.pod_set: row.flavor for row in one.assignments}
    counts = {row.pod_set: row.count for row in one.assignments}
    charge = board.charge(workload, flavors, counts)
    if one.awaits:
        board.keep(workload, charge, spreads)
        return
    gone = [v for v in one.victims if v in board.holds and board.holds[v].admitted.releasing]
    board.bind(workload, charge, spreads, victims=gone)


def _numbers(board: Board, row: Assignment) -> dict[int, int]:
    return {board.frame.index[n]: count for n, count in row.nodes.items() if n in board.frame.index}


def _add(
    data: Data,
    pending: Pending,
    variant: Variant,
    bound: bool,
    known: Mapping[str, Mapping[int, int]],
    blocked: Mapping[str, frozenset[str]],
) -> None:
    board, workload = data.board, pending.workload
    charge = board.charge(workload, variant.flavors, variant.counts)
    closed = board.closed(pending.avoid | blocked.get(workload.uid, frozenset()))
    item = Item(
        pending=pending,
        variant=variant,
        charge=charge,
        bound=bound,
        parts=parts_of(board.frame, workload, variant, closed),
        known=known,
        room=(),
        reach=data.prey.reach(pending, charge) if bound else None,
    )
    data.items.append(item)
    board.claimed.add(workload.queue, charge)
    if not bound:
        board.now.usage.add(workload.queue, charge)
        if board.later is not board.now:
            board.later.usage.add(workload.queue, charge)


def _has_rights(data: Data, item: Item) -> bool:
    """The same as `Prey.has_rights` at its turn: the board knows nothing of this cycle's evictions."""
    if item.reach is None:
        return False
    line = _line(data.board)
    return any(c.going(line) is not None for c in data.prey.candidates(item.reach))


def _line(board: Board) -> Usage:
    """Use of the queues once all that is releasing and the victims of standing bonds have gone."""
    line = board.now.usage.copy()
    for uid, hold in board.holds.items():
        if hold.admitted.releasing or uid in board.leaving:
            line.add(hold.admitted.workload.queue, hold.charge, times=-1)
    return line


def _open_victims(data: Data) -> None:
    data.items = [
        item
        if item.reach is None
        else replace(item, candidates=[c for one in data.prey.candidates(item.reach) for c in one.by_rule])
        for item in data.items
    ]


def _keep_victims(data: Data, settled: Sequence[Settled]) -> None:
    """Nobody else's work is lost for a gang that evicts nobody itself; for whom those go who leave is open as far as
    rights go, and whom nobody needs any more may stay.
    """
    going = {eviction.uid for one in settled for eviction in one.victims}
    kept = [
        replace(item, candidates=_of_these(data, item, one, going))
        for item, one in zip(data.items, settled, strict=False)
    ]
    data.items = [*kept, *data.items[data.others :]]


def _of_these(data: Data, item: Item, settled: Settled, going: set[str]) -> list[Candidate]:
    own = [data.prey.settled(eviction) for eviction in settled.victims]
    others = going.difference(candidate.uid for candidate in own)
    if item.reach is None or not others:
        return own
    among = (c for c in data.prey.candidates(item.reach) if c.uid in others)
    return [*own, *(way for candidate in among for way in candidate.by_rule)]


def _measure(data: Data) -> None:
    """Slots at most: for a gang that starts now on what is free in both states, else with every victim gone."""
    most = data.later.copy()
    for candidate in data.victims().values():
        for node, row in candidate.hold.rows.items():
            most[node] += row
    least = np.minimum(data.now, most)
    data.items = [
        replace(item, room=[_room(item, p, least, most) for p in item.parts]) for item in data.items
    ]


def _room(item: Item, part: Part, least: Matrix, most: Matrix) -> Matrix:
    slots: Matrix = np.where(part.open, part.need.slots(most if item.bound else least), 0)
    return slots


def _distinct(data: Data) -> list[int]:
    """Numbers of the nodes that matter, alike ones at most as often as they can be used."""
    parts = [part for item in data.items for part in item.parts]
    room = [slots for item in data.items for slots in item.room]
    if not parts:
        return []
    columns = np.unique(np.concatenate([p.need.columns for p in parts]))
    special = {n for c in data.victims().values() for n in c.hold.rows}
    known = {n for item in data.items for spread in item.known.values() for n in spread}
    taken = taken_nodes(data)
    levels = data.board.frame.domains[:-1]
    usable = np.flatnonzero(np.any([r > 0 for r in room], axis=0)).tolist()
    count: dict[object, int] = {}
    kept = []
    for node in sorted(usable, key=lambda n: (n not in known, n)):
        uses = [bool(slots[node]) for slots in room]
        key = (
            tuple(data.now[node, columns].tolist()),
            tuple(data.later[node, columns].tolist()),
            tuple(int(level[node]) for level in levels),
            tuple(uses),
            tuple(one.at(node) for one in data.limits),
            tuple(data.board.vacated[node, columns].tolist()) if data.modest else (),
            node in taken,
            tuple(data.board.frame.alloc[node].tolist()),
            node if node in special else -1,
        )
        most = sum(part.count for part, used in zip(parts, uses, strict=True) if used)
        if count.get(key, 0) < most or node in known:
            count[key] = count.get(key, 0) + 1
            kept.append(node)
    return sorted(kept)


def taken_nodes(data: Data) -> dict[int, list[str]]:
    """Uids of the admitted workloads that stay on each node that holds any (their unbound pods by their pins)."""
    found: dict[int, list[str]] = {}
    for uid, hold in data.board.holds.items():
        for node in () if hold.admitted.releasing else {*hold.bound, *hold.loose}:
            found.setdefault(node, []).append(uid)
    return found

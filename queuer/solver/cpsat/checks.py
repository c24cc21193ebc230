"""What rows do not say: an order in which the victims may go, guarantees that are not lent, and how pods land.

The first two only get worse, or only better, with more victims, so a set that fails is excluded with all sets that must
fail with it; nothing that is permitted is ever cut off. Of places in which pods do not land those with the same victims
or fewer are excluded: what is infeasible then proves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from queuer.solver.cpsat.model import Model
from queuer.solver.frame import Matrix
from queuer.solver.parts import Spread, safe
from queuer.solver.problem import Eviction
from queuer.solver.victims import Candidate

Going = list[tuple[Candidate, str]]
"""Victims with their beneficiaries."""


def chosen(model: Model, values: Sequence[int]) -> Going:
    """The evictions of a solution, each in the name for which it says so."""
    return [
        (candidate, item.workload.uid)
        for item in model.data.items
        for candidate in item.candidates
        if values[model.evicted(candidate, item)]
    ]


def in_order(model: Model, evicted: Going) -> tuple[Eviction, ...] | None:
    """The evictions in an order in which each is permitted; None = the set is cut off, there is no such order.

    Found from the end: who may go last with all others gone, may be last in any order. Victims without a
    condition go after all others.
    """
    line = model.data.line.copy()
    bounded = [pair for pair in evicted if pair[0].lines is not None]
    for candidate, _ in bounded:
        line.add(candidate.hold.admitted.workload.queue, candidate.hold.charge, times=-1)
    backwards: Going = []
    stuck = bounded
    while stuck:
        left: Going = []
        for pair in stuck:
            candidate = pair[0]
            line.add(candidate.hold.admitted.workload.queue, candidate.hold.charge)
            if candidate.permitted(line):
                backwards.append(pair)
                continue
            line.add(candidate.hold.admitted.workload.queue, candidate.hold.charge, times=-1)
            left.append(pair)
        if len(left) == len(stuck):
            model.rows.row(_alike(model, stuck), high=len(stuck) - 1)
            return None
        stuck = left
    order = [*reversed(backwards), *(pair for pair in evicted if pair[0].lines is None)]
    return tuple(candidate.evicted_for(uid) for candidate, uid in order)


def _alike(model: Model, stuck: Going) -> dict[int, int]:
    """The variables of these victims, for whichever gang they would go on the same condition."""
    conditions = {candidate.uid: candidate.lines for candidate, _ in stuck}
    return {
        model.evicted(c, item): 1
        for item in model.data.items
        for c in item.candidates
        if c.uid in conditions and c.lines == conditions[c.uid]
    }


def within_quota(model: Model, evicted: Going) -> bool:
    """Whether every gang has quota with these gone; if not, at least one more victim is asked for."""
    data = model.data
    if not data.two_sheets:
        return True
    usage = data.board.later.usage.copy()
    for item in data.items:
        if not item.bound:
            usage.add(item.workload.queue, item.charge, times=-1)
    for candidate, _ in evicted:
        usage.add(candidate.hold.admitted.workload.queue, candidate.hold.charge, times=-1)
    for i, item in enumerate(data.items):
        if data.modest and i == data.others:
            for hold in map(data.board.holds.__getitem__, data.board.vacating):
                usage.add(hold.admitted.workload.queue, hold.charge)
        if not usage.fits(item.workload.queue, item.charge):
            gone = {candidate.uid for candidate, _ in evicted}
            terms: dict[int, int] = {}
            for uid in data.victims():
                if uid not in gone:
                    terms.update(model.gone(uid))
            model.rows.row(terms, low=1)
            return False
        usage.add(item.workload.queue, item.charge)
    return True


def places_hold(model: Model, values: Sequence[int], evicted: Going) -> bool:
    """Whether the places are free once these have gone, unbound pods of others again at their worst."""
    data = model.data
    sheet = data.board.later.copy()
    for candidate, _ in evicted:
        sheet.release(candidate.hold)
    asked = sheet.free * 0
    for (i, p, node), variable in model.x.items():
        asked[node] += data.items[i].parts[p].row * values[variable]
    touched = asked > 0
    return bool((asked[touched] <= sheet.free[touched]).all())


def sets_land(model: Model, values: Sequence[int], evicted: Going) -> bool:
    """Whether the pod sets of the asked gang land beside each other if nobody else does. If not, other hosts are asked
    for, or that these are freer.
    """
    data, asked = model.data, model.data.others
    if asked == len(data.items) or len(data.items[asked].parts) < 2:
        return True
    item, frame = data.items[asked], data.board.frame
    found: dict[str, Spread] = {part.name: {} for part in item.parts}
    for (i, p, node), variable in model.x.items():
        if i == asked and values[variable]:
            found[item.parts[p].name][node] = values[variable]
    free = _vacated(model, values, evicted) if item.bound else frame.bound_free
    if safe(frame, free, item.parts, found):
        return True
    terms: dict[int, int] = {}
    for p, part in enumerate(item.parts):
        hosts, elsewhere = list(found[part.name]), model.rows.boolean()
        terms |= {elsewhere: 1, **{model.below(model.x[asked, p, node], 1): 1 for node in hosts}}
        model.rows.row({**model.pods(asked, p, hosts), elsewhere: 1}, high=part.count)
    if item.bound:
        terms |= _freer(model, values, evicted, frozenset().union(*found.values()))
    model.rows.row(terms, low=1)
    return False


def _vacated(model: Model, values: Sequence[int], evicted: Going) -> Matrix:
    """The nodes once all have gone who leave, with all bound gangs in place but the asked one (N x R)."""
    data, board = model.data, model.data.board
    free = board.frame.bound_free.copy()
    releasing = {uid for uid, hold in board.holds.items() if hold.admitted.releasing}
    for uid in releasing | board.leaving | {candidate.uid for candidate, _ in evicted}:
        for node, row in board.holds[uid].bound.items():
            free[node] += row
    for place in board.held.values():
        for node, row in place:
            free[node] -= row
    for (i, p, node), variable in model.x.items():
        if i != data.others and data.items[i].bound:
            free[node] -= data.items[i].parts[p].row * values[variable]
    return free


def _freer(model: Model, values: Sequence[int], evicted: Going, hosts: Collection[int]) -> dict[int, int]:
    """Terms of which one is 1 only where more victims have gone from these hosts, or other bound gangs have fewer pods
    there.
    """
    data, gone = model.data, {candidate.uid for candidate, _ in evicted}
    terms = {
        model.below(variable, values[variable]): 1
        for (i, _, node), variable in model.x.items()
        if i != data.others and data.items[i].bound and node in hosts and values[variable]
    }
    for uid, candidate in data.victims().items():
        if uid not in gone and not candidate.hold.rows.keys().isdisjoint(hosts):
            terms.update(model.gone(uid))
    return terms


def keep_apart(model: Model, values: Sequence[int], evicted: Going, together: Collection[str]) -> None:
    """These gangs do not all land as they lie: one of them has fewer pods somewhere, or more victims have gone from
    their hosts.
    """
    gone, hosts, terms = {candidate.uid for candidate, _ in evicted}, set[int](), dict[int, int]()
    for (i, _, node), variable in model.x.items():
        if values[variable] and model.data.items[i].workload.uid in together:
            hosts.add(node)
            terms[model.below(variable, values[variable])] = 1
    for uid, candidate in model.data.victims().items():
        if uid not in gone and not hosts.isdisjoint(candidate.hold.rows):
            terms.update(model.gone(uid))
    model.rows.row(terms, low=1)

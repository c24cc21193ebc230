"""The levels of DESIGN 3.4 as sums to be minimised, in their order; the same figures as in `score`.

Flavors are settled with the sizes, so there is no pass for them. Fullness is a sum of squares in the score; here it
is linear: pods go where the most is used already. The caller compares by the score.
"""

from __future__ import annotations

from queuer.solver.cpsat.data import taken_nodes
from queuer.solver.cpsat.model import Model

EVICTION_LEVELS = 4
"""Figures in the cost of a victim."""
GANGS = 2
"""The one of them that counts victims."""


def eviction_level(model: Model, level: int) -> dict[int, int]:
    """A level of the victims' cost: see `queuer.solver.score.eviction_cost`."""
    return {
        model.evicted(candidate, item): candidate.cost[level]
        for item in model.data.items
        for candidate in item.candidates
    }


def idle_bonds(model: Model) -> dict[int, int]:
    """Bound gangs with no victim of their own: victims that serve two are to be named once for each gang."""
    total: dict[int, int] = {}
    for _, item in model.items():
        own = {model.evicted(c, item): 1 for c in item.candidates}
        if item.bound and own:
            idle = model.rows.boolean()
            model.rows.row({**own, idle: 1}, low=1)
            total[idle] = 1
    return total


def shared(model: Model) -> dict[int, int]:
    """How many parts share hosts with others: pods of one shape on hosts of their own always land, whatever
    kube-scheduler picks (DESIGN 3.5)."""
    on: dict[int, list[int]] = {}
    for (_, _, node), variable in model.x.items():
        on.setdefault(node, []).append(variable)
    total: dict[int, int] = {}
    for pods in on.values():
        if len(pods) < 2:
            continue
        guests = []
        for variable in pods:
            guest = model.rows.boolean()
            model.rows.row({variable: 1, guest: -model.rows.bounds[variable][1]}, high=0)
            guests.append(guest)
        more = model.rows.variable(0, len(guests) - 1)
        model.rows.row({**dict.fromkeys(guests, 1), more: -1}, high=1)
        total[more] = 1
    return total


def width(model: Model) -> dict[int, int]:
    """Levels wider than asked, times pods: each gang, and each part with a level of its own."""
    total: dict[int, int] = {}
    find = model.data.board.frame.snapshot.topology.find
    last = len(model.data.board.frame.domains) - 1
    for i, item in model.items():
        whole = (item.workload.required, item.workload.preferred, list(range(len(item.parts))))
        groups = [whole]
        for p, part in enumerate(item.parts):
            own = next(s for s in item.workload.pod_sets if s.name == part.name)
            groups.append((own.required, own.preferred, [p]))
        for required, preferred, parts in groups:
            level = required or preferred
            at = find(level) if level else None
            if at is None:
                continue
            count = sum(item.parts[p].count for p in parts)
            inner: int | None = None
            aim = last if required else at
            for index in range(aim, -1, -1):
                inner = _reached(model, i, parts, index, inner)
                total[inner] = total.get(inner, 0) - count
    return total


def _reached(model: Model, item: int, parts: list[int], level: int, inner: int | None) -> int:
    """1 only if the pods are in one domain of this level or of a narrower one."""
    inside = model.inside(item, parts, level)
    reached = model.rows.boolean()
    row = {reached: 1, **dict.fromkeys(inside.values(), -1)}
    if inner is not None:
        row[inner] = -1
    model.rows.row(row, high=0)
    return reached


def broken_up(model: Model) -> dict[int, int]:
    """Hosts and domains that hold no workload, as a sum to be minimised (negative)."""
    data = model.data
    taken = taken_nodes(data)
    victims = data.victims()
    whole: dict[int, int | None] = {}
    by_node: dict[int, list[int]] = {}
    for (_, _, node), variable in model.x.items():
        by_node.setdefault(node, []).append(variable)
    for node in data.nodes:
        holders = taken.get(node, [])
        if node in data.held or any(uid not in victims for uid in holders):
            continue
        empty = model.rows.boolean()
        whole[node] = empty
        for variable in by_node.get(node, ()):
            most = model.rows.bounds[variable][1]
            model.rows.row({variable: 1, empty: most}, high=most)
        for uid in holders:
            model.rows.row({empty: 1, **model.gone(uid, times=-1)}, high=0)
    total = {empty: -1 for empty in whole.values() if empty is not None}
    for level in data.board.frame.domains[:-1]:
        members: dict[int, list[int]] = {}
        for node, domain in enumerate(level.tolist()):
            members.setdefault(domain, []).append(node)
        modelled = set(data.nodes)
        for domain, nodes in sorted(members.items()):
            mine = [n for n in nodes if n in modelled]
            lost = any(n not in whole if n in modelled else n in taken or n in data.held for n in nodes)
            if domain < 0 or lost or not mine:
                continue
            empty = model.rows.boolean()
            for node in mine:
                model.rows.row({empty: 1, whole[node]: -1}, high=0)  # type: ignore[dict-item]
            total[empty] = -1
    return total


def looseness(model: Model) -> dict[int, int]:
    """Pods times what is free on their node before, in thousandths: the fullest nodes first."""
    frame = model.data.board.frame
    total: dict[int, int] = {}
    for (i, p, node), variable in model.x.items():
        part = model.data.items[i].parts[p]
        free = sum(
            max(0, int(model.data.now[node, c])) * 1000 // max(1, int(frame.alloc[node, c]))
            for c in part.need.columns.tolist()
        )
        total[variable] = free
    return total

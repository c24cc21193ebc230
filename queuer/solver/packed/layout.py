"""From counts back to nodes: which gang goes where, pod by pod, the largest pods first.

On a leaf whose sizes divide each other any order from large to small succeeds; on a single node there is no choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from queuer.solver.frame import Matrix
from queuer.solver.order import Gang
from queuer.solver.outcome import Chosen
from queuer.solver.packed.sums import Sums
from queuer.solver.parts import Spread

Pool = list[tuple[str, str, int]]
"""Pods: gang, pod set ("" = all pods of the gang), count."""


def laid_out(
    sums: Sums,
    counts: Mapping[tuple[int, int], int],
    flows: Mapping[tuple[int, int], int],
    before: Mapping[str, Chosen],
) -> dict[str, Chosen]:
    """Places for the gangs that are counted, by option and spot; `flows`: pods sent down to a spot, by part.

    In a family those picked `before` go first, then the oldest. Gangs whose pods find no node are left out.
    """
    found: dict[str, Chosen] = {}
    pools: dict[tuple[int, int], Pool] = {}
    for gang, number, at in _members(sums, counts, before):
        option = sums.options[number]
        found[gang.uid] = Chosen(gang=gang, variant=option.variant, charge=option.charge, spreads={})
        for (part, name), count in option.pods.items():
            pools.setdefault((at, part), []).append((gang.uid, name, count))
    spreads: dict[str, dict[str, Spread]] = {uid: {} for uid in found}
    free = sums.free.copy()
    for number, spot in enumerate(sums.spots):
        by_size = sorted(range(len(sums.parts)), key=lambda p: -int(sums.parts[p].row[spot.size or 0]))
        for part in by_size:
            pool = sorted(pools.pop((number, part), ()), key=lambda pods: -pods[2])
            if spot.children:
                left = {c: flows.get((c, part), 0) for c in spot.children}
                _send_down(pool, part, left, pools)
                continue
            for uid, name, count in pool:
                if not _put(sums, number, part, count, free, spreads[uid].setdefault(name, {})):
                    found.pop(uid, None)
    return {uid: replace(chosen, spreads=_by_name(chosen, spreads[uid])) for uid, chosen in found.items()}


def _members(
    sums: Sums, counts: Mapping[tuple[int, int], int], before: Mapping[str, Chosen]
) -> Iterator[tuple[Gang, int, int]]:
    """Which gangs of a family go: (gang, option, spot)."""
    lines = [sorted(f, key=lambda g: (g.uid not in before, g.seniority), reverse=True) for f in sums.families]
    for (number, spot), count in sorted(counts.items()):
        for _ in range(count):
            yield lines[sums.options[number].family].pop(), number, spot


def _send_down(pool: Pool, part: int, left: dict[int, int], pools: dict[tuple[int, int], Pool]) -> None:
    """Each gang's pods to the child to which most are still to be sent, so that few gangs are torn apart."""
    for uid, name, count in pool:
        while count:
            child = max(left, key=lambda c: left[c])
            some = min(count, left[child])
            if not some:
                break
            pools.setdefault((child, part), []).append((uid, name, some))
            left[child] -= some
            count -= some


def _put(sums: Sums, spot: int, part: int, count: int, free: Matrix, spread: Spread) -> bool:
    """Pods on the nodes of a leaf: on one node if one holds all, else on the fullest; False = not all have room."""
    nodes, shape = sums.spots[spot].nodes, sums.parts[part]
    slots = shape.slots(free[nodes])
    whole = np.flatnonzero(slots >= count)
    usable = whole if len(whole) else np.flatnonzero(slots)
    for at in usable[np.argsort(slots[usable], kind="stable")].tolist():
        some, node = min(count, int(slots[at])), int(nodes[at])
        spread[node] = spread.get(node, 0) + some
        free[node] -= shape.row * some
        count -= some
        if not count:
            return True
    return False


def _by_name(chosen: Chosen, places: Mapping[str, Spread]) -> Mapping[str, Spread]:
    """Where all pods of a gang are on one node, that node for each pod set."""
    if "" not in places:
        return places
    return {name: dict.fromkeys(places[""], count) for name, count in chosen.variant.counts.items() if count}

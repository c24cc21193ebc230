"""From pods on leaves to pods of gangs on nodes.

First the pods of a leaf are put on its nodes: those that are there stay if that leaves room for the rest, else all are
put anew, the largest first, which never fails where sizes divide each other, one resource rules and the rows of the
leaf hold. Then gangs take their pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from queuer.solver.contested import Laid
from queuer.solver.cpsat.tree import Class, Tree
from queuer.solver.frame import Mask, Matrix
from queuer.solver.parts import Spread

Pods = dict[int, Spread]
"""Pods by kind and node."""
Homes = dict[str, int | None]
"""The domain of each gang; None = anywhere."""


def on_nodes(tree: Tree, values: Sequence[int]) -> tuple[Pods, list[int]]:
    """Pods of each kind by node, and the nodes of leaves on which they found no room."""
    found: Pods = {k: {} for k in range(len(tree.kinds))}
    stuck: list[int] = []
    before = _as_they_lie(tree)
    there: dict[int, dict[int, int]] = {}
    for (kind, leaf), variable in tree.z.items():
        if values[variable]:
            there.setdefault(leaf, {})[kind] = values[variable]
    for leaf, counts in there.items():
        placed = _filled(tree, leaf, counts, _kept(tree, leaf, counts, before)) or _filled(
            tree, leaf, counts, {}
        )
        if placed is None:
            stuck += tree.leaves[leaf].tolist()
            continue
        for kind, spread in placed.items():
            found[kind].update(spread)
    return found, stuck


def _as_they_lie(tree: Tree) -> Pods:
    found: Pods = {k: {} for k in range(len(tree.kinds))}
    for one in tree.classes:
        for member in () if one.asked else one.members:
            for kind, node, count in tree.pods_of(one, member):
                found[kind][node] = found[kind].get(node, 0) + count
    return found


def _kept(tree: Tree, leaf: int, counts: Mapping[int, int], before: Pods) -> Pods:
    """What stays on the nodes of a leaf."""
    kept: Pods = {}
    nodes = tree.leaves[leaf].tolist()
    for kind, count in counts.items():
        kept[kind], left = {}, count
        for node in nodes:
            here = min(left, before[kind].get(node, 0))
            if here:
                kept[kind][node] = here
                left -= here
    return kept


def _filled(tree: Tree, leaf: int, counts: Mapping[int, int], kept: Pods) -> Pods | None:
    """Largest pods first, those that start before those that are bound, each on the fullest nodes that take it."""
    found = {k: dict(kept.get(k, {})) for k in counts}
    if all(sum(spread.values()) == counts[k] for k, spread in found.items()):
        return found
    nodes = tree.leaves[leaf]
    at = {int(n): i for i, n in enumerate(nodes)}
    now, later = tree.question.now[nodes].copy(), tree.question.later[nodes].copy()
    for k, spread in found.items():
        for node, count in spread.items():
            _spend(tree, k, now, later, at[node], count)
    scale = np.maximum(tree.question.frame.alloc.max(axis=0, initial=1), 1)

    def size(kind: int) -> tuple[float, bool, int]:
        return (-float((tree.kinds[kind].row / scale).max()), not tree.kinds[kind].starts, kind)

    for k in sorted(counts, key=size):
        kind, left = tree.kinds[k], counts[k] - sum(found[k].values())
        if not left:
            continue
        slots = kind.need.slots(np.minimum(now, later) if kind.starts else later)
        if kind.need.exclusive:
            slots[[at[n] for n in found[k]]] = 0
        for i in np.lexsort((nodes, kind.need.slots(now), slots)).tolist():
            here = min(left, int(slots[i]))
            if here:
                found[k][int(nodes[i])] = found[k].get(int(nodes[i]), 0) + here
                _spend(tree, k, now, later, i, here)
                left -= here
        if left:
            return None
    return found


def _spend(tree: Tree, kind: int, now: Matrix, later: Matrix, at: int, count: int) -> None:
    later[at] -= tree.kinds[kind].row * count
    if tree.kinds[kind].starts:
        now[at] -= tree.kinds[kind].row * count


def by_gang(tree: Tree, values: Sequence[int], pods: Pods) -> dict[str, dict[str, Spread]] | None:
    """Places by uid and pod set. None = domains overlap in a way that is not nested."""
    homes = _homes(tree, values)
    members = [
        (one, member)
        for one in sorted(tree.classes, key=lambda one: -one.level)
        for member in one.members
        if member.uid in homes
    ]
    staying = sorted(members, key=lambda pair: not _stays(tree, pair[0], pair[1], homes, pods))
    for order in (staying, members):  # those of the narrowest domains first never fails
        found = _shared_out(tree, order, homes, pods)
        if found is not None:
            return found
    return None


def _homes(tree: Tree, values: Sequence[int]) -> Homes:
    """A domain for each gang: the one that it has if a copy stays there."""
    found: Homes = {}
    for c, one in enumerate(tree.classes):
        if one.level < 0:
            found.update((member.uid, None) for member in one.members)
            continue
        copies = {d: values[v] for (k, d), v in tree.y.items() if k == c and values[v]}
        moving = []
        for member in one.members:
            nodes = [n for spread in member.spreads.values() for n in spread]
            home = int(tree.question.frame.domains[one.level][nodes[0]]) if nodes else -1
            if copies.get(home):
                copies[home] -= 1
                found[member.uid] = home
            else:
                moving.append(member.uid)
        rest = [d for d, n in copies.items() for _ in range(n)]
        found.update(zip(moving, rest, strict=True))
    return found


def _stays(tree: Tree, one: Class, member: Laid, homes: Homes, pods: Pods) -> bool:
    lies, home = tree.pods_of(one, member), homes[member.uid]
    inside = home is None or all(tree.question.frame.domains[one.level][n] == home for _, n, _ in lies)
    return bool(lies) and inside and all(pods[k].get(n, 0) >= count for k, n, count in lies)


def _shared_out(
    tree: Tree, order: Sequence[tuple[Class, Laid]], homes: Homes, pods: Pods
) -> dict[str, dict[str, Spread]] | None:
    left = {k: dict(spread) for k, spread in pods.items()}
    placed: dict[str, dict[str, Spread]] = {}
    for one, member in order:
        domain = homes[member.uid]
        inside = None if domain is None else tree.question.frame.domains[one.level] == domain
        taken: Pods = {}
        lies = tree.pods_of(one, member)
        for kind, count in one.pods.items():
            home = {n: pods_there for k, n, pods_there in lies if k == kind}
            got = _take(left[kind], count, inside, home)
            if got is None:
                return None
            taken[kind] = got
        placed[member.uid] = _named(tree, one, member, taken)
    return placed


def _take(left: Spread, count: int, inside: Mask | None, home: Mapping[int, int]) -> Spread | None:
    """Pods off what is left: as they lie first, then on a node that holds the rest, then where most are left."""
    found: Spread = {}

    def move(node: int, most: int) -> None:
        here = min(count, most, left.get(node, 0))
        if here > 0 and (inside is None or inside[node]):
            found[node] = found.get(node, 0) + here
            left[node] -= here

    for node, most in home.items():
        move(node, most)
        count -= found.get(node, 0)
    if not count:
        return found
    usable = [n for n in left if left[n] and (inside is None or inside[n])]
    while count and usable:
        node = min(usable, key=lambda n: (left[n] < count, abs(left[n] - count), n))
        before = found.get(node, 0)
        move(node, count)
        count -= found[node] - before
        usable.remove(node)
    return None if count else found


def _named(tree: Tree, one: Class, member: Laid, taken: Pods) -> dict[str, Spread]:
    """By pod set."""
    sets = [p for p in member.workload.pod_sets if member.variant.counts[p.name]]
    if one.whole:
        node = next(iter(next(iter(taken.values()))))
        return {p.name: {node: member.variant.counts[p.name]} for p in sets}
    found: dict[str, Spread] = {}
    for pod_set in sets:
        spread = taken[tree.kinds_of(member)[pod_set.name]]
        count, found[pod_set.name] = member.variant.counts[pod_set.name], {}
        for node in sorted(spread):
            here = min(count, spread[node])
            if here:
                found[pod_set.name][node] = here
                spread[node] -= here
                count -= here
    return found

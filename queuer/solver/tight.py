"""Where pods of earlier cycles may lie once they have landed: on the fullest nodes, which leaves others most room.

Until then they count on every node of their pin (see `Sheet`). Who would fit beside them in this way has to wait for
seconds as a rule, and nobody needs to lose work for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from queuer.solver.frame import Loose, Matrix, summed
from queuer.solver.sheet import Hold

PROMPT = 60.0
"""Seconds since a start in which its pods are expected to land. Nobody waits for those that have not, whatever stops
them; the controller gives them up in its own time.
"""


def lying_tight(
    holds: Sequence[Hold], free: Mapping[int, Matrix], *, now: float
) -> dict[str, Mapping[int, Matrix]]:
    """Amounts by uid and node number (vectors of R). `free`: before any of them has landed, by node. Those that find no
    place this way, or are not prompt, count on all their nodes as before.
    """
    left = dict(free)
    found: dict[str, list[tuple[int, Matrix]]] = {}
    late = {hold.admitted.workload.uid for hold in holds if now - hold.admitted.since > PROMPT}
    parts = [(hold.admitted.workload.uid, *part) for hold in holds for part in _parts(hold)]
    for uid, loose, hosts in sorted(parts, key=lambda part: (len(part[2]), part[0])):
        placed = None if uid in late else _placed(loose, hosts, left)
        rows = found.setdefault(uid, [])
        if placed is None:
            rows += [(node, loose.worst(free[node])) for node in hosts]
            continue
        for node, count in placed.items():
            left[node] = left[node] - loose.row * count
            rows.append((node, loose.row * count))
    return {uid: summed(rows) for uid, rows in found.items()}


def _parts(hold: Hold) -> Iterable[tuple[Loose, list[int]]]:
    """Its pods that have still to land, with the nodes that they may come to."""
    hosts: dict[int, list[int]] = {}
    parts: dict[int, Loose] = {}
    for node, there in hold.loose.items():
        for loose in there:
            parts[id(loose)] = loose
            hosts.setdefault(id(loose), []).append(node)
    return [(loose, hosts[key]) for key, loose in parts.items()]


def _placed(loose: Loose, hosts: Sequence[int], free: Mapping[int, Matrix]) -> dict[int, int] | None:
    """Pods by node: as many as fit on the fullest, then on the next."""
    slots = {node: int(loose.need.slots(free[node][None, :])[0]) for node in hosts}
    found: dict[int, int] = {}
    missing = loose.count
    for node in sorted((node for node, n in slots.items() if n), key=slots.__getitem__):
        if missing:
            found[node] = min(missing, slots[node])
            missing -= found[node]
    return None if missing else found

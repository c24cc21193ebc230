"""Whether pods land for certain inside their pins, whatever kube-scheduler picks (DESIGN 3.5).

Pods that are alike land if their hosts have slots enough after the worst that their rivals can do. Two lower
bounds of what is left are used, and the better one counts: every rival sends each host all that fits there;
or each rival pod destroys as many slots as it ever can. Rivals that are pinned to one host are simply taken
off it, and if they are of an earlier wave others find them there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from queuer.solver.frame import Matrix, Need


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """Pods of one set of one gang that may land on any of `hosts` (node numbers). `wave`: all lower ones have landed
    before they come.
    """

    uid: str
    count: int
    need: Need
    row: Matrix
    hosts: frozenset[int]
    wave: int = 0


def lands(group: Group, rivals: Iterable[Group], free: Matrix) -> bool:
    """Whether the group finds its slots after the worst choice of all rivals, which land for certain themselves.

    `free`: before any of them (N x R).
    """
    near = [r for r in rivals if r is not group and r.count and not r.hosts.isdisjoint(group.hosts)]
    hosts = sorted(group.hosts)
    at = {host: i for i, host in enumerate(hosts)}
    fixed = [(at[next(iter(r.hosts))], r) for r in near if len(r.hosts) == 1]
    loose = [r for r in near if len(r.hosts) > 1]
    left = _without(free[hosts], fixed)
    room = np.minimum(group.need.slots(left), group.count)
    if int(room.sum()) < group.count:
        return False
    if not loose or _each_harms(group, loose, room):
        return True
    worst = left
    for wave in sorted({r.wave for r in loose}):
        found = _without(free[hosts], [(i, r) for i, r in fixed if r.wave < wave])
        for rival in (r for r in loose if r.wave == wave):
            shared = [at[h] for h in rival.hosts if h in at]
            fits = np.minimum(rival.need.slots(found[shared]), rival.count)
            worst[shared] -= fits[:, None] * rival.row
    return int(np.minimum(group.need.slots(worst), group.count).sum()) >= group.count


def _without(free: Matrix, fixed: Iterable[tuple[int, Group]]) -> Matrix:
    """What is free (rows by host) once these have come, each to its only host."""
    left = free.copy()
    for row, rival in fixed:
        left[row] -= rival.row * (min(rival.count, 1) if rival.need.exclusive else rival.count)
    return left


def _each_harms(group: Group, rivals: Sequence[Group], room: Matrix) -> bool:
    harm = 0
    for rival in rivals:
        asked = rival.row[group.need.columns]
        per_pod = int(np.max(-(-asked // group.need.amounts), initial=0))
        harm += rival.count * per_pod
    return int(room.sum()) - harm >= group.count

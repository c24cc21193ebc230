"""What the nodes tell a waiting gang: the domain that comes closest, what it lacks, who holds it, and why the others do
not count.

Gangs that placement cannot tell apart share the answer; sums over nodes are taken once for each kind of pod.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuer.domain.nodes import Toleration
from queuer.domain.quantity import format_resources
from queuer.domain.reasons import Exclusion, Reason, Token
from queuer.domain.workload import PodSet, Workload
from queuer.solver.board import Board
from queuer.solver.capacity import Part, parts_of
from queuer.solver.contested import Variant
from queuer.solver.explain.quota import most, workload
from queuer.solver.frame import Mask, Matrix, well

NOBODY_BEFORE = (True, 2**31)
"""The rank of a gang that no reservation binds."""
ANYTHING = (Toleration(operator="Exists"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Closest:
    """The pod set that is shortest of room, with the domain of level `at` that has most slots for it, and these slots.

    `domain`: its number; -1 where there is none, or no level and all nodes count together.
    """

    part: Part
    pod_set: PodSet
    at: int | None
    domain: int
    most: int


class PlaceWords:
    """The nodes of one board in words."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._sums: dict[object, tuple[Part, int, int]] = {}
        self._tainted: dict[object, tuple[int, int]] = {}

    @cached_property
    def _free(self) -> Matrix:
        """Free now and once all victims have gone, reservations aside (N x R)."""
        return np.minimum(self._board.now.free, self._board.later.free)

    @cached_property
    def _on_node(self) -> Mapping[int, Sequence[str]]:
        """Uids of what is admitted, by node."""
        found: dict[int, list[str]] = {}
        for uid, hold in self._board.holds.items():
            for node in hold.rows:
                found.setdefault(node, []).append(uid)
        return found

    def closest(
        self,
        job: Workload,
        variant: Variant,
        avoid: frozenset[str],
        *,
        idle: bool = False,
        free: Matrix | None = None,
    ) -> Closest | None:
        """None: there is nothing to place. `idle`: were every node empty and well; `free`: were this free (N x R)."""
        board = self._board
        kept = free is None
        if free is None:
            free = board.frame.alloc if idle else self._free
        closed = None if idle else board.closed(avoid)
        level = board.snapshot.topology.find(job.required) if job.required else None
        best: Closest | None = None
        for part in parts_of(board.frame, job, variant, closed, idle=idle):
            at = max((n for n in (part.required, level) if n is not None), default=None)  # the narrower
            domain, slots = self._largest(part, at, free, known=idle if kept and closed is None else None)
            if best is None or slots / part.count < best.most / best.part.count:
                pod_set = next(p for p in job.pod_sets if p.name == part.name)
                best = Closest(part=part, pod_set=pod_set, at=at, domain=domain, most=slots)
        return best

    def fits(
        self, job: Workload, variant: Variant, avoid: frozenset[str], *, form: int, idle: bool = False
    ) -> bool:
        """Whether there is a place, reservations aside. Identical pods fit where there are slots enough."""
        if len(job.pod_sets) == 1:
            closest = self.closest(job, variant, avoid, idle=idle)
            return closest is None or closest.most >= closest.part.count
        board = self._board
        floor = board.idle if idle else board.floor_now(job, rank=NOBODY_BEFORE)
        return floor.place(job, variant, form=form, avoid=avoid).spreads is not None

    def _largest(self, part: Part, at: int | None, free: Matrix, *, known: bool | None) -> tuple[int, int]:
        """The domain with most slots, and how many. `known`: under which the answer may be kept; None = not at all."""
        key = (id(part.need), id(part.open), at, known)
        if known is None or key not in self._sums:
            slots = np.where(part.open, part.need.slots(free), 0)
            domain, total = (-1, int(slots.sum())) if at is None else _largest(self._numbers(at), slots)
            if known is None:
                return domain, total
            self._sums[key] = (part, domain, total)  # the part keeps alive what its ids stand for
        return self._sums[key][1:]

    def _numbers(self, at: int) -> NDArray[np.intp]:
        return self._board.frame.domains[at]

    def lack(self, found: Closest) -> Reason:
        """What the closest domain lacks."""
        frame, part, at = self._board.frame, found.part, found.at
        per = format_resources({r: n for r, n in found.pod_set.requests.items() if r != "pods" and n})
        each = ", ".join(f"{amount} {resource}" for resource, amount in per.items()) or "1 pod"
        missing = max(0, part.count - found.most)
        params: dict[str, Any] = {
            "podSet": part.name, "count": part.count, "per": per, "fits": found.most, "missing": missing,
        }  # fmt: skip
        where = "on all nodes together"
        if at is not None:
            params["level"] = frame.snapshot.topology.levels[at]
            if found.domain >= 0:
                params["domain"] = frame.domain_names[at][found.domain][-1]
                where = f"in the best {params['level']}, {params['domain']}"
            else:
                where = f"as no usable node carries the label of level {params['level']}"
        text = f"{part.name} needs room for {_count(part.count, 'pod')} of {each}"
        text += f" in one {params['level']}" if at is not None else ""
        if missing:
            fit = f"{found.most} {'fits' if found.most == 1 else 'fit'}"
            text += f"; {fit} {where}, {missing} {'is' if missing == 1 else 'are'} missing."
        else:
            text += "; each pod set alone has room, all together have not."
        return Reason(token=Token.TOPOLOGY_PLACEMENT_FAILED, text=text, params=params)

    def shut(self, job: Workload, variant: Variant, avoid: frozenset[str]) -> Reason | None:
        """Every node that would accept a pod set is cordoned, unready or avoided."""
        parts = parts_of(self._board.frame, job, variant, self._board.closed(avoid))
        shut = next((p for p in parts if not p.open.any()), None)
        if shut is None:
            return None
        text = (
            f"All nodes for {shut.name} are cordoned, not ready, or avoided after a failed landing "
            f"({len(avoid)})."
        )
        params = {"podSet": shut.name, "avoided": len(avoid)}
        return Reason(token=Token.NODES_UNAVAILABLE, text=text, params=params)

    # Why nodes do not count

    def excluded(
        self, found: Closest, flavor: str, avoid: frozenset[str], behind: Matrix | None
    ) -> dict[str, Any]:
        """How many nodes have no room for one pod, by the first cause that applies; how many domains have too little.

        `behind`: free amounts less what reservations hold against the gang, None = nothing (N x R).
        """
        frame, part = self._board.frame, found.part
        inside = frame.in_flavor[flavor]
        idle, open_ = frame.open_to(found.pod_set, flavor, idle=True), frame.open_to(found.pod_set, flavor)
        slots = part.need.slots(self._free)
        selected, tainted = self._refused(found.pod_set, flavor, inside & ~idle)
        cordoned = sum(frame.snapshot.nodes[i].node.unschedulable for i in (idle & ~open_).nonzero()[0])
        roomy = part.open & (slots > 0)
        reserved = 0 if behind is None else int((roomy & (part.need.slots(behind) == 0)).sum())
        causes = {
            Exclusion.FLAVOR: int((~inside).sum()),
            Exclusion.SELECTOR: selected,
            Exclusion.TAINT: tainted,
            Exclusion.CORDONED: cordoned,
            Exclusion.NOT_READY: int((idle & ~open_).sum()) - cordoned,
            Exclusion.AVOIDED: int((open_ & ~part.open).sum()),
            Exclusion.FULL: int((part.open & (slots == 0)).sum()),
            Exclusion.RESERVED: reserved,
        }
        by = [{"why": str(why), "nodes": n} for why, n in causes.items() if n]
        told: dict[str, Any] = {"nodes": sum(causes.values()), "of": len(frame.names), "by": by}
        if found.at is not None:
            room = _by_domain(self._numbers(found.at), np.where(part.open, slots, 0))
            level = frame.snapshot.topology.levels[found.at]
            told["domains"] = {"level": level, "short": int((room < part.count).sum()), "of": len(room)}
        return told

    def _refused(self, pod_set: PodSet, flavor: str, nodes: Mask) -> tuple[int, int]:
        """How many of these nodes the selectors exclude, and how many a taint alone."""
        frame = self._board.frame
        key = (
            flavor,
            pod_set.terms.affinity,
            tuple(sorted(pod_set.terms.node_selector.items())),
            nodes.tobytes(),
        )
        if key not in self._tainted:
            terms = replace(pod_set.terms, tolerations=ANYTHING)
            at = nodes.nonzero()[0]
            tainted = sum(well(frame.snapshot.nodes[i].node).accepts(terms) for i in at)
            self._tainted[key] = (len(at) - tainted, tainted)
        return self._tainted[key]

    # Who holds the closest domain

    def scarce(self, found: Closest) -> str | None:
        """The resource of which the domain has least for what is asked."""
        nodes, need = self._nodes(found), found.part.need
        if not len(need.columns) or not len(nodes):
            return None
        slots = (self._free[nodes][:, need.columns].clip(min=0) // need.amounts).sum(axis=0)
        return self._board.frame.resources[int(need.columns[int(slots.argmin())])]

    def _nodes(self, found: Closest) -> NDArray[Any]:
        if found.at is None:
            return found.part.open.nonzero()[0]
        inside: Mask = found.part.open & (self._numbers(found.at) == found.domain)
        return inside.nonzero()[0]

    def holders(self, found: Closest, resource: str) -> tuple[Mapping[str, Any], ...]:
        """The workloads that hold most of a resource on the nodes of the domain."""
        board, column = self._board, self._board.frame.column[resource]
        inside = {int(n) for n in self._nodes(found)}
        there = {uid for node in inside for uid in self._on_node.get(node, ())}
        uses = {uid: _sum(board.holds[uid].rows, inside, column) for uid in there}
        return tuple(workload(board, uid, resource, n) for uid, n in most(uses))


def _sum(rows: Mapping[int, Matrix], inside: Collection[int], column: int) -> int:
    return sum(int(row[column]) for node, row in rows.items() if node in inside)


def _by_domain(numbers: NDArray[Any], slots: NDArray[Any]) -> NDArray[Any]:
    """Slots by domain number."""
    known = numbers >= 0
    total: NDArray[Any] = np.zeros(int(numbers.max(initial=-1)) + 1, dtype=np.int64)
    np.add.at(total, numbers[known], slots[known])
    return total


def _largest(numbers: NDArray[Any], slots: NDArray[Any]) -> tuple[int, int]:
    """The domain with most slots, and how many."""
    total = _by_domain(numbers, slots)
    if not len(total):
        return -1, 0
    best = int(total.argmax())
    return best, int(total[best])


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"

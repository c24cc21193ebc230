"""What the nodes tell a waiting gang: the domain that comes closest, what it lacks, and why the others do not count.

Gangs that placement cannot tell apart share the answer; sums over nodes are taken once for each kind of pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuer.domain.nodes import Toleration
from queuer.domain.quantity import format_resources
from queuer.domain.reasons import Exclusion, Reason, Token
from queuer.domain.workload import PodSet, Workload
from queuer.solver import floors
from queuer.solver.board import Board
from queuer.solver.contested import Variant
from queuer.solver.frame import Mask, Matrix, well
from queuer.solver.parts import Part, parts_of
from queuer.solver.score import allowed_flavors

NOBODY_BEFORE = (True, 2**31)
"""The rank of a gang that no reservation binds."""
ANYTHING = (Toleration(operator="Exists"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Closest:
    """The pod set that is shortest of room, with the domain of level `at` that has most slots for it, and these slots.

    `parts`: all pod sets; `together`: the level of which one domain is to hold them all; `domain`: its number; -1 where
    there is none, or no level and all nodes count together; `idle`: were every node empty and well.
    """

    part: Part
    pod_set: PodSet
    parts: tuple[tuple[Part, PodSet], ...]
    together: int | None
    idle: bool
    at: int | None
    domain: int
    most: int

    @property
    def missing(self) -> int:
        """How many pods have no slot there."""
        return max(0, self.part.count - self.most)


class Fit(StrEnum):
    """Whether there is a place. `CROSSING`: there is room, but its pod sets could take each other's places. `UNKNOWN`:
    none was found, which is no proof.
    """

    YES = "yes"
    NO = "no"
    CROSSING = "crossing"
    UNKNOWN = "unknown"


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
        sets = {p.name: p for p in job.pod_sets}
        parts = tuple(
            (part, sets[part.name]) for part in parts_of(board.frame, job, variant, closed, idle=idle)
        )
        for part, pod_set in parts:
            at = max((n for n in (part.required, level) if n is not None), default=None)  # the narrower one
            domain, slots = self._largest(part, at, free, known=idle if kept and closed is None else None)
            if best is None or slots / part.count < best.most / best.part.count:
                best = Closest(
                    part=part,
                    pod_set=pod_set,
                    parts=parts,
                    together=level,
                    idle=idle,
                    at=at,
                    domain=domain,
                    most=slots,
                )
        return best

    def fits(
        self, job: Workload, variant: Variant, avoid: frozenset[str], *, form: int, idle: bool = False
    ) -> Fit:
        """Whether there is a place, reservations aside. Identical pods fit where there are slots enough; several sets
        have none together where one of them has none alone.
        """
        if len(job.pod_sets) == 1:
            return Fit.NO if self._short(job, variant, avoid, idle=idle) else Fit.YES
        board = self._board
        floor = board.idle if idle else floors.now(board, job, rank=NOBODY_BEFORE)
        found = floor.place(job, variant, form=form, avoid=avoid)
        if found.spreads is not None:
            return Fit.YES
        if found.crossing:
            return Fit.CROSSING
        return Fit.NO if found.exact or self._short(job, variant, avoid, idle=idle) else Fit.UNKNOWN

    def _short(self, job: Workload, variant: Variant, avoid: frozenset[str], *, idle: bool) -> bool:
        """Whether one of its pod sets has too few slots in every domain, the others aside."""
        closest = self.closest(job, variant, avoid, idle=idle)
        return closest is not None and closest.missing > 0

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

    def narrower(self, *levels: str | None) -> str | None:
        """The narrowest of these levels by name; one that does not exist is told."""
        find = self._board.snapshot.topology.find
        asked = [level for level in levels if level is not None]
        unknown = next((level for level in asked if find(level) is None), None)
        return unknown or max(asked, key=lambda level: find(level) or 0, default=None)

    def lack(self, found: Closest, fit: Fit = Fit.NO) -> Reason:
        """What the closest domain lacks: slots for the pod set that is shortest of them, or room for all sets."""
        frame, part, at = self._board.frame, found.part, found.at
        params: dict[str, Any] = {
            "podSet": part.name,
            "count": part.count,
            "per": _per(found.pod_set),
            "fits": found.most,
            "missing": found.missing,
        }
        if found.idle:
            params["idle"] = True
        if at is not None:
            params["level"] = frame.snapshot.topology.levels[at]
            if found.domain >= 0:
                params["domain"] = frame.domain_names[at][found.domain][-1]
        if found.missing:
            text = f"{self._needs(part, found.pod_set, at)}; {_fit(found, params)}."
        elif fit is Fit.CROSSING:
            even = ", even with every node idle" if found.idle else ""
            text = f"{self._all_need(found)}: there is room{even}, "
            text += "but its pod sets could take each other's places while they land."
        elif fit is Fit.UNKNOWN:
            text = f"{self._all_need(found)}: there is room for each alone, none was found for all together."
        else:
            even = ", not even with every node idle" if found.idle else ""
            text = f"{self._all_need(found)}: there is room for each alone, not for all together{even}."
        return Reason(token=Token.TOPOLOGY_PLACEMENT_FAILED, text=text, params=params)

    def _all_need(self, found: Closest) -> str:
        """What each set needs by itself, and what they need together."""
        together = found.together
        wide = -1 if together is None else together
        own = (
            (p, s, p.required if p.required is not None and p.required > wide else None)
            for p, s in found.parts
        )
        text = "; ".join(self._needs(*one) for one in own)
        return text if together is None else f"{text}; all of these in one {self._level(together)}"

    def _level(self, at: int) -> str:
        return self._board.frame.snapshot.topology.levels[at]

    def _needs(self, part: Part, pod_set: PodSet, at: int | None) -> str:
        each = ", ".join(f"{amount} {resource}" for resource, amount in _per(pod_set).items())
        least = "at least " if part.count < pod_set.count else ""
        text = f"{part.name} needs room for {least}{_count(part.count, 'pod')}{each and f' of {each}'}"
        return text if at is None else f"{text} in one {self._level(at)}"

    def shut(self, job: Workload, variant: Variant, avoid: frozenset[str]) -> Reason | None:
        """Every node that would accept a pod set is cordoned, unready or avoided."""
        frame = self._board.frame
        parts = parts_of(frame, job, variant, self._board.closed(avoid))
        shut = next((p for p in parts if not p.open.any()), None)
        if shut is None:
            return None
        pod_set = next(p for p in job.pod_sets if p.name == shut.name)
        inside = frame.open_to(pod_set, variant.flavors[shut.name], idle=True)
        cordoned = self._cordoned(inside & ~shut.accepting)
        counts = {
            "cordoned": cordoned,
            "not ready": int((inside & ~shut.accepting).sum()) - cordoned,
            "avoided after a failed landing": int(shut.accepting.sum()),
        }
        nodes = int(inside.sum())
        why = ", ".join(f"{n} {what}" for what, n in counts.items() if n)
        text = f"None of the {nodes} nodes for {shut.name} can be used: {why}."
        if nodes == 1:
            text = f"The only node for {shut.name} is {next(what for what, n in counts.items() if n)}."
        params = {"podSet": shut.name, "nodes": nodes, "avoided": counts["avoided after a failed landing"]}
        return Reason(token=Token.NODES_UNAVAILABLE, text=text, params=params)

    def nowhere(self, job: Workload) -> Reason:
        """No node accepts some pod set, were all of them well: there is none, or none of these flavors, or the
        set's own terms exclude all.
        """
        frame, declared = self._board.frame, self._board.snapshot.flavors

        def allowed(pod_set: PodSet) -> tuple[str, ...]:
            tree = self._board.snapshot.tree
            return allowed_flavors(pod_set, queue=job.queue, tree=tree, flavors=declared)

        def accepted(pod_set: PodSet) -> bool:
            return any(frame.open_to(pod_set, flavor, idle=True).any() for flavor in allowed(pod_set))

        refused = next((p for p in job.pod_sets if not accepted(p)), job.pod_sets[0])
        flavors = allowed(refused)
        nodes = sum(int(frame.in_flavor[flavor].sum()) for flavor in flavors)
        params = {"queue": job.queue, "podSet": refused.name, "flavors": list(flavors), "nodes": nodes}
        if not frame.names:
            return Reason(token=Token.NODES_UNAVAILABLE, text="The cluster has no nodes.", params=params)
        if flavors and not nodes:
            text = f"The cluster has no node of the flavors that {job.queue} allows: {', '.join(flavors)}."
            return Reason(token=Token.NODES_UNAVAILABLE, text=text, params=params)
        of = f" of {', '.join(flavors)}" if declared else ""
        them = (
            f"The only node{of} does not accept" if nodes == 1 else f"None of the {nodes} nodes{of} accepts"
        )
        text = f"{them} the selectors and tolerations of {refused.name}."
        if not flavors:
            text = f"{job.queue} allows no flavor for all that {refused.name} asks for."
        return Reason(token=Token.NO_MATCHING_FLAVOR, text=text, params=params)

    # Why nodes do not count

    def excluded(self, found: Closest, flavor: str, behind: Matrix | None) -> dict[str, Any]:
        """How many nodes have no room for one pod, by the first cause that applies; how many domains have too little.

        `behind`: free amounts less what reservations hold against the gang, None = nothing (N x R).
        """
        frame, part = self._board.frame, found.part
        inside = frame.in_flavor[flavor]
        idle, open_ = frame.open_to(found.pod_set, flavor, idle=True), frame.open_to(found.pod_set, flavor)
        slots = part.need.slots(self._free)
        selected, tainted = self._refused(found.pod_set, flavor, inside & ~idle)
        cordoned = self._cordoned(idle & ~open_)
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

    def _cordoned(self, nodes: Mask) -> int:
        states = self._board.frame.snapshot.nodes
        return sum(states[i].node.unschedulable for i in nodes.nonzero()[0])

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

    # The closest domain

    def scarce(self, found: Closest) -> str | None:
        """The resource of which the domain has least for what is asked."""
        nodes, need = self._nodes(found), found.part.need
        if not len(need.columns) or not len(nodes):
            return None
        slots = (self._free[nodes][:, need.columns].clip(min=0) // need.amounts).sum(axis=0)
        return self._board.frame.resources[int(need.columns[int(slots.argmin())])]

    def nodes(self, found: Closest) -> frozenset[int]:
        """The nodes of the domain that the pod set may use."""
        return frozenset(int(node) for node in self._nodes(found))

    def _nodes(self, found: Closest) -> NDArray[Any]:
        if found.at is None:
            return found.part.open.nonzero()[0]
        inside: Mask = found.part.open & (self._numbers(found.at) == found.domain)
        return inside.nonzero()[0]


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


def _per(pod_set: PodSet) -> dict[str, str]:
    return format_resources({r: n for r, n in pod_set.requests.items() if r != "pods" and n})


def _fit(found: Closest, params: Mapping[str, Any]) -> str:
    """How many pods fit, where most do. `params`: with `level` and `domain`, where there is one."""
    level, most = params.get("level"), found.most
    if level is not None and found.domain < 0:
        return f"no {'' if found.idle else 'usable '}node carries the label of level {level}"
    usable = "" if found.idle else "usable "
    if not most:
        anywhere = f"in any {level}" if level else f"on any {usable}node"
        return f"{'even with every node idle none would fit' if found.idle else 'none fits'} {anywhere}"
    where = f"in the best {level}, {params['domain']}" if level else f"on all {usable}nodes together"
    if found.idle:
        return f"even with every node idle {most} would fit {where}, {found.missing} would be missing"
    fit, missing = ("fits" if most == 1 else "fit"), ("is" if found.missing == 1 else "are")
    return f"{most} {fit} {where}, {found.missing} {missing} missing"

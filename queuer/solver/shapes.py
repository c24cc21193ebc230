"""The gangs of a cycle: waiting workloads in lines by leaf, and shapes that similar gangs share.

Nothing here depends on the moment or on what is free, so it is kept from cycle to cycle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice, product

from queuer.domain.intake import closed_queue
from queuer.domain.nodes import Flavor
from queuer.domain.queue import QueueTree
from queuer.domain.quota import Charge, QuotaBook, charge_for
from queuer.domain.reasons import Explanation, Token, malformed, simple
from queuer.domain.rules import allowed_flavors
from queuer.domain.usage import Usage
from queuer.domain.workload import PodSet, Workload
from queuer.solver.faults import faults_of_workload
from queuer.solver.nodes import Nodes
from queuer.solver.placement import Variant
from queuer.solver.records import Pending, Snapshot

VARIANTS = 64
"""Combinations of flavors over pod sets that are considered for one gang, the preferred first."""
SPARE = 1_000
"""So many more shapes than twice the waiting gangs are kept at most."""

Seniority = tuple[int, float, int, str]
"""Higher priority, earlier submit time, fewer choices of flavor, uid; the least goes first."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GangShape:
    """The part that similar gangs share, so that it is worked out once.

    `example`: the workload of one of them, for placement. `variants`: flavors at full size, best first, with their
    `charges`; `least`: the same at the smallest size. `flavors`: all that the queue allows, usable or not.
    `placement_key`: equal for shapes that placement cannot tell apart, in any queue. `quota_key`: equal for shapes that
    entitlement and shares at a common ancestor cannot tell apart.
    """

    number: int
    placement_key: int
    quota_key: int
    example: Workload
    variants: tuple[Variant, ...]
    charges: tuple[Charge, ...]
    least: tuple[tuple[Variant, Charge], ...]
    flavors: frozenset[str]

    @property
    def elastic(self) -> bool:
        """Whether it may start with fewer pods."""
        return bool(self.least) and self.least[0][0] is not self.variants[0]

    @property
    def choices(self) -> tuple[Charge, ...]:
        """Its charges on all flavors, at full and at smallest size: it is entitled where one of them is."""
        return (*self.charges, *(charge for _, charge in self.least)) if self.elastic else self.charges


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Gang:
    """A waiting gang in the tournament.

    `queue`: its leaf; `turn_key`: equal for gangs that no turn can tell apart, seniority and expected run time aside.
    """

    pending: Pending
    shape: GangShape
    uid: str
    queue: str
    seniority: Seniority
    turn_key: int

    @property
    def workload(self) -> Workload:
        """Its workload."""
        return self.pending.workload

    def place_in_line(self) -> tuple[bool, Seniority]:
        """Its place among the gangs of its leaf: those first that were interrupted by a failure not their own."""
        return (not self.pending.first, self.seniority)

    def entitled(self, claimed: Usage) -> bool:
        """Whether one of its choices is inside a guarantee on its path."""
        return any(any(claimed.entitlements(self.queue, charge)) for charge in self.shape.choices)

    def may_take(self, charge: Charge, claimed: Usage) -> bool:
        """Whether its rights let it have this: work that nobody may evict stays inside its own queue's guarantee."""
        return self.workload.preemptible or claimed.entitled(self.queue, charge, at=self.queue)


class Shapes:
    """Numbers every shape that gangs have. It only grows."""

    def __init__(self, tree: QueueTree, flavors: tuple[Flavor, ...]) -> None:
        self._tree, self._flavors = tree, flavors
        self._claims = QuotaBook(tree, {}).claims
        self._shapes: dict[object, GangShape] = {}
        self._placement_keys: dict[object, int] = {}
        self._quota_keys: dict[object, int] = {}
        self._turn_keys: dict[object, int] = {}
        self._usable: dict[object, tuple[PodSet, str, bool]] = {}
        self.closed = cache(self._find_closed)

    def __len__(self) -> int:
        return len(self._turn_keys)

    def hold(self, nodes: Nodes, tree: QueueTree, flavors: tuple[Flavor, ...]) -> bool:
        """Whether what was found on other nodes, queues and flavors holds on these."""
        if tree != self._tree or flavors != self._flavors:
            return False
        return all(_usable(nodes, asked, flavor) is usable for asked, flavor, usable in self._usable.values())

    def gang(self, pending: Pending, nodes: Nodes) -> Gang | Explanation:
        """The gang of a waiting workload, also in a queue that is held, or why it is none."""
        workload = pending.workload
        if reason := self._aside(workload):
            return reason
        if faults := tuple(faults_of_workload(workload)):
            return malformed(faults)
        terms = placement_terms(workload)
        shape = self._shapes.get((workload.queue, terms))
        if shape is None:
            shape = self._shapes[workload.queue, terms] = self._new_shape(workload, terms, nodes)
        rights = (
            workload.priority, workload.preemptible, pending.avoid, pending.displaced_by, pending.failed
        )  # fmt: skip
        return Gang(
            pending=pending,
            shape=shape,
            uid=workload.uid,
            queue=workload.queue,
            seniority=(-workload.priority, workload.submitted, len(shape.variants), workload.uid),
            turn_key=self._turn_keys.setdefault((shape.number, rights), len(self._turn_keys)),
        )

    def _new_shape(self, workload: Workload, terms: object, nodes: Nodes) -> GangShape:
        counts = {p.name: p.count for p in workload.pod_sets}
        smallest = {p.name: p.least for p in workload.pod_sets}
        choices, named = [], set[str]()
        for pod_set in workload.pod_sets:
            allowed = allowed_flavors(pod_set, queue=workload.queue, tree=self._tree, flavors=self._flavors)
            named.update(allowed)
            choices.append([f for f in allowed if self._is_usable(nodes, pod_set, f)])
        variants = tuple(
            Variant(flavors=dict(zip(counts, names, strict=True)), counts=counts)
            for names in islice(product(*choices), VARIANTS)
        )
        charges = tuple(charge_for(workload, v.flavors, v.counts) for v in variants)
        least = tuple(zip(variants, charges, strict=True))
        if smallest != counts:
            sized = [replace(v, counts=smallest) for v in variants]
            least = tuple((v, charge_for(workload, v.flavors, smallest)) for v in sized)
        sizes = (*charges, *(charge for _, charge in least))
        asks = (self._claims(workload.queue), tuple(tuple(sorted(c.items(), key=str)) for c in sizes))
        return GangShape(
            number=len(self._shapes),
            placement_key=self._placement_keys.setdefault(terms, len(self._placement_keys)),
            quota_key=self._quota_keys.setdefault(asks, len(self._quota_keys)),
            example=workload,
            variants=variants,
            charges=charges,
            least=least,
            flavors=frozenset(named),
        )

    def _is_usable(self, nodes: Nodes, pod_set: PodSet, flavor: str) -> bool:
        key = (flavor, nodes.terms(pod_set))
        if key not in self._usable:
            self._usable[key] = (pod_set, flavor, _usable(nodes, pod_set, flavor))
        return self._usable[key][2]

    def _aside(self, workload: Workload) -> Explanation | None:
        """Why nothing is asked about it; None = it takes part, or would if its queue were open."""
        closed = self.closed(workload.queue)
        if closed is not None and closed.primary.token is not Token.SUSPENDED:
            return closed
        return simple(Token.ON_HOLD, "The job is on hold.") if workload.hold else None

    def _find_closed(self, queue: str) -> Explanation | None:
        """Why nothing of this queue takes part."""
        if queue not in self._tree or not self._tree.is_leaf(queue):
            return simple(Token.MISCONFIGURED, f"{queue} is not a queue that takes jobs.", queue=queue)
        return closed_queue(queue, self._tree)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Waiting:
    """The waiting workloads of one snapshot. `gangs`: those that take part, by uid; `aside`: why the others do not;
    both in the snapshot's order. `closed`: those aside whose queue is held or drains. `by_leaf`: the gangs of a leaf in
    their order.
    """

    shapes: Shapes
    gangs: Mapping[str, Gang]
    aside: Mapping[str, Explanation]
    closed: Mapping[str, Gang]
    by_leaf: Mapping[str, tuple[Gang, ...]]

    @classmethod
    def of(cls, snapshot: Snapshot, nodes: Nodes) -> Waiting:
        """From the snapshot alone."""
        shapes = Shapes(snapshot.tree, snapshot.flavors)
        return cls(shapes=shapes, gangs={}, aside={}, closed={}, by_leaf={}).follow(snapshot, nodes)

    @property
    def crowded(self) -> bool:
        """Whether most of what is known is of gangs that are gone."""
        return len(self.shapes) > 2 * (len(self.gangs) + len(self.closed)) + SPARE

    def follow(self, snapshot: Snapshot, nodes: Nodes) -> Waiting:
        """Those of another snapshot."""
        if not self.shapes.hold(nodes, snapshot.tree, snapshot.flavors):
            return Waiting.of(snapshot, nodes)
        gangs: dict[str, Gang] = {}
        closed: dict[str, Gang] = {}
        aside: dict[str, Explanation] = {}
        came: list[Gang] = []
        known, shapes = self.gangs, self.shapes
        for pending in snapshot.pending:
            uid = pending.workload.uid
            gang = known.get(uid) or self.closed.get(uid)
            if gang is None or (gang.pending is not pending and gang.pending != pending):
                found = shapes.gang(pending, nodes)
                if isinstance(found, Explanation):
                    aside[uid] = found
                    continue
                gang = found
            if (why := shapes.closed(gang.queue)) is not None:
                aside[uid], closed[uid] = why, gang
                continue
            if known.get(uid) is not gang:
                came.append(gang)
            gangs[uid] = gang
        gone = [gang for uid, gang in known.items() if gangs.get(uid) is not gang]
        return replace(
            self, gangs=gangs, aside=aside, closed=closed, by_leaf=_merged(self.by_leaf, gone, came)
        )


def _merged(
    before: Mapping[str, tuple[Gang, ...]], gone: Sequence[Gang], came: Sequence[Gang]
) -> dict[str, tuple[Gang, ...]]:
    left = {id(gang) for gang in gone}
    lines = dict(before)
    fresh: dict[str, list[Gang]] = {gang.queue: [] for gang in (*gone, *came)}
    for gang in came:
        fresh[gang.queue].append(gang)
    for leaf, added in fresh.items():
        stay = [gang for gang in before.get(leaf, ()) if id(gang) not in left]
        lines[leaf] = tuple(sorted(stay + added, key=Gang.place_in_line))
        if not lines[leaf]:
            del lines[leaf]
    return lines


def _usable(nodes: Nodes, pod_set: PodSet, flavor: str) -> bool:
    """Whether any node of the flavor accepts the set's pods, cordons and unreadiness aside."""
    return bool(nodes.open_to(pod_set, flavor, idle=True).any())


def placement_terms(workload: Workload) -> object:
    """The parts of a workload that placement depends on."""
    sets = workload.pod_sets
    return (workload.required, workload.preferred, tuple([_terms_of_set(pod_set) for pod_set in sets]))


def _terms_of_set(pod_set: PodSet) -> object:
    terms = pod_set.terms
    return (
        (pod_set.name, pod_set.count, pod_set.min_count, tuple(sorted(pod_set.requests.items()))),
        (tuple(sorted(terms.node_selector.items())), terms.tolerations, terms.affinity),
        (pod_set.exclusive_host, pod_set.required, pod_set.preferred),
    )

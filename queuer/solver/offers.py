"""Who takes part in a cycle: the waiting gangs in lines by leaf, with what those that are alike share.

Nothing here depends on the moment or on what is free, so it is kept from cycle to cycle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, islice, product
from math import prod

from queuer.domain.nodes import Flavor
from queuer.domain.queue import QueueState, QueueTree
from queuer.domain.quota import QuotaBook, charge_for
from queuer.domain.reasons import Explanation, Token, malformed, simple
from queuer.domain.workload import PodSet, Workload
from queuer.solver.contested import Variant
from queuer.solver.frame import Frame
from queuer.solver.order import Gang, Shape
from queuer.solver.problem import Pending, Snapshot
from queuer.solver.score import allowed_flavors
from queuer.solver.sound import countable, faults_of_workload

VARIANTS = 1_000
"""Combinations of flavors over pod sets that are considered for one gang. Where there are more, those of a single
flavor are, too, and nothing is proven.
"""
SPARE = 1_000
"""So many more likenesses than twice the waiting gangs are kept at most."""


class Kinds:
    """Numbers for what gangs have in common, and the shapes that go with them. It only grows."""

    def __init__(self, tree: QueueTree, flavors: tuple[Flavor, ...]) -> None:
        self._tree, self._flavors = tree, flavors
        self._claims = QuotaBook(tree, {}).claims
        self._shapes: dict[object, Shape] = {}
        self._forms: dict[object, int] = {}
        self._choices: dict[object, int] = {}
        self._kinds: dict[object, int] = {}
        self._alike: dict[object, int] = {}
        self._usable: dict[object, tuple[PodSet, str, bool]] = {}
        self.closed = cache(self._find_closed)

    def __len__(self) -> int:
        return len(self._alike)

    def hold(self, frame: Frame, tree: QueueTree, flavors: tuple[Flavor, ...]) -> bool:
        """Whether what was found on other nodes, queues and flavors holds on these."""
        if tree != self._tree or flavors != self._flavors:
            return False
        return all(_usable(frame, asked, flavor) is usable for asked, flavor, usable in self._usable.values())

    def gang(self, pending: Pending, frame: Frame) -> Gang | Explanation:
        """The gang of a waiting workload, or why it takes no part."""
        workload = pending.workload
        if reason := self._aside(workload):
            return reason
        if not countable(workload):
            return malformed(faults_of_workload(workload))
        form = _form_key(workload)
        shape = self._shapes.get((workload.queue, form))
        if shape is None:
            if faults := tuple(faults_of_workload(workload)):
                return malformed(faults)
            shape = self._shapes[workload.queue, form] = self._new_shape(workload, form, frame)
        alike = (
            shape.number,
            workload.priority,
            workload.preemptible,
            pending.avoid,
            pending.displaced_by,
        )
        return Gang(
            pending=pending,
            shape=shape,
            uid=workload.uid,
            queue=workload.queue,
            seniority=(-workload.priority, workload.submitted, len(shape.variants), workload.uid),
            likeness=self._alike.setdefault(alike, len(self._alike)),
        )

    def _new_shape(self, workload: Workload, form: object, frame: Frame) -> Shape:
        counts = {p.name: p.count for p in workload.pod_sets}
        choices = []
        named: set[str] = set()
        for pod_set in workload.pod_sets:
            allowed = allowed_flavors(pod_set, queue=workload.queue, tree=self._tree, flavors=self._flavors)
            named.update(allowed)
            choices.append([f for f in allowed if self._is_usable(frame, pod_set, f)])
        variants = [
            Variant(flavors=dict(zip(counts, one, strict=True)), counts=counts)
            for one in _combinations(choices)
        ]
        charges = tuple(charge_for(workload, v.flavors, v.counts) for v in variants)
        least = {p.name: p.count if p.min_count is None else p.min_count for p in workload.pod_sets}
        smallest = list(zip(variants, charges, strict=True))
        if least != counts:
            sized = [replace(v, counts=least) for v in variants]
            smallest = [(v, charge_for(workload, v.flavors, least)) for v in sized]
        kind = (self._claims(workload.queue), tuple(tuple(sorted(c.items(), key=str)) for c in charges))
        alike = self._forms.setdefault(form, len(self._forms))
        choice = (alike, tuple(tuple(v.flavors.values()) for v in variants))
        return Shape(
            number=len(self._shapes),
            form=alike,
            choice=self._choices.setdefault(choice, len(self._choices)),
            kind=self._kinds.setdefault(kind, len(self._kinds)),
            variants=tuple(variants),
            charges=charges,
            least=least,
            smallest=tuple(smallest),
            flavors=frozenset(named),
            partial=prod(map(len, choices)) > VARIANTS,
        )

    def _is_usable(self, frame: Frame, pod_set: PodSet, flavor: str) -> bool:
        key = (flavor, frame.terms(pod_set))
        if key not in self._usable:
            self._usable[key] = (pod_set, flavor, _usable(frame, pod_set, flavor))
        return self._usable[key][2]

    def _aside(self, workload: Workload) -> Explanation | None:
        """Why nothing is asked about it; None = it is."""
        closed = self.closed(workload.queue)
        if workload.hold and (closed is None or closed.primary.token is Token.SUSPENDED):
            return simple(Token.ON_HOLD, "The job is on hold.")
        return closed

    def _find_closed(self, queue: str) -> Explanation | None:
        """Why nothing of this queue takes part."""
        if queue not in self._tree or not self._tree.is_leaf(queue):
            near = self._tree.nearest(queue)
            hint = f"; nearest: {', '.join(near)}" if near else ""
            text = f"{queue} is not a queue that takes jobs{hint}."
            return simple(Token.MISCONFIGURED, text, queue=queue, nearest=list(near))
        state = self._tree.effective_state(queue)
        if state is not QueueState.OPEN:
            return simple(Token.SUSPENDED, f"{queue} is {state}.", queue=queue)
        return None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Offers:
    """The waiting workloads of one snapshot. `gangs`: those that take part, by uid; `aside`: why the others do not;
    both in the snapshot's order. `lines`: the gangs of a leaf in their order. `avoiding`: uids with nodes to avoid.
    """

    kinds: Kinds
    gangs: Mapping[str, Gang]
    aside: Mapping[str, Explanation]
    lines: Mapping[str, tuple[Gang, ...]]
    avoiding: frozenset[str]

    @classmethod
    def of(cls, snapshot: Snapshot, frame: Frame) -> Offers:
        """From the snapshot alone."""
        kinds = Kinds(snapshot.tree, snapshot.flavors)
        nobody = cls(kinds=kinds, gangs={}, aside={}, lines={}, avoiding=frozenset())
        return nobody.follow(snapshot, frame)

    @property
    def crowded(self) -> bool:
        """Whether most of what is known is of gangs that are gone."""
        return len(self.kinds) > 2 * len(self.gangs) + SPARE

    def follow(self, snapshot: Snapshot, frame: Frame) -> Offers:
        """Those of another snapshot."""
        if not self.kinds.hold(frame, snapshot.tree, snapshot.flavors):
            return Offers.of(snapshot, frame)
        gangs: dict[str, Gang] = {}
        aside: dict[str, Explanation] = {}
        came: list[Gang] = []
        known, kinds = self.gangs, self.kinds
        for pending in snapshot.pending:
            workload = pending.workload
            gang = known.get(workload.uid)
            if gang is None or (gang.pending is not pending and gang.pending != pending):
                found = kinds.gang(pending, frame)
                if isinstance(found, Explanation):
                    aside[workload.uid] = found
                    continue
                came.append(gang := found)
            gangs[workload.uid] = gang
        gone = [gang for uid, gang in known.items() if gangs.get(uid) is not gang]
        return replace(
            self,
            gangs=gangs,
            aside=aside,
            lines=_lines(self.lines, gone, came),
            avoiding=frozenset(p.workload.uid for p in snapshot.pending if p.avoid),
        )


def _lines(
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


def _combinations(choices: Sequence[Sequence[str]]) -> Sequence[tuple[str, ...]]:
    """The first ones, the preferred first; then, where these are not all, each flavor for all that may have it."""
    found = dict.fromkeys(islice(product(*choices), VARIANTS))
    if len(found) == VARIANTS:
        for flavor in dict.fromkeys(chain.from_iterable(choices)):
            found.setdefault(tuple(flavor if flavor in allowed else allowed[0] for allowed in choices))
    return [*found]


def _usable(frame: Frame, pod_set: PodSet, flavor: str) -> bool:
    """Whether any node of the flavor accepts the set's pods, cordons and unreadiness aside."""
    return bool(frame.open_to(pod_set, flavor, idle=True).any())


def _form_key(workload: Workload) -> object:
    """What placement depends on."""
    return (
        workload.required,
        workload.preferred,
        tuple(
            (
                p.name,
                p.count,
                p.min_count,
                tuple(sorted(p.requests.items())),
                tuple(sorted(p.terms.node_selector.items())),
                p.terms.tolerations,
                p.terms.affinity,
                p.exclusive_host,
                p.required,
                p.preferred,
            )
            for p in workload.pod_sets
        ),
    )

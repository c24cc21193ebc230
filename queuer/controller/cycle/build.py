"""The round that carries out what of a plan still holds: placements, PATCHes, evictions and the reasons to write."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from itertools import islice
from typing import Any, Protocol

import msgspec

from queuer.controller.cycle.forecast import is_hit, with_estimate
from queuer.controller.cycle.judge import DecisionRequest, Judgement, Leaving
from queuer.controller.landing.settle import admitted, evicting
from queuer.controller.ledger.record import record
from queuer.controller.ledger.round import Round, charges, effect, isolate
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.domain.assignments import Admission, Assignment, Placement
from queuer.domain.estimates import StartRange
from queuer.domain.nodes import Node, Topology
from queuer.domain.reasons import Explanation, Token, hide, simple
from queuer.domain.reasons.run_sentences import evicted_for
from queuer.solver.records import Plan
from queuer.store.tables import EntryKind

AT_ONCE = 250
"""Reasons that are written with a decision; later rounds write the others."""


class Patches(Protocol):
    """How jobs are started and suspended; see `queuer.controller.apply.jobs`."""

    def admit(self, live: Live, placement: Placement, *, domains: tuple[str, ...]) -> Mapping[str, Any]:
        """The PATCH that unsuspends the job inside its pins."""

    def evict(self, live: Live) -> Mapping[str, Any]:
        """The PATCH that suspends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """Builds the rounds of one leadership. `retell`: see `Settings`; `ranges`: newest forecast of starts, told with the
    reasons.
    """

    state: ClusterState
    patches: Patches
    epoch: int
    new_id: Callable[[], str]
    retell: float
    ranges: Mapping[str, StartRange] = field(default_factory=dict)

    def build(self, request: DecisionRequest, plan: Plan, judged: Judgement, *, now: float) -> Round:
        """The round of a decision. Raises Isolated naming a workload for which no row or PATCH can be made."""
        cycle = record(
            self.state, cycle=request.cycle, began=request.at, now=now, trigger=request.trigger,
            status=plan.stats.status, waiting=len(plan.explanations),
            stats=msgspec.to_builtins(plan.stats, enc_hook=dict),
            starts=judged.admissions, holds=(*judged.bonds, *judged.reservations),
        )  # fmt: skip
        changes = Round(
            self.state.live, now=now, cycle=cycle, bonds=judged.bonds, reservations=judged.reservations,
            revision=self.state.revision,
        )  # fmt: skip
        for admission in judged.admissions:
            with isolate(admission.uid):
                self._admit(changes, admission, cycle=request.cycle)
        for leaving in judged.leaving:
            with isolate(leaving.victim.uid):
                self._evict(changes, leaving)
        self._explain(changes, judged)
        return changes

    def _admit(self, changes: Round, admission: Admission, *, cycle: int) -> None:
        state, live = self.state, self.state.live[admission.uid]
        where = domains(admission.assignments, nodes=state.nodes, topology=state.rules.topology)
        placement = Placement(
            id=self.new_id(), epoch=self.epoch, cycle=cycle, at=changes.now, assignments=admission.assignments
        )
        patch, after = self.patches.admit(live, placement, domains=where), admitted(live, placement)
        changes.put(
            live.uid, after=after, effects=[effect(EntryKind.ADMIT, after, patch)], domains=where,
            charges=charges(after, at=changes.now), hit=is_hit(live.explanation, started=changes.now),
        )  # fmt: skip

    def _evict(self, changes: Round, leaving: Leaving) -> None:
        victim, beneficiary = leaving.victim, leaving.beneficiary
        other = self.state.live[beneficiary].workload
        note = evicted_for(leaving.cause, victim.workload, other, leaving.lost)
        why = simple(Token.PENDING_EVALUATION, f"{note}; it is decided on again when it has left")
        after = evicting(victim, now=changes.now)
        if not victim.state.ended:
            after = replace(after, displaced_by=frozenset({beneficiary}), explanation=why)
        changes.put(
            victim.uid, after=after, effects=[effect(EntryKind.EVICT, victim, self.patches.evict(victim))],
            cause=leaving.cause, beneficiary=beneficiary, note=note,
        )  # fmt: skip

    def _explain(self, changes: Round, judged: Judgement) -> None:
        state, now, owners = self.state, changes.now, Owners()
        told = {}
        for uid, reason in judged.reasons.items():
            live = state.live[uid]
            readable, evicted = (
                owners.readable(reason, live.workload.namespace),
                max(live.evictions, default=0.0),
            )
            told[uid] = with_estimate(readable, self.ranges.get(uid), now=now, evicted=evicted)
        reasons = to_write(told, state, changes, now=now, every=self.retell)
        at_once = set(islice(reasons, AT_ONCE))
        for uid, explanation in reasons.items():
            after = replace(state.live[uid], explanation=explanation, told=now)
            changes.put(uid, after=after, later=uid not in at_once)


def domains(
    assignments: Iterable[Assignment], *, nodes: Mapping[str, Node], topology: Topology
) -> tuple[str, ...]:
    """The domains of the narrowest level above hosts that the plan uses, as `b1/r02`; () where none is declared."""
    level = len(topology.keys) - 2
    if level < 0:
        return ()
    used = {name for a in assignments for name in a.nodes if name in nodes}
    paths = (topology.domain(nodes[name], level) for name in used)
    return tuple(sorted({"/".join(path) for path in paths if path is not None}))


FEW, PORTIONS = 200, 10
"""Of rows of which figures alone moved, so many are written after a decision, or one of so many portions."""
_WHOSE = (
    "queue", "resource", "flavor", "keeper", "level", "podSet", "owner", "name", "ownerQueue", "victims", "freed",
    "cause", "user", "perUser",
)  # fmt: skip
"""Parameters of a reason that say what or who it is about; the others are figures."""


def to_write(
    explanations: Mapping[str, Explanation],
    state: ClusterState,
    changed: Container[str],
    *,
    now: float,
    every: float,
) -> dict[str, Explanation]:
    """Reasons that differ from what is stored, of those that still wait. `changed`: uids whose state changes now.

    Thousands wait, and each start moves a figure in most. Where figures alone moved in more than `FEW`: a portion of
    those that were told `every` so many seconds ago, the longest ago first.
    """
    found, moved = dict[str, Explanation](), dict[str, Explanation]()
    for uid, explanation in explanations.items():
        live = state.live.get(uid)
        if live is None or uid in changed or not live.state.waiting or live.explanation == explanation:
            continue
        told = live.explanation
        same = told is not None and meaning(told) == meaning(explanation)
        (moved if same else found)[uid] = explanation
    if len(moved) > FEW:
        old = (uid for uid in moved if now >= state.live[uid].told + every)
        portion = max(FEW, len(moved) // PORTIONS)
        moved = {uid: moved[uid] for uid in nsmallest(portion, old, key=lambda uid: state.live[uid].told)}
    return {**found, **moved}


class Owners:
    """Explanations as owners may read them: stored texts, annotations and Events name no job of another namespace.

    Jobs of one namespace that share one go on sharing it.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], tuple[Explanation, Explanation]] = {}

    def readable(self, explanation: Explanation, namespace: str) -> Explanation:
        """For the owner of a job in this namespace."""
        key = (id(explanation), namespace)
        if key not in self._known:  # kept with what it was made of, whose id then is no other's
            self._known[key] = explanation, hide(explanation, namespace.__eq__)
        return self._known[key][1]


def meaning(explanation: Explanation) -> object:
    """The statement of an explanation, without its figures."""
    reason = explanation.primary
    about = tuple(reason.params.get(name) for name in _WHOSE)
    return (reason.token, reason.verdict, about, "estimate" in explanation.detail)

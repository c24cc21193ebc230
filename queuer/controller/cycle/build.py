"""The round that carries out what of a plan still holds: placements, PATCHes, evictions and the reasons to write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol

import msgspec

from queuer.controller.cycle.forecast import is_hit, with_estimate
from queuer.controller.cycle.judge import DecisionRequest, Judgement, Leaving
from queuer.controller.cycle.reasons import Owners, to_write
from queuer.controller.landing.settle import admitted, evicting
from queuer.controller.ledger.record import record
from queuer.controller.ledger.round import Round, charges, effect, isolate
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.domain.assignments import Admission, Assignment, Placement
from queuer.domain.estimates import StartRange
from queuer.domain.nodes import Node, Topology
from queuer.domain.reasons import Token, simple
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
        told = {
            uid: with_estimate(
                owners.readable(reason, state.live[uid].workload.namespace), self.ranges.get(uid), now=now
            )
            for uid, reason in judged.reasons.items()
        }
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

"""Why a gang waits: one reason each in the cycle, a token and its figures, made once for all that were refused alike.

Everything beyond it is worked out when somebody asks, on the stored cycle: `detail`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from queuer.domain.assignments import Bond
from queuer.domain.quota import Charge
from queuer.domain.reasons import Explanation, Reason, Token, Verdict
from queuer.domain.workload import Workload
from queuer.solver.explain.place import Places
from queuer.solver.explain.quota import Quotas
from queuer.solver.explain.unstartable import Unstartable
from queuer.solver.placement import Variant, parts_of
from queuer.solver.refusal import Block, Refusal
from queuer.solver.shapes import Gang
from queuer.solver.state import State

NAMES = 3
"""How many victims are named at most."""
QUOTA_BACK = Reason(Token.PENDING_EVALUATION, {"freed": "quota"})
ROOM_BACK = Reason(Token.PENDING_EVALUATION, {"freed": "room"})
NO_DECISION = Explanation(primary=Reason(Token.SOLVER_DEFERRED, {"cause": "Plan"}))
_NODES = (Block.PLACE, Block.RESERVED, Block.LANDING)


def reasons(
    state: State,
    *,
    refusals: Mapping[str, Refusal],
    held_up: Mapping[str, tuple[str, ...]],
    bonds: Mapping[str, Bond],
    aside: Mapping[str, Explanation],
    order: Iterable[str],
) -> dict[str, Explanation]:
    """By uid, for all of `order` that do not start. Asked once all have had their turns and reservations are made.

    `refusals`: of those that had a turn or needed none; gangs that share one share an explanation. `held_up`: who is
    behind refused heads of its strict queue, with these. `bonds`: what is held. `aside`: who takes no part.
    """
    why = _Reasons(state, refusals, held_up, bonds, aside).why
    return {uid: told for uid in order if (told := why(uid)) is not None}


class _Reasons:
    """Answers for one uid after the other."""

    def __init__(
        self,
        state: State,
        refusals: Mapping[str, Refusal],
        held_up: Mapping[str, tuple[str, ...]],
        bonds: Mapping[str, Bond],
        aside: Mapping[str, Explanation],
    ) -> None:
        waiting = state.arrays.waiting
        self._state, self._gangs, self._closed = state, waiting.gangs, waiting.closed
        self._refusals, self._held_up, self._bonds, self._aside = refusals, held_up, bonds, aside
        self._quotas, self._places = Quotas(state), Places(state)
        self._unstartable = Unstartable(state, self._quotas, self._places)
        self._alike: dict[object, Explanation] = {}  # all refusals are kept while they are told
        self._lines: dict[object, Explanation] = {}

    def why(self, uid: str) -> Explanation | None:
        """Why it waits; None: it starts."""
        if uid in self._state.settled:
            bond = self._bonds.get(uid)
            return None if bond is None else Explanation(primary=bound(self._state, bond))
        refusal = self._refusals.get(uid)
        if refusal is not None:
            gang = self._gangs[uid]
            key = (id(refusal), gang.pending.workload.preemptible)
            known = self._alike.get(key)
            if known is None:
                known = self._alike[key] = Explanation(primary=self._refused(gang, refusal))
            return known
        if uid in self._held_up:
            return self._behind(self._gangs[uid], self._held_up[uid])
        told, closed = self._aside.get(uid, NO_DECISION), self._closed.get(uid)
        never = None if closed is None else self._unstartable.why(closed)
        return told if never is None else Explanation(primary=never, others=(told.primary,))

    # Refused

    def _refused(self, gang: Gang, refusal: Refusal) -> Reason:
        """The refusal at its turn, as things are now; an unstartable gang is told that first."""
        variant, charge = refusal.variant, refusal.charge
        if variant is None or charge is None:
            return self._places.nowhere(gang.workload)
        if (unstartable := self._unstartable.why(gang)) is not None:
            return unstartable
        if refusal.block is Block.ENTITLEMENT:
            owed = filter(None, self._quotas.entitlements(gang))
            return next((r for r in owed if r.token is not Token.EXCEEDS_MAX_QUOTA), QUOTA_BACK)
        several = len(gang.shape.least) > 1
        reason = self._unstartable.on(gang, variant, charge) if several else None
        if reason is None and refusal.block in _NODES:
            reason = self._by_nodes(gang, variant, charge, refusal)
        reason = reason or self._quotas.row(gang, charge) or QUOTA_BACK
        if not several or reason.verdict is Verdict.WAIT:
            return reason
        return self._elsewhere(gang, variant) or reason

    def _by_nodes(self, gang: Gang, variant: Variant, charge: Charge, refusal: Refusal) -> Reason:
        """Nodes, or who is on them or has them reserved, are in its way."""
        state = self._state
        if refusal.block is Block.LANDING:
            return self._landing(refusal)
        if refusal.block is Block.PLACE and refusal.owners:
            return self._other(refusal.owners, held=True)
        reason = self._places.lack(gang, variant)
        if reason is None or refusal.block is Block.RESERVED:
            respected = refusal.owners or state.respected(gang, charge)
            if owners := self._breaks(gang, variant, respected):
                return self._other(owners, nodes=len(state.reserved[owners[0]].takes))
        return reason or ROOM_BACK

    def _elsewhere(self, gang: Gang, tried: Variant) -> Reason | None:
        """The obstacle on the first other flavor on which it could start one day."""
        for variant, charge in gang.shape.least:
            if variant.flavors == tried.flavors or self._unstartable.on(gang, variant, charge) is not None:
                continue
            found = (self._quotas.row(gang, charge), self._places.lack(gang, variant))
            told = [reason for reason in found if reason is not None]
            if all(reason.verdict is Verdict.WAIT for reason in told):
                return told[0] if told else ROOM_BACK
        return None

    def _breaks(self, gang: Gang, variant: Variant, owners: tuple[str, ...]) -> tuple[str, ...]:
        """Owners of those reservations that lie where pods of the gang could go."""
        there = self._state.reserved
        parts = parts_of(self._state.nodes, gang.workload, variant) or ()
        return tuple(
            uid
            for uid in owners
            if uid in there and any(part.accepting[list(there[uid].takes)].any() for part in parts)
        )

    def _landing(self, refusal: Refusal) -> Reason:
        """The job whose pods are still landing in its place, with the host, or one that waits for that before it."""
        state = self._state
        starts = {uid for uid, settled in state.settled.items() if not settled.bound}
        owners = [uid for uid in refusal.owners if uid in state.running or uid in starts]
        if not owners:
            return self._other(refusal.owners, held=True)
        hosts = [] if refusal.landed is None else sorted(refusal.landed.hosts)
        there = next((node for node in hosts if owners[0] in state.landing.on([node])), None)
        where = {} if there is None else {"host": state.nodes.names[there]}
        return self._other(owners, landing=True, **where)

    def _other(self, owners: Sequence[str], **params: object) -> Reason:
        """Other jobs are in the way, of which the first is named."""
        first = self._gangs.get(owners[0])
        who = self._state.running[owners[0]].admitted.workload if first is None else first.workload
        return Reason(Token.BEHIND_IN_QUEUE, {**job(who), "others": len(owners) - 1, **params})

    # Behind

    def _behind(self, gang: Gang, heads: tuple[str, ...]) -> Explanation:
        """An unstartable gang waits for nobody. Another waits for the first unstartable head, as then it cannot start
        either, or for the first head if all may start.
        """
        key = (gang.shape.number, gang.workload.preemptible, heads)
        if key not in self._lines:
            unstartable = self._unstartable.why(gang)
            self._lines[key] = Explanation(primary=unstartable or self._after(gang.queue, heads))
        return self._lines[key]

    def _after(self, queue: str, heads: tuple[str, ...]) -> Reason:
        params = {**job(self._gangs[heads[0]].workload), "queue": queue}
        for head in heads:
            why = self.why(head)
            if why is not None and why.verdict is Verdict.CHANGE:
                params = {**job(self._gangs[head].workload), "queue": queue}
                params |= {"headUnstartable": True, "why": why.primary.text}
                break
        return Reason(Token.BEHIND_IN_QUEUE, params)


def bound(state: State, bond: Bond) -> Reason:
    """Its place is held while others leave, evicted for it or for another gang, or leaving anyway."""
    there = [state.running[uid].admitted.workload for uid in bond.victims if uid in state.running]
    params = {
        "victims": len(bond.victims),
        "hosts": sorted({name for row in bond.assignments for name in row.nodes}),
        "deadline": bond.deadline,
        "left": len(there),
        "jobs": [job(workload) for workload in there[:NAMES]],
    }
    lost = {} if bond.lost is None else {"lost": asdict(bond.lost)}
    return Reason(Token.WAITING_FOR_PREEMPTED_WORKLOADS, {**params, **lost})


def job(workload: Workload) -> dict[str, object]:
    """The parameters for a job that is in the way."""
    who = {"owner": workload.uid, "name": workload.name, "namespace": workload.namespace}
    return {**who, "ownerQueue": workload.queue}

"""Everything beyond the one reason that a cycle gives a gang, worked out when somebody asks, on the stored cycle."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import product
from math import ceil
from typing import Any

import numpy as np

from queuer.domain.assignments import Reservation
from queuer.domain.nodes import Topology
from queuer.domain.outside import Outside
from queuer.domain.quantity import format_quantity, format_resources
from queuer.domain.queue import ROOT
from queuer.domain.quota import Account, Charge
from queuer.domain.reasons import Explanation, JobChange, Reason, Token, Verdict
from queuer.domain.workload import Workload
from queuer.solver.advice import Advisor
from queuer.solver.after_cycle import AfterCycle
from queuer.solver.ends import expected_end, foretold_end
from queuer.solver.eviction.rights import takes
from queuer.solver.explain.place import Places
from queuer.solver.explain.quota import Quotas, named
from queuer.solver.nodes import Rows
from queuer.solver.shapes import Gang
from queuer.solver.state import State

HOLDERS = 3
"""How many holders are named at most."""
FLAVORS = 4
"""Of how many flavors an explanation tells."""
FAILED = "Its last starts failed, so it evicts nobody until a start succeeds, the job is edited, or held and released."
_SUBJECT = ("queue", "resource", "podSet", "level", "owner", "cause")
"""Parameters that say what a reason is about; two of one token about the same are told once."""


def explain(after: AfterCycle, uid: str) -> Explanation | None:
    """Why this gang waits after a cycle, with all that can be said about it; None where it does not wait."""
    told = after.plan.explanations.get(uid)
    if told is None:
        return None
    pending = after.pending[uid]
    state = after.state_with(pending)
    gang = state.arrays.waiting.gangs.get(uid)
    if gang is None:
        return told
    detail: dict[str, Any] = {"need": _need(gang.workload, state.snapshot.topology)}
    for row in after.plan.reservations:
        if row.uid == uid:
            start = _foretold_start(state, row)
            detail["reservation"] = {"start": start, "expires": row.expires, "hosts": _hosts(row)}
    if uid in state.settled or not gang.shape.least:
        return replace(told, detail=detail)
    return _GangDetail(state, gang, told.primary, after).explanation(detail)


class _GangDetail:
    """One gang in the state that the plan leaves, on the flavors that its primary reason is about."""

    def __init__(self, state: State, gang: Gang, primary: Reason, after: AfterCycle) -> None:
        self._state, self._gang, self._primary, self._after = state, gang, primary, after
        self._quotas, self._places = Quotas(state), Places(state)
        self._holders = _Holders(state, after.started)
        flavor, least = primary.params.get("flavor"), gang.shape.least
        pair = next((pair for pair in least if flavor in pair[0].flavors.values()), least[0])
        self._variant, self._charge = pair
        self._closest = self._places.closest(gang, self._variant)
        self._respected = state.respected(gang, self._charge)

    def explanation(self, detail: dict[str, Any]) -> Explanation:
        """The whole explanation."""
        behind = self._primary.token is Token.BEHIND_IN_QUEUE
        holders = self._who()
        detail["available"] = self._available()
        if self._closest is not None:
            flavor, room = self._variant.flavors[self._closest.part.name], self._state.room()
            kept = np.any(self._state.room(self._respected).free < room.free, axis=1)
            detail["excluded"] = self._places.excluded(self._closest, flavor, kept)
        detail["holders"] = [*(self._reservation(owner) for owner in self._respected if behind), *holders]
        advice: tuple[JobChange, ...] = ()
        if not behind or "others" in self._primary.params:  # else it had no turn of its own
            short = self._quotas.shortfalls(self._gang, self._charge)
            advice = Advisor(self._after, self._state, self._gang).changes(short, holders)
        return Explanation(
            primary=self._primary, others=tuple(self._others()), would_admit=advice, detail=detail
        )

    # Other reasons

    def _others(self) -> list[Reason]:
        """All that hold beside the primary one, on the first of its flavors, each once and in words of its own."""
        found = {_subject(self._primary): self._primary}
        for variant, charge in self._gang.shape.least[:FLAVORS]:
            unstartable = self._quotas.unstartable(self._gang, charge)
            told = [unstartable] if unstartable else self._quotas.rows(self._gang, charge)
            lack = self._places.lack(self._gang, variant, landing=False)
            full = any("live" in reason.params for reason in told)
            if lack is not None and ("largest" in lack.params or not full):
                told = [*told, lack]
            found |= {_subject(reason): reason for reason in told if _subject(reason) not in found}
        told = [*{reason.text: reason for reason in found.values()}.values()][1:]
        if not self._gang.workload.preemptible:
            told += [r for r in self._quotas.entitlements(self._gang) if r and _subject(r) not in found][:1]
        if self._gang.pending.failed:
            told.append(Reason(Token.ADMITTED_NOT_PLACED, {}, FAILED))
        return [*told, *filter(None, (self._holders.evictable(self._gang, self._charge, self._primary),))]

    # Room and its holders

    def _available(self) -> list[dict[str, Any]]:
        """By flavor what is free on its usable nodes, and the room that limits leave at each level, nearest first."""
        flavors = dict.fromkeys(f for variant, _ in self._gang.shape.least for f in variant.flavors.values())
        asked = {r for p in self._gang.workload.pod_sets for r, n in p.requests.items() if n and r != "pods"}
        return [
            {
                "flavor": flavor,
                "free": format_resources(self._state.free_in(flavor, asked)),
                "headroom": self._headroom(flavor, asked),
            }
            for flavor in list(flavors)[:FLAVORS]
        ]

    def _headroom(self, flavor: str, resources: Iterable[str]) -> list[dict[str, Any]]:
        """The room for a workload of the queue; resources without a limit are left out."""
        queue = self._gang.queue
        rooms: dict[str, dict[str, int]] = {path: {} for path in self._state.book.lineage(queue)}
        for resource, of in product(resources, (flavor, None)):
            for path, room in self._state.rooms(queue, (of, resource)).items():
                rooms[path][resource] = min(room, rooms[path].get(resource, room))
        return [{"queue": path, "room": format_resources(there)} for path, there in rooms.items() if there]

    def _who(self) -> list[dict[str, Any]]:
        """The largest users of a row in its way, or of the scarce resource where it comes closest. None if it could not
        start with all of that free.
        """
        if self._primary.verdict is Verdict.CHANGE:
            return []
        params, closest = self._primary.params, self._closest
        if "queue" in params and "resource" in params:
            return self._holders.in_queue(
                params["queue"], (params.get("flavor"), params["resource"]), of=self._gang.queue
            )
        scarce = None if closest is None else self._places.scarce(closest)
        if closest is None or scarce is None:
            return []
        nodes = self._places.nodes(closest).tolist()
        if closest.at is None:
            return self._holders.anywhere(nodes, scarce, of=self._gang.queue)
        return self._holders.on_nodes(nodes, scarce)

    def _reservation(self, owner: str) -> dict[str, Any]:
        """One that it must leave whole."""
        workload = self._state.arrays.waiting.gangs[owner].workload
        starts = _foretold_start(self._state, self._state.reserved[owner].reservation)
        who = {"name": workload.name, "namespace": workload.namespace, "queue": workload.queue}
        return {"reservation": owner, **who, "starts": starts}


def _hosts(reserved: Reservation) -> list[str]:
    return sorted({name for part in reserved.assignments for name in part.nodes})


def _foretold_start(state: State, reserved: Reservation) -> float | None:
    """The start of a reservation that people may be told; None = it has come, or rests on ends that are told later or
    not at all: what its place has or gets is kept from now on.
    """
    now, there = state.time, frozenset(_hosts(reserved))
    if reserved.start <= now:
        return None
    for run in state.running.values():
        ends = expected_end(run.admitted, now=now)
        if ends <= reserved.start and not run.admitted.releasing:
            on = any(state.nodes.names[node] in there for node in run.rows)
            told = foretold_end(run.admitted, now=now)[0]
            if on and (told is None or told > reserved.start):
                return None
    return reserved.start


def _subject(reason: Reason) -> object:
    return (reason.token, *(reason.params.get(name) for name in _SUBJECT))


def _need(workload: Workload, topology: Topology) -> list[dict[str, Any]]:
    """Its requests by pod set, with the narrower of its levels."""
    need = []
    for p in workload.pod_sets:
        row: dict[str, Any] = {"podSet": p.name, "count": p.count, "per": format_resources(p.requests)}
        levels = [level for level in (workload.required, p.required) if level is not None]
        narrowest = max(levels, key=lambda level: topology.find(level) or 0, default=None)
        need.append(row if narrowest is None else {**row, "level": narrowest})
    return need


# Holders


class _Holders:
    """The holders of what a waiting gang lacks, and the part that it may evict. `started`: uids of what the cycle
    before has started.
    """

    def __init__(self, state: State, started: Collection[str]) -> None:
        self._state, self._started = state, started

    def in_queue(self, queue: str, account: Account, *, of: str) -> list[dict[str, Any]]:
        """The largest users of an account in a queue: its children, its own workloads, gangs bound there. `of`: the
        queue of who asks; instead of it, and of those above it, is told what is in them.
        """
        return self._largest(self._uses_in(queue, account, of=of), account[1])

    def anywhere(self, nodes: Collection[int], resource: str, *, of: str) -> list[dict[str, Any]]:
        """The largest users of a resource in all queues, and on these nodes outside of them."""
        return self._largest(self._uses_in(ROOT, (None, resource), of=of), resource, nodes)

    def _uses_in(self, queue: str, account: Account, *, of: str) -> dict[str, int]:
        state = self._state
        lineage = state.book.lineage
        own = [path for path in lineage(of) if queue in lineage(path)]
        kids = (kid for path in own for kid in state.book.tree.children[path] if kid not in own)
        uses = {kid: state.used_now.used(kid, account) for kid in kids}
        for uid, run in state.running.items():
            if lineage(run.admitted.workload.queue)[0] in own:
                uses[uid] = run.charge.get(account, 0)
        for uid, settled in state.settled.items():
            if queue in lineage(settled.gang.queue):
                uses[uid] = settled.charge.get(account, 0)
        return uses

    def on_nodes(self, nodes: Collection[int], resource: str) -> list[dict[str, Any]]:
        """The largest holders of a resource on some nodes."""
        state, inside = self._state, frozenset(nodes)
        column = state.nodes.column(resource)

        def used(rows: Rows) -> int:
            return sum(int(row[column]) for node, row in rows.items() if node in inside)

        uses = {uid: used(state.rows_of(uid)) for uid in state.running}
        uses |= {uid: used(state.rows(settled)) for uid, settled in state.settled.items()}
        return self._largest(uses, resource, nodes)

    def _largest(
        self, uses: Mapping[str, int], resource: str, nodes: Collection[int] = ()
    ) -> list[dict[str, Any]]:
        """The largest users; on these nodes the owners of pods that no queue pays for, too."""
        names = [self._state.nodes.names[node] for node in nodes]
        found = (each.on(names) for each in self._state.snapshot.outside)
        outside = {f"outside {i}": each for i, each in enumerate(found)}
        uses = {**uses, **{key: each.amounts.get(resource, 0) for key, each in outside.items()}}
        return [
            _outside_row(outside[name], resource, amount)
            if name in outside
            else self._row(name, resource, amount)
            for name, amount in _most(uses)
        ]

    def _row(self, name: str, resource: str, amount: int) -> dict[str, Any]:
        """A queue or workload; of the latter until when, if that is known, and whether it has just been started, leaves
        or is bound.
        """
        state = self._state
        told = {"resource": resource, "amount": format_quantity(amount, resource=resource)}
        if name not in state.running and name not in state.settled:
            return {"queue": name, **told}
        admitted = state.running[name].admitted if name in state.running else None
        workload = state.settled[name].gang.workload if admitted is None else admitted.workload
        row = {"workload": name, "name": workload.name, "namespace": workload.namespace}
        row = {**row, "queue": workload.queue, **told}
        if admitted is None:
            return {**row, "held": True}
        end, runs = foretold_end(admitted, now=state.time)
        ends = {} if end is None else {"ends": end, **({"runs": runs} if runs else {})}
        leaves = admitted.releasing or name in state.leaving
        mark = {"leaving": True} if leaves else {"starting": True} if name in self._started else {}
        return {**row, **ends, **mark}

    def evictable(self, gang: Gang, charge: Charge, primary: Reason) -> Reason | None:
        """The rest of the gang's guarantee, the amounts that it may evict for it, and those that it may not evict yet.
        None: it is not entitled anywhere, nobody has what it asks for, or quota has room for it and its place, if that
        is what it lacks, cannot be had by waiting for a minRuntime.
        """
        state, book = self._state, self._state.book
        entitled = state.claimed.entitlements(gang.queue, charge)
        claims = [account for account in charge if account in book.claims(gang.queue)]
        if not any(entitled) or not claims:
            return None
        queue, account = book.lineage(gang.queue)[entitled.index(True)], claims[0]
        free = min(state.rooms(gang.queue, account).values())
        by_place = free >= charge[account]
        if by_place and (primary.token is not Token.TOPOLOGY_PLACEMENT_FAILED or primary.unstartable):
            return None
        lineages = {uid: book.lineage(run.admitted.workload.queue) for uid, run in state.running.items()}
        rests = {uid: book.tree.policy(path[0]).min_runtime or 0.0 for uid, path in lineages.items()}
        later = State(state.arrays, time=state.time + max(rests.values(), default=0.0))
        now, all_ = (takes(moment, gang, charge, account) for moment in (state, later))
        young = {uid: amount for uid, amount in all_.items() if uid not in now}
        if not young and (by_place or not now):
            return None
        used, guaranteed = state.used_now.used(queue, account), book.guaranteed(queue, account)
        claimed = state.claimed.used(queue, account)
        whose: dict[str, int] = {}
        for uid, amount in now.items():
            whose[lineages[uid][0]] = whose.get(lineages[uid][0], 0) + amount
        params: dict[str, Any] = {
            **named(queue, account),
            "used": used,
            "held": claimed - used,
            "guaranteed": guaranteed,
            "left": guaranteed - claimed,
            "asks": charge[account],
            "free": free,
            "evictable": sum(now.values()),
            "notYet": sum(young.values()),
            "owners": [{"queue": owner, "amount": n} for owner, n in _most(whose)],
        }
        if young:
            params["until"] = min(state.running[uid].admitted.since + rests[uid] for uid in young)
            params["wait"] = ceil(params["until"] - state.time)
        return Reason(primary.token if by_place else Token.WAITING_FOR_QUOTA, params)


def _outside_row(found: Outside, resource: str, amount: int) -> dict[str, Any]:
    """Pods that no queue pays for, by what drives them."""
    who = {"namespace": found.namespace, "kind": found.kind, "name": found.name} if found.name else {}
    told = {"resource": resource, "amount": format_quantity(amount, resource=resource)}
    return {"outside": True, **who, "pods": found.pods, **told}


def _most(amounts: Mapping[str, int]) -> list[tuple[str, int]]:
    """The largest amounts above 0, equal ones by name."""
    found = sorted(amounts.items(), key=lambda item: (-item[1], item[0]))[:HOLDERS]
    return [(name, amount) for name, amount in found if amount > 0]

"""Who has what a waiting gang lacks, in a queue or on nodes; and what of it may be evicted for the gang, and when."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from math import ceil
from typing import Any

from queuer.domain.quantity import format_quantity
from queuer.domain.quota import Account, Charge
from queuer.domain.reasons import Reason, Token
from queuer.domain.sentences import evictable
from queuer.solver.explain.quota import named
from queuer.solver.nodes import Rows
from queuer.solver.rights import Rights
from queuer.solver.shapes import Gang
from queuer.solver.state import State

HOLDERS = 3
"""How many holders are named at most."""


class Holders:
    """Of one state. `started`: uids of what the cycle before has started."""

    def __init__(self, state: State, started: Collection[str]) -> None:
        self._state, self._started = state, started

    def in_queue(self, queue: str, account: Account) -> list[dict[str, Any]]:
        """Who uses most of an account in a queue: its children, its own workloads, gangs that are bound there."""
        state, resource = self._state, account[1]
        lineage = state.book.lineage
        uses = {kid: state.now.used(kid, account) for kid in state.book.tree.children[queue]}
        for uid, hold in state.holds.items():
            if lineage(hold.admitted.workload.queue)[0] == queue:
                uses[uid] = hold.charge.get(account, 0)
        for uid, settled in state.settled.items():
            if queue in lineage(settled.gang.queue):
                uses[uid] = settled.charge.get(account, 0)
        return [self._row(name, resource, amount) for name, amount in _most(uses)]

    def on_nodes(self, nodes: Collection[int], resource: str) -> list[dict[str, Any]]:
        """Who holds most of a resource on some nodes."""
        state, inside = self._state, frozenset(nodes)
        column = state.nodes.column[resource]

        def used(rows: Rows) -> int:
            return sum(int(row[column]) for node, row in rows.items() if node in inside)

        uses = {uid: used(state.rows_of(uid)) for uid in state.holds}
        uses |= {uid: used(state.rows(settled)) for uid, settled in state.settled.items()}
        return [self._row(name, resource, amount) for name, amount in _most(uses)]

    def _row(self, name: str, resource: str, amount: int) -> dict[str, Any]:
        """A queue or workload; of the latter until when, if that is known, and whether it has just been started, leaves
        or is bound.
        """
        state = self._state
        told = {"resource": resource, "amount": format_quantity(amount, resource=resource)}
        if name not in state.holds and name not in state.settled:
            return {"queue": name, **told}
        admitted = state.holds[name].admitted if name in state.holds else None
        workload = state.settled[name].gang.workload if admitted is None else admitted.workload
        row = {"workload": name, "name": workload.name, "namespace": workload.namespace}
        row = {**row, "queue": workload.queue, **told}
        if admitted is None:
            return {**row, "held": True}
        ends = {} if admitted.expected_end is None else {"ends": admitted.expected_end}
        leaves = admitted.releasing or name in state.leaving
        mark = {"leaving": True} if leaves else {"starting": True} if name in self._started else {}
        return {**row, **ends, **mark}

    def evictable(self, gang: Gang, charge: Charge) -> Reason | None:
        """What the gang's guarantee leaves it, what it may evict for the rest, and what it may not yet. None: it is not
        entitled anywhere, or nobody has what it asks for.
        """
        state, book = self._state, self._state.book
        entitled = state.claimed.entitlements(gang.queue, charge)
        claims = [account for account in charge if account in book.claims(gang.queue)]
        if not any(entitled) or not claims:
            return None
        queue, account = book.lineage(gang.queue)[entitled.index(True)], claims[0]
        lineages = {uid: book.lineage(hold.admitted.workload.queue) for uid, hold in state.holds.items()}
        rests = {uid: book.tree.policy(path[0]).min_runtime or 0.0 for uid, path in lineages.items()}
        later = State(state.arrays, time=state.time + max(rests.values(), default=0.0))
        now, all_ = (_takes(moment, gang, charge, account) for moment in (state, later))
        young = {uid: amount for uid, amount in all_.items() if uid not in now}
        if not now and not young:
            return None
        used, guaranteed = state.claimed.used(queue, account), book.guaranteed(queue, account)
        figures = {
            "used": used,
            "guaranteed": guaranteed,
            "left": guaranteed - used,
            "asks": charge[account],
            "free": min(room for usage in state.usages() for _, room in usage.rooms(gang.queue, account)),
            "evictable": sum(now.values()),
            "notYet": sum(young.values()),
        }
        whose: dict[str, int] = {}
        for uid, amount in now.items():
            whose[lineages[uid][0]] = whose.get(lineages[uid][0], 0) + amount
        said = partial(format_quantity, resource=account[1])
        params: dict[str, Any] = {**named(queue, account), **{name: said(n) for name, n in figures.items()}}
        params["from"] = [{"queue": owner, "amount": said(n)} for owner, n in _most(whose)]
        if young:
            params["until"] = min(state.holds[uid].admitted.since + rests[uid] for uid in young)
            params["wait"] = ceil(params["until"] - state.time)
        return Reason(Token.WAITING_FOR_QUOTA, params, evictable(params))


def _takes(state: State, gang: Gang, charge: Charge, account: Account) -> dict[str, int]:
    """What may go one after the other, smallest first, of an account, by uid."""
    rights, line = Rights(state), state.line.copy()
    reach = rights.reach(gang, charge)
    there = [(party, hold) for party, _ in rights.permitted(reach) for hold in party.holds]
    found: dict[str, int] = {}
    for party, hold in sorted(there, key=lambda pair: pair[1].charge.get(account, 0)):
        uid, amount = hold.admitted.workload.uid, hold.charge.get(account, 0)
        if uid not in state.leaving and uid not in reach.spared and amount and party.rule(line):
            found[uid] = amount
            line.add(hold.admitted.workload.queue, hold.charge, times=-1)
    return found


def _most(amounts: Mapping[str, int]) -> list[tuple[str, int]]:
    """The largest amounts above 0, equal ones by name."""
    found = sorted(amounts.items(), key=lambda item: (-item[1], item[0]))[:HOLDERS]
    return [(name, amount) for name, amount in found if amount > 0]

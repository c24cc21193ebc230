"""What waiting gangs are told, and counting it again from the snapshot and the plan alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from queuer.domain.nodes import flavor_of
from queuer.domain.quantity import add, format_quantity, parse_quantity
from queuer.domain.quota import QuotaBook
from queuer.domain.reasons import Explanation, Reason
from queuer.domain.workload import PodSet
from queuer.solver.decide import decide
from queuer.solver.problem import Assignment, Budget, Pending, Plan, Snapshot
from queuer.solver.score import allowed_flavors

Account = tuple[str | None, str]


def told(snap: Snapshot, uid: str = "g") -> Explanation:
    """Why the gang waits, by greedy's plan."""
    return decide(snap, now=0.0, seed=0, budget=Budget(deterministic=0.0)).explanations[uid]


@dataclass(frozen=True)
class Recount:
    """One cycle, counted anew."""

    snap: Snapshot
    plan: Plan
    now: float

    def faults(self) -> Iterator[str]:
        """A line for each figure that is not what is counted, or does not refuse what it is said to refuse."""
        for uid, explanation in self.plan.explanations.items():
            for reason in (explanation.primary, *explanation.others):
                for fault in self._of(uid, reason):
                    yield f"{uid}: {fault}: {reason.text} {dict(reason.params)}"
            for fault in self._holders(explanation):
                yield f"{uid}: {fault}: {explanation.detail['holders']}"

    def _of(self, uid: str, reason: Reason) -> Iterator[str]:
        params = reason.params
        if not re.search(r"[.]$", reason.text):
            yield "no sentence"
        if {"queue", "resource", "used"} <= params.keys():
            yield from self._row(uid, reason)
        if {"asks", "limit"} <= params.keys() and "used" not in params:
            yield from self._never(uid, reason)
        if "protected" in params:
            yield from self._protected(uid, params)
        if "fits" in params:
            yield from self._slots(uid, reason)
        for cause in params.get("causes", ()):
            yield from self._of(uid, Reason(token=reason.token, text=cause["text"], params=cause))
            if f"On {cause['on']}: {cause['text']}" not in reason.text:
                yield f"{cause['on']} is not in the sentence"
        held = {r.uid for r in self.plan.reservations}
        if "holds a reservation" in reason.text and params["owner"] not in held:
            yield "there is no such reservation"

    # Quota

    def _row(self, uid: str, reason: Reason) -> Iterator[str]:
        params = reason.params
        resource, queue = params["resource"], params["queue"]
        account = (params.get("flavor"), resource)
        told = {
            name: parse_quantity(value, resource=resource)
            for name, value in params.items()
            if name in ("used", "held", "leaving", "kept", "limit", "asks", "guaranteed")
        }
        if "left" not in params:  # the row of a claim is another
            for name, n in (("used", self.used(queue, account)), ("held", self.held(queue, account))):
                if told[name] != n:
                    yield f"{name} is {n}"
            aside = {"guaranteed"} if "limit" in told else set()
            if "limit" in told and told["used"] + told.get("kept", 0) + told["asks"] > told["limit"]:
                aside |= {"held"}
            for name in told.keys() - aside:
                if told[name] and not re.search(rf"\b{re.escape(params[name])}\b", reason.text):
                    yield f"{name} is not in the sentence"
            most = told.get("limit", told["guaranteed"])
            sums = told["used"] + told["held"] - told.get("leaving", 0) + told.get("kept", 0)
            if sums + told["asks"] <= most:
                yield "that would fit"
        if "row" in params:
            yield from self._sums(uid, reason)
        elif "leaving" in told and told["leaving"] != self.leaving(queue, account):
            yield f"leaving is {self.leaving(queue, account)}"
        if "limit" in told and told["limit"] not in (self._limit(queue, account), self._live(queue, account)):
            yield f"the limit is {self._limit(queue, account)}, the live capacity {self._live(queue, account)}"

    def _never(self, uid: str, reason: Reason) -> Iterator[str]:
        """More than a limit leaves even when nothing runs."""
        params = reason.params
        account = (params.get("flavor"), params["resource"])
        asks, limit, kept = (
            parse_quantity(params.get(name, 0), resource=account[1]) for name in ("asks", "limit", "kept")
        )
        if limit not in (self._limit(params["queue"], account), self._live(params["queue"], account)):
            yield "the limit is another"
        if asks + kept <= limit:
            yield "that would fit"
        pending = next(p for p in self.snap.pending if p.workload.uid == uid)
        least = sum(
            (p.min_count or p.count) * p.requests.get(account[1], 0) for p in pending.workload.pod_sets
        )
        if asks > least or (account[0] is None and asks != least):
            yield f"it asks {least}"

    def _sums(self, uid: str, reason: Reason) -> Iterator[str]:
        """What a row leaves now and once all have left who are leaving, which with what may be taken back and what is
        missing comes to what is asked.
        """
        params = reason.params
        resource = params["resource"]
        told = {
            name: _signed(params.get(name, "0"), resource)
            for name in ("asks", "free", "leaving", "reclaimable", "lower", "missing")
        }
        for name in ("free", "leaving", "missing"):
            if told[name] and not re.search(rf"\b{re.escape(params[name].lstrip('-'))}\b", reason.text):
                yield f"{name} is not in the sentence"
        row, queue = params["row"], self._queue_of(uid)
        account = (row.get("flavor"), row["resource"])
        now, later = (self._room(queue, row["queue"], account, gone=gone) for gone in (set(), self._going))
        if (max(0, told["free"]), max(0, told["free"] + told["leaving"])) != (now, later):
            yield f"{now} are free, {later} once others have left"
        sums = told["free"] + told["leaving"] + told["reclaimable"] + told["lower"]
        if max(0, told["asks"] - sums) != told["missing"]:
            yield "the figures do not sum up"

    def _queue_of(self, uid: str) -> str:
        return next(p.workload.queue for p in self.snap.pending if p.workload.uid == uid)

    def _room(self, queue: str, row: str, account: Account, *, gone: Set[str]) -> int:
        """The most that a gang of the queue could ask for as far as a row above it goes."""
        limit = self._limit(row, account)
        live = self._live(row, account)
        most = min(n for n in (limit, live) if n is not None)

        def counted(path: str, more: int) -> tuple[int, int]:
            """What is used in a subtree and what counts of it, were that much more used by the gang's queue."""
            kids = [counted(kid, more) for kid in self.snap.tree.children[path]]
            uses = self._uses(account, path)
            used = sum(n for uid, n in uses.items() if uid not in gone)
            used += more if f"{queue}.".startswith(f"{path}.") else 0
            own = used - sum(use for use, _ in kids)
            return used, max(own + sum(base for _, base in kids), self._book.kept(path, account))

        def fits(more: int) -> bool:
            used, base = counted(row, more)
            return used <= most and (base <= most or base == counted(row, 0)[1])

        low, high = 0, max(0, most)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fits(middle) else (low, middle - 1)
        return low

    @cached_property
    def _book(self) -> QuotaBook:
        capacity: dict[str, Mapping[str, int]] = {}
        for state in self.snap.nodes:
            if (of := flavor_of(state.node, self.snap.flavors)) is not None:
                capacity[of] = add(capacity.get(of, {}), state.node.allocatable)
        return QuotaBook(self.snap.tree, capacity)

    def used(self, queue: str, account: Account) -> int:
        """What is admitted, this cycle's admissions included."""
        return sum(n for uid, n in self._uses(account, queue).items() if uid not in self._bound)

    def held(self, queue: str, account: Account) -> int:
        """What is held for bound gangs."""
        return sum(n for uid, n in self._uses(account, queue).items() if uid in self._bound)

    def leaving(self, queue: str, account: Account) -> int:
        """What goes for the sake of bound gangs, or anyway."""
        return sum(n for uid, n in self._uses(account, queue).items() if uid in self._going)

    @cached_property
    def _going(self) -> Set[str]:
        """Victims of bonds that are on their way out, and who leaves anyway within five minutes."""
        victims = {uid for bond in self.plan.bonds for uid in bond.victims}
        going = {e.uid for e in self.plan.evictions}
        by = {a.workload.uid: a.gone_by for a in self.snap.admitted if a.releasing}
        soon = {uid for uid, at in by.items() if at is not None and self.now < at <= self.now + 300}
        return victims & (going | by.keys()) | soon

    @cached_property
    def _bound(self) -> frozenset[str]:
        return frozenset(bond.uid for bond in self.plan.bonds)

    @cached_property
    def _placed(self) -> Mapping[str, tuple[Assignment, ...]]:
        started = {one.uid: one.assignments for one in self.plan.admissions}
        return {**started, **{bond.uid: bond.assignments for bond in self.plan.bonds}}

    def _uses(self, account: Account, queue: str) -> Mapping[str, int]:
        """By uid, of the queue's subtree."""
        flavor, resource = account
        found = {}
        for one in self.snap.admitted:
            if f"{one.workload.queue}.".startswith(f"{queue}."):
                found[one.workload.uid] = sum(
                    one.counts.get(p.name, 0) * p.requests.get(resource, 0)
                    for p in one.workload.pod_sets
                    if flavor in (None, one.flavors.get(p.name))
                )
        for pending in self.snap.pending:
            uid, sets = pending.workload.uid, {p.name: p for p in pending.workload.pod_sets}
            if uid in self._placed and f"{pending.workload.queue}.".startswith(f"{queue}."):
                found[uid] = sum(
                    row.count * sets[row.pod_set].requests.get(resource, 0)
                    for row in self._placed[uid]
                    if flavor in (None, row.flavor)
                )
        return found

    def _limit(self, queue: str, account: Account) -> int | None:
        rows = self.snap.tree[queue].quota
        return next((row.limit for row in rows if (row.flavor, row.resource) == account), None)

    def _live(self, queue: str, account: Account) -> int | None:
        if queue != "root":
            return None
        flavor, resource = account
        return sum(
            state.node.allocatable.get(resource, 0)
            for state in self.snap.nodes
            if (of := flavor_of(state.node, self.snap.flavors)) is not None and flavor in (None, of)
        )

    # Nodes

    def _slots(self, uid: str, reason: Reason) -> Iterator[str]:
        params = reason.params
        if params["missing"] != max(0, params["count"] - params["fits"]):
            yield "missing"
        if params["missing"] and (params["fits"] or not re.search(r"\bnone\b|\bno .*node\b", reason.text)):
            for name in ("fits", "missing", "count"):
                if not re.search(rf"\b{params[name]}\b", reason.text):
                    yield f"{name} is not in the sentence"
        most = self.slots(uid, params["podSet"], params.get("level"), idle=bool(params.get("idle")))
        if params["fits"] not in most:
            yield f"{most} fit"

    def slots(self, uid: str, name: str, level: str | None, *, idle: bool) -> set[int]:
        """How many pods of a set fit, or fit in the best domain, by flavor."""
        pending = next(p for p in self.snap.pending if p.workload.uid == uid)
        pod_set = next(p for p in pending.workload.pod_sets if p.name == name)
        flavors = allowed_flavors(
            pod_set, queue=pending.workload.queue, tree=self.snap.tree, flavors=self.snap.flavors
        )
        return {self._in_best(pending, pod_set, flavor, level, idle=idle) for flavor in flavors}

    def _in_best(
        self, pending: Pending, pod_set: PodSet, flavor: str, level: str | None, *, idle: bool
    ) -> int:
        of = next((f for f in self.snap.flavors if f.name == flavor), None)
        terms = pod_set.terms
        if of is not None:
            terms = replace(terms, tolerations=(*terms.tolerations, *of.tolerations))
        sums: dict[object, int] = {}
        for state in self.snap.nodes:
            node = state.node
            if flavor_of(node, self.snap.flavors) != flavor:
                continue
            if idle:
                node = replace(node, ready=True, unschedulable=False)
            if not node.accepts(terms) or (not idle and node.name in pending.avoid):
                continue
            domain: object = "all"
            if level is not None:
                index = self.snap.topology.find(level)
                assert index is not None
                domain = self.snap.topology.domain(node, index)
                if domain is None:
                    continue
            frees = [node.allocatable] if idle else [self._free(node.name, later) for later in (False, True)]
            asked = [(r, n) for r, n in pod_set.requests.items() if n]
            fits = min(max(0, free.get(r, 0)) // n for free in frees for r, n in asked)
            sums[domain] = sums.get(domain, 0) + (min(fits, 1) if pod_set.exclusive_host else fits)
        return max(sums.values(), default=0)

    def _free(self, name: str, later: bool) -> Mapping[str, int]:
        """What is free on a node with what starts and the most that may still land there; `later`: with victims gone
        and bound gangs there.
        """
        state = next(s for s in self.snap.nodes if s.node.name == name)
        free: Mapping[str, int] = add(state.node.allocatable, state.used, times=-1)
        for pending in self.snap.pending:
            uid, sets = pending.workload.uid, {p.name: p for p in pending.workload.pod_sets}
            if uid in self._placed and (later or uid not in self._bound):
                for row in self._placed[uid]:
                    free = add(free, sets[row.pod_set].requests, times=-row.nodes.get(name, 0))
        stay = [a for a in self.snap.admitted if not (later and a.workload.uid in self._going)]
        for one in self.snap.admitted:
            if one not in stay:
                free = add(free, one.bound.get(name, {}))
        left = free
        for one in stay:
            sets = {p.name: p for p in one.workload.pod_sets}
            for part in one.unbound:
                if name in part.hosts:
                    asked = sets[part.pod_set].requests
                    most = min(max(0, left.get(r, 0)) // n for r, n in asked.items() if n)
                    free = add(free, asked, times=-min(part.count, most))
        return free

    def _protected(self, uid: str, params: Mapping[str, Any]) -> Iterator[str]:
        """No more than what runs there too short, by queue, and none of it ends earlier than is told."""
        tree, young = self.snap.tree, dict[str, int]()
        ends = list[float]()
        for one in self.snap.admitted:
            queue = one.workload.queue
            end = one.since + ((tree.policy(queue).min_runtime if queue in tree else None) or 0.0)
            if one.workload.preemptible and not one.releasing and end > self.now:
                sizes = {p.name: p.requests.get(params["resource"], 0) for p in one.workload.pod_sets}
                young[queue] = young.get(queue, 0) + sum(n * sizes[name] for name, n in one.counts.items())
                ends.append(end)
        if params["until"] not in ends:
            yield "nobody's minRuntime is over then"
        parts = {
            part["queue"]: parse_quantity(part["amount"], resource=params["resource"])
            for part in params["from"]
        }
        if any(not 0 < amount <= young.get(queue, 0) for queue, amount in parts.items()):
            yield f"in reach but for minRuntime are at most {young}"
        if uid in {e.uid for e in self.plan.evictions}:
            yield "it goes itself"

    def _holders(self, explanation: Explanation) -> Iterator[str]:
        """Amounts in a leaf or subtree where a row of quota is in the way."""
        reason = next(
            (
                r
                for r in (explanation.primary, *explanation.others)
                if "limit" in r.params and "used" in r.params
            ),
            None,
        )
        if reason is None or "holders" not in explanation.detail:
            return
        holders = [h for h in explanation.detail["holders"] if "reservation" not in h]
        queue, resource = reason.params["queue"], reason.params["resource"]
        account = (reason.params.get("flavor"), resource)
        uses = self._uses(account, queue)
        if not holders and any(uses.values()):
            yield "nobody is named"
        for holder in holders:
            if "workload" in holder:
                n = uses.get(holder["workload"], 0)
                if holder["amount"] != format_quantity(n, resource=resource):
                    yield f"{holder['workload']} has {n}"
                yield from self._marks(holder)

    def _marks(self, holder: Mapping[str, Any]) -> Iterator[str]:
        uid = holder["workload"]
        if bool(holder.get("held")) != (uid in self._bound):
            yield f"{uid}: held"
        if bool(holder.get("starting")) != (uid in {a.uid for a in self.plan.admissions}):
            yield f"{uid}: starting"


def _signed(text: str, resource: str) -> int:
    amount = parse_quantity(text.removeprefix("-"), resource=resource)
    return -amount if text.startswith("-") else amount

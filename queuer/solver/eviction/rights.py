"""Eviction rights: the running workloads that a gang may evict, the rule for each, and the cost.

Thousands of gangs share a few rights, so that each right is looked through only once, queue by queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise

import numpy as np

from queuer.domain.assignments import EvictionRule
from queuer.domain.queue import Preempt
from queuer.domain.quota import Account, Charge, Guarantee
from queuer.domain.usage import Usage
from queuer.solver.arrays import Running
from queuer.solver.eviction.lost_work import Cost, lost_work, preempted_work
from queuer.solver.nodes import Numbers
from queuer.solver.shapes import Gang
from queuer.solver.state import State

Excesses = tuple[tuple[Guarantee, ...], ...]
"""Guarantees that are exceeded at the moment a victim goes: all in one of these rows. () = that is not permitted."""
ALWAYS: Excesses = ((),)
MOST_EVICTED = 2
"""Nobody is preempted who was evicted as often in the last hour; a guarantee is taken back all the same."""


@dataclass(frozen=True, slots=True)
class Right:
    """A claim of a gang on the work under `common` that is not in its own branch.

    `claimed`: accounts in which it takes back what others borrow. `below`: it may preempt lower
    priorities than this, None = none; of other queues only work outside their guarantees.
    """

    common: str
    claimed: tuple[Account, ...] = ()
    below: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class GangRights:
    """Eviction rights of a gang; one object for all gangs with the same, so that it serves as a key.

    `rights`: each right with the branch that it leaves out, or with the gang's own queue where it covers only that.
    `spared`: uids that no right covers.
    """

    rights: tuple[tuple[Right, str], ...]
    spared: frozenset[str]


NONE = GangRights((), frozenset())


@dataclass(frozen=True, slots=True, eq=False)
class VictimGroup:
    """Work of one queue that may go by the same excesses. `path`: its queue and those above; `numbers`: its places
    among the running work.
    """

    path: tuple[str, ...]
    runs: tuple[Running, ...]
    numbers: Numbers
    reclaim: Excesses
    preempt: Excesses

    def rule(self, remaining: Usage) -> EvictionRule | None:
        """The rule that costs least of those that permit it when this is used."""
        if remaining.exceeds(self.reclaim):
            return EvictionRule.RECLAIM
        return EvictionRule.PREEMPT if remaining.exceeds(self.preempt) else None


class Rights:
    """Of all gangs of one decision."""

    def __init__(self, state: State) -> None:
        self._state, self._book, self._tree = state, state.book, state.book.tree
        self._by_key: dict[object, GangRights] = {}
        self._same: dict[object, GangRights] = {}
        self._answers: dict[GangRights, tuple[int, bool]] = {}
        self._lost = cache(lambda run: lost_work(run.admitted, capacity=state.capacity, now=state.time))
        self._branches = cache(self._find_branches)
        self._evictable = cache(self._find_evictable)
        self._groups = cache(self._find_groups)

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """Places among the running work, by uid."""
        return {uid: n for n, uid in enumerate(self._state.running)}

    @cached_property
    def _by_queue(self) -> Mapping[str, list[Running]]:
        found: dict[str, list[Running]] = {}
        for run in self._state.running.values():
            found.setdefault(run.admitted.workload.queue, []).append(run)
        return found

    def of(self, gang: Gang, charge: Charge) -> GangRights:
        """The rights of this gang, by where it is entitled as things are. `charge`: what it asks for. A gang whose
        starts fail has none: work would be lost for a place that it does not use.
        """
        if gang.pending.failed:
            return NONE
        may, displaced_by = self._state.claimed.entitlements(gang.queue, charge), gang.pending.displaced_by
        key = (gang.queue, gang.workload.priority, tuple(charge), may, displaced_by)
        if key not in self._by_key:
            rights = tuple(self._find_rights(gang.queue, gang.workload.priority, tuple(charge), may))
            self._by_key[key] = self._same.setdefault(
                (rights, displaced_by), GangRights(rights, displaced_by)
            )
        return self._by_key[key]

    def anybody(self, owned: GangRights) -> bool:
        """Whether somebody may go as things are."""
        changes, answer = self._answers.get(owned, (-1, False))
        if changes != self._state.changes:
            leaving, spared = self._state.leaving, owned.spared
            uids = (h.admitted.workload.uid for group, _ in self.permitted(owned) for h in group.runs)
            answer = any(uid not in leaving and uid not in spared for uid in uids)
            self._answers[owned] = (self._state.changes, answer)
        return answer

    def permitted(self, owned: GangRights) -> Iterator[tuple[VictimGroup, EvictionRule]]:
        """Groups of work that may go now, each by its cheapest rule. Leaving and spared work is among them."""
        remaining = self._state.remaining
        for right, toward in owned.rights:
            for branch in self.branches(right, toward, self._branches(right.common)):
                for group in self._groups(right, branch):
                    rule = group.rule(remaining)
                    if rule is not None:
                        yield group, rule

    def cost(self, run: Running, rule: EvictionRule) -> Cost:
        """The cost of its eviction by this rule."""
        lost, admitted = self._lost(run), run.admitted
        return (preempted_work(lost, rule), lost, 1, admitted.workload.priority, admitted.evicted)

    def branches(self, right: Right, toward: str, there: Iterable[str]) -> Iterator[str]:
        """The branches that a right covers, of those there, but for those that borrow nothing of the claims."""
        if toward == right.common:
            yield toward
            return
        for branch in there:
            marks = [[self._book.guarantee(branch, account)] for account in right.claimed]
            if branch != toward and (right.below is not None or self._state.remaining.exceeds(marks)):
                yield branch

    # Constant within a cycle

    def _find_rights(
        self, queue: str, priority: int, accounts: tuple[Account, ...], may: tuple[bool, ...]
    ) -> Iterator[tuple[Right, str]]:
        """`may`: where on its path the gang is entitled."""
        claims, policy = self._book.claims(queue), self._tree.policy(queue)
        if policy.preempt is not Preempt.NEVER:
            yield Right(queue, below=priority), queue
        for entitled, (toward, common) in zip(may, pairwise(self._book.lineage(queue)), strict=True):
            claimed = tuple([a for a in accounts if a in claims]) if policy.reclaim and entitled else ()
            across = self._tree.policy(common).preempt is Preempt.LOWER_PRIORITY
            if across or claimed:
                yield Right(common, claimed, priority if across else None), toward

    def _find_branches(self, common: str) -> Mapping[str, list[str]]:
        """By child of a queue, the queues there in which something runs."""
        found: dict[str, list[str]] = {}
        for queue in self._by_queue:
            path = self._book.lineage(queue)
            if common in path[1:]:
                found.setdefault(path[path.index(common) - 1], []).append(queue)
        return found

    def _find_evictable(self, queue: str) -> tuple[Running, ...]:
        """Work that can be evicted at all: preemptible, past its queue's `minRuntime`, not releasing."""
        now, rest = self._state.time, self._tree.policy(self._book.lineage(queue)[0]).min_runtime or 0.0
        rows = ((run, run.admitted) for run in self._by_queue.get(queue, ()))
        return tuple(
            run for run, a in rows if a.workload.preemptible and not a.releasing and now - a.since >= rest
        )

    def _find_groups(self, right: Right, branch: str) -> tuple[VictimGroup, ...]:
        """The groups that a right covers in one branch, or in the gang's own queue."""
        queues = self._branches(right.common)[branch] if branch != right.common else [branch]
        return tuple([group for queue in queues for group in self._in_queue(right, queue)])

    def _in_queue(self, right: Right, queue: str) -> Iterator[VictimGroup]:
        """The groups that a right covers in one queue, by the excesses that decide about them."""
        path = self._book.lineage(queue)
        groups: dict[tuple[Excesses, Excesses], list[Running]] = {}
        for run in self._evictable(queue):
            key = self.conditions(
                right, path, run.admitted.workload.priority, run.admitted.evicted, run.charge
            )
            if any(key):
                groups.setdefault(key, []).append(run)
        numbers = [[self.numbers[h.admitted.workload.uid] for h in runs] for runs in groups.values()]
        rows = zip(groups.items(), numbers, strict=True)
        for (key, runs), n in rows:
            yield VictimGroup(path, tuple(runs), np.array(n), *key)

    def conditions(
        self, right: Right, path: Sequence[str], priority: int, evicted: int, charge: Charge
    ) -> tuple[Excesses, Excesses]:
        """What must be exceeded for work of a queue on this path to be reclaimed, and to be preempted."""
        above = path[: path.index(right.common)]  # none in the gang's own queue
        reclaim, preempt = self._excesses(right.claimed, above, charge), Excesses()
        if right.below is not None and priority < right.below and evicted < MOST_EVICTED:
            claims = self._book.claims(path[0])
            own = [account for account in charge if account in claims] if above else []
            preempt = self._excesses(own, above, charge) if own else ALWAYS
        return reclaim, preempt

    def _excesses(self, accounts: Sequence[Account], above: Sequence[str], charge: Charge) -> Excesses:
        """That all these queues are above in an account of which the victim holds some."""
        mark = self._book.guarantee
        held = [account for account in accounts if charge.get(account)]
        return tuple([tuple([mark(queue, account) for queue in above]) for account in held])


def takes(state: State, gang: Gang, charge: Charge, account: Account) -> dict[str, int]:
    """Amounts of an account that the gang may evict, by uid, one after the other, smallest first."""
    rights, remaining = Rights(state), state.remaining.copy()
    owned = rights.of(gang, charge)
    there = [(group, run) for group, _ in rights.permitted(owned) for run in group.runs]
    found: dict[str, int] = {}
    for group, run in sorted(there, key=lambda pair: pair[1].charge.get(account, 0)):
        uid, amount = run.admitted.workload.uid, run.charge.get(account, 0)
        if uid not in state.leaving and uid not in owned.spared and amount and group.rule(remaining):
            found[uid] = amount
            remaining.add(run.admitted.workload.queue, run.charge, times=-1)
    return found

"""How often the decision leaves something: small worlds, in each of which all arrangements are tried.

    python -m tests.solver.many_worlds --worlds 500 [--first SEED]

A gang could have more if it could start, or at least be bound instead of waiting. The proof is a plan that
the verifier accepts and that gives no gang before it less, in the order of the plan's turns. Gangs that start
may move; bonds and victims of earlier gangs stay, and a leaf looks for victims once in a cycle. That share is
printed, not judged: the next cycle is the retry. Only an unsound plan is a fault.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import combinations, product

from bench import arguments
from queuer.domain.assignments import Admission, Assignment, Bond, Eviction, EvictionRule
from queuer.domain.nodes import DEFAULT_FLAVOR
from queuer.domain.quantity import add
from queuer.domain.reasons import Token, simple
from queuer.domain.workload import PodSet, Workload
from queuer.solver.decide import decide
from queuer.solver.records import Budget, Plan, Snapshot
from queuer.solver.verify import verify
from tests.solver.worlds import NOW, world

Rows = tuple[Assignment, ...]
TRIALS = 3_000
"""Plans that are verified for one world, at most."""
VICTIMS = 3
"""Gangs that go for one gang, at most."""


class Answer(StrEnum):
    """The result of one world."""

    BEST = "best"
    START_MISSED = "start_missed"  # one more could start beside all that do
    BETTER_EXISTS = "better_exists"  # another plan scores more
    TOO_LONG = "too_long"
    UNSOUND = "unsound"


class TooLong(Exception):
    """More plans than are tried."""


def judged(seed: int) -> tuple[Answer, str]:
    """The result of the world of this seed, and the gang that could have more."""
    snap = world(seed, nodes=4, pending=5, running=4)
    try:
        plan = decide(snap, now=NOW, seed=0, budget=Budget())
    except Exception as error:  # noqa: BLE001 - whatever a decision raises is a fault
        return Answer.UNSOUND, f"{type(error).__name__}: {error}"
    if broken := verify(snap, plan, now=NOW):
        return Answer.UNSOUND, str(broken[0])
    try:
        return Search(snap, plan).better()
    except TooLong:
        return Answer.TOO_LONG, ""


class Search:
    """Of plans that give some gang more. `free`: amounts by node."""

    def __init__(self, snap: Snapshot, plan: Plan) -> None:
        self._snap, self._plan, self._left = snap, plan, TRIALS
        self._gangs = {p.workload.uid: p.workload for p in snap.pending}
        self._started = {a.uid: a.assignments for a in plan.admissions}
        self._bound = {b.uid for b in plan.bonds}
        self._free = {s.node.name: add(s.node.allocatable, s.used, times=-1) for s in snap.nodes}

    def better(self) -> tuple[Answer, str]:
        """The first gang that could have more."""
        before: list[str] = []
        for uid in self._plan.order:
            if uid not in self._started:
                if self._starts([*(u for u in self._plan.order if u != uid), uid], {}):
                    return Answer.START_MISSED, f"{uid} could start, too"
                if self._starts([*before, uid], {}):
                    return Answer.BETTER_EXISTS, f"{uid} could start instead of later ones"
                if uid not in self._bound and self._could_be_bound(uid, before):
                    return Answer.BETTER_EXISTS, f"{uid} could be bound"
            before.append(uid)
        return Answer.BEST, ""

    def _starts(self, before: Sequence[str], chosen: Mapping[str, Rows]) -> bool:
        """Whether the last of these gangs can start and the others have what they have: who starts may move."""
        uids = [u for u in before if u in self._started or u == before[-1]]
        if len(chosen) == len(uids):
            return self._sound(chosen, before=before)
        uid = uids[len(chosen)]
        return any(self._starts(before, {**chosen, uid: rows}) for rows in self._placements(uid, chosen))

    def _could_be_bound(self, uid: str, before: Sequence[str]) -> bool:
        """Whether some victims would make room for the gang, the others staying where they are."""
        leaf = self._gangs[uid].queue
        if any(self._gangs[e.beneficiary].queue == leaf for e in self._plan.evictions):
            return False
        started = {u: rows for u, rows in self._started.items() if u in before}
        running = [a for a in self._snap.admitted if not a.releasing]
        for number in range(1, min(VICTIMS, len(running)) + 1):
            for victims in combinations(running, number):
                gone = {v.workload.uid for v in victims}
                for rows in self._placements(uid, started, gone=gone):
                    for rule in EvictionRule:
                        evictions = tuple(Eviction(uid=v, beneficiary=uid, rule=rule) for v in sorted(gone))
                        bond = Bond(uid=uid, assignments=rows, victims=tuple(gone), deadline=NOW + 300.0)
                        if self._sound(started, before=[*before, uid], bond=bond, evictions=evictions):
                            return True
        return False

    def _sound(
        self,
        starts: Mapping[str, Rows],
        *,
        before: Sequence[str],
        bond: Bond | None = None,
        evictions: tuple[Eviction, ...] = (),
    ) -> bool:
        """Whether the verifier accepts these starts, with what stands of the plan for gangs before."""
        self._left -= 1
        if self._left < 0:
            raise TooLong
        last = before[-1]
        bonds = [b for b in self._plan.bonds if b.uid in before and b.uid not in starts and b.uid != last]
        kept = [e for e in self._plan.evictions if e.beneficiary in before and e.beneficiary != last]
        bonds += [] if bond is None else [bond]
        waits = {b.uid: simple(Token.WAITING_FOR_PREEMPTED_WORKLOADS, "It is bound.") for b in bonds}
        others = {u: simple(Token.SOLVER_DEFERRED, "Not looked at.") for u in self._gangs if u not in starts}
        plan = replace(
            self._plan,
            admissions=tuple(Admission(uid=u, assignments=rows) for u, rows in starts.items()),
            evictions=(*kept, *evictions),
            bonds=tuple(bonds),
            reservations=(),
            explanations={**others, **waits},
        )
        return verify(self._snap, plan, now=NOW) == ()

    def _placements(
        self, uid: str, beside: Mapping[str, Rows], *, gone: Collection[str] = ()
    ) -> Iterator[Rows]:
        """Every way to put the gang on the nodes, at the size at which the plan starts it or else in full."""
        free = {name: dict(amounts) for name, amounts in self._free.items()}
        for admitted in self._snap.admitted:
            if admitted.workload.uid in gone:
                for name, amounts in admitted.bound.items():
                    free[name] = add(free[name], amounts)
        for other, rows in beside.items():
            _take(free, self._gangs[other], rows)
        workload = self._gangs[uid]
        counts = {p.name: p.count for p in workload.pod_sets}
        counts |= {row.pod_set: row.count for row in self._started.get(uid, ())}
        flavors = [f.name for f in self._snap.flavors] or [DEFAULT_FLAVOR]
        for names in product(flavors, repeat=len(workload.pod_sets)):
            yield from self._filled(workload.pod_sets, names, counts, free)

    def _filled(
        self,
        sets: Sequence[PodSet],
        flavors: Sequence[str],
        counts: Mapping[str, int],
        free: Mapping[str, Mapping[str, int]],
    ) -> Iterator[Rows]:
        if not sets:
            yield ()
            return
        labels = next((f.node_labels for f in self._snap.flavors if f.name == flavors[0]), {})
        open_to = [s.node.name for s in self._snap.nodes if s.node.accepts(sets[0].terms)]
        for spread in _spreads(sets[0], counts[sets[0].name], open_to, free):
            row = Assignment(
                pod_set=sets[0].name,
                flavor=flavors[0],
                nodes=spread,
                selector=labels,
                hosts=tuple(sorted(spread)),
            )
            left = dict(free)
            for name, count in spread.items():
                left[name] = add(left[name], sets[0].requests, times=-count)
            for rest in self._filled(sets[1:], flavors[1:], counts, left):
                yield (row, *rest)


def _take(free: dict[str, dict[str, int]], workload: Workload, rows: Rows) -> None:
    requests = {p.name: p.requests for p in workload.pod_sets}
    for row in rows:
        for name, count in row.nodes.items():
            free[name] = add(free[name], requests[row.pod_set], times=-count)


def _spreads(
    pod_set: PodSet, count: int, names: Sequence[str], free: Mapping[str, Mapping[str, int]]
) -> Iterator[dict[str, int]]:
    """Every way to put so many pods on these nodes."""
    if count == 0:
        yield {}
    if count == 0 or not names:
        return
    fits = (free[names[0]].get(r, 0) // n for r, n in pod_set.requests.items() if n)
    most = max(0, min(count, *fits, 1 if pod_set.exclusive_host else count))
    for here in range(most, -1, -1):
        for rest in _spreads(pod_set, count - here, names[1:], free):
            yield {names[0]: here, **rest} if here else rest


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument(
        "--worlds", type=arguments.positive, default=500, help="how many (default: %(default)s)"
    )
    options.add_argument("--first", type=arguments.seed, default=1000, help="seed of the first")
    return options


def main() -> int:
    """A line for each world that is unsound or leaves something, then one JSON line; 1 where any is unsound."""
    wanted = parser().parse_args()
    seen = Counter[Answer]()
    for seed in range(wanted.first, wanted.first + wanted.worlds):
        answer, text = judged(seed)
        seen[answer] += 1
        if text:
            sys.stdout.write(f"{seed} {answer}: {text}\n")
            sys.stdout.flush()
    better = seen[Answer.START_MISSED] + seen[Answer.BETTER_EXISTS]
    share = round(better / (better + seen[Answer.BEST]), 4) if better else 0.0
    sys.stdout.write(json.dumps({**{a.value: seen[a] for a in Answer}, "share_better": share}) + "\n")
    return int(seen[Answer.UNSOUND] > 0)


if __name__ == "__main__":
    sys.exit(main())

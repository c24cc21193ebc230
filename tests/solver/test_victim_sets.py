"""Sets of victims in random worlds: permitted, enough, nobody superfluous, and the cheapest where that is proved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from queuer.domain.assignments import EvictionRule
from queuer.domain.queue import Preempt
from queuer.solver.cpsat import CpSat
from queuer.solver.eviction.candidates import Seeker
from queuer.solver.eviction.lost_work import lost_work, preempted_work
from queuer.solver.eviction.search import Victims
from queuer.solver.placement import parts_of, place
from queuer.solver.slots import Room
from queuer.solver.state import Settled, State
from tests.solver.make import state_of
from tests.solver.worlds import NOW, world


def test_in_random_worlds_every_set_is_enough_and_permitted_and_nobody_superfluous() -> None:
    """Each claim by plain placement and by the rules as they are written, with CP-SAT and without."""
    found = 0
    for seed in range(600):
        for settled, state, _ in _answers(seed, budget=float(seed % 2)):
            found += 1
            _check(state, settled)
    assert found > 100


def test_a_set_that_is_proved_is_the_cheapest() -> None:
    """Against all subsets of the candidates of small worlds; without CP-SAT none is cheaper either."""
    proofs, cheapest = 0, Counter[bool]()
    for seed in range(400):
        for settled, state, proved in _answers(seed, budget=float(seed % 4 > 0), running=8):
            cost = _cost(state, [(e.uid, e.rule) for e in settled.evictions])
            best = min(_sufficient(state, settled))
            assert best <= cost, seed
            proofs += proved
            assert not proved or best == cost, seed
            cheapest[best == cost] += 1
    assert proofs > 40
    assert cheapest[True] > 9 * cheapest[False]


def _answers(seed: int, *, budget: float, running: int = 20) -> Iterator[tuple[Settled, State, bool]]:
    """For each gang of a world that may evict somebody its answer, and whether it is proved."""
    state = state_of(world(seed, nodes=4, running=running), now=NOW)
    victims = Victims(state, CpSat(budget))
    for waiting in state.arrays.waiting.gangs.values():
        for variant, charge in waiting.shape.least:
            proved = victims.proved
            parts = parts_of(state.nodes, waiting.workload, variant)
            settled = victims.bound(Seeker(waiting, variant, charge, parts or ()), iter(()))
            if settled is not None and settled.evictions:
                yield settled, state, victims.proved > proved


def _cost(state: State, gone: Sequence[tuple[str, EvictionRule]]) -> tuple[int, int]:
    """Lost work of the preempted, and of all."""
    works = [
        (lost_work(state.running[uid].admitted, capacity=state.capacity, now=state.time), rule)
        for uid, rule in gone
    ]
    return sum(preempted_work(work, rule) for work, rule in works), sum(work for work, _ in works)


def _sufficient(state: State, settled: Settled) -> Iterator[tuple[int, int]]:
    """The costs of all sets that are permitted in some order and enough."""
    known: dict[frozenset[str], tuple[int, int] | None] = {frozenset(): (0, 0)}
    uids = [uid for uid, run in state.running.items() if run.admitted.workload.preemptible]
    for size in range(1, len(uids) + 1):
        for some in map(frozenset, combinations(uids, size)):
            costs = [cost for uid in some if (cost := _last(state, settled, known, some, uid)) is not None]
            known[some] = min(costs, default=None)
            if costs and _fits(state, settled, sorted(some)):
                yield min(costs)


def _last(
    state: State,
    settled: Settled,
    known: Mapping[frozenset[str], tuple[int, int] | None],
    some: frozenset[str],
    uid: str,
) -> tuple[int, int] | None:
    """The cost of these where this one goes last; None = it may not."""
    before = known[some - {uid}]
    if before is None:
        return None
    line = state.remaining.copy()
    for other in some - {uid}:
        line.add(state.running[other].admitted.workload.queue, state.running[other].charge, times=-1)
    rules = [rule for rule in EvictionRule if _permitted(state, settled, uid, rule, line)]
    mine = min((_cost(state, [(uid, rule)]) for rule in rules), default=None)
    return None if mine is None else (before[0] + mine[0], before[1] + mine[1])


def _check(state: State, settled: Settled) -> None:
    chosen, line = [e.uid for e in settled.evictions], state.remaining.copy()
    for eviction in settled.evictions:
        assert _permitted(state, settled, eviction.uid, eviction.rule, line)
        hold = state.running[eviction.uid]
        line.add(hold.admitted.workload.queue, hold.charge, times=-1)
    assert _fits(state, settled, chosen)
    assert not any(_fits(state, settled, [u for u in chosen if u != spared]) for spared in chosen)
    mark = state.mark
    state.bind(settled)
    assert all((state.free_later[n] >= 0)[taken > 0].all() for n, taken in state.rows(settled).items())
    state.undo(mark)


def _fits(state: State, settled: Settled, uids: list[str]) -> bool:
    """Whether quota and nodes bear the gang once these have gone."""
    waiting, mark = settled.gang, state.mark
    for uid in uids:
        state.leave(uid)
    parts = parts_of(state.nodes, waiting.workload, settled.variant)
    room = Room(state.nodes, state.free_later.copy())
    has_place = place(room, waiting.workload, parts, closed=state.closed(waiting, bound=True)) is not None
    has_quota = state.used_later.fits(waiting.queue, settled.charge)
    state.undo(mark)
    return has_place and has_quota


def _permitted(state: State, settled: Settled, uid: str, rule: EvictionRule, line: Any) -> bool:
    """The sentences of docs/decision.md, "Reclaim and preempt", one by one."""
    tree, claims, waiting, charge = state.book.tree, state.book.claims, settled.gang, settled.charge
    admitted, own = state.running[uid].admitted, state.running[uid].charge
    victim, ours, theirs = (
        admitted.workload,
        tree.lineage(waiting.queue),
        tree.lineage(admitted.workload.queue),
    )
    common = next(path for path in ours if path in theirs)
    below = theirs[: theirs.index(common)]
    rested = state.time - admitted.since >= (tree.policy(victim.queue).min_runtime or 0.0)
    if not victim.preemptible or admitted.releasing or not rested or uid in waiting.pending.displaced_by:
        return False
    if rule is EvictionRule.RECLAIM:
        toward = ours[ours.index(common) - 1]
        entitled = bool(below) and state.claimed.entitled(waiting.queue, charge, at=toward)
        claimed = [a for a in charge if a in claims(waiting.queue)]
        return entitled and tree.policy(waiting.queue).reclaim is True and _above(claimed, own, below, line)
    said, claimed = tree.policy(common).preempt, [a for a in own if a in claims(victim.queue)]
    if victim.priority >= waiting.workload.priority or said is Preempt.NEVER:
        return False
    across = said is Preempt.LOWER_PRIORITY and (not claimed or _above(claimed, own, below, line))
    return not below or across


def _above(accounts: list[Any], own: Mapping[Any, int], below: tuple[str, ...], line: Any) -> bool:
    """Whether the victim holds some of an account in which all these queues are above their guarantee."""
    return any(
        own.get(a) and all(line.used(path, a) > line.book.guaranteed(path, a) for path in below)
        for a in accounts
    )

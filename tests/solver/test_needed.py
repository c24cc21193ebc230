"""No victim goes that the gangs up to its beneficiary could do without, in the verifier and in the decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from queuer.domain.nodes import SchedulingTerms
from queuer.domain.reasons import Token
from queuer.solver.decide import decide
from queuer.solver.problem import Bond, Budget, Eviction, EvictionRule, Plan, Snapshot
from queuer.solver.verify import Rule, verify
from tests.solver.cases import NOW as THEN
from tests.solver.cases import seeded
from tests.solver.cases_rights import twofold
from tests.solver.judged import compare
from tests.solver.make import gang, node, pod_set, queue, row, running, snapshot
from tests.solver.oracle import Oracle
from tests.solver.plans import NOW, at, plan, rules


def two_hosts(*, bound_to: str | None = None) -> Snapshot:
    """`high` may evict both who run, `pawn` only `low`. `bound_to`: the only host that `high` may use."""
    terms = SchedulingTerms(node_selector={"rack": bound_to} if bound_to else {})
    runs = [
        running(gang("low", pod_set(1, 8), priority=0), {"n0": 1}),
        running(gang("mid", pod_set(1, 8), priority=2), {"n1": 1}),
    ]
    waiting = [
        gang("high", replace(pod_set(1, 8), terms=terms), priority=5),
        gang("pawn", pod_set(1, 8), priority=1, submitted=1),
    ]
    nodes = [node(name, labels={"rack": name}) for name in ("n0", "n1")]
    return snapshot(nodes, [queue("root.a")], admitted=runs, pending=waiting)


def evicting(snap: Snapshot, hosts: Mapping[str, str], named: Mapping[str, str]) -> Plan:
    """Gangs bound to hosts, and for whom each victim goes."""
    bonds = [
        Bond(
            uid=uid,
            assignments=(at({host: 1}),),
            victims=tuple(v for v, beneficiary in named.items() if beneficiary == uid),
            deadline=100.0,
        )
        for uid, host in hosts.items()
    ]
    gone = [Eviction(uid=v, beneficiary=uid, rule=EvictionRule.PREEMPT) for v, uid in named.items()]
    return plan(snap, {}, bonds=tuple(bonds), evictions=tuple(gone))


@pytest.mark.parametrize(
    ("hosts", "named", "broken"),
    [
        ({"high": "n0", "pawn": "n1"}, {"low": "high", "mid": "high"}, {Rule.VICTIM}),
        ({"high": "n0", "pawn": "n1"}, {"mid": "high", "low": "pawn"}, {Rule.VICTIM}),
        ({"high": "n1", "pawn": "n0"}, {"mid": "high", "low": "pawn"}, set()),
        ({"high": "n1"}, {"mid": "high"}, set()),
    ],
    ids=["for another", "as if exchanged", "each its own", "alone"],
)
def test_a_victim_makes_room_for_who_may_evict_it(
    hosts: dict[str, str], named: dict[str, str], broken: set[Rule]
) -> None:
    snap = two_hosts()
    assert rules(snap, evicting(snap, hosts, named)) == broken


@pytest.mark.parametrize(("asked", "broken"), [(8, set()), (4, {Rule.VICTIM})])
def test_of_two_on_one_host_both_go_only_if_both_are_in_the_way(asked: int, broken: set[Rule]) -> None:
    runs = [running(gang(uid, pod_set(1, 4)), {"n0": 1}) for uid in ("v0", "v1")]
    waits = gang("g", pod_set(1, asked), priority=1)
    snap = snapshot([node("n0")], [queue("root.a")], admitted=runs, pending=[waits])
    assert rules(snap, evicting(snap, {"g": "n0"}, {"v0": "g", "v1": "g"})) == broken


@pytest.mark.parametrize(("limit", "broken"), [(8, set()), (16, {Rule.VICTIM})])
def test_quota_is_a_reason_wherever_the_victim_runs(limit: int, broken: set[Rule]) -> None:
    runs = [running(gang("v", pod_set(1, 8)), {"n1": 1})]
    snap = snapshot(
        [node("n0"), node("n1")],
        [queue("root.a", row(limit=limit))],
        admitted=runs,
        pending=[gang("g", pod_set(1, 8), priority=1)],
    )
    assert rules(snap, evicting(snap, {"g": "n0"}, {"v": "g"})) == broken


@pytest.mark.parametrize(("bound_to", "gone"), [("n0", {"low"}), (None, {"low", "mid"})])
def test_nobody_goes_for_a_gang_that_may_not_evict_it(bound_to: str | None, gone: set[str]) -> None:
    """Where `high` could run on either host it evicts `mid`, so that `pawn` may take the place of `low`; where it
    could not, that `pawn` has no place is proven.
    """
    snap = two_hosts(bound_to=bound_to)
    made = decide(snap, now=NOW, seed=0, budget=Budget())
    assert verify(snap, made, now=NOW) == ()
    assert {e.uid for e in made.evictions} == gone
    assert made.stats.deferred == 0
    assert made.explanations["high"].primary.token is Token.WAITING_FOR_PREEMPTED_WORKLOADS


@pytest.mark.parametrize(
    "snap",
    [
        seeded(770015),  # a victim goes for the later of two gangs, by another rule than for the first
        seeded(990120),  # several sets of victims for the same quota
        twofold(770146),  # a cheaper layout in another order, in which somebody is not needed at the turn
    ],
    ids=["by another rule", "for quota", "in another order"],
)
def test_whom_nobody_needs_is_not_evicted_in_these_either(snap: Snapshot) -> None:
    assert compare(snap, now=THEN)


class Lax(Oracle):
    """Without a look at what victims are for."""

    def all_needed(self, *_: object) -> bool:
        return True


def test_some_gangs_were_admitted_by_victims_that_others_do_not_need() -> None:
    """Else the comparison with brute force would show nothing."""
    strict, lax = Oracle(twofold(770050), THEN), Lax(twofold(770050), THEN)
    strict.run()
    lax.run()
    assert (strict.flags["g1"], lax.flags["g1"]) == (0, 1)
    assert compare(twofold(770050), now=THEN)

"""No victim goes that the gangs up to its beneficiary could do without."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.domain.nodes import SchedulingTerms
from queuer.domain.queue import Policy
from queuer.domain.reasons import Token
from queuer.solver.apart import place_apart
from queuer.solver.arrays import Arrays
from queuer.solver.board import Board
from queuer.solver.decide import decide
from queuer.solver.greedy import Greedy
from queuer.solver.holding import unneeded
from queuer.solver.needs import Needs
from queuer.solver.problem import Budget, EvictionRule, Passes, Snapshot, SolveStatus
from queuer.solver.verify import verify
from tests.solver.cases import NOW as THEN
from tests.solver.cases import seeded
from tests.solver.cases_rights import linked, twofold
from tests.solver.judged import compare, exact_plan
from tests.solver.make import GPU, gang, node, pod_set, queue, row, running, snapshot
from tests.solver.oracle import Oracle
from tests.solver.plans import NOW


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


def test_whom_nobody_needs_once_others_lie_elsewhere_stays_for_a_gang_that_evicts_nobody() -> None:
    """`small` goes for `first` at its turn, `large` for `whole` then, which leaves room for `first`. `last` may use no
    other host than that of `small`, where `first` lay.
    """
    only = SchedulingTerms(node_selector={"only": "n0"})
    runs = [
        running(gang("small", pod_set(1, 1)), {"n0": 1}),
        running(gang("large", pod_set(1, 8)), {"n1": 1}),
    ]
    waiting = [
        gang("first", pod_set(2, 2), priority=1),
        gang("whole", pod_set(1, 4), priority=1, submitted=1.0),
        gang("last", pod_set(1, 3, terms=only), submitted=2.0),
    ]
    nodes = [node("n0", gpu=4, labels={"only": "n0"}), node("n1", gpu=8)]
    snap = snapshot(nodes, [queue("root.a")], admitted=runs, pending=waiting)
    made = decide(snap, now=NOW, seed=0, budget=Budget())
    assert verify(snap, made, now=NOW) == ()
    assert [one.uid for one in made.admissions] == ["last"]
    assert {e.uid for e in made.evictions} == {"large"}


def test_who_goes_for_a_limit_of_a_later_gang_is_not_taken_for_an_earlier_one() -> None:
    """g1 might reclaim all that g4 preempts in its own queue, which would cost nothing, and needs none of it: the exact
    solver finds the cheapest that are needed, not only that.
    """
    made = exact_plan(linked(81000252), now=THEN)
    assert {e.uid for e in made.evictions if e.rule is EvictionRule.PREEMPT} == {"v3", "v4"}


def test_who_is_needed_beside_whom_a_later_gang_evicts_is_found() -> None:
    """v3 would do for g2 alone, but goes for g5: beside it g2 needs v2 for the CPU, whom g5 may not evict."""
    made = exact_plan(twofold(83000083), now=THEN)
    assert {e.uid: e.beneficiary for e in made.evictions} == {"v2": "g2", "v5": "g2", "v7": "g2", "v3": "g5"}


@pytest.mark.parametrize("seed", [55100045, 55100228])
def test_victims_on_nodes_of_their_own_are_looked_at_apart(seed: int) -> None:
    """Together they came back in ever other places, until there was no end to what was cut off."""
    assert exact_plan(twofold(seed), now=THEN).stats.status is SolveStatus.OPTIMAL


def test_victims_on_one_node_are_looked_at_together_also_where_quota_matters_for_one_of_them() -> None:
    """v5 counts within a limit, v6 does not; both run on n5, where g0 and g3 need what both leave."""
    made = exact_plan(twofold(102000031), now=THEN)
    assert {e.uid: e.beneficiary for e in made.evictions} == dict.fromkeys(("v3", "v4", "v5", "v6"), "g3")
    assert made.stats.deferred == 0


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


def on(name: str) -> SchedulingTerms:
    return SchedulingTerms(node_selector={"rack": name})


def beside_equals(equals: int, *, forms: int = 1) -> Snapshot:
    """`first` could make room for an equal by going to n2, but then `large` could do without `peer`, which has the
    priority of these.
    """
    runs = [
        running(gang("peer", pod_set(1, 2), priority=1), {"n0": 1}),
        running(gang("low", pod_set(1, 4)), {"n1": 1}),
    ]
    parts = [pod_set(1, 4, name="there", terms=on("n1")), pod_set(1, 2, name="here", terms=on("n0"))]
    waiting = [
        gang("first", pod_set(1, 2), priority=9),
        gang("large", *parts, priority=5),
        *(
            gang(
                f"s{i:02}", pod_set(1, 2, name=f"set{i % forms}", terms=on("n0")), priority=1, submitted=1 + i
            )
            for i in range(equals)
        ),
    ]
    nodes = [node(name, gpu=gpu, labels={"rack": name}) for name, gpu in (("n0", 4), ("n1", 4), ("n2", 2))]
    return snapshot(nodes, [queue("root.a")], admitted=runs, pending=waiting)


@pytest.mark.parametrize("budget", [0.0, 2.0], ids=["greedy", "exact"])
@pytest.mark.parametrize("equals", [1, 20])
def test_nobody_moves_so_that_an_equal_takes_the_room_of_a_victim(equals: int, budget: float) -> None:
    """Of many neither, where the exact solver is no longer asked about victims but about places."""
    made = decide(beside_equals(equals, forms=equals), now=NOW, seed=0, budget=Budget(deterministic=budget))
    assert ([a.uid for a in made.admissions], [b.uid for b in made.bonds]) == (["first"], ["large"])
    moved = budget and equals == 1  # `first` has gone to n2 all the same, for the sake of `peer`
    assert {e.uid for e in made.evictions} == ({"low"} if moved else {"low", "peer"})


def test_what_is_refused_for_the_sake_of_a_victim_is_not_tried_again_for_others_alike() -> None:
    """A try that is not made moves nothing."""
    nothing = Budget(deterministic=0.0)
    plans = [decide(beside_equals(n, forms=2), now=NOW, seed=0, budget=nothing) for n in (4, 40)]
    few, many = (plan.stats.passes or Passes() for plan in plans)
    assert (many.arrangements, many.moves) == (few.arrangements, few.moves)
    assert few.arrangements > 0


def test_nobody_lies_apart_so_that_a_victim_goes_for_nobody() -> None:
    """As `late` has it all would land if `first` went to n2: it does where `large`, laid out anew, spares `peer`."""
    greedy = Greedy(Board(Arrays.of(beside_equals(0)), now=NOW))
    for uid in ("first", "large"):
        greedy.turn(greedy.board.arrays.offers.gangs[uid])
    assert {e.uid for e in greedy.chosen["large"].evictions} == {"low", "peer"}
    place_apart(greedy, [greedy.chosen["first"]], lambda: ())
    assert {e.uid for e in greedy.chosen["large"].evictions} == {"low"}
    assert not unneeded(greedy)


@pytest.mark.parametrize(
    ("child", "asks", "others", "victims", "needed"),
    [
        ("y", 1, 3, 2, True),  # what is kept back is too much anyway, but more would be used, too
        ("y", 1, 2, 1, False),  # what would be too much is kept back for this very gang
        ("x", 1, 1, 1, True),  # the gang would take what is kept back
        ("x", 2, 2, 2, True),  # it does so anyway, and more would be used, too
    ],
)
def test_what_is_kept_back_counts_only_where_gangs_raise_what_is_seen(
    child: str, asks: int, others: int, victims: int, *, needed: bool
) -> None:
    """root.b is limited to 5, of which root.b.y keeps 3 back; in root.b.x runs the victim, and another one."""
    queues = [queue("root.b", row(limit=5)), queue("root.b.x"), queue("root.b.y", row(guaranteed=5, lend=2))]
    sizes = {"other": others, "victim": victims}
    runs = [running(gang(uid, pod_set(n, 1), queue="root.b.x"), {"n0": n}) for uid, n in sizes.items()]
    board = Board(Arrays.of(snapshot([node("n0", gpu=20)], queues, admitted=runs)), now=NOW)
    needs, victim = Needs(board.later), board.holds["victim"]
    needs.settle(f"root.b.{child}", {(None, GPU): asks}, ())
    needs.sheet.release(victim)
    assert needs.needs(victim) == needed


def test_somebody_moves_for_a_gang_that_needs_quota_which_is_kept_back_for_it() -> None:
    """root.b is full, and root.b.y keeps 6 of it back. `g` has a place on n0 once `first` lies on n2."""
    queues = [
        queue("root", policy=Policy(reservations=0)),
        queue("root.a", row(guaranteed=2)),
        queue("root.b", row(limit=8)),
        queue("root.b.x"),
        queue("root.b.y", row(guaranteed=6, lend=0)),
    ]
    runs = [
        running(gang("large", pod_set(1, 5), queue="root.b.x", preemptible=False), {"n1": 1}),
        running(gang("small", pod_set(1, 3), queue="root.b.x"), {"n1": 1}),
    ]
    waiting = [
        gang("first", pod_set(1, 2), queue="root.a"),
        gang("g", pod_set(1, 3, terms=on("n0")), queue="root.b.y", submitted=1.0),
    ]
    nodes = [node(name, labels={"rack": name}) for name in ("n0", "n1", "n2")]
    foreign = {"n0": {GPU: 4, "pods": 1}}
    snap = snapshot(nodes, queues, admitted=runs, pending=waiting, foreign=foreign)
    assert compare(snap, now=NOW)
    made = exact_plan(snap, now=NOW)
    assert [(e.uid, e.beneficiary) for e in made.evictions] == [("small", "g")]

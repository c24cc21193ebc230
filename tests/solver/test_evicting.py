"""Whom greedy evicts: never more than is needed, jointly for several gangs, and nobody where a bound excludes the gang.

No exact solver helps here.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from bench.instances import GPU as BENCH_GPU
from bench.instances import NOW, Mix, crowded
from bench.kueue_like import evictions
from queuer.domain.queue import Policy, Preempt, Sharing
from queuer.domain.reasons import Deferral, Token
from queuer.domain.workload import Workload
from queuer.solver.arrays import Arrays
from queuer.solver.board import Board
from queuer.solver.cycle import Cycle
from queuer.solver.decide import decide
from queuer.solver.displace import Displace, _Nodes
from queuer.solver.evict import Evict
from queuer.solver.greedy import Greedy
from queuer.solver.horizon import Horizon
from queuer.solver.order import Gang
from queuer.solver.outcome import Chosen
from queuer.solver.problem import Admitted, Budget, EvictionRule, Pending, Plan, Snapshot, Unbound
from queuer.solver.prospects import Prospects, Turn
from queuer.solver.score import live_capacity, lost_work
from queuer.solver.verify import verify
from tests.solver.make import SchedulingTerms, gang, node, pod_set, queue, row, running, snapshot

ALONE = Budget(deterministic=0)


def world(nodes: str, admitted: list[Admitted], waiting: list[Workload]) -> Snapshot:
    """Nodes of 8 GPUs named by one letter; higher priority displaces lower inside the only queue."""
    queues = [queue("root"), queue("root.a", policy=Policy(preempt=Preempt.LOWER_PRIORITY))]
    return snapshot([node(n) for n in nodes], queues, admitted=admitted, pending=waiting)


def job(uid: str, gpus: int, on: str, *, age: float) -> Admitted:
    """One pod of `gpus` on each of the nodes, running for `age` seconds."""
    return running(gang(uid, pod_set(len(on), gpus)), dict.fromkeys(on, 1), since=-age)


def sound(snap: Snapshot) -> Plan:
    plan = decide(snap, now=0.0, seed=0, budget=ALONE)
    assert verify(snap, plan, now=0.0) == ()
    return plan


def lost(snap: Snapshot, victims: set[str], *, now: float) -> int:
    capacity = live_capacity(snap.nodes, snap.flavors)
    return sum(lost_work(a, capacity=capacity, now=now) for a in snap.admitted if a.workload.uid in victims)


def test_room_that_a_larger_gang_leaves_is_used_instead_of_further_victims() -> None:
    """`small` comes first and would evict `young`; what `wide` leaves for `large` holds it, too."""
    admitted = [
        job("young", 4, "a", age=100),
        job("old", 4, "a", age=9000),
        job("wide", 8, "bc", age=300),
    ]
    waiting = [
        gang("small", pod_set(1, 4), priority=1, submitted=1),
        gang("large", pod_set(1, 8), priority=1, submitted=2),
    ]
    plan = sound(world("abc", admitted, waiting))
    assert {e.uid for e in plan.evictions} == {"wide"}
    assert {b.uid for b in plan.bonds} == {"small", "large"}


@pytest.mark.parametrize("seed", range(30))
def test_the_victims_of_a_single_pod_are_the_cheapest_of_all(seed: int) -> None:
    rng = Random(seed)
    admitted: list[Admitted] = []
    for name in "abcd":
        left = 8
        while left:
            gpus = min(left, rng.choice((1, 2, 3, 4)))
            admitted.append(job(f"{name}{left}", gpus, name, age=rng.randrange(60, 6000)))
            left -= gpus
    asks = rng.choice((3, 5, 8))
    snap = world("abcd", admitted, [gang("new", pod_set(1, asks), priority=1)])
    least = min(
        lost(snap, {a.workload.uid for a in some}, now=0.0)
        for name in "abcd"
        for there in [[a for a in admitted if name in a.bound]]
        for size in range(1, len(there) + 1)
        for some in combinations(there, size)
        if sum(a.workload.pod_sets[0].requests["example.com/gpu"] for a in some) >= asks
    )
    assert lost(snap, {e.uid for e in sound(snap).evictions}, now=0.0) == least


def test_one_victim_that_frees_much_for_its_loss_is_no_reason_not_to_look_host_by_host() -> None:
    """`wide` alone is enough; two that stand in the way of whole hosts are dearer for what they free and lose less."""
    wide = job("wide", 8, "ab", age=100)
    lone = [job(f"lone-{on}", 1, on, age=700) for on in "cd"]
    many = [job(f"many-{on}{n}", 1, on, age=300) for on in "ef" for n in range(8)]
    plan = sound(world("abcdef", [wide, *lone, *many], [gang("new", pod_set(2, 8), priority=1)]))
    assert {e.uid for e in plan.evictions} == {"lone-c", "lone-d"}


@pytest.mark.parametrize("rule", EvictionRule)
@pytest.mark.parametrize("seed", range(1, 5))
def test_victims_cost_no_more_than_the_newest_first(seed: int, rule: EvictionRule) -> None:
    snap = crowded(nodes=24, gangs=4, mix=Mix.MIXED if seed % 2 else Mix.LARGE, seed=seed, rule=rule)
    plan = decide(snap, now=NOW, seed=0, budget=ALONE)
    plain = evictions(snap, resource=BENCH_GPU)
    assert {b.uid for b in plan.bonds} | {a.uid for a in plan.admissions} == plain.placed
    assert lost(snap, {e.uid for e in plan.evictions}, now=NOW) <= lost(snap, set(plain.victims), now=NOW)


def test_slots_exclude_a_gang_that_sums_and_its_own_place_do_not() -> None:
    """15 of 16 GPUs are asked for, but a node holds one pod of 5 only; that is a proof, not a question."""
    waiting = [gang("two", pod_set(2, 5), submitted=1), gang("third", pod_set(1, 5), submitted=2)]
    plan = sound(world("ab", [], waiting))
    assert {a.uid for a in plan.admissions} == {"two"}
    assert plan.explanations["third"].primary.token is not Token.SOLVER_DEFERRED
    assert (plan.stats.contested, plan.stats.deferred) == (0, 0)


def test_domains_exclude_a_gang_that_slots_do_not() -> None:
    """Two racks of three hosts have six slots, but each holds only one gang of two."""
    nodes = [node(f"{rack}{n}", labels={"rack": rack, "block": "x"}) for rack in "rs" for n in range(3)]
    waiting = [gang(f"g{n}", pod_set(2, 8), required="rack", submitted=n) for n in range(3)]
    plan = sound(snapshot(nodes, [queue("root"), queue("root.a")], pending=waiting))
    assert {a.uid for a in plan.admissions} == {"g0", "g1"}
    assert plan.explanations["g2"].primary.token is not Token.SOLVER_DEFERRED
    assert (plan.stats.contested, plan.stats.deferred) == (0, 0)


def test_where_only_other_victims_of_others_would_help_the_reason_says_so() -> None:
    """`large` could only start if `small` evicted more than it needs, which greedy does not look into."""
    own = Policy(preempt=Preempt.LOWER_PRIORITY)
    top = queue("root", policy=Policy(sharing=Sharing.PRIORITY))
    queues = [top, queue("root.a", policy=own), queue("root.b", policy=own)]
    rest = running(gang("rest", pod_set(1, 7), queue="root.b", priority=1), {"b": 1}, since=-50)
    mine = running(gang("mine", pod_set(1, 1), queue="root.b"), {"b": 1}, since=-50)
    theirs = [job("x", 4, "a", age=100), job("y", 4, "a", age=200), job("z", 8, "c", age=300)]
    waiting = [
        gang("small", pod_set(1, 4), priority=1, submitted=1),
        gang("large", pod_set(1, 8), queue="root.b", priority=1, submitted=2),
    ]
    snap = snapshot([node(n) for n in "abc"], queues, admitted=[*theirs, mine, rest], pending=waiting)
    plan = sound(snap)
    assert {e.uid for e in plan.evictions} == {"x"}
    told = plan.explanations["large"]
    assert (told.primary.token, plan.stats.deferred) == (Token.SOLVER_DEFERRED, 1)
    assert told.primary.text.startswith("None of the work that it may evict would make room for it.")
    assert told.primary.params == {"cause": Deferral.TIME}  # greedy alone has none
    assert told.others[0].token is Token.WAITING_FOR_QUOTA
    exact = decide(snap, now=0.0, seed=0, budget=Budget())
    assert ({b.uid for b in exact.bonds}, exact.stats.deferred) == ({"small"}, 0)


@pytest.mark.parametrize("awaits", [False, True])
def test_where_nobody_else_evicts_there_are_no_other_victims(awaits: bool) -> None:
    """No time would help a gang whose own victims are not enough then, also where room is kept for one that awaits
    pods of the cycle before: `a` uses no more than its guarantee, and gives nothing back.
    """
    rows = {"root.a": (row(guaranteed=8),), "root.b": (row(guaranteed=16),), "root.c": (), "root.d": ()}
    queues = [queue("root"), *(queue(path, *own) for path, own in rows.items())]
    runs = [running(gang("x", pod_set(1, 8)), {"n0": 1})]
    runs += [running(gang("y", pod_set(1, 8), queue="root.c"), {"n1": 1})]
    waiting = [Pending(workload=gang("g", pod_set(2, 8), queue="root.b"))]
    if awaits:
        landing = running(gang("z", pod_set(2, 4), queue="root.d", preemptible=False), {"n2": 2}, since=-1.0)
        loose = Unbound(pod_set="main", count=2, hosts=("n2", "n3"))
        runs += [replace(landing, bound={}, unbound=(loose,))]
        waiting = [Pending(workload=gang("first", pod_set(1, 8), queue="root.d"), first=True), *waiting]
    nodes = [node(f"n{i}") for i in range(4 if awaits else 2)]
    snap = snapshot(nodes, queues, admitted=runs, pending=waiting)
    plan = sound(snap)
    assert (plan.admissions, plan.evictions, plan.stats.deferred) == ((), (), 0)
    told = {uid: explanation.primary.token for uid, explanation in plan.explanations.items()}
    assert told["g"] is Token.WAITING_FOR_QUOTA
    assert (told.get("first") is Token.PENDING_EVALUATION) is awaits
    exact = decide(snap, now=0.0, seed=0, budget=Budget())
    assert plan.explanations["g"] == exact.explanations["g"]


def test_gangs_of_this_cycle_make_room_on_a_host() -> None:
    """`loose` lies on a host that `whole` needs; it moves beside `tied`, and the board counts it once."""
    waiting = [
        gang("loose", pod_set(1, 4), submitted=1),
        gang("tied", pod_set(1, 4), submitted=2),
        gang("whole", pod_set(1, 8), submitted=3),
    ]
    snap = world("ab", [], waiting)
    greedy = Greedy(Board(Arrays.of(snap), now=0.0))
    gangs = greedy.board.arrays.offers.gangs
    for uid, at in (("loose", 0), ("tied", 1)):
        greedy.take(chosen(greedy, gangs[uid], at))
    whole = gangs["whole"]
    found = Displace(greedy).place(whole, whole.shape.variants[0], whole.shape.charges[0], bound=False)
    assert found is not None
    assert sorted(next(iter(c.spreads["main"])) for c in greedy.chosen.values()) in ([0, 0, 1], [0, 1, 1])
    assert greedy.board.now.free[:, greedy.board.frame.column["example.com/gpu"]].tolist() == [0, 0]


def test_who_is_moved_is_entitled_as_it_was_at_its_turn() -> None:
    """Its own charge counts once: inside its guarantee it may lie where one outside of it holds a reservation."""
    queues = [queue("root"), queue("root.a", row(guaranteed=4)), queue("root.b")]
    waiting = [gang("moved", pod_set(1, 4)), gang("owner", pod_set(1, 8), queue="root.b", submitted=1)]
    greedy = Greedy(Board(Arrays.of(snapshot([node("a"), node("b")], queues, pending=waiting)), now=0.0))
    board, gangs = greedy.board, greedy.board.arrays.offers.gangs
    board.horizons["owner"] = Horizon.of("owner", start=9.0, rank=(False, 0), rows=[], free=board.now.free)
    one = chosen(greedy, gangs["moved"], 0)
    greedy.take(one)
    before = board.claimed.used("root.a", (None, "example.com/gpu"))
    assert _Nodes(greedy)._rank(one) == (True, 0)
    assert greedy.rank(one.gang, one.charge) == (False, 0)  # counted twice
    assert board.claimed.used("root.a", (None, "example.com/gpu")) == before


def chosen(greedy: Greedy, one: Gang, at: int) -> Chosen:
    variant, charge = one.shape.variants[0], one.shape.charges[0]
    return Chosen(gang=one, variant=variant, charge=charge, spreads={"main": {at: 1}})


def test_who_holds_the_quota_goes_from_a_node_that_the_gang_cannot_use() -> None:
    """The gang fits on its own node, but the limit is used up on the other one."""
    nodes = [node(n, labels={"rack": f"r{n}"}) for n in "ab"]
    queues = [queue("root"), queue("root.a", row(limit=8), policy=Policy(preempt=Preempt.LOWER_PRIORITY))]
    here = SchedulingTerms(node_selector={"rack": "ra"})
    waiting = [gang("new", pod_set(1, 8, terms=here), priority=1)]
    plan = sound(snapshot(nodes, queues, admitted=[job("old", 8, "b", age=100)], pending=waiting))
    assert [(e.uid, e.beneficiary) for e in plan.evictions] == [("old", "new")]
    assert [set(r.nodes) for b in plan.bonds for r in b.assignments] == [{"a"}]


def test_who_found_no_room_that_others_leave_is_asked_again_when_more_leave() -> None:
    """Gangs in `x` may evict nobody. The first finds 4 and 2 GPUs on two nodes where it needs 6 on one; then a gang of
    two nodes leaves for the sake of one, and the next that is alike is bound to the other node.
    """
    tree = [
        queue("root"),
        queue("root.a", row(guaranteed=0)),
        queue("root.b", row(guaranteed=14)),
        queue("root.x", row(guaranteed=12), policy=Policy(preempt=Preempt.NEVER, reclaim=False)),
    ]
    stays = running(gang("stays", pod_set(1, 4), preemptible=False), {"d": 1})
    waiting = [
        gang("first", pod_set(1, 6), queue="root.b", priority=100),
        gang("early", pod_set(1, 6), queue="root.x", priority=90),
        gang("second", pod_set(1, 8), queue="root.b", priority=80),
        gang("late", pod_set(1, 6), queue="root.x", priority=70),
    ]
    admitted = [job("small", 8, "a", age=100), job("wide", 8, "bc", age=100), stays]
    plan = sound(snapshot([node(n) for n in "abcd"], tree, admitted=admitted, pending=waiting))
    assert {bond.uid: set(bond.victims) for bond in plan.bonds} == {
        "first": {"small"},
        "second": {"wide"},
        "late": {"wide"},
    }


CROWDED = [
    crowded(nodes=24, gangs=6, mix=mix, seed=seed, rule=rule)
    for rule in EvictionRule
    for mix in Mix
    for seed in (1, 2)
]


class Forgetful(set[object]):
    """Forms for which no victims were ever found."""

    def add(self, form: object) -> None:
        """It is forgotten at once."""


def test_forms_that_found_victims_before_change_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are searched for without a look at all in reach; nor do the steps of a pass, whose bounds decide, differ."""
    spared = [decide(snap, now=NOW, seed=0, budget=ALONE) for snap in CROWDED]
    made, again = Evict.__init__, 0

    def forgetful(self: Evict, cycle: Cycle, displace: Displace) -> None:
        made(self, cycle, displace)
        self._found = Forgetful()

    def counted(self: Prospects, gang: Gang, turn: Turn) -> bool:
        nonlocal again
        again += 1
        return could_fit(self, gang, turn)

    could_fit = Prospects.could_fit
    monkeypatch.setattr(Prospects, "could_fit", counted)
    assert [decide(snap, now=NOW, seed=0, budget=ALONE) for snap in CROWDED] == spared
    looks, again = again, 0
    monkeypatch.setattr(Evict, "__init__", forgetful)
    assert [decide(snap, now=NOW, seed=0, budget=ALONE) for snap in CROWDED] == spared
    assert again > looks > 0


def test_a_search_for_victims_leaves_the_board_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is used and free is counted on the board itself while victims are tried."""
    found = {True: 0, False: 0}
    search = Evict._with_victims

    def state(board: Board) -> object:
        used = [usage.copy()._now() for usage in (board.now.usage, board.later.usage, board.line())]
        before = {node: row.tolist() for node, row in board.later.before_landing().items()}
        return used, board.now.free.tolist(), board.later.free.tolist(), before

    def watched(self: Evict, gang: Gang, turn: Turn, *, plain: bool) -> Chosen | None:
        before = state(self._board)
        chosen = search(self, gang, turn, plain=plain)
        assert state(self._board) == before
        found[chosen is not None] += 1
        return chosen

    monkeypatch.setattr(Evict, "_with_victims", watched)
    for snap in CROWDED:
        decide(snap, now=NOW, seed=0, budget=ALONE)
    assert found[True] > 10, found


def test_what_a_queue_keeps_back_counts_when_a_bound_refuses_for_the_live_capacity() -> None:
    """Of 7 GPUs `root.b` keeps 5 for itself: even with `young` gone there is no quota for `g`, whatever else goes."""
    queues = [
        queue("root"),
        queue("root.a", row(guaranteed=5)),
        queue("root.b", row(guaranteed=8, lend=3)),
        queue("root.c", row(guaranteed=1)),
    ]
    old = running(gang("old", pod_set(1, 4), preemptible=False), {"n0": 1})
    young = running(gang("young", pod_set(1, 2)), {"n0": 1})
    nodes, waiting = [node("n0", gpu=6), node("n1", gpu=1)], [gang("g", pod_set(1, 1), queue="root.c")]
    plan = sound(snapshot(nodes, queues, admitted=[old, young], pending=waiting))
    assert plan.explanations["g"].primary.token is Token.WAITING_FOR_QUOTA
    assert (plan.evictions, plan.stats.contested) == ((), 0)

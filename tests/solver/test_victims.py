"""A gang's victims: the cheapest set that is enough, and nobody who is not needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from queuer.domain.assignments import EvictionRule, LostWork, Reservation
from queuer.domain.nodes import Node, Topology
from queuer.domain.queue import Policy, Preempt, Queue
from queuer.domain.workload import Workload
from queuer.solver.cpsat import CpSat
from queuer.solver.eviction.candidates import Seeker
from queuer.solver.eviction.grounds import Clearing, Ground
from queuer.solver.eviction.search import Victims
from queuer.solver.placement import parts_of
from queuer.solver.records import Admitted, Pending
from queuer.solver.state import Reserved, Settled, State
from tests.solver.make import GPU, gang, node, pod_set, queue, row, running, snapshot, state_of

QUEUES = [queue("root"), queue("root.a")]
RACKS = Topology(keys=("rack",))


def low(uid: str, on: str | Mapping[str, int], gpus: int, age: float, **more: Any) -> Admitted:
    """Lower work of `root.a`, unless said: pods of so many GPUs, that has run for `age` seconds."""
    nodes = {on: 1} if isinstance(on, str) else on
    admitted = {
        key: more.pop(key) for key in ("checkpoint", "evicted", "releasing", "gone_by") if key in more
    }
    return running(gang(uid, pod_set(sum(nodes.values()), gpus), **more), nodes, since=-age, **admitted)


def cluster(
    nodes: list[Node],
    work: list[Admitted],
    *waiting: Workload | Pending,
    queues: list[Queue] = QUEUES,
    **more: Any,
) -> State:
    """A state at time 0."""
    return state_of(snapshot(nodes, queues, admitted=work, pending=waiting, **more))


def sought(state: State, uid: str = "g", budget: float = 1.0) -> Settled | None:
    """The answer for a waiting gang in its first flavors."""
    waiting = state.arrays.waiting.gangs[uid]
    variant, charge = waiting.shape.least[0]
    parts = parts_of(state.nodes, waiting.workload, variant)
    seeker = Seeker(waiting, variant, charge, parts or ())
    return Victims(state, CpSat(budget)).bound(seeker, iter(()))


def gone(state: State, uid: str = "g") -> list[str]:
    """Its victims, in their order; [] = none was found."""
    settled = sought(state, uid)
    return [] if settled is None else [eviction.uid for eviction in settled.evictions]


def g(*sets: Any, **more: Any) -> Workload:
    """The waiting gang: one pod that takes a node, unless said."""
    return gang("g", *(sets or (pod_set(1, 8),)), **{"priority": 10, **more})


PAIR = [node("m"), node("n")]


@pytest.mark.parametrize(
    ("work", "goes"),
    [
        ([low("long", "m", 8, 900.0), low("short", "n", 8, 800.0)], "short"),
        ([low("saved", "m", 8, 900.0, checkpoint=-9.0), low("short", "n", 8, 100.0)], "saved"),
        ([low("half", "m", 4, 100.0), low("rest", "m", 4, 100.0), low("whole", "n", 8, 100.0)], "whole"),
        ([low("p2", "m", 8, 100.0, priority=2), low("p1", "n", 8, 100.0, priority=1)], "p1"),
        ([low("twice", "m", 8, 100.0, evicted=1), low("never", "n", 8, 100.0)], "never"),
    ],
    ids=["lost work", "lost since the checkpoint", "gangs", "priority", "evicted before"],
)
def test_the_order_of_costs(work: list[Admitted], goes: str) -> None:
    """Each line decides where those before it are equal."""
    assert gone(cluster(PAIR, work, g())) == [goes]


@pytest.mark.parametrize(
    ("work", "lost"),
    [
        ([low("long", "m", 8, 900.0), low("short", "n", 8, 800.0)], (GPU, 6400, 7200)),
        ([low("only", "m", 8, 100.0)], (GPU, 800, None)),
        (
            [low("small", "m", 1, 100.0), low("rest", "m", 7, 100.0), low("whole", "n", 8, 90.0)],
            (GPU, 720, 800),
        ),
    ],
    ids=["the next loses more", "nobody else", "the next are two"],
)
def test_an_eviction_says_what_it_loses_and_the_next_would(work: list[Admitted], lost: object) -> None:
    """In amounts of a device times seconds, as its owner counts them."""
    settled = sought(cluster([node("m"), node("n")] if len(work) > 1 else PAIR[:1], work, g()))
    assert settled is not None
    (eviction,) = settled.evictions
    assert eviction.lost is not None
    assert (eviction.lost.resource, eviction.lost.amount, eviction.lost.next) == lost
    assert eviction.lost.all == eviction.lost.amount


@pytest.mark.parametrize(("budget", "proved"), [(1.0, True), (0.0, False)])
def test_the_victims_of_a_set_say_what_all_of_them_lose(budget: float, proved: bool) -> None:
    """The next best set costs more than both together. Only CP-SAT proves it."""
    work = [low("a", "m", 4, 100.0), low("b", "m", 4, 50.0), low("c", "n", 8, 80.0)]
    settled = sought(cluster(PAIR, work, g()), budget=budget)
    assert settled is not None
    assert {e.uid: e.lost for e in settled.evictions} == {
        uid: LostWork(resource=GPU, amount=amount, all=600, next=640, proved=proved)
        for uid, amount in (("a", 400), ("b", 200))
    }


@pytest.mark.parametrize(
    ("other", "following"), [(1, 200), (4, 800), (0, None)], ids=["alike", "larger", "without a GPU"]
)
def test_work_is_told_in_gpus_where_something_else_is_scarce(other: int, following: int | None) -> None:
    """Costs compare shares of the two pods that the node takes; an owner counts the GPUs of its own job."""
    work = [low("goes", "m", 1, 100.0), low("stays", "m", other, 200.0)]
    settled = sought(cluster([node("m", pods=2)], work, g(pod_set(1, 1))))
    assert settled is not None
    (eviction,) = settled.evictions
    assert eviction.lost is not None
    assert (eviction.uid, eviction.lost.amount, eviction.lost.next) == ("goes", 100, following)


def test_borrowers_go_before_lower_work_of_its_own() -> None:
    """Though much more work is lost; what own work would lose is not held against it."""
    queues = [queue("root"), queue("root.a", row(guaranteed=16)), queue("root.b")]
    work = [low("own", "m", 8, 10.0), low("b", "n", 8, 9000.0, queue="root.b", priority=10)]
    settled = sought(cluster(PAIR, work, g(), queues=queues))
    assert settled is not None
    assert [(e.uid, e.rule) for e in settled.evictions] == [("b", EvictionRule.RECLAIM)]
    assert [e.lost.next for e in settled.evictions if e.lost] == [None]
    assert settled.bound


def test_all_subsets_of_those_on_the_host_of_one_pod() -> None:
    """6 of 8 GPUs; no order leads to the best set."""
    work = [low(uid, "n", gpus, age) for uid, gpus, age in (("a", 2, 70.0), ("b", 3, 80.0), ("c", 2, 10.0))]
    work.append(low("d", "n", 1, 100.0))
    assert set(gone(cluster([node("n")], work, g(pod_set(1, 6))))) == {"b", "c", "d"}


def test_nobody_goes_who_is_not_needed() -> None:
    """The small ones are the cheapest, but once the large one goes nobody needs them."""
    work = [low("tiny", "m", 1, 1.0), low("small", "n", 2, 2.0), low("large", {"m": 1, "n": 1}, 5, 500.0)]
    assert gone(cluster(PAIR, work, g(pod_set(2, 5)))) == ["large"]


def test_several_small_ones_where_they_cost_less_than_a_large_one() -> None:
    """The large one costs least for a GPU, and is the newest, but frees more than is needed."""
    nodes = [node(name) for name in "abcde"]
    work = [low("a", "a", 8, 50.0), low("b", "b", 8, 60.0), low("wide", dict.fromkeys("cde", 1), 8, 40.0)]
    assert set(gone(cluster(nodes, work, g(pod_set(2, 8))))) == {"a", "b"}


def test_a_large_gang_does_not_hide_small_ones() -> None:
    """Its nodes cost least each, and there are more of them than are looked at, but all of it would go."""
    nodes = [node(f"n{n}") for n in range(60)]
    work = [low("large", {f"n{n}": 1 for n in range(56)}, 8, 40.0)]
    work.append(low("small", {f"n{n}": 1 for n in range(56, 60)}, 8, 60.0))
    assert gone(cluster(nodes, work, g(pod_set(4, 8)))) == ["small"]


def test_all_in_one_domain() -> None:
    """The cheapest two are in different racks."""
    nodes = [node(name, labels={"rack": name[0]}) for name in ("x1", "x2", "y1", "y2")]
    ages = {"x1": 10.0, "x2": 500.0, "y1": 20.0, "y2": 400.0}
    work = [low(uid, uid, 8, age) for uid, age in ages.items()]
    assert set(gone(cluster(nodes, work, g(pod_set(2, 8), required="rack"), topology=RACKS))) == {"y1", "y2"}
    assert set(gone(cluster(nodes, work, g(pod_set(2, 8)), topology=RACKS))) == {"x1", "y1"}


def test_several_pod_sets_beside_each_other() -> None:
    """A leader of one GPU finds room beside nobody's, so that one of the small ones goes, too."""
    nodes = [node(name) for name in "abc"]
    work = [low("a", "a", 8, 10.0), low("b", "b", 8, 10.0)]
    work += [low(f"c{n}", "c", 2, 90.0 + n) for n in range(4)]
    waiting = g(pod_set(2, 8, name="worker"), pod_set(1, 1, name="leader"))
    settled = sought(cluster(nodes, work, waiting))
    assert settled is not None
    assert {e.uid for e in settled.evictions} == {"a", "b", "c0"}
    assert sum(settled.spreads["worker"].values()) == 2


def test_quota_alone_is_short() -> None:
    """The limit is freed on `n`, and the gang lies on `m`, which was free all along."""
    queues = [queue("root"), queue("root.a", row(limit=12)), queue("root.b")]
    work = [low("old", "n", 4, 900.0), low("new", "n", 4, 90.0), low("b", "n", 1, 1.0, queue="root.b")]
    settled = sought(cluster(PAIR, work, g(), queues=queues))
    assert settled is not None
    assert [e.uid for e in settled.evictions] == ["new"]
    assert settled.hosts == {0}


def test_room_and_quota_are_short() -> None:
    """A borrower makes room, one's own work quota; who does both is cheaper than two."""
    policy = Policy(preempt=Preempt.LOWER_PRIORITY)
    queues = [queue("root", policy=policy), queue("root.a", row(limit=8)), queue("root.b")]
    nodes = [*PAIR, node("o")]
    work = [
        low("own", "m", 8, 60.0),
        low("b", "n", 8, 50.0, queue="root.b"),
        low("c", "o", 8, 40.0, queue="root.b"),
    ]
    assert gone(cluster(nodes, work, g(), queues=queues)) == ["own"]


def test_the_last_victim_may_cross_the_line() -> None:
    """Of 8 GPUs above a guarantee of 2 two jobs of 4 may go, a third may not."""
    queues = [queue("root"), queue("root.a", row(guaranteed=16)), queue("root.b", row(guaranteed=6))]
    work = [low(f"b{n}", "n", 4, 10.0 * (n + 1), queue="root.b", priority=10) for n in range(3)]
    assert gone(cluster([node("n", gpu=12)], work, g(), queues=queues)) == ["b0", "b1"]
    assert gone(cluster([node("n", gpu=12)], work, g(pod_set(1, 12)), queues=queues)) == []


@pytest.mark.parametrize("nodes", [11, 13, 60])
@pytest.mark.parametrize("above", ["root.b", "root.b.x"])
def test_a_guarantee_comes_back_though_cheaper_looking_nodes_cannot_give_it(nodes: int, above: str) -> None:
    """Of two jobs on each node of `b` one may go, for `b` borrows half a node in all. `c` lost most and must go."""
    queues = [queue("root"), queue("root.a", row(guaranteed=8)), queue("root.c")]
    queues += [queue("root.b", row(guaranteed=8 * nodes - 4))]
    queues += [queue(above)] if above != "root.b" else []
    work = [low(f"b{n}{i}", f"n{n}", 4, 100.0 + n, queue=above) for n in range(nodes) for i in range(2)]
    work.append(low("c", "c", 8, 90_000.0, queue="root.c"))
    there = [*(node(f"n{n}") for n in range(nodes)), node("c")]
    assert gone(cluster(there, work, g(priority=0), queues=queues)) == ["c"]


def test_domains_in_which_no_placement_is_found_do_not_count() -> None:
    """The leader and the worker never fit beside each other on the twenty nodes that look cheapest."""
    nodes = [node(f"n{n}", labels={"rack": f"n{n}"}) for n in range(20)]
    nodes += [node(name, labels={"rack": "whole"}) for name in ("x", "y")]
    work = [low(f"v{n}", f"n{n}", 8, 10.0 + n) for n in range(20)]
    work += [low(name, name, 8, 9000.0) for name in ("x", "y")]
    waiting = g(pod_set(1, 6, name="worker"), pod_set(1, 4, name="leader"), required="rack")
    assert set(gone(cluster(nodes, work, waiting, topology=RACKS))) == {"x", "y"}


def test_the_smaller_goes_first_where_only_the_last_may_cross_the_line() -> None:
    """`b` borrows 5 of 8: once the cheaper job of 6 has gone, the one of 2 may not go."""
    queues = [queue("root"), queue("root.a", row(guaranteed=8)), queue("root.b", row(guaranteed=3))]
    work = [low("b6", "n", 6, 10.0, queue="root.b"), low("b2", "n", 2, 900.0, queue="root.b")]
    assert gone(cluster([node("n")], work, g(priority=0), queues=queues)) == ["b2", "b6"]


def test_who_leaves_already_is_enough() -> None:
    """It holds what they leave instead of evicting more; who may evict nobody holds nothing."""
    work = [low("leaves", "m", 8, 9.0, releasing=True, gone_by=20.0), low("stays", "n", 8, 9.0)]
    settled = sought(cluster(PAIR, work, g()))
    assert settled is not None
    assert settled.bound
    assert settled.evictions == ()
    assert settled.hosts == {0}
    assert sought(cluster(PAIR, work, g(priority=0))) is None
    assert sought(cluster(PAIR, work[1:], g())) is None, "it needs nobody to go"


@pytest.mark.parametrize(("guaranteed", "goes"), [(16, ["low"]), (15, [])])
def test_who_is_not_preemptible_evicts_inside_its_own_guarantee_only(
    guaranteed: int, goes: list[str]
) -> None:
    """Nobody could take back from it what it borrows. Leaving work is still counted."""
    queues = [queue("root"), queue("root.a", row(guaranteed=guaranteed))]
    assert gone(cluster([node("n")], [low("low", "n", 8, 9.0)], g(preemptible=False), queues=queues)) == goes


def test_nodes_that_it_avoids_stay_as_they_are() -> None:
    """The cheaper victim is on a node on which the gang did not land."""
    work = [low("near", "m", 8, 9.0), low("far", "n", 8, 900.0)]
    assert gone(cluster(PAIR, work, Pending(workload=g(), avoid=frozenset({"m"})))) == ["far"]


def test_a_reservation_that_comes_first_stays_whole() -> None:
    """At its start nothing is free beside it on `m`, for any victim there."""
    work = [low("near", "m", 8, 9.0), low("far", "n", 8, 900.0)]
    state = cluster(PAIR, work, g(), gang("owner", pod_set(1, 8)))
    owner = state.arrays.waiting.gangs["owner"]
    variant, charge = owner.shape.least[0]
    takes = {0: state.nodes.row({GPU: 8, "pods": 1})}
    settled = Settled(gang=owner, variant=variant, charge=charge, spreads={"main": {0: 1}})
    reservation = Reservation(uid="owner", assignments=(), start=50.0, expires=90.0)
    state.reserve(
        Reserved(
            reservation=reservation,
            settled=settled,
            rank=(True, 99),
            takes=takes,
            spare={0: state.nodes.row({"pods": 9})},
        )
    )
    assert gone(state) == ["far"]


def test_a_victim_frees_all_its_room_whatever_lies_beside_it() -> None:
    """`m6` alone is enough for a pod of 6, though a part of its GPUs was room that was no slot before."""
    work = [low("m6", "m", 6, 50.0), low("m2", "m", 2, 900.0), low("n8", "n", 8, 60.0)]
    assert gone(cluster(PAIR, work, g(pod_set(1, 6)))) == ["m6"]
    nodes = [node(name, labels={"rack": name[0]}) for name in ("m1", "m2", "n1", "n2")]
    rack = [
        (6, 50.0, "m1"),
        (2, 900.0, "m1"),
        (6, 50.0, "m2"),
        (2, 900.0, "m2"),
        (8, 60.0, "n1"),
        (8, 60.0, "n2"),
    ]
    work = [low(f"{on}{gpus}", on, gpus, age) for gpus, age, on in rack]
    waiting = g(pod_set(2, 6), required="rack")
    assert set(gone(cluster(nodes, work, waiting, topology=RACKS))) == {"m16", "m26"}


def test_what_is_lacking_on_a_node_is_paid_once() -> None:
    """Foreign pods took 2 GPUs more than `m` has: three jobs of 2 make room for both pods, no fourth."""
    work = [low(f"m{n}", "m", 2, 10.0) for n in range(4)]
    work += [low("n0", "n", 2, 17.0), low("n1", "n", 2, 18.0), low("n4", "n", 4, 900.0)]
    settled = sought(cluster(PAIR, work, g(pod_set(2, 2)), foreign={"m": {GPU: 2}}))
    assert settled is not None
    assert [e.lost.all for e in settled.evictions if e.lost] == [60, 60, 60]


def test_thousands_of_small_jobs_are_looked_at_in_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for two pods of a whole node among 2,400 jobs of one GPU; each look takes as long as there are jobs."""
    looks, enough = [0], Clearing.enough

    def counted(self: Clearing, gone: Sequence[int], ground: Ground) -> bool:
        looks[0] += 1
        return enough(self, gone, ground)

    monkeypatch.setattr(Clearing, "enough", counted)
    nodes = [node(f"n{n}", pods=200) for n in range(300)]
    ages = (float(100 + 7919 * n % 86_400) for n in range(2400))
    work = [low(f"w{n}", f"n{n // 8}", 1, age) for n, age in enumerate(ages)]
    assert len(gone(cluster(nodes, work, g(pod_set(2, 8))))) == 16
    assert looks[0] < 1000


@pytest.mark.parametrize("leader", [0, 1])
def test_a_large_gang_clears_whole_nodes_and_leaves_the_small_jobs_elsewhere(leader: int) -> None:
    """Without CP-SAT, where jobs of little lost work lie on far more nodes than the gang needs."""
    nodes = [node(f"n{n}", pods=200) for n in range(60)]
    ages = (float(100 + 7919 * n % 86_400) for n in range(480))
    work = [low(f"w{n}", f"n{n // 8}", 1, age) for n, age in enumerate(ages)]
    first = [pod_set(1, 1, name="leader")] if leader else []
    settled = sought(cluster(nodes, work, g(*first, pod_set(12, 8))), budget=0.0)
    assert settled is not None
    assert len(settled.hosts) == 12 + leader
    assert len(settled.evictions) <= 8 * len(settled.hosts)


def proved(state: State) -> tuple[set[str], bool]:
    """Victims of `g`, and whether they are proved to be the cheapest."""
    settled = sought(state)
    assert settled is not None
    return {e.uid for e in settled.evictions}, all(e.lost.proved for e in settled.evictions if e.lost)


def test_a_set_is_proved_where_a_guarantee_binds() -> None:
    """Two of the three cheap jobs may go, for `b` borrows 6 GPUs; the third would be cheaper than `c`."""
    queues = [
        queue("root"),
        queue("root.a", row(guaranteed=16)),
        queue("root.b", row(guaranteed=6)),
        queue("root.c"),
    ]
    work = [low(f"b{n}", "n", 4, 10.0 * (n + 1), queue="root.b", priority=10) for n in range(3)]
    work.append(low("c", "n", 4, 900.0, queue="root.c", priority=10))
    waiting = g(pod_set(1, 12))
    assert proved(cluster([node("n", gpu=16)], work, waiting, queues=queues)) == ({"b0", "b1", "c"}, True)


def test_a_set_is_proved_where_a_limit_binds() -> None:
    """Nodes are free, and two jobs of 4 have to go for the limit of 12."""
    work = [low(f"w{n}", "n", 4, 10.0 * (n + 1)) for n in range(3)]
    state = cluster(
        [node("m"), node("n", gpu=12)], work, g(), queues=[queue("root"), queue("root.a", row(limit=12))]
    )
    assert proved(state) == ({"w0", "w1"}, True)

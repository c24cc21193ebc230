"""Where gangs go: exact packing, narrowest domain, one host before several, pins that land, and whom that stops."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np

from queuer.domain.nodes import HOSTNAME, Node, Topology
from queuer.domain.queue import Queue, QueueTree
from queuer.domain.workload import PodSet, Workload
from queuer.solver.capacity import place
from queuer.solver.contested import Variant
from queuer.solver.decide import decide
from queuer.solver.floor import Floor, Room
from queuer.solver.frame import Frame
from queuer.solver.landing import Group, lands
from queuer.solver.problem import Admitted, Budget, NodeState, Pending, Plan, Snapshot, Unbound

NOW = 100.0
GREEDY = Budget(deterministic=0.0)


def node(name: str, *, rack: str = "r", used: int = 0, **amounts: int) -> NodeState:
    """A node with 64 pods and these amounts; `used` GPUs are taken."""
    labels = {HOSTNAME: name, "rack": rack}
    allocatable = {"pods": 64, **amounts}
    return NodeState(node=Node(name=name, labels=labels, allocatable=allocatable), used={"gpu": used})


def pods(name: str, count: int, *, least: int | None = None, **requests: int) -> PodSet:
    """A pod set."""
    return PodSet(name=name, count=count, min_count=least, requests={"pods": 1, **requests})


def gang(uid: str, *sets: PodSet, required: str | None = None, preferred: str | None = None) -> Pending:
    """A waiting gang in root.q."""
    return Pending(
        workload=Workload(
            uid=uid,
            kind="Job",
            namespace="d",
            name=uid,
            queue="root.q",
            pod_sets=sets,
            submitted=float(uid[1:]),
            required=required,
            preferred=preferred,
        )
    )


def snapshot(nodes: list[NodeState], *gangs: Pending, admitted: tuple[Admitted, ...] = ()) -> Snapshot:
    """One queue, racks."""
    return Snapshot(
        nodes=tuple(nodes),
        tree=QueueTree.of([Queue(path="root.q")]),
        topology=Topology(keys=("rack",)),
        admitted=admitted,
        pending=gangs,
    )


def run(*args: object, **kwargs: object) -> Plan:
    """The greedy plan."""
    return decide(snapshot(*args, **kwargs), now=NOW, seed=0, budget=GREEDY)  # type: ignore[arg-type]


def places(plan: Plan) -> dict[str, dict[str, dict[str, int]]]:
    """Pods by gang, pod set and node."""
    return {a.uid: {row.pod_set: dict(row.nodes) for row in a.assignments} for a in plan.admissions}


def test_packing_of_two_shapes_is_exact() -> None:
    """Whether two pod sets fit a few nodes agrees with trying every distribution."""
    rng = random.Random(1)
    both = [0, 0]
    for _ in range(150):
        nodes = [node(f"n{i}", gpu=rng.randint(1, 4), cpu=rng.randint(1, 6)) for i in range(3)]
        sets = (
            pods("a", rng.randint(1, 3), gpu=rng.randint(0, 2), cpu=rng.randint(1, 2)),
            pods("b", rng.randint(1, 3), gpu=rng.randint(0, 3), cpu=rng.randint(1, 3)),
        )
        asked = gang("g1", *sets)
        frame = Frame(snapshot(nodes, asked))
        variant = Variant(
            flavors={"a": "default", "b": "default"}, counts={"a": sets[0].count, "b": sets[1].count}
        )
        found = place(frame, frame.bound_free, asked.workload, variant)
        possible = _brute_force(nodes, sets)
        both[possible] += 1
        # A place that does not land for certain is not taken, so what is found is possible, never the reverse.
        assert found is None or possible
        if found is None and possible:
            assert not any(_lands_apart(spread) for spread in _distributions(nodes, sets))
    assert min(both) > 20


def _distributions(nodes: list[NodeState], sets: tuple[PodSet, ...]) -> list[list[tuple[int, ...]]]:
    found = []
    options = [
        [s for s in itertools.product(range(p.count + 1), repeat=len(nodes)) if sum(s) == p.count]
        for p in sets
    ]
    for choice in itertools.product(*options):
        fits = all(
            sum(p.requests.get(r, 0) * spread[i] for p, spread in zip(sets, choice, strict=True))
            <= state.node.allocatable.get(r, 0)
            for i, state in enumerate(nodes)
            for r in ("gpu", "cpu", "pods")
        )
        if fits:
            found.append(list(choice))
    return found


def _brute_force(nodes: list[NodeState], sets: tuple[PodSet, ...]) -> bool:
    return bool(_distributions(nodes, sets))


def _lands_apart(spread: list[tuple[int, ...]]) -> bool:
    """Disjoint or single hosts: certain to land whatever comes first."""
    hosts = [{i for i, n in enumerate(s) if n} for s in spread]
    return all(len(h) == 1 for h in hosts) or not set.intersection(*hosts)


def test_one_host_before_several() -> None:
    """A gang that fits one host is not spread over fuller ones: it lands there whatever comes beside it."""
    plan = run([node("n1", gpu=8, used=7), node("n2", gpu=8)], gang("g1", pods("main", 4, gpu=1)))
    assert places(plan) == {"g1": {"main": {"n2": 4}}}


def test_required_takes_the_narrowest_level_inside() -> None:
    """Two pods in one rack go to one host of it if one holds them."""
    nodes = [node("n1", rack="r1", gpu=1), node("n2", rack="r1", gpu=1), node("n3", rack="r2", gpu=2)]
    plan = run(nodes, gang("g1", pods("main", 2, gpu=1), required="rack"))
    assert places(plan) == {"g1": {"main": {"n3": 2}}}
    assert plan.admissions[0].assignments[0].selector["rack"] == "r2"


def test_a_gang_alone_in_its_rack_is_pinned_to_the_rack() -> None:
    """A node that fails between PATCH and binding then costs nothing; two gangs in a rack are pinned to hosts."""
    nodes = [node(f"n{i}", rack=f"r{i // 4}", gpu=2) for i in range(8)]
    alone = run(nodes, gang("g1", pods("main", 4, gpu=1), required="rack"))
    row = alone.admissions[0].assignments[0]
    assert (row.hosts, dict(row.selector)) == (None, {"rack": "r0"})
    two = run(nodes[:4], *(gang(f"g{i}", pods("main", 4, gpu=1), required="rack") for i in (1, 2)))
    assert [a.assignments[0].hosts is not None for a in two.admissions] == [True, True]


def test_nodes_whose_label_is_missing_host_no_gang_of_that_level() -> None:
    """But they host gangs that ask for no level."""
    bare = NodeState(node=Node(name="n1", labels={HOSTNAME: "n1"}, allocatable={"pods": 9, "gpu": 4}))
    assert not run([bare], gang("g1", pods("main", 1, gpu=1), required="rack")).admissions
    assert run([bare], gang("g1", pods("main", 1, gpu=1))).admissions


def test_spread_gangs_on_common_hosts_are_patched_one_after_the_other() -> None:
    """The single pod goes first: the spread gang could take its place, not the reverse."""
    nodes = [node("n1", gpu=2), node("n2", gpu=2)]
    plan = run(nodes, gang("g1", pods("main", 3, gpu=1)), gang("g2", pods("main", 1, gpu=1)))
    waves = {a.uid: a.wave for a in plan.admissions}
    assert waves["g1"] > waves["g2"]


def test_pods_that_are_landing_count_where_they_may_land() -> None:
    """Two unbound pods may both come to either node, so neither has two places for others."""
    landing = gang("g0", pods("main", 2, gpu=1)).workload
    admitted = Admitted(
        workload=landing,
        counts={"main": 2},
        flavors={"main": "default"},
        since=NOW,
        unbound=(Unbound(pod_set="main", count=2, hosts=("n1", "n2")),),
    )
    nodes = [node("n1", gpu=2), node("n2", gpu=2)]
    plan = run(nodes, gang("g1", pods("main", 1, gpu=1)), admitted=(admitted,))
    assert plan.admissions == ()


def test_lands_counts_the_worst_order() -> None:
    """Free 4 and 5: two pods of 4 land alone, but not if a pod of 1 may come to either node first."""
    frame = Frame(snapshot([node("n1", gpu=4), node("n2", gpu=5)]))
    free = frame.bound_free

    def group(count: int, gpu: int, *hosts: int) -> Group:
        pod_set = pods("main", count, gpu=gpu)
        return Group(
            uid="",
            count=count,
            need=frame.need(pod_set),
            row=frame.row(pod_set.requests),
            hosts=frozenset(hosts),
        )

    large, small = group(2, 4, 0, 1), group(1, 1, 0, 1)
    assert lands(large, [], free)
    assert not lands(large, [small], free)
    assert lands(large, [group(1, 1, 1)], free)
    assert lands(small, [], np.minimum(free, 1))


def test_whether_there_is_room_is_told_as_a_place_is_found() -> None:
    """Whatever levels the gang and its set ask for, with labels that are missing and nodes to keep off."""
    rng, seen = random.Random(1), set[tuple[Room, object]]()
    levels = (None, "block", "rack", "host", "hall")
    for _ in range(400):
        nodes = []
        for i in range(6):
            labels = {HOSTNAME: f"n{i}", "rack": f"r{i // 2 % 2}", "block": f"b{i // 3}"}
            labels = {key: value for key, value in labels.items() if key == HOSTNAME or rng.random() < 0.8}
            free = {"pods": 9, "gpu": rng.randint(0, 3)}
            nodes.append(NodeState(node=Node(name=f"n{i}", labels=labels, allocatable=free)))
        asked = pods("main", rng.randint(1, 5), gpu=rng.randint(1, 2))
        asked = replace(asked, required=rng.choice(levels), exclusive_host=rng.random() < 0.3)
        chosen = gang("g1", asked, required=rng.choice(levels), preferred=rng.choice(levels))
        shown = replace(snapshot(nodes, chosen), topology=Topology(keys=("block", "rack")))
        frame = Frame(shown)
        floor, variant = (
            Floor(frame, frame.bound_free),
            Variant(flavors={"main": "default"}, counts={"main": asked.count}),
        )
        avoid = frozenset(rng.sample(["n0", "n1", "n2"], rng.randint(0, 1)))
        room = floor.room(chosen.workload, variant, form=0, avoid=avoid)
        assert room is floor.place(chosen.workload, variant, form=0, avoid=avoid).room
        seen.add((room, (chosen.workload.required is None, asked.required is None)))
    assert len(seen) == 8


def test_an_elastic_gang_grows_as_far_as_it_fits() -> None:
    """Between its smallest size and its full one."""
    plan = run([node("n1", gpu=3)], gang("g1", pods("main", 5, least=2, gpu=1)))
    assert places(plan) == {"g1": {"main": {"n1": 3}}}
    assert not run([node("n1", gpu=1)], gang("g1", pods("main", 5, least=2, gpu=1))).admissions


def test_exclusive_pods_take_one_host_each() -> None:
    """Anti-affinity of a set with itself."""
    apart = PodSet(name="main", count=2, requests={"pods": 1, "gpu": 1}, exclusive_host=True)
    assert places(run([node("n1", gpu=8), node("n2", gpu=8)], gang("g1", apart))) == {
        "g1": {"main": {"n1": 1, "n2": 1}}
    }
    assert not run([node("n1", gpu=8)], gang("g1", apart)).admissions


def test_a_pod_goes_where_it_uses_resources_up_evenly() -> None:
    """Else 7 GPUs of the node with little CPU would soon be without any."""
    nodes = [node("n0", gpu=8, cpu=16), node("n1", gpu=8, cpu=96)]
    assert places(run(nodes, gang("g0", pods("p", 1, gpu=1, cpu=12)))) == {"g0": {"p": {"n1": 1}}}
    assert places(run(nodes[::-1], gang("g0", pods("p", 1, gpu=1, cpu=1)))) == {"g0": {"p": {"n0": 1}}}


def test_of_equal_nodes_the_fullest_is_taken() -> None:
    nodes = [node("n0", gpu=8, cpu=64, used=1), node("n1", gpu=8, cpu=64, used=5), node("n2", gpu=8, cpu=64)]
    assert places(run(nodes, gang("g0", pods("p", 1, gpu=2, cpu=8)))) == {"g0": {"p": {"n1": 1}}}


def test_slots_enough_in_racks_too_small_are_no_place_for_a_gang_of_one_rack() -> None:
    """One rack of two nodes and two of one: the first gang takes the only rack there is for the second."""
    nodes = [node(name, rack=rack, gpu=8) for name, rack in zip("abcd", "rrst", strict=True)]
    first, second = (gang(uid, pods("main", 2, gpu=8), required="rack") for uid in ("g1", "g2"))
    plan = decide(snapshot(nodes, first, second), now=NOW, seed=0, budget=GREEDY)
    assert [a.uid for a in plan.admissions] == ["g1"]
    assert (plan.stats.contested, plan.stats.deferred) == (0, 0)

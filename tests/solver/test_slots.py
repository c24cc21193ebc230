"""Tables of slots follow what changes: they never differ from tables counted anew."""

from __future__ import annotations

import gc
from dataclasses import replace
from random import Random

import numpy as np

from queuer.domain.workload import PodSet
from queuer.solver.nodes import Nodes
from queuer.solver.records import NodeState
from queuer.solver.slots import Room, SlotTable
from tests.solver.make import GPU, TOPOLOGY, decided, gang, node, pod_set, queue, snapshot


def test_a_table_that_followed_equals_one_counted_anew() -> None:
    """Placement asks tables after every start; one wrong count would overfill a node or hide room."""
    rng = Random(7)
    names = [f"n{i}" for i in range(24)]
    labels = {n: {"block": f"b{i // 12}", "rack": f"r{i // 4}"} for i, n in enumerate(names)}
    nodes = Nodes(snapshot([node(n, labels=labels[n]) for n in names], [queue("root"), queue("root.a")]))
    room = Room(nodes, nodes.alloc.copy())
    pods = [pod_set(1, 1), pod_set(1, 3), pod_set(1, 8, exclusive_host=True)]
    asked = [(nodes.need(p), nodes.open_to(p, "default")) for p in pods]
    column = nodes.column(GPU)
    for _ in range(200):
        touched = rng.sample(range(len(names)), 3)
        room.free[touched, column] = [rng.randrange(-2, 9) for _ in touched]
        room.touch(touched)
        need, accepting = rng.choice(asked)
        table, anew = room.table(need, accepting), SlotTable(nodes, room.free, need, accepting)
        table.by_domain(1, 1)
        assert table.by_node.tolist() == anew.by_node.tolist()
        assert table.total == anew.total
        assert table.by_domain(1, 1).tolist() == anew.by_domain(1, 1).tolist()
        assert np.allclose(table.fit(room.free), anew.fit(room.free))


def test_another_room_leaves_the_first_alone() -> None:
    """Second pod sets of a gang are tried on a copy."""
    nodes = Nodes(snapshot([node("a"), node("b")], [queue("root"), queue("root.a")], topology=TOPOLOGY))
    room, pods = Room(nodes, nodes.alloc.copy()), pod_set(1, 4)
    need, accepting = nodes.need(pods), nodes.open_to(pods, "default")
    assert room.table(need, accepting).total == 4
    other = room.but(np.array([0]), nodes.alloc[[0]] * 0)
    assert other.table(need, accepting).by_node.tolist() == [0, 2]
    assert room.table(need, accepting).by_node.tolist() == [2, 2]


def test_tables_that_follow_let_the_nodes_go_that_they_were_counted_on() -> None:
    """Else the first snapshot, and all that a table came from, would stay for as long as the process."""
    first = snapshot([node("a"), node("b")], [queue("root"), queue("root.a")])
    nodes = Nodes(first)
    room, pods = Room(nodes, nodes.alloc), pod_set(1, 4)
    room.table(nodes.need(pods), nodes.open_to(pods, "default"))
    used = tuple(NodeState(node=state.node, used={GPU: 1}) for state in first.nodes)
    later = nodes.follow(replace(first, nodes=used))
    assert later is not None
    room = room.on(later)
    held = (id(thing) for table, _, _ in room._tables.values() for thing in gc.get_referents(table))
    assert id(nodes) not in held


def test_resources_that_no_node_has_cost_no_column() -> None:
    """However many names waiting jobs invent, no array grows; each job still hears the name that it wrote."""
    made_up = {
        f"a{i}.example/none": PodSet(name="main", count=1, requests={f"a{i}.example/none": 1})
        for i in range(50)
    }
    waiting = [gang(name, pods) for name, pods in made_up.items()]
    there = snapshot([node("n")], [queue("root"), queue("root.a")], pending=waiting)
    nodes = Nodes(there)
    assert nodes.resources == [GPU, "pods"]
    assert nodes.alloc.shape == (1, 3)
    assert not any(nodes.need(pods).slots(nodes.alloc).any() for pods in made_up.values())
    plan = decided(there)
    for name in made_up:
        assert name in plan.explanations[name].primary.text

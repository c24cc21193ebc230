"""Whole gangs on nodes that take them, inside levels and pins, with room: one change of a sound plan, one rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuer.core.records import Pending, Snapshot
from queuer.core.verify import Rule
from queuer.domain.nodes import Flavor, SchedulingTerms, Taint, Toleration
from queuer.domain.queue import Queue, QuotaRow
from tests.core.verify.build import GPU, RACKS, at, bond, broken, gang, node, plan, pods, running, snapshot

PAIR = at({"n1": 1, "n2": 1})


def pair(**more: Any) -> Snapshot:
    """Two pods that fill a node each, and must be in one rack."""
    return snapshot(pending=[gang("g", pods(2, 8), required="rack")], **more)


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        (PAIR, None),
        (at({"n1": 1, "n2": 1}, hosts=None, selector={"rack": "r1"}), None),
        (at({"n1": 1}), Rule.GANG),
        (at({"n1": 1, "n2": 1.0}), Rule.GANG),  # type: ignore[dict-item]
        (at({"n1": 2, "n2": 0}), Rule.GANG),
        (at({"n1": 2}), Rule.CAPACITY),
        (at({"n1": 1, "n3": 1}), Rule.LEVEL),
        (at({"n1": 1, "n2": 1}, hosts=("n1", "n2", "n3")), Rule.PIN),
        (at({"n1": 1, "n2": 1}, hosts=("n2",)), Rule.PIN),
        (at({"n1": 1, "n2": 1}, selector={"rack": "r2"}), Rule.PIN),
        (at({"n1": 1, "n2": 1}, flavor="gold"), Rule.FLAVOR),
    ],
)
def test_gang_in_its_rack(row: Any, rule: Rule | None) -> None:
    snap = pair()
    found = broken(snap, plan(snap, {"g": [row]}))
    assert (rule, "g") in found if rule else not found


@pytest.mark.parametrize("change", [{"unschedulable": True}, {"ready": False}, {"taints": (Taint(key="x"),)}])
def test_node_that_takes_no_pods(change: dict[str, Any]) -> None:
    snap = pair(nodes=[replace(RACKS[0], **change), *RACKS[1:]])
    assert (Rule.NODE, "g") in broken(snap, plan(snap, {"g": [PAIR]}))


def test_own_terms_and_avoided_nodes_count() -> None:
    ssd = SchedulingTerms(node_selector={"disk": "ssd"})
    picky = snapshot(pending=[gang("g", pods(2, 8, terms=ssd))])
    assert (Rule.NODE, "g") in broken(picky, plan(picky, {"g": [PAIR]}))
    shy = snapshot(pending=[Pending(workload=gang("g", pods(2, 8)), avoid=frozenset({"n2"}))])
    assert broken(shy, plan(shy, {"g": [PAIR]})) == {(Rule.NODE, "g")}
    assert not broken(shy, plan(shy, {"g": [at({"n1": 1, "n3": 1})]}))


def test_each_pod_set_once_in_a_permitted_size() -> None:
    snap = snapshot(pending=[gang("g", pods(3, 8, min_count=2), pods(1, 1, name="lead"))])
    lead = at({"n3": 1}, pod_set="lead")
    assert not broken(snap, plan(snap, {"g": [PAIR, lead]}))
    assert broken(snap, plan(snap, {"g": [PAIR]})) == {(Rule.GANG, "g")}
    assert (Rule.GANG, "g") in broken(snap, plan(snap, {"g": [PAIR, lead, at({"n4": 2})]}))


def test_one_pod_per_host_where_asked() -> None:
    snap = snapshot(pending=[gang("g", pods(2, 1, exclusive_host=True))])
    assert not broken(snap, plan(snap, {"g": [PAIR]}))
    assert (Rule.EXCLUSIVE, "g") in broken(snap, plan(snap, {"g": [at({"n1": 2})]}))


def test_levels_of_pod_sets_and_levels_that_are_none() -> None:
    snap = snapshot(pending=[gang("g", pods(2, 8, required="rack")), gang("h", pods(1, 8), required="row")])
    apart = plan(snap, {"g": [at({"n1": 1, "n3": 1})], "h": [at({"n4": 1})]})
    assert broken(snap, apart) == {(Rule.LEVEL, "g"), (Rule.PIN, "g"), (Rule.LEVEL, "h")}


def test_flavor_of_nodes_and_of_the_queue() -> None:
    gold = Flavor(name="gold", node_labels={"f": "g"}, tolerations=(Toleration(operator="Exists"),))
    nodes = [
        node("n1", labels={"f": "g"}, taints=(Taint(key="gpu"),)),
        node("n2", labels={"f": "s"}),
    ]
    rows = (QuotaRow(resource=GPU, flavor="gold", limit=99),)
    flavors = (gold, Flavor(name="silver", node_labels={"f": "s"}))
    snap = snapshot(
        nodes, flavors=flavors, queues=[Queue(path="root.a", quota=rows)], pending=[gang("g", pods(1, 8))]
    )
    assert not broken(snap, plan(snap, {"g": [at({"n1": 1}, flavor="gold")]}))
    assert broken(snap, plan(snap, {"g": [at({"n2": 1}, flavor="silver")]})) == {(Rule.FLAVOR, "g")}
    assert (Rule.FLAVOR, "g") in broken(snap, plan(snap, {"g": [at({"n2": 1}, flavor="gold")]}))


def test_the_last_in_turn_is_too_much_for_a_node() -> None:
    snap = snapshot(pending=[gang("g", pods(1, 4)), gang("h", pods(1, 4)), gang("i", pods(1, 0))])
    on_n1 = {uid: [at({"n1": 1})] for uid in "hgi"}
    assert not broken(snap, plan(snap, on_n1))
    crowded = replace(snap, nodes=(replace(snap.nodes[0], used={GPU: 1}), *snap.nodes[1:]))
    assert broken(crowded, plan(crowded, on_n1)) == {(Rule.CAPACITY, "h")}
    assert broken(crowded, plan(crowded, on_n1, order=("h", "g", "i"))) == {(Rule.CAPACITY, "g")}


def test_room_that_a_bond_holds_is_taken_by_nobody() -> None:
    left = running(gang("v", pods(1, 4)), {"n1": 1}, releasing=True)
    snap = snapshot(admitted=[left], pending=[gang("b", pods(1, 8)), gang("g", pods(1, 4))])
    held = bond("b", at({"n1": 1}), victims=("v",))
    snap = replace(snap, bonds=(held,))
    assert not broken(snap, plan(snap, {"g": [at({"n2": 1})]}, bonds=(held,)))
    assert broken(snap, plan(snap, {"g": [at({"n1": 1})]}, bonds=(held,))) == {(Rule.CAPACITY, "g")}

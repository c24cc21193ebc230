"""Whole gangs on nodes that take them, inside levels and pins, with room: one change of a sound plan, one rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuer.domain.nodes import Flavor, SchedulingTerms, Taint, Toleration
from queuer.solver.records import Pending
from queuer.solver.verify import Rule
from tests.solver.make import GPU, gang, node, pod_set, queue, row, running
from tests.solver.verify.build import RACKS, at, bond, broken, plan, world

SPREAD = {"n1": 1, "n2": 1}
PAIR = gang("g", pod_set(2, 8), required="rack")


@pytest.mark.parametrize(
    ("place", "rule"),
    [
        (at(SPREAD), None),
        (at(SPREAD, hosts=None, selector={"rack": "r1"}), None),
        (at({"n1": 1}), Rule.GANG),
        (at({"n1": 2, "n2": 0}), Rule.GANG),
        (at({"n1": 2}), Rule.CAPACITY),
        (at({"n1": 1, "n3": 1}), Rule.LEVEL),
        (at(SPREAD, hosts=("n1", "n2", "n3")), Rule.LEVEL),
        (at(SPREAD, hosts=("n2",)), Rule.NODE),
        (at(SPREAD, selector={"rack": "r2"}), Rule.NODE),
        (at(SPREAD, flavor="gold"), Rule.FLAVOR),
    ],
)
def test_gang_in_its_rack(place: Any, rule: Rule | None) -> None:
    found = broken(world(PAIR), plan(world(PAIR), {"g": [place]}))
    assert (rule, "g") in found if rule else not found


@pytest.mark.parametrize("change", [{"unschedulable": True}, {"ready": False}, {"taints": (Taint(key="x"),)}])
def test_node_that_takes_no_pods(change: dict[str, Any]) -> None:
    snap = world(PAIR, nodes=[replace(RACKS[0], **change), *RACKS[1:]])
    assert (Rule.NODE, "g") in broken(snap, plan(snap, {"g": [at(SPREAD)]}))


@pytest.mark.parametrize("change", [{"unschedulable": True}, {"ready": False}])
def test_a_pin_by_labels_leaves_no_closed_host_to_pods_that_tolerate_everything(
    change: dict[str, Any],
) -> None:
    closed = node("n5", labels={"block": "b", "rack": "r1"}, **change)
    snap = world(PAIR, nodes=[*RACKS, closed])
    assert not broken(snap, plan(snap, {"g": [at(SPREAD)]}))
    by_labels = at(SPREAD, hosts=None, selector={"rack": "r1"})
    assert broken(snap, plan(snap, {"g": [by_labels]})) == {(Rule.NODE, "g")}


def test_only_a_standing_bond_waits_for_a_node_that_is_not_ready() -> None:
    """It holds its place there, unless the node is cordoned too; a new bond or a start there is refused."""
    ill = replace(RACKS[0], ready=False, taints=(Taint(key="node.kubernetes.io/not-ready"),))
    left = running(gang("v", pod_set(1, 8)), {"n1": 1}, releasing=True)
    held = bond("g", at(SPREAD), victims=("v",))
    snap = world(PAIR, nodes=[ill, *RACKS[1:]], admitted=[left])
    standing = replace(snap, bonds=(held,))
    assert not broken(standing, plan(standing, {}, bonds=(held,)))
    assert broken(snap, plan(snap, {}, bonds=(held,))) == {(Rule.NODE, "g")}
    assert (Rule.NODE, "g") in broken(standing, plan(standing, {"g": [at(SPREAD)]}))
    shut = world(PAIR, nodes=[replace(ill, unschedulable=True), *RACKS[1:]], admitted=[left], bonds=(held,))
    assert broken(shut, plan(shut, {}, bonds=(held,))) == {(Rule.NODE, "g")}


def test_own_terms_and_avoided_nodes_count() -> None:
    ssd = SchedulingTerms(node_selector={"disk": "ssd"})
    picky = world(gang("g", pod_set(2, 8, terms=ssd)))
    assert (Rule.NODE, "g") in broken(picky, plan(picky, {"g": [at(SPREAD)]}))
    shy = world(Pending(workload=gang("g", pod_set(2, 8)), avoid=frozenset({"n2"})))
    assert broken(shy, plan(shy, {"g": [at(SPREAD)]})) == {(Rule.NODE, "g")}
    assert not broken(shy, plan(shy, {"g": [at({"n1": 1, "n3": 1})]}))


def test_a_pin_does_not_override_the_own_selector() -> None:
    """kube-scheduler would take n3 at the pin's word; the job asked for the other rack."""
    first = SchedulingTerms(node_selector={"rack": "r1"})
    snap = world(gang("g", pod_set(1, 8, terms=first)))
    assert not broken(snap, plan(snap, {"g": [at({"n1": 1})]}))
    assert broken(snap, plan(snap, {"g": [at({"n3": 1}, selector={"rack": "r2"})]})) == {(Rule.NODE, "g")}


def test_each_pod_set_once_in_a_permitted_size() -> None:
    snap = world(gang("g", pod_set(3, 8, min_count=2), pod_set(1, 1, name="lead")))
    lead = at({"n3": 1}, pod_set="lead")
    assert not broken(snap, plan(snap, {"g": [at(SPREAD), lead]}))
    assert broken(snap, plan(snap, {"g": [at(SPREAD)]})) == {(Rule.GANG, "g")}
    assert (Rule.GANG, "g") in broken(snap, plan(snap, {"g": [at(SPREAD), lead, at({"n4": 2})]}))


def test_one_pod_per_host_where_asked() -> None:
    snap = world(gang("g", pod_set(2, 1, exclusive_host=True)))
    assert not broken(snap, plan(snap, {"g": [at(SPREAD)]}))
    assert (Rule.GANG, "g") in broken(snap, plan(snap, {"g": [at({"n1": 2})]}))


def test_levels_of_pod_sets_and_levels_that_are_none() -> None:
    snap = world(gang("g", pod_set(2, 8, required="rack")), gang("h", pod_set(1, 8), required="row"))
    apart = plan(snap, {"g": [at({"n1": 1, "n3": 1})], "h": [at({"n4": 1})]})
    assert broken(snap, apart) == {(Rule.LEVEL, "g"), (Rule.LEVEL, "h")}


def test_flavor_of_nodes_and_of_the_queue() -> None:
    nodes = [node("n1", labels={"f": "g"}, taints=(Taint(key="gpu"),)), node("n2", labels={"f": "s"})]
    gold = Flavor(name="gold", node_labels={"f": "g"}, tolerations=(Toleration(operator="Exists"),))
    flavors = (gold, Flavor(name="silver", node_labels={"f": "s"}))
    only = queue("root.a", row(flavor="gold", limit=99))
    snap = world(gang("g", pod_set(1, 8)), nodes=nodes, flavors=flavors, queues=[only])
    assert not broken(snap, plan(snap, {"g": [at({"n1": 1}, flavor="gold")]}))
    assert broken(snap, plan(snap, {"g": [at({"n2": 1}, flavor="silver")]})) == {(Rule.FLAVOR, "g")}
    assert (Rule.FLAVOR, "g") in broken(snap, plan(snap, {"g": [at({"n2": 1}, flavor="gold")]}))


def test_the_last_in_turn_is_too_much_for_a_node() -> None:
    waiting = (gang("g", pod_set(1, 4)), gang("h", pod_set(1, 4)), gang("i", pod_set(1, 0)))
    snap, on_n1 = world(*waiting), {uid: [at({"n1": 1})] for uid in "hgi"}
    assert not broken(snap, plan(snap, on_n1))
    crowded = world(*waiting, foreign={"n1": {GPU: 1}})
    assert broken(crowded, plan(crowded, on_n1)) == {(Rule.CAPACITY, "h")}
    assert broken(crowded, plan(crowded, on_n1, order=("h", "g", "i"))) == {(Rule.CAPACITY, "g")}


def test_room_that_a_bond_holds_is_taken_by_nobody() -> None:
    left = running(gang("v", pod_set(1, 4)), {"n1": 1}, releasing=True)
    held = bond("b", at({"n1": 1}), victims=("v",))
    snap = world(gang("b", pod_set(1, 8)), gang("g", pod_set(1, 4)), admitted=[left], bonds=(held,))
    assert not broken(snap, plan(snap, {"g": [at({"n2": 1})]}, bonds=(held,)))
    assert broken(snap, plan(snap, {"g": [at({"n1": 1})]}, bonds=(held,))) == {(Rule.CAPACITY, "g")}

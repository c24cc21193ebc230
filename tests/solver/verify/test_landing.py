"""Pods land whatever kube-scheduler picks: who has a choice of hosts has them alone."""

from __future__ import annotations

import pytest

from queuer.solver.verify import Rule
from tests.solver.make import gang, landing, pod_set, running
from tests.solver.verify.build import at, bond, broken, plan, world

SPREAD = at({"n1": 1, "n2": 1})
"""Two pods of four GPUs could both land on either; of six they fill a node each."""
FAULT = {(Rule.LANDING, "g")}


def test_hosts_of_a_gang_with_a_choice_are_its_own() -> None:
    snap = world(gang("h", pod_set(1, 1)), gang("g", pod_set(2, 4)))
    assert not broken(snap, plan(snap, {"g": [SPREAD], "h": [at({"n3": 1})]}))
    shared = {"g": [SPREAD], "h": [at({"n2": 1})]}
    assert broken(snap, plan(snap, shared)) == FAULT
    assert broken(snap, plan(snap, shared, order=("g", "h"))) == {(Rule.LANDING, "h")}


def test_without_a_choice_hosts_are_shared_and_a_whole_domain_is_a_pin() -> None:
    snap, h = world(gang("h", pod_set(1, 2)), gang("g", pod_set(2, 6))), [at({"n2": 1})]
    assert not broken(snap, plan(snap, {"g": [SPREAD], "h": h}))
    whole = at(SPREAD.nodes, hosts=None, selector={"rack": "r1"})
    assert not broken(snap, plan(snap, {"g": [whole], "h": h}))
    wide = at(SPREAD.nodes, hosts=None, selector={"block": "b"})
    assert broken(snap, plan(snap, {"g": [wide], "h": [at({"n4": 1})]})) == FAULT


@pytest.mark.parametrize(
    ("count", "hosts", "rules"),
    [
        (1, ("n1", "n2"), {Rule.LANDING}),  # may come to either
        (1, ("n1",), set()),
        (2, ("n1",), {Rule.CAPACITY}),
        (4, ("n1", "n2"), {Rule.CAPACITY}),  # no choice: they fill both
    ],
)
def test_pods_of_earlier_cycles(count: int, hosts: tuple[str, ...], rules: set[Rule]) -> None:
    snap = world(gang("g", pod_set(1, 4)), admitted=[landing("l", count, 4, *hosts)])
    assert broken(snap, plan(snap, {"g": [at({"n1": 1})]})) == {(rule, "g") for rule in rules}
    assert not broken(snap, plan(snap, {"g": [at({"n3": 1})]}))


def test_no_choice_among_hosts_where_others_land_or_room_is_held() -> None:
    snap = world(gang("g", pod_set(2, 4)), admitted=[landing("l", 1, 1, "n1")])
    assert broken(snap, plan(snap, {"g": [SPREAD]})) == FAULT
    left = running(gang("v", pod_set(1, 1)), {"n1": 1}, releasing=True)
    snap = world(gang("b", pod_set(1, 1)), gang("g", pod_set(2, 3)), admitted=[left])
    held = bond("b", at({"n1": 1}), victims=("v",))
    assert broken(snap, plan(snap, {"g": [SPREAD]}, bonds=(held,))) == FAULT


def test_pod_sets_of_one_gang_beside_each_other() -> None:
    """Two workers might both come to n1, where a large leader needs the rest."""
    for worker, lead, host, fault in ((4, 4, "n1", FAULT), (4, 4, "n3", set()), (3, 1, "n1", set())):
        snap = world(gang("g", pod_set(2, worker), pod_set(1, lead, name="lead")))
        made = plan(snap, {"g": [SPREAD, at({host: 1}, pod_set="lead")]})
        assert broken(snap, made) == fault

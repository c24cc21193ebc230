"""Pods land whatever kube-scheduler picks: who has a choice of hosts has them alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.core.records import Assignment, Unbound
from queuer.core.verify import Rule
from tests.core.verify.build import at, bond, broken, gang, plan, pods, running, snapshot

LOOSE = at({"n1": 1, "n2": 1})
"""Two pods of four GPUs on two idle nodes: each could take both."""


@pytest.mark.parametrize(
    ("other", "fault"),
    [
        (at({"n3": 1}), None),
        (at({"n2": 1}), "h"),
    ],
)
def test_hosts_of_a_gang_with_a_choice_are_its_own(other: Assignment, fault: str | None) -> None:
    snap = snapshot(pending=[gang("g", pods(2, 4)), gang("h", pods(1, 1))])
    made = plan(snap, {"g": [LOOSE], "h": [other]})
    assert broken(snap, made) == ({(Rule.LANDING, fault)} if fault else set())
    turned = replace(made, order=("h", "g"))
    assert broken(snap, turned) == ({(Rule.LANDING, "g")} if fault else set())


def test_without_a_choice_hosts_are_shared() -> None:
    """Two pods of six GPUs fill two nodes for themselves, and leave room for small ones."""
    snap = snapshot(pending=[gang("g", pods(2, 6)), gang("h", pods(1, 2))])
    assert not broken(snap, plan(snap, {"g": [LOOSE], "h": [at({"n2": 1})]}))


def test_a_domain_is_a_pin_where_all_of_it_is_needed() -> None:
    snap = snapshot(pending=[gang("g", pods(2, 6)), gang("h", pods(1, 2))])
    whole = at({"n1": 1, "n2": 1}, hosts=None, selector={"rack": "r1"})
    assert not broken(snap, plan(snap, {"g": [whole], "h": [at({"n2": 1})]}))
    wide = at({"n1": 1, "n2": 1}, hosts=None, selector={"block": "b"})
    assert broken(snap, plan(snap, {"g": [wide], "h": [at({"n4": 1})]})) == {(Rule.LANDING, "h")}


@pytest.mark.parametrize(
    ("hosts", "count", "rules"),
    [
        (("n1", "n2"), 1, {Rule.LANDING}),  # may come to either
        (("n1",), 1, set()),
        (("n1",), 2, {Rule.CAPACITY}),
        (("n1", "n2"), 4, {Rule.CAPACITY}),  # no choice: they fill both
    ],
)
def test_pods_of_earlier_cycles(hosts: tuple[str, ...], count: int, rules: set[Rule]) -> None:
    coming = Unbound(pod_set="main", count=count, hosts=hosts)
    landing = running(gang("l", pods(count, 4)), {}, unbound=(coming,))
    snap = snapshot(admitted=[landing], pending=[gang("g", pods(1, 4))])
    assert broken(snap, plan(snap, {"g": [at({"n1": 1})]})) == {(rule, "g") for rule in rules}
    assert not broken(snap, plan(snap, {"g": [at({"n3": 1})]}))


def test_no_choice_among_hosts_where_others_land_or_room_is_held() -> None:
    landing = running(gang("l", pods(1, 1)), {}, unbound=(Unbound(pod_set="main", count=1, hosts=("n1",)),))
    snap = snapshot(admitted=[landing], pending=[gang("g", pods(2, 4))])
    assert broken(snap, plan(snap, {"g": [LOOSE]})) == {(Rule.LANDING, "g")}
    left = running(gang("v", pods(1, 1)), {"n1": 1}, releasing=True)
    snap = snapshot(admitted=[left], pending=[gang("b", pods(1, 1)), gang("g", pods(2, 3))])
    held = bond("b", at({"n1": 1}), victims=("v",))
    assert broken(snap, plan(snap, {"g": [LOOSE]}, bonds=(held,))) == {(Rule.LANDING, "g")}


def test_pod_sets_of_one_gang_beside_each_other() -> None:
    """Two workers might both come to n1, where the leader needs the rest."""
    snap = snapshot(pending=[gang("g", pods(2, 4), pods(1, 4, name="lead"))])
    beside = plan(snap, {"g": [LOOSE, at({"n1": 1}, pod_set="lead")]})
    assert broken(snap, beside) == {(Rule.LANDING, "g")}
    assert not broken(snap, plan(snap, {"g": [LOOSE, at({"n3": 1}, pod_set="lead")]}))
    small = snapshot(pending=[gang("g", pods(2, 3), pods(1, 1, name="lead"))])
    assert not broken(small, plan(small, {"g": [LOOSE, at({"n1": 1}, pod_set="lead")]}))

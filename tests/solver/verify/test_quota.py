"""Limits on every ancestor, what is not lent, and work that nobody may evict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.domain.nodes import Flavor
from queuer.solver.verify import Rule
from tests.solver.make import gang, pod_set, queue, row, running
from tests.solver.verify.build import at, bond, broken, plan, world

STARTS = {"g": [at({"n1": 1})], "h": [at({"n2": 1})]}
G, H = gang("g", pod_set(1, 8)), gang("h", pod_set(1, 8))
FAULT = {(Rule.QUOTA, "h")}


@pytest.mark.parametrize(("limit", "fault"), [(16, set()), (15, FAULT)])
def test_the_last_in_turn_is_too_much_for_a_limit(limit: int, fault: set[tuple[Rule, str]]) -> None:
    waiting = (replace(G, queue="root.a.x"), replace(H, queue="root.a.y"))
    queues = [queue("root.a", row(limit=limit)), queue("root.a.x"), queue("root.a.y")]
    snap = world(*waiting, queues=queues)
    assert broken(snap, plan(snap, STARTS)) == fault
    turned = {(rule, "g") for rule, _ in fault}
    assert broken(snap, plan(snap, STARTS, order=("h", "g"))) == turned


def test_limits_by_flavor_and_of_what_runs() -> None:
    snap = world(
        G,
        H,
        flavors=(Flavor(name="default"),),
        queues=[queue("root.a", row(flavor="default", limit=12))],
        admitted=[running(gang("r", pod_set(1, 4)), {"n3": 1})],
    )
    assert not broken(snap, plan(snap, {"g": STARTS["g"]}))
    assert broken(snap, plan(snap, STARTS)) == FAULT


@pytest.mark.parametrize(("lend", "fault"), [(16, set()), (7, FAULT)])
def test_what_is_not_lent_stays_free(lend: int, fault: set[tuple[Rule, str]]) -> None:
    """Of 32 GPUs half are guaranteed to an idle queue."""
    pair = gang("h", pod_set(2, 8))
    made = {"g": STARTS["g"], "h": [at({"n2": 1, "n3": 1})]}
    for path, found in (("root.a", fault), ("root.b", set())):
        waiting = (replace(G, queue=path), replace(pair, queue=path))
        snap = world(*waiting, queues=[queue("root.b", row(guaranteed=16, lend=lend))])
        assert broken(snap, plan(snap, made)) == found


def test_guarantees_above_capacity_stop_nobody_inside_them() -> None:
    snap = world(replace(G, queue="root.b"), queues=[queue("root.b", row(guaranteed=99, lend=0))])
    assert not broken(snap, plan(snap, {"g": STARTS["g"]}))


@pytest.mark.parametrize(("limit", "fault"), [(16, set()), (8, FAULT)])
def test_nobody_starts_in_the_quota_of_a_bond(limit: int, fault: set[tuple[Rule, str]]) -> None:
    """It fits only once its victim, which counts till then, has left."""
    held = bond("g", at({"n1": 1}), victims=("v",))
    victim = running(gang("v", pod_set(1, 8)), {"n1": 1}, releasing=True)
    snap = world(G, H, queues=[queue("root.a", row(limit=limit))], admitted=[victim], bonds=(held,))
    assert not broken(snap, plan(snap, {}, bonds=(held,)))
    assert broken(snap, plan(snap, {"h": STARTS["h"]}, bonds=(held,))) == fault


def test_work_that_nobody_may_evict_starts_while_entitled() -> None:
    snap = world(G, replace(H, preemptible=False), queues=[queue("root.a", row(guaranteed=8))])
    assert broken(snap, plan(snap, STARTS)) == {(Rule.NON_PREEMPTIBLE, "h")}
    assert not broken(snap, plan(snap, STARTS, order=("h", "g")))
    resumed = replace(snap, bonds=(bond("h", *STARTS["h"]),))
    assert not broken(resumed, plan(resumed, STARTS))

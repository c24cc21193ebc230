"""Limits on every ancestor, what is not lent, and work that nobody may evict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuer.core.records import Pending
from queuer.core.verify import Rule
from queuer.domain.nodes import Flavor
from queuer.domain.queue import Queue
from tests.core.verify.build import RACKS, at, bond, broken, gang, plan, pods, queue, running, snapshot

STARTS = {"g": [at({"n1": 1})], "h": [at({"n2": 1})]}


def test_the_last_in_turn_is_too_much_for_a_limit() -> None:
    parts = [Queue(path="root.a.x"), Queue(path="root.a.y")]
    waiting = [gang("g", pods(1, 8), queue="root.a.x"), gang("h", pods(1, 8), queue="root.a.y")]
    for limit, fault in ((16, set()), (15, {(Rule.QUOTA, "h")})):
        snap = snapshot(queues=[queue("root.a", limit=limit), *parts], pending=waiting)
        assert broken(snap, plan(snap, STARTS)) == fault
    assert broken(snap, plan(snap, STARTS, order=("h", "g"))) == {(Rule.QUOTA, "g")}


def test_limits_by_flavor_and_of_what_runs() -> None:
    rows = {"flavors": (Flavor(name="default"),), "queues": [queue("root.a", flavor="default", limit=12)]}
    held = running(gang("r", pods(1, 4)), {"n3": 1})
    snap = snapshot(admitted=[held], pending=[gang("g", pods(1, 8)), gang("h", pods(1, 8))], **rows)
    assert not broken(snap, plan(snap, {"g": STARTS["g"]}))
    assert broken(snap, plan(snap, STARTS)) == {(Rule.QUOTA, "h")}


@pytest.mark.parametrize(("lend", "fault"), [(16, set()), (8, {(Rule.QUOTA, "h")})])
def test_what_is_not_lent_stays_free(lend: int, fault: set[tuple[Rule, str]]) -> None:
    """Half the nodes' GPUs are guaranteed to `root.b`, which is idle."""
    owner = queue("root.b", guaranteed=16, lend=lend)
    waiting = [gang("g", pods(1, 8)), gang("h", pods(2, 8))]
    snap = snapshot(queues=[owner], pending=waiting)
    made = plan(snap, {"g": [at({"n1": 1})], "h": [at({"n2": 1, "n3": 1})]})
    assert broken(snap, made) == fault
    own = replace(snap, pending=tuple(Pending(workload=replace(w, queue="root.b")) for w in waiting))
    assert not broken(own, made)


def test_guarantees_above_capacity_stop_nobody_inside_them() -> None:
    snap = snapshot(queues=[queue("root.b", guaranteed=99, lend=0)], pending=[gang("g", pods(1, 8), queue="root.b")])
    assert not broken(snap, plan(snap, {"g": STARTS["g"]}))


def test_quota_of_victims_counts_until_they_are_gone() -> None:
    """A bond fits once its victim has left; nobody starts in what it holds."""
    victim = running(gang("v", pods(1, 8)), {"n1": 1}, releasing=True)
    waiting = [gang("b", pods(1, 8)), gang("h", pods(1, 8))]
    held = bond("b", at({"n1": 1}), victims=("v",))
    for limit, fault in ((16, set()), (8, {(Rule.QUOTA, "h")})):
        snap = snapshot(queues=[queue("root.a", limit=limit)], admitted=[victim], pending=waiting, bonds=(held,))
        assert broken(snap, plan(snap, {"h": STARTS["h"]}, bonds=(held,))) == fault
        assert not broken(snap, plan(snap, {}, bonds=(held,)))


def test_work_that_nobody_may_evict_starts_while_entitled() -> None:
    queues = [queue("root.a", guaranteed=8)]
    waiting = [gang("g", pods(1, 8)), gang("h", pods(1, 8), preemptible=False)]
    snap = snapshot(queues=queues, pending=waiting)
    assert broken(snap, plan(snap, STARTS)) == {(Rule.NON_PREEMPTIBLE, "h")}
    assert not broken(snap, plan(snap, STARTS, order=("h", "g")))
    resumed = replace(snap, bonds=(bond("h", *STARTS["h"]),))
    assert not broken(resumed, plan(resumed, STARTS))

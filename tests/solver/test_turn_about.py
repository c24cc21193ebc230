"""What is evicted, held and started again comes to rest: nobody goes round in a circle, and no bond is in vain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from queuer.domain.reasons import Token
from queuer.sim.engine import Simulation
from queuer.sim.judge import run
from queuer.sim.scenario import load
from queuer.solver import landing
from queuer.solver.decide import decide
from queuer.solver.problem import Assignment, Bond, Budget, Plan, Snapshot
from queuer.solver.verify import verify
from tests.solver.make import gang, node, pod_set, queue, row, running, snapshot

NOW = 400.0
BUDGETS = pytest.mark.parametrize("deterministic", [0.0, 2.0])
CIRCLE = """
name: three-in-a-circle
source: own
why: "each may evict the next by a rule of its own; the third would evict the first again, and so on for ever"
exact: false
nodes:
- {names: n0, allocatable: {gpu: 4, pods: 10}}
queues:
- {path: root, policy: {preempt: lower-priority}}
- {path: root.a}
- {path: root.b, quota: [{resource: gpu, guaranteed: 2}]}
workloads:
- name: a
  queue: root.b
  priority: 1
  podSets: [{name: main, count: 1, requests: {gpu: 4}}]
  running: {since: -90, nodes: {n0: 1}}
- {name: s, copies: 2, queue: root.b, podSets: [{name: main, count: 1, requests: {gpu: 1}}], submit: 60}
- {name: x, queue: root.a, priority: 5, podSets: [{name: main, count: 1, requests: {gpu: 3}}], submit: 100}
expect:
- {always: {evictions: 2}}
"""
CLAIMED = """
name: claimed-back-at-the-end-of-a-chain
source: own
why: "v was evicted for b, that once for c; b has ended, so v takes its guarantee back from c, who borrows"
exact: false
grace: 30
nodes:
- {names: n1, allocatable: {gpu: 8, pods: 20}}
queues:
- {path: root, policy: {preempt: lower-priority}}
- {path: root.g, quota: [{resource: gpu, guaranteed: 4}]}
- {path: root.k, quota: [{resource: gpu, guaranteed: 4}]}
- {path: root.x}
workloads:
- name: v
  queue: root.g
  podSets: [{name: main, count: 1, requests: {gpu: 4}}]
  running: {since: -500, nodes: {n1: 1}}
- name: b
  queue: root.g
  priority: 5
  podSets: [{name: main, count: 1, requests: {gpu: 4}}]
  running: {since: -5, nodes: {n1: 1}}
  runtime: 430
- {name: c, queue: root.x, priority: 9, podSets: [{name: main, count: 1, requests: {gpu: 4}}], submit: 10}
- {name: k1, queue: root.k, priority: 5, podSets: [{name: main, count: 1, requests: {gpu: 4}}], submit: 500}
expect:
- {at: 1000, admitted: [k1, v]}
"""


@BUDGETS
@pytest.mark.parametrize("story", [CIRCLE, CLAIMED])
def test_only_who_would_go_round_in_a_circle_is_kept_from_its_right(
    tmp_path: Path, story: str, deterministic: float
) -> None:
    file = tmp_path / f"{yaml.safe_load(story)['name']}.yaml"
    file.write_text(story)
    assert [v.missed for v in run(load(file), budget=Budget(deterministic=deterministic)) if v.missed] == []


def test_who_runs_again_is_still_known_to_have_been_evicted_for_somebody(tmp_path: Path) -> None:
    file = tmp_path / "claimed-back-at-the-end-of-a-chain.yaml"
    file.write_text(CLAIMED)
    simulation = Simulation(load(file), budget=Budget(deterministic=0.0))
    assert 1000.0 in simulation.advance([1000.0])
    assert {a.workload.uid: a.displaced_by for a in simulation.snapshot().admitted} == {
        "v": {"b"},
        "k1": set(),
    }


def held(uid: str, host: str, *, victim: str, deadline: float = NOW + 100) -> Bond:
    rows = (Assignment(pod_set="main", flavor="default", nodes={host: 1}, hosts=(host,)),)
    return Bond(uid=uid, assignments=rows, victims=(victim,), deadline=deadline)


def decided(snap: Snapshot, *, deterministic: float) -> Plan:
    plan = decide(snap, now=NOW, seed=0, budget=Budget(deterministic=deterministic))
    assert verify(snap, plan, now=NOW) == ()
    return plan


@BUDGETS
def test_what_its_queue_has_borrowed_keeps_nobody_from_the_place_that_is_held(deterministic: float) -> None:
    """It was inside its guarantee when somebody was evicted for it; nobody may evict it, and a neighbour borrows."""
    queues = [queue("root"), queue("root.a"), queue("root.b", row(guaranteed=1))]
    fixed = gang("np", pod_set(1, 1), queue="root.b", preemptible=False)
    neighbour = running(gang("bor", pod_set(1, 3), queue="root.b"), {"n1": 1})
    bonds = (held("np", "n0", victim="gone"),)
    nodes = [node("n0", gpu=4), node("n1", gpu=4)]
    snap = snapshot(nodes, queues, admitted=[neighbour], pending=[fixed], bonds=bonds)
    plan = decided(snap, deterministic=deterministic)
    assert [a.uid for a in plan.admissions] == ["np"]


@BUDGETS
@pytest.mark.parametrize("victim", ["gone", "slow"])
def test_at_the_deadline_it_starts_where_nobody_is_in_the_way(victim: str, deterministic: float) -> None:
    """Else its victim would be back in its place, and be evicted for it once more."""
    queues = [queue("root"), queue("root.a", row(guaranteed=4)), queue("root.b")]
    waiting = [
        gang("back", pod_set(1, 4), queue="root.b", submitted=5.0, priority=1),
        gang("hopeless", pod_set(1, 9), submitted=10.0),
        gang("g", pod_set(1, 4), submitted=50.0),
    ]
    slow = running(gang("slow", pod_set(1, 1), queue="root.b"), {"n1": 1}, releasing=True)
    bonds = (held("g", "n0", victim=victim, deadline=NOW),)
    nodes = [node("n0", gpu=4), node("n1", gpu=1)]
    snap = snapshot(nodes, queues, admitted=[slow], pending=waiting, bonds=bonds)
    plan = decided(snap, deterministic=deterministic)
    assert [a.uid for a in plan.admissions] == ["g" if victim == "gone" else "back"]
    assert plan.bonds == ()


def test_looking_whether_sets_land_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gangs of three sets on ten nodes, each with a search of its own: they share what a decision looks at."""
    looks, looked_at = 0, landing._lands

    def counted(*args: Any) -> bool:
        nonlocal looks
        looks += 1
        return looked_at(*args)

    monkeypatch.setattr(landing, "_lands", counted)
    sizes = [3, 5, 4, 2, 6, 3, 5, 1, 4, 6]
    nodes = [node(f"n{i}", gpu=gpu) for i, gpu in enumerate(sizes)]
    sets = [pod_set(5, 2, name="a"), pod_set(4, 3, name="b")]
    gangs = [gang(f"g{n}", *sets, pod_set(n, 1, name="c"), submitted=17.0 - n) for n in (17, 16, 15)]
    made = decided(snapshot(nodes, [queue("root.a")], pending=gangs), deterministic=0.0)
    assert 1_000 < looks < 8_000
    assert all(e.primary.token is Token.SOLVER_DEFERRED for e in made.explanations.values())

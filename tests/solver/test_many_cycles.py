"""The long gate of the decision, in short, and that it sees what it is there to see."""

from __future__ import annotations

from dataclasses import replace

from queuer.solver.decide import decide
from tests.solver.many_cycles import GREEDY, ROUND, Cycle, Tally, judge, run
from tests.solver.worlds import NOW, world


def test_rounds_are_sound() -> None:
    """Lives whose pods land anywhere inside their pins, and larger worlds, with CP-SAT."""
    tally = Tally()
    run(2 * ROUND, first=0, tally=tally)
    assert tally.examples == []
    assert tally.counts["cycles"] == 2 * ROUND
    assert tally.counts["admitted"] > 0
    assert tally.counts["waiting"] > 0


def test_faults_are_counted() -> None:
    """A plan that starts nobody and says nothing, where the same decision said otherwise before."""
    snap = world(8130, nodes=16, pending=16, running=16)
    plan = decide(snap, now=NOW, seed=0, budget=GREEDY)
    assert plan.admissions
    mute = replace(plan, admissions=(), evictions=(), bonds=(), reservations=(), explanations={})
    tally = Tally()
    judge(Cycle(name="mute", snapshot=snap, now=NOW, plan=mute), "admissions: 0 entries, 1", tally)
    found = ("violations", "worse_than_greedy", "without_one_reason", "not_deterministic")
    assert {kind: tally.counts[kind] for kind in found} == dict.fromkeys(found, 1)
    assert not tally.sound

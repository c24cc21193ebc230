"""An admission of a later wave is sent only once the earlier ones on its hosts have landed, of whichever cycle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuer.controller.live import Live, Placement
from queuer.controller.state import ClusterState
from queuer.controller.waves import Waves
from queuer.domain.nodes import HOSTNAME, Node, Taint, TaintEffect
from queuer.domain.workload import PodSet, State, Workload
from queuer.solver.problem import Assignment
from queuer.store.outbox import Entry
from queuer.store.tables import EntryKind


def live(uid: str, *, cycle: int, wave: int, hosts: tuple[str, ...] = ("n1", "n2")) -> Live:
    """An admitted gang pinned to hosts that has not landed."""
    workload = Workload(
        uid=uid, kind="Job", namespace="ns", name=uid, queue="root.a", submitted=0.0,
        pod_sets=(PodSet(name="main", count=1, requests={"pods": 1}),),
    )  # fmt: skip
    row = Assignment(pod_set="main", flavor="default", nodes={hosts[0]: 1}, hosts=hosts)
    placement = Placement(id=f"adm-{uid}", epoch=1, cycle=cycle, at=0.0, assignments=(row,), wave=wave)
    return Live(workload=workload, state=State.ADMITTED, placement=placement)


def sent(coming: Live, *others: Live, **nodes: Any) -> bool:
    """Whether the PATCH of `coming` is sent beside these others. `nodes`: what is said of all nodes."""
    state = ClusterState()
    for name in ("n1", "n2", "n3"):
        state.node_changed(Node(name=name, labels={HOSTNAME: name}, allocatable={"pods": 10}, **nodes))
    for one in (coming, *others):
        state.put(one)
    placement = coming.placement
    assert placement is not None
    found: list[Entry] = []
    waves = Waves(send=found.append)
    entry = Entry(
        seq=1, kind=EntryKind.ADMIT, uid=coming.workload.uid, admission_id=placement.id, epoch=1,
        cycle=placement.cycle, wave=placement.wave, patch={}, at=0.0,
    )  # fmt: skip
    waves.add(entry)
    waves.release(state)
    return bool(found)


@pytest.mark.parametrize(
    ("cycle", "wave"), [(2, 0), (1, 0), (1, 1)], ids=["same cycle", "earlier cycle", "earlier, late wave"]
)
def test_a_later_wave_waits_for_what_has_not_landed(cycle: int, wave: int) -> None:
    """The decision that made it counted all of these as landing first."""
    coming, before = live("b", cycle=2, wave=1), live("a", cycle=cycle, wave=wave)
    assert not sent(coming, before)
    assert sent(coming, replace(before, landed=5.0, state=State.PLACING))
    assert sent(coming, live("a", cycle=cycle, wave=wave, hosts=("n3",)))


def test_a_later_wave_waits_for_pods_that_were_lost_after_they_had_landed() -> None:
    """They come again at any time, and the decision counts them as landing."""
    landed = replace(live("a", cycle=1, wave=0), state=State.RUNNING, landed=5.0)
    assert sent(live("b", cycle=2, wave=1), landed)
    assert not sent(live("b", cycle=2, wave=1), replace(landed, unplaced=9.0))
    assert sent(live("b", cycle=2, wave=0), replace(landed, unplaced=9.0))
    for state in (State.EVICTING, State.FAILED, State.SUCCEEDED):
        assert sent(live("b", cycle=2, wave=1), replace(landed, unplaced=9.0, state=state))


@pytest.mark.parametrize(
    "nodes",
    [
        {"unschedulable": True},
        {"ready": False},
        {"taints": (Taint(key="t", value="", effect=TaintEffect.NO_SCHEDULE),)},
    ],
)
def test_a_later_wave_is_not_sent_while_a_shared_node_is_closed(nodes: dict[str, Any]) -> None:
    """Nobody could call it back when that opens again."""
    assert not sent(live("b", cycle=2, wave=1), live("a", cycle=1, wave=0), **nodes)
    anywhere = live("a", cycle=1, wave=0)
    assert anywhere.placement is not None
    row = replace(anywhere.placement.assignments[0], hosts=None)
    anywhere = replace(anywhere, placement=replace(anywhere.placement, assignments=(row,)))
    assert not sent(live("b", cycle=2, wave=1, hosts=("n3",)), anywhere, **nodes)


def test_the_first_wave_waits_for_nobody() -> None:
    assert sent(live("b", cycle=2, wave=0), live("a", cycle=1, wave=1))


def test_nobody_waits_for_what_came_later() -> None:
    """Or two gangs could wait for each other."""
    assert sent(live("a", cycle=1, wave=1), live("b", cycle=2, wave=0), live("c", cycle=1, wave=1))

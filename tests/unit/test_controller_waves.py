"""An admission of a later wave is sent only once the earlier ones on its hosts have landed, of whichever cycle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuer.controller.landing import BACK_OFF
from queuer.controller.live import JobView, Live, Placement
from queuer.controller.snapshot import turn_of
from queuer.controller.state import ClusterState
from queuer.controller.unplaced import Place, Unplaced
from queuer.controller.waves import Waves
from queuer.domain.nodes import HOSTNAME, Node, Taint, TaintEffect
from queuer.domain.workload import PodSet, State, Workload
from queuer.solver.problem import Assignment, waits_for
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
    waves.release(state, now=10.0)
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
    lost = Unplaced(waiting={"p": Place(empty=9.0, waits=9.0)})
    landed = replace(live("a", cycle=1, wave=0), state=State.RUNNING, landed=5.0)
    assert sent(live("b", cycle=2, wave=1), landed)
    assert not sent(live("b", cycle=2, wave=1), replace(landed, unplaced=lost))
    assert sent(live("b", cycle=2, wave=0), replace(landed, unplaced=lost))
    for state in (State.EVICTING, State.FAILED, State.SUCCEEDED):
        assert sent(live("b", cycle=2, wave=1), replace(landed, unplaced=lost, state=state))


class Scene:
    """A gang `b` of a later wave, and an earlier one `a` on its hosts that runs. `left`: completions that this owes."""

    def __init__(self, *, left: int | None = 1000) -> None:
        self.state, self.found = ClusterState(), list[Entry]()
        for name in ("n1", "n2", "n3"):
            self.state.node_changed(Node(name=name, labels={HOSTNAME: name}, allocatable={"pods": 10}))
        self.runs = replace(live("a", cycle=1, wave=0), state=State.RUNNING, landed=5.0)
        self.waves = Waves(send=self.found.append)
        self.state.put(live("b", cycle=2, wave=1))
        self.state.job_changed(
            JobView(
                uid="a",
                kind="Job",
                namespace="ns",
                name="a",
                resource_version="1",
                suspended=False,
                left=left,
            )
        )
        self.waves.add(
            Entry(
                seq=1, kind=EntryKind.ADMIT, uid="b", admission_id="adm-b", epoch=1, cycle=2, wave=1, patch={}, at=0.0
            )
        )  # fmt: skip

    def sent(self, now: float, *others: Live, begun: float | None = None, **lost: float) -> bool:
        """Whether it has been sent at this moment, when `a` misses these pods since then, and some since `begun`."""
        waiting = {uid: Place(empty=at, waits=now) for uid, at in lost.items()}
        self.state.put(replace(self.runs, unplaced=Unplaced(waiting=waiting, begun=begun) if lost else None))
        for other in others:
            self.state.put(other)
        self.waves.release(self.state, now=now)
        return bool(self.found)


def test_a_later_wave_is_not_held_for_ever_by_pods_that_follow_each_other() -> None:
    """Guards against a deadlock: the gang is never whole, but what was missing when all else was done is there."""
    scene = Scene()
    assert not scene.sent(10.0, p=8.0, q=9.5)
    assert not scene.sent(11.0, q=9.5, r=10.5)
    assert not scene.sent(12.0, q=9.5, s=12.0)
    assert scene.sent(13.0, r=10.5, t=13.0)


@pytest.mark.parametrize("left", [None, 1], ids=["of pods without completions", "one completion a pod"])
def test_a_later_wave_waits_for_an_ordinary_gang_until_it_is_whole_again(left: int | None) -> None:
    """Guards the decision, which counts on that: a pod that is lost while another comes back is waited for, too."""
    scene = Scene(left=left)
    assert not scene.sent(10.0, p=8.0)
    assert not scene.sent(20.0, q=15.0)
    assert not scene.sent(30.0, r=29.0)
    assert scene.sent(31.0)


def test_a_later_wave_is_not_held_for_ever_by_pods_that_fail_one_after_the_other() -> None:
    """Guards against a deadlock: each is replaced in time, but the gang is never whole."""
    scene, late = Scene(left=1), 5.0 + BACK_OFF
    assert not scene.sent(10.0, begun=5.0, p=8.0)
    assert not scene.sent(late - 1.0, begun=5.0, q=late - 20.0)
    assert not scene.sent(late, begun=5.0, q=late - 20.0, r=late)
    assert not scene.sent(late + 50.0, begun=5.0, r=late)
    assert scene.sent(late + 60.0, begun=5.0, s=late + 1.0)


def test_who_is_held_back_waits_for_what_a_decision_has_counted_on() -> None:
    """Guards places that were planned while the gang was one that recovers."""
    scene, late = Scene(left=1), 5.0 + BACK_OFF
    assert not scene.sent(late - 1.0, begun=5.0, q=late - 2.0)
    turns = [turn_of(scene.state.live[uid], scene.state.jobs.get(uid), now=late - 1.0) for uid in "ba"]
    assert waits_for(*turns)
    assert not scene.sent(late + 1.0, begun=5.0, q=late - 2.0)
    assert scene.sent(late + 2.0, begun=5.0, r=late + 1.5)


@pytest.mark.parametrize("left", [None, 1, 1000])
def test_the_decision_does_not_count_on_anybody_to_wait_who_is_sent(left: int | None) -> None:
    """Guards plans that keep a lost pod's place by somebody's waiting for it; who waits in vain costs only time."""
    scene = Scene(left=left)
    for now, lost in ((10.0, {"p": 9.0}), (20.0, {"q": 20.0}), (920.0, {"r": 920.0}), (930.0, {})):
        sent = scene.sent(now, begun=9.0, **lost)
        earlier, later = scene.state.live["a"], scene.state.live["b"]
        turns = (turn_of(one, scene.state.jobs.get(one.uid), now=now) for one in (later, earlier))
        counts = waits_for(*turns)
        assert not (counts and sent)
        assert counts == (left != 1000 and bool(lost) and now < 900.0)


def test_a_later_wave_waits_for_a_pod_that_stays_away_whatever_follows_each_other() -> None:
    """Guards R4: the deadlines of the others were renewed many times meanwhile."""
    scene = Scene()
    for now in range(10, 200, 10):
        assert not scene.sent(float(now), stuck=9.0, **{f"p{now}": float(now)})
    assert scene.sent(200.0)


def test_a_later_wave_waits_for_pods_that_were_lost_while_it_waited_for_others() -> None:
    """Guards R4: other decisions since have reckoned with its waiting for these, too."""
    scene = Scene()
    slow = live("c", cycle=1, wave=0)
    assert not scene.sent(10.0, slow)
    assert not scene.sent(11.0, p=10.5)
    landed = replace(slow, landed=12.0, state=State.RUNNING)
    assert not scene.sent(12.0, landed, p=10.5)
    assert not scene.sent(13.0, p=10.5, q=12.5)
    assert scene.sent(14.0, q=12.5)


def test_what_was_lost_is_not_known_after_a_restart_and_waited_for_from_its_first_look() -> None:
    """Guards R5: the times of both begin anew, with the pods looked at first."""
    scene = Scene()
    assert not scene.sent(500.0, p=500.0)
    assert not scene.sent(501.0, p=500.0)
    assert scene.sent(502.0, q=501.0)


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


def test_nodes_are_looked_at_again_when_something_is_heard_of_them() -> None:
    """While it waits for one gang, a node with the label of its pin comes, on which another may land."""
    state, found = ClusterState(), list[Entry]()
    state.node_changed(Node(name="n1", labels={"rack": "r"}, allocatable={"pods": 10}))
    before, other = live("a", cycle=1, wave=0, hosts=("n1",)), live("o", cycle=1, wave=0, hosts=("n2",))
    coming = live("b", cycle=2, wave=1)
    assert coming.placement is not None
    (row,) = coming.placement.assignments
    by_label = replace(row, hosts=None, selector={"rack": "r"})
    placement = replace(coming.placement, assignments=(by_label,))
    for one in (before, other, replace(coming, placement=placement)):
        state.put(one)
    waves = Waves(send=found.append)
    waves.add(
        Entry(
            seq=1, kind=EntryKind.ADMIT, uid="b", admission_id=placement.id, epoch=1,
            cycle=2, wave=1, patch={}, at=0.0,
        )
    )  # fmt: skip
    waves.release(state, now=10.0)
    state.node_changed(Node(name="n2", labels={"rack": "r"}, allocatable={"pods": 10}))
    state.put(replace(before, landed=11.0, state=State.PLACING))
    waves.release(state, now=12.0)
    assert found == []
    state.put(replace(other, landed=13.0, state=State.PLACING))
    waves.release(state, now=14.0)
    assert [entry.uid for entry in found] == ["b"]

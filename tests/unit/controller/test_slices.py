"""A round's part of a flood: slices fair by namespace, lines that end at `maxPending`, quarantined
workloads.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from queuer.controller.memory.lines import Lines, Turns
from queuer.controller.memory.live import Live
from queuer.controller.memory.quarantine import BACK_OFF, Quarantine
from queuer.controller.memory.state import ClusterState
from queuer.domain.workload import State
from tests.unit.make import gang, job_view, placed

OWN = gang(name="job")
PLACED = placed()
JOB = job_view(name="job")


def test_a_flood_of_one_namespace_holds_up_no_other() -> None:
    unread = Turns()
    for n in range(1000):
        unread.add(f"a{n}", "a")
    unread.take(10)
    unread.add("b0", "b")
    unread.add("c0", "c")
    unread.add("c0", "c")
    assert unread.take(5) == ["a10", "b0", "c0", "a11", "a12"]
    assert "b0" not in unread
    assert "a13" in unread
    assert len(unread) == 987


def test_a_round_looks_at_all_that_holds_something_and_at_a_slice_of_the_rest() -> None:
    state = ClusterState()
    for n in range(9):
        state.put(Live(workload=replace(OWN, uid=f"w{n}"), state=State.QUEUED))
    running = Live(workload=replace(OWN, uid="z"), state=State.RUNNING, placement=PLACED)
    state.put(running)
    first, second = state.take_touched(3), state.take_touched(99)
    assert (len(first), first[-1], len(second)) == (4, "z", 6)
    assert sorted([*first, *second]) == sorted(state.live)


ACTS = st.lists(
    st.tuples(st.booleans(), st.integers(0, 7), st.sampled_from("ab"), st.booleans(), st.integers(0, 3)),
    max_size=40,
)


@given(acts=ACTS, most=st.integers(1, 4))
def test_of_each_line_the_first_by_submit_time_are_within(
    acts: list[tuple[bool, int, str, bool, int]], most: int
) -> None:
    """Jobs that can never start come last. Jobs that come, move to another queue or leave are named, with those whose
    standing changes.
    """
    lines, known = Lines(lambda _: most, lambda live: live.workload.hold), dict[str, Live]()
    for comes, who, queue, stuck, submitted in acts:
        uid, before = f"w{who}", set(lines.over_max_pending)
        if comes:
            own = replace(OWN, uid=uid, queue=queue, submitted=float(submitted), hold=stuck)
            known[uid] = Live(workload=own, state=State.QUEUED)
            others = lines.put(known[uid])
        else:
            known.pop(uid, None)
            others = lines.discard(uid)
        beyond = {
            live.uid
            for q in "ab"
            for live in sorted(
                (w for w in known.values() if w.workload.queue == q),
                key=lambda w: (w.workload.hold, w.workload.submitted, w.uid),
            )[most:]
        }
        assert lines.over_max_pending == beyond
        assert set(others) >= (before ^ beyond) - {uid}
        lines.rebuild(known.values())
        assert lines.over_max_pending == beyond


def test_a_quarantined_workload_is_tried_again_ever_more_rarely() -> None:
    quarantine, now, waits = Quarantine(), 0.0, []
    for _ in range(9):
        quarantine.put("u", KeyError("x"), now=now)
        assert "u" in quarantine
        waits.append(quarantine.next - now)
        assert quarantine.due(quarantine.next - 0.1) == []
        now = quarantine.next
        assert quarantine.due(now) == ["u"]
        assert "u" not in quarantine
    assert (waits[:3], waits[-1]) == ([BACK_OFF.first * n for n in (1, 2, 4)], BACK_OFF.longest)
    assert quarantine.due(now + BACK_OFF.longest + 1.0) == []
    quarantine.put("u", KeyError("x"), now=now)
    assert quarantine.next == now + BACK_OFF.first, "it was well for long enough"


def test_the_reason_of_a_quarantined_workload_names_the_error() -> None:
    state = ClusterState()
    state.put(Live(workload=OWN, state=State.QUEUED))
    state.job_changed(JOB)
    state.quarantine_one("u", ValueError("no such thing"), now=5.0)
    [(uid, why)] = state.take_untold(9).items()
    assert (uid, why) == ("u", state.live["u"].explanation)
    assert "ValueError: no such thing" in why.primary.text
    state.take_unread(9)
    assert state.take_touched(9) == (), "it is left alone"
    state.try_again(now=5.0 + BACK_OFF.first)
    assert (state.take_unread(9), state.take_touched(9)) == (["u"], ("u",))


def test_a_reason_is_not_written_when_something_newer_is_known() -> None:
    state = ClusterState()
    state.quarantine_one("u", ValueError("one"), now=0.0)
    state.put(Live(workload=OWN, state=State.QUEUED))
    assert state.take_untold(9) == {}

"""Start ranges: known ends give known starts, what is not known gives none, and the decision's own rules hold."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from queuer.domain.queue import Order, Policy
from queuer.domain.workload import GRACE, Workload
from queuer.solver.decide import decide
from queuer.solver.forecast import GREEDY, Effort, StartRange, forecast
from queuer.solver.problem import Admitted, Plan, Snapshot, Unbound
from queuer.solver.stored import StoredCycle, encode
from tests.solver.cycles import live
from tests.solver.make import gang, node, pod_set, queue, row, running, snapshot
from tests.solver.worlds import NOW, world

PLAIN = Effort(spread=0.0, rolls=3)
"""Everything lasts as long as expected."""


def holder(uid: str, ends: float | None, **more: Any) -> Admitted:
    """Has all 8 GPUs of n1 until then."""
    job = gang(uid, pod_set(1, 8), estimate=ends, **more)
    return running(job, {"n1": 1}, since=0.0, expected_end=ends)


def asks(uid: str, gpus: int = 8, *, submitted: float = 0.0, **more: Any) -> Workload:
    return gang(uid, pod_set(1, gpus), submitted=submitted, **more)


def at(time: float) -> StartRange:
    return StartRange(earliest=time, likely=time, latest=time)


def one_node(*pending: Workload, admitted: Admitted | None, **more: Any) -> Snapshot:
    return snapshot(
        [node("n1")], [queue("root.a")], pending=pending, admitted=[admitted] if admitted else [], **more
    )


def test_a_gang_that_fits_starts_now() -> None:
    found = forecast(one_node(asks("g"), admitted=None), now=5.0, seed=0)
    assert found == {"g": StartRange(earliest=5.0, likely=5.0, latest=5.0)}


def test_one_behind_another_starts_when_that_ends() -> None:
    """The holder ends at 1,000, the first gang 600 later."""
    made = one_node(asks("g1", estimate=600.0), asks("g2", submitted=1.0), admitted=holder("h", 1_000.0))
    assert forecast(made, now=0.0, seed=0, effort=PLAIN) == {"g1": at(1_000.0), "g2": at(1_600.0)}


def test_run_times_are_drawn_around_what_is_expected() -> None:
    """The median near the expected end, the first and the last apart; a later look at the same job moves with it."""
    made = one_node(asks("g"), admitted=holder("h", 10_000.0))
    many = Effort(rolls=101, spread=0.7)
    found = forecast(made, now=0.0, seed=0, effort=many)["g"]
    assert found.likely == pytest.approx(10_000.0, rel=0.2)
    assert found.latest is not None
    assert found.earliest < 4_000.0 < 25_000.0 < found.latest
    overdue = forecast(made, now=30_000.0, seed=0, effort=many)["g"]
    assert overdue.earliest > 30_000.0
    assert overdue.latest is not None
    assert overdue.latest < 300_000.0


def test_any_of_many_ends_comes_early_and_all_of_them_late() -> None:
    nodes = [node(f"n{i}") for i in range(8)]
    jobs = [
        running(asks(f"h{i}", queue="root.b"), {f"n{i}": 1}, since=0.0, expected_end=10_000.0)
        for i in range(8)
    ]
    for count, side in ((1, -1), (8, 1)):
        made = snapshot(
            nodes,
            [queue("root.a"), queue("root.b")],
            admitted=jobs,
            pending=[gang("g", pod_set(count, 8))],
        )
        likely = forecast(made, now=0.0, seed=0, effort=Effort(rolls=15, spread=0.7))["g"].likely
        assert likely is not None
        assert (likely - 10_000.0) * side > 3_000.0


def test_a_declared_bound_is_not_exceeded() -> None:
    made = one_node(asks("g"), admitted=holder("h", 1_000.0, max_runtime=1_200.0))
    assert forecast(made, now=0.0, seed=0, effort=Effort(rolls=31))["g"].latest == 1_200.0


def test_what_should_have_ended_is_given_more_time() -> None:
    made = one_node(asks("g"), admitted=holder("h", 100.0))
    found = forecast(made, now=1_000.0, seed=0, effort=PLAIN)["g"]
    assert found.latest is not None
    assert 1_000.0 < found.earliest <= found.latest <= 1_500.0


@pytest.mark.parametrize(
    ("gone_by", "starts"), [(1_200.0, 1_200.0), (None, 1_000.0 + GRACE), (900.0, 1_000.0 + GRACE)]
)
def test_what_leaves_is_gone_when_that_is_known_else_after_the_usual_grace(
    gone_by: float | None, starts: float
) -> None:
    left = replace(holder("h", 5_000.0), releasing=True, gone_by=gone_by)
    assert forecast(one_node(asks("g"), admitted=left), now=1_000.0, seed=0) == {"g": at(starts)}


def test_no_known_end_no_range() -> None:
    assert forecast(one_node(asks("g"), admitted=holder("h", None)), now=0.0, seed=0) == {}


def test_beyond_the_horizon_only_what_is_within() -> None:
    made = one_node(asks("g"), admitted=holder("h", 1_000.0))
    found = forecast(made, now=0.0, seed=0, effort=Effort(horizon=1_100.0, rolls=31))["g"]
    assert found.likely is None or found.likely <= 1_100.0
    assert found.latest is None
    assert forecast(made, now=0.0, seed=0, effort=replace(PLAIN, horizon=900.0)) == {}


def test_decisions_are_bounded() -> None:
    made = one_node(*(asks(f"g{i}", submitted=float(i), estimate=1_000.0) for i in range(9)), admitted=None)
    assert set(forecast(made, now=0.0, seed=0, effort=replace(PLAIN, decisions=3))) == {"g0", "g1", "g2"}


def test_the_first_of_each_queue_are_looked_at() -> None:
    made = snapshot(
        [node("n1", gpu=64)],
        [queue("root.a"), queue("root.b")],
        pending=[
            asks(f"{q}{i}", 1, queue=f"root.{q}", submitted=float(i), priority=int(i == 3))
            for q in "ab"
            for i in range(4)
        ],
    )
    assert set(forecast(made, now=0.0, seed=0, effort=replace(PLAIN, per_queue=2))) == {
        "a3",
        "a0",
        "b3",
        "b0",
    }
    assert len(forecast(made, now=0.0, seed=0, effort=replace(PLAIN, gangs=3))) == 3


def test_evicted_work_comes_back_and_its_place_is_free_after_the_grace() -> None:
    made = one_node(asks("g", priority=5, estimate=600.0), admitted=holder("h", None))
    found = forecast(made, now=0.0, seed=0)
    assert found == {"g": StartRange(earliest=GRACE, likely=GRACE, latest=GRACE)}


def test_a_strict_queue_holds_its_line() -> None:
    made = snapshot(
        [node("n1")],
        [queue("root.a", policy=Policy(order=Order.STRICT))],
        admitted=[running(asks("h", 4), {"n1": 1}, since=0.0, expected_end=1_000.0)],
        pending=[asks("big", estimate=100.0), asks("small", 4, submitted=1.0)],
    )
    found = forecast(made, now=0.0, seed=0, effort=PLAIN)
    assert found["big"].likely == 1_000.0
    assert found["small"].likely == 1_100.0


def test_reclaim_is_foretold() -> None:
    made = snapshot(
        [node("n1")],
        [queue("root.a"), queue("root.b", row(guaranteed=8))],
        admitted=[holder("h", None)],
        pending=[asks("g", queue="root.b")],
    )
    assert forecast(made, now=0.0, seed=0)["g"].likely == GRACE


def test_pods_that_still_land_do_not_block_their_whole_pin() -> None:
    nodes = [node("n1"), node("n2")]
    landing = Admitted(
        workload=asks("h"), counts={"main": 1}, flavors={"main": "default"}, since=0.0,
        unbound=(Unbound(pod_set="main", count=1, hosts=("n1", "n2")),),
    )  # fmt: skip
    made = snapshot(nodes, [queue("root.a")], admitted=[landing], pending=[asks("g")])
    assert forecast(made, now=0.0, seed=0)["g"].likely == 0.0


def test_pods_that_keep_off_each_other_land_one_a_host() -> None:
    """Else one node was thought to be left for g, which is forecast to start when both pods have ended."""
    nodes = [node("n1"), node("n2")]
    apart = pod_set(2, 4, exclusive_host=True)
    landing = Admitted(
        workload=gang("h", apart, estimate=600.0), counts={"main": 2}, flavors={"main": "default"}, since=0.0,
        unbound=(Unbound(pod_set="main", count=2, hosts=("n1", "n2")),), expected_end=600.0,
    )  # fmt: skip
    made = snapshot(nodes, [queue("root.a")], admitted=[landing], pending=[asks("g")])
    assert forecast(made, now=0.0, seed=0, effort=PLAIN)["g"].likely == 600.0


@pytest.mark.parametrize("seed", range(12))
def test_any_world_can_be_foretold_twice_alike(seed: int) -> None:
    """Every plan in a roll passed the verifier, or there would be a fault; nothing is over-full."""
    made = world(seed)
    effort = Effort(decisions=15, rolls=3)
    found = forecast(made, now=NOW, seed=seed, effort=effort)
    assert found == forecast(made, now=NOW, seed=seed, effort=effort)
    for uid, one in found.items():
        assert uid in {p.workload.uid for p in made.pending}
        assert NOW <= one.earliest <= (one.likely or one.earliest) <= (one.latest or float("inf"))


def test_who_was_evicted_for_whom_is_known_in_a_roll(monkeypatch: pytest.MonkeyPatch) -> None:
    """`back` runs again, evicted once for somebody; `low` is evicted for it, and for nobody else."""
    asked: list[Snapshot] = []

    def watched(snap: Snapshot, **more: Any) -> Plan:
        asked.append(snap)
        return decide(snap, **more)

    monkeypatch.setattr("queuer.solver.forecast.decide", watched)
    made = snapshot(
        [node("n1"), node("n2")],
        [queue("root.a")],
        admitted=[running(asks("low"), {"n1": 1}, since=0.0)],
        pending=[asks("high", priority=9, estimate=200.0), asks("back", priority=5, estimate=500.0)],
    )
    back = replace(made.pending[1], displaced_by=frozenset({"x"}))
    forecast(replace(made, pending=(made.pending[0], back)), now=10.0, seed=0, effort=replace(PLAIN, rolls=1))
    links = dict[str, frozenset[str]]()
    for snap in asked:
        links |= {p.workload.uid: p.displaced_by for p in snap.pending}
        links |= {a.workload.uid: a.displaced_by for a in snap.admitted}
    assert links == {"high": frozenset(), "back": {"x"}, "low": {"back"}}


def test_lives_with_bonds_and_reservations_can_be_foretold() -> None:
    for made, _, at in live(3, cycles=8, budget=GREEDY):
        forecast(made, now=at, seed=0, effort=Effort(decisions=10, rolls=2))


def test_the_program_answers_like_the_function() -> None:
    made = one_node(asks("g"), admitted=holder("h", 1_000.0))
    asked = encode(StoredCycle(snapshot=made, now=0.0, seed=0, budget=GREEDY, plan=None))
    done = subprocess.run(
        [sys.executable, "-m", "queuer.solver.forecast"], input=asked, capture_output=True, check=True
    )
    assert msgspec.json.decode(done.stdout, type=dict[str, StartRange]) == forecast(made, now=0.0, seed=0)


@pytest.mark.parametrize("seed", range(4))
def test_ranges_of_a_course_of_cycles_are_never_absurd(seed: int) -> None:
    """Nothing starts before now or ends before it begins; who starts in this cycle is told now, nobody else for sure.
    With bonds, reservations that stand, late pods and overdue work about.
    """
    for snap, plan, now in live(seed, cycles=6, budget=GREEDY):
        starting = {admission.uid for admission in plan.admissions}
        found = forecast(snap, now=now, seed=1, effort=Effort(rolls=2, decisions=4))
        assert starting <= found.keys()
        for uid, told in found.items():
            times = [t for t in (told.earliest, told.likely, told.latest) if t is not None]
            assert now <= times[0]
            assert times == sorted(times), (uid, told)
            assert told.likely is not None or told.latest is None, (uid, told)
            assert (told == at(now)) == (uid in starting), (uid, told)

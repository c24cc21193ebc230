"""Gangs that could not land beside others where they lie get other places; nobody loses its start for that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from random import Random
from typing import Any

import pytest

from queuer.domain.queue import Policy, Preempt, QueueTree
from queuer.solver import apart, attempt, attempts, way_back
from queuer.solver.apart import Gain, place_apart
from queuer.solver.arrays import Arrays
from queuer.solver.attempt import Attempt, Given
from queuer.solver.board import Board
from queuer.solver.decide import decide
from queuer.solver.displace import Displace
from queuer.solver.frame import Mask
from queuer.solver.greedy import Greedy
from queuer.solver.groups import Groups
from queuer.solver.holding import lift, restore
from queuer.solver.outcome import Chosen
from queuer.solver.pins import Pinner
from queuer.solver.problem import Budget, Pending, Plan, Snapshot
from queuer.solver.score import score
from queuer.solver.verify import verify
from queuer.solver.victims import Cost
from queuer.solver.yielding import Yielding
from tests.solver import worlds
from tests.solver.cases_crowded import crowded, drawn
from tests.solver.make import gang, node, pod_set, queue, running, snapshot

NOW = 100.0
EXACT, GREEDY = Budget(), Budget(deterministic=0.0)


def planned(snap: Snapshot, budget: Budget) -> Plan:
    plan = decide(snap, now=NOW, seed=0, budget=budget)
    assert verify(snap, plan, now=NOW) == ()
    return plan


def played(snap: Snapshot, *, now: float = NOW) -> Greedy:
    """Greedy after the turns of all, in the order of their uids."""
    greedy = Greedy(Board(Arrays.of(snap), now=now))
    for _, one in sorted(greedy.board.arrays.offers.gangs.items()):
        greedy.turn(one)
    return greedy


def fewer(greedy: Greedy, stuck: list[str]) -> Sequence[Chosen]:
    """One less could not land each time, down to one."""
    del stuck[1:2]
    return [greedy.chosen[uid] for uid in stuck]


def late(greedy: Greedy) -> Sequence[Chosen]:
    return Pinner(greedy.board, {}).late(greedy.started())


# Worlds in which somebody could not land; in those of the second list all can once gangs have moved.
STUCK = [(crowded, s) for s in (26, 229, 266, 829)] + [(drawn, s) for s in (159, 949)]
MENDED = [(crowded, s) for s in (389, 1274, 2052)] + [(drawn, s) for s in (666, 1327, 2422)]


def test_all_that_found_a_place_start_as_soon_as_they_can_land_apart() -> None:
    mended = 0
    for make, seed in STUCK + MENDED:
        greedy = played(make(seed))
        started, waits = {c.gang.uid for c in greedy.started()}, late(greedy)
        place_apart(greedy, waits, partial(late, greedy))
        assert {c.gang.uid for c in greedy.started()} == started
        assert waits
        mended += not late(greedy)
    assert mended >= len(MENDED)


def test_a_move_that_helps_nobody_leaves_everything_as_it_was() -> None:
    """Victims, quota, the nodes that gangs keep off, and the order of those settled included."""
    tried = 0
    for seed in range(40):
        snap = worlds.world(seed, nodes=12, pending=24, running=16)
        greedy = played(snap)
        board, before = greedy.board, dict(greedy.chosen)
        sheets = [(s.free.copy(), s.usage.copy()) for s in board.sheets()]
        leaving, held = set(board.leaving), dict(board.held)
        stuck = greedy.started()[:2]
        tried += bool(stuck)
        place_apart(greedy, stuck, partial(list, stuck))
        assert list(greedy.chosen.items()) == list(before.items())
        assert not greedy.kept_apart
        assert (board.leaving, board.held.keys()) == (leaving, held.keys())
        for sheet, (free, usage) in zip(board.sheets(), sheets, strict=True):
            assert (sheet.free == free).all()
            for path, account in product(snap.tree.queues, board.book.live):
                assert sheet.usage.used(path, account) == usage.used(path, account)
    assert tried > 20


@pytest.mark.parametrize("movable", [True, False])
def test_other_victims_go_only_where_no_move_without_them_helps(movable: bool) -> None:
    """`s` lands once `r` or `x` is elsewhere: `r` could go to `d`, `x` only where it evicts `old`, not `young`."""
    jobs = [gang(uid, pod_set(1, 2), priority=1) for uid in "rs"]
    jobs.append(gang("x", pod_set(1, 4), priority=1))
    stays = frozenset({"d"})
    snap = snapshot(
        [node(name) for name in "abd"],
        [queue("root"), queue("root.a", policy=Policy(preempt=Preempt.LOWER_PRIORITY))],
        admitted=[
            running(gang("young", pod_set(1, 4)), {"a": 1}, since=-10),
            running(gang("old", pod_set(1, 8)), {"b": 1}, since=-9000),
        ],
        pending=[
            Pending(workload=job, avoid=frozenset() if job.uid == "r" and movable else stays) for job in jobs
        ],
    )
    greedy = played(snap)

    def waits() -> Sequence[Chosen]:
        together = all(greedy.chosen[uid].spreads["main"].keys() == {0} for uid in "rx")
        return [greedy.chosen["s"]] if together else []

    assert [e.uid for e in greedy.chosen["x"].evictions] == ["young"]
    assert len(waits()) == 1
    place_apart(greedy, waits(), waits)
    assert waits() == []
    assert [e.uid for e in greedy.chosen["x"].evictions] == (["young"] if movable else ["old"])


def test_all_that_is_moved_out_of_the_way_in_one_cycle_shares_one_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searching: list[Displace] = []
    targets = Displace._targets

    def noted(one: Displace, *asked: Any) -> Iterator[Mask]:
        if one not in searching:
            searching.append(one)
        return targets(one, *asked)

    monkeypatch.setattr(Displace, "_targets", noted)
    moved = 0
    for seed in range(60):
        greedy = played(crowded(seed))
        stuck = [c.gang.uid for c in greedy.started()[-3:]]
        searching.clear()
        place_apart(greedy, [greedy.chosen[u] for u in stuck], partial(fewer, greedy, stuck))
        assert len(searching) <= 1
        moved += len(searching)
    assert moved > 10


@pytest.mark.parametrize("budget", [GREEDY, EXACT])
def test_no_plan_starts_less_than_one_whose_gangs_stay_where_they_lie(
    budget: Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds_ = [make(seed) for make, seed in STUCK + MENDED]
    moved = [score(snap, planned(snap, budget), now=NOW) for snap in worlds_]
    for module in (attempt, way_back):
        monkeypatch.setattr(module, "place_apart", lambda *_: None)
    stayed = [score(snap, planned(snap, budget), now=NOW) for snap in worlds_]
    assert all(a.flags >= b.flags for a, b in zip(moved, stayed, strict=True))
    if budget is GREEDY:  # the exact solver finds places in which all land, wherever they lay before
        assert sum(a.flags > b.flags for a, b in zip(moved, stayed, strict=True)) >= 2


@pytest.mark.parametrize(
    ("seed", "size", "settled"),
    [(700_264_042, 40, {"p26", "p17", "p12"}), (18_845_111, 32, {"p15"})],
    ids=["nobody after them had to", "who did not land itself no longer keeps its place"],
)
def test_who_keeps_off_others_is_not_passed_by_those_that_come_later(
    seed: int, size: int, settled: set[str]
) -> None:
    """They could have had their places at their turns, with all before them landing."""
    snap = worlds.world(seed, nodes=size, pending=size, running=size)
    plain = [
        replace(q, policy=replace(q.policy, reservations=0, max_wait=None)) for q in snap.tree.queues.values()
    ]
    landed = snap.admitted if size == 40 else [one for one in snap.admitted if not one.unbound]
    snap = replace(snap, tree=QueueTree.of(plain), reservations=(), admitted=tuple(landed))
    plan = decide(snap, now=worlds.NOW, seed=0, budget=EXACT)
    assert settled <= {a.uid for a in plan.admissions} | {b.uid for b in plan.bonds}


def test_who_is_taken_back_in_vain_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """What others were to keep off while a place was looked for beside them, they do not keep off afterwards."""
    jobs = [gang(uid, pod_set(1, 2), submitted=float(i)) for i, uid in enumerate("gh")]
    snap = snapshot([node("n0", gpu=4), node("n1", gpu=1)], [queue("root.a")], pending=jobs)
    given = Given(arrays=Arrays.of(snap), now=NOW, seed=0, budget=GREEDY)
    made = Attempt(given, crowded={"h": frozenset({"n0"})})
    greedy, tried = made._greedy, list[str]()

    def moving(_: Greedy, waits: Sequence[Chosen], __: object) -> None:
        for one in waits:
            tried.append(one.gang.uid)
            greedy.keep_off("g", frozenset({"n0"}))

    monkeypatch.setattr(way_back, "place_apart", moving)
    monkeypatch.setattr(made, "_late", lambda: [c for c in greedy.started() if c.gang.uid == "h"])
    made.run()
    assert (tried, list(greedy.chosen)) == (["h"], ["g"])
    assert (greedy.keeps_off("g"), greedy.keeps_off("h")) == (frozenset(), frozenset({"n0"}))


def test_who_is_asked_back_in_vain_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps off the same hosts as before, and has had no turn and no start."""
    jobs = [gang(uid, pod_set(1, 2), submitted=float(i)) for i, uid in enumerate("gh")]
    snap = snapshot([node("n0", gpu=4), node("n1", gpu=1)], [queue("root.a")], pending=jobs)
    given = Given(arrays=Arrays.of(snap), now=NOW, seed=0, budget=GREEDY)
    made = Attempt(given, crowded={"h": frozenset({"n0"})}, ask_back=True)
    greedy, tried = made._greedy, list[str]()

    def late() -> list[Chosen]:
        found = [c for c in greedy.started() if c.gang.uid == "h"]
        tried.extend(c.gang.uid for c in found)
        return found

    monkeypatch.setattr(made, "_late", late)
    made.run()
    assert set(tried) == {"h"}
    assert set(greedy.chosen) == set(greedy.turns) == set(greedy.starts) == {"g"}
    assert greedy.keeps_off("h") == {"n0"}
    assert made.apart


def test_a_large_tournament_is_played_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has no other place waits for the next cycle."""
    monkeypatch.setattr(attempts, "SMALL_PLAN", 0)
    played_, run = [0], Attempt.run

    def counted(one: Attempt) -> tuple[Plan, Yielding | None]:
        played_[0] += 1
        return run(one)

    monkeypatch.setattr(Attempt, "run", counted)
    for seed in range(100):
        planned(drawn(seed), GREEDY)
    assert played_ == [100]


def test_waves_that_follow_what_moves_are_those_of_a_fresh_look() -> None:
    """Gangs move, with other victims or none, and move back; bound ones and pods that have still to land included."""
    moved, bound, doubtful = 0, 0, 0
    for seed in range(60):
        snap = drawn(seed) if seed % 2 else worlds.world(seed, nodes=10, pending=24, running=24)
        greedy, rng = played(snap, now=worlds.NOW), Random(seed)
        groups = Groups(greedy.board)
        for _ in range(8 if greedy.chosen else 0):
            before = dict(greedy.chosen)
            one = rng.choice(list(before.values()))
            lift(greedy, [one])
            off = frozenset(greedy.board.frame.names[n] for s in one.spreads.values() for n in s)
            greedy.keep_off(one.gang.uid, off)
            placed = greedy.place_anew(one, push=rng.random() < 0.5)
            if not placed or rng.random() < 0.3:
                restore(greedy, before)
            chosen = list(greedy.chosen.values())
            held = {c.gang.uid: (c.gang.pending.workload, groups.of(c)[0]) for c in chosen if c.bound}
            followed, fresh = Pinner(greedy.board, held, groups=groups), Pinner(greedy.board, held)
            late = followed.late(chosen)
            assert fresh.late(chosen) == late
            assert fresh.admissions() == followed.admissions()
            assert fresh.work == followed.work
            moved, bound, doubtful = moved + placed, bound + len(held), doubtful + len(groups.doubtful)
    assert min(moved, bound, doubtful) > 10


def test_waves_are_looked_for_once_while_nothing_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Pinner] = []

    class Noted(Pinner):
        def __init__(self, *of: Any, **more: Any) -> None:
            super().__init__(*of, **more)
            made.append(self)

    monkeypatch.setattr(attempt, "Pinner", Noted)
    snap = snapshot([node("a")], [queue("root.a")], pending=[gang("g", pod_set(2, 2))])
    assert [a.uid for a in planned(snap, GREEDY).admissions] == ["g"]
    assert len(made) == 1


def test_a_move_that_has_become_dearer_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches are bounded, so a move that is made once more may cost more than it did; then nothing has moved."""
    greedy, asked = Greedy(Board(Arrays.of(crowded(0)), now=NOW)), list[Sequence[str]]()

    def moves(_: Greedy, waits: Sequence[str]) -> Iterator[str]:
        asked.append(waits)
        yield "move"

    def gain(_: Greedy, move: str, late: object, before: object, *, dearest: Cost) -> Gain:
        dearer = (dearest[0], dearest[1] + 1, *dearest[2:])
        return Gain(move, ["one"], dearer, stands=False)  # type: ignore[arg-type, list-item]

    monkeypatch.setattr(apart, "_moves", moves)
    monkeypatch.setattr(apart, "_gain", gain)
    place_apart(greedy, ["one", "two"], list)  # type: ignore[list-item]
    assert asked == [["one", "two"]]

"""What the exact solver is asked about, and whether its answers about places alone agree with brute force."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from queuer.domain.nodes import Flavor
from queuer.domain.queue import Order, Policy
from queuer.domain.reasons import Deferral, Token
from queuer.solver import contest, rearrange
from queuer.solver.arrays import Arrays
from queuer.solver.attempt import Attempt, Given
from queuer.solver.board import Board
from queuer.solver.contest import Contest
from queuer.solver.contested import Arrangement, Layout, Places, Proof, Question, Unknown
from queuer.solver.cpsat import CpSat
from queuer.solver.decide import decide
from queuer.solver.greedy import Greedy
from queuer.solver.horizon import Horizon
from queuer.solver.outcome import Chosen
from queuer.solver.problem import Assignment, Budget, NodeState, Pending, SolveStatus
from queuer.solver.verify import verify
from tests.solver.cases import NOW
from tests.solver.cases_crowded import crowded
from tests.solver.make import GPU, gang, node, pod_set, queue, row, snapshot
from tests.solver.oracle import STARTED, Oracle


class Listening:
    """A solver that knows nothing and keeps the questions."""

    def __init__(self) -> None:
        self.asked: list[Question] = []

    def settle(self, question: Question) -> Arrangement | Proof | Unknown:
        self.asked.append(question)
        return Unknown()

    def lay(self, question: Layout) -> Places | Proof | Unknown:
        return Unknown()

    def improve(self, **settled: Any) -> Arrangement | Unknown:
        return Unknown()


class Closing(Listening):
    """A solver that proves something where nodes are closed, and not where they are open."""

    def settle(self, question: Question) -> Arrangement | Proof | Unknown:
        self.asked.append(question)
        if question.blocked:
            return Proof()
        first = len(self.asked) == 2
        return Arrangement(assignments={}) if first else Unknown(cause=Deferral.SIZE)


def contest_of(
    greedy: Greedy, solver: Listening, *, late: Callable[[], Sequence[Chosen]] = list[Chosen]
) -> Contest:
    """Of gangs whose pod sets are never in each other's way."""
    return Contest(
        greedy,
        solver,
        seed=0,
        budget=Budget(),
        bonds={},
        prices=deque(),
        late=late,
        crosses=lambda _: False,
    )


@pytest.mark.parametrize(
    ("bound", "most", "cause"),
    [
        ("MOST_SETTLED", 0, Deferral.SIZE),
        ("WORTH", Budget().deterministic, Deferral.SIZE),
        ("QUESTIONS", 0, Deferral.TIME),
        ("QUESTIONS", 1, None),
    ],
)
def test_why_nothing_is_asked(
    bound: str, most: float, cause: Deferral | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More is settled than is asked about, the model would take all the time, or enough has been asked."""
    monkeypatch.setattr(contest, bound, most)
    arrays = Arrays.of(TWO)
    greedy, (first, _) = Greedy(Board(arrays, now=NOW)), arrays.offers.gangs.values()
    assert isinstance(greedy.turn(first), Chosen)
    asking = contest_of(greedy, Listening())
    assert asking.unasked() is cause


def test_nothing_is_proven_with_nodes_closed_only_so_that_others_land() -> None:
    arrays, solver = Arrays.of(TWO), Closing()
    greedy, (first, second) = Greedy(Board(arrays, now=NOW)), arrays.offers.gangs.values()
    assert isinstance(greedy.turn(first), Chosen)
    greedy.keep_off(second.uid, frozenset({"n0"}))
    asking = contest_of(greedy, solver)
    answers = [asking.settle(second, second.shape.variants, evict=False) for _ in range(2)]
    assert answers == [Deferral.LANDING, Deferral.SIZE]
    assert [question.blocked for question in solver.asked] == [{second.uid: frozenset({"n0"})}, {}] * 2


class Forgetful(Listening):
    """A solver whose arrangement leaves everybody out."""

    def settle(self, question: Question) -> Arrangement | Proof | Unknown:
        return Arrangement(assignments={})


def test_what_cannot_be_carried_out_is_not_put_down_to_a_reservation_elsewhere() -> None:
    arrays = Arrays.of(TWO)
    board = Board(arrays, now=NOW)
    greedy, (first, second) = Greedy(board), arrays.offers.gangs.values()
    assert isinstance(greedy.turn(first), Chosen)
    board.horizons["far"] = Horizon.of(
        "far", start=NOW + 1, rank=(False, 0), rows=[], free=board.now.free.copy()
    )
    asking = contest_of(greedy, Forgetful())
    assert asking.settle(second, second.shape.variants, evict=False) is Deferral.UNSOUND


def test_a_reservation_limits_whom_it_binds_at_the_flavor_taken() -> None:
    """root.a has a guarantee in y alone: there its work comes before the reservation, in x it would not. What is
    settled may take what it takes.
    """
    flavors = (Flavor(name="x", node_labels={"f": "x"}), Flavor(name="y", node_labels={"f": "y"}))
    nodes = [node("n0", gpu=4, labels={"f": "x"}), node("n1", gpu=16, labels={"f": "y"})]
    rows = [row(flavor="x", guaranteed=0), row(flavor="y", guaranteed=12)]
    snap = snapshot(
        nodes,
        [queue("root"), queue("root.a", *rows)],
        flavors=flavors,
        pending=[gang("first", pod_set(1, 8)), gang("next", pod_set(1, 4), submitted=1.0)],
    )
    arrays, solver = Arrays.of(snap), Listening()
    board = Board(arrays, now=NOW)
    greedy, (first, second) = Greedy(board), arrays.offers.gangs.values()
    board.horizons["r"] = Horizon.of(
        "r",
        start=NOW + 10,
        rank=(False, 9),
        rows=[(n, board.now.free[n] * 0) for n in (0, 1)],
        free=board.now.free,
    )
    taken = greedy.turn(first)
    assert isinstance(taken, Chosen)
    assert taken.variant.flavors == {"main": "y"}
    assert board.binds(
        board.horizons["r"], first.pending.workload, rank=greedy.rank(first, first.shape.charges[0])
    )
    asking = contest_of(greedy, solver)
    asking.settle(second, second.shape.variants[:1], evict=False)
    asking.settle(second, second.shape.variants[1:], evict=False)
    (in_x,), (in_y,) = (question.reserved for question in solver.asked)
    gpu = board.frame.column[GPU]
    assert list(in_y.asked) == [None]
    for limits in (*in_x.asked, in_x.settled, in_y.settled):
        assert limits is not None
        assert {n: int(left[gpu]) for n, left in limits.items()} == {0: 4, 1: 16}


@pytest.mark.parametrize(("after", "taken"), [(1, True), (2, False)])
def test_places_in_which_more_gangs_could_not_land_are_not_taken(
    after: int, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Swapping(Listening):
        def lay(self, question: Layout) -> Places | Proof | Unknown:
            return Places(spreads={"first": {"main": {1: 1}}, "next": {"main": {0: 1}}})

    monkeypatch.setattr(contest, "SMALL_MODEL", 0)
    jobs = [gang("first", pod_set(1, 4)), gang("next", pod_set(1, 4), submitted=1.0)]
    snap = snapshot([node("n0", gpu=4), node("n1", gpu=4)], [queue("root.a")], pending=jobs)
    arrays = Arrays.of(snap)
    greedy, (first, second) = Greedy(Board(arrays, now=NOW)), arrays.offers.gangs.values()
    assert isinstance(greedy.turn(first), Chosen)
    before, free = dict(greedy.chosen), greedy.board.now.free.copy()
    late = iter([*before.values()] * number for number in (1, after))
    asking = contest_of(greedy, Swapping(), late=lambda: next(late))
    answer = asking.settle(second, second.shape.variants, evict=False)
    assert isinstance(answer, Chosen) if taken else answer is Deferral.LANDING
    assert (greedy.chosen == before) == (not taken)
    assert ((greedy.board.now.free == free).all()) == (not taken)


class Improving(Listening):
    """A solver that calls one layout of these two gangs proven: what `at` says by uid."""

    def __init__(self, **at: str) -> None:
        super().__init__()
        self._at = at

    def improve(self, **settled: Any) -> Arrangement | Unknown:
        rows = {u: (Assignment(pod_set="main", flavor="default", nodes={n: 1}),) for u, n in self._at.items()}
        return Arrangement(assignments=rows, proven=True)


TWO = snapshot(
    [node(n, gpu=5) for n in ("n0", "n1")],
    [queue("root.a")],
    pending=[gang("first", pod_set(1, 4)), gang("next", pod_set(1, 4), submitted=1.0)],
)


def status_of(solver: Listening, crowded: dict[str, frozenset[str]]) -> SolveStatus:
    """Of a plan in which nothing is contested and all start."""
    given = Given(arrays=Arrays.of(TWO), now=NOW, seed=0, budget=Budget(), solver=solver)
    decision = Attempt(given, crowded=crowded)
    plan, late = decision.run()
    assert ({a.uid for a in plan.admissions}, late, plan.stats.contested) == ({"first", "next"}, None, 0)
    return decision.improve(plan, most=1.0)[0].stats.status


def improved(crowded: dict[str, frozenset[str]], **at: str) -> SolveStatus:
    return status_of(Improving(**at), crowded)


def test_a_plan_is_called_optimal_where_its_own_arrangement_was_proven() -> None:
    assert improved({}, first="n0", next="n1") is SolveStatus.OPTIMAL


def test_a_plan_is_not_greedy_s_where_a_pass_came_to_no_end() -> None:
    assert status_of(Listening(), {}) is SolveStatus.FEASIBLE


def test_what_a_gang_was_kept_off_is_open_to_an_arrangement_in_which_all_land() -> None:
    assert improved({"first": frozenset({"n0"})}, first="n0", next="n1") is SolveStatus.OPTIMAL


def test_nothing_is_proven_where_the_answer_cannot_be_carried_out() -> None:
    """Both gangs on one node that holds one of them."""
    assert improved({}, first="n0", next="n0") is SolveStatus.FEASIBLE


def test_nothing_is_called_optimal_where_a_gang_waits_apart() -> None:
    snap = replace(
        TWO,
        nodes=(*TWO.nodes, NodeState(node=node("n2", gpu=5))),
        pending=(*TWO.pending, Pending(workload=gang("last", pod_set(1, 4), submitted=2.0))),
    )
    solver = Improving(first="n0", next="n1")
    given = Given(arrays=Arrays.of(snap), now=NOW, seed=0, budget=Budget(), solver=solver)
    decision = Attempt(given, crowded={"last": frozenset({"n0", "n1", "n2"})})
    plan, _ = decision.improve(decision.run()[0], most=1.0)
    assert (decision.apart, plan.stats.status) == (True, SolveStatus.FEASIBLE)


def test_what_selections_do_not_use_is_not_spent() -> None:
    """Layouts tried after this one have it."""
    tree = [queue("root", policy=Policy(order=Order.PACKED)), queue("root.a")]
    snap = snapshot([node("n0")], tree, pending=[gang("g", pod_set(1, 4))])
    given = Given(arrays=Arrays.of(snap), now=NOW, seed=0, budget=Budget(), solver=Listening())
    decision = Attempt(given, crowded={})
    plan, late = decision.run()
    assert ([a.uid for a in plan.admissions], late) == (["g"], None)
    assert decision.passes.spent < 0.1


class Counting(CpSat):
    """The solver that counts what it answers about places alone."""

    found = proved = 0

    def lay(self, question: Layout) -> Places | Proof | Unknown:
        answer = super().lay(question)
        self.found += isinstance(answer, Places)
        self.proved += isinstance(answer, Proof)
        return answer


def test_answers_about_places_alone_agree_with_brute_force(monkeypatch: pytest.MonkeyPatch) -> None:
    """So do the proofs they give for gangs that ask for more, what is settled followed as it changes. A gang that is
    put off or deferred, and who comes after it, is not compared.
    """
    monkeypatch.setattr(contest, "SMALL_MODEL", 0)
    monkeypatch.setattr(rearrange, "REARRANGE", -1)
    monkeypatch.setattr("queuer.solver.attempts.ATTEMPTS", 1)
    solver = Counting()
    for seed in range(160):
        snap = crowded(seed)
        plan = decide(snap, now=NOW, seed=0, budget=Budget(deterministic=10.0), solver=solver)
        assert verify(snap, plan, now=NOW) == ()
        assert plan.stats.proved_in_place == 0  # nobody runs, so nobody is a victim
        oracle = Oracle(snap, NOW)
        oracle.run()
        started = {a.uid for a in plan.admissions}
        assert list(plan.order) == oracle.order
        for uid in oracle.order:
            token = plan.explanations[uid].primary.token if uid in plan.explanations else None
            if token in (Token.SOLVER_DEFERRED, Token.PENDING_EVALUATION):
                break
            assert (uid in started) == (oracle.flags[uid] == STARTED), (seed, uid)
    assert solver.found > 20
    assert solver.proved > 10


@pytest.mark.parametrize("small", [contest.SMALL_MODEL, 0])
def test_who_could_not_land_beside_others_is_not_told_that_there_is_no_place(
    monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    """g7 has a place beside those before it, but none where all of them land, so some keep off others' nodes: that it
    has none beside these is no proof.
    """
    monkeypatch.setattr(contest, "SMALL_MODEL", small)
    snap = crowded(1358)
    plan = decide(snap, now=NOW, seed=0, budget=Budget(deterministic=10.0))
    oracle = Oracle(snap, NOW)
    oracle.run()
    assert oracle.flags["g7"] == STARTED
    assert plan.explanations["g7"].primary.token in (Token.SOLVER_DEFERRED, Token.PENDING_EVALUATION)


def test_a_gang_that_needs_one_host_may_make_room_on_a_node_outside_the_levels_that_others_need() -> None:
    """A host without a rack is a place for it, so its slots are not among those of the racks for certain."""
    snap = snapshot(
        [node("a", labels={"rack": "r"}), node("n")],
        [queue("root"), queue("root.a")],
        pending=[
            gang("first", pod_set(2, 4), required="host"),
            gang("next", pod_set(2, 4), required="rack", submitted=1.0),
        ],
    )
    plan = decide(snap, now=NOW, seed=0, budget=Budget())
    assert {one.uid: set(one.assignments[0].nodes) for one in plan.admissions} == {
        "first": {"n"},
        "next": {"a"},
    }

"""What a proof about one form of gang says about others."""

from __future__ import annotations

from collections import deque
from math import log2

from queuer.solver.arrays import Arrays
from queuer.solver.board import Board
from queuer.solver.contested import Layout, Proof, Unknown, Variant
from queuer.solver.cpsat import CpSat
from queuer.solver.cycle import Cycle
from queuer.solver.layouts import PARTS, VAIN, Form, Layouts
from queuer.solver.order import Gang, Shape
from queuer.solver.outcome import Chosen
from queuer.solver.prices import Prices
from queuer.solver.problem import Snapshot
from tests.solver.make import gang, node, pod_set, queue, snapshot

NOW = 0.0


def asked(snap: Snapshot, name: str, number: int = 0) -> Gang:
    """A gang of one variant, its full size, as the tournament offers it."""
    pending = next(p for p in snap.pending if p.workload.uid == name)
    counts = {p.name: p.count for p in pending.workload.pod_sets}
    variant = Variant(flavors=dict.fromkeys(counts, "default"), counts=counts)
    shape = Shape(
        number=number,
        form=number,
        choice=number,
        kind=number,
        variants=(variant,),
        charges=({},),
        least=counts,
        smallest=((variant, {}),),
        flavors=frozenset({"default"}),
    )
    return Gang(
        pending=pending,
        shape=shape,
        uid=name,
        queue="root.a",
        seniority=(0, 0.0, 0, name),
        likeness=number,
    )


def test_prices_of_another_layout_prove_in_next_to_no_time_but_not_without_any() -> None:
    """Two nodes bear six pods, four of them settled; three more ask."""
    nodes = [node(f"n{i}", gpu=3, labels={"rack": f"r{i}"}) for i in range(2)]
    jobs = [gang("four", pod_set(4, 1)), gang("three", pod_set(3, 1))]
    snap = snapshot(nodes, [queue("root.a")], pending=jobs)
    four, three, known = asked(snap, "four"), asked(snap, "three", 1), deque[Prices]()

    def answer(*, prices: deque[Prices], budget: float) -> object:
        cycle = Cycle(Board(Arrays.of(snap), now=NOW))
        spreads = {"main": {0: 3, 1: 1}}
        cycle.take(Chosen(gang=four, variant=four.shape.variants[0], charge={}, spreads=spreads))
        layouts = Layouts(cycle, CpSat(), seed=0, share=1.0, prices=prices)
        return layouts.settle(three, three.shape.variants, evict=False, budget=budget)[0]

    assert isinstance(answer(prices=known, budget=1e-6), Unknown)
    assert isinstance(answer(prices=known, budget=1.0), Proof)
    assert known
    assert isinstance(answer(prices=known, budget=1e-6), Proof)
    assert isinstance(answer(prices=known, budget=0.0), Unknown)


def test_a_proof_serves_harder_gangs_only() -> None:
    nodes = [node("n0", labels={"block": "b0", "rack": "r0"}), node("n1", labels={"rack": "r1"})]
    jobs = {
        "two": gang("two", pod_set(2, 4)),
        "three": gang("three", pod_set(3, 4)),
        "larger": gang("larger", pod_set(2, 8)),
        "one": gang("one", pod_set(1, 8)),
        "rack": gang("rack", pod_set(2, 4), required="rack"),
        "block": gang("block", pod_set(2, 4), required="block"),
        "apart": gang("apart", pod_set(2, 4, exclusive_host=True)),
        "racked": gang("racked", pod_set(2, 4, required="rack")),
        "racked and apart": gang("racked and apart", pod_set(2, 4, required="rack", exclusive_host=True)),
        "nowhere": gang("nowhere", pod_set(1, 1), required="zone"),
    }
    snap = snapshot(nodes, [queue("root.a")], pending=jobs.values())
    board = Board(Arrays.of(snap), now=NOW)
    layouts = Layouts(Cycle(board), CpSat(), seed=0, share=1.0, prices=deque())

    def form(name: str, number: int) -> Form:
        one = asked(snap, name, number)
        return layouts.form(one, one.shape.variants[0])

    forms = {name: form(name, number) for number, name in enumerate(jobs)}
    easier = {(a, b) for a in forms for b in forms if a != b and forms[a].within(forms[b])}
    assert easier == {
        ("two", "three"),
        ("two", "larger"),
        ("one", "larger"),
        ("two", "rack"),
        ("two", "block"),
    }


class Late:
    """A solver that never comes to an end. `asked`: its questions."""

    def __init__(self) -> None:
        self.asked: list[Layout] = []

    def lay(self, question: Layout) -> Unknown:
        """See `ExactSolver`."""
        self.asked.append(question)
        return Unknown(spent=question.budget if question.found else 0.0)

    def settle(self, question: object) -> Unknown:
        """See `ExactSolver`."""
        raise AssertionError

    def improve(self, **settled: object) -> Unknown:
        """See `ExactSolver`."""
        raise AssertionError


def test_one_question_is_asked_where_nobody_is_bound_and_no_places_once_that_is_in_vain() -> None:
    """Each halves the share down to a sixteenth; so often more it is tried, then prices alone are asked for."""
    jobs = [gang(f"g{i}", pod_set(1, 1 + i)) for i in range(12)]
    snap = snapshot([node("n0", gpu=1)], [queue("root.a")], pending=jobs)
    late = Late()
    cycle = Cycle(Board(Arrays.of(snap), now=NOW))
    layouts = Layouts(cycle, late, seed=0, share=1.0, prices=deque())
    for number, job in enumerate(jobs):
        one = asked(snap, job.uid, number)
        answer, _ = layouts.settle(one, one.shape.variants, evict=False, budget=9.0)
        assert isinstance(answer, Unknown)
    assert [q.asked.uid for q in late.asked] == [job.uid for job in jobs]
    halves = int(log2(PARTS))
    assert [q.budget for q in late.asked[: halves + 1]] == [2.0**-n for n in range(halves + 1)]
    assert [q.found for q in late.asked] == [True] * (halves + VAIN) + [False] * (12 - halves - VAIN)

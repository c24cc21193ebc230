"""What a proof about one form of gang says about others."""

from __future__ import annotations

from collections import deque

from queuer.solver.arrays import Arrays
from queuer.solver.board import Board
from queuer.solver.contested import Variant
from queuer.solver.cpsat import CpSat
from queuer.solver.cycle import Cycle
from queuer.solver.layouts import Form, Layouts
from queuer.solver.order import Gang, Shape
from tests.solver.make import gang, node, pod_set, queue, snapshot

NOW = 0.0


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
        pending = next(p for p in snap.pending if p.workload.uid == name)
        counts = {p.name: p.count for p in pending.workload.pod_sets}
        variant = Variant(flavors=dict.fromkeys(counts, "default"), counts=counts)
        shape = Shape(
            number=number,
            form=number,
            kind=number,
            variants=(variant,),
            charges=({},),
            least=counts,
            flavors=frozenset({"default"}),
        )
        one = Gang(
            pending=pending,
            shape=shape,
            uid=name,
            queue="root.a",
            seniority=(0, 0.0, 0, name),
            likeness=number,
        )
        return layouts.form(one, variant)

    forms = {name: form(name, number) for number, name in enumerate(jobs)}
    easier = {(a, b) for a in forms for b in forms if a != b and forms[a].within(forms[b])}
    assert easier == {
        ("two", "three"),
        ("two", "larger"),
        ("one", "larger"),
        ("two", "rack"),
        ("two", "block"),
    }

"""The exact solver finds arrangements that greedy misses, and proves that there is none; who is evicted for them is in
`test_cpsat_victims`.

Each arrangement is judged by the verifier, as a plan.
"""

from __future__ import annotations

from dataclasses import replace
from math import nextafter

from queuer.solver.contested import Arrangement, Proof, Standing, Unknown, Variant
from queuer.solver.cpsat import CpSat
from queuer.solver.cpsat.proto import rounded
from queuer.solver.problem import Bond
from tests.solver.asking import judged, place, question, settled
from tests.solver.make import gang, node, pod_set, queue, row, running, snapshot


def test_earlier_gang_makes_room() -> None:
    """Two pods of 3 sit on the hosts of 8 and 6; two of 5 fit only if both of them share the host of 6."""
    snap = snapshot(
        [node("n1", gpu=8), node("n2", gpu=6), node("n3", gpu=7)],
        [queue("root.a")],
        pending=[gang("small", pod_set(2, 3)), gang("big", pod_set(2, 5), submitted=1.0)],
    )
    before = settled(snap, "small", place({"n1": 1, "n3": 1}))
    found = CpSat().settle(question(snap, "big", before=[before]))
    assert isinstance(found, Arrangement)
    assert set(found.assignments) == {"small", "big"}
    assert judged(snap, found) == ()


def test_proof_where_sums_suffice_and_slots_do_not() -> None:
    snap = snapshot(
        [node(f"n{i}", gpu=3) for i in range(4)], [queue("root.a")], pending=[gang("g", pod_set(1, 4))]
    )
    assert isinstance(CpSat().settle(question(snap, "g")), Proof)


def test_rack_by_rack_proof() -> None:
    nodes = [node(f"n{i}", labels={"block": "b", "rack": f"r{i // 2}"}) for i in range(4)]
    across = gang("g", pod_set(3, 8))
    snap = snapshot(nodes, [queue("root.a")], pending=[replace(across, required="rack")])
    assert isinstance(CpSat().settle(question(snap, "g")), Proof)
    snap = snapshot(nodes, [queue("root.a")], pending=[replace(across, required="block")])
    found = CpSat().settle(question(snap, "g"))
    assert isinstance(found, Arrangement)
    assert judged(snap, found) == ()


def test_exclusive_pods_go_to_different_hosts() -> None:
    nodes = [node("n1"), node("n2")]
    for count, kind in ((2, Arrangement), (3, Proof)):
        job = gang("g", pod_set(count, 1, exclusive_host=True))
        snap = snapshot(nodes, [queue("root.a")], pending=[job])
        assert isinstance(CpSat().settle(question(snap, "g")), kind)


def test_second_variant_where_the_first_has_no_place() -> None:
    job = gang("g", pod_set(3, 8))
    snap = snapshot([node("n1"), node("n2")], [queue("root.a")], pending=[job])
    smaller = Variant(flavors={"main": "default"}, counts={"main": 2})
    asked = question(snap, "g")
    found = CpSat().settle(replace(asked, variants=(*asked.variants, smaller)))
    assert isinstance(found, Arrangement)
    assert sum(r.count for r in found.assignments["g"]) == 2


def test_limit_that_only_quota_knows() -> None:
    snap = snapshot(
        [node("n1")],
        [queue("root.a", row(limit=3))],
        pending=[gang("g", pod_set(1, 4))],
    )
    assert isinstance(CpSat().settle(question(snap, "g")), Proof)


def test_no_time_is_no_answer() -> None:
    snap = snapshot([node("n1")], [queue("root.a")], pending=[gang("g", pod_set(1, 4))])
    assert isinstance(CpSat().settle(question(snap, "g", budget=0.0)), Unknown)


def test_standing_bond_is_not_touched() -> None:
    leaving = running(gang("v", pod_set(1, 8)), {"n0": 1}, releasing=True)
    jobs = [gang("held", pod_set(1, 8)), gang("g", pod_set(1, 8), submitted=1.0)]
    bond = Bond(uid="held", assignments=(place({"n1": 1}),), victims=("v",), deadline=60.0)
    snap = snapshot(
        [node("n0"), node("n1")], [queue("root.a")], admitted=[leaving], pending=jobs, bonds=(bond,)
    )
    standing = Standing(pending=snap.pending[0], assignments=bond.assignments, victims=("v",))
    assert isinstance(CpSat().settle(question(snap, "g", standing=[standing])), Proof)
    free = replace(snap, admitted=(), nodes=tuple(replace(s, used={}) for s in snap.nodes))
    found = CpSat().settle(question(free, "g", standing=[standing]))
    assert isinstance(found, Arrangement)
    assert dict(found.assignments["g"][0].nodes) == {"n0": 1}


def test_last_digits_of_what_is_spent_do_not_count() -> None:
    """In equal runs the solver came to either side of half a billionth."""
    halves = (0.0029267245, nextafter(0.0029267245, 0), nextafter(0.0029267245, 1))
    assert len({rounded(time) for time in halves}) == 1

"""The verifier's sums: one pass over all that is admitted counts as each workload alone; what is not lent counts."""

from __future__ import annotations

from queuer.solver.verify.quota import QuotaRows, Uses, amounts_of
from tests.solver.cases import seeded
from tests.solver.make import GPU, node, queue, row, snapshot

ANY = (None, GPU)


def test_sum_over_all_is_the_sum_of_each() -> None:
    for seed in range(40):
        snap = seeded(seed)
        rows = QuotaRows(snap)
        one_by_one = Uses(rows)
        for a in snap.admitted:
            one_by_one.count(a.workload.queue, amounts_of(a.workload, a.counts, a.flavors))
        together = Uses.of(rows, snap.admitted)
        keys = {(f, r) for f in (None, "default", "x", "y") for r in (GPU, "pods")}
        for q in snap.tree:
            for key in keys:
                assert together.used(q.path, key) == one_by_one.used(q.path, key), (seed, q.path, key)


def test_a_parent_counts_what_its_children_do_not_lend() -> None:
    """a keeps 3 of its 4 while it uses 1; work of a queue that is gone counts for the parent itself."""
    tree = [queue("root.p"), queue("root.p.a", row(guaranteed=4, lend=1)), queue("root.p.b")]
    uses = Uses(QuotaRows(snapshot([node("n")], tree)))
    for path, amount in (("root.p.a", 1), ("root.p.b", 2), ("root.p.gone", 1)):
        uses.count(path, {ANY: amount})
    assert [uses.used(path, ANY) for path in ("root.p.a", "root.p.b", "root.p", "root")] == [1, 2, 4, 4]
    assert [uses.seen(path, ANY) for path in ("root.p.a", "root.p.b", "root.p", "root")] == [3, 2, 6, 6]


def test_a_copy_counts_for_itself() -> None:
    uses = Uses(QuotaRows(snapshot([node("n")], [queue("root.a")])))
    uses.count("root.a", {ANY: 1})
    twin = uses.copy()
    twin.count("root.a", {ANY: 1})
    assert (uses.used("root", ANY), twin.used("root", ANY)) == (1, 2)

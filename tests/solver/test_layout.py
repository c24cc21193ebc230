"""The model of many gangs against brute force: a proof is one, and places are places."""

from __future__ import annotations

import numpy as np
import pytest

from queuer.domain.workload import Workload
from queuer.solver.arrays import Arrays
from queuer.solver.board import Board
from queuer.solver.contested import Laid, Layout, Places, Unknown, Variant
from queuer.solver.cpsat import CpSat
from queuer.solver.cpsat.relaxed import prices_for
from queuer.solver.cpsat.tree import Tree
from tests.solver import make
from tests.solver.cases import NOW
from tests.solver.oracle_layouts import Watched, check, played


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_model_agrees_with_brute_force(first: int) -> None:
    oracles = played(Watched, first)
    assert sum(o.places for o in oracles) > 5
    assert sum(o.proofs for o in oracles) > 5


def test_gangs_that_are_alike_share_hosts_even_if_each_wants_its_own_pods_apart() -> None:
    """Two hosts bear a pod of each of the twins, and of the one that is asked for."""
    twins = [make.gang(uid, make.pod_set(2, 1, exclusive_host=True)) for uid in ("x", "y", "z")]
    snap = make.snapshot(
        [make.node(n) for n in "ab"], [make.queue("root"), make.queue("root.a")], pending=twins
    )
    board = Board(Arrays.of(snap), now=NOW)
    variant = Variant(flavors={"main": "default"}, counts={"main": 2})

    def alike(workload: Workload) -> Laid:
        spreads = {} if workload.uid == "z" else {"main": {0: 1, 1: 1}}
        return Laid(form="one", workload=workload, variant=variant, closed=None, starts=True, spreads=spreads)

    *settled, last = map(alike, twins)
    question = Layout(
        frame=board.frame,
        now=board.now.free,
        later=board.later.free,
        settled=tuple(settled),
        asked=last,
        found=True,
        seed=0,
        budget=10.0,
    )
    answer = CpSat().lay(question)
    assert isinstance(answer, Places)
    check(question, answer)


def many_sizes(*, budget: float) -> Layout:
    """Sixty nodes with a pod of another size on each, and a gang that would need nearly all of them for itself."""
    count = 60
    sizes = [make.gang(f"g{i}", make.pod_set(1, 1000 + 7 * i), submitted=i) for i in range(count)]
    wide = make.gang("wide", make.pod_set(58, 9000), submitted=count)
    nodes = [
        make.node(f"n{i}", gpu=10_000, labels={"block": "b", "rack": f"r{i // 4}"}) for i in range(count)
    ]
    snap = make.snapshot(nodes, [make.queue("root"), make.queue("root.a")], pending=[*sizes, wide])
    board = Board(Arrays.of(snap), now=NOW)

    def placed(number: int, workload: Workload) -> Laid:
        variant = Variant(flavors={"main": "default"}, counts={"main": workload.pod_sets[0].count})
        spreads = {} if workload is wide else {"main": {number: 1}}
        return Laid(
            form=workload.uid, workload=workload, variant=variant, closed=None, starts=True, spreads=spreads
        )

    *settled, last = [placed(n, w) for n, w in enumerate((*sizes, wide))]
    free = board.now.free
    return Layout(
        frame=board.frame,
        now=free,
        later=free,
        settled=tuple(settled),
        asked=last,
        found=True,
        seed=0,
        budget=budget,
    )


def test_a_tree_is_not_built_beyond_its_time() -> None:
    answer = CpSat().lay(many_sizes(budget=0.005))
    assert isinstance(answer, Unknown)
    assert answer.spent <= 0.006


def test_prices_are_asked_for_only_where_there_is_time_for_the_relaxation() -> None:
    question = many_sizes(budget=10.0)
    tree = Tree(question, apart=np.zeros(len(question.frame.names), dtype=bool), budget=10.0)
    built = tree.rows.spent
    assert prices_for(tree, budget=built * 1.01) is None
    assert tree.rows.spent == built
    assert prices_for(tree, budget=10.0) is not None
    assert tree.rows.spent > built * 1.01


def test_a_relaxation_is_stopped_and_charged_when_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuer.solver.cpsat.relaxed.RELAX", 1e-12)
    question = many_sizes(budget=10.0)
    tree = Tree(question, apart=np.zeros(len(question.frame.names), dtype=bool), budget=10.0)
    built = tree.rows.spent
    assert prices_for(tree, budget=10.0) is None
    assert built < tree.rows.spent < built + 1e-3

"""The model of many gangs against brute force: a proof is one, and places are places."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pytest

from queuer.domain.workload import Workload
from queuer.solver.arrays import Arrays
from queuer.solver.board import Board
from queuer.solver.contested import Laid, Layout, Places, Proof, Unknown, Variant
from queuer.solver.cpsat import CpSat
from queuer.solver.cpsat.relaxed import prices_for
from queuer.solver.cpsat.tree import Tree
from queuer.solver.frame import Frame, Matrix
from tests.solver import make
from tests.solver.cases import NOW, seeded
from tests.solver.oracle import Oracle
from tests.solver.oracle_room import Turn

Tournament = TypeVar("Tournament", bound=Oracle)


def laid(turn: Turn) -> Laid:
    counts = {p.name: p.count for p in turn.workload.pod_sets}
    variant = Variant(flavors=turn.flavors, counts=counts)
    return Laid(
        form=turn.workload.uid, workload=turn.workload, variant=variant, closed=None, starts=not turn.bound
    )


def asked(oracle: Oracle, turn: Turn) -> Layout:
    board = Board(Arrays.of(oracle.snapshot), now=NOW)
    now = board.now.free.copy()
    board.fork()
    for uid in oracle.gone:
        board.later.release(board.holds[uid])
    return Layout(
        frame=board.frame,
        now=now,
        later=board.later.free,
        settled=tuple(laid(one) for one in oracle.settled),
        asked=laid(turn),
        found=True,
        seed=0,
        budget=10.0,
    )


class Watched(Oracle):
    """The tournament by brute force, each turn also asked of the model, with the victims as they are."""

    proofs = places = 0

    def possible(self, turn: Turn) -> tuple[str, ...] | None:
        fits = self.arranged_nodes([*self.settled, turn])
        question = asked(self, turn)
        answer = CpSat().lay(question)
        if isinstance(answer, Proof):
            assert not fits, turn.workload.uid
            self.proofs += 1
        elif isinstance(answer, Places):
            assert fits, turn.workload.uid
            check(question, answer)
            self.places += 1
        return super().possible(turn)

    def arranged_nodes(self, everyone: list[Turn]) -> bool:
        """Whether all pods have a node, quota aside."""
        return self._place(everyone, 0, self.free_now(), self.free_later(self.gone))


def check(question: Layout, answer: Places) -> None:
    """Every pod of everyone has a node that is open to it and bears it, inside one domain of its level."""
    chosen = [*question.settled, question.asked]
    now, later = question.now.copy(), question.later.copy()
    touched: dict[int, Matrix] = {}
    assert set(answer.spreads) == {one.uid for one in chosen}
    for one in chosen:
        spreads = answer.spreads[one.uid]
        nodes = {n for spread in spreads.values() for n in spread}
        for pod_set in one.workload.pod_sets:
            spread = spreads[pod_set.name]
            row = question.frame.row(pod_set.requests)
            assert sum(spread.values()) == pod_set.count
            assert all(count == 1 for count in spread.values()) or not pod_set.exclusive_host
            for node, count in spread.items():
                assert question.frame.open_to(pod_set, one.variant.flavors[pod_set.name])[node]
                later[node] -= row * count
                now[node] -= row * count * one.starts
                touched[node] = touched.get(node, row * 0) + row
        assert one_domain(question.frame, one.workload.required, nodes)
    for node, row in touched.items():
        asked_for = row > 0
        assert (later[node][asked_for] >= 0).all()
        assert (now[node][asked_for] >= np.minimum(question.now[node][asked_for], 0)).all()


def one_domain(frame: Frame, level: str | None, nodes: set[int]) -> bool:
    if level is None:
        return True
    at = frame.snapshot.topology.find(level)
    domains = {int(frame.domains[at][n]) for n in nodes} if at is not None else set()
    return len(domains) == 1 and -1 not in domains


def played(kind: type[Tournament], first: int) -> list[Tournament]:
    """The tournaments of 20 seeds."""
    found = [kind(seeded(seed), NOW) for seed in range(first, first + 20)]
    for oracle in found:
        oracle.run()
    return found


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

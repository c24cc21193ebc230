"""The tournament by brute force, each turn also asked of the model that lays out many gangs (`Solver.lay`)."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from queuer.solver.arrays import Arrays
from queuer.solver.board import Board
from queuer.solver.contested import Laid, Layout, Places, Proof, Variant
from queuer.solver.cpsat import CpSat
from queuer.solver.frame import Frame, Matrix
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
        return self.place_all(everyone, self.free_now(), self.free_later(self.gone))


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

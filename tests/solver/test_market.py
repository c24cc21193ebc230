"""Prices prove nothing that is not so, and prove again what they proved once."""

from __future__ import annotations

import numpy as np
import pytest

from queuer.solver.contested import Layout, Proof
from queuer.solver.cpsat import CpSat
from queuer.solver.market import Market
from queuer.solver.prices import Measure, Prices
from tests.solver.oracle_layouts import Watched, asked, played
from tests.solver.oracle_room import Turn


def drawn(question: Layout, rng: np.random.Generator) -> Prices:
    """Prices of slots of amounts that pods ask for, of about half of the nodes."""
    frame, nodes = question.frame, len(question.frame.names)
    rows = [
        frame.row(p.requests)
        for one in (*question.settled, question.asked)
        for p in one.workload.pod_sets
        if any(p.requests.values())
    ]
    found = {}
    for row in rows:
        column = int(rng.choice(np.flatnonzero(row)))
        measure = Measure(bool(rng.integers(2)), frozenset({(column, int(row[column]))}))
        found[measure] = rng.integers(0, 4, nodes) * rng.integers(0, 2, nodes)
    return Prices(found)


class Priced(Watched):
    """The tournament by brute force, with prices drawn for every turn and those of proofs tried again."""

    excluded = proved = 0

    def possible(self, turn: Turn) -> tuple[str, ...] | None:
        question = asked(self, turn)
        fits = self.arranged_nodes([*self.settled, turn])
        market = Market(question.frame, question.now, question.later)
        rng = np.random.default_rng(len(self.settled))
        for _ in range(20):
            if market.excludes(drawn(question, rng), question.settled, question.asked):
                assert not fits, turn.workload.uid
                self.excluded += 1
        answer = CpSat().lay(question)
        if isinstance(answer, Proof) and answer.prices is not None:
            assert market.excludes(answer.prices, question.settled, question.asked)
            self.proved += 1
        return super().possible(turn)


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_whatever_the_prices_only_what_has_no_place_is_too_dear(first: int) -> None:
    oracles = played(Priced, first)
    assert sum(o.excluded for o in oracles) > 20
    assert sum(o.proved for o in oracles) > 5

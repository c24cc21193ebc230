"""Who keeps off whose hosts in the next attempt."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from queuer.solver import yielding as module
from queuer.solver.arrays import Arrays
from queuer.solver.board import Board
from queuer.solver.greedy import Greedy
from queuer.solver.outcome import Chosen
from queuer.solver.pins import Pinner
from queuer.solver.yielding import yielding
from tests.solver.make import gang, node, pod_set, queue, snapshot

HERE = frozenset({"n0"})


@pytest.mark.parametrize(("few", "away"), [(4, {"j"}), (3, {"h", "i", "j"})])
def test_only_among_few_it_is_looked_who_keeps_a_gang_from_landing(
    few: int, away: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All four lie on one node; the first lands only without the last. A look pins all of them anew, so that among
    many there is none, and whoever was settled later yields.
    """
    monkeypatch.setattr(module, "FEW", few)
    jobs = [gang(uid, pod_set(1, 2), submitted=float(i)) for i, uid in enumerate("ghij")]
    snap = snapshot([node("n0")], [queue("root.a")], pending=jobs)
    greedy, looks = Greedy(Board(Arrays.of(snap), now=0.0)), list[set[str]]()
    for one in greedy.board.arrays.offers.gangs.values():
        greedy.turn(one)

    def late() -> Sequence[Chosen]:
        looks.append(set(greedy.chosen))
        return [greedy.chosen["g"]] if "j" in greedy.chosen else []

    before = dict(greedy.chosen)
    found = yielding(greedy, [before["g"]], Pinner(greedy.board, {}), late)
    assert (found.off, found.instead) == (dict.fromkeys(away, HERE), {"g": HERE})
    assert list(greedy.chosen.items()) == list(before.items())
    assert len(looks) == (4 if few == 4 else 0)

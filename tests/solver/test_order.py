"""The order of turns, where starts are undone on the way."""

from __future__ import annotations

from queuer.solver.order import Tournament
from queuer.solver.shapes import Gang
from tests.solver.make import gang, node, pod_set, queue, snapshot, state_of


def test_gangs_whose_starts_are_undone_go_before_those_behind_them() -> None:
    """Each at its place in line; nobody else has a second turn, and the other queues are not asked about anew."""
    asked = list[str]()
    waiting = [gang(uid, pod_set(1, 1), submitted=at) for at, uid in enumerate(("a1", "a2", "a3", "a4"))]
    waiting += [gang(f"b{n}", pod_set(1, 1), queue="root.b", submitted=10.0 + n) for n in range(50)]
    queues = [queue("root"), queue("root.a"), queue("root.b")]
    state = state_of(snapshot([node("n")], queues, pending=waiting))
    lines = state.arrays.waiting.by_leaf

    def refused(asks: Gang) -> bool:
        asked.append(asks.uid)
        return False

    tournament = Tournament(state.book.tree, lines, state, refused=refused)
    turns = list[str]()
    while (offered := tournament.next()) is not None:
        turns.append(offered.uid)
        tournament.done(offered, settled=True)
        if turns == ["a1", "a2", "a3"]:
            asked.clear()
            tournament.again(lines["root.a"][:2])
            assert asked == ["a1", "a1"]
    assert turns == ["a1", "a2", "a3", "a1", "a2", "a4", *(f"b{n}" for n in range(50))]

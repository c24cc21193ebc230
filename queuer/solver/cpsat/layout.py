"""Places for many gangs at once, their victims settled: solve on leaves, put the pods on nodes, split leaves on which
that fails.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from queuer.domain.reasons import Deferral
from queuer.solver.contested import Layout, Places, Proof, Unknown
from queuer.solver.cpsat.decode import by_gang, on_nodes
from queuer.solver.cpsat.proto import Status
from queuer.solver.cpsat.relaxed import prices_for
from queuer.solver.cpsat.tree import OutOfTimeError, Tree
from queuer.solver.market import Market
from queuer.solver.prices import Prices

SPLITS = 4
"""How often leaves are split before a layout is given up."""
MOVES = 0.05
"""Deterministic time for an arrangement that leaves gangs where they are; without one any is looked for."""


def lay(question: Layout) -> Places | Proof | Unknown:
    """Places for all that is settled and for the gang asked for, or a proof that there are none."""
    apart = np.zeros(len(question.frame.names), dtype=bool)
    spent = 0.0
    for split in range(SPLITS):
        left = question.budget - spent
        if left <= 0:
            break
        try:
            tree = Tree(question, apart=apart, budget=left)
        except OverflowError:
            return Unknown(spent=spent, cause=Deferral.SIZE)
        except OutOfTimeError:
            return Unknown(spent=question.budget)
        prices = _proving(tree, budget=left) if not split else None
        if prices is not None:
            return Proof(spent=spent + tree.rows.spent, prices=prices)
        if not question.found:
            return Unknown(spent=spent + tree.rows.spent)
        answer = _solved(tree, budget=left)
        spent += tree.rows.spent
        if not isinstance(answer, list):
            return replace(answer, spent=spent)
        apart[answer] = True
    return Unknown(spent=spent)


def _proving(tree: Tree, *, budget: float) -> Prices | None:
    """Prices that prove that there is no arrangement."""
    prices, question = prices_for(tree, budget=budget), tree.question
    market = Market(question.frame, question.now, question.later)
    proven = prices is not None and market.excludes(prices, question.settled, question.asked)
    return prices if proven else None


def _solved(tree: Tree, *, budget: float) -> Places | Proof | Unknown | list[int]:
    """The answer of the solver; or nodes of leaves on which the pods that it put there found no room."""
    rows = tree.rows
    if rows.spent >= budget:
        return Unknown()
    fewest = tree.moves()  # what is moved may have to land beside others
    status, values = rows.solve(budget=min(MOVES, budget - rows.spent), minimise=fewest)
    if status is Status.UNKNOWN and rows.spent < budget:
        status, values = rows.solve(budget=budget - rows.spent, presolve=False)
    if status is Status.NONE:
        return Proof()
    if status is Status.UNKNOWN:
        return Unknown()
    pods, stuck = on_nodes(tree, values)
    if stuck:
        return stuck
    found = None if tree.relaxed else by_gang(tree, values, pods)
    if found is None:
        return Unknown(cause=Deferral.SIZE)
    return Places(spreads=found)

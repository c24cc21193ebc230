"""Places for many gangs at once, their victims settled: solve on leaves, put the pods on nodes, split leaves on which
that fails.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from queuer.solver.contested import Layout, Places, Proof, Unknown
from queuer.solver.cpsat.decode import by_gang, on_nodes
from queuer.solver.cpsat.proto import Status
from queuer.solver.cpsat.relaxed import prices_for
from queuer.solver.cpsat.tree import Tree
from queuer.solver.market import Market

SPLITS = 4
"""How often leaves are split before a layout is given up."""
MOVES = 0.05
"""Deterministic time for leaving gangs where they are."""
BUILD = 1e-5
"""Deterministic time that building a model is taken to cost for each variable."""
ARGUMENT = "no arrangement with today's victims: the model of all domains is infeasible"


def _fewest_moves(tree: Tree, values: Sequence[int], *, budget: float) -> Sequence[int]:
    """The same with as little moved as is found: what is moved may have to land beside others."""
    before = dict(tree.rows.hint)
    minimise = tree.moves()
    tree.rows.hint = dict(enumerate(values))
    if budget <= 0:
        return values
    status, better = tree.rows.solve(budget=budget, minimise=minimise)
    tree.rows.hint = before
    return better if status in (Status.FOUND, Status.BEST) else values


def lay(question: Layout) -> Places | Proof | Unknown:
    """Places for all that is settled and for the gang asked for, or a proof that there are none."""
    apart = np.zeros(len(question.frame.names), dtype=bool)
    spent = 0.0
    for split in range(SPLITS):
        if spent >= question.budget:
            break
        try:
            tree = Tree(question, apart=apart)
        except OverflowError as error:
            return Unknown(spent=spent, note=str(error))
        spent += BUILD * len(tree.rows.bounds)
        if not split:
            prices = prices_for(tree)
            market = Market(question.frame, question.now, question.later)
            if prices is not None and market.excludes(prices, question.settled, question.asked):
                return Proof(argument=ARGUMENT, spent=spent, prices=prices)
        status, values = tree.rows.solve(budget=question.budget - spent, presolve=False)
        spent += tree.rows.spent
        if status is Status.NONE:
            return Proof(argument=ARGUMENT, spent=spent)
        if status is Status.UNKNOWN:
            break
        if not question.found:
            return Places(spreads={}, spent=spent)
        begin = tree.rows.spent
        values = _fewest_moves(tree, values, budget=min(MOVES, question.budget - spent))
        spent += tree.rows.spent - begin
        pods, stuck = on_nodes(tree, values)
        if not stuck:
            found = None if tree.relaxed else by_gang(tree, values, pods)
            if found is None:
                return Unknown(spent=spent, note="levels of single pod sets are not in this model")
            return Places(spreads=found, spent=spent)
        apart[stuck] = True
    return Unknown(spent=spent, note="the solver did not come to an end")

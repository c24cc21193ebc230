"""Prices of slots from the linear relaxation of a tree: if not even parts of pods have room, its dual says why.

The relaxation asks how much of the gang asked for has room beside all that is settled, for which there is room as it
lies. Its dual is rounded to integers, so whether the prices prove anything is for `Market` to say.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]

from queuer.solver.cpsat.proto import HIGHEST
from queuer.solver.cpsat.tree import Tree
from queuer.solver.prices import Measure, Prices

FINE = 2**40
"""What all slots together are worth, about, in the units of the prices."""
RELAX = 3e-6
"""Deterministic time that a term of the relaxation is taken to cost; GLOP may take as much again before it is stopped.
"""
WHOLE = 1 - 1e-6
"""Part of a gang from which on it may have room."""


def prices_for(tree: Tree, *, budget: float) -> Prices | None:
    """Prices that probably prove that there is no arrangement; None = not even this relaxation says so, or it would
    cost more than is left of the deterministic time `budget`, the tree itself counted.
    """
    rows = tree.rows.listed[: tree.plain]
    sold = [
        (stock.measure, leaf, room, terms)
        for stock in tree.stocks
        for leaf, room in enumerate(stock.slots)
        if (terms := tree.taking(stock, leaf))
    ]
    cost = RELAX * (sum(len(numbers) for numbers, *_ in rows) + sum(len(terms) for *_, terms in sold))
    if tree.rows.spent + cost > budget:
        return None
    tree.rows.spent += cost
    solver = pywraplp.Solver.CreateSolver("GLOP")
    free = set(tree.z.values())
    variables = [
        solver.NumVar(0, solver.infinity() if v in free else high, "")
        for v, (_, high) in enumerate(tree.rows.bounds)
    ]
    for numbers, coefficients, low, high in rows:
        row = solver.Constraint(
            float(low) if low > -HIGHEST else -solver.infinity(),
            float(high) if high < HIGHEST else solver.infinity(),
        )
        for v, c in zip(numbers, coefficients, strict=True):
            row.SetCoefficient(variables[v], float(c))
    limits = []
    for _, _, room, terms in sold:
        row = solver.Constraint(-solver.infinity(), float(room))
        for v, c in terms.items():
            row.SetCoefficient(variables[v], float(c))
        limits.append(row)
    solver.Objective().SetCoefficient(variables[tree.u], 1)
    solver.Objective().SetMaximization()
    longest = min(cost, budget - tree.rows.spent)
    solver.SetSolverSpecificParametersAsString(f"max_deterministic_time: {longest}")
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        tree.rows.spent += longest
        return None
    if solver.Objective().Value() >= WHOLE:
        return None
    duals = [max(row.dual_value(), 0.0) for row in limits]
    return _rounded(tree, [(m, leaf, room, d) for (m, leaf, room, _), d in zip(sold, duals, strict=True)])


def _rounded(tree: Tree, sold: list[tuple[Measure, int, int, float]]) -> Prices | None:
    """In integers by node. Nodes that nobody can use are priced as most are, for when they can be."""
    worth = sum(room * price for _, _, room, price in sold)
    if worth <= 0:
        return None
    by_leaf: dict[int, dict[Measure, int]] = {leaf: {} for leaf in range(len(tree.leaves))}
    for measure, leaf, _, price in sold:
        if price > 0:
            by_leaf[leaf][measure] = round(price * FINE / worth)
    usual = Counter[frozenset[tuple[Measure, int]]]()
    for leaf, paid in by_leaf.items():
        usual[frozenset(paid.items())] += len(tree.leaves[leaf])
    elsewhere = dict(usual.most_common(1)[0][0])
    nodes = len(tree.question.frame.names)
    found = {}
    for measure in {m for paid in by_leaf.values() for m in paid}:
        by_node = np.full(nodes, elsewhere.get(measure, 0), dtype=np.int64)
        for leaf, paid in by_leaf.items():
            by_node[tree.leaves[leaf]] = paid.get(measure, 0)
        found[measure] = by_node
    return Prices(found)

"""Which work goes for gangs of equal rights, as a model for CP-SAT: the cheapest set of victims that makes room.

x[candidate]          it goes
y[gang, ground]       the gang is put together on this ground, one of the cheapest for it
s[gang, part, node]   pods of the gang there

Pods on a node fit what is free there and what the chosen victims release. Limits hold with these gone. A guarantee
stays exceeded until the last of its victims goes. The caller checks what the rows cannot say (landing, levels of single
pod sets, alternative claims), and rejects a set with `cut`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from queuer.domain.assignments import EvictionRule
from queuer.domain.quota import Guarantee, Shortfall
from queuer.solver.cpsat import CpSat
from queuer.solver.cpsat.rows import Rows, Terms
from queuer.solver.eviction.candidates import Candidates
from queuer.solver.eviction.grounds import Clearing
from queuer.solver.nodes import Numbers
from queuer.solver.placement import Part
from queuer.solver.state import Settled

GROUNDS, NODES = 32, 48
"""Domains that are open to a gang, and nodes of a domain: these, or three for each pod if that is more."""
PLENTY = 4
"""Candidates are open for so many times the quota that is short."""
LARGEST = 6000
"""Variables of a model that is built."""
PRECISE = 2**50
"""Sums of lost work are kept below this."""
PASS, TIES = 0.15, 0.01
"""Deterministic time at most: for each level of cost, and to choose among what costs the same."""


class VictimModel:
    """The rows. `goes`: variables of candidates by number."""

    def __init__(self, candidates: Candidates, gangs: Sequence[Clearing], known: Sequence[Settled]) -> None:
        """`known`: the gangs as the simple order binds them one after the other, for a bound of cost and a first hint.
        Raises OverflowError where the model is too large.
        """
        self._candidates, self._state, self.rows = candidates, candidates.state, Rows()
        self.goes: dict[int, int] = {}
        self._count = sum(part.count for clearing in gangs for part in clearing.parts)
        self._pods_on: dict[tuple[int, str, int], int] = {}
        self._on: dict[int, list[tuple[Part, int]]] = defaultdict(list)
        self._grounds: list[dict[int, Numbers]] = []
        victims = [number for settled in known for number in candidates.victims(settled)]
        rules = [eviction.rule for settled in known for eviction in settled.evictions]
        self._limit = candidates.cost(victims, rules)[:2] if victims else None
        for victim in victims:
            self._goes(victim)
        for number, clearing in enumerate(gangs):
            self._place(number, clearing, known[number] if known else None)
        self._node_rows()
        self._limit_rows(gangs)
        self._guarantee_rows()
        for victim in self.goes.keys() & set(victims):
            self.rows.hint[self.goes[victim]] = 1

    # Rows

    def _variable(self, high: int) -> int:
        if len(self.rows.bounds) == LARGEST:
            raise OverflowError("the model is too large")
        return self.rows.variable(high)

    def _goes(self, number: int) -> int | None:
        """The variable of a candidate; None = it alone costs more than all known victims."""
        if number not in self.goes:
            work, lost = self._candidates.cost([number], [self._candidates.group(number)[1]])[:2]
            if self._limit is not None and (work, lost) > self._limit:
                return None
            self.goes[number] = self._variable(1)
        return self.goes[number]

    def _place(self, number: int, clearing: Clearing, known: Settled | None) -> None:
        """The gang is put together on one of its grounds, or on that where it is known to fit."""
        grounds = [ground.nodes for ground in islice(clearing.grounds(), GROUNDS)]
        hosts = np.array([], dtype=np.intp)
        if known is not None:
            hosts = np.array(sorted(known.hosts), dtype=np.intp)
            if not any(np.isin(hosts, nodes).all() for nodes in grounds):
                grounds.append(hosts)
        chosen = dict[int, Numbers]()
        for nodes in grounds:
            chosen[y := self.rows.variable(1)] = nodes = self._cheapest_nodes(clearing, nodes, hosts)
            for part, (_, after) in zip(clearing.parts, clearing.slots, strict=True):
                terms = {y: -part.count}
                for node in nodes[after[nodes] > 0].tolist():
                    terms[self._pods(number, part, node, int(after[node]))] = 1
                self.rows.row(terms, low=0)
        self.rows.row(dict.fromkeys(chosen, 1), low=1, high=1)
        self._grounds.append(chosen)
        if known is not None:
            self._hint(number, clearing, known)

    def _hint(self, number: int, clearing: Clearing, known: Settled) -> None:
        """The gang lies as it is known to fit."""
        hosts = list(known.hosts)
        home = next(y for y, nodes in self._grounds[number].items() if np.isin(hosts, nodes).all())
        self.rows.hint[home] = 1
        for name, spread in known.spreads.items():
            for node, count in spread.items():
                self.rows.hint[self._pods_on[number, clearing.under[name], node]] += count

    def _pods(self, number: int, part: Part, node: int, slots: int) -> int:
        at = (number, part.name, node)
        if at not in self._pods_on:
            self._pods_on[at] = self._variable(min(part.count, slots))
            self._on[node].append((part, self._pods_on[at]))
        return self._pods_on[at]

    def _cheapest_nodes(self, clearing: Clearing, nodes: Numbers, hosts: Numbers) -> Numbers:
        """The nodes that are cheapest to clear for a slot, and these hosts.

        A job's cost is shared by as many nodes as all gangs have pods, for more of them are of no use.
        """
        pods = sum(part.count for part in clearing.parts)
        most = max(NODES, 3 * pods)
        before, after = np.sum(clearing.slots, axis=0)
        nodes = nodes[after[nodes] > 0]
        if len(nodes) <= most:
            return nodes
        weights, whose = self._candidates.weights, self._candidates.whose
        useful = np.minimum(np.bincount(whose, minlength=len(weights)), self._count)
        shares = weights[whose] / useful[whose]
        costs = np.bincount(self._candidates.nodes, weights=shares, minlength=len(after))[nodes]
        rates = np.where(before[nodes] > 0, -1.0, costs / np.maximum(after - before, 1)[nodes])
        rates[np.isin(nodes, hosts)] = -2.0
        return np.sort(nodes[np.argsort(rates, kind="stable")[:most]])

    def _node_rows(self) -> None:
        """Pods on a node fit what is free and what the chosen victims release."""
        candidates = self._candidates
        inside = np.isin(candidates.nodes, list(self._on))
        leaves = defaultdict[int, list[tuple[int, list[int]]]](list)
        for entry in np.flatnonzero(inside).tolist():
            variable = self._goes(int(candidates.whose[entry]))
            if variable is not None:
                leaves[int(candidates.nodes[entry])].append((variable, candidates.amounts[entry].tolist()))
        for node, come in self._on.items():
            free = self._state.free_later[node].tolist()
            rows = [(part.row.tolist(), variable) for part, variable in come]
            for column in _binding([row for row, _ in rows], free, [row for _, row in leaves[node]]):
                terms = {variable: row[column] for row, variable in rows if row[column]}
                if candidates.most is not None:
                    self.rows.row(terms, high=int(candidates.most[node, column]))
                if free[column] < 0:
                    terms[self._used(list(terms))] = -free[column]
                for variable, row in leaves[node]:
                    terms[variable] = -row[column]
                self.rows.row(terms, high=max(0, free[column]))

    def _used(self, pods: Sequence[int]) -> int:
        """A variable that is 1 where any of these pods come: the first pays for what is lacking without them."""
        used = self.rows.variable(1)
        for variable in pods:
            self.rows.row({variable: 1, used: -self.rows.bounds[variable]}, high=0)
        self.rows.hint[used] = int(any(self.rows.hint[variable] for variable in pods))
        return used

    def _limit_rows(self, gangs: Sequence[Clearing]) -> None:
        """Limits hold for all gangs together."""
        asked = dict[tuple[str | None, str], int]()
        for clearing in gangs:
            for account, amount in clearing.asked.items():
                asked[account] = asked.get(account, 0) + amount
        for short in self._state.used_later.shortfalls(gangs[0].seeker.gang.queue, asked):
            charged, terms = self._candidates.footprints.charged(short.account), Terms()
            for number in self._freeing(short, charged):
                variable = self._goes(number)
                if variable is not None:
                    terms[variable] = int(charged[number])
            self.rows.row(terms, low=min(short.lacking, sum(terms.values()) + 1))

    def _freeing(self, short: Shortfall, charged: Numbers) -> Iterator[int]:
        """Candidates that free what is short: those with a variable, and the cheapest for several times the need."""
        candidates, enough = self._candidates, 0
        able = candidates.numbers[charged[candidates.numbers] > 0]
        rates = candidates.weights[able] / np.minimum(charged[able], short.lacking)
        for number in able[np.argsort(rates, kind="stable")].tolist():
            if short.queue in candidates.group(number)[0].path:
                if number in self.goes or enough < PLENTY * short.lacking:
                    yield number
                enough += int(charged[number])

    def _guarantee_rows(self) -> None:
        """A guarantee stays exceeded until the last of its victims goes."""
        under = defaultdict[Guarantee, dict[int, int]](dict)
        for number, variable in self.goes.items():
            group, rule = self._candidates.group(number)
            rows = group.reclaim if rule is EvictionRule.RECLAIM else group.preempt
            for mark in rows[0] if len(rows) == 1 else ():
                if amount := self._candidates.runs[number].charge.get(mark.account, 0):
                    under[mark][variable] = amount
        for mark, amounts in under.items():
            excess = self._state.remaining.excess(mark)
            if sum(amounts.values()) - max(amounts.values()) < excess:
                continue
            last = {variable: self.rows.variable(1) for variable in amounts}
            for variable, last_one in last.items():
                self.rows.row({last_one: 1, variable: -1}, high=0)
            self.rows.row(dict.fromkeys(last.values(), 1), high=1)
            terms = dict(amounts) | {last[v]: -amount for v, amount in amounts.items()}
            self.rows.row(terms, high=excess - 1)

    # The answer

    def solve(self, solver: CpSat) -> tuple[list[int], Numbers, bool] | None:
        """Those who go, the nodes of the first gang, and whether nothing is cheaper on these grounds; None = no
        answer."""
        values, proven = None, True
        for terms, most in self._levels():
            solved = solver.maximise(self.rows, {v: -c for v, c in terms.items()}, most=most)
            proven &= solved.proven or most < PASS
            if not solved.values:
                break
            values = self.rows.hint[:] = list(solved.values)
            self.rows.row(terms, high=sum(c * values[v] for v, c in terms.items()))
        if values is None:
            return None
        gone = [number for number, variable in self.goes.items() if values[variable]]
        return gone, self._hosts(0, values), proven

    def _hosts(self, number: int, values: Sequence[int]) -> Numbers:
        nodes = next(nodes for y, nodes in self._grounds[number].items() if values[y])
        lies = {node for (n, _, node), v in self._pods_on.items() if n == number and values[v]}
        return nodes[np.isin(nodes, list(lies))]

    def _levels(self) -> Iterator[tuple[Terms, float]]:
        """Costs to keep small, one after the other (docs/decision.md), and the time for each."""
        costs = {
            variable: self._candidates.cost([number], [self._candidates.group(number)[1]])
            for number, variable in self.goes.items()
        }
        preempted = [cost[0] > 0 for cost in costs.values()]
        if any(preempted) and not all(preempted):
            yield _scaled({v: cost[0] for v, cost in costs.items()}), PASS
        gangs = len(costs) + 1
        lost = _scaled({v: cost[1] for v, cost in costs.items()}, most=PRECISE // gangs)
        yield {v: amount * gangs + 1 for v, amount in lost.items()}, PASS
        values = self.rows.hint
        ours = {lost[v] for v in lost if values[v]}
        if any(not values[v] and lost[v] in ours for v in lost):
            least = min(cost[3] for cost in costs.values())
            most = max(cost[4] for cost in costs.values()) * gangs + 1
            yield {v: (cost[3] - least) * most + cost[4] for v, cost in costs.items()}, TIES

    def cut(self, gone: Sequence[int]) -> None:
        """These are no set: others have to go."""
        terms = {v: 1 for n, v in self.goes.items()} | {self.goes[n]: -1 for n in gone}
        self.rows.row(terms, low=1 - len(gone))


def _scaled(amounts: Terms, *, most: int = PRECISE) -> Terms:
    """The same in a unit in which their sum stays small; what is not 0 stays above 0."""
    unit = 1 + sum(amounts.values()) // most
    return {v: -(-amount // unit) for v, amount in amounts.items()}


def _binding(rows: Sequence[list[int]], free: list[int], leaves: Sequence[list[int]]) -> list[int]:
    """Columns in which pods may be too many though no other column says so."""
    asked = [c for c in range(len(free)) if any(row[c] for row in rows)]
    found = list[int]()
    for column in sorted(asked, key=lambda c: free[c] / max(row[c] for row in rows)):
        if not any(_implied(column, other, rows, free, leaves) for other in found):
            found.append(column)
    return found


def _implied(
    column: int, other: int, rows: Sequence[list[int]], free: list[int], leaves: Sequence[list[int]]
) -> bool:
    """Whether what fits the other column fits this one."""
    if any(row[column] and not row[other] for row in rows):
        return False
    times = max(row[column] / row[other] for row in rows if row[other])
    return free[column] >= free[other] * times and all(a[column] >= a[other] * times for a in leaves)

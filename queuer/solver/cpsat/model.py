"""The question as variables and rows: pods of each part on each node, domains, victims, quota.

    x[part, node]        pods there                     Σ over nodes = count
    d[item|part, domain] all of them in this domain     Σ over nodes of the domain x = count * d, Σ d = 1
    t[victim, gang, rule]   evicted for this gang by this rule   at most once

Rows hold now for what starts, and again with the victims gone for everything. What depends on the order of the
victims, and on guarantees that are not lent, is in `checks`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from queuer.domain.quota import Account
from queuer.solver.cpsat.data import Data, Item
from queuer.solver.cpsat.lacking import Lacking
from queuer.solver.cpsat.needed import limit_to_needed
from queuer.solver.cpsat.proto import GrowingModel
from queuer.solver.cpsat.reserved import limit_by_reservations, limit_by_vacating
from queuer.solver.frame import Matrix
from queuer.solver.parts import Part
from queuer.solver.problem import Eviction
from queuer.solver.victims import Candidate

MOST_VARIABLES = 60_000
"""Of a model that is attempted."""


class TooLarge(Exception):
    """The model has more variables than can be settled in any sensible time."""


class Model:
    """Rows with the meaning of their variables. `x`: by (item, part, node)."""

    def __init__(self, data: Data, *, seed: int) -> None:
        self.data = data
        self.rows = GrowingModel(seed=seed)
        self.x: dict[tuple[int, int, int], int] = {}
        self._evicted: dict[Eviction, int] = {}
        self._gone: dict[str, list[int]] = defaultdict(list)
        self._choices: dict[tuple[object, ...], dict[int, int]] = {}
        self._below: dict[tuple[int, int], int] = {}
        self._places()
        self._victims()
        self._levels()
        self._capacity()
        limit_by_reservations(self)
        limit_by_vacating(self)
        self._quota()
        self._borrowers()
        self.quota_left = limit_to_needed(self)
        self.lacking = Lacking(self)

    # Variables

    def _places(self) -> None:
        for i, item in enumerate(self.data.items):
            for p, part in enumerate(item.parts):
                room = item.room[p]
                known = item.known.get(part.name, {})
                for node in self.data.nodes:
                    most = min(part.count, int(room[node]))
                    if most:
                        variable = self.rows.variable(0, most)
                        self.x[i, p, node] = variable
                        if item.known:
                            self.rows.hint[variable] = min(most, known.get(node, 0))
                if len(self.x) > MOST_VARIABLES:
                    raise TooLarge(f"more than {MOST_VARIABLES} variables")
                self.rows.row(self.pods(i, p), low=part.count, high=part.count)

    def _victims(self) -> None:
        for item in self.data.items:
            for candidate in item.candidates:
                eviction = candidate.evicted_for(item.workload.uid)
                variable = self._evicted[eviction] = self.rows.boolean()
                self._gone[candidate.uid].append(variable)
                self.rows.hint[variable] = int(eviction in self.data.evictions)
        for uid in self.data.victims():
            self.rows.row(self.gone(uid), high=1)

    def pods(self, item: int, part: int, nodes: Sequence[int] | None = None) -> dict[int, int]:
        """The pods of a part on these nodes, all of them unless said, as terms."""
        among = self.data.nodes if nodes is None else nodes
        return {self.x[item, part, n]: 1 for n in among if (item, part, n) in self.x}

    def gone(self, victim: str, *, times: int = 1) -> dict[int, int]:
        """Whether a victim is evicted, as terms."""
        return dict.fromkeys(self._gone[victim], times)

    def evicted(self, candidate: Candidate, item: Item) -> int:
        """Whether it is evicted for this gang by its rule."""
        return self._evicted[candidate.evicted_for(item.workload.uid)]

    def below(self, variable: int, value: int) -> int:
        """1 only if a variable is less than this."""
        if (variable, value) not in self._below:
            less, most = self.rows.boolean(), self.rows.bounds[variable][1]
            self.rows.row({variable: 1, less: most - value + 1}, high=most)
            self._below[variable, value] = less
        return self._below[variable, value]

    # Levels

    def _levels(self) -> None:
        find = self.data.board.frame.snapshot.topology.find
        for i, item in enumerate(self.data.items):
            if item.workload.required is not None:
                level = find(item.workload.required)
                self._one_domain(i, range(len(item.parts)), level)
            for p, part in enumerate(item.parts):
                if part.required is not None:
                    self._one_domain(i, [p], part.required)

    def _one_domain(self, item: int, parts: Sequence[int], level: int | None) -> None:
        chosen = {} if level is None else self.inside(item, parts, level)
        self.rows.row(dict.fromkeys(chosen.values(), 1), low=1, high=1)
        for p in parts:  # nothing outside any domain of the level
            count = self.data.items[item].parts[p].count
            for domain, variable in chosen.items():
                terms = self.pods(item, p, self._members(level, domain))
                self.rows.row({**terms, variable: -count}, low=0, high=0)

    def inside(self, item: int, parts: Sequence[int], level: int) -> dict[int, int]:
        """Variables by domain of a level: 1 only if all pods of these parts are in it."""
        key = (item, tuple(parts), level)
        if key in self._choices:
            return self._choices[key]
        one = self.data.items[item]
        numbers = self.data.board.frame.domains[level]
        found: dict[int, int] = {}
        for domain in sorted({int(numbers[n]) for n in self.data.nodes} - {-1}):
            members = self._members(level, domain)
            wanted = [(self.pods(item, p, members), one.parts[p].count) for p in parts]
            if all(sum(self.rows.bounds[v][1] for v in terms) >= count for terms, count in wanted):
                found[domain] = self.rows.boolean()
                for terms, count in wanted:
                    self.rows.row({**terms, found[domain]: -count}, low=0)
        self._choices[key] = found
        return found

    def _members(self, level: int | None, domain: int) -> list[int]:
        if level is None:
            return []
        numbers = self.data.board.frame.domains[level]
        return [n for n in self.data.nodes if int(numbers[n]) == domain]

    # Nodes

    def _capacity(self) -> None:
        data = self.data
        self._fit(data.now, [i for i, item in enumerate(data.items) if not item.bound], victims=False)
        if data.two_sheets:
            self._fit(data.later, range(len(data.items)), victims=True)

    def _fit(self, free: Matrix, items: Sequence[int], *, victims: bool) -> None:
        asked: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        for i in items:
            for p, part in enumerate(self.data.items[i].parts):
                for node in self.data.nodes:
                    if (i, p, node) in self.x:
                        for column, amount in _needs(part):
                            asked[node, column][self.x[i, p, node]] = amount
        frees = self.frees() if victims else {}
        for (node, column), terms in asked.items():
            have = int(free[node, column])
            if sum(amount * self.rows.bounds[v][1] for v, amount in terms.items()) <= have:
                continue
            row = dict(terms)
            for uid, amount in frees.get((node, column), ()):
                row.update(self.gone(uid, times=-amount))
            if have < 0:  # others overfill the node: that binds only who goes there
                used = self.rows.boolean()
                for variable in terms:
                    self.rows.row({variable: 1, used: -self.rows.bounds[variable][1]}, high=0)
                row[used] = -have
                have = 0
            self.rows.row(row, high=have)

    def frees(self) -> Mapping[tuple[int, int], list[tuple[str, int]]]:
        """What victims leave at most, by node and column."""
        found: dict[tuple[int, int], list[tuple[str, int]]] = defaultdict(list)
        for uid, candidate in self.data.victims().items():
            for node, row in candidate.hold.rows.items():  # at most; see `checks`
                for column, amount in enumerate(row.tolist()):
                    if amount:
                        found[node, column].append((uid, amount))
        return found

    # Queues

    def _quota(self) -> None:
        """Use within limits with the victims gone. The items are in the use already, but for the bound ones."""
        if not self.data.two_sheets:
            return
        book, usage = self.data.board.book, self.data.board.later.usage.copy()
        for item in self.data.items:
            if item.bound:
                usage.add(item.workload.queue, item.charge)
        done = set()
        for item in self.data.items:
            for queue in book.lineage(item.workload.queue):
                for account in item.charge:
                    limit = book.limit(queue, account)
                    if limit is None or (queue, account) in done:
                        continue
                    done.add((queue, account))
                    over = usage.used(queue, account) - limit
                    if over > 0:
                        terms: dict[int, int] = {}
                        for uid, victim in self.data.victims().items():
                            below = queue in book.lineage(victim.hold.admitted.workload.queue)
                            if below and victim.hold.charge.get(account):
                                terms.update(self.gone(uid, times=victim.hold.charge[account]))
                        self.rows.row(terms, low=over)

    def _borrowers(self) -> None:
        """Where one account decides: what leaves a queue, but for the last and largest, keeps it above its
        guarantee."""
        lines: dict[tuple[str, Account], dict[int, int]] = defaultdict(dict)
        for item in self.data.items:
            for candidate in item.candidates:
                if candidate.lines is not None and len(candidate.lines) == 1:
                    account, queues = candidate.lines[0]
                    for queue in queues:
                        amount = candidate.hold.charge[account]
                        lines[queue, account][self.evicted(candidate, item)] = amount
        for (queue, account), terms in lines.items():
            guaranteed = self.data.board.book.guaranteed(queue, account)
            above = self.data.line.used(queue, account) - guaranteed
            if above <= 0:
                self.rows.row(dict.fromkeys(terms, 1), high=0)
            else:
                self.rows.row(terms, high=above - 1 + max(terms.values()))

    def items(self) -> Iterator[tuple[int, Item]]:
        """Items by number."""
        return enumerate(self.data.items)


def _needs(part: Part) -> list[tuple[int, int]]:
    return list(zip(part.need.columns.tolist(), part.need.amounts.tolist(), strict=True))

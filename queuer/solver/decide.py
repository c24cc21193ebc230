"""`decide()`: from a snapshot to a plan, without I/O, clock or chance (DESIGN 4).

Bonds and reservations that stand are put on the board; then the tournament gives each gang its turn; then
what was chosen is pinned and what was refused is explained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from queuer.domain.queue import QueueState
from queuer.domain.reasons import Explanation, Token
from queuer.domain.workload import Workload
from queuer.solver import bonds
from queuer.solver.board import Board
from queuer.solver.contested import Rearranger, Variant
from queuer.solver.explain import Explainer, behind, simple
from queuer.solver.greedy import Block, Chosen, Greedy, Refusal, assignments
from queuer.solver.order import Gang, Shape, Tournament
from queuer.solver.pins import Pinner
from queuer.solver.problem import (
    Bond,
    Budget,
    CycleStats,
    Eviction,
    Pending,
    Plan,
    Snapshot,
    SolveStatus,
)
from queuer.solver.reserve import Reserver
from queuer.solver.score import allowed_flavors

VARIANTS = 64
"""Combinations of flavors over pod sets that are considered for one gang."""


def decide(
    snapshot: Snapshot, *, now: float, seed: int, budget: Budget, rearranger: Rearranger | None = None
) -> Plan:
    """The plan for this moment. The same arguments give the same plan.

    `rearranger`: the exact solver for contested gangs; None, or no deterministic budget = greedy only.
    """
    return _Decision(snapshot, now=now, seed=seed, budget=budget, rearranger=rearranger).run()


class _Decision:
    def __init__(
        self, snapshot: Snapshot, *, now: float, seed: int, budget: Budget, rearranger: Rearranger | None
    ) -> None:
        self._snapshot = snapshot
        self._now = now
        self._seed = seed
        self._budget = budget
        self._rearranger = rearranger
        self._board = Board(snapshot, now=now)
        self._greedy = Greedy(self._board)
        self._explainer = Explainer(self._board)
        self._shapes: dict[object, Shape] = {}
        self._explanations: dict[str, Explanation] = {}
        self._order: list[str] = []

    def run(self) -> Plan:
        """Everything in its order."""
        gangs = self._offered()
        standing = bonds.resume(self._greedy, gangs)
        self._reserver = Reserver(self._greedy)
        self._reserver.resume({uid: g for uid, g in gangs.items() if uid not in standing})
        settled = set(self._greedy.chosen) | set(standing)
        waiting = [g for uid, g in gangs.items() if uid not in settled]
        self._order += [uid for uid in gangs if uid in settled]
        tournament = Tournament(self._snapshot.tree, waiting, self._board)
        refused = self._play(tournament)
        for gang in waiting:
            if gang.uid not in self._greedy.chosen and gang.uid not in refused:
                self._order.append(gang.uid)
                head = tournament.passed_over[gang.queue]
                reason = behind(head, f"is first in {gang.queue}, whose order is strict, and waits")
                self._explanations[gang.uid] = Explanation(primary=reason)
        for uid, (gang, refusal) in refused.items():
            self._explanations[uid] = self._explainer.refused(gang, refusal)
        return self._plan(standing)

    def _play(self, tournament: Tournament) -> dict[str, tuple[Gang, Refusal]]:
        refused: dict[str, tuple[Gang, Refusal]] = {}
        while (gang := tournament.next()) is not None:
            self._order.append(gang.uid)
            answer = self._greedy.turn(gang)
            if isinstance(answer, Refusal):
                refused[gang.uid] = (gang, answer)
                if _by_capacity(answer):
                    self._reserver.consider(gang)
            elif not answer.bound:
                self._reserver.started(gang.uid)
            tournament.done(gang, settled=isinstance(answer, Chosen))
        return refused

    # Who is offered

    def _offered(self) -> dict[str, Gang]:
        """Gangs that take part, by uid; the others are explained at once."""
        gangs: dict[str, Gang] = {}
        for pending in self._snapshot.pending:
            workload = pending.workload
            aside = self._aside(workload)
            if aside is not None:
                self._explanations[workload.uid] = aside
                self._order.append(workload.uid)
            else:
                gangs[workload.uid] = Gang(pending, self._shape(pending))
        return gangs

    def _aside(self, workload: Workload) -> Explanation | None:
        tree = self._snapshot.tree
        if workload.queue not in tree or not tree.is_leaf(workload.queue):
            near = tree.nearest(workload.queue)
            hint = f"; nearest: {', '.join(near)}" if near else ""
            text = f"{workload.queue} is not a queue that takes jobs{hint}."
            return simple(Token.MISCONFIGURED, text, {"queue": workload.queue, "nearest": list(near)})
        if workload.hold:
            return simple(Token.ON_HOLD, "The job is on hold.")
        state = tree.effective_state(workload.queue)
        if state is not QueueState.OPEN:
            return simple(Token.SUSPENDED, f"{workload.queue} is {state}.", {"queue": workload.queue})
        for pod_set in (None, *workload.pod_sets):
            level = workload.required if pod_set is None else pod_set.required
            if level is not None and self._snapshot.topology.find(level) is None:
                known = ", ".join(self._snapshot.topology.levels)
                return simple(
                    Token.MISCONFIGURED,
                    f"There is no topology level {level}; levels: {known}.",
                    {"level": level},
                )
        return None

    def _shape(self, pending: Pending) -> Shape:
        workload = pending.workload
        key = _shape_key(workload)
        if key not in self._shapes:
            self._shapes[key] = self._new_shape(workload)
        return self._shapes[key]

    def _new_shape(self, workload: Workload) -> Shape:
        counts = {p.name: p.count for p in workload.pod_sets}
        choices = []
        for pod_set in workload.pod_sets:
            allowed = allowed_flavors(
                pod_set, queue=workload.queue, tree=self._snapshot.tree, flavors=self._snapshot.flavors
            )
            choices.append(
                [f for f in allowed if bool(self._board.frame.open_to(pod_set, f, idle=True).any())]
            )
        variants: list[Variant] = []
        for names in product(*choices):
            flavors = dict(zip(counts, names, strict=True))
            variants.append(Variant(flavors=flavors, counts=counts))
            if len(variants) == VARIANTS:
                break
        return Shape(
            number=len(self._shapes),
            variants=tuple(variants),
            charges=tuple(self._board.charge(workload, v.flavors, v.counts) for v in variants),
            least={p.name: p.count if p.min_count is None else p.min_count for p in workload.pod_sets},
            flavors=frozenset(name for names in choices for name in names),
        )

    # The plan

    def _unlanded(self, late: Sequence[Chosen]) -> list[tuple[str, Bond]]:
        """Bonds whose gang would start now but for others that are landing: they stand."""
        uids = {one.gang.uid for one in late}
        return [(bond.uid, bond) for bond in self._snapshot.bonds if bond.uid in uids]

    def _plan(self, standing: Mapping[str, Bond]) -> Plan:
        workloads = {p.workload.uid: p.workload for p in self._snapshot.pending}
        evictions: list[Eviction] = []
        bound = dict(standing)
        for uid, chosen in self._greedy.chosen.items():
            if chosen.bound:
                victims = tuple(e.uid for e in chosen.evictions)
                deadline = self._now + self._budget.bond
                rows = assignments(self._board, chosen)
                bound[uid] = Bond(uid=uid, assignments=rows, victims=victims, deadline=deadline)
                evictions += chosen.evictions
        pinner = Pinner(self._board, {uid: (workloads[uid], bond) for uid, bond in bound.items()})
        admissions, late = pinner.settle(c for c in self._greedy.chosen.values() if not c.bound)
        for one in late:
            self._explanations[one.gang.uid] = _later()
        bound = {
            uid: replace(bond, assignments=pinner.to_hosts(workloads[uid], bond.assignments))
            for uid, bond in (*bound.items(), *self._unlanded(late))
        }
        for bond in bound.values():
            self._explanations[bond.uid] = _bound(bond)
        counts = self._greedy.counts
        return Plan(
            admissions=tuple(admissions),
            evictions=tuple(evictions),
            bonds=tuple(bound.values()),
            reservations=tuple(self._reserver.held.values()),
            explanations=self._explanations,
            order=tuple(self._order),
            stats=CycleStats(
                status=SolveStatus.GREEDY,
                considered=len(self._order),
                contested=counts.contested,
                rearranged=counts.rearranged,
                proved=counts.proved,
                deferred=counts.deferred,
            ),
        )


def _later() -> Explanation:
    text = "Its hosts overlap with those of gangs that are landing; it starts when they have landed."
    return simple(Token.PENDING_EVALUATION, text)


def _by_capacity(refusal: Refusal) -> bool:
    """Whether nodes alone are in the way: no place, or the live capacity as root's limit."""
    if refusal.block is Block.QUOTA:
        return refusal.shortfall is not None and refusal.shortfall.live
    return refusal.block in (Block.PLACE, Block.DEFERRED, Block.RESERVED)


def _bound(bond: Bond) -> Explanation:
    hosts = sorted({name for row in bond.assignments for name in row.nodes})
    text = (
        f"{len(hosts)} nodes are held for it; it starts when {len(bond.victims)} evicted workloads have left."
    )
    return simple(
        Token.WAITING_FOR_PREEMPTED_WORKLOADS,
        text,
        {"victims": list(bond.victims), "hosts": hosts, "deadline": bond.deadline},
    )


def _shape_key(workload: Workload) -> object:
    return (
        workload.queue,
        workload.required,
        workload.preferred,
        tuple(
            (
                p.name,
                p.count,
                p.min_count,
                tuple(sorted(p.requests.items())),
                tuple(sorted(p.terms.node_selector.items())),
                p.terms.tolerations,
                p.terms.affinity,
                p.exclusive_host,
                p.required,
                p.preferred,
            )
            for p in workload.pod_sets
        ),
    )

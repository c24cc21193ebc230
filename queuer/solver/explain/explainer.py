"""One primary reason for every gang that waits, with numbers, and the others that hold (DESIGN 4).

Sentences name the queue and the amounts, or the best domain and what it lacks. Amounts are Kubernetes quantities. Gangs
of one queue and shape that were refused alike share one explanation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from queuer.domain.quantity import format_resources
from queuer.domain.queue import ROOT
from queuer.domain.quota import Charge, Shortfall
from queuer.domain.reasons import Exclusion, Explanation, Reason, Token
from queuer.domain.workload import Workload
from queuer.solver.board import Board
from queuer.solver.contested import Variant
from queuer.solver.explain.advice import Advisor
from queuer.solver.explain.holders import Holders
from queuer.solver.explain.place import Closest, PlaceWords
from queuer.solver.explain.quota import QuotaWords
from queuer.solver.explain.reclaim import ReclaimWords
from queuer.solver.greedy import Greedy
from queuer.solver.horizon import Horizon
from queuer.solver.order import Gang
from queuer.solver.outcome import Block, Refusal
from queuer.solver.problem import Bond

FLAVORS = 4
"""Of how many flavors an explanation tells what is free."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Kind:
    """What gangs of one form and choice of flavors share, whatever their queues. `need`: what they ask for by pod set;
    `resources`: that they name; `flavors`: the first that they may use; `never`: why no queue could ever start them;
    `has_options`: whether a change of theirs is worth trying.
    """

    need: list[dict[str, Any]]
    resources: tuple[str, ...]
    flavors: tuple[str, ...]
    never: Reason | None
    has_options: bool


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Around:
    """What the nodes lack for gangs that placement cannot tell apart, reservations aside (None: nothing), and the parts
    of the explanation about nodes.
    """

    lack: Reason | None
    detail: Mapping[str, Any]


class InTheWay(NamedTuple):
    """Rows of quota in a gang's way, who holds what the first of them lacks, and that row."""

    reasons: tuple[Reason, ...]
    holders: list[Mapping[str, Any]]
    first: Shortfall | None


class Alike(NamedTuple):
    """Gangs of one queue and shape: their kind, and explanations so far by all that may still differ."""

    kind: Kind
    known: dict[object, Explanation]


class Explainer:
    """Words for the refusals of one cycle, on the board as it is once all have had their turns."""

    def __init__(self, board: Board, greedy: Greedy, *, put_off: frozenset[str] = frozenset()) -> None:
        """`put_off`: uids of what was settled and does not start in this cycle after all."""
        self._board = board
        self._greedy = greedy
        self._quota = QuotaWords(board)
        self._place = PlaceWords(board)
        self._who = Holders(greedy, put_off)
        self._reclaim = ReclaimWords(board, self._quota, self._place)
        self._advisor = Advisor(greedy, self._quota, self._place)
        self._alike: dict[int, Alike] = {}
        self._kinds: dict[object, Kind] = {}
        self._at_root: dict[object, InTheWay] = {}
        self._around: dict[object, Around] = {}
        self._reserved = False  # somebody so far was refused for a reservation
        self._binding: dict[tuple[int, int], tuple[Horizon, ...]] = {}

    def refused(self, gang: Gang, refusal: Refusal) -> Explanation:
        """Why a gang that had its turn waits. To be asked in the order of turns."""
        alike, variant = self._alike.get(gang.shape.number) or self._meet(gang), refusal.variant
        bars: tuple[str, ...] = ()
        if self._board.horizons and (alike.kind.has_options or refusal.bar is None):
            bars = self._bars(gang)
        key = (
            id(refusal.block),  # hashing a member takes longer than all the rest
            () if variant is None else tuple(variant.flavors.values()),
            refusal.bar is None,
            refusal.owner,
            refusal.others,
            refusal.packed and (refusal.packed, gang.pending.workload.priority),
            gang.pending.workload.preemptible,
            gang.pending.avoid,
            bars,
            not gang.pending.workload.preemptible and self._advisor.waits_behind(gang),
            unsure := self._advisor.is_unsure(gang, others=self._reserved),
        )
        self._reserved |= refusal.block in (Block.RESERVED, Block.DEFERRED)
        known = alike.known.get(key)
        if known is None:
            known = alike.known[key] = self._explain(gang, alike.kind, refusal, bars, unsure=unsure)
        return known

    def _explain(
        self, gang: Gang, kind: Kind, refusal: Refusal, bars: tuple[str, ...], *, unsure: bool
    ) -> Explanation:
        alone = self._only_root(gang)
        if not (alone and kind.never is None) and (never := self._find_never(gang, gang.queue)) is not None:
            return Explanation(primary=never, detail={"need": kind.need})
        detail: dict[str, Any] = {"need": kind.need}
        if refusal.block is not Block.LANDING:
            detail["available"] = self._quota.available(gang.queue, kind.flavors, kind.resources)
        reasons, parts = self._reasons(gang, refusal, bars, alone=alone)
        if refusal.packed is not None:
            reasons = (_outdone(gang, refusal.packed), *reasons)
        owed = refusal.block is Block.ENTITLEMENT
        if not owed and (small := self._quota.never_entitled(gang)) is not None:
            owed, reasons = True, (small, *reasons)
        advice: tuple[Mapping[str, Any], ...] = ()
        if owed and refusal.variant is not None and not unsure:
            advice = self._advisor.would_entitle(gang, *self._least(gang, refusal.variant))
        elif kind.has_options and refusal.block in (Block.PLACE, Block.DEFERRED, Block.QUOTA) and not unsure:
            advice = self._advisor.would_admit(gang)
        return Explanation(
            primary=reasons[0], others=reasons[1:], would_admit=advice, detail={**detail, **parts}
        )

    def _reasons(
        self, gang: Gang, refusal: Refusal, bars: tuple[str, ...], *, alone: bool
    ) -> tuple[tuple[Reason, ...], Mapping[str, Any]]:
        """What refused it at its turn, the primary reason first, and the parts of the explanation about that."""
        variant, block = refusal.variant, refusal.block
        if block is Block.LANDING:
            return (_LANDING,), {}
        if variant is None:
            return (self._place.nowhere(gang.pending.workload),), {}
        if block is Block.ENTITLEMENT:
            return (self._quota.entitlement(gang, self._least(gang, variant)[1]) or _GIVEN_BACK,), {}
        if _is_quota(refusal):
            rows = self._rows(gang, variant, alone=alone)
            reasons, parts = rows.reasons, {"holders": rows.holders}
            reasons = (*self._guaranteed(gang, refusal, reasons, rows.first), *reasons)
        else:
            around = self._nodes(gang, variant, bars, owner=refusal.owner)
            reasons, parts = self._no_place(refusal, bars, around.lack), dict(around.detail)
            reasons = (*self._guaranteed(gang, refusal, reasons, None), *reasons)
        if block is Block.DEFERRED:
            reasons = (_NOT_ITS_OWN if refusal.others else _DEFERRED, *reasons)
        return reasons, parts

    def _no_place(self, refusal: Refusal, bars: Sequence[str], lack: Reason | None) -> tuple[Reason, ...]:
        """A reservation that is in the way, or what nodes lack. Either may be gone since its turn."""
        lacks = () if lack is None else (lack,)
        owner = refusal.owner if refusal.owner in bars else None
        if lack is None and owner is None:
            owner = next(iter(bars), None)
        if refusal.block is Block.DEFERRED:
            return lacks
        if owner is not None:
            nodes = len(self._board.horizons[owner].nodes)
            why = f"holds a reservation of {nodes} {'node' if nodes == 1 else 'nodes'} that this job would break"
            return (behind(self._waiting(owner), why), *lacks)
        return lacks or (_MADE_ROOM,)

    def _meet(self, gang: Gang) -> Alike:
        """The first of a queue and shape."""
        shape = gang.shape
        key = (shape.form, tuple([tuple(v.flavors.values()) for v in shape.variants]))
        if key not in self._kinds:
            self._kinds[key] = self._new_kind(gang)
        alike = self._alike[shape.number] = Alike(self._kinds[key], {})
        return alike

    def _new_kind(self, gang: Gang) -> Kind:
        workload = gang.pending.workload
        need = []
        for pod_set in workload.pod_sets:
            row: dict[str, Any] = {"podset": pod_set.name, "count": pod_set.count}
            row["per"] = format_resources(pod_set.requests)
            level = pod_set.required or workload.required
            need.append({**row, "level": level} if level else row)
        asked = {r for p in workload.pod_sets for r, n in p.requests.items() if n and r != "pods"}
        flavors = dict.fromkeys(f for v in gang.shape.variants for f in v.flavors.values())
        return Kind(
            need=need,
            resources=tuple(sorted(asked)),
            flavors=tuple(flavors)[:FLAVORS],
            never=self._find_never(gang, ROOT) if gang.shape.variants else None,
            has_options=bool(gang.pending.avoid) or self._advisor.has_options(gang),
        )

    def _least(self, gang: Gang, variant: Variant) -> tuple[Variant, Charge]:
        """The variant at the gang's smallest size, with its charge."""
        return next(found for found in gang.shape.smallest if found[0].flavors == variant.flavors)

    # Quota

    def _only_root(self, gang: Gang) -> bool:
        """Whether no row below root can be in the way of any choice of flavors."""
        for _, charge in gang.shape.smallest:
            if not self._quota.only_root(gang.queue, charge):
                return False
        return bool(gang.shape.variants)

    def _rows(self, gang: Gang, variant: Variant, *, alone: bool) -> InTheWay:
        """The rows in the way. `alone`: none below root is."""
        if not alone:
            return self._told(gang, self._quota.shortfalls(gang.queue, self._least(gang, variant)[1]))
        kind = (gang.shape.form, *variant.flavors.values())
        if kind not in self._at_root:
            short = self._quota.shortfalls(ROOT, self._least(gang, variant)[1])
            self._at_root[kind] = self._told(gang, short)
        return self._at_root[kind]

    def _told(self, gang: Gang, short: Sequence[Shortfall]) -> InTheWay:
        if not short:
            return InTheWay((_GIVEN_BACK,), [], None)
        reasons = tuple(self._quota.reason(gang, row) for row in short)
        return InTheWay(reasons, self._in_the_way(short[0]), short[0])

    def _in_the_way(self, short: Shortfall) -> list[Mapping[str, Any]]:
        """Who holds most of what a row counts."""
        return list(self._who.in_queue(short.queue, short.account, self._quota.counts_held(short)))

    def _guaranteed(
        self, gang: Gang, refusal: Refusal, told: Sequence[Reason], short: Shortfall | None
    ) -> tuple[Reason, ...]:
        """What comes first for a gang inside its guarantee. `told`: what it is told without this."""
        quota, place = refusal.block is Block.QUOTA, refusal.block is Block.PLACE
        if refusal.variant is None or not (
            (quota and short is not None) or (place and told[0].token is Token.TOPOLOGY_PLACEMENT_FAILED)
        ):
            return ()
        least, charge = self._least(gang, refusal.variant)
        found = self._reclaim.reason(gang, least, charge, token=told[0].token, short=short)
        return () if found is None else (found,)

    # Nodes

    def _bars(self, gang: Gang) -> tuple[str, ...]:
        """Owners of the reservations that the gang must leave whole."""
        workload = gang.pending.workload
        key = (gang.shape.number, workload.priority)
        if key not in self._binding:
            rank = self._rank(gang)
            self._binding[key] = tuple(h for h in self._board.horizons.values() if rank <= h.rank)
        return tuple([h.uid for h in self._binding[key] if self._board.binds(h, workload, rank=h.rank)])

    def _rank(self, gang: Gang) -> tuple[bool, int]:
        charges = gang.shape.charges
        return (
            bool(charges) and self._quota.entitled(gang.queue, charges[0]),
            gang.pending.workload.priority,
        )

    def _nodes(self, gang: Gang, variant: Variant, bars: tuple[str, ...], *, owner: str | None) -> Around:
        avoid = gang.pending.avoid
        key = (gang.shape.form, *variant.flavors.values(), avoid, bars, owner)
        if key not in self._around:
            job, least = gang.pending.workload, replace(variant, counts=gang.shape.least)
            closest = self._place.closest(job, least, avoid)
            if closest is None:
                return Around(lack=self._place.nowhere(job), detail={})
            lack = self._place.shut(job, least, avoid)
            if lack is None and (
                closest.missing or not self._place.fits(job, least, avoid, form=gang.shape.form)
            ):
                lack = self._place.lack(closest)
            behind_them = self._board.floor_now(job, rank=self._rank(gang)).free if bars else None
            flavor = variant.flavors[closest.part.name]
            excluded = self._place.excluded(closest, flavor, avoid, behind_them)
            kept = any(cause["why"] == Exclusion.RESERVED for cause in excluded["by"])
            holders = self._holders(closest, bars if kept else (owner,) if owner else ())
            self._around[key] = Around(lack=lack, detail={"excluded": excluded, "holders": holders})
        return self._around[key]

    def _holders(self, closest: Closest, reservations: Iterable[str]) -> list[Mapping[str, Any]]:
        """Reservations that keep nodes from it, and who holds most of what is scarce where it comes closest."""
        found: list[Mapping[str, Any]] = []
        for uid in reservations:
            if uid in self._board.horizons:  # it may have ended since the gang's turn
                owner, starts = self._waiting(uid), self._board.horizons[uid].start
                name = {"name": owner.name, "namespace": owner.namespace}
                found.append({"reservation": uid, **name, "starts": starts})
        scarce = self._place.scarce(closest)
        if scarce is not None and closest.at is None:
            found += self._who.in_queue(ROOT, (None, scarce), bool(self._board.bound))
        elif scarce is not None:
            found += self._who.on_nodes(self._place.nodes(closest), scarce)
        return found

    def _waiting(self, uid: str) -> Workload:
        """The owner of a reservation."""
        return self._board.arrays.offers.gangs[uid].pending.workload

    # Never

    def _find_never(self, gang: Gang, queue: str) -> Reason | None:
        """By the limits on the path of this queue."""
        workload, shape = gang.pending.workload, gang.shape
        reason: Reason | None = self._no_level(workload) or self._place.nowhere(workload)
        if reason is not None and reason.token is Token.MISCONFIGURED:
            return reason
        for least, charge in shape.smallest:
            over = self._quota.over(gang, queue, charge)
            if over is None and self._place.fits(workload, least, frozenset(), form=shape.form, idle=True):
                return None
            reason = over or self._too_large(workload, least)
        return reason

    def _no_level(self, workload: Workload) -> Reason | None:
        """A required level that the topology does not have."""
        topology = self._board.snapshot.topology
        for level in (workload.required, *(p.required for p in workload.pod_sets)):
            if level is not None and topology.find(level) is None:
                known = ", ".join(topology.levels)
                text = f"There is no topology level {level}; levels: {known}."
                return Reason(token=Token.MISCONFIGURED, text=text, params={"level": level})
        return None

    def _too_large(self, workload: Workload, variant: Variant) -> Reason:
        """Larger than any domain could ever hold. New or relabelled nodes would help, so it waits."""
        closest = self._place.closest(workload, variant, frozenset(), idle=True)
        return self._place.nowhere(workload) if closest is None else self._place.lack(closest)

    # Gangs that were not refused

    @staticmethod
    def put_off() -> Explanation:
        """It could start, but not beside those that start in this cycle."""
        return Explanation(primary=_LANDING)

    @staticmethod
    def bound(bond: Bond) -> Explanation:
        """Its place is held while victims leave: its own, or those of others that make room enough for it too."""
        hosts = sorted({name for row in bond.assignments for name in row.nodes})
        nodes = "1 node is" if len(hosts) == 1 else f"{len(hosts)} nodes are"
        match len(bond.victims):
            case 0:
                starts = "in room that workloads evicted for other jobs leave"
            case 1:
                starts = "when 1 evicted workload has left"
            case several:
                starts = f"when {several} evicted workloads have left"
        text = f"{nodes} held for it; it starts {starts}."
        params = {"victims": list(bond.victims), "hosts": hosts, "deadline": bond.deadline}
        return simple(Token.WAITING_FOR_PREEMPTED_WORKLOADS, text, params)


def behind(owner: Workload, why: str) -> Reason:
    """Another gang goes first."""
    params = {"owner": owner.uid, "name": owner.name, "namespace": owner.namespace}
    return Reason(token=Token.BEHIND_IN_QUEUE, text=f"{owner.namespace}/{owner.name} {why}.", params=params)


def _outdone(gang: Gang, root: str) -> Reason:
    """Others of its priority ask for more together."""
    priority = gang.pending.workload.priority
    text = f"{root} is packed: among jobs of priority {priority} those start that ask for most together, "
    text += "and beside them no room for this one was found."
    return Reason(token=Token.BEHIND_IN_QUEUE, text=text, params={"queue": root, "priority": priority})


def simple(token: Token, text: str, params: Mapping[str, Any] | None = None) -> Explanation:
    """An explanation that is its primary reason alone."""
    return Explanation(primary=Reason(token=token, text=text, params=params or {}))


def _is_quota(refusal: Refusal) -> bool:
    """Whether rows of quota are in the way."""
    return refusal.block is Block.QUOTA or (refusal.block is Block.DEFERRED and refusal.bar is not None)


_PLACES = (Block.PLACE, Block.RESERVED, Block.DEFERRED)
_GIVEN_BACK = Reason(
    token=Token.PENDING_EVALUATION,
    text="Quota that it needed at its turn has been given back in this cycle; the next cycle decides.",
)
_MADE_ROOM = Reason(
    token=Token.PENDING_EVALUATION,
    text="Room that it needed at its turn has been given back in this cycle; the next cycle decides.",
)
_DEFERRED = Reason(
    token=Token.SOLVER_DEFERRED,
    text="In this cycle neither a place for this job was found nor a proof that there is none; the next one tries"
    " again.",
)
_NOT_ITS_OWN = Reason(
    token=Token.SOLVER_DEFERRED,
    text="None of the work that it may evict would make room for it. Whether jobs before it could have evicted other"
    " work instead was not worked out in this cycle; the next one tries again.",
)
_LANDING = Reason(
    token=Token.PENDING_EVALUATION,
    text="There is room for it, but other jobs are landing on those nodes and could take its place; it is tried again"
    " when they have landed.",
)

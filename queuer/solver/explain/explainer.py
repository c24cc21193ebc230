"""One primary reason for every gang that waits, with numbers, and the others that hold (DESIGN 4).

Sentences name the queue and the amounts, or the best domain and what it lacks. Amounts are Kubernetes quantities. Gangs
of one queue and shape that were refused alike share one explanation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

from queuer.domain.quantity import format_resources
from queuer.domain.queue import ROOT
from queuer.domain.quota import Account, Charge, Shortfall
from queuer.domain.reasons import Deferral, Explanation, Protected, Reason, Token
from queuer.domain.workload import Workload
from queuer.solver import floors
from queuer.solver.board import Board
from queuer.solver.contested import Variant
from queuer.solver.explain import sentences
from queuer.solver.explain.advice import Advisor
from queuer.solver.explain.around import Surroundings
from queuer.solver.explain.holders import Holders
from queuer.solver.explain.never import Never
from queuer.solver.explain.place import NOBODY_BEFORE, PlaceWords
from queuer.solver.explain.quota import QuotaWords, smallest
from queuer.solver.explain.reclaim import ReclaimWords
from queuer.solver.explain.spared import Spared
from queuer.solver.explain.young import Young
from queuer.solver.greedy import Greedy, nearest
from queuer.solver.order import Gang
from queuer.solver.outcome import Block, Chosen, Refusal

FLAVORS = 4
"""Of how many flavors an explanation tells what is free."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Kind:
    """What gangs of one form and choice of flavors share, whatever their queues. `need`: what they ask for by pod set;
    `resources`: that they name; `flavors`: the first that they may use; `has_options`: whether a change
    of theirs is worth trying.
    """

    need: list[dict[str, Any]]
    resources: tuple[str, ...]
    flavors: tuple[str, ...]
    has_options: bool


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
        self._around = Surroundings(greedy, self._quota, self._place, self._who)
        self._never = Never(board, self._quota, self._place)
        self._reclaim = ReclaimWords(board, greedy.prey, self._quota, self._place)
        self._advisor = Advisor(greedy, self._quota, self._place)
        self._spared = Spared(greedy, self._quota, self._place)
        self._young = Young(greedy, self._quota, self._place)
        self._borrowing = cache(self._find_borrowing)
        self._alike: dict[int, Alike] = {}
        # By likeness and refusal, where no change is advised and no reservation told of: nothing else matters.
        self._likewise: dict[tuple[int, int], Explanation] = {}
        self._kinds: dict[int, Kind] = {}
        self._nevers: dict[tuple[int, bool], Reason | None] = {}
        self._at_root: dict[object, InTheWay] = {}
        self._before = set[str]()  # flavors of those so far whom nodes kept from starting

    def refused(self, gang: Gang, refusal: Refusal) -> Explanation:
        """Why a gang that had its turn waits. To be asked in the order of turns."""
        likewise = (gang.likeness, id(refusal))  # all refusals are kept while they are told
        known = self._likewise.get(likewise)
        if known is None:
            alike = self._alike.get(gang.shape.number) or self._meet(gang)
            known = self._as_others(gang, alike, refusal)
            advised = alike.kind.has_options or not gang.pending.workload.preemptible
            if not advised and refusal.bar is not None:
                self._likewise[likewise] = known
        if self._advisor.standing and (refusal.block in _BY_NODES or self._greedy.sought(gang.uid)):
            self._before |= gang.shape.flavors
        return known

    def _as_others(self, gang: Gang, alike: Alike, refusal: Refusal) -> Explanation:
        """What is told to all of its queue and shape whom nothing tells apart from it."""
        pending, variant, has_options = gang.pending, refusal.variant, alike.kind.has_options
        preemptible = pending.workload.preemptible
        bars: tuple[str, ...] = ()
        if variant is not None and self._board.horizons and (has_options or refusal.bar is None):
            bars = self._around.bars(gang, variant)
        key = (
            id(refusal.block),  # hashing a member takes longer than all the rest
            () if variant is None else tuple(variant.flavors.values()),
            refusal.bar is None,
            refusal.owners,
            refusal.others,
            refusal.cause,
            refusal.packed and (refusal.packed, pending.workload.priority),
            preemptible,
            pending.avoid,
            bars,
            not preemptible and self._advisor.waits_behind(gang),
            self._around.reserved(gang) if has_options else (),
            unsure := self._advisor.is_unsure(gang, before=self._before),
            refusal.kept,
            len(self._since(gang, refusal)),
            spares := self._spared.names(gang, refusal) if pending.displaced_by else (),
            young := self._young.find(gang, refusal),
        )
        known = alike.known.get(key)
        if known is None:
            known = alike.known[key] = self._explain(
                gang, alike.kind, refusal, bars, unsure=unsure, spares=spares, young=young
            )
        return known

    def held_up(self, gang: Gang, behind: Reason) -> Explanation:
        """Why a gang waits that had no turn, as it is `behind` another one of a strict queue. That it could never start
        by itself comes first, or its owner would learn it only when it is its turn.
        """
        alike = (gang.shape.number, gang.pending.workload.preemptible)
        if alike not in self._nevers:
            self._nevers[alike] = self._never.find(gang) or self._quota.never_entitled(gang)
        never = self._nevers[alike]
        if never is None:
            return Explanation(primary=behind)
        need = self._need(gang.pending.workload)
        return Explanation(primary=never, others=(behind,), detail={"need": need})

    def _explain(
        self,
        gang: Gang,
        kind: Kind,
        refusal: Refusal,
        bars: tuple[str, ...],
        *,
        unsure: bool,
        spares: Sequence[str],
        young: Protected | None,
    ) -> Explanation:
        if (never := self._never.find(gang)) is not None:
            return Explanation(primary=never, detail={"need": kind.need})
        refusal = self._usable(gang, self._nearest_guarantee(gang, refusal))
        detail: dict[str, Any] = {"need": kind.need}
        if refusal.block is not Block.LANDING:
            detail["available"] = self._quota.available(gang.queue, kind.flavors, kind.resources)
        reasons, parts = self._reasons(gang, refusal, bars)
        if refusal.packed is not None:
            reasons = (sentences.outdone(gang.pending.workload.priority, refusal.packed), *reasons)
        owed = refusal.block is Block.ENTITLEMENT
        if not owed and (small := self._quota.never_entitled(gang)) is not None:
            owed, reasons = True, (small, *reasons)
        advice: tuple[Mapping[str, Any], ...] = ()
        if owed and refusal.variant is not None and not unsure:
            advice = self._advisor.would_entitle(gang, *smallest(gang, refusal.variant))
        elif kind.has_options and refusal.block in _CHANGEABLE and not unsure:
            advice = self._advisor.would_admit(gang)
        if self._greedy.awaiting:
            reasons = tuple([self._kept_from(gang, reason) for reason in reasons])
            kept = self._kept_elsewhere(gang, refusal) if refusal.kept else None
            if kept is not None and kept not in reasons:
                reasons = (kept, *reasons)
        primary, *others = reasons
        if spares:
            primary = sentences.sparing(primary, spares)
        if young is not None and primary.token in _LACKING:
            others.append(sentences.protected(primary.token, young))
        return Explanation(
            primary=primary, others=tuple(others), would_admit=advice, detail={**detail, **parts}
        )

    def _nearest_guarantee(self, gang: Gang, refusal: Refusal) -> Refusal:
        """Where it would borrow on each of its flavors and may not, the refusal of the first whose guarantee it could
        ever keep within.
        """
        if refusal.block is Block.ENTITLEMENT:
            for variant, charge in gang.shape.smallest:
                if self._quota.beyond_guarantee(gang, charge) is None:
                    return replace(refusal, variant=variant)
        return refusal

    def _usable(self, gang: Gang, refusal: Refusal) -> Refusal:
        """Where no node of its flavors can be used, the refusal of those that have some: that these are cordoned or not
        ready is nobody's reason to wait while others would do.
        """
        if refusal.variant is None or refusal.block not in _WITHOUT_PLACE:
            return refusal
        job, avoid = gang.pending.workload, gang.pending.avoid
        if self._place.shut(job, refusal.variant, avoid) is None:
            return refusal
        others: list[tuple[Refusal, Charge]] = []
        for variant, charge in gang.shape.smallest:
            if self._place.shut(job, variant, avoid) is None:
                row = self._greedy.quota_block(job, variant, charge, self._board.sheets())
                block, bar = (Block.PLACE, None) if row is None else (row.block, row.bar)
                others.append((replace(refusal, block=block, variant=variant, bar=bar), charge))
        if not others:
            return refusal
        told = nearest(others)
        return replace(told, block=refusal.block) if refusal.block is Block.DEFERRED else told

    def _kept_from(self, gang: Gang, reason: Reason) -> Reason:
        """What it lacked at its turn and is there now may be kept for a gang that awaits pods of the cycle before."""
        if reason is not sentences.MADE_ROOM and reason is not sentences.GIVEN_BACK:
            return reason
        for one in self._greedy.awaiting.values():
            if not gang.shape.flavors.isdisjoint(one.gang.shape.flavors):
                return sentences.kept_for(one.gang.pending.workload)
        return reason

    def _kept_elsewhere(self, gang: Gang, refusal: Refusal) -> Reason | None:
        """Other flavors than those of which it is told may be kept for a gang that awaits pods of the cycle before."""
        first, job = refusal.variant, gang.pending.workload
        if first is None or refusal.block is Block.LANDING:
            return None
        if any(self._around.bars(gang, variant) for variant, _ in gang.shape.smallest):
            return None
        landed = floors.landed(self._board, job, rank=NOBODY_BEFORE)
        for variant, charge in gang.shape.smallest:
            flavors, kept = set(variant.flavors.values()), self._greedy.awaiting.values()
            owner = next((one for one in kept if not flavors.isdisjoint(one.variant.flavors.values())), None)
            if (
                variant.flavors != first.flavors
                and owner is not None
                and self._greedy.quota_block(job, variant, charge, self._board.sheets()) is None
                and self._greedy.on(landed, gang, variant).spreads is not None
            ):
                return sentences.kept_for(owner.gang.pending.workload)
        return None

    def _since(self, gang: Gang, refusal: Refusal) -> Sequence[tuple[int, Chosen]]:
        """Who started after its turn and borrows what it has a claim to, see `_find_borrowing`; nobody where it is told
        nothing of what it may reclaim, so that there the explanation does not differ by the turn.
        """
        if refusal.variant is None or refusal.block not in _RECLAIMING:
            return ()
        claims = self._board.book.claims(gang.queue)
        starts = self._borrowing(claims) if claims else ()
        if not starts or starts[-1][0] < refusal.started or not self._quota.entitled(gang, refusal.variant):
            return ()
        return starts[bisect_left(starts, refusal.started, key=itemgetter(0)) :]

    def _find_borrowing(self, claims: frozenset[Account]) -> Sequence[tuple[int, Chosen]]:
        """Who started in this cycle and borrows in one of these accounts, after how many others."""
        board, line, found = self._board, self._board.line(), list[tuple[int, Chosen]]()
        for one in self._greedy.started():
            below_root, asked = board.book.lineage(one.gang.queue)[:-1], claims & one.charge.keys()
            if any(line.used(q, a) > board.book.guaranteed(q, a) for q in below_root for a in asked):
                found.append((self._greedy.starts[one.gang.uid], one))
        return sorted(found, key=itemgetter(0))

    def _reasons(
        self, gang: Gang, refusal: Refusal, bars: tuple[str, ...]
    ) -> tuple[tuple[Reason, ...], Mapping[str, Any]]:
        """What refused it at its turn, the primary reason first, and the parts of the explanation about that."""
        variant, block = refusal.variant, refusal.block
        if block is Block.LANDING:
            return (sentences.LANDING,), {}
        if variant is None:
            return (self._place.nowhere(gang.pending.workload),), {}
        if block is Block.ENTITLEMENT:
            return (self._quota.entitlement(gang, smallest(gang, variant)[1]) or sentences.GIVEN_BACK,), {}
        if _is_quota(refusal):
            rows = self._rows(gang, variant)
            reasons, parts = rows.reasons, {"holders": rows.holders}
            reasons = (*self._guaranteed(gang, refusal, reasons, rows.first), *reasons)
        else:
            around = self._around.of(gang, variant, bars, owners=refusal.owners)
            reasons, parts = self._around.no_place(gang, refusal, bars, around.lack), dict(around.detail)
            reasons = (*self._guaranteed(gang, refusal, reasons, None), *reasons)
        if block is Block.DEFERRED:
            cause = refusal.cause or Deferral.TIME
            reasons = (sentences.deferred(cause, others=refusal.others), *reasons)
        return reasons, parts

    def _meet(self, gang: Gang) -> Alike:
        """The first of a queue and shape."""
        shape = gang.shape
        if shape.choice not in self._kinds:
            self._kinds[shape.choice] = self._new_kind(gang)
        alike = self._alike[shape.number] = Alike(self._kinds[shape.choice], {})
        return alike

    def _new_kind(self, gang: Gang) -> Kind:
        workload = gang.pending.workload
        asked = {r for p in workload.pod_sets for r, n in p.requests.items() if n and r != "pods"}
        flavors = dict.fromkeys(f for v in gang.shape.variants for f in v.flavors.values())
        return Kind(
            need=self._need(workload),
            resources=tuple(sorted(asked)),
            flavors=tuple(flavors)[:FLAVORS],
            has_options=bool(gang.pending.avoid) or self._advisor.has_options(gang),
        )

    def _need(self, workload: Workload) -> list[dict[str, Any]]:
        """What it asks for by pod set."""
        need = []
        for pod_set in workload.pod_sets:
            row: dict[str, Any] = {"podset": pod_set.name, "count": pod_set.count}
            row["per"] = format_resources(pod_set.requests)
            level = self._place.narrower(workload.required, pod_set.required)
            need.append({**row, "level": level} if level else row)
        return need

    # Quota

    def _rows(self, gang: Gang, variant: Variant) -> InTheWay:
        """The rows in the way."""
        if not self._quota.only_root_bars(gang):
            return self._told(gang, self._quota.shortfalls(gang.queue, smallest(gang, variant)[1]))
        kind = (gang.shape.form, *variant.flavors.values())
        if kind not in self._at_root:
            short = self._quota.shortfalls(ROOT, smallest(gang, variant)[1])
            self._at_root[kind] = self._told(gang, short)
        return self._at_root[kind]

    def _told(self, gang: Gang, short: Sequence[Shortfall]) -> InTheWay:
        if not short:
            return InTheWay((sentences.GIVEN_BACK,), [], None)
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
        if (
            refusal.variant is None
            or not (
                (quota and short is not None) or (place and told[0].token is Token.TOPOLOGY_PLACEMENT_FAILED)
            )
            or not self._quota.entitled(gang, refusal.variant)
        ):
            return ()
        least, charge = smallest(gang, refusal.variant)
        since = [one for _, one in self._since(gang, refusal)]
        found = self._reclaim.reason(gang, least, charge, token=told[0].token, short=short, since=since)
        return () if found is None else (found,)


def _is_quota(refusal: Refusal) -> bool:
    """Whether rows of quota are in the way."""
    return refusal.block is Block.QUOTA or (refusal.block is Block.DEFERRED and refusal.bar is not None)


# Together, as to look up a member takes longer than to compare it.
_BY_NODES = (Block.PLACE, Block.RESERVED, Block.LANDING, Block.DEFERRED)
_RECLAIMING = (Block.QUOTA, Block.PLACE)
_LACKING = (Token.WAITING_FOR_QUOTA, Token.BORROWING_LIMIT_REACHED, Token.TOPOLOGY_PLACEMENT_FAILED)
_CHANGEABLE = (Block.PLACE, Block.DEFERRED, Block.QUOTA)
_WITHOUT_PLACE = (Block.PLACE, Block.DEFERRED)

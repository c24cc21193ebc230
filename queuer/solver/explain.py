"""One primary reason for every gang that waits, with numbers, and the others that hold (DESIGN 4).

Sentences name the queue and the amounts, or the best domain and what it lacks. Amounts are Kubernetes
quantities.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from queuer.domain.quantity import format_quantity, format_resources
from queuer.domain.queue import ROOT
from queuer.domain.quota import Charge, Shortfall
from queuer.domain.reasons import Explanation, Reason, Token
from queuer.domain.workload import Workload
from queuer.solver.advice import would_admit
from queuer.solver.board import Board
from queuer.solver.capacity import Part, parts_of
from queuer.solver.contested import Variant
from queuer.solver.greedy import Greedy
from queuer.solver.order import Gang
from queuer.solver.outcome import Block, Refusal
from queuer.solver.problem import Bond


class Explainer:
    """Words for the refusals of one cycle; what depends on the shape alone is worked out once."""

    def __init__(self, board: Board, greedy: Greedy) -> None:
        self._board = board
        self._greedy = greedy
        self._never: dict[int, Reason | None] = {}
        self._lacks: dict[tuple[int, int], Reason] = {}
        self._advice: dict[object, tuple[Mapping[str, Any], ...]] = {}

    def refused(self, gang: Gang, refusal: Refusal) -> Explanation:
        """Why a gang that had its turn waits."""
        never = self.never(gang)
        if never is not None:
            return Explanation(primary=never, detail=_needs(gang))
        reasons = self._reasons(gang, refusal)
        if refusal.packed is not None:
            reasons.insert(0, _outdone(gang, refusal.packed))
        advice = self._advise(gang) if refusal.block in (Block.PLACE, Block.DEFERRED) else ()
        return Explanation(
            primary=reasons[0], others=tuple(reasons[1:]), would_admit=advice, detail=_needs(gang)
        )

    def _reasons(self, gang: Gang, refusal: Refusal) -> list[Reason]:
        workload = gang.pending.workload
        match refusal.block:
            case Block.QUOTA if refusal.variant is not None:
                return self._quotas(gang, refusal.variant)
            case Block.ENTITLEMENT if refusal.variant is not None:
                return [self._entitlement(gang, refusal.variant)]
            case Block.RESERVED if refusal.owner is not None:
                return [behind(refusal.owner, "holds a reservation that this job would break")]
            case Block.LANDING:
                return [_landing()]
            case Block.DEFERRED:
                text = "Time ran out before a place for this job was found or proven not to exist."
                found = self._quotas(gang, refusal.variant) if refusal.shortfall and refusal.variant else None
                return [
                    Reason(token=Token.SOLVER_DEFERRED, text=text),
                    *(found or [self._place(gang, refusal)]),
                ]
            case Block.FLAVOR:
                return [_no_flavor(workload)]
        return [self._place(gang, refusal)]

    def _quotas(self, gang: Gang, variant: Variant) -> list[Reason]:
        """Every row that stands in the way now, nearest first, one for each queue and resource."""
        charge = self._greedy.resized(gang, variant, gang.shape.least)[1]
        found: dict[tuple[str, str], Shortfall] = {}
        for sheet in self._board.sheets():
            for short in sheet.usage.shortfalls(gang.queue, charge):
                found.setdefault((short.queue, short.account[1]), short)
        depth = {queue: i for i, queue in enumerate(self._board.book.lineage(gang.queue))}
        ranked = sorted(found.values(), key=lambda s: (s.live, depth[s.queue], str(s.account)))
        if not ranked:
            text = (
                "Quota that it needed at its turn has been given back in this cycle; the next cycle decides."
            )
            return [Reason(token=Token.PENDING_EVALUATION, text=text)]
        return [self._quota(gang, short) for short in ranked]

    def _advise(self, gang: Gang) -> tuple[Mapping[str, Any], ...]:
        workload = gang.pending.workload
        lasts = (workload.estimate, workload.max_runtime)
        key = (gang.shape.number, workload.priority, workload.preemptible, gang.pending.avoid, lasts)
        if key not in self._advice:
            levels = self._board.snapshot.topology.levels
            self._advice[key] = would_admit(gang, levels, lambda w, v: self._greedy.would_start(gang, w, v))
        return self._advice[key]

    @staticmethod
    def put_off() -> Explanation:
        """It could start, but not beside those that start in this cycle."""
        return Explanation(primary=_landing())

    @staticmethod
    def bound(bond: Bond) -> Explanation:
        """Its place is held while victims leave."""
        hosts = sorted({name for row in bond.assignments for name in row.nodes})
        text = f"{len(hosts)} nodes are held for it; it starts when {len(bond.victims)} evicted workloads have left."
        params = {"victims": list(bond.victims), "hosts": hosts, "deadline": bond.deadline}
        return simple(Token.WAITING_FOR_PREEMPTED_WORKLOADS, text, params)

    # Never

    def never(self, gang: Gang) -> Reason | None:
        """The reason why this gang could not start on an idle cluster; None = it could."""
        number = gang.shape.number
        if number not in self._never:
            self._never[number] = self._find_never(gang)
        return self._never[number]

    def _find_never(self, gang: Gang) -> Reason | None:
        workload = gang.pending.workload
        reason: Reason | None = self._no_level(workload) or _no_flavor(workload)
        if reason is not None and reason.token is Token.MISCONFIGURED:
            return reason
        for variant in gang.shape.variants:
            least = Variant(flavors=variant.flavors, counts=gang.shape.least)
            over = self._over(gang, self._greedy.resized(gang, variant, gang.shape.least)[1])
            idle = self._board.idle.place(workload, least, form=gang.shape.form, avoid=frozenset())
            if over is None and idle.spreads is not None:
                return None
            reason = over or self._too_large(gang, least)
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

    def _over(self, gang: Gang, charge: Charge) -> Reason | None:
        """Larger by itself than a limit on its path, root's live capacity included."""
        book = self._board.book
        for account, asks in charge.items():
            for queue in book.lineage(gang.queue):
                limit = book.limit(queue, account)
                if limit is not None and asks > limit:
                    params = _amounts(queue, account, asks=asks, limit=limit)
                    live = queue == ROOT and limit == book.live.get(account, 0)
                    bound = "the cluster has" if live else f"{queue} may never use more than"
                    text = f"Asks {params['asks']} {self._name(account)}; {bound} {params['limit']}."
                    return Reason(token=Token.EXCEEDS_MAX_QUOTA, text=text, params=params)
        return None

    def _too_large(self, gang: Gang, variant: Variant) -> Reason:
        """Larger than any domain could ever hold. New or relabelled nodes would help, so it waits."""
        lack = self._best_domain(gang, variant, idle=True)
        text = f"{lack.text} It would not fit even if every node were idle."
        return Reason(token=lack.token, text=text, params={**lack.params, "idle": True})

    # Quota

    def _quota(self, gang: Gang, short: Shortfall) -> Reason:
        book, account = self._board.book, short.account
        guaranteed = book.guaranteed(short.queue, account) if short.queue != ROOT else 0
        params = _amounts(short.queue, account, asks=short.asks, limit=short.limit, used=short.used)
        params["guaranteed"] = format_quantity(guaranteed, resource=account[1])
        if short.held > short.used:
            params["kept"] = format_quantity(short.held - short.used, resource=account[1])
        limit = "the live capacity" if short.live else "the limit"
        text = f"{short.queue} uses {params['used']} of {params['limit']} {self._name(account)} ({limit})"
        if "kept" in params:
            text += f", {params['kept']} are kept for queues that do not lend them"
        text += f"; this job asks {params['asks']}."
        entitled = any(
            self._board.claimed.entitled(gang.queue, charge, at=queue)
            for charge in gang.shape.charges
            for queue in book.lineage(gang.queue)
        )
        borrows = not entitled and short.queue != ROOT
        return Reason(
            token=Token.BORROWING_LIMIT_REACHED if borrows and guaranteed else Token.WAITING_FOR_QUOTA,
            text=text,
            params=params,
        )

    def _name(self, account: tuple[str | None, str]) -> str:
        """The resource, with its flavor where there are several to tell apart."""
        flavor, resource = account
        return resource if flavor is None or not self._board.snapshot.flavors else f"{resource} on {flavor}"

    def _entitlement(self, gang: Gang, variant: Variant) -> Reason:
        board, queue = self._board, gang.queue
        charge = board.charge(gang.pending.workload, variant.flavors, gang.shape.least)
        claims = [a for a in charge if a in board.book.claims(queue)]
        if not claims:
            text = f"Work that is not preemptible starts only inside a guarantee; {queue} has none for this."
            return Reason(token=Token.EXCEEDS_MAX_QUOTA, text=text, params={"queue": queue})
        used = board.claimed.used[queue]
        worst = max(claims, key=lambda a: used.get(a, 0) + charge[a] - board.book.guaranteed(queue, a))
        guaranteed = board.book.guaranteed(queue, worst)
        params = _amounts(queue, worst, asks=charge[worst], used=used.get(worst, 0), guaranteed=guaranteed)
        text = (
            f"Work that is not preemptible does not borrow: {queue} uses {params['used']} of its guaranteed "
            f"{params['guaranteed']} {self._name(worst)}; this job asks {params['asks']}."
        )
        never = charge[worst] > guaranteed
        return Reason(
            token=Token.EXCEEDS_MAX_QUOTA if never else Token.WAITING_FOR_QUOTA, text=text, params=params
        )

    # Place

    def _place(self, gang: Gang, refusal: Refusal) -> Reason:
        if refusal.variant is None:
            return _no_flavor(gang.pending.workload)
        key = (gang.shape.number, hash(gang.pending.avoid))
        if key not in self._lacks:
            least = Variant(flavors=refusal.variant.flavors, counts=gang.shape.least)
            shut = _shut(self._board, gang, least)
            self._lacks[key] = shut or self._best_domain(gang, least, idle=False)
        return self._lacks[key]

    def _best_domain(self, gang: Gang, variant: Variant, *, idle: bool) -> Reason:
        """The pod set that is shortest of room, in the domain that comes closest."""
        board, workload = self._board, gang.pending.workload
        frame = board.frame
        free = frame.alloc if idle else board.free_now(workload, rank=(True, 2**31))
        closed = None if idle else board.closed(gang.pending.avoid)
        parts = parts_of(frame, workload, variant, closed, idle=idle)
        level = frame.snapshot.topology.find(workload.required) if workload.required else None
        best: tuple[float, int, Part, int] | None = None
        for part in parts:
            at = part.required if part.required is not None else level
            slots = np.where(part.open, part.need.slots(free), 0)
            domain, most = _largest(frame.domains[at], slots) if at is not None else (-1, int(slots.sum()))
            if best is None or most / part.count < best[0]:
                best = (most / part.count, domain, part, most)
        if best is None:
            return _no_flavor(workload)
        _, domain, part, most = best
        at = part.required if part.required is not None else level
        return _lack(board, gang, part, at=at, domain=domain, most=most)


def _largest(numbers: np.ndarray[Any, Any], slots: np.ndarray[Any, Any]) -> tuple[int, int]:
    """The domain with most slots, and how many."""
    known = numbers >= 0
    if not known.any():
        return -1, 0
    total = np.bincount(numbers[known], weights=slots[known])
    best = int(total.argmax())
    return best, int(total[best])


def _lack(board: Board, gang: Gang, part: Part, *, at: int | None, domain: int, most: int) -> Reason:
    pod_set = next(p for p in gang.pending.workload.pod_sets if p.name == part.name)
    per = {r: n for r, n in pod_set.requests.items() if r != "pods" and n}
    each = ", ".join(f"{amount} {resource}" for resource, amount in format_resources(per).items()) or "1 pod"
    params: dict[str, Any] = {
        "podSet": part.name,
        "count": part.count,
        "per": format_resources(per),
        "fits": most,
        "missing": max(0, part.count - most),
    }
    where = "on all nodes together"
    if at is not None:
        params["level"] = board.frame.snapshot.topology.levels[at]
        if domain >= 0:
            params["domain"] = board.frame.domain_names[at][domain][-1]
            where = f"in the best {params['level']}, {board.frame.domain_names[at][domain][-1]}"
        else:
            where = f"as no usable node carries the label of level {params['level']}"
    text = f"{part.name} needs room for {part.count} pods of {each}"
    text += f" in one {params['level']}" if at is not None else ""
    if most < part.count:
        text += f"; {most} fit {where}, {part.count - most} are missing."
    else:
        text += "; each pod set alone has room, all together have not."
    return Reason(token=Token.TOPOLOGY_PLACEMENT_FAILED, text=text, params=params)


def _shut(board: Board, gang: Gang, variant: Variant) -> Reason | None:
    """Every node that would accept a pod set is cordoned, unready or avoided."""
    parts = parts_of(board.frame, gang.pending.workload, variant, board.closed(gang.pending.avoid))
    shut = next((p for p in parts if not p.open.any()), None)
    if shut is None:
        return None
    avoided = len(gang.pending.avoid)
    text = (
        f"All nodes for {shut.name} are cordoned, not ready, or avoided after a failed landing ({avoided})."
    )
    return Reason(token=Token.NODES_UNAVAILABLE, text=text, params={"podSet": shut.name, "avoided": avoided})


def _no_flavor(workload: Workload) -> Reason:
    text = (
        f"No flavor that {workload.queue} allows has a node that accepts the pods' selectors and tolerations."
    )
    return Reason(token=Token.NO_MATCHING_FLAVOR, text=text, params={"queue": workload.queue})


def _needs(gang: Gang) -> dict[str, Any]:
    """What the gang asks for, by pod set."""
    workload = gang.pending.workload
    need = []
    for pod_set in workload.pod_sets:
        row: dict[str, Any] = {"podset": pod_set.name, "count": pod_set.count}
        row["per"] = format_resources(pod_set.requests)
        level = pod_set.required or workload.required
        need.append({**row, "level": level} if level else row)
    return {"need": need}


def _landing() -> Reason:
    text = "Its hosts overlap with those of gangs that are landing; it starts when they have landed."
    return Reason(token=Token.PENDING_EVALUATION, text=text)


def behind(uid: str, why: str) -> Reason:
    """Another gang goes first."""
    return Reason(token=Token.BEHIND_IN_QUEUE, text=f"Workload {uid} {why}.", params={"owner": uid})


def _outdone(gang: Gang, root: str) -> Reason:
    """Others of its priority ask for more together."""
    priority = gang.pending.workload.priority
    text = f"{root} is packed: among jobs of priority {priority} those start that ask for most together, "
    text += "and beside them no room for this one was found."
    return Reason(token=Token.BEHIND_IN_QUEUE, text=text, params={"queue": root, "priority": priority})


def simple(token: Token, text: str, params: Mapping[str, Any] | None = None) -> Explanation:
    """An explanation that is its primary reason alone."""
    return Explanation(primary=Reason(token=token, text=text, params=params or {}))


def _amounts(queue: str, account: tuple[str | None, str], **amounts: int) -> dict[str, Any]:
    flavor = {} if account[0] is None else {"flavor": account[0]}
    shown = {name: format_quantity(amount, resource=account[1]) for name, amount in amounts.items()}
    return {"queue": queue, "resource": account[1], **flavor, **shown}

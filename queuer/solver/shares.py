"""Fair share: what the order compares queues by, with its factors, and who has what a starved queue is guaranteed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from queuer.domain.quantity import Resources
from queuer.domain.queue import ROOT, Order, QueueState, Sharing
from queuer.domain.quota import Account, Charge
from queuer.domain.usage import Usage
from queuer.solver.after_cycle import AfterCycle


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """`excess / capacity / weight + past` is the score by which an inner queue compares children that would borrow.

    `resource`: the one of which the excess above the guarantee is the largest part of the live capacity. It and
    `capacity` are None where nothing is borrowed. `past`: the share of decayed past use, already by weight.
    """

    resource: str | None
    excess: int
    capacity: int | None
    weight: float
    past: float

    @property
    def share(self) -> float:
        """The share of what is borrowed now, by weight."""
        return self.excess / self.capacity / self.weight if self.capacity else 0.0

    @property
    def score(self) -> float:
        """The value that the order compares."""
        return self.share + self.past


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueShare:
    """A queue below root. `now`: as it is; `offered`: with the gang that it offers counted in, None = it has none.
    `entitled`: that gang is inside a guarantee, so that it goes before all who borrow. Amounts are by resource.
    """

    path: str
    parent: str
    weight: float
    guaranteed: Resources
    used: Resources
    past: Mapping[str, float]
    ordered_by: str
    now: Factors
    offered: Factors | None
    entitled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Part of what a starved queue is guaranteed and lacks. `borrower`: who uses it above its own guarantee; None:
    nobody does, it is free in pieces that do not help, or lost.
    """

    resource: str
    starved: str
    borrower: str | None
    amount: int


def shares(after: AfterCycle, root: str = ROOT) -> list[QueueShare]:
    """Of all queues below `root`, parents first."""
    state, book, tree = after.state, after.state.book, after.state.book.tree
    named = sorted({row.resource for queue in tree for row in queue.quota})
    found = []
    for queue in tree:
        above = queue.parent
        if above is None or not _inside(queue.path, root) or queue.path == root:
            continue
        gang, past = after.first.get(queue.path), state.past.get(queue.path, 0.0)
        charges = gang.shape.charges if gang is not None else ()
        entitled = gang is not None and any(
            state.claimed.entitled(gang.queue, charge, at=queue.path) for charge in gang.shape.choices
        )
        policy = tree.policy(above)
        packed = tree.policy(queue.path).order is Order.PACKED
        by = Order.PACKED if packed else "priority" if policy.sharing is Sharing.PRIORITY else "share"
        found.append(
            QueueShare(
                path=queue.path,
                parent=above,
                weight=queue.weight,
                guaranteed={r: book.guaranteed(queue.path, (None, r)) for r in named},
                used={r: state.claimed.used(queue.path, (None, r)) for r in named},
                past=state.snapshot.past.get(queue.path, {}),
                ordered_by=by,
                now=factors(state.claimed, queue.path, {}, past=past),
                offered=factors(state.claimed, queue.path, charges[0], past=past) if charges else None,
                entitled=entitled,
            )
        )
    return found


def factors(usage: Usage, path: str, charge: Charge, *, past: float) -> Factors:
    """As `Usage.share` counts, a charge included."""
    best: tuple[str | None, int, int] = (None, 0, 1)
    for capacity, parts in usage.book.share_parts(path):
        over = (usage.used(path, account) + charge.get(account, 0) - least for _, least, account in parts)
        excess = sum(max(0, amount) for amount in over)
        if excess * best[2] > best[1] * capacity:
            best = (parts[0].account[1], excess, capacity)
    resource, excess, capacity = best
    return Factors(
        resource=resource,
        excess=excess,
        capacity=None if resource is None else capacity,
        weight=usage.book.tree[path].weight,
        past=past,
    )


def deficits(after: AfterCycle, root: str = ROOT) -> dict[tuple[str, str], int]:
    """By leaf below `root` and resource what is guaranteed, not used, and asked for by gangs that wait for room alone
    and each fit the guarantee.
    """
    state, tree = after.state, after.state.book.tree
    asked: dict[tuple[str, str], int] = {}
    for uid, told in after.plan.explanations.items():
        pending, gang = after.pending.get(uid), after.arrays.waiting.gangs.get(uid)
        if pending is None or gang is None or not told.primary.starves(gang.queue):
            continue
        if any(state.claimed.entitled(gang.queue, charge, at=gang.queue) for charge in gang.shape.choices):
            for resource, amount in pending.workload.demand.items():
                key = (pending.workload.queue, resource)
                asked[key] = asked.get(key, 0) + amount
    found = {}
    for (path, resource), amount in sorted(asked.items()):
        if path in tree and _inside(path, root) and tree.effective_state(path) is QueueState.OPEN:
            idle = state.book.guaranteed(path, (None, resource)) - state.claimed.used(path, (None, resource))
            if idle > 0:
                found[path, resource] = min(idle, amount)
    return found


def pairs(after: AfterCycle, lacking: Mapping[tuple[str, str], int]) -> list[Pair]:
    """The borrowers of each starved queue, with amounts that sum to its deficit. The nearest borrowers in the tree come
    first. A borrowed amount counts once, on the whole path to the common ancestor, as it would be reclaimed.
    """
    found = []
    for resource in dict.fromkeys(resource for _, resource in lacking):
        excess = _excess(after, (None, resource))
        for (starved, of), amount in lacking.items():
            left = amount if of == resource else 0
            for borrower, path in _nearest(after, starved):
                part = min(left, *(excess[queue] for queue in path)) if left else 0
                if part > 0:
                    left -= part
                    for queue in path:
                        excess[queue] -= part
                    found.append(Pair(resource=resource, starved=starved, borrower=borrower, amount=part))
            if left:
                found.append(Pair(resource=resource, starved=starved, borrower=None, amount=left))
    return found


def _excess(after: AfterCycle, account: Account) -> dict[str, int]:
    state = after.state
    return {
        queue.path: max(
            0, state.used_now.used(queue.path, account) - state.book.guaranteed(queue.path, account)
        )
        for queue in state.book.tree
        if queue.parent is not None
    }


def _nearest(after: AfterCycle, starved: str) -> Iterator[tuple[str, list[str]]]:
    """Other leaves, nearest first, each with its path up to below the common ancestor."""
    book = after.state.book
    own = book.lineage(starved)
    ways = []
    for leaf in book.tree.leaves:
        if leaf != starved:
            path = [queue for queue in book.lineage(leaf) if queue not in own]
            common = len(book.lineage(leaf)) - len(path)
            ways.append((-common, leaf, path))
    for _, leaf, path in sorted(ways):
        if path:
            yield leaf, path


def _inside(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}.")

"""Cuts: amounts in use, queues and access that a changeset takes away, and the jobs that would have to go."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.domain.errors import FieldProblem
from queuer.domain.fields import format_duration
from queuer.domain.quantity import readable, short
from queuer.domain.queue import Access, PerUser, Queue, QueueTree
from queuer.domain.quota import Account
from queuer.store.changeset import Changeset, JudgedChangeset
from queuer.store.ledger import Holding, holdings
from queuer.store.usage import TreeView, tree_view


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """A limit that the changeset lowers below what is used. Base units; `row`: its number among the queue's rows."""

    queue: str
    flavor: str | None
    resource: str
    limit: int
    used: int
    row: int

    @property
    def over(self) -> int:
        """The excess."""
        return self.used - self.limit

    @property
    def problem(self) -> FieldProblem:
        """In words."""
        limit, used, over = (readable(n, resource=self.resource) for n in (self.limit, self.used, self.over))
        return FieldProblem(
            field=f"queues.{self.queue}.quota[{self.row}].limit",
            message=f"{limit} is {over} below the {used} {short(self.resource)} in use",
            hint="nothing new starts there while more is used",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaimable:
    """How much more of the preemptible work of a leaf can be taken back by those whose guarantee it is. Base units."""

    queue: str
    flavor: str | None
    resource: str
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuts:
    """`reductions`: what needs a reason, by field; `victims`: who must go, in this order, for all limits to hold."""

    reductions: tuple[FieldProblem, ...] = ()
    over: tuple[Over, ...] = ()
    reclaimable: tuple[Reclaimable, ...] = ()
    victims: tuple[Holding, ...] = ()


async def cuts(connection: AsyncConnection, changeset: JudgedChangeset) -> Cuts:
    """The cuts of a sound changeset, by what is held now."""
    if all(change.before is None for change in changeset.queues):
        return Cuts(reductions=tuple(_deletions(changeset)))
    view = await tree_view(connection)
    after = changeset.after.tree
    touched = [change.name for change in changeset.queues if change.action == "update"]
    held = await holdings(connection)
    over = tuple(_over(view, after, touched))
    reductions = [*_deletions(changeset), *(row.problem for row in over)]
    rows = (row for tree in (view.config.tree, after) for queue in tree for row in queue.quota)
    promised = frozenset((row.flavor, row.resource) for row in rows if row.guaranteed)
    for path in touched:
        reductions += [*_less(view, after, path, promised), *_narrower(view.config.tree, after, path)]
    return Cuts(
        reductions=tuple(reductions),
        over=over,
        reclaimable=tuple(_reclaimable(view.config.tree, after, held)),
        victims=tuple(_victims(after, held, over)),
    )


def _deletions(changeset: Changeset) -> Iterator[FieldProblem]:
    for change in changeset.changes:
        if change.after is None:
            yield FieldProblem(field=f"{change.kind}s.{change.name}", message="is deleted")


def _used(view: TreeView, path: str) -> dict[Account, int]:
    return {(row.flavor, row.resource): row.used for row in view.queues[path].amounts}


def _over(view: TreeView, after: QueueTree, touched: Iterable[str]) -> Iterator[Over]:
    for path in touched:
        before = {(row.flavor, row.resource): row.limit for row in view.config.tree[path].quota}
        used = _used(view, path)
        for index, row in enumerate(after[path].quota):
            account = (row.flavor, row.resource)
            old, there = before.get(account), used.get(account, 0)
            if row.limit is not None and row.limit < there and (old is None or row.limit < old):
                yield Over(
                    queue=path,
                    flavor=row.flavor,
                    resource=row.resource,
                    limit=row.limit,
                    used=there,
                    row=index,
                )


def _less(
    view: TreeView, after: QueueTree, path: str, promised: Collection[Account]
) -> Iterator[FieldProblem]:
    """Guarantees below what is used under them, and less to lend than is lent. `promised`: accounts that anybody is
    guaranteed something in. Flavors that are promised one by one make up no promise of all together.
    """
    before, lends = view.config.tree, _lends(after[path])
    for amounts in view.queues[path].amounts:
        account = (amounts.flavor, amounts.resource)
        named = short(amounts.resource) + (f" of {amounts.flavor}" if amounts.flavor else "")
        old, new = (tree.guaranteed(path, *account) if account in promised else 0 for tree in (before, after))
        if new < old and new < amounts.used:
            lost, said, used = (
                readable(n, resource=amounts.resource)
                for n in (min(old, amounts.used) - new, new, amounts.used)
            )
            message = f"guaranteed {said} {named} is below the {used} in use: {lost} of these are guaranteed no more"
            yield FieldProblem(field=f"queues.{path}.quota", message=message)
        kept = min(amounts.lent, max(0, new - amounts.used))
        if new < old and kept < amounts.lent:
            lost, lent = (readable(n, resource=amounts.resource) for n in (amounts.lent - kept, amounts.lent))
            message = (
                f"{lost} of the {lent} {named} that others use of its guarantee can be taken back no more"
            )
            yield FieldProblem(field=f"queues.{path}.quota", message=message)
        lend, previous = lends.get(account), _lends(before[path]).get(account)
        if lend is not None and lend < amounts.lent and (previous is None or lend < previous):
            said, lent = (readable(n, resource=amounts.resource) for n in (lend, amounts.lent))
            message = f"lends {said} {named}, below the {lent} that others use"
            yield FieldProblem(field=f"queues.{path}.quota", message=message)


def _lends(queue: Queue) -> dict[Account, int | None]:
    return {(row.flavor, row.resource): row.lend for row in queue.quota}


def _narrower(before: QueueTree, after: QueueTree, path: str) -> Iterator[FieldProblem]:
    """Access that becomes narrower: users who are closed out, and limits of a job."""
    lost = sorted({*before.namespaces(path)} - {*after.namespaces(path)})
    if lost:
        message = f"closed to {', '.join(lost)}"
        yield FieldProblem(field=f"queues.{path}.namespaces", message=message)
    old, new = before.access(path), after.access(path)
    if new.max_priority is not None and new.max_priority != old.max_priority:
        message = f"highest priority class {old.max_priority or 'any'} -> {new.max_priority}"
        yield FieldProblem(field=f"queues.{path}.access.maxPriority", message=message)
    yield from _fewer_users(old, new, f"queues.{path}.access")
    if _lower(old.max_runtime, new.max_runtime):
        was, now = ("any" if t is None else format_duration(t) for t in (old.max_runtime, new.max_runtime))
        message = f"longest run of a job {was} -> {now}"
        yield FieldProblem(field=f"queues.{path}.access.maxRuntime", message=message)
    yield from _less_per_user(old, new, f"queues.{path}.access.perUser")
    if new.max_pending is not None and old.max_pending is not None and new.max_pending < old.max_pending:
        message = f"waiting jobs of a namespace {old.max_pending} -> {new.max_pending}"
        yield FieldProblem(field=f"queues.{path}.access.maxPending", message=message)


def _fewer_users(old: Access, new: Access, at: str) -> Iterator[FieldProblem]:
    if (new.users or new.groups) and not (old.users or old.groups):
        message = "closed to everybody who is not named"
        yield FieldProblem(field=f"{at}.{'users' if new.users else 'groups'}", message=message)
    elif new.users or new.groups:  # where nobody is named any more everybody may
        for key in ("users", "groups"):
            lost = sorted({*getattr(old, key)} - {*getattr(new, key)})
            if lost:
                yield FieldProblem(field=f"{at}.{key}", message=f"closed to {', '.join(lost)}")


def _lower(old: float | None, new: float | None) -> bool:
    """Whether a limit became narrower; None = there is none."""
    return new is not None and (old is None or new < old)


def _less_per_user(old: Access, new: Access, at: str) -> Iterator[FieldProblem]:
    was, now = old.per_user or PerUser(), new.per_user or PerUser()
    for resource, amount in now.limits.items():
        before = was.limits.get(resource)
        if _lower(before, amount):
            said = "any" if before is None else readable(before, resource=resource)
            message = f"a user's {short(resource)} {said} -> {readable(amount, resource=resource)}"
            yield FieldProblem(field=f"{at}.limits.{resource}", message=message)
    if _lower(was.max_running, now.max_running):
        message = f"a user's running jobs {was.max_running or 'any'} -> {now.max_running}"
        yield FieldProblem(field=f"{at}.maxRunning", message=message)


def _reclaimable(before: QueueTree, after: QueueTree, held: Iterable[Holding]) -> Iterator[Reclaimable]:
    """Use of preemptible work above the guarantee of its leaf, where that grows."""
    used: dict[tuple[str, Account], int] = {}
    loose: dict[tuple[str, Account], int] = {}
    for holding in held:
        for account, amount in holding.charge.items():
            spot = holding.queue, account
            used[spot] = used.get(spot, 0) + amount
            if holding.preemptible and not holding.leaving:
                loose[spot] = loose.get(spot, 0) + amount
    for (path, account), amount in sorted(loose.items(), key=lambda item: (item[0][0], str(item[0][1]))):
        if path not in before or path not in after:
            continue
        old, new = (
            min(amount, max(0, used[path, account] - tree.guaranteed(path, *account)))
            for tree in (before, after)
        )
        if new > old:
            yield Reclaimable(queue=path, flavor=account[0], resource=account[1], amount=new - old)


def _victims(after: QueueTree, held: Sequence[Holding], over: Iterable[Over]) -> list[Holding]:
    """Preemptible before other work, borrowers before those within their guarantee, newest first, until the limits
    hold; nobody who is not needed.
    """
    gone: dict[str, Holding] = {}
    for row in sorted(over, key=lambda row: -row.queue.count(".")):
        account = (row.flavor, row.resource)
        inside = [h for h in held if h.charge.get(account) and row.queue in after.lineage(h.queue)]
        excess = row.over
        excess -= sum(h.charge[account] for h in inside if h.leaving or h.uid in gone)
        used = _by_queue(inside, account)

        def rank(
            holding: Holding, account: Account = account, used: Mapping[str, int] = used
        ) -> tuple[object, ...]:
            entitled = used[holding.queue] <= after.guaranteed(holding.queue, *account)
            return (not holding.preemptible, entitled, -holding.since, holding.uid)

        chosen: list[Holding] = []
        for holding in sorted((h for h in inside if not h.leaving and h.uid not in gone), key=rank):
            if excess <= 0:
                break
            chosen.append(holding)
            excess -= holding.charge[account]
        for holding in reversed(chosen[:]):
            if excess + holding.charge[account] <= 0:
                chosen.remove(holding)
                excess += holding.charge[account]
        gone |= {holding.uid: holding for holding in chosen}
    return [*gone.values()]


def _by_queue(held: Iterable[Holding], account: Account) -> dict[str, int]:
    found: dict[str, int] = {}
    for holding in held:
        found[holding.queue] = found.get(holding.queue, 0) + holding.charge[account]
    return found

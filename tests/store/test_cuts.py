"""A changeset says in full what it takes away, and names only jobs that really have to go."""

from __future__ import annotations

from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuer.domain.document import TreeDocument
from queuer.domain.queue import ManagedBy
from queuer.domain.workload import Workload
from queuer.store import queues
from queuer.store.cuts import Cuts, cuts
from queuer.store.engine import begin
from tests.store.support import (
    GPU,
    NOW,
    admission,
    come,
    commit_cycle,
    cycle,
    document,
    take_office,
    wish,
    workload,
)

A, B = "root.a", "root.b"


def tree(**bodies: Any) -> TreeDocument:
    """Queues below root with these rows for GPUs."""
    rows = {f"root.{name}": {"quota": [{"resource": GPU, **amounts}]} for name, amounts in bodies.items()}
    return document(rows)


async def start(connection: AsyncConnection, desired: TreeDocument, *running: Workload) -> None:
    """A tree under which these run, each younger than the one before."""
    await wish(connection, desired)
    epoch = await take_office(connection)
    await come(connection, epoch, *running)
    for number, made in enumerate(running, start=1):
        record = cycle(number, at=NOW + number)
        await commit_cycle(connection, epoch=epoch, record=record, admissions=[admission(made)])


async def cut(connection: AsyncConnection, desired: TreeDocument) -> Cuts:
    """The loss by this change."""
    return await cuts(connection, await queues.plan(connection, desired, writer=ManagedBy.API))


async def test_borrowers_go_before_others_and_what_may_not_be_preempted_last(engine: AsyncEngine) -> None:
    """Within each kind the newest."""
    running = (
        workload("fixed", queue=A, gpus=2, preemptible=False),
        workload("a-old", queue=A, gpus=2),
        workload("a-new", queue=A, gpus=2),
        workload("b-own", queue=B, gpus=2),
    )
    async with begin(engine) as connection:
        await start(connection, tree(a={"guaranteed": 2}, b={"guaranteed": 2}), *running)
        for limit, gone in (
            (6, ["a-new"]),
            (4, ["a-new", "a-old"]),
            (1, ["a-new", "a-old", "b-own", "fixed"]),
        ):
            whole = {"quota": [{"resource": GPU, "limit": limit}]}
            found = await cut(connection, document({"root": whole}))
            assert [holding.uid for holding in found.victims] == gone
            assert [(row.queue, row.used, row.limit) for row in found.over] == [("root", 8, limit)]


async def test_what_others_use_of_a_guarantee_is_not_taken_back_unsaid(engine: AsyncEngine) -> None:
    """`lend` below what is lent, a guarantee below what is used under it; neither where nobody is hit."""
    async with begin(engine) as connection:
        promised = {"root": 64, A: 58, B: 6}
        root = {path: {"quota": [{"resource": GPU, "guaranteed": n}]} for path, n in promised.items()}
        await start(connection, document(root), workload("borrower", queue=B, gpus=10))
        lends = await cut(connection, tree(a={"guaranteed": 58, "lend": 1}))
        assert [row.field for row in lends.reductions] == [f"queues.{A}.quota"]
        assert "below the" in lends.reductions[0].message
        less = await cut(connection, tree(b={"guaranteed": 5}))
        assert [row.field for row in less.reductions] == [f"queues.{B}.quota"]
        assert [(row.queue, row.amount) for row in less.reclaimable if row.flavor is None] == [(B, 1)]
        assert (await cut(connection, tree(a={"guaranteed": 57}))).reductions == ()
        assert (await cut(connection, tree(a={"guaranteed": 58, "lend": 6}))).reductions == ()
        (claim,) = (await cut(connection, tree(a={"guaranteed": 1}))).reductions
        assert claim.message == "3 of the 4 gpu that others use of its guarantee can be taken back no more"


async def test_a_guarantee_by_flavor_is_cut_by_flavor_alone(engine: AsyncEngine) -> None:
    """All flavors together are promised to nobody: what is used of one makes no other one short."""
    quota = [{"resource": GPU, "flavor": flavor, "guaranteed": n} for flavor, n in (("h", 8), ("k", 4))]
    less = [{**quota[0], "guaranteed": 7}, quota[1]]
    own, other = workload("own", queue=A, gpus=10), workload("other", queue=B, gpus=2)
    async with begin(engine) as connection:
        await wish(connection, document({"root": {}, A: {"quota": quota}, B: {}}))
        epoch = await take_office(connection)
        await come(connection, epoch, own, other)
        starts = [admission(own, flavor="k"), admission(other, flavor="h")]
        await commit_cycle(connection, epoch=epoch, record=cycle(1), admissions=starts)
        assert (await cut(connection, document({A: {"quota": less}}))).reductions == ()


async def test_a_cut_guarantee_says_what_is_lost_of_it_and_what_can_be_taken_back(
    engine: AsyncEngine,
) -> None:
    """They differ where work that may not be preempted lost its guarantee: nobody can take that back."""
    running = workload("fixed", queue=A, gpus=3, preemptible=False), workload("loose", queue=A, gpus=5)
    async with begin(engine) as connection:
        await start(connection, tree(a={"guaranteed": 8}), *running)
        less = await cut(connection, tree(a={"guaranteed": 1}))
        (lost,) = less.reductions
        assert lost.message == "guaranteed 1 gpu is below the 8 in use: 7 of these are guaranteed no more"
        assert [(row.queue, row.amount) for row in less.reclaimable if row.flavor is None] == [(A, 5)]


async def test_a_raise_takes_nothing_away(engine: AsyncEngine) -> None:
    async with begin(engine) as connection:
        await start(connection, tree(a={"guaranteed": 2, "limit": 4}), workload("j", queue=A, gpus=4))
        assert await cut(connection, tree(a={"guaranteed": 3, "limit": 8})) == Cuts()

"""The configuration changes by changesets: whole, by its one writer, on the revision that was looked at."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.domain.document import TreeDocument, export
from queuer.domain.errors import Conflict, InvalidInput, NotFound
from queuer.domain.queue import ManagedBy, QueueState
from queuer.store import ledger, queues, workloads
from queuer.store.config import load_config, revision
from queuer.store.engine import begin
from queuer.store.events import read
from queuer.store.usage import tree_view
from tests.store.support import (
    GPU,
    NOW,
    admission,
    come,
    commit_cycle,
    cycle,
    document,
    intake_of,
    start,
    wish,
    workload,
)

API, CRD = ManagedBy.API, ManagedBy.CRD


def gpus(**amounts: int) -> dict[str, Any]:
    """A queue with one row for GPUs of any flavor."""
    return {"quota": [{"resource": GPU, **amounts}]}


async def test_what_was_applied_is_what_is_loaded(engine: AsyncEngine) -> None:
    """Every field of queues, flavors and topology survives, and applying it again is no change."""
    desired = document(
        {
            "root": gpus(limit=64),
            "root.research": {
                "weight": 2.5,
                "quota": [
                    {"flavor": "h100", "resource": GPU, "guaranteed": 16, "limit": 32, "lend": 8},
                    {"flavor": "a100", "resource": GPU, "guaranteed": 8},
                    {"resource": "cpu", "limit": "1500m"},
                    {"resource": "memory", "guaranteed": "64Gi"},
                ],
                "policy": {"order": "strict", "sharing": "priority", "preempt": "lower-priority", "reclaim": False,
                           "minRuntime": "5m", "maxWait": "1h", "halfLife": "7d", "reservations": 3},
                "access": {"maxPriority": "high", "maxPending": 100},
                "namespaces": ["team-a", "team-b"],
                "state": "held",
            },
            "root.research.deep": None,
        },
        flavors=[
            {"name": "h100", "nodeLabels": {"gpu": "h100"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]},
            {"name": "a100", "nodeLabels": {"gpu": "a100"}},
        ],
        topology={"levels": ["topology.kubernetes.io/block", "topology.kubernetes.io/rack"]},
    )  # fmt: skip
    async with begin(engine) as connection:
        assert await wish(connection, desired) == 1
        config = await load_config(connection)
        assert config.flavors == desired.flavors
        assert config.topology == desired.topology
        loaded = TreeDocument(queues=tuple(config.tree), flavors=config.flavors, topology=config.topology)
        assert export(loaded) == export(desired)
        again = await queues.plan(connection, desired, writer=API)
        assert again.changes == ()
        assert await queues.apply(connection, again, actor="a", source="b", reason="c") == 1
    async with begin(engine) as connection:
        events = [(e.type, e.queue) for _, e in await read(connection, after=0)]
    assert ("queue.created", "root.research.deep") in events
    assert ("topology.created", None) in events


async def test_children_within_their_parent(engine: AsyncEngine) -> None:
    """Guarantees of children above the parent's are refused with the numbers, and nothing is written."""
    desired = document(
        {"root.a": gpus(guaranteed=8), "root.a.x": gpus(guaranteed=5), "root.a.y": gpus(guaranteed=4)}
    )
    async with begin(engine) as connection:
        planned = await queues.plan(connection, desired, writer=API)
        (problem,) = planned.problems
        assert problem.field == "queues.root.a.quota[0].guaranteed"
        assert "9" in problem.message
        assert "x 5 + y 4" in problem.message
        with pytest.raises(InvalidInput):
            await queues.apply(connection, planned, actor="a", source="b", reason="c")
        assert len((await load_config(connection)).tree.queues) == 1
        assert await revision(connection) == 0


async def test_one_writer_per_queue(engine: AsyncEngine) -> None:
    """Another writer is told who the owner is; saying the same as the owner is no change and no conflict."""
    async with begin(engine) as connection:
        await wish(connection, document({"root.a": gpus(limit=8)}), CRD)
        same = await queues.plan(connection, document({"root.a": gpus(limit=8)}), writer=API)
        assert (same.changes, same.conflicts) == ((), ())
        planned = await queues.plan(connection, document({"root.a": gpus(limit=9)}), writer=API)
        with pytest.raises(Conflict, match=r"root\.a: is managed by crd, api cannot update it"):
            await queues.apply(connection, planned, actor="a", source="b", reason="c")
        assert await wish(connection, document({"root.a.x": gpus(limit=1)}), API) == 2


async def test_a_topology_that_no_object_describes_any_more_is_gone(engine: AsyncEngine) -> None:
    """The objects of a cluster are a whole: deleting the last Topology brings back the one that has hosts only."""
    levels = {"levels": ["topology.kubernetes.io/rack"]}
    async with begin(engine) as connection:
        await wish(connection, document(prune=True, topology=levels), writer=ManagedBy.CRD)
        assert (await load_config(connection)).topology.levels == ("rack", "host")
        await wish(connection, document(prune=True), writer=ManagedBy.CRD)
        assert (await load_config(connection)).topology.levels == ("host",)


async def test_prune_deletes_only_what_is_own_and_inside(engine: AsyncEngine) -> None:
    """Absent queues go with prune alone, never another writer's and never outside the document's root."""
    async with begin(engine) as connection:
        await wish(connection, document({"root.a": None, "root.a.x": None, "root.a.y": None, "root.b": None}))
        await wish(connection, document({"root.a.theirs": None}), CRD)
        assert (
            await queues.plan(connection, document({"root.a": None}, root="root.a"), writer=API)
        ).changes == ()
        await wish(connection, document({"root.a": None, "root.a.y": None}, root="root.a", prune=True))
        paths = list((await load_config(connection)).tree.queues)
    assert paths == ["root", "root.a", "root.a.theirs", "root.a.y", "root.b"]


async def test_stale_plan(engine: AsyncEngine) -> None:
    """Of two plans on one revision the second is refused, not merged."""
    async with begin(engine) as connection:
        first = await queues.plan(connection, document({"root.a": gpus(limit=8)}), writer=API)
        second = await queues.plan(connection, document({"root.b": gpus(limit=8)}), writer=API)
        await queues.apply(connection, first, actor="alice", source="test", reason="first")
        with pytest.raises(Conflict, match="from revision 0 to 1"):
            await queues.apply(connection, second, actor="bob", source="test", reason="second")


async def test_revert(engine: AsyncEngine) -> None:
    """A revert restores exactly what was, is itself a changeset with an audit row, and refuses to undo later work."""
    before = document({"root.a": gpus(limit=8), "root.b": gpus(limit=2)})
    async with begin(engine) as connection:
        await wish(connection, before)
        there = await load_config(connection)
        await wish(connection, document({"root.a": gpus(limit=4), "root.c": None}, prune=True))
        planned = await queues.plan_revert(connection, 2)
        assert await queues.apply(connection, planned, actor="bob", source="test", reason="wrong") == 3
        back = await load_config(connection)
        assert {p: q.quota for p, q in back.tree.queues.items()} == {
            p: q.quota for p, q in there.tree.queues.items()
        }
        rows = await connection.execute(text("SELECT actor, action, reason, revision FROM audit ORDER BY id"))
        assert tuple(rows.all()[-1]) == ("bob", "config.revert", "wrong", 3)
        again = await queues.plan_revert(connection, 2)
        with pytest.raises(Conflict, match="changed again after revision 2"):
            await queues.apply(connection, again, actor="bob", source="test", reason="again")
        with pytest.raises(NotFound):
            await queues.plan_revert(connection, 99)


async def test_a_queue_in_use_is_not_deleted(engine: AsyncEngine, epoch: int) -> None:
    """Admitted work keeps its queue: others' deletes are refused, a deleted CR's queue drains and then goes."""
    made = workload("w1", queue="root.a.x")
    empty = document({}, prune=True)
    async with begin(engine) as connection:
        await wish(connection, document({"root.a": None, "root.a.x": gpus(limit=8), "root.b": None}), CRD)
        await start(connection, epoch, made)
        await wish(connection, empty, CRD)
        tree = (await load_config(connection)).tree
        assert list(tree.queues) == ["root", "root.a", "root.a.x"]
        assert tree["root.a.x"].state is QueueState.DRAINING
        assert (await queues.plan(connection, empty, writer=CRD)).changes == ()
        await ledger.close(connection, epoch, ["w1"], NOW + 1)
        await wish(connection, empty, CRD)
        assert list((await load_config(connection)).tree.queues) == ["root"]


async def test_an_admin_is_told_what_a_deleted_queue_holds(engine: AsyncEngine, epoch: int) -> None:
    """REST refuses to delete a queue with admitted work; waiting work does not forbid it."""
    async with begin(engine) as connection:
        await wish(connection, document({"root.a": None}))
        rows = [intake_of(workload(uid, queue="root.a")) for uid in ("w1", "w2")]
        await workloads.intake(connection, epoch, rows, at=NOW)
        planned = await queues.plan(connection, document(prune=True), writer=API)
        assert planned.problems == ()
        await commit_cycle(connection, epoch=epoch, record=cycle(1), admissions=[admission(rows[0].workload)])
        with pytest.raises(Conflict, match=r"root\.a got 1 admitted workloads"):
            await queues.apply(connection, planned, actor="a", source="b", reason="c")
        assert len((await queues.plan(connection, document(prune=True), writer=API)).problems) == 1


async def test_amounts_of_the_tree_agree_with_each_other(engine: AsyncEngine, epoch: int) -> None:
    """A parent's used is the sum of its children's; what one borrows beyond the unguaranteed, another has lent."""
    made = [workload(f"w{n}", queue="root.r.b", gpus=8) for n in range(5)]
    late = workload("late", queue="root.r.a", pods=2, gpus=8, submitted=NOW + 5)
    lost = workload("lost", queue="root.gone")
    async with begin(engine) as connection:
        tree = {
            "root.r": None,
            "root.r.a": gpus(guaranteed=32),
            "root.r.b": gpus(guaranteed=16),
            "root.s": None,
        }
        await wish(connection, document(tree))
        await come(connection, epoch, *made, late, lost)
        await commit_cycle(connection, epoch=epoch, record=cycle(1), admissions=[admission(w) for w in made])
        view = await tree_view(connection)
    amounts = {
        path: next(a for a in queue.amounts if (a.flavor, a.resource) == (None, GPU))
        for path, queue in view.queues.items()
        if path != "root.s"
    }
    a, b, r = amounts["root.r.a"], amounts["root.r.b"], amounts["root.r"]
    assert (b.used, b.guaranteed, b.borrowed, b.lent, b.pending) == (40, 16, 24, 0, 0)
    # 64 GPUs, 48 guaranteed below root.r: all of b's 24 come from a, for root.r has nothing unguaranteed of its own.
    assert (a.used, a.borrowed, a.lent, a.pending) == (0, 0, 24, 16)
    assert (r.used, r.guaranteed, r.borrowed, r.lent, r.pending) == (40, 48, 0, 0, 16)
    assert amounts["root"].used == 40
    assert view.capacity[None, GPU] == 64
    assert (view.queues["root.r"].waiting, view.queues["root.r"].admitted) == (1, 5)
    assert view.queues["root.r"].oldest == NOW + 5
    assert view.strays == {"root.gone": 1}


async def test_guarantees_by_flavor_alone_add_up(engine: AsyncEngine, epoch: int) -> None:
    """No flavor makes up for another: what is borrowed and lent of all together is the sum. A parent's own guarantee
    counts, and an idle queue has amounts of all flavors together.
    """

    def rows(**guaranteed: int) -> dict[str, Any]:
        return {"quota": [{"flavor": f, "resource": GPU, "guaranteed": n} for f, n in guaranteed.items()]}

    tree = {"root.r": rows(h100=48), "root.r.a": rows(h100=16, a100=8), "root.r.b": rows(h100=24, a100=16)}
    flavors = [{"name": name, "nodeLabels": {"gpu": name}} for name in ("h100", "a100")]
    made = [workload(f"w{n}", queue="root.r.a", gpus=8) for n in range(5)]
    async with begin(engine) as connection:
        await wish(connection, document(tree, flavors=flavors))
        view = await tree_view(connection)
        assert {a.flavor for a in view.queues["root.r.b"].amounts} == {None, "h100", "a100"}
        await come(connection, epoch, *made)
        started = [admission(w, flavor="h100") for w in made]
        await commit_cycle(connection, epoch=epoch, record=cycle(1), admissions=started)
        view = await tree_view(connection)
    found = {
        (path.rpartition(".")[2], a.flavor): (a.used, a.guaranteed, a.borrowed, a.lent)
        for path, queue in view.queues.items()
        for a in queue.amounts
        if a.resource == GPU
    }
    assert (found["a", "h100"], found["a", "a100"]) == ((40, 16, 24, 0), (0, 8, 0, 0))
    assert found["a", None] == (40, 24, 24, 0), "8 idle a100 do not make 8 of the h100 its own"
    assert found["r", None] == (40, 48 + 24, 0, 0), "more than its children have"
    assert found["b", None] == (0, 40, 0, 16), "8 of the 24 that a borrows are nobody's below r"

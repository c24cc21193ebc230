"""On random worlds: what the API says of the newest cycle is what the decision does with it."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from queuer.api import simulator
from queuer.domain.document import TreeDocument
from queuer.domain.queue import Access, ManagedBy, PerUser, Queue, QueueTree, QuotaRow
from queuer.solver.after_cycle import within_user_limits
from queuer.solver.decide import decide
from queuer.solver.records import WITHOUT_SOLVER, Plan, Snapshot
from queuer.solver.stored import StoredCycle, decode, encode
from queuer.store import queues
from queuer.store.config import load_config
from queuer.store.engine import begin
from tests.api.identity import Api
from tests.api.rows import Author
from tests.solver.make import plan_of
from tests.solver.worlds import GPU, NOW, world

USERS = ("alice", "bob")
NOBODY_TOLD = plan_of()


def limited(seed: int) -> Snapshot:
    """A world whose jobs are of two users, some of whose queues limit each; who is beyond is not offered."""
    drawn, rng = world(seed), random.Random(seed)

    def access(queue: Queue) -> Access:
        if rng.random() < 0.6:
            return queue.access
        most = rng.choice((None, rng.randint(1, 4)))
        return Access(per_user=PerUser(limits={GPU: rng.randint(1, 10)}, max_running=most))

    def said(row: QuotaRow) -> QuotaRow:
        """A document takes no row without an amount."""
        return replace(row, limit=99) if (row.guaranteed, row.limit, row.lend) == (None, None, None) else row

    tree = QueueTree.of(
        replace(
            queue, access=access(queue), namespaces=("test",) if queue.parent is None else (),
            quota=tuple(said(row) for row in queue.quota),
        )
        for queue in drawn.tree
    )  # fmt: skip

    def owned(row: Any) -> Any:
        return replace(row, workload=replace(row.workload, user=rng.choice(USERS)))

    made = replace(
        drawn, tree=tree, admitted=tuple(map(owned, drawn.admitted)), pending=tuple(map(owned, drawn.pending))
    )
    return settled(within_user_limits(made, NOBODY_TOLD)[0])


def settled(snapshot: Snapshot) -> Snapshot:
    """With those offered who are still when it is known who can never start."""
    for _ in range(9):
        plan = decide(snapshot, now=NOW, seed=0, budget=WITHOUT_SOLVER)
        again, _told = within_user_limits(snapshot, plan)
        if {p.workload.uid for p in again.pending} == {p.workload.uid for p in snapshot.pending}:
            return again
        snapshot = again
    raise AssertionError("those who are offered change for ever")


async def keep(author: Author, snapshot: Snapshot) -> Plan:
    """The rules in the tables, and a cycle on the world stored."""
    document = TreeDocument(queues=tuple(snapshot.tree), flavors=snapshot.flavors, topology=snapshot.topology)
    async with begin(author.engine) as connection:
        changeset = await queues.plan(connection, document, writer=ManagedBy.API)
        assert not changeset.problems, changeset.problems
        await queues.apply(connection, changeset, actor="test", source="test", reason="test")
        config = await load_config(connection)
    snapshot = replace(snapshot, tree=config.tree, flavors=config.flavors, topology=config.topology)
    plan = decide(snapshot, now=NOW, seed=0, budget=WITHOUT_SOLVER)
    await author.cycle()
    body = encode(StoredCycle(snapshot=snapshot, now=NOW, seed=0, budget=WITHOUT_SOLVER, plan=plan))
    assert decode(body).snapshot.rules == snapshot.rules, (
        "what-ifs take the rules in force for the cycle's own"
    )
    await author.keep(body)
    return plan


def probe(queue: str, pods: int) -> dict[str, Any]:
    """A job of so many pods with a GPU each."""
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: "1"}}}
    return {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "probe", "namespace": "test", "labels": {"queuer.dev/queue": queue}},
        "spec": {
            "parallelism": pods, "completions": pods, "template": {"spec": {"containers": [container]}},
        },
    }  # fmt: skip


@pytest.fixture
def generous(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulations without end. Name it before `api`."""
    monkeypatch.setattr(simulator, "AT_ONCE", 1000.0)
    monkeypatch.setattr(simulator, "A_MINUTE", 60_000.0)


@pytest.mark.parametrize("seed", range(12))
async def test_a_probe_starts_at_the_headroom_and_not_with_a_pod_more(
    generous: None, api: Api, author: Author, seed: int
) -> None:
    """For each leaf and user, beside all who wait, with what is inherited, lent and held."""
    snapshot = limited(seed)
    plan = await keep(author, snapshot)
    lands = any(why.primary.params.get("landing") for why in plan.explanations.values())

    async def starts(leaf: str, user: str, pods: int) -> bool:
        found = await api.post("/api/v1/simulations", json={"job": probe(leaf, pods), "user": user})
        assert found.status_code == 200, found.text
        return bool(found.json()["answer"] == "starts")

    for leaf in snapshot.tree.leaves:
        for user in USERS:
            path = f"/api/v1/queues/{leaf}/headroom"
            found = await api.get(path, params={"shape": f"{GPU}:1", "user": user})
            assert found.status_code == 200, found.text
            rows = found.json()["rows"]
            most = max((row["pods"] for row in rows), default=0)
            assert most == 0 or await starts(leaf, user, most), (leaf, user, most)
            # While a place is kept for others a smaller job may be earlier in the order than a larger one. A job may
            # take the part of its user from one that can never start and heads the strict line before it.
            unsure = lands or (leaf in snapshot.tree.per_user and any(r["cappedBy"] == "line" for r in rows))
            assert unsure or not await starts(leaf, user, most + 1), (leaf, user, most)


@pytest.mark.parametrize("seed", range(12, 24))
async def test_fair_share_sums_up(api: Api, author: Author, seed: int) -> None:
    """Factors make the score, pairs the deficits, and no borrower is named for more than it borrows."""
    await keep(author, limited(seed))
    found = (await api.get("/api/v1/fair-share")).json()
    for row in found["items"]:
        for told in filter(None, (row["now"], row["offered"])):
            share = 0.0
            if told["capacity"] is not None:
                share = float(
                    Fraction(told["excess"]) / Fraction(told["capacity"]) / Fraction(told["weight"])
                )
            assert told["share"] == pytest.approx(share)
            assert told["score"] == pytest.approx(told["share"] + told["past"])
    lacking = {(row["queue"], row["resource"]): Fraction(row["amount"]) for row in found["deficits"]}
    paired, taken = (defaultdict[tuple[str, str], Fraction](Fraction) for _ in range(2))
    for pair in found["pairs"]:
        paired[pair["starved"], pair["resource"]] += Fraction(pair["amount"])
        if pair["borrower"] is not None:
            taken[pair["borrower"], pair["resource"]] += Fraction(pair["amount"])
    assert paired == lacking
    for row in found["items"]:
        for resource, used in row["used"].items():
            borrowed = Fraction(used) - Fraction(row["guaranteed"][resource])
            assert taken[row["path"], resource] <= max(Fraction(0), borrowed)


@pytest.mark.parametrize("seed", range(3))
async def test_a_bundle_makes_the_decision_anew_without_a_server(
    api: Api, author: Author, tmp_path: Path, seed: int
) -> None:
    await keep(author, limited(seed))
    answer = await api.get("/api/v1/cycles/1/bundle")
    assert answer.headers["content-disposition"] == 'attachment; filename="cycle-1.qcycle"'
    file = tmp_path / "cycle-1.qcycle"
    file.write_bytes(answer.content)
    nowhere = {**os.environ, "QUEUER_URL": "http://127.0.0.1:9", "QUEUER_DATABASE_URL": ""}
    command = (sys.executable, "-m", "queuer", "cycles", "replay", str(file))
    said = await asyncio.to_thread(subprocess.run, command, env=nowhere, capture_output=True, text=True)
    assert (said.returncode, said.stdout.split()[0]) == (0, "same"), said.stderr
    assert (await api.get("/api/v1/cycles/9/bundle")).status_code == 404

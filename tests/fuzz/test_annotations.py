"""For any text in a job's labels and annotations its owner is told which key is wrong, and nobody else
notices.

Each job goes the way of a real one: decoded by the watch, taken in, written to PostgreSQL, decided on, read
over REST.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx2
import msgspec
import pytest_asyncio
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.apply.jobs import ClusterJobs
from queuer.controller.cycle.snapshot import take
from queuer.controller.intake.read import take_in
from queuer.controller.ledger.commit import write
from queuer.controller.ledger.round import Round
from queuer.controller.memory.live import Live
from queuer.controller.memory.state import ClusterState
from queuer.controller.watch.views import Facts, job_view
from queuer.domain.keys import KEYS, Sort, Where
from queuer.domain.nodes import HOSTNAME, Node
from queuer.domain.queue import Queue, QueueTree
from queuer.domain.reasons import Token
from queuer.domain.rules import Rules
from queuer.kube.decoding import decoder_of
from queuer.kube.kinds import JOB, PYTORCHJOB, JobKind
from queuer.kube.objects import Meta, PriorityClass
from queuer.solver.decide import decide
from queuer.solver.records import Budget
from queuer.store.engine import begin
from tests.api.conftest import api, author, engine, leader
from tests.api.rows import Author
from tests.kube.manifests import job, pytorchjob

__all__ = ["api", "author", "engine", "leader"]

PREFIX = "queuer.dev/"
_ON_JOBS = (Where.OWNER, Where.QUEUER, Where.ADMINISTRATOR)
_DOCUMENTED = {key.name.removeprefix(PREFIX): key.sort for key in KEYS if key.where in _ON_JOBS}
LABELS = sorted(key for key, kind in _DOCUMENTED.items() if kind is Sort.LABEL)
PLAIN = sorted(
    key for key, kind in _DOCUMENTED.items() if kind is Sort.ANNOTATION and not key.startswith("min-count")
)
ANNOTATIONS = [*PLAIN, *(f"min-count.{name}" for name in ("main", "worker", "master", "Main", "x"))]

NEAR = (
    "", " ", "true", "True", "true ", "yes", "0", "1", "2", "-1", "+1", "1.5", "1e3", "\uff11", "²",
    "9" * 400, "nan", "inf", "90m", "1h30m", "1h-30m", "90 m", "1y", "9999999999d", "rack", "Rack", "host",
    HOSTNAME, "root.a", "root",
    "{}", "null", "[]", '{"id": 1}', '{"id": "x", "epoch": 1, "cycle": 1, "domains": {}}',
    '{"restore": 7}', '{"restore": {"x": []}}', "[" * 3000,
    '{"id":"00000000-0000-0000-0000-000000000000","epoch":"one"}', "a\x00b", "\x1b[31mred",
    "<img src=x onerror=alert(1)>", "\u202e", "line\nline", "\r\nSet-Cookie: a=b", "%s%n",
    "{0.__class__}", "'; DROP TABLE workload; --", "é" * 2000,
)  # fmt: skip
values = (
    st.sampled_from(NEAR) | st.text(max_size=300) | st.from_regex(r"[0-9]{1,40}[a-z.]{0,3}", fullmatch=True)
)
label_values = st.from_regex(
    r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]", fullmatch=True
) | st.sampled_from(
    ("", "root.a", "root", "root.b", "root..a", "root.A", "ROOT", "high", "system-node-critical", "1")
)
keys = st.sampled_from(ANNOTATIONS) | st.from_regex(
    r"[a-zA-Z0-9]([-a-zA-Z0-9_.]{0,40}[a-zA-Z0-9])?", fullmatch=True
)
Notes = Mapping[str, str]


@dataclass(slots=True, kw_only=True)
class World:
    """A controller's memory beside a database, with one job that must not notice anything."""

    engine: AsyncEngine
    api: httpx2.AsyncClient
    author: Author
    state: ClusterState
    facts: Facts
    numbers: count[int] = field(default_factory=lambda: count(1))

    async def hear(self, kind: JobKind, manifest: dict[str, Any]) -> Live:
        """A job as the API server would send it, until it is in memory and in the database."""
        raw = msgspec.json.encode(manifest)
        found = job_view(kind, decoder_of(kind.type)(raw))
        self.state.job_changed(found)
        changes, jobs = Round(self.state.live, now=0.0), ClusterJobs(None, self.state, self.facts)  # type: ignore[arg-type]
        take_in(changes, self.state.take_unread(99), state=self.state, jobs=jobs)
        assert changes.failed == {}
        async with begin(self.engine) as connection:
            await write(connection, changes, self.author.epoch)
        live = changes[found.uid].after
        assert live is not None
        self.state.put(live)
        return live

    async def bystander(self) -> str:
        """The row of the job that must not notice anything."""
        async with begin(self.engine) as connection:
            row = await connection.execute(
                text("SELECT to_jsonb(w)::text FROM workload w WHERE uid = 'good'")
            )
        return str(row.scalar_one())


@pytest_asyncio.fixture
async def world(engine: AsyncEngine, api: httpx2.AsyncClient, author: Author) -> World:
    state = ClusterState()
    tree = QueueTree.of([Queue(path="root"), Queue(path="root.a", namespaces=("n",)), Queue(path="root.b")])
    state.configure(Rules(tree=tree, revision=1))
    state.node_changed(Node(name="n0", labels={HOSTNAME: "n0"}, allocatable={"cpu": 8000, "pods": 9}))
    high = PriorityClass(metadata=Meta(name="high", uid="high"), value=100)
    found = World(
        engine=engine, api=api, author=author, state=state, facts=Facts(priority_classes={"high": high})
    )
    await found.hear(JOB, named(job(), "good", {"queue": "root.a"}, {}))
    return found


def named(manifest: dict[str, Any], uid: str, labels: Notes, annotations: Notes) -> dict[str, Any]:
    """The manifest with a uid, and these keys under our prefix."""
    meta = manifest["metadata"]
    meta |= {"uid": uid, "name": uid, "creationTimestamp": "2026-01-01T00:00:00Z"}
    meta["labels"] = {PREFIX + key: value for key, value in labels.items()}
    meta["annotations"] = {PREFIX + key: value for key, value in annotations.items()}
    return manifest


def test_every_documented_key_is_fuzzed() -> None:
    assert {"queue", "priority-class"} <= set(LABELS)
    assert {"hold", "max-runtime", "preemptible", "admission", "status", "user", "break-glass"} <= set(
        ANNOTATIONS
    )


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from((JOB, PYTORCHJOB)),
    labels=st.dictionaries(st.sampled_from(LABELS), label_values, max_size=3),
    annotations=st.dictionaries(keys, values, max_size=6),
)
async def test_what_is_wrong_is_told_by_its_key_and_harms_nobody(
    world: World, kind: JobKind, labels: Notes, annotations: Notes
) -> None:
    await (
        world.author.beat()
    )  # a controller that was not heard of for long is the first thing that an answer tells
    before, uid = await world.bystander(), f"u{next(world.numbers)}"
    manifest = named(job() if kind is JOB else pytorchjob(), uid, {"queue": "root.a", **labels}, annotations)
    live = await world.hear(kind, manifest)
    told = (await world.api.get(f"/api/v1/workloads/{uid}")).raise_for_status().json()
    assert told["state"] in ("Queued", "Held")
    event(str(live.explanation and live.explanation.primary.token))
    if live.explanation is not None and live.explanation.primary.token is Token.MISCONFIGURED:
        said = told["explanation"]["primary"]["text"]
        given_ = [*labels, *annotations]
        assert any(key in said for key in given_) or "queue" in said, said
        assert all(ord(letter) >= 32 or letter == "\n" for letter in said), repr(said)
    plan = decide(take(world.state, now=0.0), now=0.0, seed=0, budget=Budget(deterministic=0.0))
    assert "good" in {admission.uid for admission in plan.admissions}
    assert await world.bystander() == before
    world.state.drop(uid)

"""Any QueueTree document is applied whole, or refused by field with nothing stored."""

from __future__ import annotations

import copy
import json
from typing import Any

import httpx2
import yaml
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.store.engine import begin
from tests.api.conftest import api, author, engine, leader
from tests.api.rows import TREE, Author

__all__ = ["api", "author", "engine", "leader"]

PATH = "/api/v1/queue-tree"
REASON = "found by chance and tried"
_TABLES = ("configuration", "queue", "queue_quota", "flavor", "topology", "changeset", "draft")
_STORED = (
    f"SELECT jsonb_build_array({', '.join(f'(SELECT jsonb_agg(t) FROM {name} t)' for name in _TABLES)})::text"
)
fuzzed = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])

# A value where another belongs

WORDS = (
    "", " ", "root", "root.a", "root.a.b", "root.A", "root..a", ".root", "../root", "root." + "a" * 70,
    "root.ä", "nvidia.com/gpu", "cpu", "1", "64", "-1", "500m", "1.5", "1e400", "9" * 30, "256Gi", "1Zi",
    "5m", "1h30m", "300", "open", "held", "strict", "packed", "lower-priority", "default", "h100",
    "system-node-critical", "crd", "\x1b[31m", "\ud800", "a\x00b", "<b>", "'; DROP TABLE queue; --",
)  # fmt: skip
scalars = (
    st.none() | st.booleans() | st.integers() | st.integers(-2, 100) | st.floats() | st.sampled_from(WORDS)
    | st.text(max_size=40)
)  # fmt: skip
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=8,
)


ONE_IN = 20
"""So seldom something else stands where a value belongs: else no document would ever be applied."""


def mostly(sound: st.SearchStrategy[Any], odd: st.SearchStrategy[Any] = anything) -> st.SearchStrategy[Any]:
    """A legal value, and one time in `ONE_IN` an illegal one."""
    return st.integers(1, ONE_IN).flatmap(lambda number: odd if number == ONE_IN else sound)


def mapping(
    least: dict[str, Any] | None = None, **parts: st.SearchStrategy[Any]
) -> st.SearchStrategy[dict[str, Any]]:
    """At `least` these, and some of these keys, mostly with what belongs there; now and then a key that is none."""
    optional = {key: mostly(part) for key, part in parts.items()}
    known = st.fixed_dictionaries({}, optional=optional).map(lambda found: {**(least or {}), **found})
    more = st.dictionaries(st.text(max_size=9), anything, min_size=1, max_size=1)
    odd = st.tuples(known, more).map(lambda both: both[0] | both[1])
    return mostly(known, odd)


words = st.sampled_from
names = words(("a", "h100", "team-a", "rack", "topology.kubernetes.io/rack"))
amounts = words(("0", "1", "8", 8, "16", "64"))
row = mapping(
    {"resource": "cpu", "limit": "64"}, resource=words(("cpu", "memory", "nvidia.com/gpu")), flavor=names,
    guaranteed=amounts, limit=amounts, lend=amounts,
)  # fmt: skip
durations = words(("5m", "0s", "1h30m", "2d"))
policy = mapping(
    order=words(("priority", "strict", "packed")), sharing=words(("fair", "priority")),
    preempt=words(("lower-priority", "within-queue", "never")),
    reclaim=st.booleans(), minRuntime=durations, maxWait=durations, halfLife=durations, reservations=st.integers(0, 9),
)  # fmt: skip
per_user = mapping(
    limits=st.dictionaries(words(("cpu", "nvidia.com/gpu")), amounts, max_size=2),
    maxRunning=st.integers(1, 9),
)
access = mapping(
    users=st.lists(names, max_size=2, unique=True), groups=st.lists(names, max_size=2, unique=True),
    maxPriority=words(("high", "a")), maxRuntime=durations, maxPending=st.integers(1, 10**6), perUser=per_user,
)  # fmt: skip
rule = mapping(
    {"queue": "root.a"},
    user=names,
    group=names,
    namespace=names,
    queue=words(("root.a", "root.a.b", "root.none")),
)
queue = mapping(
    weight=st.floats(0.001, 100) | st.integers(1, 9), quota=st.lists(row, max_size=3), policy=policy,
    placement=st.lists(rule, max_size=1),
    access=access,
    namespaces=st.lists(names, max_size=3, unique=True), state=words(("open", "held", "draining")),
)  # fmt: skip
paths = mostly(
    words(("root", "root.a", "root.a.b", "root.c", "root.research")), words(WORDS) | st.text(max_size=9)
)
toleration = mapping(
    key=names, operator=words(("Equal", "Exists")), value=names, effect=words(("NoSchedule", "NoExecute"))
)
flavor = mapping(
    {"name": "h100"}, name=names, nodeLabels=st.dictionaries(names, names, max_size=2),
    tolerations=st.lists(toleration, max_size=2),
)  # fmt: skip
body = mapping(
    {"queues": {"root": {}}}, prune=st.booleans(), queues=st.dictionaries(paths, queue | st.none(), max_size=4),
    flavors=st.lists(flavor, max_size=2),
    topology=mapping({"levels": ["rack"]}, levels=st.lists(names, max_size=3, unique=True)),
)  # fmt: skip
heads = st.just({"apiVersion": "queuer.dev/v1", "kind": "QueueTree"})
documents = st.tuples(mostly(heads), body).map(
    lambda both: {**both[0], **both[1]} if isinstance(both[0], dict) else both[0]
)


def as_json(document: object) -> tuple[str, bytes]:
    return "application/json", json.dumps(document).encode("utf-8", "surrogatepass")


def as_yaml(document: object) -> tuple[str, bytes]:
    return "application/yaml", yaml.safe_dump(document, allow_unicode=False).encode()


async def stored(engine: AsyncEngine) -> str:
    """All that a document could change."""
    async with begin(engine) as connection:
        return str((await connection.execute(text(_STORED))).scalar_one())


async def send(api: httpx2.AsyncClient, engine: AsyncEngine, media: str, body: bytes) -> httpx2.Response:
    """The answer to a PUT of it, once a dry plan of it has been judged and stored nothing."""
    before = await stored(engine)
    await judged(api, "POST", "/api/v1/changesets", media, body, dryRun="true")
    assert await stored(engine) == before
    answer = await judged(api, "PUT", PATH, media, body, reason=REASON)
    assert answer.status_code == 200 or await stored(engine) == before
    return answer


async def judged(
    api: httpx2.AsyncClient, method: str, path: str, media: str, body: bytes, **params: str
) -> httpx2.Response:
    """An answer that is none of a fault of ours, and where it is a refusal names each field."""
    headers = {"Content-Type": media, "If-Match": "*"}
    answer = await api.request(method, path, content=body, headers=headers, params=params)
    event(f"{method} {answer.status_code}")
    assert answer.status_code in (200, 409, 413, 415, 422), answer.text
    if answer.status_code == 422:
        assert answer.json()["errors"], answer.text
        assert all(error["field"] and error["message"] for error in answer.json()["errors"]), answer.text
    return answer


@fuzzed
@given(document=mostly(documents), spelled=st.sampled_from((as_json, as_yaml)))
async def test_a_document_is_applied_whole_or_refused_by_field(
    api: httpx2.AsyncClient, engine: AsyncEngine, author: Author, document: Any, spelled: Any
) -> None:
    answer = await send(api, engine, *spelled(document))
    if answer.status_code == 200:
        exported = (await api.get(PATH)).json()
        again = await api.put(PATH, json=exported, params={"dryRun": "true"})
        assert again.status_code == 200, again.text
        assert again.json()["changes"] == [], "what is exported can be applied again, and changes nothing"


@fuzzed
@given(
    body=st.binary(max_size=200),
    media=st.sampled_from(("application/json", "application/yaml", "text/yaml", "text/plain", "")),
)
async def test_bytes_are_refused(
    api: httpx2.AsyncClient, engine: AsyncEngine, body: bytes, media: str
) -> None:
    await send(api, engine, media, body)


@fuzzed
@given(data=st.data())
async def test_a_document_with_a_few_bytes_changed_is_refused_or_means_something(
    api: httpx2.AsyncClient, engine: AsyncEngine, data: st.DataObject
) -> None:
    media, body = data.draw(st.sampled_from((as_json, as_yaml)))(copy.deepcopy(TREE))
    broken = bytearray(body)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(broken) - 1))
        broken[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    await send(api, engine, media, bytes(broken))

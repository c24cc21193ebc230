"""Foreign hosts and origins, oversized and broken bodies must not get in; and the text of every refusal."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.responses import PlainTextResponse

from queuer.api.http import guard
from queuer.api.http.guard import Guard
from queuer.api.http.problems import KINDS
from queuer.domain.errors import InvalidInput
from tests.api.identity import Api, client_of, local, open_to_all
from tests.api.problems import problem_of

TREE = "/api/v1/queue-tree"
PLAN = "0c1d2e3f-0000-4000-8000-000000000000"
BOMB = b"a0: &a0 [x, x]\n" + b"".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n".encode() for n in range(1, 40))


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[::1", "10.0.0.1:8787"])
async def test_a_foreign_host_name_is_refused_against_dns_rebinding(api: Api, host: str) -> None:
    response = await api.get("/api/v1/queues", headers={"Host": host})
    detail = problem_of(response, "misdirected")["detail"]
    assert "QUEUER_ALLOWED_HOSTS" in detail
    assert ":8787" not in detail  # the setting takes no port


@pytest.mark.parametrize("host", ["localhost:8787", "127.0.0.1", "[::1]:8787", "LOCALHOST"])
async def test_loopback_names_are_accepted(api: Api, host: str) -> None:
    assert (await api.get("/api/v1/queues", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_a_web_page_of_another_site_cannot_write(api: Api, headers: dict[str, str]) -> None:
    response = await api.put(TREE, content=b"{}", headers={"Content-Type": "application/json", **headers})
    problem_of(response, "foreign_origin")


async def test_a_form_of_any_page_cannot_write(api: Api) -> None:
    response = await api.put(TREE, content=b"{}", headers={"Content-Type": "text/plain", "If-Match": "*"})
    problem_of(response, "unsupported_media_type")


async def test_answers_carry_headers_that_keep_a_browser_from_guessing_or_framing(api: Api) -> None:
    headers = (await api.get("/login")).headers
    assert "script-src" not in headers["content-security-policy"]
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/nothing", "not_found"),
        ("GET", "/api/v1/nothing", "not_found"),
        ("GET", "/api/v1/queues/", "not_found"),
        ("GET", "/api/v1/queues/root.nowhere", "not_found"),
        ("GET", "/api/v1/workloads/unknown", "not_found"),
        ("GET", "/api/v1/workloads/unknown/explanation", "not_found"),
        ("GET", "/api/v1/workloads/by-ref/a/Job/b", "not_found"),
        ("GET", "/problems/nonsense", "not_found"),
        ("DELETE", "/api/v1/queue-tree", "method_not_allowed"),
        ("POST", "/api/v1/queues", "method_not_allowed"),
        ("GET", "/api/v1/workloads?limit=0", "invalid_input"),
        ("GET", "/api/v1/workloads?limit=many", "invalid_input"),
        ("GET", "/api/v1/events?after=1&before=9", "invalid_input"),
        ("GET", "/api/v1/workloads?state=Sleeping", "invalid_input"),
        ("GET", "/api/v1/workloads?reason=Lazy", "invalid_input"),
        ("GET", "/api/v1/workloads?cursor=!!", "invalid_input"),
        ("GET", "/api/v1/workloads?cursor=WyJuYW4iLCAidSJd", "invalid_input"),
        ("GET", "/api/v1/workloads?namespace=%00", "bad_request"),
        ("GET", "/api/v1/workloads/%00", "bad_request"),
        ("PUT", "/api/v1/queue-tree", "revision_required"),
        ("POST", "/api/v1/simulations", "unsupported_media_type"),
        ("POST", "/api/v1/workloads:hold", "invalid_input"),
    ],
)
async def test_every_failure_is_a_problem(api: Api, method: str, path: str, code: str) -> None:
    body = problem_of(await api.request(method, path), code)
    if code == "invalid_input":
        assert body["errors"][0]["field"]
        assert body["errors"][0]["message"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "queues", "GET"),
        ("DELETE", "queue-tree", "GET, PUT"),
        ("PUT", "workloads/some-uid", "GET, PATCH"),
        ("DELETE", f"changesets/{PLAN}", "GET"),
        ("GET", f"changesets/{PLAN}:apply", "POST"),  # its address fits that of its object, too
        ("DELETE", f"changesets/{PLAN}:apply", "POST"),
    ],
)
async def test_a_method_that_is_not_allowed_names_those_that_are(
    api: Api, method: str, path: str, allowed: str
) -> None:
    refused = await api.request(method, f"/api/v1/{path}")
    assert (refused.status_code, refused.headers["allow"]) == (405, allowed)


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("workloads/u1:explode", ":evict, :hold, :release"),
        ("workloads:explode", ":evict, :hold, :prioritise, :release"),
        ("queues/root.a:explode", ":drain, :hold, :resume"),
        (f"changesets/{PLAN}:explode", ":apply, :discard"),
    ],
)
async def test_an_unknown_command_is_told_those_that_there_are(api: Api, path: str, known: str) -> None:
    refused = await api.post(f"/api/v1/{path}")
    assert refused.status_code in (404, 405)
    assert refused.json()["detail"] == f"there is no command :explode here; known: {known}"


@pytest.mark.parametrize(
    ("media_type", "body", "says"),
    [
        ("application/json", b"{", "line 1"),
        ("application/json", b'{"a": 1, "a": 2}', "'a' is given twice"),
        ("application/json", b'{"a": NaN}', "NaN"),
        ("application/json", b"\xff", "utf-8"),
        ("application/json", b"[" * 30_000, "nested too deeply"),
        ("application/yaml", b"a: [", "line 1"),
        ("application/yaml", b"queues: {}\nqueues: {}", "'queues' is given twice"),
        ("application/yaml", b"[" * 30_000, "nested too deeply"),
        ("application/yaml", b"!!python/object/apply:os.system [id]", "could not determine a constructor"),
        ("application/yaml", b"a: !!binary x", "base64"),
        ("application/yaml", b"? {a: b}\n: c", "unhashable"),
        ("application/yaml", b"a: 2026-99-99", ""),
        ("application/yaml", b"\x00", ""),
        ("application/json", b'{"a": "\\u0000"}', "control character"),
        ("application/json", b'{"a": "\\ud800"}', "no text"),
        ("application/json", b'{"\\u0000": 1}', "control character"),
        ("application/yaml", b"a: &a [*a]", "more than"),
        ("application/yaml", BOMB, "more than"),
    ],
)
async def test_a_broken_body_is_refused_with_its_place(
    api: Api, media_type: str, body: bytes, says: str
) -> None:
    response = await api.put(TREE, content=body, headers={"Content-Type": media_type, "If-Match": "*"})
    found = problem_of(response, "invalid_input")
    assert says in found["detail"]


async def test_an_oversized_body_is_refused_whether_or_not_it_says_its_size(api: Api) -> None:
    headers = {"Content-Type": "application/yaml", "If-Match": "*"}
    declared = await api.put(TREE, content=b"#" * 70_000, headers=headers)
    problem_of(declared, "too_large")

    async def chunks() -> Any:
        for _ in range(70):
            yield b"#" * 1000

    streamed = await api.put(TREE, content=chunks(), headers=headers)
    problem_of(streamed, "too_large")


async def test_each_kind_of_problem_is_explained_where_its_type_points(api: Api) -> None:
    for code, kind in KINDS.items():
        page = (await api.get(f"/problems/{code}")).text
        assert (page.startswith(str(kind.status)), kind.advice in page) == (True, True)


async def test_a_database_that_is_gone_is_503_and_the_process_still_lives(database_url: str) -> None:
    from queuer.store.engine import make_engine

    nowhere = database_url.rsplit("/", 1)[0] + "/no_such_database"
    engine = make_engine(nowhere, name="api-tests")
    app = open_to_all(engine, nowhere)
    async with client_of(app) as api:
        for path in ("/readyz", "/api/v1/queues"):
            response = await api.get(path)
            problem_of(response, "database_unavailable")
            assert response.headers["retry-after"]
        assert (await api.get("/livez")).text == "ok"
    await engine.dispose()


async def test_an_unexpected_failure_is_500_without_its_innards(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret innards")

    monkeypatch.setattr("queuer.api.queues.views.queues", broken)
    response = await api.get("/api/v1/queues")
    problem_of(response, "internal")
    assert "secret" not in response.text


async def test_probes_answer_under_any_host_and_metrics_count_routes_not_paths(api: Api) -> None:
    assert (await api.get("/readyz", headers={"Host": "10.1.2.3:8787"})).text == "ok"
    await api.get("/api/v1/queues/root")
    await api.get("/nothing/at/all")
    text = (await api.get("/metrics")).text
    assert 'queuer_http_requests_total{code="200",method="GET",route="/api/v1/queues/{path}"} 1.0' in text
    assert 'queuer_http_requests_total{code="404",method="GET",route="unmatched"} 1.0' in text
    assert "/nothing" not in text


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_without_authentication_only_loopback_is_listened_on_unless_told(host: str) -> None:
    with pytest.raises(InvalidInput, match="--allow-unauthenticated-network"):
        local("postgresql://x", host=host)
    assert local("postgresql://x", host=host, open_network=True).host == host


@pytest.mark.parametrize(
    ("method", "path", "field", "hint"),
    [
        ("PUT", "/api/v1/queue-tree?dryrun=true", "dryrun", "did you mean dryRun?"),
        ("GET", "/api/v1/queues?limitt=3", "limitt", "did you mean limit?"),
        ("GET", "/api/v1/workloads?state=Queued&state=Running", "state", "give it once"),
        ("GET", "/readyz?verbose=1", "verbose", "this route has none"),
    ],
)
async def test_an_unknown_or_repeated_parameter_is_refused(
    api: Api, method: str, path: str, field: str, hint: str
) -> None:
    (error,) = problem_of(await api.request(method, path), "invalid_input")["errors"]
    assert (error["field"], error["hint"]) == (field, hint)


async def test_a_body_with_many_keys_is_read_fast(api: Api) -> None:
    """Counting each key among all of them took minutes, in which no probe was answered."""
    pairs = ", ".join(f'"k{n}": {n}' for n in range(4_000))
    body = f'{{{pairs}, "k7": 1}}'.encode()
    answer = await api.put(
        "/api/v1/queue-tree?dryRun=true", content=body, headers={"content-type": "application/json"}
    )
    assert "'k7' is given twice" in problem_of(answer, "invalid_input")["detail"]


async def test_yaml_that_takes_too_long_to_read_is_refused_unread(
    engine: AsyncEngine, database_url: str
) -> None:
    app = open_to_all(engine, database_url)
    async with client_of(app) as client:
        answer = await client.put(
            "/api/v1/queue-tree?dryRun=true",
            content=b"a: b\n" * 60_000,
            headers={"content-type": "application/yaml"},
        )
    assert "send it as application/json" in problem_of(answer, "invalid_input")["detail"]


CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def asked(headers: dict[str, str]) -> None:
    """One request to a guard with nothing behind it."""

    async def known(_: object) -> None:
        pass

    app = Guard(PlainTextResponse("ok"), hosts=["here"], max_body=100, caller=known, observe=lambda *_: None)
    async with client_of(app, base_url="http://here") as client:
        assert (await client.get("/api/v1/queues", headers=headers)).status_code == 200


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Spans of a process that traces."""
    provider, found = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(found))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(guard, "_TRACER", provider.get_tracer("queuer"))
    return found


PARENTS = (CALLER, CALLER + "x" * 600, "00-zz")
STATES = ("a=1", "odd " * 50, "a=1," * 500)


@pytest.mark.parametrize("state", STATES, ids=len)
@pytest.mark.parametrize("parent", PARENTS, ids=len)
async def test_trace_headers_of_a_stranger_are_neither_read_nor_logged_without_tracing(
    parent: str, state: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def extract(_: object) -> None:
        pytest.fail("nothing is to be read")

    monkeypatch.setattr(guard._CALLERS, "extract", extract)
    await asked({"traceparent": parent, "tracestate": state})
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("state", STATES, ids=len)
@pytest.mark.parametrize("parent", PARENTS, ids=len)
async def test_of_the_trace_headers_the_parent_alone_is_read(
    parent: str, state: str, spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    await asked({"traceparent": parent, "tracestate": state})
    (span,) = spans.get_finished_spans()
    assert parent_of(span) == ("0af7651916cd43dd8448eb211c80319c" if parent == CALLER else None)
    assert span.context is not None
    assert not span.context.trace_state
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def parent_of(span: ReadableSpan) -> str | None:
    """The trace that a caller's span is of."""
    return None if span.parent is None else f"{span.parent.trace_id:032x}"

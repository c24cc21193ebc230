"""Faults between command line and API: one sentence, one next command, one exit code."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from queuer import __version__
from queuer.cli import main
from queuer.cli.client import Client
from queuer.cli.config import MOST_BYTES
from queuer.cli.failures import CommandFailed, Exit
from queuer.local.cluster import Cluster, State
from queuer.local.fleet import Fleet
from queuer.local.processes import ProcessTable

Handler = Callable[[httpx2.Request], httpx2.Response]


def client(handler: Handler) -> Client:
    return Client("http://queuer.test", transport=httpx2.MockTransport(handler))


def answer(status: int, **body: Any) -> Handler:
    return lambda _: httpx2.Response(status, json=body)


@pytest.mark.parametrize(
    ("status", "exit_code"),
    [
        (401, Exit.FORBIDDEN),
        (403, Exit.FORBIDDEN),
        (404, Exit.NOT_FOUND),
        (409, Exit.CONFLICT),
        (412, Exit.CONFLICT),
        (422, Exit.USAGE),
        (500, Exit.FAILURE),
        (503, Exit.UNREACHABLE),
    ],
)
def test_each_kind_of_refusal_has_its_exit_code(status: int, exit_code: Exit) -> None:
    with pytest.raises(CommandFailed, match="no such luck") as caught:
        client(answer(status, detail="no such luck")).get("/queues")
    assert caught.value.exit_code is exit_code


def test_every_problem_of_a_document_is_shown_with_its_fix() -> None:
    errors = [
        {"field": "queues.root.a.weight", "message": "0 is not above 0", "hint": ""},
        {"field": "queues.root.b.qouta", "message": "unknown field", "hint": "did you mean quota?"},
    ]
    with pytest.raises(CommandFailed) as caught:
        client(answer(422, detail="two things", errors=errors)).get("/queues")
    assert "queues.root.a.weight: 0 is not above 0" in caught.value.message
    assert "queues.root.b.qouta: unknown field (did you mean quota?)" in caught.value.message


def test_something_that_is_not_our_api_is_named_as_such() -> None:
    with pytest.raises(CommandFailed, match="not as a Queuer API does"):
        client(lambda _: httpx2.Response(502, text="<html>bad gateway</html>")).get("/queues")


def test_a_page_that_is_no_json_is_a_failure_too() -> None:
    with pytest.raises(CommandFailed, match="not as a Queuer API does"):
        client(lambda _: httpx2.Response(200, text="<html>welcome</html>")).get("/queues")


def test_a_server_that_is_not_there_and_one_that_is_late_differ() -> None:
    def refuse(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused", request=request)

    def sleep(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadTimeout("late", request=request)

    with pytest.raises(CommandFailed) as absent:
        client(refuse).get("/queues")
    with pytest.raises(CommandFailed) as late:
        client(sleep).get("/queues")
    assert (absent.value.exit_code, late.value.exit_code) == (Exit.UNREACHABLE, Exit.TIMEOUT)
    assert "queuer local up" in absent.value.hint


@pytest.mark.parametrize(("port", "here"), [(8790, True), (8787, False)])
def test_the_next_command_looks_where_the_server_is(
    port: int, here: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port-forward has a loopback address like a local cluster's API, and is none."""
    state = State(
        parts=("api",), ports={"api": 8790}, etcd_data=tmp_path, programs={},
        fleet=Fleet(nodes=1, blocks=1, racks=1, gpus=0),
    )  # fmt: skip
    Cluster(dir=tmp_path, state=state, processes=ProcessTable(tmp_path)).save()
    monkeypatch.setenv("QUEUER_LOCAL_DIR", str(tmp_path))
    hints = []
    for status in (503, 500):
        api = Client(
            f"http://127.0.0.1:{port}", transport=httpx2.MockTransport(answer(status, detail="away"))
        )
        with pytest.raises(CommandFailed) as caught:
            api.get("/queues")
        hints.append(caught.value.next)
    there = ["kubectl -n queuer-system get pods", "kubectl -n queuer-system logs deploy/queuer-api"]
    assert hints == (["queuer local status", "queuer local logs api"] if here else there)


def test_pages_are_followed_to_the_end() -> None:
    def pages(request: httpx2.Request) -> httpx2.Response:
        cursor = request.url.params.get("cursor")
        following = {None: "b", "b": "c", "c": None}[cursor]
        return httpx2.Response(200, json={"items": [cursor or "a"], "next": following})

    assert list(client(pages).pages("/workloads")) == ["a", "b", "c"]


def test_parameters_that_are_not_given_are_not_sent() -> None:
    seen: list[str] = []

    def note(request: httpx2.Request) -> httpx2.Response:
        seen.append(str(request.url))
        return httpx2.Response(200, json={})

    client(note).get("/workloads", queue="root.a", state=None)
    assert seen == ["http://queuer.test/api/v1/workloads?queue=root.a"]


@pytest.mark.parametrize("url", ["127.0.0.1:8787", "ftp://host", "localhost"])
def test_an_address_that_is_no_http_url_is_a_usage_error(url: str) -> None:
    with pytest.raises(CommandFailed) as caught:
        Client.from_env({"QUEUER_API": url})
    assert caught.value.exit_code is Exit.USAGE


def run(
    arguments: Sequence[str],
    handler: Handler,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `queuer ARGUMENTS` against a stub of the API."""
    monkeypatch.setattr(Client, "from_env", lambda: client(handler))
    monkeypatch.setattr("sys.argv", ["queuer", *arguments])
    try:
        main.run()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_an_error_goes_to_stderr_and_leaves_stdout_clean(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(
        ["queue", "show", "root.x"], answer(404, detail="there is no queue root.x"), monkeypatch, capsys
    )
    assert (code, out) == (Exit.NOT_FOUND, "")
    assert "there is no queue root.x" in err
    assert "queuer queue ls" in err


def test_json_output_is_the_answer_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page: dict[str, Any] = {"items": [], "next": None, "asOf": "2026-11-21T10:00:00Z"}
    code, out, _ = run(["jobs", "-o", "json"], answer(200, **page), monkeypatch, capsys)
    assert code == 0
    assert json.loads(out) == page


@pytest.mark.parametrize(
    ("verdict", "code"), [("WAIT", 10), ("CHANGE", 11), ("ESCALATE", 12), ("HELD", 13), (None, 0)]
)
def test_why_can_tell_the_verdict_by_its_exit_code(
    verdict: str | None, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"uid": "u1", "kind": "Job", "namespace": "team-a", "name": "j", "state": "Queued", "deleted": None}

    def api(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/workloads"):
            return httpx2.Response(200, json={"items": [row], "next": None})
        return httpx2.Response(200, json={**row, "explanation": {"verdict": verdict}})

    assert run(["why", "j", "--exit-status", "-o", "json"], api, monkeypatch, capsys)[0] == code


def test_a_name_that_several_jobs_bear_asks_which(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"uid": f"u{n}", "kind": "Job", "namespace": space, "name": "j", "state": "Queued", "deleted": None}
        for n, space in enumerate(("team-a", "team-b"))
    ]
    code, _, err = run(["why", "j"], answer(200, items=rows, next=None), monkeypatch, capsys)
    assert code == Exit.USAGE
    assert "queuer why job/j -n team-a" in err


@pytest.mark.parametrize(
    ("state", "deleted"), [("Queued", "2026-11-21T10:00:00Z"), ("Succeeded", None)], ids=["deleted", "ended"]
)
def test_a_live_job_is_meant_before_its_namesake_of_another_kind(
    state: str, deleted: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands that the server gives name no kind: a job of that name which is gone must not stop them."""
    live = {
        "uid": "u1",
        "kind": "Job",
        "namespace": "team-a",
        "name": "j",
        "state": "Queued",
        "deleted": None,
    }
    gone = {**live, "uid": "u2", "kind": "PyTorchJob", "state": state, "deleted": deleted}

    def api(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/workloads"):
            return httpx2.Response(200, json={"items": [gone, live], "next": None})
        return httpx2.Response(200, json={**live, "uid": request.url.path.rpartition("/")[2]})

    code, out, err = run(["why", "j", "-o", "json"], api, monkeypatch, capsys)
    assert code == 0, err
    assert json.loads(out)["uid"] == "u1"


@pytest.mark.parametrize("version", ["0.0.1", __version__])
def test_an_answer_that_lacks_a_field_is_told_with_the_versions(
    version: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server of this version has no excuse: that is a fault of ours, and shows where it is."""
    handler = answer(200, version=version, name="alice")
    if version == __version__:
        with pytest.raises(KeyError):
            run(["whoami"], handler, monkeypatch, capsys)
        return
    code, out, err = run(["whoami"], handler, monkeypatch, capsys)
    assert (code, out) == (1, "")
    assert "the server is of version 0.0.1" in err
    assert "queuer==0.0.1" in err


def test_how_many_are_readable_is_told_as_the_part_that_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for next, told in (("c", "the first 0 of yours; 3 of others"), (None, "\n0 of yours; 3 of others")):
        page = answer(200, items=[], next=next, others=3, asOf="2026-11-21T10:00:00Z")
        assert told in run(["jobs", "-q", "root.a"], page, monkeypatch, capsys)[2]


def plan(**changes: Any) -> dict[str, Any]:
    change = {"name": "root.a", "action": "create", "text": "root.a: new"}
    nobody = {"count": 0, "amounts": {}, "jobs": []}
    found = {
        "id": "c1",
        "baseRevision": 4,
        "revision": None,
        "changes": [change],
        "warnings": [],
        "effect": "drain",
    }
    found |= {"reductions": [], "overLimit": [], "reclaimable": [], "victims": nobody, "impact": None}
    found |= {"states": []}
    return found | {"impactMissing": "no cycle is stored"} | changes


def test_apply_without_a_terminal_needs_yes_and_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    document = tmp_path / "tree.yaml"
    document.write_text("kind: QueueTree")
    seen: list[str] = []

    def api(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.url.query.decode())
        return httpx2.Response(200, json=plan())

    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    code, out, err = run(["apply", "-f", str(document)], api, monkeypatch, capsys)
    assert code == Exit.USAGE
    assert "-y" in err
    assert "+ root.a: new" in out
    assert seen == ["effect=drain"]


def test_a_document_is_read_no_further_than_a_server_takes_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    """A device or a log that never ends is told, and nothing is sent."""
    document = tmp_path / "tree.yaml"
    with document.open("wb") as sparse:
        sparse.truncate(MOST_BYTES + 1)
    code, _, err = run(["apply", "-f", str(document), "-y"], answer(500), monkeypatch, capsys)
    assert code == Exit.USAGE
    assert f"tree.yaml has more than {MOST_BYTES} bytes" in err


def test_apply_applies_the_plan_that_it_has_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    document = tmp_path / "tree.yaml"
    document.write_text("kind: QueueTree")
    asked: list[tuple[str, str | None]] = []

    def api(request: httpx2.Request) -> httpx2.Response:
        asked.append((request.url.path, request.headers.get("idempotency-key")))
        return httpx2.Response(200, json=plan(revision=5))

    code, _, err = run(["apply", "-f", str(document), "-y"], api, monkeypatch, capsys)
    assert code == 0
    assert [path for path, _ in asked] == ["/api/v1/changesets", "/api/v1/changesets/c1:apply"]
    assert asked[1][1]
    assert "revision 5" in err


def test_what_takes_something_away_needs_a_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    document = tmp_path / "tree.yaml"
    document.write_text("kind: QueueTree")
    reductions = [
        {"field": "queues.root.a.quota[0].limit", "message": "16 is 8 below the 24 in use", "hint": ""}
    ]
    sent: list[str] = []

    def api(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.url.path)
        return httpx2.Response(200, json=plan(reductions=reductions, revision=5))

    arguments = ["apply", "-f", str(document), "-y", "--reason"]
    code, _, err = run([*arguments, "short"], api, monkeypatch, capsys)
    assert (code, len(sent)) == (Exit.USAGE, 1)
    assert "16 is 8 below the 24" in err
    assert "--reason" in err
    assert run([*arguments, "team-b needs them"], api, monkeypatch, capsys)[0] == 0


@pytest.mark.parametrize(
    ("handler", "code", "printed"),
    [
        (answer(200, **plan(changes=[])), 0, False),
        (answer(200, **plan()), 1, True),
        (answer(422, detail="wrong"), 2, False),
        (answer(409, detail="theirs"), Exit.CONFLICT, False),
    ],
)
def test_diff_has_the_exit_codes_of_kubectl(
    handler: Handler, code: int, printed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    tmp_path: Any,
) -> None:  # fmt: skip
    document = tmp_path / "tree.yaml"
    document.write_text("kind: QueueTree")
    found, out, err = run(["diff", "-f", str(document)], handler, monkeypatch, capsys)
    assert (found, bool(out)) == (code, printed)
    assert bool(err) == (code > 1)


def test_apply_without_differences_does_not_write(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    document = tmp_path / "tree.yaml"
    document.write_text("kind: QueueTree")
    requests: list[httpx2.Request] = []

    def api(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        return httpx2.Response(200, json=plan(changes=[]))

    code, _, err = run(["apply", "-f", str(document), "-y"], api, monkeypatch, capsys)
    assert (code, len(requests)) == (0, 1)
    assert "no differences" in err


def test_a_queue_is_resumed_by_one_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`why` tells an admin to do so."""
    sent: list[str] = []

    def api(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.url.path)
        return httpx2.Response(200, json=plan(revision=5))

    code, _, err = run(["queue", "resume", "root.a", "-y"], api, monkeypatch, capsys)
    assert (code, sent) == (0, ["/api/v1/queues/root.a:resume"])
    assert "revision 5" in err


@pytest.mark.parametrize(("same", "expected"), [(True, 0), (False, Exit.FAILURE)])
def test_a_replay_that_differs_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], same: bool, expected: int
) -> None:
    body = {"cycle": 7, "same": same, "difference": "" if same else "order: a, b", "seconds": 0.1}
    code, _, err = run(["cycles", "replay", "7"], answer(200, **body), monkeypatch, capsys)
    assert code == expected
    assert ("the same plan" in err) is same

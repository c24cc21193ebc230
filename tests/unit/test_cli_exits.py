"""Every verb that talks to the API ends with the exit code of what went wrong, told on stderr alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from queuer.cli import main
from queuer.cli.failures import Exit
from queuer.cli.main import VERBS
from queuer.local.site import RIGHTS, Finding, unknown, wrong
from tests.cli import Done, queuer

JOB, QUEUE, FILE = "JOB", "root.a", "tree.yaml"
READING = [
    ["ahead", JOB],
    ["audit"],
    ["cycles"],
    ["cycles", "replay", "7"],
    ["cycles", "show", "7"],
    ["events"],
    ["events", JOB],
    ["export"],
    ["jobs"],
    ["open", JOB],
    ["queue", "history", QUEUE],
    ["queue", "ls"],
    ["queue", "pending", QUEUE],
    ["queue", "show", QUEUE],
    ["queue", "tree"],
    ["queue", "where", "-n", "team-a"],
    ["share"],
    ["sim", "job", "-f", FILE],
    ["sim", "shape", "8xgpu:8"],
    ["status"],
    ["top"],
    ["topo", "--slots", "8xgpu:8"],
    ["wait", JOB],
    ["whoami"],
    ["why", "--all"],
    ["why", JOB],
]
ON_JOBS = [["evict", JOB], ["hold", JOB], ["prioritise", JOB, "--priority", "5"], ["release", JOB]]
ON_QUEUES = [["queue", verb, QUEUE] for verb in ("drain", "hold", "resume")]
BY_FILE = [["apply", "-f", FILE], ["diff", "-f", FILE], ["plan", "-f", FILE]]
EVERY = [*READING, *ON_JOBS, *ON_QUEUES, *BY_FILE]
ELSEWHERE = {
    "completion",
    "db",
    "doctor",
    "import",
    "local",
    "login",
    "logout",
    "serve",
    "sim",
    "uninstall-check",
}
"""Verbs that work on this machine, or whose end is another matter than the server's answer."""


def _refuse(error: Callable[[httpx2.Request], Exception]) -> httpx2.MockTransport:
    def handle(request: httpx2.Request) -> httpx2.Response:
        raise error(request)

    return httpx2.MockTransport(handle)


def _answer(status: int) -> httpx2.MockTransport:
    return httpx2.MockTransport(lambda _: httpx2.Response(status, json={"detail": "no such luck"}))


ENDS = {
    "unauthenticated": (_answer(401), Exit.FORBIDDEN),
    "forbidden": (_answer(403), Exit.FORBIDDEN),
    "not found": (_answer(404), Exit.NOT_FOUND),
    "conflict": (_answer(409), Exit.CONFLICT),
    "stale": (_answer(412), Exit.CONFLICT),
    "invalid": (_answer(422), Exit.USAGE),
    "unavailable": (_answer(503), Exit.UNREACHABLE),
    "unreachable": (_refuse(lambda r: httpx2.ConnectError("refused", request=r)), Exit.UNREACHABLE),
    "late": (_refuse(lambda r: httpx2.ReadTimeout("late", request=r)), Exit.TIMEOUT),
}


def _names(arguments: list[str]) -> str:
    return " ".join(arguments)


@pytest.fixture(autouse=True)
def _document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(FILE).write_text("kind: QueueTree")


def test_the_table_has_every_verb() -> None:
    assert {arguments[0] for arguments in EVERY} | ELSEWHERE == set(VERBS)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("arguments", EVERY, ids=_names)
def test_what_the_server_answers_is_the_exit_code(arguments: list[str], end: str) -> None:
    transport, code = ENDS[end]
    _failed(queuer(transport, *arguments), code)


@pytest.mark.parametrize("arguments", EVERY, ids=_names)
def test_a_flag_that_is_not_known_is_a_usage_error(arguments: list[str]) -> None:
    _failed(queuer(_answer(500), *arguments, "--no-such-flag"), Exit.USAGE)


@pytest.mark.parametrize("arguments", [a for a in EVERY if a not in ON_QUEUES], ids=_names)
def test_a_format_that_is_not_known_is_a_usage_error(arguments: list[str]) -> None:
    for form in ("jsonpath={.items}", "xml"):
        _failed(queuer(_answer(500), *arguments, "-o", form), Exit.USAGE)


@pytest.mark.parametrize("arguments", [a for a in READING if JOB in a], ids=_names)
def test_a_job_that_nobody_knows_is_not_found(arguments: list[str]) -> None:
    empty = httpx2.MockTransport(lambda _: httpx2.Response(200, json={"items": [], "next": None}))
    _failed(queuer(empty, *arguments), Exit.NOT_FOUND)


def _failed(done: Done, code: Exit) -> None:
    assert (done.code, done.out) == (code, ""), done.err
    assert done.err
    assert "Traceback" not in done.err


WRITES = [*ON_JOBS, *ON_QUEUES, ["apply", "-f", FILE]]


@pytest.mark.parametrize("arguments", WRITES, ids=_names)
def test_without_a_terminal_and_without_yes_nothing_is_written(arguments: list[str]) -> None:
    """The plan may be asked for; what applies it, and what commands jobs, is not sent."""
    sent: list[str] = []
    job = {"uid": "u1", "kind": "Job", "namespace": "a", "name": JOB, "state": "Running", "queue": QUEUE}
    plan = {"id": "c1", "changes": [{"action": "update", "name": QUEUE, "text": "changes"}], "warnings": [],
            "impact": None, "impactMissing": "no cycle is stored", "overLimit": [], "victims": {"count": 0},
            "reclaimable": [], "reductions": [], "states": []}  # fmt: skip
    answers = {
        "/api/v1/workloads": {"items": [{**job, "deleted": None}], "next": None},
        "/api/v1/changesets": plan,
        **{f"/api/v1/queues/{QUEUE}:{verb}?dryRun=true": plan for verb in ("drain", "hold", "resume")},
    }

    def handle(request: httpx2.Request) -> httpx2.Response:
        address = request.url.path + ("?dryRun=true" if b"dryRun=true" in request.url.query else "")
        sent.append(address)
        return httpx2.Response(200, json=answers[address])

    done = queuer(httpx2.MockTransport(handle), *arguments)
    assert done.code == Exit.USAGE
    assert "add -y" in done.err
    assert set(sent) <= set(answers)


def test_what_the_caller_may_not_look_at_is_one_line_and_not_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other unknown things keep their own line and leave the exit code at 0; a fault counts more than both."""
    refused = unknown("it cannot be read", RIGHTS)
    blind = [("policies", refused)] * 35 + [("rights", refused)]
    other = ("database", unknown("no database was named", "--database-url"))
    assert examined(monkeypatch, [other]) == 0
    assert examined(monkeypatch, [other, *blind]) == Exit.FORBIDDEN
    assert examined(monkeypatch, [*blind, ("api", wrong("it is down", "start it"))]) == Exit.FAILURE
    capsys.readouterr()
    examined(monkeypatch, [other, *blind])
    printed = capsys.readouterr().out
    assert "36 checks need rights that you do not have: policies (35), rights\n" in printed
    assert len(printed.splitlines()) == 4


def examined(monkeypatch: pytest.MonkeyPatch, findings: list[tuple[str, Finding]]) -> int:
    """How `queuer doctor` ends with these findings."""
    monkeypatch.setattr("queuer.cli.doctor.examine", lambda *_: iter(findings))
    monkeypatch.setattr("sys.argv", ["queuer", "doctor"])
    try:
        main.run()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0

"""A queue is held, drained and opened by one request: atomic, audited, by who administers it, with what is odd."""

from __future__ import annotations

import copy
from datetime import datetime
from typing import Any

import pytest

from queuer.api.identity.rights import administering, reading
from queuer.cli.output import clock
from queuer.domain.intake import closed_queue
from queuer.domain.queue import ManagedBy
from queuer.domain.reasons import Token, simple
from queuer.domain.workload import State
from queuer.solver.stored import encode
from queuer.store import workloads
from queuer.store.config import load_config
from queuer.store.engine import begin
from queuer.store.tables import NotAsked
from queuer.store.workloads import Intake
from tests.api.cli import run
from tests.api.identity import EVERYTHING, Api, Table
from tests.api.problems import problem_of
from tests.api.rows import GPU, TREE, A, Author, B, decided_on, two_racks
from tests.store.support import NOW, workload

QUEUES = "/api/v1/queues"
ROOT, LEAD, EVE = ({"user": name} for name in ("root", "lead", "eve"))


USERS = Table(
    {
        "root": frozenset({EVERYTHING}),
        "lead": frozenset({administering(A), reading("team-a")}),
        "eve": frozenset(),
    }
)


async def test_a_queue_is_held_drained_and_opened(shared: Api, author: Author) -> None:
    """All else that it says stays as it is; each is a revision with its reason."""
    await author.tree()
    before = (await shared.get("/api/v1/queue-tree", headers=ROOT)).json()
    for number, (verb, state) in enumerate((("hold", "held"), ("drain", "draining"), ("resume", "open")), 2):
        made = await shared.post(f"{QUEUES}/{A}:{verb}", json={"reason": "new switches"}, headers=LEAD)
        assert made.status_code == 200, made.text
        told = made.json()
        assert (told["state"], told["revision"], told["reason"]) == ("applied", number, "new switches")
        assert len(told["changes"]) == 1
        assert (await shared.get(f"{QUEUES}/{A}", headers=EVE)).json()["state"] == state
    assert (await shared.get("/api/v1/queue-tree", headers=ROOT)).json() == before
    audit = (await shared.get("/api/v1/audit", headers=ROOT)).json()["items"]
    assert [(row["actor"], row["reason"]) for row in audit[:3]] == [("lead", "new switches")] * 3


@pytest.mark.parametrize(("verb", "word"), [("hold", "is held"), ("drain", "drains")])
async def test_a_job_says_since_when_by_whom_and_why_its_queue_is_closed(
    shared: Api, author: Author, verb: str, word: str
) -> None:
    """It is held, not at fault; the controller knows the state alone, the changesets know the rest."""
    await author.tree()
    for deed, reason in (("hold", "an older one"), ("resume", ""), (verb, "new switches")):
        made = await shared.post(f"{QUEUES}/{A}:{deed}", json={"reason": reason}, headers=LEAD)
        assert made.status_code == 200, made.text
    async with author.engine.connect() as connection:
        tree = (await load_config(connection)).tree
    await author.submit(workload("u1", queue=A))
    why = closed_queue(A, tree)
    assert why is not None
    await author.cycle(explain={"u1": why})
    await author.beat()
    told = (await shared.get("/api/v1/workloads/u1", headers=LEAD)).json()["explanation"]
    assert (told["verdict"], told["primary"]["token"], told["primary"]["unstartable"]) == (
        "HELD",
        "Suspended",
        False,
    )
    since = datetime.fromisoformat(told["primary"]["params"]["closed"][0]["since"])
    assert (
        told["primary"]["text"] == f'{A} {word} since {since:%Y-%m-%d %H:%M:%S} UTC, by lead: "new switches".'
    )
    assert told["next"] == f"queuer queue resume {A} -y"
    root = (await shared.get("/api/v1/workloads/u1", headers=ROOT)).json()["explanation"]
    assert root["next"] == told["next"]


async def test_a_reason_of_the_version_before_is_read(shared: Api, author: Author) -> None:
    """It has the closed queues as paths alone: its own sentence stays, and the next step is known."""
    await author.tree()
    await author.submit(workload("u1", queue=A))
    said = simple(Token.SUSPENDED, f"{A} is draining as root is.", queue=A, closed=["root"])
    await author.cycle(explain={"u1": said})
    await author.beat()
    told = (await shared.get("/api/v1/workloads/u1", headers=LEAD)).json()["explanation"]
    assert told["primary"]["text"] == f"{A} is draining as root is."
    assert told["do"] == "wait, or ask who administers root to resume it"


async def test_what_is_so_already_makes_no_revision(api: Api, author: Author) -> None:
    await author.tree()
    told = (await api.post(f"{QUEUES}/{A}:resume")).json()
    assert (told["id"], told["revision"], told["changes"]) == (None, None, [])
    dry = (await api.post(f"{QUEUES}/{A}:hold", params={"dryRun": "true"})).json()
    assert (dry["state"], dry["id"], len(dry["changes"])) == ("planned", None, 1)
    assert (await api.get(f"{QUEUES}/{A}")).json()["state"] == "open"


async def test_the_plan_of_a_hold_tells_what_runs_on_and_what_stops(api: Api, author: Author) -> None:
    """Of the queue and of those below it; neither what leaves, nor what is on hold or can never start."""
    await author.tree()
    runs = [workload("r1", queue=A, gpus=8, pods=2), workload("r2", queue=B, gpus=8)]
    await author.submit(*runs, workload("w1", queue=A, gpus=4), workload("w2", queue=B, gpus=4))
    await author.submit(workload("h1", queue=A), state=State.HELD)
    await author.misconfigured(workload("never", queue=A), "a field")
    await author.cycle(admit=runs)
    planned = (await api.post(f"{QUEUES}/root.research:drain", params={"dryRun": "true"})).json()
    (told,) = planned["states"]
    assert (told["queue"], told["state"]) == ("root.research", "draining")
    assert [(told[part]["count"], told[part]["amounts"][GPU]) for part in ("running", "waiting")] == [
        (2, "24"), (2, "8"),
    ]  # fmt: skip
    assert {job["uid"] for part in ("running", "waiting") for job in told[part]["jobs"]} == {
        "r1",
        "r2",
        "w1",
        "w2",
    }
    assert told["text"] == (
        "2 jobs (24 gpu) run on, 2 jobs (8 gpu) wait and do not start, new jobs are not queued"
    )
    held = await run(api, "queue", "hold", A, "-y")
    assert f"{A}: 1 job (16 gpu) runs on, 1 job (4 gpu) waits and does not start" in held.out
    again = await run(api, "queue", "hold", A, "-y")
    assert f"nothing to do: {A} is held already" in again.err
    await run(api, "queue", "hold", "root.research", "-y")
    opened = await run(api, "queue", "resume", A, "-y")
    assert f"{A}: 0 jobs may start again; 1 job waits on, as root.research is not open" in opened.out
    again = await run(api, "queue", "resume", A, "-y")
    assert f"{A} is open already; it is held by a queue above it" in again.err
    opened = await run(api, "queue", "resume", "root.research", "-y")
    assert "root.research: 2 jobs (8 gpu) may start again\n" in opened.out


async def test_the_plan_of_a_resume_names_what_its_impact_cannot_know(api: Api, author: Author) -> None:
    """No decision was asked about jobs that came while the queue drained: "0 jobs would start" is not said of them."""
    await author.tree()
    await run(api, "queue", "drain", A, "-y")
    async with begin(author.engine) as connection:
        why = closed_queue(A, (await load_config(connection)).tree)
        late = Intake(workload=workload("w1", queue=A, gpus=4), not_asked=NotAsked.DRAINING, explanation=why)
        await workloads.intake(connection, author.epoch, [late], at=NOW)
    await author.submit(known := workload("w2", queue=A, gpus=4))
    await author.cycle()
    async with begin(author.engine) as connection:
        stored = decided_on(two_racks((await load_config(connection)).tree, known))
    await author.keep(encode(stored))
    opened = await run(api, "queue", "resume", A, "-y")
    assert f"{A}: 2 jobs (8 gpu) may start again\n" in opened.out
    assert " could never start any more, 1 job (4 cpu, 4 gpu) unknown\n" in opened.out
    assert "unknown, having come while the queue drained: team-a/w1\n" in opened.out


async def test_who_closed_a_queue_or_cut_its_limit_is_told_with_time_and_reason(
    shared: Api, author: Author
) -> None:
    """The queue and those below it, the attention list, tree and `queue show` have the last deed, and none before."""
    await author.tree()
    runs = workload("r1", queue=A, gpus=8, pods=3)
    await author.submit(runs, workload("w1", queue=A, gpus=4))
    await author.cycle(admit=[runs])
    for verb in ("hold", "resume", "drain"):
        await shared.post(f"{QUEUES}/root.research:{verb}", json={"reason": f"why we {verb}"}, headers=ROOT)
    cut = copy.deepcopy(TREE)
    for limit in (20, 16):
        cut["queues"][A]["quota"] = [{"resource": GPU, "guaranteed": 16, "limit": limit}]
        cut["queues"]["root.research"]["state"] = "draining"
        await author.tree(cut, reason=f"lease of {limit}")
    queue = (await shared.get(f"{QUEUES}/{A}", headers=EVE)).json()
    assert queue["effectiveState"] == "draining"
    assert [queue["closed"][key] for key in ("queue", "by", "reason")] == [
        "root.research",
        "root",
        "why we drain",
    ]
    gpus = next(a for a in queue["accounts"] if a["resource"] == GPU)
    assert (gpus["overLimit"], gpus["cut"]["by"], gpus["cut"]["reason"]) == ("8", "test", "lease of 16")
    other = (await shared.get(f"{QUEUES}/{B}", headers=EVE)).json()
    assert [a["overLimit"] for a in other["accounts"]] == ["0"] * len(other["accounts"])
    attention = (await shared.get("/api/v1/overview", headers=EVE)).json()["attention"]
    told = {item["kind"]: item for item in attention}
    assert (told["closed"]["ref"], told["closed"]["severity"]) == ("root.research", "info")
    assert told["closed"]["text"] == 'root.research drains by root: "why we drain"; 1 job is held there'
    assert told["overLimit"]["text"] == (
        f"{A} uses 8 gpu more than its limit, and nothing new starts there. "
        'The limit was cut by test: "lease of 16"'
    )
    assert [told[kind]["since"] for kind in ("closed", "overLimit")] == [
        queue["closed"]["at"], gpus["cut"]["at"],
    ]  # fmt: skip
    shared.headers["user"] = "eve"
    shown = (await run(shared, "queue", "show", A)).out
    at = clock(queue["closed"]["at"])
    assert f'draining    with root.research above it, set at {at} by root: "why we drain"' in shown
    assert "over limit  8 gpu above 16; the limit was cut at " in shown
    tree = (await run(shared, "queue", "tree")).err
    assert "root.research: draining" in tree
    assert f"{A}: over limit" in tree


async def test_a_reason_that_speaks_of_several_objects_is_not_for_everybody(
    shared: Api, author: Author
) -> None:
    """As in the history: who did it and when is told without it."""
    await author.tree()
    runs = workload("r1", queue=A, gpus=8)
    await author.submit(runs)
    await author.cycle(admit=[runs])
    wish = copy.deepcopy(TREE)
    wish["queues"][A] |= {"quota": [{"resource": GPU, "limit": 4}], "state": "held"}
    wish["queues"][B]["weight"] = 3
    await author.tree(wish, reason="project Blue")
    for path in (f"{QUEUES}/{A}", QUEUES, "/api/v1/overview"):
        found = await shared.get(path, headers=EVE)
        assert found.status_code == 200, found.text
        assert "Blue" not in found.text
    queue = (await shared.get(f"{QUEUES}/{A}", headers=EVE)).json()
    cut = next(account["cut"] for account in queue["accounts"] if account["resource"] == GPU)
    assert [(made["by"], made["reason"]) for made in (queue["closed"], cut)] == [("test", "")] * 2


async def test_who_may_not_and_what_is_another_writers_is_refused(shared: Api, author: Author) -> None:
    await author.tree()
    eve = await shared.post(f"{QUEUES}/{A}:hold", headers=EVE)
    assert f"queues.queuer.dev {A}" in problem_of(eve, "forbidden")["detail"]
    problem_of(await shared.post(f"{QUEUES}/root:hold", headers=LEAD), "forbidden")
    gone = await shared.post(f"{QUEUES}/{A}a:hold", headers=ROOT)
    assert f"did you mean {A}" in problem_of(gone, "not_found")["detail"]
    document = copy.deepcopy(TREE)
    document["queues"] = {"root.crd": {"namespaces": ["c"]}}
    await author.tree(document, writer=ManagedBy.CRD)
    owned = await shared.post(f"{QUEUES}/root.crd:hold", headers=ROOT)
    assert "crd" in problem_of(owned, "conflict")["detail"]


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("POST", "queues", "method_not_allowed"),
        ("PUT", f"queues/{A}", "method_not_allowed"),
        ("PATCH", f"queues/{A}", "method_not_allowed"),
        ("DELETE", f"queues/{A}", "method_not_allowed"),
        ("POST", "flavors", "not_found"),
        ("PUT", "topology-levels/rack", "not_found"),
    ],
)
async def test_all_else_of_a_tree_is_one_document(api: Api, method: str, path: str, code: str) -> None:
    refused = await api.request(method, f"/api/v1/{path}")
    detail = problem_of(refused, code)["detail"]
    assert "PUT /api/v1/queue-tree, or POST /api/v1/changesets" in detail


async def test_a_put_warns_as_a_plan_does(api: Api, author: Author) -> None:
    """With the place of each in the document."""
    await author.tree()
    runs = workload("u1", queue=A, gpus=8)
    await author.submit(runs)
    await author.cycle(admit=[runs])
    wish: dict[str, Any] = copy.deepcopy(TREE)
    wish["queues"][A]["quota"] = [{"resource": GPU, "guaranteed": 4, "limit": 4}]
    wish["queues"]["root.lonely"] = {}
    planned = (await api.post("/api/v1/changesets", json=wish)).json()["warnings"]
    made = await api.put(
        "/api/v1/queue-tree", json=wish, params={"reason": "a smaller team"}, headers={"If-Match": "*"}
    )
    assert made.status_code == 200, made.text
    assert made.json()["warnings"] == planned
    assert {row["pointer"] for row in planned} == {
        f"/queues/{A}/quota/0/limit",
        "/queues/root.lonely/namespaces",
    }


async def test_a_plan_is_applied_under_a_key_alone(api: Api, author: Author) -> None:
    """The header is named; nothing was changed."""
    await author.tree()
    made = (await api.post("/api/v1/changesets", json={**TREE, "queues": {A: {"weight": 2}}})).json()
    refused = await api.post(f"/api/v1/changesets/{made['id']}:apply", json={"reason": "they grow"})
    body = problem_of(refused, "idempotency_key_required")
    assert [(row["field"], "pointer" in row) for row in body["errors"]] == [("Idempotency-Key", False)]
    assert (await api.get(f"{QUEUES}/{A}")).json()["weight"] == 1


@pytest.mark.parametrize(
    ("method", "path", "body", "field", "pointer"),
    [
        ("POST", "workloads:hold", {"uids": "all"}, "uids", "/uids"),
        ("POST", "workloads:hold", {"uids": ["u"], "reason": 7}, "reason", "/reason"),
        ("POST", "changesets", {"revert": "7"}, "revert", "/revert"),
        ("POST", "simulations", {"job": {}}, "job.kind", "/job/kind"),
        ("GET", "workloads?limit=0", None, "limit", None),
    ],
)
async def test_a_field_of_the_body_has_its_place_there(
    api: Api, author: Author, method: str, path: str, body: object, field: str, pointer: str | None
) -> None:
    """A parameter has none."""
    await author.tree()
    refused = await api.request(method, f"/api/v1/{path}", json=body)
    errors = problem_of(refused, "invalid_input")["errors"]
    assert (errors[0]["field"], errors[0].get("pointer")) == (field, pointer)

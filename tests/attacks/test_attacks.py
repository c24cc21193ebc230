"""A tenant's attacks on another tenant, over REST and over the Kubernetes API: each is refused, or contained.

After any attack nothing has changed, and no answer names another tenant's objects.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from queuer.local.cluster import API_PART, Cluster
from queuer.local.kubectl import KubectlError
from tests.attacks import over_kubernetes, over_rest
from tests.attacks.field import CUT, MINE, MOST_PENDING, Field, document, opened
from tests.conftest import DatabaseServer
from tests.e2e.controller import GPU
from tests.e2e.support import create, job_manifest, kubectl, wait_until
from tests.waiting import PATIENCE

FLOOD = 300


@pytest.fixture(scope="module")
def field(cluster: Cluster, database_server: DatabaseServer) -> Iterator[Field]:
    """One field for all attacks."""
    name = f"queuer_attacks_{uuid4().hex[:8]}"
    database_server.create(name, template=database_server.template)
    try:
        with opened(cluster, database_server.url_of(name)) as found:
            yield found
    finally:
        database_server.drop(name)


@pytest.fixture
def unharmed(field: Field) -> Iterator[Field]:
    """The field, which is as before when the test is over, and of which no answer told more than it may."""
    yield field
    assert field.leaks() == []
    assert field.state() == field.before
    assert field.controller.leads()


@pytest.mark.parametrize("attack", over_rest.ATTACKS, ids=lambda attack: attack.name)
def test_over_rest(unharmed: Field, attack: over_rest.Attack) -> None:
    answers = attack.act(unharmed)
    for answer in answers if isinstance(answers, list) else [answers]:
        attack.end(answer)


@pytest.mark.parametrize("attack", over_kubernetes.ATTACKS, ids=lambda attack: attack.name)
def test_over_kubernetes(unharmed: Field, attack: over_kubernetes.Attack) -> None:
    with pytest.raises(KubectlError) as refused:
        attack.act(unharmed)
    assert attack.sentence in str(refused.value)
    assert "secret" not in str(refused.value).replace("secret-runs-known", "")


def test_jobs_that_ask_for_what_they_may_not_have_never_start(unharmed: Field) -> None:
    """All at once: each is told what is wrong with it while the others wait."""
    names = {f"attack-{n}": wish for n, wish in enumerate(over_kubernetes.CONTAINED)}
    for name, wish in names.items():
        labels = {"queuer.dev/queue": MINE, **wish.labels}
        create(
            unharmed.cluster,
            job_manifest(name, namespace=unharmed.mine, labels=labels, annotations=wish.annotations),
        )
    for name, wish in names.items():
        wait_until(partial(_is_told, unharmed, name, wish.sentence), timeout=20, describe=str(wish))
        assert unharmed.database.state(name, unharmed.mine) == "Queued", wish
        found = unharmed.alice.get("job", name)
        assert found["spec"]["suspend"] is True
        assert found["metadata"]["annotations"]["queuer.dev/user"] == "alice"
        unharmed.alice.delete(found)


def _is_told(at: Field, name: str, sentence: str) -> bool:
    return sentence in at.database.reason(name, at.mine).get("text", "")


@pytest.mark.parametrize("part", ["", "/explanation", "/timeline", ":hold"])
def test_a_job_that_is_elsewhere_reads_as_one_that_is_nowhere(unharmed: Field, part: str) -> None:
    """Status, headers and body differ in the uid alone: nobody learns that it exists."""

    def told(uid: str) -> tuple[object, ...]:
        ask = unharmed.post if part.startswith(":") else unharmed.get
        answer = ask(f"/workloads/{uid}{part}")
        body = {key: value for key, value in answer.json().items() if key != "requestId"}
        headers = {key for key in answer.headers if key != "x-request-id"}
        return answer.status_code, headers, json.dumps(body).replace(uid, "UID")

    assert told(unharmed.uid("secret-runs-known")) == told(str(uuid4()))


def test_a_stream_tells_nothing_of_anothers_job(unharmed: Field) -> None:
    """Bob's job comes and goes while Alice listens to everything."""
    url = f"{unharmed.cluster.queuer_url}/api/v1/stream"
    with httpx2.stream(
        "GET", url, headers=unharmed.bearer("alice"), timeout=PATIENCE, trust_env=False
    ) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "event: beat"
        wish = job_manifest("secret-bait", namespace=unharmed.theirs, queue=CUT, gpus=1)
        made = create(unharmed.cluster, wish, identity="bob")
        unharmed.wait_state("secret-bait", unharmed.theirs, "Running")
        uid = made["metadata"]["uid"]
        newest = unharmed.database.rows("SELECT max(id) AS id FROM event WHERE uid = %s", uid)[0]["id"]
        told = []
        for line in lines:
            told.append(line)
            if line.startswith("id: ") and int(line.removeprefix("id: ")) >= newest:
                break
    assert any(line.startswith("data: ") for line in told)
    assert not [line for line in told if uid in line or "secret" in line]
    kubectl(unharmed.cluster, "bob", "delete", "job", "secret-bait", "-n", unharmed.theirs)
    wait_until(
        lambda: unharmed.database.used() == _held(unharmed), timeout=40, describe="what the bait held is free"
    )


def _held(at: Field) -> int:
    """GPUs of the jobs that stand there all the time."""
    return sum(8 for name in at.jobs if "runs" in name)


def test_a_hundred_streams_leave_room_for_others(unharmed: Field) -> None:
    url = f"{unharmed.cluster.queuer_url}/api/v1/stream"
    with httpx2.Client(
        trust_env=False, timeout=PATIENCE, limits=httpx2.Limits(max_connections=200)
    ) as client:
        opened_, refused = [], 0
        for _ in range(100):
            answer = client.send(
                client.build_request("GET", url, headers=unharmed.bearer("alice")), stream=True
            )
            refused += answer.status_code == 429
            opened_.append(answer)
        assert refused == 92
        with client.stream("GET", url, headers=unharmed.bearer("bob")) as others:
            assert others.status_code == 200
        assert unharmed.get("/queues", by="bob").status_code == 200
        for answer in opened_:
            answer.close()


def test_refusals_fill_no_table(unharmed: Field) -> None:
    def denied() -> int:
        query = "SELECT count(*) AS n FROM audit WHERE action = 'denied' AND actor = 'alice'"
        return int(unharmed.database.rows(query)[0]["n"])

    before = denied()
    for number in range(50):
        unharmed.get(f"/workloads/by-ref/{unharmed.theirs}-{number}/job/x")
    assert denied() - before <= 40, "twenty a minute, and a minute may end meanwhile"


def test_no_log_holds_a_token_or_anothers_secret(unharmed: Field) -> None:
    log = Path(unharmed.cluster.log(API_PART)).read_text()
    assert not [token for token in unharmed.tokens() if token in log]
    assert "Traceback" not in log


def test_a_flood_of_jobs_holds_up_nobody_else(field: Field) -> None:
    """As many as `maxPending` says are considered; Bob's job starts while the others come in.

    One of the flood starts, and Alice's own job waits before them.
    """
    one = job_manifest("flood", namespace=field.mine, queue=MINE, gpus=8, labels={"attacks/flood": "true"})
    one["metadata"].pop("name")
    items = [{**one, "metadata": {**one["metadata"], "name": f"flood-{n}"}} for n in range(FLOOD)]
    document_ = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    kubectl(field.cluster, "alice", "create", "-f", "-", input=document_)
    create(
        field.cluster, job_manifest("secret-soon", namespace=field.theirs, queue=CUT, gpus=1), identity="bob"
    )
    field.wait_state("secret-soon", field.theirs, "Running", timeout=30)
    beyond = "count(*) FILTER (WHERE not_asked = 'over_max_pending') AS beyond"
    query = f"SELECT count(*) AS n, {beyond} FROM workload WHERE name LIKE 'flood-%%'"
    wait_until(
        lambda: field.database.rows(query) == [{"n": FLOOD, "beyond": FLOOD - MOST_PENDING}],
        timeout=30, describe=lambda: str(field.database.rows(query)),
    )  # fmt: skip
    assert field.controller.leads()
    kubectl(
        field.cluster, "alice", "delete", "jobs", "-n", field.mine, "-l", "attacks/flood=true", "--wait=false"
    )
    kubectl(field.cluster, "bob", "delete", "job", "secret-soon", "-n", field.theirs)


def test_a_cut_evicts_whom_its_plan_showed(field: Field) -> None:
    """`effect: evict`: applied, the jobs over the limit go back to their queue and their pods are gone."""
    wish = job_manifest("over", namespace=field.theirs, queue=CUT, pods=2, gpus=8)
    uid = create(field.cluster, wish, identity="bob")["metadata"]["uid"]
    field.wait_state("over", field.theirs, "Running")
    cut = document(CUT, namespaces=[field.theirs], quota=[{"resource": GPU, "limit": 8}])
    plan = field.post("/changesets?effect=evict", cut, by="admin")
    assert plan.status_code == 201, plan.text
    assert [job["uid"] for job in plan.json()["victims"]["jobs"]] == [uid]
    address, why = f"/changesets/{plan.json()['id']}:apply", {"reason": "the hosts go to a release"}
    done = field.post(address, why, by="admin", headers={"Idempotency-Key": "the-cut"})
    assert done.status_code == 200, done.text
    field.wait_state("over", field.theirs, "Queued")
    wait_until(
        lambda: not [row for row in field.database.open_rows() if row["uid"] == uid],
        timeout=30, describe="what it held is free",
    )  # fmt: skip
    ended = field.database.rows("SELECT end_cause FROM admission WHERE uid = %s", uid)
    assert [row["end_cause"] for row in ended] == ["command"]
    assert field.database.state("secret-runs-known", field.theirs) == "Running"
    kubectl(field.cluster, "bob", "delete", "job", "over", "-n", field.theirs)

"""For each reason token there is a job whose page and `queuer why` show token, verdict, figures and a next step.

Reasons of a decision are really decided, on two racks of two nodes of eight GPUs. All others come from the
code that tells them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import get_type_hints

import pytest

from queuer.cli.output import local
from queuer.controller.landing.writes import resting
from queuer.controller.memory.live import Live
from queuer.controller.memory.quarantine import Quarantine
from queuer.domain.nodes import SchedulingTerms
from queuer.domain.queue import Order, Policy, Queue, QueueState, QueueTree, QuotaRow
from queuer.domain.reasons import ROWS, Explanation, Reason, Token
from queuer.domain.workload import State, Workload
from queuer.solver.records import Plan, Snapshot
from queuer.solver.stored import StoredCycle, encode
from queuer.solver.verified import verified
from tests.api.cli import run
from tests.api.identity import Api
from tests.api.rows import GPU, NOW, A, Author, B, decided_on, two_racks
from tests.store.support import workload

JOB = workload("u1", queue=A, gpus=8, pods=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The controller's record of the job. `why`: None = nothing yet; `cycle`: that it was told in, if any; `silent`:
    seconds since it was heard.
    """

    job: Workload = JOB
    why: Explanation | None = None
    cycle: StoredCycle | None = None
    silent: float = 0.0


def decided(
    job: Workload,
    *others: Workload,
    a: Queue | None = None,
    busy: Sequence[int] = (),
    cordoned: bool = False,
    broken: bool = False,
) -> Told:
    """A decision about these. `busy`: nodes on which team-b runs; `broken`: its plan does not stand."""
    theirs = {i: workload(f"b{i}", queue=B, namespace="team-b", gpus=8) for i in busy}
    tree = QueueTree.of([Queue(path="root.research"), a or Queue(path=A), Queue(path=B)])
    snapshot = two_racks(tree, job, *others, runs=theirs)
    if cordoned:
        nodes = (replace(state, node=replace(state.node, unschedulable=True)) for state in snapshot.nodes)
        snapshot = replace(snapshot, nodes=tuple(nodes))
    cycle = decided_on(snapshot)
    assert cycle.plan is not None
    if broken:
        cycle = replace(cycle, plan=_broken(cycle.plan, snapshot))
    assert cycle.plan is not None
    return Told(job=job, why=cycle.plan.explanations[job.uid], cycle=cycle)


def _broken(plan: Plan, snapshot: Snapshot) -> Plan:
    """The rest that the verifier leaves of a plan that puts all its pods on one node."""
    bad = tuple(
        replace(a, assignments=tuple(replace(row, nodes={"n0": row.count}) for row in a.assignments))
        for a in plan.admissions
    )
    return verified(replace(plan, admissions=bad), snapshot, now=NOW)


def queue(path: str, *, guaranteed: int | None = None, limit: int | None = None) -> Queue:
    """With a row of GPUs."""
    return Queue(path=path, quota=(QuotaRow(resource=GPU, guaranteed=guaranteed, limit=limit),))


def failed() -> Told:
    """Twice in a row."""
    live = Live(workload=JOB, state=State.QUEUED, failures=2, rest=NOW + 60)
    return Told(why=resting(live, "0/4 nodes are available: 4 node(s) had no volume"))


def many(pods: int, **fields: object) -> Workload:
    return workload("u1", queue=A, gpus=8, pods=pods, **fields)


SSD = SchedulingTerms(node_selector={"disk": "ssd"})
HEAD = workload("head", queue=A, gpus=8, pods=4, submitted=NOW - 9)
STRICT = Queue(path=A, policy=Policy(order=Order.STRICT))
WORLDS: dict[Token, Callable[[], Told]] = {
    Token.MISCONFIGURED: lambda: decided(many(1, required="zone")),
    Token.NO_MATCHING_FLAVOR: lambda: decided(
        replace(JOB, pod_sets=tuple(replace(p, terms=SSD) for p in JOB.pod_sets))
    ),
    Token.EXCEEDS_MAX_QUOTA: lambda: decided(many(2), a=queue(A, limit=8)),
    Token.WAITING_FOR_QUOTA: lambda: decided(many(4), busy=[0]),
    Token.BORROWING_LIMIT_REACHED: lambda: decided(
        many(1), workload("head", queue=A, gpus=8, submitted=NOW - 9), a=queue(A, guaranteed=4, limit=12)
    ),
    Token.BEHIND_IN_QUEUE: lambda: decided(JOB, HEAD, a=STRICT, busy=[0]),
    Token.TOPOLOGY_PLACEMENT_FAILED: lambda: decided(many(2, required="rack"), busy=[0, 2]),
    Token.WAITING_FOR_PREEMPTED_WORKLOADS: lambda: decided(JOB, a=queue(A, guaranteed=8), busy=[0, 1, 2, 3]),
    Token.PENDING_EVALUATION: Told,
    Token.SOLVER_DEFERRED: lambda: decided(many(2), broken=True),
    Token.SUSPENDED: lambda: decided(JOB, a=Queue(path=A, state=QueueState.HELD)),
    Token.ON_HOLD: lambda: decided(replace(JOB, hold=True)),
    Token.ADMITTED_NOT_PLACED: failed,
    Token.NODES_UNAVAILABLE: lambda: decided(JOB, cordoned=True),
    Token.CONTROLLER_STALE: lambda: Told(silent=3600.0),
    Token.QUARANTINED: lambda: Told(why=Quarantine().put("u1", ValueError("no such field"), now=NOW)),
}
WITHOUT_FIGURES = {
    Token.MISCONFIGURED,
    Token.PENDING_EVALUATION,
    Token.SOLVER_DEFERRED,
    Token.SUSPENDED,
    Token.ON_HOLD,
    Token.BEHIND_IN_QUEUE,
}
"""About a word, a person or a turn: their figures are what the job asks, and which cycle told it how long ago."""


def test_each_token_has_a_job() -> None:
    assert WORLDS.keys() == set(Token)


@pytest.mark.parametrize("token", Token)
async def test_it_is_told_with_its_verdict_figures_and_a_next_step(
    api: Api, author: Author, token: Token
) -> None:
    told = WORLDS[token]()
    await author.tree()
    await author.submit(told.job, state=State.HELD if told.job.hold else State.QUEUED)
    await author.cycle(explain={} if told.why is None else {"u1": told.why})
    if told.cycle is not None:
        await author.keep(encode(told.cycle))
    await author.beat(silent=told.silent)
    found = (await api.get("/api/v1/workloads/u1/explanation")).json()
    primary = found["primary"]
    assert (primary["token"], found["verdict"]) == (token, token.verdict)
    assert primary["text"]
    assert found["do"]
    assert (re.search(r"\d", primary["text"]) is None) <= (token in WITHOUT_FIGURES)
    page = (await run(api, "why", "u1")).out
    lines = page.splitlines()
    assert lines[1] == local(f"{token.verdict}  {token}: {primary['text']}")
    steps = [["do", local(found["do"])], ["next", found["next"]]]
    assert [line.split(maxsplit=1) for line in lines[-2:] if found["next"] or line is lines[-1]] == [
        step for step in steps if step[1]
    ]
    assert re.search(r"cycle 1, \d+\w+ ago", lines[0])
    assert any(re.match(r" +asks +\d+ x main of \d+ ", line) for line in lines)
    detail = found["detail"]
    if found["verdict"] == "WAIT" and detail["holders"]:
        assert detail["estimate"] or detail["noEstimate"].startswith("no estimate")
        assert any(line.split(maxsplit=1) == ["estimate", detail["noEstimate"]] for line in lines)


@pytest.mark.parametrize("token", Token)
async def test_whatever_times_a_reason_has_its_job_is_explained(
    api: Api, author: Author, token: Token
) -> None:
    """REST shows each as RFC 3339, and each next step takes it as REST shows it."""
    why = WORLDS[token]().why
    params = {} if why is None else why.primary.params
    times = [name for name, kind in get_type_hints(ROWS[token].params).items() if kind is float]
    said = Reason(token, {**params, **dict.fromkeys(times, NOW)}, "It waits.")
    await author.tree()
    await author.submit(JOB)
    await author.cycle(explain={"u1": Explanation(primary=said)})
    await author.beat()
    answer = await api.get("/api/v1/workloads/u1/explanation")
    assert answer.status_code == 200, answer.text
    found = answer.json()
    told = {name: datetime.fromisoformat(found["primary"]["params"][name]) for name in times}
    assert told == dict.fromkeys(times, datetime.fromtimestamp(NOW, tz=UTC))
    assert found["do"]

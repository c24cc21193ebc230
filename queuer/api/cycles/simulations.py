"""`POST /simulations`: would this job start now, and if not, why? Decided on what the newest cycle left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from sqlalchemy.ext.asyncio import AsyncConnection

from queuer.api.controller import Leader
from queuer.api.cycles import models
from queuer.api.cycles.simulation_request import SimulationRequest, asked_of, in_job
from queuer.api.deps import PREFIX, Asking, Engine, Simulations, one_view
from queuer.api.http import pointers
from queuer.api.http.documents import JSON, YAML, read_document
from queuer.api.identity.rights import Asker, Caller, reading
from queuer.api.latest_cycle import NO_DECISION
from queuer.api.models import instant
from queuer.api.workloads.detail import Detail, WouldAdmit
from queuer.api.workloads.models import ReasonDetail
from queuer.domain.errors import InvalidInput, NotFound, Unavailable
from queuer.domain.queue import ManagedBy
from queuer.domain.reasons import Verdict, hide, namespaces_in
from queuer.domain.rules import Rules
from queuer.domain.usable import routed
from queuer.solver.ask import SimulateJob
from queuer.solver.verified import UnsoundPlan
from queuer.solver.whatif import Simulated
from queuer.store import lookup, queues, waiting
from queuer.store.config import load_config

router = APIRouter(prefix=PREFIX, tags=["simulations"])
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "`job` (a manifest) or `shape` with `queue` and `namespace`; `user` and `groups`: whose it "
        "is, default the caller's; `queueTree`: a changed tree.",
        "content": {media: {"schema": {"type": "object"}} for media in (JSON, YAML)},
    }
}


@router.post("/simulations", openapi_extra=_BODY)
async def simulate(
    request: Request, engine: Engine, asker: Asking, simulator: Simulations, leader: Leader
) -> models.Simulation:
    """Whether a job would start now, where, and who would have to leave; else why it waits. Writes nothing."""
    document = await read_document(request)
    async with one_view(engine) as connection:
        newest = await lookup.newest_cycle(connection)
        known = {resource for amounts in (newest.capacity.values() if newest else ()) for resource in amounts}
        with pointers.placed(document):
            asked = asked_of(document, resources=known)
        rules = await _rules(connection, asked)
        who = asker.caller if asked.user is None else Caller(name=asked.user, groups=asked.groups)
        workload = routed(replace(asked.workload, user=who.name), who.groups, rules.tree, asked.labels)
        ahead = await waiting.in_line(connection, queue=workload.queue, namespace=workload.namespace)
    await asker.require(reading(workload.namespace))
    if asked.user not in (None, asker.caller.name):
        await asker.require(reading())
    question = SimulateJob(
        workload=workload,
        rules=rules,
        groups=who.groups,
        priority_classes=asked.priority_classes,
        ahead=ahead,
    )
    try:
        with pointers.placed(document), in_job():
            found = await simulator.ask(asker.caller.party, question)
    except UnsoundPlan as error:
        raise Unavailable(
            f"no sound decision was found: {error}", hint="ask again after the next cycle"
        ) from error
    if found is None:
        raise NotFound(NO_DECISION, hint="is the controller running? queuer queue ls")
    answer = await _answer(found.cycle, found.at, found.value, asker)
    kinds = found.value.unseen
    unseen = [f"the {kind}s of namespace {workload.namespace} were not considered" for kind in kinds]
    told = {"warnings": [*asked.assumed, *unseen], "not_considered": list(kinds), "controller": leader}
    return answer.model_copy(update=told)


async def _rules(connection: AsyncConnection, asked: SimulationRequest) -> Rules:
    """The rules in force, after the document's changes. Raises InvalidInput where they would be wrong."""
    if asked.tree is None:
        return await load_config(connection)
    changeset = await queues.plan(connection, asked.tree, writer=ManagedBy.API)
    if changeset.problems:
        raise InvalidInput(*changeset.problems)
    return changeset.after


async def _answer(number: int, at: float, said: Simulated, asker: Asker) -> models.Simulation:
    label = f"feasible at cycle {number}, not a reservation" if said.places else f"as of cycle {number}"
    head: dict[str, Any] = {"label": label, "cycle": number, "as_of": instant(at)}
    if said.explanation is None:
        return models.Simulation(
            **head,
            answer=models.Answer.EVICTS if said.leaving else models.Answer.STARTS,
            places=[models.Place.from_record(row, count=sum(row.nodes.values())) for row in said.places],
            evictions=[models.Leaving.from_record(row) for row in said.leaving],
        )
    readable = await asker.readable(namespaces_in(said.explanation))
    seen = hide(said.explanation, readable.__contains__)
    return models.Simulation(
        **head,
        answer=models.Answer.UNSTARTABLE if seen.verdict is Verdict.CHANGE else models.Answer.WAITS,
        primary=ReasonDetail.from_record(seen.primary),
        others=[ReasonDetail.from_record(other) for other in seen.others],
        would_admit=[WouldAdmit.from_record(change) for change in seen.would_admit],
        detail=Detail.model_validate(seen.detail),
    )

"""One workload, with everything that is known of it and why it waits. The list is in `lists`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Depends

from queuer.api.controller import Leader
from queuer.api.deps import PREFIX, Asking, Engine, Latest, TreeAmounts, one_view
from queuer.api.identity.rights import Asker, reading
from queuer.api.models import Amounts
from queuer.api.workloads import views
from queuer.api.workloads.commands import Rights
from queuer.api.workloads.explanation import explained, holders_of, with_orders
from queuer.api.workloads.models import Explanation, Timeline, WorkloadDetail
from queuer.domain.errors import Unavailable
from queuer.domain.quantity import add, format_resources, parse_resources
from queuer.domain.reasons import Reason, Token
from queuer.domain.workload import State
from queuer.solver.ask import ExplainJob
from queuer.store import reads
from queuer.store.commands import Target, ordered
from queuer.store.engine import DatabaseUnavailable
from queuer.store.reads import no_workload
from queuer.store.tables import CommandVerb
from queuer.store.usage import TreeView, amounts_of

router = APIRouter(prefix=PREFIX, tags=["workloads"])


@dataclass(frozen=True, slots=True)
class _Explainer:
    """A route's dependency: who asks about a job, and what the answer is made of."""

    engine: Engine
    latest: Latest
    asker: Asking
    leader: Leader
    tree: TreeAmounts

    async def by_uid(self, uid: str) -> WorkloadDetail:
        """Raises NotFound, also where the caller may not see it: whether a uid exists is its owner's to know."""
        async with one_view(self.engine) as connection:
            found = await views.recorded(connection, await reads.workload(connection, uid), self.leader)
        if not await self.asker.reads(found.detail.namespace):
            raise no_workload(uid)
        return await self.explain(found)

    async def explain(self, found: views.Recorded) -> WorkloadDetail:
        """With all that the newest cycle has to say, asked when no connection is held any more.

        Without an answer about the cycle the stored reason is told, and that more is not known just now.
        """
        job, told, silent = found.detail, None, ""
        if job.state is State.QUEUED and job.explanation.primary is not None:
            try:
                known = await self.latest.ask(ExplainJob(uid=job.uid), party=self.asker.caller.party)
                told = None if known is None else known.value
            except DatabaseUnavailable:
                raise
            except Unavailable as error:
                silent = error.message
        if told is not None and (holders := [h["workload"] for h in holders_of(told) if "workload" in h]):
            async with one_view(self.engine) as connection:
                due = await ordered(connection, holders)
            told = with_orders(told, {uid: order.at for uid, order in due.items()})
        if job.state is State.RUNNING:
            view = await self.tree()
            terms = {"queue_borrows": _above_guarantee(job, view), "safe_until": _safe_until(job, view)}
            found = replace(found, detail=job.model_copy(update=terms))
        if job.eviction is not None:
            found = replace(found, never=_never_again(job, await self.tree()))
        answer = await explained(found, told, self.asker, silent=silent)
        return answer.model_copy(update={"may": await _may(job, self.asker)})


Explainer = Annotated[_Explainer, Depends()]


@router.get("/workloads/by-ref/{namespace}/{kind}/{name}")
async def get_workload_by_reference(
    explainer: Explainer, namespace: str, kind: str, name: str
) -> WorkloadDetail:
    """The newest workload of a job's name; `kind` as in its manifest (any case)."""
    await explainer.asker.require(reading(namespace))
    async with one_view(explainer.engine) as connection:
        stored = await reads.by_reference(connection, namespace=namespace, kind=kind, name=name)
        found = await views.recorded(connection, stored, explainer.leader)
    return await explainer.explain(found)


@router.get("/workloads/{uid}")
async def get_workload(explainer: Explainer, uid: str) -> WorkloadDetail:
    """One workload by the job's uid; ended ones too, while they are kept."""
    return await explainer.by_uid(uid)


@router.get("/workloads/{uid}/timeline")
async def get_timeline(engine: Engine, asker: Asking, uid: str) -> Timeline:
    """Its states and the reasons for which it waited, as spans, and the cycles that decided about it."""
    async with one_view(engine) as connection:
        namespace, found = await views.past(connection, uid)
    if not await asker.reads(namespace):
        raise no_workload(uid)
    return found


@router.get("/workloads/{uid}/explanation")
async def get_explanation(explainer: Explainer, uid: str) -> Explanation:
    """Why it waits: one primary reason with its numbers, all others that hold, what would let it start."""
    return (await explainer.by_uid(uid)).explanation


def _above_guarantee(job: WorkloadDetail, view: TreeView) -> Amounts:
    """The amounts that its queue borrows of the resources that it asks for: on its flavors, where the queue is
    guaranteed or borrows them by flavor.
    """
    queue = view.queues.get(job.queue)
    flavors = {place.flavor for place in job.admission.placements} if job.admission else set()
    rows = [a for a in queue.amounts if a.resource in job.demand] if queue else []
    split = {a.resource for a in rows if a.flavor is not None and (a.guaranteed or a.borrowed)}
    found: dict[str, int] = {}
    for a in rows:
        if a.borrowed and (a.flavor in flavors if a.resource in split else a.flavor is None):
            found = add(found, {a.resource: a.borrowed})
    return format_resources(found)


def _never_again(job: WorkloadDetail, view: TreeView) -> str:
    """Why it could not start again once it has left: the least limit on its path that its smallest size exceeds."""
    least: dict[str, int] = {}
    for pods in job.pod_sets:
        per = parse_resources(pods.requests)
        least = add(least, per, times=pods.count if pods.min_count is None else pods.min_count)
    path = view.config.tree.lineage(job.queue) if job.queue in view.queues else ()
    short = [
        (a.limit, queue, a.resource)
        for queue in path
        for a in amounts_of(view, view.queues[queue])
        if a.flavor is None and a.limit is not None and least.get(a.resource, 0) > a.limit
    ]
    if not short:
        return ""
    limit, queue, resource = min(short)
    params = {"queue": queue, "resource": resource, "asks": least[resource], "limit": limit}
    return Reason(Token.EXCEEDS_MAX_QUOTA, params).text


def _safe_until(job: WorkloadDetail, view: TreeView) -> datetime | None:
    """The end of the time for which its queue protects it."""
    protected = view.config.tree.policy(job.queue).min_runtime if job.queue in view.queues else None
    return job.landed + timedelta(seconds=protected) if job.landed and protected else None


async def _may(found: WorkloadDetail, asker: Asker) -> list[CommandVerb]:
    """The commands that its reader may give: none to a job that has ended or is gone."""
    target = Target(
        uid=found.uid,
        kind=found.kind,
        namespace=found.namespace,
        name=found.name,
        queue=found.queue,
        ended=found.state.ended or found.deleted is not None,
    )
    return (await Rights.of(asker, [target])).may(target)

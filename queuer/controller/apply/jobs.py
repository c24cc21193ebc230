"""Jobs of the cluster as the controller reads, starts, suspends and releases them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping
from typing import Any

from queuer.controller.apply.gated_pods import GatedPods
from queuer.controller.apply.made_jobs import LEFT, LeftPods, MadeJobs
from queuer.controller.apply.notes import JobEvent
from queuer.controller.memory.live import JobView, Live
from queuer.controller.memory.state import ClusterState
from queuer.controller.watch.views import Facts, job_view, seconds_of
from queuer.domain.assignments import Placement
from queuer.domain.errors import FieldProblem
from queuer.domain.nodes import HOSTNAME, Flavor
from queuer.domain.override import overridden
from queuer.domain.usable import routed
from queuer.domain.workload import State, Workload
from queuer.kube.client import Client, NotFoundError
from queuer.kube.decoding import decoder_of
from queuer.kube.events import PodRefusal, event_about, events_path, newest_refusal, warnings_of
from queuer.kube.gated import DECIDED, STARTS, decided_on
from queuer.kube.kinds import BY_NAME, JOB, JobKind, member_of, object_path, pod_selectors, told_on
from queuer.kube.made import OPERATIONS, PINS, as_json_patch
from queuer.kube.objects import PODS, Pod, ResourceQuota
from queuer.kube.patches import (
    AdmissionMark,
    PatchBody,
    admit_patch,
    domains_of,
    evict_patch,
    loosen_patch,
    mark_patch,
    status_patch,
    withdraw_patch,
)
from queuer.kube.template import Pin
from queuer.kube.versions import Form
from queuer.kube.workloads import NamespaceFacts, bare_workload, read_workload
from queuer.store.outbox import Entry
from queuer.store.tables import EntryKind

_ASKED = 4
"""Jobs of one maker that are asked why they have no pod: alike, they have the same reason."""
_pod_of = decoder_of(Pod)


class ClusterJobs:
    """Reads and writes jobs. Patches are made from the newest object that was watched.

    While the client's `last_form` is the reduced one, a job that has run is started by two writes.
    """

    def __init__(self, client: Client, state: ClusterState, facts: Facts) -> None:
        self._client, self._state, self._facts = client, state, facts
        self._made, self._gated, self._left = MadeJobs(client), GatedPods(client), LeftPods(client)
        self._decoders = {name: decoder_of(kind.type) for name, kind in BY_NAME.items()}

    # -- what a job asks for

    def reading(self, job: JobView) -> tuple[Workload, tuple[FieldProblem, ...]]:
        """As much of it as can be read, and every problem found."""
        found, problems = read_workload(BY_NAME[job.kind], job.object, facts=self.facts(job))
        return self._placed(found, job), problems

    def facts(self, job: JobView) -> NamespaceFacts:
        """The facts beside the job on which its meaning depends."""
        return self._facts.of(job.namespace)

    def known(self) -> Facts:
        """The facts on which the meaning of all jobs depends."""
        return self._facts

    def bare_workload(self, job: JobView) -> Workload:
        """The identity and place of a job that cannot be read further."""
        return self._placed(bare_workload(BY_NAME[job.kind], job.object), job)

    def _placed(self, workload: Workload, job: JobView) -> Workload:
        return routed(workload, job.groups, self._state.rules.tree, job.object.metadata.labels)

    def as_decided(self, job: JobView) -> bool:
        """Whether the job still asks for what its admission gives."""
        live, (found, problems) = self._state.live.get(job.uid), self.reading(job)
        if live is None or problems:
            return False
        return overridden(found, live.override).ask() == live.workload.ask()

    def resource_quotas(self) -> Collection[ResourceQuota]:
        """The ResourceQuotas of the namespaces as they are now."""
        return self._facts.resource_quotas.values()

    # -- patches

    def admit(self, live: Live, placement: Placement, *, domains: tuple[str, ...]) -> dict[str, Any]:
        """The PATCH that starts the job inside its pins."""
        job = self._state.jobs[live.uid]
        mark = AdmissionMark(
            id=placement.id, epoch=placement.epoch, cycle=placement.cycle, domains=domains, at=time.time()
        )
        by_name = {flavor.name: flavor for flavor in self._state.rules.flavors}
        pins = [
            Pin(
                pod_set=a.pod_set,
                count=a.count,
                selector=a.selector,
                hosts=None if a.hosts is None else tuple(self._hostname(name) for name in a.hosts),
                tolerations=by_name.get(a.flavor, Flavor(name=a.flavor)).tolerations,
            )
            for a in placement.assignments
        ]
        pins += self._empty_sets(job, {pin.pod_set for pin in pins})
        return admit_patch(BY_NAME[job.kind], job.object, pins=pins, mark=mark)

    def gated(self, live: Live) -> int:
        """How many of its pods still have our gate: once it is admitted, those that came in place of others."""
        job = self._state.jobs.get(live.uid)
        return 0 if job is None else job.gated

    def admit_again(self, live: Live) -> dict[str, Any]:
        """The PATCH that has them follow the others, no more than are charged."""
        assert live.placement is not None
        body = self.admit(live, live.placement, domains=domains_of(self._state.jobs[live.uid].object))
        for name, start in body[STARTS].items():
            start["count"] = min(start["count"], live.placement.held.get(name, 0))
        return body

    def adopt(self, live: Live, placement: Placement) -> dict[str, Any]:
        """The PATCH that marks a job that runs already with the admission that charges it.

        Nothing else changes.
        """
        job = self._state.jobs[live.uid]
        mark = AdmissionMark(id=placement.id, epoch=placement.epoch, cycle=placement.cycle)
        return mark_patch(job.object, mark=mark)

    def evict(self, live: Live) -> dict[str, Any]:
        """The PATCH that suspends the job."""
        job = self._state.jobs[live.uid]
        assert live.placement is not None
        return evict_patch(BY_NAME[job.kind], job.object, admission=live.placement.id)

    def withdraw(self, live: Live) -> dict[str, Any]:
        """The PATCH that makes an admission under way fail."""
        job = self._state.jobs[live.uid]
        assert live.placement is not None
        return _withdrawal(job, admission=live.placement.id)

    def wanted(self, entry: Entry) -> bool:
        """Whether an admission is still in force: its workload has not been evicted, deleted or ended since."""
        live = self._state.live.get(entry.uid)
        if live is None or live.placement is None or live.placement.id != entry.admission_id:
            return False
        return live.state is not State.EVICTING and not live.state.ended

    def rebuilt(self, entry: Entry, job: JobView) -> Mapping[str, Any]:
        """The entry's PATCH for the job as it is now.

        An admission says the same for any version of a job that asks for the same. The other effects leave a
        part of the annotation's present words.
        """
        match entry.kind:
            case EntryKind.EVICT:
                return evict_patch(BY_NAME[job.kind], job.object, admission=entry.admission_id)
            case EntryKind.WITHDRAW:
                return _withdrawal(job, admission=entry.admission_id)
            case EntryKind.ADMIT:
                metadata = {**entry.patch["metadata"], "resourceVersion": job.resource_version}
                again = {**entry.patch, "metadata": metadata}
                return again | {DECIDED: decided_on(job.object)} if DECIDED in again else again

    def status(self, uid: str, said: str | None) -> dict[str, Any] | None:
        """The PATCH that writes this on the job; None where it is there already or the job is gone."""
        job = self._state.jobs.get(uid)
        return None if job is None else status_patch(job.object, said)

    def _hostname(self, name: str) -> str:
        node = self._state.nodes.get(name)
        return node.labels.get(HOSTNAME, name) if node is not None else name

    def _empty_sets(self, job: JobView, pinned: set[str]) -> list[Pin]:
        """Pod sets of no pods: nothing was decided on them, they stay as they are. Pods that came since stay gated."""
        kind = BY_NAME[job.kind]
        others = [role for role in kind.roles(job.object) if role.name not in pinned]
        counts = {role.name: role.count if kind.gates is None else 0 for role in others}
        return [Pin(pod_set=name, count=count, selector={}) for name, count in counts.items()]

    # -- the API server

    async def patch(self, uid: str, body: PatchBody) -> str:
        """Patch the job; returns its new resourceVersion. Raises ApiError or Unavailable."""
        where = self._path(uid)
        if where is None:
            raise NotFoundError(status=404, reason="NotFound", message="the job was deleted and released")
        kind, path = where
        if not isinstance(body, Mapping):
            return await self._client.json_patch(path, body, resource=kind.resource.plural)
        job = self._state.jobs.get(uid)
        if LEFT in body:
            if job is not None:
                await self._made.suspend(kind, job.object)
                await self._left.delete(job.namespace, body)
            return "" if job is None else job.resource_version
        if kind.gates is not None:
            if job is None:
                raise NotFoundError(status=404, reason="NotFound", message="the pods were deleted")
            return await self._gated.patch(job.object, body)
        if PINS in body:
            if job is None:
                raise NotFoundError(status=404, reason="NotFound", message="the job was deleted")
            await self._made.pin(kind, job.object, body)
            body = {key: value for key, value in body.items() if key != PINS}
        if OPERATIONS in body and job is not None:
            operations = as_json_patch(body, job.object)
            return await self._client.json_patch(path, operations, resource=kind.resource.plural)
        if self._client.last_form is Form.REDUCED and job is not None:
            body = await self._loosened(kind, path, job, body)
        return await self._client.merge_patch(path, body, resource=kind.resource.plural)

    async def _loosened(
        self, kind: JobKind, path: str, job: JobView, body: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """The PATCH for the version of the job after its template was set free; as it came where it is free.

        A crash in between leaves a suspended job: the PATCH meets a conflict, and is sent for the new version.
        """
        first = loosen_patch(kind, job.object, body)
        if first is None:
            return body
        version = await self._client.merge_patch(
            f"{path}/status", first, resource=f"{kind.resource.plural}/status"
        )
        return {**body, "metadata": {**body["metadata"], "resourceVersion": version}}

    async def report(self, event: JobEvent) -> None:
        """Create the Event, if the job is still known. Raises ApiError or Unavailable."""
        job = self._state.jobs.get(event.uid)
        if job is None:
            return
        body = event_about(
            BY_NAME[job.kind], told_on(job.object), reason=event.reason, message=event.message,
            warning=event.warning, at=time.time(), id=uuid.uuid4().hex[:16],
        )  # fmt: skip
        await self._client.create(events_path(job.namespace), body, resource="events")

    async def refusal(self, workload: Workload, *, since: float = 0.0) -> PodRefusal:
        """The newest Event about a pod that could not be created. Raises ApiError or Unavailable."""
        path, kind = events_path(workload.namespace), BY_NAME[workload.kind]
        reasons = (*kind.refusals, *JOB.refusals)  # Jobs that it made tell theirs
        found = [
            newest_refusal(
                await self._client.get(path, params=warnings_of(uid)), reasons=reasons, since=since
            )
            for uid in self._makers_of_pods(kind, workload.uid)
        ]
        return max(found, key=lambda refusal: refusal.at)

    def _makers_of_pods(self, kind: JobKind, uid: str) -> list[str]:
        """Uids of the objects whose Events tell why a pod is not made: of the Jobs that it made, some."""
        job = self._state.jobs.get(uid)
        holder = None if job is None or kind.made is None else kind.made.holder(job.object)
        made = [] if holder is None else holder.made
        found = [each.metadata.uid for each in made if JOB.outcome(each) is None][:_ASKED]
        if found and kind.made is not None and kind.made.only is None:
            return found
        children = self._state.pods.made_by(uid) if kind.children else []
        return [*found, *children, uid]

    async def read(self, uid: str) -> JobView | None:
        """The job as the API server has it now; None if there is none with this uid."""
        where = self._path(uid)
        if where is None:
            return None
        kind, path = where
        if kind.gates is not None:
            return await self._read_group(uid, kind)
        try:
            found = self._decoders[kind.name](await self._client.get(path))
        except NotFoundError:
            return None
        if found.metadata.uid != uid:
            return None
        return job_view(kind, await self._made.with_them(kind, found))

    async def _read_group(self, uid: str, kind: JobKind) -> JobView | None:
        job = self._state.jobs.get(uid)
        group = None if job is None else await self._gated.read(job.object)
        return None if group is None else job_view(kind, group)

    def _path(self, uid: str) -> tuple[JobKind, str] | None:
        """Kind and API path of a job, whose object may be gone already; None once nothing is known of it."""
        job = self._state.jobs.get(uid)
        if job is not None:
            kind = BY_NAME[job.kind]
            return kind, object_path(kind, job.object.metadata)
        live = self._state.live.get(uid)
        if live is None:
            return None
        kind = BY_NAME[live.workload.kind]
        return kind, kind.resource.path(live.workload.name, namespace=live.workload.namespace)

    async def has_pods(self, workload: Workload, *, now: float, lost_after: float) -> bool:
        """Whether the job has pods that hold something, by a consistent read, whatever the watch has seen.

        Raises ApiError or Unavailable. Reads its own pods alone: others of its namespace may be many.
        """
        path = PODS.inside(workload.namespace)
        for selector in pod_selectors(BY_NAME[workload.kind], uid=workload.uid, name=workload.name):
            async for page in self._client.pages(path, selector=selector):
                for pod in map(_pod_of, page.items or ()):
                    if self._owner(pod) == workload.uid and self._holds(pod, now=now, lost_after=lost_after):
                        return True
        return False

    def _holds(self, pod: Pod, *, now: float, lost_after: float) -> bool:
        deleted = seconds_of(pod.metadata.deletion_timestamp)
        node = pod.spec.node_name or None
        return not pod.ended and not self._state.given_up(node, deleted, now=now, lost_after=lost_after)

    def _owner(self, pod: Pod) -> str | None:
        """The job that a pod belongs to; one whose reference was taken off is known from before."""
        known = self._state.pods.get(pod.metadata.uid)
        if known is not None and known.owner is not None:
            return known.owner
        member = member_of(pod)
        return None if member is None else self._state.pods.payer(member.owner, member.pod_set)[0]


def _withdrawal(job: JobView, *, admission: str) -> dict[str, Any]:
    """Of pods some may have started by then: they go."""
    kind = BY_NAME[job.kind]
    if kind.gates is not None:
        return evict_patch(kind, job.object, admission=admission)
    return withdraw_patch(job.object, admission=admission)

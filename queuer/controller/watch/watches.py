"""Reflectors of everything that a decision depends on, feeding the controller's memory.

They run from the start of the process, also while it stands by, so that a new leader has its picture at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from queuer.controller.health.metrics import Metrics
from queuer.controller.health.probes import Health
from queuer.controller.logs import logger
from queuer.controller.memory.live import Live
from queuer.controller.memory.pods import Maker
from queuer.controller.memory.state import ClusterState
from queuer.controller.watch.made_objects import Heard, MadeObjects
from queuer.controller.watch.pod_groups import PodGroups
from queuer.controller.watch.views import Facts, job_view, node_of, pod_of
from queuer.domain.errors import QueuerError
from queuer.domain.keys import QUEUE
from queuer.kube.client import Client, NotFoundError
from queuer.kube.kinds import (
    BY_NAME,
    KINDS,
    POD,
    JobKind,
    JobObject,
    maker_of,
    member_of,
    queues_by_itself,
)
from queuer.kube.kinds.pod import PodGroup
from queuer.kube.objects import (
    JOBS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    RUNTIME_CLASSES,
    Job,
    LimitRange,
    Namespace,
    NodeObject,
    Pod,
    PriorityClass,
    Resource,
    ResourceQuota,
    RuntimeClass,
)
from queuer.kube.reflector import Change, ChangeKind, Reflector, Timing
from queuer.kube.workloads import priority_classes, runtime_classes

log = logger("watch")

_REPORT_EVERY = 1.0
_LOOK = 30.0


async def served(client: Client) -> tuple[JobKind, ...]:
    """The job kinds that this cluster has."""
    found = []
    for kind in KINDS:
        if await _is_served(client, kind):
            found.append(kind)
        else:
            log.warning("this cluster has no such kind", kind=kind.name, api=kind.api_version)
    return tuple(found)


async def _is_served(client: Client, kind: JobKind) -> bool:
    """Whether there are objects of a kind and of what carries its templates: both are listed before a decision."""
    carrier = None if kind.made is None else kind.made.carrier
    try:
        for each in (kind, *([] if carrier is None else [carrier.kind])):
            await client.get(each.resource.collection, params={"limit": "1"})
    except NotFoundError:
        return False
    return True


def _start(group: asyncio.TaskGroup, reflector: Reflector[Any]) -> None:
    group.create_task(reflector.run(), name=f"watch {reflector.resource.plural}")


class Watches:
    """All reflectors of one process. Kinds that the cluster gets later are looked for every `look` seconds."""

    def __init__(
        self,
        client: Client,
        state: ClusterState,
        facts: Facts,
        *,
        kinds: Iterable[JobKind],
        look: float = _LOOK,
        timing: Timing | None = None,
    ) -> None:
        self._client, self._state, self._facts, self._look, self._timing = client, state, facts, look, timing
        self._opted_in: frozenset[str] = frozenset()
        self._node_uids: dict[str, str] = {}  # of those in memory, by name
        self._jobs: dict[str, tuple[JobKind, Reflector[Any]]] = {}
        self._made = MadeObjects(state, self)
        self._names: dict[Reflector[Any], str] = {}
        self._groups = PodGroups(self, listed=lambda: pods.synced.is_set())

        limits = self._fact(facts.limit_ranges, lambda it: it.spec, self._limited)
        quotas = self._fact(facts.resource_quotas, lambda it: (it.spec, it.status))
        runtimes = self._fact(
            facts.runtime_classes, lambda it: (it.metadata.name, it.overhead), self._overheads
        )
        ranks = self._fact(
            facts.priority_classes,
            lambda it: (it.metadata.name, it.value, it.global_default),
            self._ranked,
        )
        pods = self._reflector(PODS, Pod, self._pod)
        self.reflectors = [
            self._reflector(NAMESPACES, Namespace, self._namespace),
            self._reflector(LIMIT_RANGES, LimitRange, limits),
            self._reflector(RESOURCE_QUOTAS, ResourceQuota, quotas),
            self._reflector(RUNTIME_CLASSES, RuntimeClass, runtimes),
            self._reflector(PRIORITY_CLASSES, PriorityClass, ranks),
            self._reflector(NODES, NodeObject, self._node),
            pods,
        ]
        for kind in kinds:
            self.reflectors += self._follow(kind)

    def _reflector(
        self, resource: Resource, kind: type[Any], heard: Heard, selector: str = ""
    ) -> Reflector[Any]:
        return Reflector(
            self._client, resource, kind, on_change=heard, selector=selector, timing=self._timing
        )

    def _follow(self, kind: JobKind) -> list[Reflector[Any]]:
        """The reflectors of a kind, which are still to be started. Pods are watched anyway."""
        if kind.gates is not None:
            return []
        reflector = self._reflector(kind.resource, kind.type, self._job(kind), QUEUE)
        self._jobs[kind.name] = (kind, reflector)
        if kind.made is None:
            return [reflector]
        if (carrier := kind.made.carrier) is not None:
            heard = self._made.carrier(kind, carrier.kind)
            carriers = self._reflector(carrier.kind.resource, carrier.kind.type, heard)
            self._names[carriers] = f"{carrier.kind.resource.plural} of {kind.resource.plural}"
            return [carriers, reflector]
        made = self._reflector(JOBS, Job, self._made.job(kind, kind.made), kind.made.mark)
        self._names[made] = f"{JOBS.plural} of {kind.resource.plural}"
        # Those that were made come first: a job is read with them.
        return [made, reflector]

    @property
    def away_since(self) -> float | None:
        """Monotonic time since when the API server has answered none of them; None while it does."""
        since = [reflector.stale_since for reflector in self.reflectors]
        lost = [moment for moment in since if moment is not None]
        return max(lost) if len(lost) == len(since) else None

    async def run(self, metrics: Metrics, health: Health) -> None:
        """Keep everything up to date until cancelled."""
        metrics.count_undecodable(lambda: [((self._name(r),), r.undecodable) for r in self.reflectors])
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors:
                _start(group, reflector)
            group.create_task(self._discover(group), name="kinds")
            while True:
                await asyncio.sleep(_REPORT_EVERY)
                health.away_since = self.away_since
                for reflector in self.reflectors:
                    since = reflector.stale_since
                    age = 0.0 if since is None else time.monotonic() - since
                    metrics.watch_age.labels(self._name(reflector)).set(age)

    def _name(self, reflector: Reflector[Any]) -> str:
        return self._names.get(reflector, reflector.resource.plural)

    async def _discover(self, group: asyncio.TaskGroup) -> None:
        """Follow the jobs of a kind from when the cluster has it: its operator was installed."""
        while missing := [kind for kind in KINDS if kind.name not in self._jobs and kind.gates is None]:
            await asyncio.sleep(self._look)
            for kind in missing:
                try:
                    came = await _is_served(self._client, kind)
                except QueuerError as error:
                    log.warning("kind not looked for", kind=kind.name, said=str(error))
                    continue
                if came:
                    log.info("this cluster has a new kind", kind=kind.name, api=kind.api_version)
                    for reflector in self._follow(kind):
                        self.reflectors.append(reflector)
                        _start(group, reflector)

    async def synced(self, *, progress: Callable[[], None] = lambda: None) -> None:
        """Wait until everything was listed once. `progress` is called while objects come."""
        known = 0
        for reflector in self.reflectors:
            while not reflector.synced.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(_REPORT_EVERY):
                        await reflector.synced.wait()
                before, known = known, sum(len(r.items) for r in self.reflectors)
                if known > before:
                    progress()
        self._groups.look()

    def recall(self, lives: Iterable[Live]) -> None:
        """Groups of pods are the workloads that the database knows. Called once when a term begins."""
        groups = [live.workload for live in lives if live.workload.kind == POD.name]
        self._groups.recall({own.uid: own for own in groups})

    # -- what was heard

    def _namespace(self, change: Change[Namespace]) -> None:
        self._fact(self._facts.namespaces, lambda _: None)(change)
        before, self._opted_in = self._opted_in, self._facts.opted_in()
        for name in before ^ self._opted_in:
            self._read_again(name)

    def _read_again(self, namespace: str) -> None:
        """The jobs of a namespace that opted in or out just now."""
        for kind, reflector in self._jobs.values():
            for found in reflector.items.values():
                if found.metadata.namespace == namespace:
                    self._hear_job(kind, found)
        for group in self._groups.of(namespace):
            self._hear_job(POD, group)

    def _fact(
        self,
        store: dict[str, Any],
        matters: Callable[[Any], object],
        meant: Callable[[Any], None] = lambda _: None,
    ) -> Heard:
        """Keep these objects. `matters`: the part of one that bears on decisions; `meant`: has jobs read again that its
        old or new form may change.
        """

        def heard(change: Change[Any]) -> None:
            new = None if change.kind is ChangeKind.DELETED else change.object
            uid = change.object.metadata.uid
            if new is None:
                store.pop(uid, None)
            else:
                store[uid] = new
            before, after = (None if found is None else matters(found) for found in (change.old, new))
            if before != after:
                for found in (change.old, new):
                    if found is not None:
                        meant(found)
                self._state.reconsider()

        return heard

    def _limited(self, found: LimitRange) -> None:
        self._means_else(lambda _, job: job.metadata.namespace == found.metadata.namespace)

    def _overheads(self, found: RuntimeClass) -> None:
        self._means_else(lambda kind, job: found.metadata.name in runtime_classes(kind, job))

    def _ranked(self, found: PriorityClass) -> None:
        """All jobs where it is the default, or the most that a queue allows."""
        name, tree = found.metadata.name, self._state.rules.tree
        everywhere = found.global_default or any(queue.access.max_priority == name for queue in tree)
        self._means_else(lambda kind, job: everywhere or name in priority_classes(kind, job))

    def _means_else(self, may: Callable[[JobKind, JobObject], bool]) -> None:
        """Have the jobs read again that may mean something else."""
        jobs = self._state.jobs.values()
        self._state.read_again([job.uid for job in jobs if may(BY_NAME[job.kind], job.object)])

    def _node(self, change: Change[NodeObject]) -> None:
        name, uid = change.object.metadata.name, change.object.metadata.uid
        if change.kind is ChangeKind.DELETED:
            # A list tells first of the node that came under the name of one that it finds gone.
            if self._node_uids.get(name) == uid:
                del self._node_uids[name]
                self._state.node_gone(name)
        else:
            self._node_uids[name] = uid
            node, problems = node_of(change.object)
            for problem in problems:
                log.error("amount of a node not understood, not used", node=name, said=str(problem))
            self._state.node_changed(node)

    def _pod(self, change: Change[Pod]) -> None:
        pod = change.object
        alone = queues_by_itself(pod.metadata)
        if change.kind is ChangeKind.DELETED:
            self._state.pod_gone(pod.metadata.uid)
            self._groups.remove(pod.metadata.uid)
            return
        if alone:
            self._groups.put(pod)
        else:
            self._groups.remove(pod.metadata.uid)
        member = member_of(pod)
        known = self._state.pods.get(pod.metadata.uid)
        owner, pod_set = (
            (None, None) if member is None else self._state.pods.payer(member.owner, member.pod_set)
        )
        self._state.pod_changed(pod_of(pod, known=known, owner=owner, pod_set=pod_set))

    def came(self, group: PodGroup) -> None:
        """Pods that queue by themselves are there, or have changed."""
        self._hear_job(POD, group)

    def went(self, uid: str) -> None:
        """Nothing is left of them."""
        self._state.job_gone(uid)

    def _job(self, kind: JobKind) -> Heard:
        def heard(change: Change[Any]) -> None:
            if change.kind is ChangeKind.DELETED:
                self._state.job_gone(change.object.metadata.uid)
                self._state.pods.unmade(change.object.metadata.uid)
            else:
                self._hear_job(kind, change.object)

        return heard

    def again(self, kind: JobKind, uid: str, *, late: bool = False) -> None:
        """Something that was made of a job has changed."""
        known = self._jobs[kind.name][1].items.get(uid)
        if known is not None:
            self._hear_job(kind, known, late=late)

    def _hear_job(self, kind: JobKind, found: Any, *, late: bool = False) -> None:
        meta = found.metadata
        if (maker := maker_of(kind, meta)) is not None:
            if maker.children and meta.controller is not None:
                self._state.made(meta.uid, Maker(uid=meta.controller.uid), namespace=meta.namespace)
            return
        found, unfinished = self._made.given_to(kind, found, late=late)
        job = job_view(kind, found, unfinished=unfinished)
        if job.namespace in self._opted_in:
            self._state.job_changed(job)
        else:
            self._state.job_elsewhere(job)

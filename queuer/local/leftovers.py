"""The checks of `queuer uninstall-check`: what would stay in the cluster, and what would be stuck, without Queuer.

Only the cluster is asked, as API and database may be gone already. `wrong` is what would be stuck; what stays without
harm is a `warning`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from queuer.domain.keys import DEFAULT_QUEUE, HOLD, MANAGED, STATUS, USER
from queuer.domain.reasons import Token
from queuer.kube.resources import CRDS, NAMESPACE, POLICIES, ROLES
from queuer.kube.versions import Form
from queuer.local.installed import RELEASE as HELM_RELEASE
from queuer.local.installed import Shipped, shipped
from queuer.local.site import Finding, Site, odd, ok, unknown, wrong

if TYPE_CHECKING:
    from queuer.kube.kinds import JobKind, JobObject
    from queuer.kube.objects import Job, Meta, Resource

RELEASE = "queuer uninstall-check --release > release.sh; remove Queuer; sh release.sh"
BY_HAND = "start those that wait by hand: `--release` has no command for them"
_MOST_NAMED = 3
_CLASS = "PriorityClass"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A job that Queuer queued and that has not ended.

    `waits`: it is suspended. `held`: its annotation says so, or its last reason does, as a hold over REST is not on it.
    """

    kind: JobKind
    object: JobObject

    @property
    def name(self) -> str:
        return f"{self.object.metadata.namespace}/{self.object.metadata.name}"

    @property
    def waits(self) -> bool:
        return self.kind.suspended(self.object)

    @property
    def held(self) -> bool:
        notes = self.object.metadata.annotations
        return notes.get(HOLD) == "true" or notes.get(STATUS, "").startswith(f"{Token.ON_HOLD}:")

    @property
    def classes(self) -> frozenset[str]:
        """The PriorityClasses of its templates."""
        return frozenset(
            role.template.spec.priority_class_name or "" for role in self.kind.roles(self.object)
        )

    @property
    def release(self) -> str:
        """The command that starts it as its owner wrote it, once no policy of ours forbids that.

        Where a template that was started changes, its status is written first: Kubernetes below 1.36.2 wants that.
        """
        from queuer.kube.gated import pod_patches
        from queuer.kube.kinds.pod import PodGroup
        from queuer.kube.made import OPERATIONS, PINS, as_json_patch
        from queuer.kube.patches import free_patch

        body = free_patch(self.kind, self.object)
        if isinstance(self.object, PodGroup):
            changes = (change for _, change in pod_patches(self.object, body))
            return " && ".join(self._patch({"spec": change["spec"]}) for change in changes)
        if OPERATIONS in body:
            parent = self._patch(as_json_patch(body, self.object), "--type=json")
            return " && ".join([*self._unpin(body), parent])
        steps = [*self._unpin(body), self._patch({k: v for k, v in body.items() if k != PINS})]
        if self.kind.fixed(self.object) and "template" in json.dumps(body):
            steps.insert(0, self._patch({"status": {"startTime": None}}, "--subresource=status"))
        return " && ".join(steps)

    def _unpin(self, body: Mapping[str, Any]) -> Iterator[str]:
        """Take the pins of the last start off the Jobs that it made."""
        from queuer.kube.kinds import JOB
        from queuer.kube.made import PINS, job_patch
        from queuer.kube.objects import JOBS

        if self.kind.made is None:
            return
        made: list[Job] = getattr(self.object, "made", [])
        for job in made:
            change = job_patch(job, body[PINS].get(self.kind.made.pod_set(job.metadata), {}))
            if change is not None:
                if JOB.fixed(job):
                    status = {"status": {"startTime": None}}
                    yield _patched(JOBS, job.metadata, status, "--subresource=status", "--type=merge")
                yield _patched(JOBS, job.metadata, {"spec": change["spec"]}, "--type=merge")

    def _patch(self, body: Any, *options: str) -> str:
        options = options if "--type=json" in options else (*options, "--type=merge")
        return _patched(self.kind.resource, self.object.metadata, body, *options)


def _patched(resource: Resource, meta: Meta, body: Any, *options: str) -> str:
    what = f"{resource.full_name}/{meta.name} -n {meta.namespace}"
    said = shlex.quote(json.dumps(body, separators=(",", ":")))
    return " ".join(["kubectl patch", what, *options, "-p", said])


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJobs:
    """The queued jobs that have not ended, and the names of those that cannot be read; both sorted."""

    jobs: list[QueuedJob]
    unreadable: list[str]


def queued_jobs(site: Site) -> QueuedJobs:
    """All queued jobs. Raises Unseen.

    A label alone queues nothing: a job that entered a queue has the annotation `queuer.dev/user`.
    """
    found, unread = list[QueuedJob](), list[str]()
    for kind, items in site.labelled():
        for meta, read in _entered(kind, items):
            if read is None:
                unread.append(f"{meta.namespace}/{meta.name}")
            elif kind.outcome(read) is None:
                found.append(QueuedJob(kind=kind, object=with_made(site, kind, read)))
    return QueuedJobs(jobs=sorted(found, key=lambda job: job.name), unreadable=sorted(unread))


def with_made(site: Site, kind: JobKind, job: Any) -> JobObject:
    """The job with the Jobs that its controller made."""
    from queuer.kube.decoding import decoder_of
    from queuer.kube.objects import JOBS, Job

    if kind.made is None:
        return cast("JobObject", job)
    carrier = None
    if kind.made.carrier is not None:
        of = kind.made.carrier.kind
        found = site.get(of.resource.path(job.metadata.name, namespace=job.metadata.namespace))
        carrier = None if found is None else decoder_of(of.type)(json.dumps(found).encode())
        if carrier is None or not carrier.metadata.is_controlled_by(job.metadata.uid):
            return cast("JobObject", job)
    meta: Meta = (carrier or job).metadata
    path = JOBS.inside(meta.namespace)
    jobs = map(decoder_of(Job), site.objects(path, selector=kind.made.selector(meta)))
    own = [each for each in jobs if each.metadata.is_controlled_by(meta.uid)]
    return cast("JobObject", kind.made.given(job, jobs=own, carrier=carrier))


def _entered(kind: JobKind, items: Iterable[bytes]) -> Iterator[tuple[Meta, JobObject | None]]:
    """The objects that entered a queue and stay; None in place of one that cannot be read.

    Objects that KubeRay makes of a job have its labels and annotations, and go with it.
    """
    from msgspec import MsgspecError

    from queuer.kube.decoding import decoder_of
    from queuer.kube.kinds import decoded_job, maker_of
    from queuer.kube.objects import Named

    named = decoder_of(Named)
    for item in items:
        meta = named(item).metadata
        if USER not in meta.annotations or meta.deletion_timestamp or maker_of(kind, meta) is not None:
            continue
        try:
            yield meta, decoded_job(kind, item)
        except MsgspecError:
            yield meta, None


def jobs(site: Site) -> Iterator[Finding]:
    """Jobs that nobody would start any more, and those that run on."""
    queued = queued_jobs(site)
    found = queued.jobs
    waiting = [job.name for job in found if job.waits and not job.held]
    held = [job.name for job in found if job.waits and job.held]
    running = [job.name for job in found if not job.waits]
    if waiting:
        yield wrong(_told(waiting, "job waits and would not start", "jobs wait and would not start"), RELEASE)
    if held:
        fix = "tell the owners: without Queuer the annotation queuer.dev/hold means nothing, and suspend is theirs"
        yield odd(_told(held, "job is held", "jobs are held"), fix)
    if queued.unreadable:
        yield unknown(_told(queued.unreadable, "job cannot be read", "jobs cannot be read"), BY_HAND)
    if running or not (waiting or held or queued.unreadable):
        yield ok(_told(running, "job runs and would run on", "jobs run and would run on"))


def policies(site: Site) -> Iterator[Finding]:
    """Policies that would go on suspending new jobs."""
    count, alone = _stays(site, [each for each in _policies() if each.document["kind"] != _CLASS])
    if alone:
        would = "would go on to suspend new jobs"
        said = _told([each.name for each in alone], f"object {would}", f"objects {would}")
        yield wrong(said, f"kubectl delete {_named(alone)}")
    elif count:
        yield ok(f"{count} policies and bindings go with `helm uninstall`")
    else:
        yield ok("no policy of Queuer is there")


def classes(site: Site) -> Iterator[Finding]:
    """The PriorityClass that policies write into templates: without it no pod of such a job can be made."""
    own = next(each for each in _policies() if each.document["kind"] == _CLASS)
    name = own.document["metadata"]["name"]
    named = [job.name for job in queued_jobs(site).jobs if name in job.classes]
    if site.get(own.path) is not None:
        said = _told(
            named, f"job names the class {name}, which stays", f"jobs name the class {name}, which stays"
        )
        yield odd(said, f"kubectl delete priorityclass {name}  # once no job names it")
    elif named:
        said = f"the class {name} is gone, and no pod can be made of "
        fix = f"kubectl create priorityclass {name} --value=0 --preemption-policy=Never"
        yield wrong(said + _told(named, "job that names it", "jobs that name it"), fix)
    else:
        yield ok(f"the class {name} is gone, and no job names it")


def _policies() -> Iterable[Shipped]:
    """The policies of each form: which of them is installed is not known here."""
    return {each.path: each for form in Form for each in shipped(*POLICIES[form])}.values()


def roles(site: Site) -> Iterator[Finding]:
    """Roles, bindings and service accounts of Queuer that no Helm release has: they give rights to nobody who runs."""
    wanted = {each.path: each for form in Form for each in shipped(NAMESPACE, *ROLES[form])}.values()
    count, alone = _stays(site, [each for each in wanted if each.document["kind"] != "Namespace"])
    if alone:
        said = _told([each.name for each in alone], "object with rights stays", "objects with rights stay")
        yield odd(said, f"kubectl delete -n {site.home} {_named(alone)}")
    elif count:
        yield ok(f"{count} roles, bindings and accounts go with `helm uninstall`")
    else:
        yield ok("no role of Queuer is there")


def _stays(site: Site, wanted: Iterable[Shipped]) -> tuple[int, list[Shipped]]:
    """How many of these are there, and those of them that no Helm release has."""
    found = [(each, live) for each in wanted if (live := site.get(each.path)) is not None]
    return len(found), [
        each for each, live in found if HELM_RELEASE not in live["metadata"].get("annotations", {})
    ]


def _named(objects: Iterable[Shipped]) -> str:
    """As kubectl takes them: `clusterrole/queuer-api`."""
    return " ".join(each.name.lower().replace(" ", "/") for each in objects)


def definitions(site: Site) -> Iterator[Finding]:
    """CRDs, which Helm keeps, and the objects that would go with them."""
    kinds = [each.document for each in shipped(CRDS) if site.get(each.path) is not None]
    if not kinds:
        yield ok("no definition of Queuer is there")
        return
    counts = []
    for kind in kinds:
        spec, names = kind["spec"], kind["spec"]["names"]
        path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{names['plural']}"
        counts.append(f"{len(site.objects(path))} {names['kind']}")
    fix = (
        f"kubectl delete crd {' '.join(kind['metadata']['name'] for kind in kinds)}  # with all their objects"
    )
    yield odd(f"{len(kinds)} definitions stay, with {', '.join(counts)}", fix)


def namespaces(site: Site) -> Iterator[Finding]:
    """Labels of namespaces, which mean nothing without Queuer."""
    labels = site.labels("namespaces")
    marked = sorted(name for name, own in labels.items() if {MANAGED, DEFAULT_QUEUE} & own.keys())
    if not marked:
        yield ok("no namespace carries a label of Queuer")
        return
    fix = f"kubectl label namespace {' '.join(marked)} {MANAGED}- {DEFAULT_QUEUE}-"
    yield odd(_told(marked, "namespace keeps its label", "namespaces keep their labels"), fix)


CHECKS: Sequence[tuple[str, Callable[[Site], Iterator[Finding]]]] = (
    ("jobs", jobs),
    ("policies", policies),
    ("classes", classes),
    ("roles", roles),
    ("definitions", definitions),
    ("namespaces", namespaces),
)
"""All checks, by name."""


def _told(names: Sequence[str], one: str, many: str) -> str:
    """e.g. `4 jobs wait: a/x, a/y, a/z, …`."""
    shown = ", ".join([*names[:_MOST_NAMED], *(["…"] if len(names) > _MOST_NAMED else [])])
    return f"{len(names)} {one if len(names) == 1 else many}" + (f": {shown}" if shown else "")

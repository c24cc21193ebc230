"""Invariants, read from the API server and the database alone: a sentence for each violation.

`settled` holds once everything is quiet. `sound` holds whenever no controller runs, and looks back over all that was
written. Neither trusts what a controller has in memory, nor uses its code.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from queuer.domain.queue import QueueTree
from queuer.solver.records import Snapshot
from queuer.solver.stored import decode
from tests.chaos.drift import NOBODY, REPAIRS
from tests.chaos.world import BESIDE, LIMITS, Manifest, World
from tests.e2e.controller import GPU, Controller

FAILURES = ("the term of office failed", '"quarantined"', '"no plan"', "no commit")
"""What no fault of anything else excuses in a log."""
PLANNED = ("reclaim", "preempt")
"""Why a plan evicts."""
_OVER = f"""
    SELECT moment.opened AS at, sum((l.amounts->>'{GPU}')::bigint) AS held
    FROM (
        SELECT DISTINCT opened FROM ledger JOIN admission USING (uid, attempt) JOIN cycle ON cycle.id = admission.cycle
        WHERE cycle.trigger <> 'adopted'
    ) AS moment
    JOIN ledger l ON l.opened <= moment.opened AND (l.closed IS NULL OR l.closed > moment.opened)
    WHERE l.queue = %s OR starts_with(l.queue, %s)
    GROUP BY moment.opened HAVING sum((l.amounts->>'{GPU}')::bigint) > %s
    ORDER BY moment.opened LIMIT 1
"""
"""The first moment of a decided row at which a queue held more than its limit: only then a sum grows by a decision.

What was started beside the queue is charged whatever the limit. So is what a replica has forgotten, perhaps before it
hears that another job has ended.
"""
_CHARGED_TWICE = """
    SELECT a.uid, a.pod_set FROM ledger a JOIN ledger b USING (uid, pod_set)
    WHERE a.id < b.id AND a.opened < coalesce(b.closed, 'infinity') AND b.opened < coalesce(a.closed, 'infinity')
"""
_ADMITTED_TWICE = """
    SELECT a.uid, 'admission' AS pod_set FROM admission a JOIN admission b USING (uid)
    WHERE a.id < b.id AND a.at < coalesce(b.ended_at, 'infinity') AND b.at < coalesce(a.ended_at, 'infinity')
"""
_ENDED = ("Succeeded", "Failed")
_EVICTED = """
    SELECT uid, data->>'cause' AS cause FROM event WHERE type = 'workload.state' AND data->>'to' = 'Evicting'
"""
_ADMITTED = "SELECT uid FROM workload WHERE state IN ('Admitted', 'Placing', 'Running')"
_CHARGES = "SELECT uid, pod_set, queue, count, amounts FROM ledger WHERE closed IS NULL"
_ADMISSIONS = "SELECT uid, id::text FROM admission WHERE ended_at IS NULL"
_WORKLOADS = "SELECT uid, name, queue, state, token, admission_id::text, deleted_at FROM workload"
_UNDONE = "SELECT uid, kind FROM outbox WHERE done_at IS NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Jobs by uid, the pods of each that have not ended, and the uids of pods that succeeded."""

    jobs: Mapping[str, Manifest]
    pods: Mapping[str, list[Manifest]]
    succeeded: frozenset[str]


def picture(world: World) -> Picture:
    """The jobs and pods as the API server has them now."""
    jobs = {job["metadata"]["uid"]: job for job in world.jobs()}
    every = world.every("Pod")
    pods: dict[str, list[Manifest]] = defaultdict(list)
    for pod in every:
        if pod["status"].get("phase") in ("Pending", "Running"):
            pods[_controller(pod)].append(pod)
    done = (pod["metadata"]["uid"] for pod in every if pod["status"].get("phase") == "Succeeded")
    return Picture(jobs=jobs, pods=pods, succeeded=frozenset(done))


@dataclass(slots=True)
class Gangs:
    """Remembers which gangs ran whole, with their pods, to see whether they still do."""

    whole: dict[str, frozenset[str]] = field(default_factory=dict)
    events: int = 0

    def harmed(self, world: World, found: Picture) -> Iterator[str]:
        """Gangs that ran at the last look, that no plan has evicted since, and that miss pods they had."""
        evicted: dict[str, set[str]] = defaultdict(set)
        for row in world.database.rows(f"{_EVICTED} AND id > %s", self.events):
            evicted[row["uid"]].add(row["cause"])
        for uid, pods in self.whole.items():
            job = found.jobs.get(uid)
            if job is None or uid in world.excused or outcome(job) is not None:
                continue
            if unplanned := evicted[uid].difference(PLANNED):
                yield f"{_name(job)} ran and was evicted: {', '.join(sorted(unplanned))}"
            elif not evicted[uid]:
                left = {p["metadata"]["uid"] for p in found.pods.get(uid, ()) if not _terminating(p)}
                if missing := pods - left - found.succeeded:
                    yield f"{_name(job)} ran and lost {len(missing)} of {len(pods)} pods"
        [last] = world.database.rows("SELECT coalesce(max(id), 0) AS id FROM event")
        self.events = last["id"]
        admitted = {row["uid"] for row in world.database.rows(_ADMITTED)}
        self.whole = {
            uid: frozenset(p["metadata"]["uid"] for p in found.pods[uid])
            for uid, job in found.jobs.items()
            if uid in admitted & found.pods.keys()
            and outcome(job) is None
            and _runs_whole(job, found.pods[uid])
        }


def sound(world: World, found: Picture, gangs: Gangs) -> list[str]:
    """Nothing is doubled, over-admitted, or on a node without a charge. No running gang is harmed. The
    auditor mends only what a story did to the ledger.

    `found` was read while no controller ran.
    """
    database = world.database
    wrong = [
        f"{queue} held {row['held']} of {limit} GPUs at {row['at']}"
        for queue, limit in LIMITS.items()
        for row in database.rows(_OVER, queue, f"{queue}.", limit)
    ]
    for query in (_CHARGED_TWICE, _ADMITTED_TWICE):
        wrong += [f"{row['uid']} has two at a time: {row['pod_set']}" for row in database.rows(query)]
    wrong += [
        f"the auditor had to repair {row['uid']}: {row['reason']}"
        for row in database.rows(REPAIRS)
        if row["uid"] != NOBODY
    ]
    charged = {row["uid"] for row in database.rows(_CHARGES)}
    queues = {row["uid"]: row["queue"] for row in database.rows(_WORKLOADS)}
    for uid, pods in found.pods.items():
        holding = [p for p in pods if p["spec"].get("nodeName")]
        known = uid not in world.forgotten and queues.get(uid, BESIDE) != BESIDE
        if holding and uid not in charged and known:
            wrong.append(f"{_name(holding[0])} holds a node, and nothing is charged for it")
    return [*wrong, *gangs.harmed(world, found)]


def said(process: Controller) -> list[str]:
    """Words that a controller's log must not have."""
    return [f"its log says {text}" for text in FAILURES if process.log_has(text)]


def settle(world: World, *, timeout: float) -> list[str]:
    """Wait until all is settled; what is still not after `timeout` seconds."""
    until = time.monotonic() + timeout
    while (wrong := settled(world)) and time.monotonic() < until:
        time.sleep(0.3)
    return wrong


def settled(world: World) -> list[str]:
    """Nothing lost: every job is in the state that its spec and pods say, charged for just these, and no more is."""
    found, database = picture(world), world.database
    rows = {row["uid"]: row for row in database.rows(_WORKLOADS)}
    charges: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in database.rows(_CHARGES):
        charges[row["uid"]].append(row)
    admissions: dict[str, list[str]] = defaultdict(list)
    for row in database.rows(_ADMISSIONS):
        admissions[row["uid"]].append(row["id"])
    wrong = [f"an effect is left: {row['kind']} of {row['uid']}" for row in database.rows(_UNDONE)]
    for uid in {*rows, *charges, *admissions} - found.jobs.keys():
        row = rows.get(uid, {"name": uid, "state": None, "deleted_at": None})
        over = row["deleted_at"] is not None or row["state"] in _ENDED  # nobody follows what has ended
        if not over or charges[uid] or admissions[uid]:
            wrong.append(f"{row['name']} is gone, and {'charged' if charges[uid] else 'kept'}")
    for uid, job in found.jobs.items():
        pods = found.pods.get(uid, [])
        if uid not in rows and outcome(job) is not None and _queue(job) == BESIDE:
            continue  # it came, was started beside the queues and ended while nobody looked
        if uid not in rows:
            wrong.append(f"{_name(job)} is lost: the database does not know it")
        elif said := _differs(job, pods, rows[uid], charges[uid], admissions[uid]):
            wrong.append(f"{_name(job)} ({rows[uid]['state']}): {said}")
    return wrong


def misremembered(world: World, *, asked: Manifest) -> list[str]:
    """How the nodes that a controller decides on differ from those that are there, what all pods hold on them included.

    `asked`: a job that waits and has just come; looked at is what was decided with it.
    """
    snapshot = _decided_on(world)
    if asked["metadata"]["uid"] not in snapshot.workloads():
        return ["no decision is stored yet"]
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in _items(world, "pods"):
        if pod["spec"].get("nodeName") and pod["status"].get("phase") not in ("Succeeded", "Failed"):
            used[pod["spec"]["nodeName"]].update({"pods": 1, GPU: _gpus(pod)})
    there = {
        node["metadata"]["name"]: (
            node["metadata"]["labels"],
            bool(node["spec"].get("unschedulable")),
            int(node["status"]["allocatable"][GPU]),
            *(used[node["metadata"]["name"]][resource] for resource in ("pods", GPU)),
        )
        for node in _items(world, "nodes")
    }
    remembered = {
        found.node.name: (
            dict(found.node.labels),
            found.node.unschedulable,
            found.node.allocatable[GPU],
            *(found.used.get(resource, 0) for resource in ("pods", GPU)),
        )
        for found in snapshot.nodes
    }
    return [
        f"{name} is remembered as {remembered.get(name)}, and is {there.get(name)}"
        for name in sorted({*there, *remembered})
        if there.get(name) != remembered.get(name)
    ]


def _decided_on(world: World) -> Snapshot:
    """The snapshot of the newest decision, or nothing before the first."""
    rows = world.database.rows("SELECT body FROM stored_cycle")
    return decode(rows[0]["body"]).snapshot if rows else Snapshot(nodes=(), tree=QueueTree.of(()))


def _items(world: World, plural: str) -> list[Manifest]:
    return list(world.admin.get(f"/api/v1/{plural}").raise_for_status().json()["items"])


def _differs(
    job: Manifest,
    pods: list[Manifest],
    row: dict[str, Any],
    charges: list[dict[str, Any]],
    admissions: list[str],
) -> str:
    """The fault of one job at a quiet time, "" if all is well."""
    ended = outcome(job)
    if row["deleted_at"] is not None:
        return "taken for deleted"
    if ended is not None or _suspended(job):
        expected = ended or ("Held" if _annotations(job).get("queuer.dev/hold") == "true" else "Queued")
        if row["state"] != expected:
            return f"should be {expected}"
        if pods or charges or admissions:
            return f"{len(pods)} pods, {len(charges)} charges and {len(admissions)} admissions are left"
        return "waits without a reason" if ended is None and row["token"] is None else ""
    if row["state"] != "Running" or not _runs_whole(job, pods):
        return f"{len(pods)} of {_size(job)} pods are there, not all run"
    if admissions != [row["admission_id"]] or _admission(job) != row["admission_id"]:
        return f"the job carries {_admission(job)}, in force are {admissions}"
    there = Counter(_pod_set(pod) for pod in pods)
    gpus: Counter[str] = Counter()
    for pod in pods:
        gpus[_pod_set(pod)] += _gpus(pod)
    booked = {c["pod_set"]: (c["count"], c["amounts"].get(GPU, 0)) for c in charges}
    if len(booked) != len(charges) or booked != {name: (there[name], gpus[name]) for name in there}:
        return f"{dict(there)} with {dict(gpus)} GPUs run, {booked} is charged"
    return ""


def _name(found: Manifest) -> str:
    return str(found["metadata"]["name"])


def _queue(job: Manifest) -> str:
    return str(job["metadata"]["labels"]["queuer.dev/queue"])


def _annotations(job: Manifest) -> Mapping[str, str]:
    annotations: Mapping[str, str] = job["metadata"].get("annotations", {})
    return annotations


def _admission(job: Manifest) -> str | None:
    said = json.loads(_annotations(job).get("queuer.dev/admission", "{}"))
    return None if "id" not in said else str(said["id"])


def _suspended(job: Manifest) -> bool:
    spec = job["spec"]
    return bool(spec.get("suspend") or spec.get("runPolicy", {}).get("suspend"))


def outcome(job: Manifest) -> str | None:
    """Succeeded or Failed; None while it is neither."""
    words = {"Complete": "Succeeded", "Succeeded": "Succeeded", "Failed": "Failed"}
    for condition in job.get("status", {}).get("conditions") or ():
        if condition["status"] == "True" and condition["type"] in words:
            return words[condition["type"]]
    return None


def _size(job: Manifest) -> int:
    spec = job["spec"]
    if job["kind"] == "Job":
        return int(spec["parallelism"])
    return sum(int(replica["replicas"]) for replica in spec["pytorchReplicaSpecs"].values())


def _runs_whole(job: Manifest, pods: list[Manifest]) -> bool:
    return len(pods) == _size(job) and all(
        p["status"]["phase"] == "Running" and not _terminating(p) for p in pods
    )


def _terminating(pod: Manifest) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _controller(pod: Manifest) -> str:
    owners = pod["metadata"].get("ownerReferences", ())
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")


def _pod_set(pod: Manifest) -> str:
    return str(pod["metadata"]["labels"].get("training.kubeflow.org/replica-type", "main")).lower()


def _gpus(pod: Manifest) -> int:
    return sum(int(c["resources"].get("limits", {}).get(GPU, 0)) for c in pod["spec"]["containers"])

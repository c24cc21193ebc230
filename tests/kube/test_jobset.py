"""JobSets as they are read, and pinned with the Jobs that their controller makes."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuer.domain.errors import InvalidInput
from queuer.domain.keys import WORKLOAD
from queuer.kube.kinds import JOBSET
from queuer.kube.made import as_json_patch, job_patch
from queuer.kube.objects import Job
from queuer.kube.patches import AdmissionMark, admit_patch, evict_patch, free_patch, own_roles
from queuer.kube.template import Pin, scheduling_of
from tests.kube.manifests import Manifest, faults, meta, pins_of, read
from tests.kube.merge_patch import merged
from tests.kube.test_patches import place_of, without_empty

ROLE, ATTEMPT = "jobset.sigs.k8s.io/replicatedjob-name", "jobset.sigs.k8s.io/restart-attempt"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
MARK = AdmissionMark(id="a1", epoch=3, cycle=9, domains=("r07",))
SUSPENDED = {"type": "Suspended", "status": "True"}
SIZES = {"driver": 1, "workers": 6}


def jobset(spec: Manifest | None = None, **more: Any) -> Manifest:
    """A driver of one pod, and two Jobs of three workers each."""

    def role(name: str, replicas: int, pods: int) -> Manifest:
        template = {"spec": {"containers": [{"name": "c"}], **deepcopy(spec or {})}}
        job = {"parallelism": pods, "completions": pods, "template": template}
        return {"name": name, "replicas": replicas, "template": {"spec": job}, **more}

    return {
        "metadata": meta("s"),
        "spec": {"suspend": True, "replicatedJobs": [role("driver", 1, 1), role("workers", 2, 3)]},
    }


def made(found: Manifest) -> list[Manifest]:
    """The Jobs that the controller makes of it, suspended."""
    jobs = []
    for role in found["spec"]["replicatedJobs"]:
        for place in range(role["replicas"]):
            name = f"s-{role['name']}-{place}"
            labels = {ROLE: role["name"], ATTEMPT: "0"}
            meta = {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1", "labels": labels}
            spec = {**deepcopy(role["template"]["spec"]), "suspend": True}
            jobs.append({"metadata": meta, "spec": spec, "status": {"conditions": [SUSPENDED]}})
    return jobs


def decoded(found: Manifest, jobs: list[Manifest] | None = None) -> Any:
    return msgspec.convert({**found, "made": jobs or []}, JOBSET.type)


def sizes(found: Any) -> dict[str, int]:
    return {role.name: role.count for role in JOBSET.roles(found)}


class TestReading:
    def test_pods_are_those_of_all_jobs_of_a_role(self) -> None:
        found = read(jobset(), kind=JOBSET)
        assert {p.name: p.count for p in found.pod_sets} == SIZES

    def test_what_is_left_is_counted_in_its_jobs(self) -> None:
        """Indexes that succeeded survive an eviction: the gang that comes back is smaller (Kueue #10487)."""
        found = jobset()
        jobs = made(found)
        jobs[0]["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
        jobs[1]["status"]["succeeded"] = 2
        assert sizes(decoded(found, jobs)) == {"driver": 0, "workers": 4}
        assert JOBSET.left(decoded(found, jobs)) == 4

    def test_jobs_that_are_not_heard_of_yet_owe_all_their_pods(self) -> None:
        """They run before that, in a burst: what they hold would be given to others."""
        found = jobset()
        for known in range(4):
            assert JOBSET.left(decoded(found, made(found)[:known])) == 7
            assert sizes(decoded(found, made(found)[:known])) == SIZES

    def test_jobs_of_an_earlier_attempt_do_not_count(self) -> None:
        """All are made anew, and run all their pods again."""
        found = {**jobset(), "status": {"restarts": 1}}
        jobs = made(found)
        jobs[1]["status"]["succeeded"] = 2
        assert sizes(decoded(found, jobs)) == SIZES
        assert JOBSET.left(decoded(found, jobs)) == 7

    @pytest.mark.parametrize(
        ("policy", "counted", "repeats"),
        [
            (None, 0, False),
            ({}, 0, False),
            ({"maxRestarts": 2}, 1, True),
            ({"maxRestarts": 2}, 2, False),
            ({"rules": [{"name": "r", "action": "RestartJobSetAndIgnoreMaxRestarts"}]}, 5, True),
            ({"rules": [{"name": "r", "action": "FailJobSet"}]}, 0, False),
        ],
    )
    def test_it_may_run_all_again_while_a_restart_is_left(
        self, policy: Manifest | None, counted: int, *, repeats: bool
    ) -> None:
        found = {**jobset(), "status": {"restarts": 9, "restartsCountTowardsMax": counted}}
        found["spec"] |= {} if policy is None else {"failurePolicy": policy}
        assert JOBSET.repeats(decoded(found)) is repeats

    def test_it_is_quiet_once_its_jobs_are(self) -> None:
        """The set calls itself suspended before the pods of its Jobs are gone."""
        found = {**jobset(), "status": {"conditions": [SUSPENDED]}}
        jobs = made(found)
        assert JOBSET.quiet(decoded(found, jobs))
        jobs[2]["status"] = {"conditions": [], "active": 3, "startTime": "2026-01-01T00:00:00Z"}
        assert not JOBSET.quiet(decoded(found, jobs))

    @pytest.mark.parametrize(
        ("statuses", "hint"),
        [
            (("Ready",), "startupPolicyOrder: InOrder"),
            (("Complete",), "an init container"),
            (("Ready", "Complete"), "an init container"),
        ],
    )
    def test_what_no_place_can_be_kept_for_is_refused(self, statuses: tuple[str, ...], hint: str) -> None:
        """A start in order is no substitute for waiting until a Job is complete."""
        others = [{"name": f"first-{status}", "status": status} for status in statuses]
        hints = {fault.field: fault.hint for fault in faults(jobset(dependsOn=others), kind=JOBSET)}
        assert hint in hints["spec.replicatedJobs[0].dependsOn"]

    @pytest.mark.parametrize("place", ["set", "role", "pods", "a Job that was made"])
    def test_a_domain_for_each_job_is_refused_wherever_it_is_asked(self, place: str) -> None:
        """Taken off the set, the annotation stays on the Jobs, whose pods would then never be placed."""
        found = jobset()
        jobs, role = made(found), found["spec"]["replicatedJobs"][1]["template"]
        asking = {
            "set": found,
            "role": role,
            "pods": role["spec"]["template"],
            "a Job that was made": jobs[1],
        }[place]
        asking["metadata"] = {**asking.get("metadata", {}), "annotations": {EXCLUSIVE: "rack"}}
        assert [problem.field for problem in JOBSET.refused(decoded(found, jobs))] == [
            f"metadata.annotations[{EXCLUSIVE}]"
        ]

    def test_a_fault_of_a_template_is_told_by_its_place_in_the_list(self) -> None:
        fields = [fault.field for fault in faults(jobset({"schedulerName": "nobody"}), kind=JOBSET)]
        template = "template.spec.template.spec.schedulerName"
        assert fields == [f"spec.replicatedJobs[{place}].{template}" for place in (0, 1)]

    def test_jobs_that_the_api_server_would_refuse_are_told(self) -> None:
        found = jobset()
        del found["spec"]["replicatedJobs"][1]["template"]["spec"]["completions"]
        with pytest.raises(InvalidInput, match="completionMode: NonIndexed"):
            read(found, kind=JOBSET)
        found["spec"]["replicatedJobs"][1]["template"]["spec"]["completionMode"] = "NonIndexed"
        assert read(found, kind=JOBSET).pod_sets[1].count == 6

    def test_it_runs_whole_or_not_at_all(self) -> None:
        found = jobset()
        found["metadata"]["annotations"] = {"queuer.dev/min-count.workers": "2"}
        with pytest.raises(InvalidInput, match="all of these pods or none"):
            read(found, kind=JOBSET)


_keys = st.sampled_from(["zone", "rack", "gpu"])
_pins = st.fixed_dictionaries(
    {name: place_of(name, st.just(count), keys=_keys) for name, count in SIZES.items()}
)
_specs = st.fixed_dictionaries({}, optional={
    "nodeSelector": st.dictionaries(_keys, st.sampled_from("ab"), max_size=3),
    "tolerations": st.just([{"key": "mine", "operator": "Exists"}]),
})  # fmt: skip


def started(found: Manifest, jobs: list[Manifest], pins: dict[str, Pin]) -> tuple[Manifest, list[Manifest]]:
    """Set and Jobs after an admission: as Queuer patches both, and as the controller then resumes the Jobs."""
    parent = decoded(found, jobs)
    patch = admit_patch(JOBSET, parent, pins=pins.values(), mark=MARK)
    json.dumps(patch)  # it is stored
    pinned = []
    for job in jobs:
        change = job_patch(msgspec.convert(job, Job), patch["jobs"][job["metadata"]["labels"][ROLE]])
        pinned.append(job if change is None else merged(job, change))
    after: Manifest = jsonpatch.apply_patch(found, as_json_patch(patch, parent))
    templates = {r["name"]: r["template"]["spec"]["template"] for r in after["spec"]["replicatedJobs"]}
    return after, [_resumed(job, templates[job["metadata"]["labels"][ROLE]]) for job in pinned]


def _resumed(job: Manifest, template: Manifest) -> Manifest:
    """As resumeJob does it (jobset v0.12.0, pkg/controllers/jobset_controller.go)."""
    job, spec = deepcopy(job), template["spec"]
    own = job["spec"]["template"]["spec"]
    own["nodeSelector"] = {**own.get("nodeSelector", {}), **spec.get("nodeSelector", {})}
    have = own.get("tolerations", [])
    own["tolerations"] = [*have, *(t for t in spec.get("tolerations", []) if t not in have)]
    labels = {**template.get("metadata", {}).get("labels", {})}
    job["spec"]["template"].setdefault("metadata", {}).setdefault("labels", {}).update(labels)
    return {**job, "spec": {**job["spec"], "suspend": False}}


def suspended(found: Manifest, jobs: list[Manifest]) -> tuple[Manifest, list[Manifest]]:
    after: Manifest = merged(found, evict_patch(JOBSET, decoded(found, jobs), admission="a1"))
    return after, [{**job, "spec": {**job["spec"], "suspend": True}} for job in jobs]


@given(spec=_specs, rounds=st.lists(_pins, min_size=1, max_size=4))
def test_each_start_gives_the_jobs_what_a_fresh_one_there_would_have(
    spec: Manifest, rounds: list[dict[str, Pin]]
) -> None:
    """Its controller never takes a stale key off a Job, so earlier pins must not matter."""
    found, jobs = jobset(spec), made(jobset(spec))
    for pins in rounds[:-1]:
        found, jobs = suspended(*started(found, jobs, pins))
    found, jobs = started(found, jobs, rounds[-1])
    _, fresh = started(jobset(spec), made(jobset(spec)), rounds[-1])
    assert without_empty([j["spec"] for j in jobs]) == without_empty([j["spec"] for j in fresh])
    for job in jobs:
        assert job["spec"]["template"]["metadata"]["labels"][WORKLOAD] == "u"
    own = [own.scheduling for own in own_roles(JOBSET, decoded(found, jobs))]
    assert own == [scheduling_of(role.template.spec) for role in JOBSET.roles(decoded(jobset(spec)))]


@given(spec=_specs, pins=_pins)
def test_the_same_start_again_changes_no_job(spec: Manifest, pins: dict[str, Pin]) -> None:
    """A crash between the Jobs and their parent is repaired by doing it again."""
    found, jobs = jobset(spec), made(jobset(spec))
    patch = admit_patch(JOBSET, decoded(found, jobs), pins=pins.values(), mark=MARK)
    for job in jobs:
        wanted = patch["jobs"][job["metadata"]["labels"][ROLE]]
        change = job_patch(msgspec.convert(job, Job), wanted)
        once = job if change is None else merged(job, change)
        assert job_patch(msgspec.convert(once, Job), wanted) is None


def test_one_write_starts_it_where_no_host_is_pinned() -> None:
    found, jobs = jobset(), made(jobset())
    pins = pins_of(SIZES, selector={"rack": "r1"})
    patch = admit_patch(JOBSET, decoded(found, jobs), pins=pins, mark=MARK)
    for job in jobs:
        assert job_patch(msgspec.convert(job, Job), patch["jobs"][job["metadata"]["labels"][ROLE]]) is None


@given(spec=_specs, pins=_pins)
def test_whoever_removes_queuer_gets_the_owners_own_terms_back(spec: Manifest, pins: dict[str, Pin]) -> None:
    found, jobs = suspended(*started(jobset(spec), made(jobset(spec)), pins))
    parent = decoded(found, jobs)
    patch = free_patch(JOBSET, parent)
    after = jsonpatch.apply_patch(found, as_json_patch(patch, parent))
    first = jobset(spec)["spec"]["replicatedJobs"]
    assert [
        without_empty(r["template"]["spec"]["template"]["spec"]) for r in after["spec"]["replicatedJobs"]
    ] == [without_empty(r["template"]["spec"]["template"]["spec"]) for r in first]
    for job in jobs:
        change = job_patch(msgspec.convert(job, Job), patch["jobs"][job["metadata"]["labels"][ROLE]])
        spec_now = (job if change is None else merged(job, change))["spec"]["template"]["spec"]
        assert "rack" not in spec_now.get("nodeSelector", {}) or "rack" in spec.get("nodeSelector", {})
        assert "affinity" not in spec_now

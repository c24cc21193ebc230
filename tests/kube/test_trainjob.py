"""TrainJobs as they are read from their JobSet, and started by an entry of their own."""

from __future__ import annotations

from copy import deepcopy

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuer.domain.errors import InvalidInput
from queuer.domain.keys import QUEUE, WORKLOAD
from queuer.kube.kinds import TRAINJOB
from queuer.kube.made import OPERATIONS, as_json_patch
from queuer.kube.patches import AdmissionMark, admit_patch, evict_patch, free_patch, own_roles
from queuer.kube.template import Pin, scheduling_of
from tests.kube.manifests import Manifest, decoded, meta, pins_of, read
from tests.kube.merge_patch import merged
from tests.kube.test_jobset import SIZES, SUSPENDED, jobset, made
from tests.kube.test_patches import GPU_TAINT, without_empty

THEIRS = {"manager": "example.org/x", "time": "2026-01-01T00:00:00Z"}


def trainjob(runtime: Manifest | None = None) -> Manifest:
    """One by a runtime of a driver and workers; `runtime`: what their pods say there."""
    spec = {"suspend": True, "runtimeRef": {"name": "torch"}, "runtimePatches": [THEIRS]}
    return {"metadata": meta("t"), "spec": spec, "carrier": carrier(spec, runtime)}


def carrier(spec: Manifest, runtime: Manifest | None) -> Manifest:
    """The JobSet that its controller makes: the runtime with each entry merged (mergeRuntimePatches, 2.3.0)."""
    found = jobset(runtime)
    found["status"] = {"conditions": [SUSPENDED]}
    roles = {role["name"]: role["template"]["spec"]["template"] for role in found["spec"]["replicatedJobs"]}
    for entry in spec["runtimePatches"]:
        template = entry.get("trainingRuntimeSpec", {}).get("template", {})
        for role in template.get("spec", {}).get("replicatedJobs", []):
            part, pods = role["template"]["spec"]["template"], roles[role["name"]]
            roles[role["name"]].update(merged(pods, part))
    return {**found, "made": made(found)}


def start(found: Manifest, pins: list[Pin], *, id: str, runtime: Manifest | None) -> Manifest:
    """The job with its JobSet after an admission."""
    job = decoded(TRAINJOB, found)
    mark = AdmissionMark(id=id, epoch=1, cycle=1, at=1.0)
    body = as_json_patch(admit_patch(TRAINJOB, job, pins=pins, mark=mark), job)
    after: Manifest = jsonpatch.apply_patch({k: v for k, v in found.items() if k != "carrier"}, body)
    return {**after, "carrier": carrier(after["spec"], runtime)}


def pins(rack: str, *, taints: bool) -> list[Pin]:
    tolerations = (GPU_TAINT,) if taints else ()
    return pins_of(SIZES, selector={"rack": rack}, hosts=("h1",), tolerations=tolerations)


_runtimes = st.fixed_dictionaries({}, optional={
    "nodeSelector": st.dictionaries(st.sampled_from(["zone", "rack"]), st.sampled_from("ab"), min_size=1),
    "tolerations": st.just([{"key": "mine", "operator": "Exists"}]),
})  # fmt: skip


class TestReading:
    def test_its_pods_are_those_of_its_jobset(self) -> None:
        assert {p.name: p.count for p in read(trainjob(), kind=TRAINJOB).pod_sets} == SIZES

    def test_without_a_jobset_it_says_whom_to_ask(self) -> None:
        found = {**trainjob(), "carrier": None}
        with pytest.raises(
            InvalidInput, match=r"made no JobSet of torch.*kubectl describe trainjob t"
        ) as wrong:
            read(found, kind=TRAINJOB)
        assert "spec.runtimeRef" in [problem.field for problem in wrong.value.problems]

    def test_what_its_runtime_may_not_say_is_told_with_the_place(self) -> None:
        found = trainjob()
        found["carrier"]["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "driver", "status": "Ready"}]
        with pytest.raises(
            InvalidInput, match=r"runtime has spec\.replicatedJobs\[1\]\.dependsOn, which has"
        ):
            read(found, kind=TRAINJOB)

    def test_it_is_quiet_once_its_jobset_is(self) -> None:
        """It calls itself suspended at once."""
        found = trainjob()
        found["status"] = {"conditions": [SUSPENDED]}
        assert TRAINJOB.quiet(decoded(TRAINJOB, found))
        found["carrier"]["made"][0]["status"] = {"active": 1, "startTime": "2026-01-01T00:00:00Z"}
        assert not TRAINJOB.quiet(decoded(TRAINJOB, found))
        assert not TRAINJOB.quiet(decoded(TRAINJOB, {**found, "carrier": None}))

    def test_a_label_that_would_queue_its_jobset_is_refused(self) -> None:
        found = trainjob()
        template = {"metadata": {"labels": {QUEUE: "root.a"}}}
        found["spec"]["runtimePatches"] = [{**THEIRS, "trainingRuntimeSpec": {"template": template}}]
        with pytest.raises(InvalidInput, match="would queue its JobSet beside it"):
            read(found, kind=TRAINJOB)


@given(
    runtime=_runtimes,
    starts=st.lists(st.tuples(st.sampled_from("xyz"), st.booleans()), min_size=1, max_size=3),
)
def test_each_start_gives_its_jobset_what_a_first_one_would(
    runtime: Manifest, starts: list[tuple[str, bool]]
) -> None:
    """Of an earlier entry nothing is left, and the owner's own terms are known whatever was pinned."""
    found = trainjob(runtime)
    for number, (rack, taints) in enumerate(starts):
        found = start(found, pins(rack, taints=taints), id=f"a{number}", runtime=runtime)
        own = [own.scheduling for own in own_roles(TRAINJOB, decoded(TRAINJOB, found))]
        assert own == [
            scheduling_of(r.template.spec) for r in TRAINJOB.roles(decoded(TRAINJOB, trainjob(runtime)))
        ]
        found = merged(found, evict_patch(TRAINJOB, decoded(TRAINJOB, found), admission=f"a{number}"))
    rack, taints = starts[-1]
    fresh = start(trainjob(runtime), pins(rack, taints=taints), id="b", runtime=runtime)
    assert without_empty(found["carrier"]["spec"]) == without_empty(fresh["carrier"]["spec"])
    entries = found["spec"]["runtimePatches"]
    assert [entry["manager"] for entry in entries] == ["example.org/x", f"queuer.dev/a{len(starts) - 1}"]
    for role in found["carrier"]["spec"]["replicatedJobs"]:
        template = role["template"]["spec"]["template"]
        assert template["metadata"]["labels"][WORKLOAD] == "u"
        assert template["spec"]["nodeSelector"]["rack"] == rack
        assert "affinity" not in template["spec"], "its JobSet would refuse it, and nothing ever run"


def test_hosts_go_to_its_jobs() -> None:
    mark = AdmissionMark(id="a", epoch=1, cycle=1)
    patch = admit_patch(TRAINJOB, decoded(TRAINJOB, trainjob()), pins=pins("x", taints=False), mark=mark)
    assert {"nodeSelector", "affinity"} == set(patch["jobs"]["workers"])


@given(runtime=_runtimes)
def test_whoever_removes_queuer_leaves_no_entry(runtime: Manifest) -> None:
    found = start(trainjob(runtime), pins("x", taints=True), id="a", runtime=runtime)
    found = merged(deepcopy(found), evict_patch(TRAINJOB, decoded(TRAINJOB, found), admission="a"))
    (entries, resumed) = free_patch(TRAINJOB, decoded(TRAINJOB, found))[OPERATIONS]
    assert entries["value"] == [THEIRS]
    assert resumed["value"] is False

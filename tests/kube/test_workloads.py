"""A job's requests, and wrong values: always InvalidInput with the key and the fix."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuer.domain.errors import InvalidInput
from queuer.domain.reasons import ROWS, AdvisedJob, malformed
from queuer.kube.kinds import JOB, PYTORCHJOB, JobKind
from queuer.kube.objects import REQUIRED, Job
from queuer.kube.workloads import DEFAULT_CLASS, read_workload
from tests.kube.manifests import FACTS, faults, job, pytorchjob, read

KEYS = ("topology-required", "topology-preferred", "max-runtime", "preemptible", "hold", "min-count.main")


def noted(**notes: str) -> dict[str, Any]:
    found = job()
    found["metadata"]["annotations"] = {f"queuer.dev/{key}": value for key, value in notes.items()}
    return found


def test_a_job_that_says_everything() -> None:
    """Each key arrives in its field."""
    notes = {
        "topology-required": "rack", "topology-preferred": "host", "max-runtime": "1h30m", "preemptible": "false",
        "hold": "true", "min-count.main": "2",
    }  # fmt: skip
    found = read(noted(**notes), priority_class="high")
    assert (found.required, found.preferred, found.max_runtime) == ("rack", "host", 5400.0)
    assert (found.preemptible, found.hold, found.priority) == (False, True, 100)
    (pods,) = found.pod_sets
    assert (pods.name, pods.count, pods.min_count, pods.requests) == ("main", 4, 2, {"pods": 1})


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("topology-required", "", "is empty"), ("topology-preferred", " ", "is empty"),
        ("max-runtime", "soon", "not a duration"), ("max-runtime", "0", "not above 0"),
        ("max-runtime", "-5", "not a duration"), ("preemptible", "yes", "neither true nor false"),
        ("hold", "True", "neither true nor false"), ("min-count.main", "0", "write 1 to 4"),
        ("min-count.main", "5", "write 1 to 4"), ("min-count.main", "two", "write 1 to 4"),
        ("min-count.worker", "2", "did you mean queuer.dev/min-count.main"),
        ("topology-requird", "rack", "did you mean queuer.dev/topology-required"),
    ],
)  # fmt: skip
def test_a_malformed_annotation_is_named_with_its_fix(key: str, value: str, said: str) -> None:
    """The owner reads this sentence and nothing else."""
    (problem,) = faults(noted(**{key: value}))
    assert problem.field == f"annotation queuer.dev/{key}"
    assert said in str(problem)


def test_the_wish_of_a_misspelled_key_goes_to_the_key_that_was_meant() -> None:
    """Guards against a gang that runs without its rack after its owner did as told."""

    def offered(**notes: str) -> str:
        job = AdvisedJob(uid="u", kind="Job", namespace="ns", name="j", queue="root.test")
        told = malformed(faults(noted(**notes))).primary
        return str(ROWS[told.token].next(replace(job, params=told.params)).command)

    typo = offered(**{"topology-requird": "rack"})
    assert typo.endswith("queuer.dev/topology-requird- queuer.dev/topology-required=rack")
    assert offered(Preemptible="true").endswith("queuer.dev/Preemptible- queuer.dev/preemptible=true")
    both = offered(**{"topology-requird": "rack", "topology-required": "host"})
    assert "topology-required=" not in both


def _of_role(name: str) -> dict[str, Any]:
    found = pytorchjob()
    found["spec"]["pytorchReplicaSpecs"][name] = found["spec"]["pytorchReplicaSpecs"]["Worker"]
    return found


LONG = "x" * 6_000


TERMS = [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}] * 17
MANY = {f"example.com/x{number}": 1 for number in range(17)}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"containers": [{"resources": {"limits": MANY}}]}, "containers.resources: has 17 resources (write 16"),
        ({"containers": [{}] * 65}, "containers: has 65 containers"),
        ({"tolerations": [{"operator": "Exists"}] * 65}, "tolerations: has 65"),
        ({"nodeSelector": {f"l{number}": "" for number in range(65)}}, "nodeSelector: has 65 labels"),
        (
            {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": TERMS}}}},
            "affinity.nodeAffinity: has 17 required terms",
        ),
        ({"affinity": {"podAffinity": [{"k": "v"}] * 4000}}, "affinity: has 8001 parts"),
    ],
)  # fmt: skip
def test_a_template_with_more_parts_than_any_job_needs_is_read_no_further(
    spec: dict[str, Any], said: str
) -> None:
    """Each part is compared with all nodes: a few jobs of 8,000 resources kept the controller busy for minutes."""
    manifest = pytorchjob({"containers": [{}], **spec})
    found, problems = read_workload(PYTORCHJOB, msgspec.convert(manifest, PYTORCHJOB.type), facts=FACTS)
    assert said in str(problems[0])
    assert not found.pod_sets


def test_a_job_with_a_thousand_kinds_of_pods_is_read_no_further() -> None:
    """Their number counts twice where pods of one job could rob each other of a node."""
    manifest = pytorchjob({"containers": [{}]})
    roles = manifest["spec"]["pytorchReplicaSpecs"]
    roles.update({f"w{number}": roles["Master"] for number in range(1000)})
    found, problems = read_workload(PYTORCHJOB, msgspec.convert(manifest, PYTORCHJOB.type), facts=FACTS)
    assert "kinds of pods (write 16 at most" in str(problems[0])
    assert not found.pod_sets


@pytest.mark.parametrize(
    ("kind", "manifest", "field"),
    [
        (JOB, noted(user=LONG), "annotation queuer.dev/user"),
        (JOB, noted(**{"topology-required": LONG}), "annotation queuer.dev/topology-required"),
        (JOB, noted(**{"min-count.main": LONG}), "annotation queuer.dev/min-count.main"),
        (PYTORCHJOB, _of_role(LONG), "spec.pytorchReplicaSpecs.xxx"),
        (PYTORCHJOB, pytorchjob({"nodeSelector": {"k": LONG}}), "spec.pytorchReplicaSpecs.Master.template.spec"),
        (PYTORCHJOB, pytorchjob({"containers": [{"resources": {"requests": {LONG: 1}}}]}), ".template.spec"),
        (PYTORCHJOB, pytorchjob({"affinity": {"a": [{"b": LONG}]}}), ".template.spec"),
    ],
)  # fmt: skip
def test_a_text_that_no_column_could_hold_is_named_and_goes_no_further(
    kind: JobKind, manifest: dict[str, Any], field: str
) -> None:
    """Some texts of a job are indexed, and 2,704 bytes are the most that PostgreSQL indexes."""
    found, problems = read_workload(kind, msgspec.convert(manifest, kind.type), facts=FACTS)
    assert field in problems[0].field
    assert "6000 characters is longer than 512" in str(problems[0])
    assert all(len(str(problem)) < 1_000 for problem in problems)
    assert len(repr(found)) < 2_000


def test_all_faults_are_told_at_once() -> None:
    """One round trip for the owner, not one per fault."""
    found = faults(noted(hold="perhaps", preemptible="no"), priority_class="hgih")
    assert len(found) == 3
    assert "did you mean high?" in " ".join(map(str, found))
    beside = faults(
        noted(hold="perhaps", preemptible="no", **{"topology-required": LONG}), priority_class="hgih"
    )
    assert {problem.field for problem in beside} == {
        *(problem.field for problem in found), "annotation queuer.dev/topology-required",
    }  # fmt: skip


def test_each_of_many_faults_is_named_in_the_sentence() -> None:
    """Long ones are cut for the others, which the owner mends in the same go."""
    keys = [f"topology-{'e' * size}{number}" for number in range(8) for size in (9, 40)]
    found = faults(noted(**dict.fromkeys(keys[:12], "x")))
    text = malformed(found).primary.text
    assert len(text) < 900
    assert all(problem.field in text for problem in found)
    assert malformed(faults(noted(**dict.fromkeys(keys, "x")))).primary.text.endswith("; 4 more faults")
    (one,) = found[:1]
    assert malformed([one]).primary.text == str(one)


@given(st.sampled_from(KEYS), st.text() | st.from_regex(r"[0-9²٣]{1,30}[mhd]?", fullmatch=True))
def test_no_text_crashes_the_reading(key: str, text: str) -> None:
    """One user's job must not stop the others: InvalidInput, or a workload whose bounds are finite numbers."""
    try:
        found = read(noted(**{key: text}))
    except InvalidInput:
        return
    assert found.max_runtime is None or math.isfinite(found.max_runtime)


@pytest.mark.parametrize("text", ["²", "9" * 5000, "9" * 400 + "h"])
@pytest.mark.parametrize("key", ["max-runtime", "min-count.main"])
def test_digits_that_are_no_sensible_number(key: str, text: str) -> None:
    """Superscripts are digits to Python; an annotation may be a quarter of a megabyte long."""
    with pytest.raises(InvalidInput):
        read(noted(**{key: text}))


@pytest.mark.parametrize(
    ("parallelism", "completions", "count"),
    [(4, None, 4), (4, 2, 2), (2, 9, 2), (None, None, 1), (None, 3, 1)],
)
def test_pods_of_a_job_at_once(parallelism: int | None, completions: int | None, count: int) -> None:
    """min(parallelism, completions): the job controller starts no more."""
    (pods,) = read(job(parallelism=parallelism, completions=completions)).pod_sets
    assert pods.count == count


@pytest.mark.parametrize(("failed", "count"), [("", 4), ("2", 4), ("0,2-4", 3), ("0-8", 0)])
def test_indexes_that_failed_for_good_are_not_run_again(failed: str, count: int) -> None:
    """With `backoffLimitPerIndex` the others go on: what failed is neither missed nor paid for."""
    found = job(parallelism=4, completions=9)
    found["status"] = {"succeeded": 2 if count else 0, "failedIndexes": failed}
    assert JOB.roles(msgspec.convert(found, JOB.type))[0].count == count


@pytest.mark.parametrize(
    ("parallelism", "completions", "status", "asked"),
    [
        (5, 10, {"succeeded": 3}, (5, 4)),
        (5, 10, {"succeeded": 7}, (3, 3)),
        (5, 10, {"succeeded": 2, "failedIndexes": "0-4"}, (3, 3)),
        (5, 3, {}, (3, 3)),
    ],
)  # fmt: skip
def test_a_size_range_speaks_of_the_declared_size(
    parallelism: int, completions: int, status: dict[str, Any], asked: tuple[int, int]
) -> None:
    """Where fewer completions are left than the least, what is left is enough: its owner need not edit it."""
    found = job(parallelism=parallelism, completions=completions)
    found["metadata"]["annotations"] = {"queuer.dev/min-count.main": "4"}
    (pods,) = read({**found, "status": status}).pod_sets
    assert (pods.count, pods.min_count) == asked


def test_a_work_queue_makes_no_pod_after_its_first_success() -> None:
    """A Job without completions: what runs then is all that will."""
    found = job(parallelism=4)
    left = []
    for status in ({"active": 4}, {"active": 3, "succeeded": 1}, {"succeeded": 2}):
        found["status"] = status
        left.append(JOB.left(msgspec.convert(found, Job)))
        assert JOB.restarts(msgspec.convert(found, Job)) is (left[-1] is None)
    assert left == [None, 3, 0]


def test_a_job_for_no_pods_is_refused() -> None:
    """It would be admitted and never land."""
    with pytest.raises(InvalidInput, match="asks for no pod"):
        read(job(parallelism=0))


def test_more_than_64_bits_are_refused() -> None:
    """Pods and containers that are each within bounds may not be together; sums are kept in 64 bits."""
    found = job(parallelism=2)
    found["spec"]["template"]["spec"]["containers"] = [
        {"name": "main", "resources": {"requests": {"memory": "3Ei"}}}
    ]
    with pytest.raises(InvalidInput, match="2 pods ask for more than 2\\^60 memory"):
        read(found)


def test_roles_of_a_pytorchjob_master_first() -> None:
    """Pod sets are named as the pods' label says, in lower case."""
    found = read(pytorchjob(workers=3), kind=PYTORCHJOB)
    assert [(p.name, p.count) for p in found.pod_sets] == [("master", 1), ("worker", 3)]


def test_priority_without_our_label() -> None:
    """The highest class that the owner wrote into a template, else the cluster's default; never the policy's word."""
    assert read(job({"priorityClassName": "batch"})).priority == -5
    assert read(job()).priority == 7
    assert read(job({"priorityClassName": DEFAULT_CLASS})).priority == 7
    both = pytorchjob({"priorityClassName": "high"})
    master = both["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    found = []
    for named in (DEFAULT_CLASS, "batch", "high"):
        master["priorityClassName"] = named
        found.append(read(both, kind=PYTORCHJOB).priority)
    assert found == [100, 100, 100]
    assert read(both, kind=PYTORCHJOB, priority_class="batch").priority == -5


def test_the_clusters_own_classes_order_no_job() -> None:
    """Every cluster has them, far above all others, and any user can name them."""
    for found, field in (
        ({"manifest": job(), "priority_class": "system-node-critical"}, "label queuer.dev/priority-class"),
        ({"manifest": job({"priorityClassName": "system-cluster-critical"})}, "priorityClassName"),
    ):
        with pytest.raises(InvalidInput, match="is for the cluster's own pods") as caught:
            read(**found)
        assert caught.value.problems[0].field == field


def test_who_submitted_it_is_what_the_policy_wrote() -> None:
    assert read(noted(user="alice")).user == "alice"
    assert read(job()).user == ""


@pytest.mark.parametrize(
    ("topology", "labels", "exclusive"),
    [
        ("kubernetes.io/hostname", {"app": "x"}, True),
        ("topology.kubernetes.io/zone", {"app": "x"}, False),
        ("kubernetes.io/hostname", {"app": "other"}, False),
    ],
)
def test_one_pod_a_host(topology: str, labels: dict[str, str], *, exclusive: bool) -> None:
    """Required anti-affinity per host whose selector matches the set's own labels."""
    term = {"topologyKey": topology, "labelSelector": {"matchLabels": labels}}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    manifest = job({"affinity": rule})
    manifest["spec"]["template"]["metadata"] = {"labels": {"app": "x"}}
    (pods,) = read(manifest).pod_sets
    assert pods.exclusive_host is exclusive


def test_the_waiting_init_container_of_workers_counts() -> None:
    """training-operator gives workers of a job with a master an init container of 50m CPU and 10Mi."""
    found = {p.name: p.requests for p in read(pytorchjob(), kind=PYTORCHJOB).pod_sets}
    assert found == {"master": {"pods": 1}, "worker": {"cpu": 50, "memory": 10 << 20, "pods": 1}}

"""Admission and eviction as the API server sees them: merge patches applied to the object, over several rounds.

An admission makes the template that a fresh job admitted there would have, wherever the job was before. The
user's own terms can always be restored from the object alone.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuer.domain.keys import ADMISSION, STATUS
from queuer.domain.nodes import Toleration
from queuer.kube.kinds import JOB, PYTORCHJOB, JobKind
from queuer.kube.patches import (
    AdmissionMark,
    admission_of,
    admit_patch,
    evict_patch,
    firm_patch,
    free_patch,
    loosen_patch,
    own_roles,
    withdraw_patch,
)
from queuer.kube.template import Pin, scheduling_of
from tests.kube.manifests import Manifest, decoded, job, pins_of, pytorchjob
from tests.kube.merge_patch import merged

GPU_TAINT = Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")
SPOT = Toleration(key="spot", value="yes")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOST = "kubernetes.io/hostname"
MARK = AdmissionMark(id="a1", epoch=3, cycle=9, domains=("r07",))


def without_empty(value: Any) -> Any:
    """The object without its empty maps and lists, which the API reads as absent."""
    if isinstance(value, dict):
        found = {key: without_empty(item) for key, item in value.items()}
        return {key: item for key, item in found.items() if item not in ({}, [], None)}
    return [without_empty(item) for item in value] if isinstance(value, list) else value


def everywhere(kind: JobKind, view: Any) -> list[Pin]:
    """Pins that say nothing."""
    return pins_of({role.name: role.count for role in kind.roles(view)})


def admitted(kind: JobKind, manifest: Manifest, pins: list[Pin], *, id: str = "a1") -> Manifest:
    mark = AdmissionMark(id=id, epoch=3, cycle=9, domains=("r07",))
    found: Manifest = merged(manifest, admit_patch(kind, decoded(kind, manifest), pins=pins, mark=mark))
    return found


def evicted(kind: JobKind, manifest: Manifest) -> Manifest:
    found: Manifest = merged(manifest, evict_patch(kind, decoded(kind, manifest), admission="a"))
    return found


_keys = st.sampled_from(["zone", "rack", HOST, "gpu"])
_expressions = st.lists(
    st.fixed_dictionaries(
        {"key": _keys, "operator": st.just("In"), "values": st.lists(st.sampled_from("ab"), min_size=1)}
    ),
    min_size=1,
    max_size=2,
)
_terms = st.lists(st.fixed_dictionaries({"matchExpressions": _expressions}), min_size=1, max_size=2)
_tolerations = st.sampled_from(
    [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "mine", "operator": "Exists"},
    ]
)
_anti = {REQUIRED: [{"topologyKey": HOST, "labelSelector": {"matchLabels": {"a": "b"}}}]}
_affinity = st.fixed_dictionaries(
    {},
    optional={
        "nodeAffinity": st.fixed_dictionaries(
            {},
            optional={
                REQUIRED: st.fixed_dictionaries({"nodeSelectorTerms": _terms}),
                "preferredDuringSchedulingIgnoredDuringExecution": st.just([{"weight": 1, "preference": {}}]),
            },
        ),
        "podAntiAffinity": st.just(_anti),
    },
)
_specs = st.fixed_dictionaries(
    {},
    optional={
        "nodeSelector": st.dictionaries(_keys, st.sampled_from("ab"), max_size=3),
        "tolerations": st.lists(_tolerations, max_size=2),
        "affinity": _affinity,
    },
)


def place_of(
    name: str, count: st.SearchStrategy[int], *, keys: st.SearchStrategy[str] = _keys
) -> st.SearchStrategy[Pin]:
    """A place for a pod set."""
    return st.builds(
        Pin,
        pod_set=st.just(name),
        count=count,
        selector=st.dictionaries(keys, st.sampled_from("abc"), max_size=3),
        hosts=st.none() | st.sampled_from([("h1",), ("h1", "h2")]),
        tolerations=st.sampled_from([(), (GPU_TAINT,), (GPU_TAINT, SPOT)]),
    )


_job_case = st.tuples(
    st.just(JOB),
    st.builds(job, _specs, parallelism=st.sampled_from([None, 4]), completions=st.sampled_from([None, 3])),
    st.lists(place_of("main", st.integers(1, 4)).map(lambda pin: [pin]), min_size=2, max_size=4),
)
_pytorch_case = st.tuples(
    st.just(PYTORCHJOB),
    st.builds(pytorchjob, _specs, workers=st.sampled_from([None, 3])),
    st.lists(
        st.tuples(place_of("master", st.just(1)), place_of("worker", st.integers(1, 3))).map(list),
        min_size=2,
        max_size=4,
    ),
)


@given(_job_case | _pytorch_case)
def test_the_last_admission_alone_shows(case: tuple[JobKind, Manifest, list[list[Pin]]]) -> None:
    """No key, toleration, term or size of an earlier place is left in the template, and none of the user's is lost."""
    kind, fresh, places = case
    before = [
        (own.role.count, without_empty(own.scheduling)) for own in own_roles(kind, decoded(kind, fresh))
    ]
    current = deepcopy(fresh)
    for pins in places[:-1]:
        current = evicted(kind, admitted(kind, current, pins))
        after = [
            (own.role.count, without_empty(own.scheduling)) for own in own_roles(kind, decoded(kind, current))
        ]
        assert after == before
    again, at_once = (admitted(kind, start, places[-1]) for start in (current, fresh))
    assert without_empty(again) == without_empty(at_once)


@given(_job_case | _pytorch_case)
def test_a_job_that_is_let_go_is_as_its_user_wrote_it(
    case: tuple[JobKind, Manifest, list[list[Pin]]],
) -> None:
    """Guards those who remove Queuer: no pin of an earlier start keeps a job on nodes that are full or gone."""
    kind, fresh, places = case
    current = deepcopy(fresh)
    for pins in places:
        current = evicted(kind, admitted(kind, current, pins))
    found = decoded(kind, merged(current, free_patch(kind, decoded(kind, current))))
    assert not kind.suspended(found)
    assert not {ADMISSION, STATUS} & found.metadata.annotations.keys()
    for own, role in zip(own_roles(kind, decoded(kind, fresh)), kind.roles(found), strict=True):
        assert role.declared == own.role.declared
        assert without_empty(scheduling_of(role.template.spec)) == without_empty(own.scheduling)


@given(_job_case | _pytorch_case)
def test_a_pin_reaches_every_way_of_matching(case: tuple[JobKind, Manifest, list[list[Pin]]]) -> None:
    """Node affinity terms are alternatives: a host pinned in one of two would not be pinned at all."""
    kind, fresh, places = case
    found = admitted(kind, fresh, places[0])
    for role in kind.roles(decoded(kind, found)):
        pin = next(p for p in places[0] if p.pod_set == role.name)
        spec = role.template.spec
        assert set(pin.selector.items()) <= set((spec.node_selector or {}).items())
        if pin.hosts is not None:
            expected = {"key": HOST, "operator": "In", "values": list(pin.hosts)}
            terms = (spec.affinity or {})["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
            assert terms
            assert all(expected in term["matchExpressions"] for term in terms)


@pytest.mark.parametrize(
    ("kind", "fresh"), [(JOB, job()), (PYTORCHJOB, pytorchjob())], ids=["Job", "PyTorchJob"]
)
def test_a_patch_is_a_compare_and_set(kind: JobKind, fresh: Manifest) -> None:
    """A stale leader's PATCH must meet 409, and one for a deleted job must not hit its namesake."""
    view = decoded(kind, fresh)
    bodies = [
        admit_patch(kind, view, pins=everywhere(kind, view), mark=MARK),
        evict_patch(kind, view, admission="a"),
        withdraw_patch(view, admission="a"),
    ]
    for body in bodies:
        assert body["metadata"]["uid"] == "u"
        assert body["metadata"]["resourceVersion"] == "1"
    assert kind.suspended(decoded(kind, merged(fresh, bodies[1])))
    assert not kind.suspended(decoded(kind, merged(fresh, bodies[0])))


@pytest.mark.parametrize("kind", [JOB, PYTORCHJOB], ids=["Job", "PyTorchJob"])
def test_an_eviction_that_met_a_conflict_tests_the_admission_alone(kind: JobKind) -> None:
    """Nobody but Queuer writes the annotation, so no tenant's writes can outrun it. A namesake is left alone."""
    fresh = job() if kind is JOB else pytorchjob()
    running = admitted(kind, fresh, everywhere(kind, decoded(kind, fresh)))
    view = decoded(kind, running)
    tests, writes = (  # operations by path
        {
            o["path"]: o["value"]
            for o in cast(Any, firm_patch(evict_patch(kind, view, admission="a"), view))
            if o["op"] == op
        }
        for op in ("test", "add")
    )
    note = "/metadata/annotations/queuer.dev~1admission"
    assert tests == {"/metadata/uid": "u", note: running["metadata"]["annotations"][ADMISSION]}
    assert writes["/" + "/".join(kind.suspend_path)] is True
    assert writes[note] == evict_patch(kind, view, admission="a")["metadata"]["annotations"][ADMISSION]
    assert "resourceVersion" not in str(tests | writes)
    bare = decoded(kind, fresh)
    patch = withdraw_patch(bare, admission="a")
    assert firm_patch(patch, bare) is patch


def test_eviction_leaves_the_template_alone() -> None:
    """The API server refuses a change of the template while the job is not suspended and quiet."""
    running = admitted(JOB, job(), [Pin(pod_set="main", count=4, selector={"rack": "r1"}, hosts=("h1",))])
    patch = evict_patch(JOB, decoded(JOB, running), admission="a")
    assert patch["spec"] == {"suspend": True}
    assert admission_of(decoded(JOB, merged(running, patch))) is None


def test_eviction_after_the_end_has_the_operator_end_the_pods_that_its_owner_left() -> None:
    running = admitted(PYTORCHJOB, pytorchjob(), pins_of({"master": 1, "worker": 3}))
    ended = merged(running, {"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}})
    assert PYTORCHJOB.lingers(decoded(PYTORCHJOB, ended))
    patch = evict_patch(PYTORCHJOB, decoded(PYTORCHJOB, ended), admission="a")
    assert patch["spec"] == {"runPolicy": {"cleanPodPolicy": "Running"}}
    assert not PYTORCHJOB.lingers(decoded(PYTORCHJOB, merged(ended, patch)))


def test_a_withdrawal_changes_the_object_every_time() -> None:
    """A patch that changes nothing moves no resourceVersion, and the stale PATCH would go through."""
    fresh = job()
    once = merged(fresh, withdraw_patch(decoded(JOB, fresh), admission="a1"))
    twice = merged(once, withdraw_patch(decoded(JOB, once), admission="a2"))
    notes = [found["metadata"]["annotations"].get(ADMISSION) for found in (fresh, once, twice)]
    assert len(set(notes)) == 3
    assert admission_of(decoded(JOB, twice)) is None


def test_a_withdrawal_keeps_the_way_back() -> None:
    """The job may still wear the pins of the admission before."""
    pin = Pin(pod_set="main", count=4, selector={"rack": "r1"})
    left = evicted(JOB, admitted(JOB, job({"nodeSelector": {"rack": "mine"}}), [pin]))
    withdrawn = merged(left, withdraw_patch(decoded(JOB, left), admission="a2"))
    (own,) = own_roles(JOB, decoded(JOB, withdrawn))
    assert own.scheduling == {"nodeSelector": {"rack": "mine"}}


def test_what_the_user_changes_while_it_waits_stands() -> None:
    """An evicted job is the user's again: a new value for a key that we had set is theirs."""
    pin = Pin(pod_set="main", count=4, selector={"rack": "r1"})
    left = evicted(JOB, admitted(JOB, job(), [pin]))
    left["spec"]["template"]["spec"]["nodeSelector"]["rack"] = "r9"
    (own,) = own_roles(JOB, decoded(JOB, left))
    assert own.scheduling == {"nodeSelector": {"rack": "r9"}}


def test_admission_takes_the_old_reason_off() -> None:
    """A running job must not go on saying that it waits, also where that was written after the job was seen."""
    patch = admit_patch(JOB, decoded(JOB, job()), pins=pins_of({"main": 4}), mark=MARK)
    assert patch["metadata"]["annotations"][STATUS] is None


_FORGED = (
    "[" * 100_000,
    '{"restore": {"main": {"count": 5}}}',
    '{"restore": {"main": {"count": []}}}',
    '{"restore": {"main": {"selector": {"rack": 1}}}}',
    '{"restore": {"main": {"tolerations": 7}}}',
    '{"restore": {"main": []}}',
    '{"restore": {"main": "x", "id": {}}, "id": {}}',
)


@given(st.text() | st.sampled_from(_FORGED), place_of("main", st.integers(1, 4)))
def test_an_annotation_that_is_not_ours_reads_as_nothing(text: str, pin: Pin) -> None:
    """Nothing crashes on any content, such as that of jobs older than the policies."""
    fresh = job()
    fresh["metadata"]["annotations"] = {ADMISSION: text}
    view = decoded(JOB, fresh)
    own_roles(JOB, view)
    assert admission_of(decoded(JOB, admitted(JOB, fresh, [pin]))) == "a1"


def test_below_1_36_a_job_that_has_run_is_loosened_before_it_is_started() -> None:
    """The API server keeps the template of a Job while its status has a startTime; of nothing else."""
    fresh, ran = job(), job()
    ran["status"] = {"startTime": "2026-11-28T10:00:00Z"}
    starts = admit_patch(
        JOB, decoded(JOB, ran), pins=pins_of({"main": 1}, selector={"rack": "r1"}), mark=MARK
    )
    held = {key: ran["metadata"][key] for key in ("uid", "resourceVersion")}
    assert loosen_patch(JOB, decoded(JOB, ran), starts) == {"metadata": held, "status": {"startTime": None}}
    assert loosen_patch(JOB, decoded(JOB, fresh), starts) is None
    assert loosen_patch(JOB, decoded(JOB, ran), evict_patch(JOB, decoded(JOB, ran), admission="a1")) is None
    trains = decoded(PYTORCHJOB, pytorchjob())
    patch = admit_patch(PYTORCHJOB, trains, pins=everywhere(PYTORCHJOB, trains), mark=MARK)
    assert loosen_patch(PYTORCHJOB, trains, patch) is None

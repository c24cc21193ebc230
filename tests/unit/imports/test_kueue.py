"""Kueue's objects as a tree: amounts, borrowing, routing, and what has no equal."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import httpx2
import pytest
import yaml

from queuer.cli.imports import manifests_of
from queuer.domain.document import export, parse
from queuer.domain.errors import InvalidInput
from queuer.domain.queue import Preempt, QueueState, QueueTree
from queuer.imports.kueue import read
from queuer.imports.records import Fate
from tests.cli import queuer
from tests.unit.imports.given import manifests, routes, rows, told

API = "apiVersion: kueue.x-k8s.io/v1beta2"
COHORT = f"""
{{{API}, kind: ResourceFlavor, metadata: {{name: a100}}, spec: {{nodeLabels: {{gpu: a100}}, topologyName: racks,
  tolerations: [{{key: gpu, operator: Exists}}]}}}}
---
{{{API}, kind: ResourceFlavor, metadata: {{name: any}}}}
---
{{{API}, kind: Topology, metadata: {{name: racks}}, spec: {{levels: [{{nodeLabel: x/rack}},
  {{nodeLabel: kubernetes.io/hostname}}]}}}}
---
{{{API}, kind: Cohort, metadata: {{name: lab}}, spec: {{parentName: org, resourceGroups: [{{coveredResources: [x/gpu],
  flavors: [{{name: a100, resources: [{{name: x/gpu, nominalQuota: 4, borrowingLimit: 2, lendingLimit: 3}}]}}]}}]}}}}
---
{API}
kind: ClusterQueue
metadata: {{name: Team.A}}
spec:
  cohortName: lab
  namespaceSelector: {{matchLabels: {{team: a}}}}
  fairSharing: {{weight: 500m}}
  preemption: {{withinClusterQueue: LowerPriority, reclaimWithinCohort: Any}}
  resourceGroups:
  - coveredResources: [x/gpu, cpu]
    flavors:
    - name: a100
      resources:
      - {{name: x/gpu, nominalQuota: 8, borrowingLimit: 2}}
      - {{name: cpu, nominalQuota: 1500m, lendingLimit: 500m}}
---
{{{API}, kind: ClusterQueue, metadata: {{name: solo}}, spec: {{namespaceSelector: {{}}, queueingStrategy: StrictFIFO,
  stopPolicy: Hold, resourceGroups: [{{coveredResources: [cpu], flavors: [{{name: any, resources:
  [{{name: cpu, nominalQuota: 9}}]}}]}}]}}}}
---
{{{API}, kind: LocalQueue, metadata: {{name: day, namespace: a}}, spec: {{clusterQueue: Team.A}}}}
---
{{{API}, kind: LocalQueue, metadata: {{name: night, namespace: a}}, spec: {{clusterQueue: solo}}}}
---
{{{API}, kind: LocalQueue, metadata: {{name: day, namespace: b}}, spec: {{clusterQueue: Team.A}}}}
---
{{apiVersion: v1, kind: Namespace, metadata: {{name: a, labels: {{team: a}}}}}}
---
{{apiVersion: v1, kind: Namespace, metadata: {{name: b, labels: {{team: b}}}}}}
"""


def test_amounts_of_cohorts_and_cluster_queues_are_kept() -> None:
    """Borrowing is a limit above nominal; the Cohort at the top borrows from nobody; a Cohort's own adds to its sum."""
    imported = read(manifests(COHORT))
    leaf = "root.org.lab.team-a"
    assert rows(imported, leaf) == ["a100 x/gpu 8/10/None", "a100 cpu 1500/None/500"]
    assert rows(imported, "root.org.lab") == ["a100 x/gpu 12/14/3"]
    assert rows(imported, "root.org") == ["a100 x/gpu None/12/None", "a100 cpu None/1500/None"]
    assert rows(imported, "root.solo") == ["any cpu 9000/9000/None"]
    tree = QueueTree.of(imported.document.queues)
    assert tree[leaf].weight == 0.5
    assert (tree[leaf].policy.reclaim, tree[leaf].policy.preempt, tree["root.solo"].policy.preempt) == (
        True,
        "within-queue",
        "never",
    )
    assert (tree["root.solo"].policy.order, tree["root.solo"].state) == ("strict", QueueState.HELD)
    assert parse(export(imported.document)) == imported.document
    assert imported.document.flavors is not None
    assert [flavor.name for flavor in imported.document.flavors] == ["a100", "any"]
    assert imported.document.topology is not None
    assert imported.document.topology.levels == ("rack", "host")


def test_local_queues_become_placement_rules() -> None:
    """By label only where a namespace has several; a selector that does not select refuses, as in Kueue."""
    imported = read(manifests(COHORT))
    assert any("those that name no LocalQueue of it" in text for text in told(imported, Fate.APPROXIMATED))
    assert routes(imported) == [
        {"namespace": "a", "labels": {"kueue.x-k8s.io/queue-name": "night"}, "queue": "root.solo"},
        {"namespace": "a", "queue": "root.org.lab.team-a"},
    ]
    tree = QueueTree.of(imported.document.queues)
    assert (tree.namespaces("root.org.lab.team-a"), tree.namespaces("root.solo")) == (("a",), ("a",))
    assert told(imported, Fate.REFUSED) == [
        "LocalQueue b/day: the namespaceSelector of ClusterQueue Team.A does not select b"
    ]
    assert imported.commands == (
        "kubectl label namespace a queuer.dev/managed=true queuer.dev/default-queue=root",
    )


@pytest.mark.parametrize(
    ("stops", "taken"),
    [({"a": "Hold"}, "root.two"), ({"one": "Hold"}, "root.two"), ({"a": "Hold", "b": "Hold"}, "root.one")],
    ids=["a LocalQueue", "its ClusterQueue", "all"],
)
def test_jobs_without_a_label_go_to_a_local_queue_that_is_not_stopped(
    stops: dict[str, str], taken: str
) -> None:
    def stop(name: str) -> str:
        return f", stopPolicy: {stops[name]}" if name in stops else ""

    queues = [
        f"{{{API}, kind: ClusterQueue, metadata: {{name: {name}}}, spec: {{namespaceSelector: {{}}{stop(name)}}}}}"
        for name in ("one", "two")
    ]
    local = [
        f"{{{API}, kind: LocalQueue, metadata: {{name: {name}, namespace: n}},"
        f" spec: {{clusterQueue: {target}{stop(name)}}}}}"
        for name, target in (("a", "one"), ("b", "two"))
    ]
    imported = read(manifests("\n---\n".join([*queues, *local])))
    assert routes(imported)[-1] == {"namespace": "n", "queue": taken}
    assert len(routes(imported)) == 2


def test_flavors_that_cannot_be_told_apart_are_counted_together() -> None:
    """A pod set has one flavor: a second group has rows without one, flavors without labels share a row."""
    text = f"""
{{{API}, kind: ResourceFlavor, metadata: {{name: a100}}, spec: {{nodeLabels: {{gpu: a100}}}}}}
---
{{{API}, kind: ResourceFlavor, metadata: {{name: spot}}}}
---
{{{API}, kind: ResourceFlavor, metadata: {{name: paid}}}}
---
{{{API}, kind: ClusterQueue, metadata: {{name: q}}, spec: {{resourceGroups: [
  {{coveredResources: [cpu], flavors: [{{name: spot, resources: [{{name: cpu, nominalQuota: 4}}]}},
    {{name: paid, resources: [{{name: cpu, nominalQuota: 8}}]}}]}},
  {{coveredResources: [x/gpu], flavors: [{{name: a100, resources: [{{name: x/gpu, nominalQuota: 2}}]}}]}}]}}}}
"""
    imported = read(manifests(text))
    assert rows(imported, "root.q") == ["None cpu 12000/12000/None", "a100 x/gpu 2/2/None"]
    approximated = told(imported, Fate.APPROXIMATED)
    assert "ClusterQueue q: 12 cpu together: 4 cpu on spot + 8 cpu on paid" in approximated
    assert "ResourceFlavor paid: names the same nodes as flavor spot: counted there" in approximated
    offered = imported.document.flavors or ()
    assert [flavor.name for flavor in offered] == ["a100", "spot"]
    assert (
        "ResourceFlavor spot: takes the nodes that no other flavor names; in Kueue it names all nodes"
        in approximated
    )


def test_nodes_that_a_resource_no_longer_keeps_to_are_told() -> None:
    """Kueue puts a job that asks for CPUs alone on the nodes of their flavor; counted together they bind nobody."""
    text = f"""
{{{API}, kind: ResourceFlavor, metadata: {{name: cpus}}, spec: {{nodeLabels: {{pool: cpu}}}}}}
---
{{{API}, kind: ResourceFlavor, metadata: {{name: a100}}, spec: {{nodeLabels: {{gpu: a100}}}}}}
---
{{{API}, kind: ClusterQueue, metadata: {{name: q}}, spec: {{resourceGroups: [
  {{coveredResources: [cpu, memory], flavors: [{{name: cpus, resources: [{{name: cpu, nominalQuota: 4}},
    {{name: memory, nominalQuota: 8Gi}}]}}]}},
  {{coveredResources: [x/gpu], flavors: [{{name: a100, resources: [{{name: x/gpu, nominalQuota: 2}}]}}]}}]}}}}
"""
    imported = read(manifests(text))
    assert rows(imported, "root.q")[-1] == "a100 x/gpu 2/2/None"
    where = [found for found in imported.findings if "counted on all nodes" in found.text]
    assert [(found.fate, found.about) for found in where] == [(Fate.APPROXIMATED, "ClusterQueue q")]
    assert where[0].text.startswith("cpu, memory on cpus: ")
    assert where[0].hint == "nodeSelector {pool: cpu} in a job keeps it there"


@pytest.mark.parametrize(("cpus", "cohort", "count"), [(4, "all", 1), (0, "all", 0), (4, None, 0)])
def test_a_guarantee_of_cpus_beside_none_of_gpus_is_told(cpus: int, cohort: str | None, count: int) -> None:
    """Kueue calls a job that borrows GPUs a borrower; here its CPUs make it entitled."""
    amounts = f"{{name: cpu, nominalQuota: {cpus}}}, {{name: x/gpu, nominalQuota: 0}}"
    spec = f"resourceGroups: [{{coveredResources: [cpu, x/gpu], flavors: [{{name: f, resources: [{amounts}]}}]}}]"
    spec += f", cohortName: {cohort}" if cohort else ""
    imported = read(manifests(f"{{{API}, kind: ClusterQueue, metadata: {{name: q}}, spec: {{{spec}}}}}"))
    found = [text for text in told(imported, Fate.APPROXIMATED) if "entitled" in text]
    text = "nominalQuota 0 of x/gpu on f: jobs that ask for cpu too are entitled by that"
    assert found == [f"ClusterQueue q: {text}"] * count


def test_flavors_of_names_that_become_one_here_stay_two() -> None:
    """Their guarantees were summed on the nodes of the first."""

    def flavor(name: str, spec: str) -> str:
        return f"{{{API}, kind: ResourceFlavor, metadata: {{name: {name}}}, spec: {{{spec}}}}}"

    amounts = "resources: [{name: x/gpu, nominalQuota: %s}]"
    listed = ", ".join(
        f"{{name: {name}, {amounts % n}}}" for name, n in (("h100.sxm", 8), ("h100-sxm", 4), ("h100.sxm.", 2))
    )
    spec = f"resourceGroups: [{{coveredResources: [x/gpu], flavors: [{listed}]}}]"
    queue = f"{{{API}, kind: ClusterQueue, metadata: {{name: q}}, spec: {{{spec}}}}}"
    two = [flavor("h100.sxm", "nodeLabels: {gpu: a}"), flavor("h100-sxm", "nodeLabels: {gpu: b}")]
    imported = read(manifests("\n---\n".join([*two, queue])))
    assert rows(imported, "root.q") == [
        "h100-sxm x/gpu 8/8/None", "h100-sxm-2 x/gpu 4/4/None", "h100-sxm-3 x/gpu 2/2/None",
    ]  # fmt: skip
    assert parse(export(imported.document)) == imported.document
    approximated = told(imported, Fate.APPROXIMATED)
    assert "ResourceFlavor h100.sxm: is called flavor h100-sxm" in approximated
    assert "ResourceFlavor h100-sxm: is called flavor h100-sxm-2" in approximated


def test_a_topology_that_is_not_in_the_input_is_told() -> None:
    """The document has no levels then, and jobs that ask for one wait for ever."""
    spec = "{nodeLabels: {gpu: a}, topologyName: gone}"
    imported = read(manifests(f"{{{API}, kind: ResourceFlavor, metadata: {{name: f}}, spec: {spec}}}"))
    assert imported.document.topology is None
    assert told(imported, Fate.APPROXIMATED) == [
        "ResourceFlavor f: Topology gone is not in the input: its levels are left out"
    ]


def test_an_empty_name_is_as_good_as_absent() -> None:
    """Kueue takes `cohort: ""` for none, and templates write it."""
    text = f"""
{{{API}, kind: ClusterQueue, metadata: {{name: q}}, spec: {{cohort: ""}}}}
---
{{{API}, kind: Cohort, metadata: {{name: c}}, spec: {{parentName: ""}}}}
---
{{{API}, kind: ResourceFlavor, metadata: {{name: f}}, spec: {{topologyName: ""}}}}
---
{{{API}, kind: LocalQueue, metadata: {{name: l, namespace: n}}, spec: {{clusterQueue: ""}}}}
---
{{{API}, kind: LocalQueue, metadata: {{name: m, namespace: n}}}}
"""
    imported = read(manifests(text))
    assert [queue.path for queue in imported.document.queues] == ["root.c", "root.q"]
    assert told(imported, Fate.REFUSED) == [
        f"LocalQueue n/{name}: its clusterQueue is missing" for name in ("l", "m")
    ]


def test_a_priority_class_that_the_api_server_refuses_is_no_command() -> None:
    """A command that is printed runs as it stands, whatever the object's name holds."""
    given = {"system-high": 5, "top": 10**9, "beyond": 10**9 + 1, "a; reboot": 1}
    text = "\n---\n".join(
        f'{{{API}, kind: WorkloadPriorityClass, metadata: {{name: "{name}"}}, value: {value}}}'
        for name, value in given.items()
    )
    imported = read(manifests(text))
    assert told(imported, Fate.REFUSED) == [
        "WorkloadPriorityClass system-high: a PriorityClass of this name is refused: system-* is Kubernetes' own",
        "WorkloadPriorityClass beyond: a PriorityClass of value 1000000001 is refused: 1000000000 is the highest",
    ]
    assert [shlex.split(command)[3:5] for command in imported.commands] == [
        ["top", "--value=1000000000"], ["a; reboot", "--value=1"],
    ]  # fmt: skip
    assert not [found for found in imported.findings if "priority-class=system" in found.hint]


def test_objects_that_are_not_read_are_told_by_kind() -> None:
    """A kind that is misspelled, or has the wrong group, is not lost in silence."""
    text = f"""
{{{API}, kind: ClusterQueue, metadata: {{name: q}}}}
---
{{apiVersion: kueue.x-k8s.io, kind: ClusterQueue, metadata: {{name: p}}}}
---
{{apiVersion: v1, kind: ConfigMap, metadata: {{name: kueue-manager-config}}}}
---
{{apiVersion: v1, kind: ConfigMap, metadata: {{name: other}}}}
"""
    assert told(read(manifests(text)), Fate.NO_EQUAL) == [
        "ClusterQueue of no group: 1 left out: this import does not read them",
        "ConfigMap of no group: 2 left out: this import does not read them",
    ]


def test_an_object_given_twice_must_say_the_same() -> None:
    """The second would win in silence; two lists of one cluster may overlap."""
    queue = f"{{{API}, kind: ClusterQueue, metadata: {{name: q}}, spec: {{cohortName: %s}}}}"
    assert len(read(manifests(f"{queue % 'a'}\n---\n{queue % 'a'}")).document.queues) == 2
    with pytest.raises(InvalidInput) as caught:
        read(manifests(f"{queue % 'a'}\n---\n{queue % 'b'}"))
    assert "document 2, ClusterQueue q: differs from given.yaml, document 1, ClusterQueue q" in str(
        caught.value
    )
    space = "{apiVersion: v1, kind: Namespace, metadata: {name: n, labels: {team: %s}}}"
    with pytest.raises(InvalidInput, match="Namespace n: differs from"):
        read(manifests(f"{queue % 'a'}\n---\n{space % 'a'}\n---\n{space % 'b'}"))


def test_null_is_as_good_as_absent() -> None:
    """Templates write it; a queue that Kueue serves was held, and took back what others borrow."""
    spec = (
        "stopPolicy: null, cohortName: c, preemption: {withinClusterQueue: null, reclaimWithinCohort: null}"
    )
    text = f"{{{API}, kind: ClusterQueue, metadata: {{name: q}}, spec: {{{spec}}}}}"
    [queue] = [each for each in read(manifests(text)).document.queues if each.path.endswith("q")]
    assert (queue.state, queue.policy.preempt, queue.policy.reclaim) == (
        QueueState.OPEN,
        Preempt.NEVER,
        False,
    )


def test_what_has_no_equal_is_told() -> None:
    text = f"""
{{{API}, kind: ClusterQueue, metadata: {{name: q}}, spec: {{stopPolicy: HoldAndDrain, namespaceSelector: {{}}, novel: 1,
  admissionChecksStrategy: {{admissionChecks: [{{name: prov}}]}}, fairSharing: {{weight: 0}},
  preemption: {{borrowWithinCohort: {{policy: LowerPriority, maxPriorityThreshold: 5}},
  withinClusterQueue: LowerOrNewerEqualPriority}}}}}}
---
{{{API}, kind: WorkloadPriorityClass, metadata: {{name: high}}, value: 1000}}
---
{{{API}, kind: LocalQueue, metadata: {{name: l, namespace: n}}, spec: {{clusterQueue: gone}}}}
"""
    imported = read(manifests(text))
    assert told(imported, Fate.NO_EQUAL) == [
        "ClusterQueue q: field novel is not known to this import",
        "ClusterQueue q: borrowWithinCohort LowerPriority, up to priority 5",
        "ClusterQueue q: admission checks prov",
        "WorkloadPriorityClass high: a tree has no classes: a PriorityClass of value 1000 orders jobs that name it",
    ]
    assert told(imported, Fate.REFUSED) == ["LocalQueue n/l: its ClusterQueue gone is not in the input"]
    assert "ClusterQueue q: fairSharing.weight 0 became weight 0.001" in told(imported, Fate.APPROXIMATED)
    assert imported.commands == ("kubectl create priorityclass high --value=1000 --preemption-policy=Never",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            f"{{{API}, kind: ClusterQueue, metadata: {{name: q}}, spec: {{resourceGroups: [{{flavors: [{{name: f,"
            " resources: [{name: cpu, nominalQuota: many}]}]}]}}",
            "given.yaml, document 1, ClusterQueue q spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: "
            "'many' is not a quantity",
        ),
        (
            f"{{{API}, kind: Cohort, metadata: {{name: a}}, spec: {{parentName: b}}}}\n---\n"
            f"{{{API}, kind: Cohort, metadata: {{name: b}}, spec: {{parentName: a}}}}",
            "Cohorts form a circle: a -> b -> a",
        ),
        (f"{{{API}, kind: ClusterQueue, metadata: {{name: {'x' * 60}}}}}", "has 65 characters, 63 at most"),
        (f"{{{API}, kind: ClusterQueue, metadata: {{name: q}}, spec: [1]}}", "spec: a mapping is needed"),
        ("{apiVersion: v1, kind: Secret, metadata: {name: s}}", "holds no ClusterQueue"),
        (
            f"{{{API}, kind: ClusterQueue, metadata: {{name: q}}, spec: {{preemption: {{reclaimWithinCohort: All}}}}}}",
            "ClusterQueue q spec.preemption.reclaimWithinCohort: 'All' is not one of the words",
        ),
        (
            f"{{{API}, kind: ClusterQueue, metadata: {{name: q}}, spec: {{stopPolicy: hold}}}}",
            "did you mean Hold?",
        ),
    ],
)
def test_a_fault_names_file_document_and_field(text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(manifests(text))
    assert said in str(caught.value)


def test_the_verb_prints_a_document_and_the_list_beside_it(tmp_path: Path) -> None:
    """The document alone is on stdout. A list as kubectl prints it is read like a file of documents."""
    bodies = [dict(manifest.body) for manifest in manifests(COHORT)]
    given = tmp_path / "given.json"
    given.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies}))
    done = queuer(httpx2.MockTransport(lambda _: httpx2.Response(500)), "import", "kueue", str(given))
    assert done.code == 0
    assert parse(yaml.safe_load(done.out)) == read(manifests(COHORT)).document
    assert "refused      LocalQueue b/day: the namespaceSelector" in done.err
    assert "6 queues" not in done.out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: {{ .Name }}", "is no YAML or JSON"),
        ("a: 1\na: 2", "given twice"),
        ("[" * 5000, "is nested too deeply"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str, said: str) -> None:
    given = tmp_path / "given.yaml"
    given.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        manifests_of([given])
    assert str(given) in str(caught.value)
    assert said in str(caught.value)

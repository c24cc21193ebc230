"""Volcano's Queues and HyperNodes, and ResourceQuotas, as trees."""

from __future__ import annotations

import pytest

from queuer.domain.document import export, parse
from queuer.domain.errors import InvalidInput
from queuer.domain.queue import QueueState, QueueTree
from queuer.imports import resourcequota, volcano
from queuer.imports.records import Fate
from tests.unit.imports.given import manifests, routes, rows, told

QUEUE = "apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue"
HYPER = "apiVersion: topology.volcano.sh/v1alpha1, kind: HyperNode"


def test_a_volcano_queue_lends_what_it_deserves_above_its_guarantee() -> None:
    text = f"""
{{{QUEUE}, metadata: {{name: root}}, spec: {{capability: {{cpu: 100}}}}}}
---
{{{QUEUE}, metadata: {{name: leaf}}, spec: {{parent: mid, weight: 4, dequeueStrategy: fifo, reclaimable: false,
  priority: 7, capability: {{cpu: 8}}, deserved: {{cpu: 4, x/gpu: 2}}, guarantee: {{resource: {{cpu: 1}}}}}}}}
---
{{{QUEUE}, metadata: {{name: mid}}, spec: {{deserved: {{cpu: 2}}}}, status: {{state: Closed}}}}
"""
    imported = volcano.read(manifests(text), namespaces=["b", "a"])
    assert rows(imported, "root") == ["None cpu None/100000/None"]
    assert rows(imported, "root.mid.leaf") == ["None cpu 4000/8000/3000", "None x/gpu 2/None/None"]
    assert rows(imported, "root.mid") == ["None cpu 4000/None/None"]
    tree = QueueTree.of(imported.document.queues)
    assert (tree["root.mid.leaf"].weight, tree["root.mid.leaf"].policy.order) == (4, "strict")
    assert (tree["root.mid"].state, tree.namespaces("root.mid.leaf")) == (QueueState.DRAINING, ("a", "b"))
    assert "root.mid: guaranteed 2 cpu became 4 cpu: children are guaranteed as much" in told(
        imported, Fate.APPROXIMATED
    )
    assert told(imported, Fate.NO_EQUAL) == [
        "Queue leaf: reclaimable false: others may reclaim what it borrows",
        "Queue leaf: priority 7: queues have none",
    ]
    assert parse(export(imported.document)) == imported.document


def test_a_hierarchy_in_annotations_is_the_tree() -> None:
    text = "\n---\n".join(
        f"{{{QUEUE}, metadata: {{name: root-eng-{name}, annotations: {{volcano.sh/hierarchy: root/eng/{name},"
        f" volcano.sh/hierarchy-weights: 1/2/{weight}}}}}}}"
        for name, weight in (("prod", 8), ("dev", 3))
    )
    tree = QueueTree.of(volcano.read(manifests(text)).document.queues)
    assert {queue.path: queue.weight for queue in tree} == {
        "root": 1,
        "root.eng": 2,
        "root.eng.prod": 8,
        "root.eng.dev": 3,
    }


def test_hyper_nodes_become_levels_and_labels_of_nodes() -> None:
    text = f"""
{{{HYPER}, metadata: {{name: s0}}, spec: {{tier: 1, members: [
  {{type: Node, selector: {{exactMatch: {{name: n0}}}}}}, {{type: Node, selector: {{exactMatch: {{name: n1}}}}}}]}}}}
---
{{{HYPER}, metadata: {{name: s1}}, spec: {{tier: 1, members: [
  {{type: Node, selector: {{regexMatch: {{pattern: "n[2-3]{{1}}"}}}}}}]}}}}
---
{{{HYPER}, metadata: {{name: top}}, spec: {{tier: 2, tierName: block, members: [
  {{type: HyperNode, selector: {{exactMatch: {{name: s0}}}}}}]}}}}
"""
    imported = volcano.read(manifests(text))
    assert imported.document.topology is not None
    assert imported.document.topology.levels == ("block", "tier-1", "host")
    assert imported.commands == (
        "kubectl label --overwrite node n0 n1 topology.volcano.sh/block=top topology.volcano.sh/tier-1=s0",
        "kubectl get nodes -o name | grep -E '^node/(n[2-3]{1})$' | xargs -I% kubectl label --overwrite % "
        "topology.volcano.sh/tier-1=s1",
    )


def test_resource_quotas_are_a_first_tree() -> None:
    quota = "apiVersion: v1, kind: ResourceQuota"
    text = f"""
{{{quota}, metadata: {{name: a, namespace: team-a}}, spec: {{hard: {{requests.cpu: 8, cpu: 6, requests.x/gpu: 4,
  limits.cpu: 9, requests.storage: 1Gi}}}}}}
---
{{{quota}, metadata: {{name: b, namespace: team-a}}, spec: {{hard: {{requests.x/gpu: 2, pods: 20}}}}}}
---
{{{quota}, metadata: {{name: c, namespace: team-b}}, spec: {{hard: {{pods: 1}}, scopes: [BestEffort]}}}}
"""
    imported = resourcequota.read(manifests(text))
    assert rows(imported, "root.team-a") == [
        "None cpu 6000/6000/None",
        "None pods 20/20/None",
        "None x/gpu 2/2/None",
    ]
    assert routes(imported) == [{"namespace": "team-a", "queue": "root.team-a"}]
    assert [line.rpartition(": ")[0] for line in told(imported, Fate.NO_EQUAL)] == [
        "ResourceQuota team-a/a: limits.cpu 9 bounds no requests of pods",
        "ResourceQuota team-a/a: requests.storage 1Gi bounds no requests of pods",
        "ResourceQuota team-b/c: it is for some pods alone (scopes)",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            f"{{{QUEUE}, metadata: {{name: q}}, spec: {{deserved: {{cpu: many}}}}}}",
            "spec.deserved.cpu: 'many'",
        ),
        (
            f"{{{QUEUE}, metadata: {{name: a}}, spec: {{parent: b}}}}\n---\n"
            f"{{{QUEUE}, metadata: {{name: b}}, spec: {{parent: a}}}}",
            "parents form a circle",
        ),
        (
            "{kind: Queue, apiVersion: scheduling.run.ai/v2, metadata: {name: q}}",
            "holds no Queue or HyperNode",
        ),
    ],
)
def test_a_fault_names_its_object(text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        volcano.read(manifests(text))
    assert said in str(caught.value)

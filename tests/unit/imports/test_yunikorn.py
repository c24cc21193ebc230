"""YuniKorn's queues.yaml as a tree: amounts in its units, who may submit, limits, properties, placement rules."""

from __future__ import annotations

import pytest

from queuer.cli.imports import unpacked
from queuer.domain.document import export, parse
from queuer.domain.errors import InvalidInput
from queuer.domain.queue import Preempt, QueueTree
from queuer.imports import yunikorn
from queuer.imports.records import Fate, Imported
from tests.unit.imports.given import manifests, routes, rows, told

CONFIG = """
partitions:
- name: default
  nodesortpolicy: {type: fair}
  preemption: {enabled: true, quotapreemptionenabled: true}
  limits:
  - {limit: each, users: ["*"], maxresources: {vcore: 4, memory: 8Gi}, maxapplications: 3}
  placementrules:
  - {name: provided}
  - {name: tag, value: namespace, create: true, parent: {name: fixed, value: teams}}
  - {name: user, filter: {type: allow, groups: [ml]}, parent: {name: fixed, value: root.people}}
  - {name: user, create: true, filter: {type: deny, users: [eve]}}
  - {name: tag, value: cost-centre}
  - {name: fixed, value: root.rest, create: true}
  queues:
  - name: root
    submitacl: " staff"
    queues:
    - name: Teams
      parent: true
      childtemplate: {resources: {max: {vcore: 2}}}
      resources: {guaranteed: {vcore: 10, memory: 20 G, nvidia.com/gpu: 8}, max: {vcore: 12500m}}
      queues:
      - {name: team-a, adminacl: "alice,bob admins", resources: {guaranteed: {vcore: 500m}, max: {pods: 10}}}
    - name: people
      submitacl: "*"
      queues: [{name: carol}]
    - name: batch
      maxapplications: 5
      limits: [{limit: one, groups: [ml], maxapplications: 2}]
      properties:
        application.sort.policy: fair
        application.sort.priority: disabled
        preemption.policy: disabled
        priority.offset: 5
        preemption.delay: 10s
        other: thing
    - {name: fenced, properties: {preemption.policy: fence, application.sort.policy: fifo}}
- {name: gpu, queues: []}
"""


def read(text: str = CONFIG, *namespaces: str) -> Imported:
    return yunikorn.read(unpacked(manifests(text)), namespaces=namespaces)


def test_amounts_are_equal_in_base_units() -> None:
    imported = read()
    assert rows(imported, "root.teams") == [
        "None cpu 10000/12500/None",
        "None memory 20000000000/None/None",
        "None nvidia.com/gpu 8/None/None",
    ]
    assert rows(imported, "root.teams.team-a") == ["None cpu 500/None/None", "None pods None/10/None"]
    assert parse(export(imported.document)) == imported.document


def test_who_may_submit_adds_up_from_the_root_and_a_star_opens() -> None:
    tree = QueueTree.of(read().document.queues)
    access = {path: (tree[path].access.users, tree[path].access.groups) for path in tree.leaves}
    assert access["root.teams.team-a"] == (("alice", "bob"), ("admins", "staff"))
    assert access["root.people.carol"] == ((), ())
    assert access["root.batch"] == ((), ("staff",))
    nobody = told(read("partitions: [{name: default, queues: [{name: a}]}]"), Fate.APPROXIMATED)
    assert (
        "Queue root.a: no ACL lets anybody submit to it; here everybody of the namespaces of root.a may"
        in nobody
    )


def test_a_limit_of_every_user_stays_and_others_are_told() -> None:
    imported = read()
    per_user = QueueTree.of(imported.document.queues)["root"].access.per_user
    assert per_user is not None
    assert (per_user.limits, per_user.max_running) == ({"cpu": 4000, "memory": 8 * 2**30}, 3)
    assert "Queue root.batch: limit for groups ml: 2 jobs" in told(imported, Fate.NO_EQUAL)


def test_preemption_is_for_guarantees_alone_and_what_has_no_equal_is_told() -> None:
    imported = read()
    tree = QueueTree.of(imported.document.queues)
    assert (tree.policy("root.fenced").preempt, tree.policy("root.fenced").reclaim) == (Preempt.NEVER, True)
    assert tree.policy("root.batch").reclaim is False
    off = read("partitions: [{name: default, preemption: {enabled: false}, queues: [{name: a}]}]")
    assert QueueTree.of(off.document.queues).policy("root.a").reclaim is False
    begin = [
        "Partition gpu: a second partition",
        "Queue root.batch: application.sort.policy fair: jobs of one queue go by priority",
        "Queue root.batch: application.sort.priority disabled",
        "Queue root.batch: priority.offset 5",
        "Queue root.batch: preemption.delay 10s",
        "Queue root.batch: property other thing is not known",
        "Queue root.batch: limit for groups ml",
        "Queue root.batch: maxapplications 5",
        "Queue root.fenced: preemption.policy fence",
        "Partition default: quotapreemptionenabled",
        "Partition default: nodesortpolicy fair",
        "Placement rule 4, user: its filter denies",
        "Placement rule 5, tag: tag cost-centre has no equal",
        "all queues: queues name no namespaces there",
    ]
    found = told(imported, Fate.NO_EQUAL)
    assert [line[: len(start)] for line, start in zip(found, begin, strict=True)] == begin


def test_placement_rules_stand_in_their_order_and_namespaces_get_queues() -> None:
    imported = read(CONFIG, "team-b", "team-a")
    assert routes(imported) == [
        {"namespace": "team-a", "queue": "root.teams.team-a"},
        {"namespace": "team-b", "queue": "root.teams.team-b"},
        {"user": "carol", "group": "ml", "queue": "root.people.carol"},
        {"queue": "root.rest"},
    ]
    assert rows(imported, "root.teams.team-b") == ["None cpu None/2000/None"]
    tree = QueueTree.of(imported.document.queues)
    assert tree.namespaces("root.teams.team-b") == ("team-b",)
    assert tree.namespaces("root.batch") == ("team-a", "team-b")
    assert tree["root.rest"].access.groups == ("staff",)
    assert imported.commands == (
        "kubectl label namespace team-a team-b queuer.dev/managed=true queuer.dev/default-queue=root",
    )


def test_the_config_map_that_an_administrator_wrote_counts_and_not_the_defaults() -> None:
    def config_map(name: str, queue: str) -> str:
        return f"""
kind: ConfigMap
apiVersion: v1
metadata: {{name: {name}, namespace: yunikorn}}
data:
  queues.yaml: |
    partitions: [{{name: default, queues: [{{name: root, queues: [{{name: {queue}}}]}}]}}]
"""

    imported = read(
        f"{config_map('yunikorn-configs', 'mine')}\n---\n{config_map('yunikorn-defaults', 'theirs')}"
    )
    assert [queue.path for queue in imported.document.queues] == ["root", "root.mine"]
    assert any(
        "yunikorn-defaults queues.yaml: left out" in line for line in told(imported, Fate.APPROXIMATED)
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: ConfigMap\ndata: {}", "holds no queues.yaml of YuniKorn"),
        (
            "partitions: [{name: default, queues: [{name: a, resources: {max: {vcore: many}}}]}]",
            "partitions[0].queues[0].resources.max.cpu: 'many'",
        ),
        (
            "partitions: [{name: default, queues: [{submitacl: x}]}]",
            "partitions[0].queues[0].name: is missing",
        ),
    ],
)
def test_a_fault_names_its_field(text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(text)
    assert said in str(caught.value)

"""kube-scheduler's filters on a node, flavors, and topology domains."""

from __future__ import annotations

import pytest

from queuer.domain.nodes import (
    HOSTNAME,
    Flavor,
    Node,
    Requirement,
    SchedulingTerms,
    Taint,
    TaintEffect,
    Toleration,
    Topology,
    flavor_of,
)


def node(**changes: object) -> Node:
    """A node in rack r1 of block b1."""
    fields: dict[str, object] = {
        "name": "n1",
        "labels": {"block": "b1", "t/rack": "r1", HOSTNAME: "n1", "gpu": "h100"},
        "allocatable": {"cpu": 1},
    }
    return Node(**{**fields, **changes})  # type: ignore[arg-type]


GPU = Taint(key="gpu", value="yes")


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        (Toleration(key="gpu", value="yes"), True),
        (Toleration(key="gpu", value="no"), False),
        (Toleration(key="gpu", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(key="gpu", value="yes", effect="NoExecute"), False),
        (Toleration(key="gpu", value="yes", effect="NoSchedule"), True),
        (Toleration(key="gpu", operator="Gt", value="1"), False),
    ],
)
def test_taints(toleration: Toleration, covers: bool) -> None:
    """TaintToleration: only hard taints keep a pod away, and only unless tolerated."""
    tainted = node(taints=(GPU,))
    assert tainted.accepts(SchedulingTerms(tolerations=(toleration,))) is covers
    soft = node(taints=(Taint(key="gpu", effect=TaintEffect.PREFER_NO_SCHEDULE),))
    assert soft.accepts(SchedulingTerms())


@pytest.mark.parametrize(
    ("operator", "values", "matches"),
    [
        ("In", ("h100", "a100"), True),
        ("NotIn", ("h100",), False),
        ("Exists", (), True),
        ("DoesNotExist", (), False),
        ("Gt", ("1",), False),
        ("Near", ("h100",), False),
    ],
)
def test_affinity(operator: str, values: tuple[str, ...], matches: bool) -> None:
    """An OR of terms, each an AND; an unknown operator matches nothing."""
    term = (Requirement(key="gpu", operator=operator, values=values),)
    assert node().accepts(SchedulingTerms(affinity=(term,))) is matches


@pytest.mark.parametrize(
    ("label", "value", "matches"),
    [
        ("5", "7", True),
        ("+5", "7", True),
        ("1_0", "70", False),
        ("5", "9" * 20, False),
        ("5", "9" * 5000, False),
    ],
)
def test_integers_are_those_of_kube_scheduler(label: str, value: str, matches: bool) -> None:
    """A node that it would refuse is none to send a gang to, landing after landing."""
    term = (Requirement(key="x", operator="Lt", values=(value,)),)
    assert node(labels={"x": label}).accepts(SchedulingTerms(affinity=(term,))) is matches


def test_empty_terms_match_no_node() -> None:
    """As in Kubernetes: no term, or an empty one, is satisfied nowhere."""
    assert not node().accepts(SchedulingTerms(affinity=()))
    assert not node().accepts(SchedulingTerms(affinity=((),)))


def test_cordoned_and_unready_nodes_take_nothing() -> None:
    """Even if all else matches."""
    assert node().accepts(SchedulingTerms())
    assert not node(unschedulable=True).accepts(SchedulingTerms())
    assert not node(ready=False).accepts(SchedulingTerms())


def test_a_node_belongs_to_the_first_flavor_that_matches() -> None:
    """`default` without flavors, none where none matches."""
    flavors = (Flavor(name="big", node_labels={"gpu": "h100"}), Flavor(name="any"))
    assert flavor_of(node(), flavors) == "big"
    assert flavor_of(node(labels={}), flavors) == "any"
    assert flavor_of(node(labels={}), flavors[:1]) is None
    assert flavor_of(node(), ()) == "default"


def test_domains_are_paths() -> None:
    """Two racks of one name in two blocks are two domains; a missing label at the level itself is none."""
    topology = Topology(keys=("block", "t/rack"))
    assert topology.levels == ("block", "rack", "host")
    other = node(labels={"block": "b2", "t/rack": "r1"})
    rack = topology.find("rack")
    assert rack == topology.find("t/rack") == 1
    assert topology.domain(node(), 1) == ("b1", "r1") != topology.domain(other, 1)
    assert topology.domain(node(labels={"block": "b1"}), 1) is None
    assert topology.domain(node(labels={}), 2) == ("n1",)
    nowhere, empty = (node(labels=labels) for labels in ({"t/rack": "r1"}, {"block": "", "t/rack": "r1"}))
    assert topology.domain(nowhere, 1) != topology.domain(empty, 1)

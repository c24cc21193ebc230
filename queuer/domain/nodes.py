"""The cluster's offer: nodes, flavors, topology, and whether a pod may run on a node at all.

The matching rules are kube-scheduler's NodeUnschedulable, TaintToleration, NodeAffinity and NodeName filters;
resource fit is decided in `queuer.solver` against the live use of each node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from queuer.domain.quantity import Resources

HOSTNAME = "kubernetes.io/hostname"
HOST_LEVEL = "host"
"""Name of the last topology level; its label is `kubernetes.io/hostname`, its domains are nodes."""
DEFAULT_FLAVOR = "default"
_INTEGER = re.compile(r"[+-]?[0-9]{1,64}")
"""What Go's `strconv.ParseInt` reads, but for its size."""
NO_LABELS: Mapping[str, str] = MappingProxyType({})


class TaintEffect(StrEnum):
    """Effects of a taint; only the hard ones keep a pod away."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A node's taint."""

    key: str
    value: str = ""
    effect: TaintEffect = TaintEffect.NO_SCHEDULE


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """A pod's toleration. Empty `key` with `Exists` tolerates everything; empty `effect` means every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether this toleration covers `taint` (KEP-5471's numeric operators are not modelled and cover nothing)."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.operator == "Exists":
            return self.key in ("", taint.key)
        return self.operator == "Equal" and self.key == taint.key and self.value == taint.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One `matchExpressions` (or, with `on_name`, `matchFields`) row of a node selector term."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    on_name: bool = False

    def matches(self, labels: Mapping[str, str], *, name: str) -> bool:
        """Kubernetes label-selector semantics; `Gt` and `Lt` compare integers of 64 bits."""
        got = name if self.on_name else labels.get(self.key)
        match self.operator:
            case "In":
                return got in self.values
            case "NotIn":
                return got not in self.values
            case "Exists":
                return got is not None
            case "DoesNotExist":
                return got is None
            case "Gt" | "Lt":
                return got is not None and _compares(got, self.values, greater=self.operator == "Gt")
        return False


def _compares(got: str, values: Sequence[str], *, greater: bool) -> bool:
    texts = (got, *values[:1])
    if len(texts) < 2 or not all(
        _INTEGER.fullmatch(text) and -(2**63) <= int(text) < 2**63 for text in texts
    ):
        return False
    left, right = map(int, texts)
    return left > right if greater else left < right


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as the scheduler sees it. `ready=False` and `unschedulable` both keep new pods away."""

    name: str
    labels: Mapping[str, str]
    allocatable: Resources
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True

    @property
    def schedulable(self) -> bool:
        """Whether it is to get new pods at all."""
        return self.ready and not self.unschedulable

    def accepts(self, demand: SchedulingTerms) -> bool:
        """Whether a pod with these terms may run here, resources aside."""
        if not self.schedulable or not self.is_meant(demand):
            return False
        return all(
            taint.effect is TaintEffect.PREFER_NO_SCHEDULE
            or any(t.tolerates(taint) for t in demand.tolerations)
            for taint in self.taints
        )

    def is_meant(self, demand: SchedulingTerms) -> bool:
        """Whether a pod with these terms asks for such a node, whether or not that takes pods now."""
        if any(self.labels.get(key) != value for key, value in demand.node_selector.items()):
            return False
        return demand.affinity is None or any(self._meets(term) for term in demand.affinity)

    def _meets(self, term: tuple[Requirement, ...]) -> bool:
        # An empty term matches no node (Kubernetes API, NodeSelectorTerm).
        return bool(term) and all(r.matches(self.labels, name=self.name) for r in term)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingTerms:
    """The part of a pod template that says which nodes it may use.

    `affinity`: required node affinity as an OR of terms, each an AND of requirements; None = no node affinity.
    """

    node_selector: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)
    tolerations: tuple[Toleration, ...] = ()
    affinity: tuple[tuple[Requirement, ...], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor:
    """A class of nodes: a node belongs to the first flavor whose labels it carries.

    `tolerations` are added to the pods that are sent there.
    """

    name: str
    node_labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)
    tolerations: tuple[Toleration, ...] = ()

    def matches(self, node: Node) -> bool:
        """Whether `node` carries all labels of this flavor."""
        return all(node.labels.get(key) == value for key, value in self.node_labels.items())


def flavor_of(node: Node, flavors: Sequence[Flavor]) -> str | None:
    """Name of the node's flavor; `default` where no flavor is declared, None where none matches."""
    if not flavors:
        return DEFAULT_FLAVOR
    return next((flavor.name for flavor in flavors if flavor.matches(node)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Label keys from the widest level to the narrowest, `kubernetes.io/hostname` always last.

    A level is named by the last segment of its key (`topology.kubernetes.io/rack` → `rack`); the last is `host`.
    """

    keys: tuple[str, ...] = (HOSTNAME,)

    def __post_init__(self) -> None:
        if self.keys[-1:] != (HOSTNAME,):
            object.__setattr__(self, "keys", (*(k for k in self.keys if k != HOSTNAME), HOSTNAME))

    @property
    def levels(self) -> tuple[str, ...]:
        """Level names, widest first, `host` last."""
        return tuple(HOST_LEVEL if key == HOSTNAME else key.rsplit("/", 1)[-1] for key in self.keys)

    def find(self, level: str) -> int | None:
        """Index of a level given by name (`rack`) or by label key; None if there is no such level."""
        if level in self.keys:
            return self.keys.index(level)
        return self.levels.index(level) if level in self.levels else None

    def domain(self, node: Node, level: int) -> tuple[str, ...] | None:
        """The node's domain at `level` as the path of label values from the widest level.

        None where the node lacks the label of that very level. It is a path, because two racks of different
        blocks may carry the same value. A missing wider label reads as "-", which no label can be. The domain
        of
        the last level is the node's name alone.
        """
        if level == len(self.keys) - 1:
            return (node.name,)
        if self.keys[level] not in node.labels:
            return None
        return tuple(node.labels.get(key, "-") for key in self.keys[: level + 1])

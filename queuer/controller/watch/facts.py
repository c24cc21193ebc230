"""The objects beside a job that bear on its meaning: its namespace, defaults and classes, as watched."""

from __future__ import annotations

from dataclasses import dataclass, field

from queuer.domain.keys import MANAGED
from queuer.kube.objects import LimitRange, Namespace, PriorityClass, ResourceQuota, RuntimeClass
from queuer.kube.workloads import DEFAULT_SCHEDULERS, NamespaceFacts

OPTED_IN = frozenset({"true", "required"})


@dataclass(slots=True)
class Facts:
    """All objects by uid; and the schedulers in use here."""

    namespaces: dict[str, Namespace] = field(default_factory=dict)
    limit_ranges: dict[str, LimitRange] = field(default_factory=dict)
    resource_quotas: dict[str, ResourceQuota] = field(default_factory=dict)
    runtime_classes: dict[str, RuntimeClass] = field(default_factory=dict)
    priority_classes: dict[str, PriorityClass] = field(default_factory=dict)
    schedulers: frozenset[str] = DEFAULT_SCHEDULERS

    def of(self, namespace: str) -> NamespaceFacts:
        """The facts of one namespace."""
        classes = self.priority_classes.values()
        return NamespaceFacts(
            limit_ranges=tuple(r for r in self.limit_ranges.values() if r.metadata.namespace == namespace),
            overheads={c.metadata.name: c.overhead.pod_fixed for c in self.runtime_classes.values()},
            priorities={c.metadata.name: c.value for c in classes},
            default_priority=next((c.value for c in classes if c.global_default), 0),
            schedulers=self.schedulers,
        )

    def values(self) -> dict[str, int]:
        """See `NamespaceFacts.values`."""
        return self.of("").values

    def unseen(self) -> dict[str, tuple[str, ...]]:
        """By namespace the kinds of its objects that bear on its jobs, beside the queues."""
        limits = {r.metadata.namespace for r in self.limit_ranges.values()}
        quotas = {r.metadata.namespace for r in self.resource_quotas.values()}
        return {
            name: (
                *(["LimitRange"] if name in limits else ()),
                *(["ResourceQuota"] if name in quotas else ()),
            )
            for name in sorted(limits | quotas)
        }

    def opted_in(self) -> frozenset[str]:
        """Names of the namespaces whose labelled jobs are ours to touch."""
        return frozenset(
            n.metadata.name for n in self.namespaces.values() if n.metadata.labels.get(MANAGED) in OPTED_IN
        )

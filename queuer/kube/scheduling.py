"""From the scheduling part of a pod spec, as JSON, to the terms by which nodes are chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from queuer.domain.nodes import HOSTNAME, Requirement, SchedulingTerms, Toleration
from queuer.kube.objects import REQUIRED, PodTemplate


def scheduling_terms(scheduling: Mapping[str, Any]) -> SchedulingTerms:
    """Which nodes the pods of a spec's scheduling part accept. Mere preferences are for kube-scheduler."""
    required = scheduling.get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED)
    tolerations = tuple(
        Toleration(
            key=t.get("key", ""),
            operator=t.get("operator") or "Equal",
            value=t.get("value", ""),
            effect=t.get("effect") or "",
        )
        for t in scheduling.get("tolerations", [])
    )
    return SchedulingTerms(
        node_selector=scheduling.get("nodeSelector", {}),
        tolerations=tolerations,
        affinity=None if required is None else tuple(map(_term, required.get("nodeSelectorTerms", []))),
    )


def _term(term: Mapping[str, Any]) -> tuple[Requirement, ...]:
    by_label = (_requirement(r, on_name=False) for r in term.get("matchExpressions", []))
    by_field = (_requirement(r, on_name=True) for r in term.get("matchFields", []))
    return (*by_label, *by_field)


def _requirement(row: Mapping[str, Any], *, on_name: bool) -> Requirement:
    return Requirement(
        key=row["key"], operator=row["operator"], values=tuple(row.get("values") or ()), on_name=on_name
    )


def keeps_apart(template: PodTemplate, affinity: Mapping[str, Any]) -> bool:
    """Whether the pods keep each other off their hosts: required anti-affinity per host with their own labels."""
    labels = template.metadata.labels or {}
    return any(
        term.get("topologyKey") == HOSTNAME and _selects(term.get("labelSelector"), labels)
        for term in affinity.get("podAntiAffinity", {}).get(REQUIRED, [])
    )


def _selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """metav1.LabelSelector: none selects nothing, an empty one everything."""
    if selector is None:
        return False
    rows = [_requirement(row, on_name=False) for row in selector.get("matchExpressions", [])]
    equal = selector.get("matchLabels", {})
    return all(labels.get(k) == v for k, v in equal.items()) and all(r.matches(labels, name="") for r in rows)

"""Kueue's LocalQueues as placement rules: by namespace, and by the label of a job where a namespace has several."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from queuer.domain.fields import Reader
from queuer.domain.nodes import Requirement
from queuer.domain.routing import RoutingRule
from queuer.imports.kueue_notes import note_local_queue
from queuer.imports.kueue_owners import Owner
from queuer.imports.records import Fate, Findings, Manifest, name_in

QUEUE_NAME = "kueue.x-k8s.io/queue-name"
NAME = "kubernetes.io/metadata.name"
"""The label that every namespace has."""


def local_queues(
    manifests: Iterable[Manifest],
    queues: Mapping[str, Owner],
    labels: Mapping[str, Mapping[str, str]],
    found: Findings,
) -> tuple[defaultdict[str, tuple[str, ...]], list[RoutingRule]]:
    """The namespaces of each ClusterQueue, and the placement rules of root."""
    served = defaultdict[str, tuple[str, ...]](tuple)
    homes = defaultdict[str, dict[str, str]](dict)
    stopped = defaultdict[str, set[str]](set)
    for manifest in manifests:
        spec = found.spec(manifest, known=("clusterQueue", "stopPolicy", "fairSharing"))
        about, space = f"LocalQueue {manifest.namespace}/{manifest.name}", manifest.namespace
        wanted = name_in(spec, "clusterQueue")
        if wanted is None:
            found.tell(Fate.REFUSED, about, "its clusterQueue is missing", "name its ClusterQueue")
            continue
        target = queues.get(wanted)
        if target is None:
            text = f"its ClusterQueue {wanted} is not in the input"
            found.tell(Fate.REFUSED, about, text, "add the ClusterQueue to the input")
            continue
        assert target.spec is not None
        if not _selected(target.spec, space, labels.get(space), about, found):
            text = f"the namespaceSelector of {target.about} does not select {space}"
            found.tell(Fate.REFUSED, about, text, f"Kueue admits nothing from it either; add {space} by hand")
            continue
        note_local_queue(spec, about, target.path, found)
        homes[space][manifest.name] = target.path
        if any(each.values.get("stopPolicy", "None") != "None" for each in (spec, target.spec)):
            stopped[space].add(manifest.name)
        served[target.name] = tuple(sorted({*served[target.name], space}))
        found.tell(Fate.MAPPED, about, f"jobs of namespace {space} go to {target.path} by a placement rule")
    return served, [
        rule for space in sorted(homes) for rule in _rules(space, homes[space], stopped[space], found)
    ]


def _rules(
    space: str, homes: Mapping[str, str], stopped: Collection[str], found: Findings
) -> Iterator[RoutingRule]:
    """A rule by label for each LocalQueue. One takes the rest, by a rule without label: `default`, or else the first
    by name that is not stopped and leads to no stopped ClusterQueue.
    """
    first = homes.get("default") or homes[min(homes, key=lambda name: (name in stopped, name))]
    for name, path in sorted(homes.items()):
        if path != first:
            yield RoutingRule(namespace=space, labels={QUEUE_NAME: name}, queue=path)
    before = "gives the former its LocalQueue default" if "default" in homes else "starts the former unqueued"
    text = f"its jobs without the label {QUEUE_NAME} go to {first}, and those that name no LocalQueue of it; "
    text += f"Kueue {before}, and leaves the latter suspended"
    found.tell(
        Fate.APPROXIMATED,
        f"Namespace {space}",
        text,
        "without default-queue on it, jobs need the label queuer.dev/queue",
    )
    yield RoutingRule(namespace=space, queue=first)


def _selected(
    spec: Reader, space: str, labels: Mapping[str, str] | None, about: str, found: Findings
) -> bool:
    """Whether the ClusterQueue's namespaceSelector takes a namespace. Without one it takes none."""
    if not spec.said("namespaceSelector"):
        return False
    at, known = spec.path("namespaceSelector"), ("matchLabels", "matchExpressions")
    selector = found.open(spec.values["namespaceSelector"], at=at, about=about, known=known)
    rows = [Requirement(key=k, operator="In", values=(v,)) for k, v in selector.labels("matchLabels").items()]
    for n, item in enumerate(selector.items("matchExpressions")):
        row = found.open(
            item, at=f"{at}.matchExpressions[{n}]", about=about, known=("key", "operator", "values")
        )
        key, operator = row.text("key") or "", row.text("operator") or ""
        rows.append(Requirement(key=key, operator=operator, values=row.texts("values")))
    if labels is None and any(row.key != NAME for row in rows):
        text = f"the labels of namespace {space} are not in the input: taken as selected"
        found.tell(Fate.APPROXIMATED, about, text, "add `kubectl get namespaces -o yaml` to the input")
        rows = [row for row in rows if row.key == NAME]
    return all(row.matches(labels or {NAME: space}, name=space) for row in rows)

"""The QueueTree document: queues, and if wanted flavors and topology, as one declarative text.

    apiVersion: queuer.dev/v1
    kind: QueueTree
    root: root.research                # nothing outside is touched
    prune: false                       # true: queues below `root` that the document does not name are deleted
    queues:
      root.research: {quota: [{flavor: h100, resource: nvidia.com/gpu, guaranteed: 64, limit: 96}]}
      root.research.team-a: {weight: 2, namespaces: [team-a], policy: {reclaim: true, minRuntime: 5m}}
    flavors: [{name: h100, nodeLabels: {gpu: h100}}]
    topology: {levels: [topology.kubernetes.io/block, topology.kubernetes.io/rack]}

The same spelling is used in SQL (`policy`, `changeset`), REST and CRs. A queue that is named is named whole: what
the document leaves out takes its default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from queuer.domain.access import ACCESS
from queuer.domain.fields import (
    Field,
    FieldTable,
    Problems,
    Reader,
    duration_field,
    kind_of,
    whole_field,
    word_field,
)
from queuer.domain.nodes import HOSTNAME, Flavor, TaintEffect, Toleration, Topology
from queuer.domain.quantity import format_quantity, parse_quantity
from queuer.domain.queue import (
    ROOT,
    Order,
    Policy,
    Preempt,
    Queue,
    QueueState,
    QuotaRow,
    Sharing,
    check_path,
)
from queuer.domain.routing import export_routing, parse_routing

API_VERSION = "queuer.dev/v1"
KIND = "QueueTree"
LEAST_REASON = 10
"""Characters of a reason for a change that takes something away."""
_DOCUMENT = ("apiVersion", "kind", "root", "prune", "queues", "flavors", "topology")
_AMOUNTS = ("guaranteed", "limit", "lend")
TOLERATION = ("key", "operator", "value", "effect")
"""The fields of a toleration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeDocument:
    """A wanted configuration. `flavors`, `topology`: None = not spoken of; `flavors` is the whole list, in order."""

    queues: tuple[Queue, ...]
    root: str = ROOT
    prune: bool = False
    flavors: tuple[Flavor, ...] | None = None
    topology: Topology | None = None


def parse(document: object) -> TreeDocument:
    """A TreeDocument from plain data. Raises InvalidInput naming every wrong field; amounts are not judged here."""
    problems = Problems()
    reader = Reader(document, at="", known=_DOCUMENT, problems=problems)
    for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if reader.values and reader.values.get(key) != wanted:
            problems.note(key, f"{reader.values.get(key)!r} is not {wanted}", f"write {key}: {wanted}")
    root = reader.text("root", ROOT) or ROOT
    problems.attempt(lambda: check_path(root, field="root"))
    if root != ROOT:
        for key in ("flavors", "topology"):
            if reader.said(key):
                problems.note(key, f"is not below {root}", "widen `root` or leave it out")
    parsed = TreeDocument(
        queues=_queues(reader, root=root),
        root=root,
        prune=bool(reader.flag("prune")),
        flavors=_flavors(reader) if reader.said("flavors") else None,
        topology=parse_topology(reader.values["topology"], problems=problems)
        if reader.said("topology")
        else None,
    )
    problems.settle()
    return parsed


def export(document: TreeDocument) -> dict[str, Any]:
    """The document as plain data; `parse` gives back an equal one."""
    found: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND, "root": document.root}
    if document.prune:
        found["prune"] = True
    found["queues"] = {queue.path: export_queue(queue) for queue in document.queues}
    if document.flavors is not None:
        found["flavors"] = [export_flavor(flavor) for flavor in document.flavors]
    if document.topology is not None:
        found["topology"] = export_topology(document.topology)
    return found


def _queues(reader: Reader, *, root: str) -> tuple[Queue, ...]:
    value = reader.values.get("queues")
    if value is None and (reader.said("flavors") or reader.said("topology")):
        return ()
    if not isinstance(value, Mapping):
        hint = "write queues: {root.research: {…}}"
        reader.problems.note("queues", f"a mapping by path is needed, got {kind_of(value)}", hint)
        return ()
    found = []
    for path, body in value.items():
        at = f"queues.{path}"
        if str(path) != root and not str(path).startswith(f"{root}."):
            reader.problems.note(at, f"is not below {root}", "widen `root` or leave the queue out")
        queue = reader.problems.attempt(lambda p=path, b=body: parse_queue(str(p), b))  # type: ignore[misc]
        if queue is not None:
            found.append(queue)
    return tuple(sorted(found, key=lambda queue: queue.path))


def parse_queue(path: str, body: object) -> Queue:
    """One queue from its body in a document; null = all defaults. Raises InvalidInput naming every wrong field."""
    problems, at = Problems(), f"queues.{path}"
    problems.attempt(lambda: check_path(path, field=at))
    reader = Reader(body if body is not None else {}, at=at, known=QUEUE.names, problems=problems)
    queue = QUEUE.read(reader, path=path)
    problems.settle()
    return queue


def export_queue(queue: Queue) -> dict[str, Any]:
    """The body of a queue in a document: what differs from the defaults."""
    return QUEUE.show(queue)


def _weight(reader: Reader, key: str) -> float | None:
    weight = reader.number(key)
    if weight is not None and not weight > 0:
        reader.problems.note(reader.path(key), f"{weight} is not above 0")
        return None
    return weight


def _show_weight(weight: float) -> float:
    return int(weight) if weight == int(weight) else weight


def _quota(reader: Reader, key: str) -> tuple[QuotaRow, ...]:
    at = reader.path(key)
    return tuple(
        _row(item, at=f"{at}[{index}]", problems=reader.problems)
        for index, item in enumerate(reader.items(key))
    )


def _show_quota(rows: Iterable[QuotaRow]) -> list[dict[str, Any]]:
    return [_show_row(row) for row in rows]


def _row(item: object, *, at: str, problems: Problems) -> QuotaRow:
    reader = Reader(item, at=at, known=("flavor", "resource", *_AMOUNTS), problems=problems)
    resource = (reader.text("resource") if reader.need("resource") else None) or ""
    amounts = {key: _amount(reader, key, resource=resource) for key in _AMOUNTS if reader.said(key)}
    if reader.values and not amounts:
        problems.note(at, "says no amount", "give guaranteed, limit or lend")
    return QuotaRow(resource=resource, flavor=reader.text("flavor"), **amounts)


def _amount(reader: Reader, key: str, *, resource: str) -> int | None:
    value, at = reader.values[key], reader.path(key)
    found: int | None = reader.problems.attempt(
        lambda: parse_quantity(value, resource=resource, field=at, whole=True)
    )
    return found


def _show_row(row: QuotaRow) -> dict[str, Any]:
    body: dict[str, Any] = {"flavor": row.flavor} if row.flavor is not None else {}
    body["resource"] = row.resource
    for key in _AMOUNTS:
        amount = getattr(row, key)
        if amount is not None:
            body[key] = format_quantity(amount, resource=row.resource)
    return body


POLICY = FieldTable(
    Policy,
    word_field("order", Order),
    word_field("sharing", Sharing),
    word_field("preempt", Preempt),
    Field(name="reclaim", read=Reader.flag),
    duration_field("minRuntime"),
    duration_field("maxWait"),
    duration_field("halfLife"),
    whole_field("reservations"),
)
"""The fields of `policy`."""
QUEUE = FieldTable(
    Queue,
    Field(name="weight", read=_weight, show=_show_weight),
    Field(name="quota", read=_quota, show=_show_quota),
    POLICY.inside("policy"),
    ACCESS.inside("access"),
    Field(name="namespaces", read=Reader.texts, show=list),
    Field(name="placement", read=parse_routing, show=export_routing),
    word_field("state", QueueState),
)
"""The fields of a queue's body."""


def _flavors(reader: Reader) -> tuple[Flavor, ...]:
    found: list[Flavor] = []
    for index, item in enumerate(reader.items("flavors")):
        at = f"flavors[{index}]"
        flavor = parse_flavor(item, at=at, problems=reader.problems)
        if flavor.name and flavor.name in {other.name for other in found}:
            reader.problems.note(f"{at}.name", f"second flavor {flavor.name}")
        found.append(flavor)
    return tuple(found)


def parse_flavor(body: object, *, at: str = "flavor", problems: Problems | None = None) -> Flavor:
    """A Flavor from plain data. Without `problems`, raises InvalidInput itself."""
    noted = Problems() if problems is None else problems
    reader = Reader(body, at=at, known=("name", "nodeLabels", "tolerations"), problems=noted)
    flavor = Flavor(
        name=(reader.text("name") if reader.need("name") else None) or "",
        node_labels=reader.labels("nodeLabels"),
        tolerations=tuple(
            toleration_of(Reader(item, at=f"{at}.tolerations[{i}]", known=TOLERATION, problems=noted))
            for i, item in enumerate(reader.items("tolerations"))
        ),
    )
    if problems is None:
        noted.settle()
    return flavor


def toleration_of(reader: Reader) -> Toleration:
    """One toleration of a flavor. What the API server would refuse in a pod is noted."""
    toleration = Toleration(
        key=reader.text("key") or "",
        operator=reader.one_of("operator", ("Equal", "Exists")) or "Equal",
        value=reader.text("value") or "",
        effect=reader.one_of("effect", TaintEffect) or "",
    )
    exists = reader.values.get("operator") == "Exists"
    if exists and toleration.value:
        reader.problems.note(reader.path("value"), "operator Exists takes no value", "leave value out")
    if not (exists or reader.said("key")):
        reader.problems.note(reader.at, "tolerates nothing", "give key, or set operator to Exists")
    return toleration


def export_flavor(flavor: Flavor) -> dict[str, Any]:
    """A flavor as plain data."""
    body: dict[str, Any] = {"name": flavor.name}
    if flavor.node_labels:
        body["nodeLabels"] = dict(flavor.node_labels)
    if flavor.tolerations:
        body["tolerations"] = [
            {key: value for key in TOLERATION if (value := getattr(toleration, key))}
            for toleration in flavor.tolerations
        ]
    return body


def parse_topology(body: object, *, problems: Problems | None = None) -> Topology:
    """A Topology from plain data; the host level is added. Without `problems`, raises InvalidInput itself."""
    noted = Problems() if problems is None else problems
    reader = Reader(body, at="topology", known=("levels",), problems=noted)
    topology = Topology(keys=(*(key for key in reader.texts("levels") if key != HOSTNAME), HOSTNAME))
    for names, what in ((topology.keys, "label key"), (topology.levels, "level name")):
        twice = sorted({name for name in names if names.count(name) > 1})
        for name in twice:
            noted.note("topology.levels", f"{what} {name} occurs twice")
    if problems is None:
        noted.settle()
    return topology


def export_topology(topology: Topology) -> dict[str, Any]:
    """A topology as plain data, without the host level that is always there."""
    return {"levels": [key for key in topology.keys if key != HOSTNAME]}

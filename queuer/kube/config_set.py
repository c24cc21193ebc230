"""All Queue, Flavor and Topology objects of the cluster as one wanted configuration, judged object by object.

Pure: what the API server listed goes in; a document, or what is wrong with which object, comes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from queuer.domain.document import TreeDocument, parse_flavor, parse_queue, parse_topology
from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.nodes import Flavor, Topology
from queuer.domain.queue import Queue

GROUP, VERSION = "queuer.dev", "v1"
PLURALS = ("queues", "flavors", "topologies")


class ConfigMeta(msgspec.Struct, frozen=True, rename="camel"):
    """Metadata of a config object."""

    name: str
    uid: str
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None


class ConfigObject(msgspec.Struct, frozen=True):
    """A Queue, Flavor or Topology as listed. `spec` and `status` are plain data."""

    metadata: ConfigMeta
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """All config objects at one moment, by kind."""

    queues: tuple[ConfigObject, ...] = ()
    flavors: tuple[ConfigObject, ...] = ()
    topologies: tuple[ConfigObject, ...] = ()

    def items(self) -> tuple[tuple[str, ConfigObject], ...]:
        """(plural, object) of all."""
        return tuple((plural, item) for plural in PLURALS for item in getattr(self, plural))

    @property
    def generations(self) -> dict[str, int]:
        """Generation by uid; equal ones say that nothing was created, changed or deleted."""
        return {item.metadata.uid: item.metadata.generation for _, item in self.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSet:
    """The wanted configuration, and which object says what.

    `document` prunes: what no object describes any more is to go. `flavors` is () where there is no Flavor
    object; `topology` is None where there is none. `wrong`: problems by object uid; while there is one, nothing
    is to be applied. `owners`: object uid by field prefix of the document, e.g. `queues.root.research`.
    """

    document: TreeDocument
    wrong: Mapping[str, tuple[FieldProblem, ...]] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)

    def owner(self, problem: FieldProblem) -> str | None:
        """Uid of the object that a problem of the document is about; None where no object says it."""
        at, best = problem.field, ""
        for prefix in self.owners:
            inside = at == prefix or at.startswith((f"{prefix}.", f"{prefix}["))
            if inside and len(prefix) > len(best):
                best = prefix
        return self.owners.get(best)


def config_set(listed: Listed) -> ConfigSet:
    """Judge and gather. Objects that are being deleted count as gone."""
    wrong: dict[str, list[FieldProblem]] = {}
    owners: dict[str, str] = {}
    queues: list[Queue] = []
    flavors: list[Flavor] = []
    topology: Topology | None = None

    def claim(prefix: str, item: ConfigObject, *, called: str) -> bool:
        """Whether this object is the (oldest) one to say it."""
        if prefix not in owners:
            owners[prefix] = item.metadata.uid
            return True
        hint = "delete one of the two"
        problem = FieldProblem(field="spec", message=f"an older object already describes {called}", hint=hint)
        wrong.setdefault(item.metadata.uid, []).append(problem)
        return False

    for item in _oldest_first(listed.queues):
        path = str(item.spec.get("path", ""))
        body = {key: value for key, value in item.spec.items() if key != "path"}
        if claim(f"queues.{path}", item, called=f"queue {path}"):
            try:
                queues.append(parse_queue(path, body))
            except InvalidInput as error:
                wrong.setdefault(item.metadata.uid, []).extend(error.problems)
    for item in sorted(_oldest_first(listed.flavors), key=lambda i: i.metadata.name):
        owners[f"flavors.{item.metadata.name}"] = item.metadata.uid
        try:
            body = {**item.spec, "name": item.metadata.name}
            flavors.append(parse_flavor(body, at=f"flavors.{item.metadata.name}"))
        except InvalidInput as error:
            wrong.setdefault(item.metadata.uid, []).extend(error.problems)
    for item in _oldest_first(listed.topologies):
        if claim("topology", item, called="the topology"):
            try:
                topology = parse_topology(item.spec)
            except InvalidInput as error:
                wrong.setdefault(item.metadata.uid, []).extend(error.problems)
    document = TreeDocument(queues=tuple(queues), prune=True, flavors=tuple(flavors), topology=topology)
    problems = {uid: tuple(found) for uid, found in wrong.items()}
    return ConfigSet(document=document, wrong=problems, owners=owners)


def _oldest_first(items: Iterable[ConfigObject]) -> Sequence[ConfigObject]:
    present = [item for item in items if item.metadata.deletion_timestamp is None]
    return sorted(present, key=lambda item: (item.metadata.creation_timestamp, item.metadata.name))

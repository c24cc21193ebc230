"""Manifests of other queueing systems as the import reads them, and what it tells."""

from __future__ import annotations

from queuer.cli.imports import load
from queuer.domain.document import export
from queuer.domain.queue import QueueTree
from queuer.imports.records import Fate, Imported, Manifest


def manifests(text: str) -> list[Manifest]:
    """The objects of a YAML text."""
    bodies = load(text.encode(), "given.yaml")
    return [Manifest(file="given.yaml", document=n, body=body) for n, body in enumerate(bodies, 1) if body]


def told(imported: Imported, fate: Fate) -> list[str]:
    """The findings of one fate, as `about: text`."""
    return [f"{found.about}: {found.text}" for found in imported.findings if found.fate is fate]


def rows(imported: Imported, path: str) -> list[str]:
    """The quota rows of a queue: `flavor resource guaranteed/limit/lend`, base units."""
    queue = QueueTree.of(imported.document.queues)[path]
    return [f"{r.flavor} {r.resource} {r.guaranteed}/{r.limit}/{r.lend}" for r in queue.quota]


def routes(imported: Imported, path: str = "root") -> list[dict[str, object]]:
    """The placement rules of a queue."""
    found: list[dict[str, object]] = export(imported.document)["queues"][path].get("placement", [])
    return found

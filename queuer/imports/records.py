"""Every import reads manifests, and answers a tree and findings about each object and field.

A finding says the fate of one thing with its numbers: mapped, approximated, without an equal, or refused. Nothing of
the input is dropped without one: `Findings.open` tells fields that an import does not know.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from queuer.domain.document import TreeDocument
from queuer.domain.errors import InvalidInput
from queuer.domain.fields import Problems, Reader
from queuer.domain.nodes import Flavor, Topology
from queuer.domain.quantity import format_quantity, parse_quantity
from queuer.domain.queue import MAX_PATH, ROOT, Queue, QueueTree, QuotaRow

Account = tuple[str | None, str]
"""(flavor, resource); flavor None = any flavor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One object of the input. `document`: its number in the file, from 1."""

    file: str
    document: int
    body: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Its kind, empty where it has none."""
        return str(self.body.get("kind") or "")

    @property
    def group(self) -> str:
        """Its API group, empty for the core."""
        return str(self.body.get("apiVersion") or "").rpartition("/")[0]

    def _meta(self, key: str) -> Any:
        meta = self.body.get("metadata")
        return meta.get(key) if isinstance(meta, Mapping) else None

    @property
    def name(self) -> str:
        """Its name, empty where it has none."""
        return str(self._meta("name") or "")

    @property
    def namespace(self) -> str:
        """Its namespace, `default` where it names none."""
        return str(self._meta("namespace") or "default")

    def labels(self, key: str = "labels") -> dict[str, str]:
        """Its labels, or annotations."""
        found = self._meta(key)
        return {str(k): str(v) for k, v in found.items()} if isinstance(found, Mapping) else {}

    @property
    def place(self) -> str:
        """The object as an error names it."""
        return f"{self.file}, document {self.document}, {self.kind} {self.name}".rstrip()


class Fate(StrEnum):
    """How an import took an object or a field."""

    MAPPED = "mapped"
    APPROXIMATED = "approximated"
    NO_EQUAL = "no equal"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The fate of an object, or of a field of it. `hint`: the nearest way."""

    fate: Fate
    about: str
    text: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A valid tree, the fate of everything, and the commands that the tree cannot replace."""

    document: TreeDocument
    findings: tuple[Finding, ...]
    commands: tuple[str, ...] = ()


@dataclass(slots=True)
class Findings:
    """Collects findings, commands, and faults of the input, while an import reads."""

    problems: Problems = field(default_factory=Problems)
    found: list[Finding] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)

    def tell(self, fate: Fate, about: str, text: str, hint: str = "") -> None:
        """Note the fate of one thing, once."""
        finding = Finding(fate=fate, about=about, text=text, hint=hint)
        if finding not in self.found:
            self.found.append(finding)

    def open(self, value: Any, *, at: str, about: str, known: Collection[str]) -> Reader:
        """A reader of a mapping. Fields beyond `known` are told; null reads as absent."""
        found = {} if value is None else value
        if isinstance(found, Mapping):
            found = {key: each for key, each in found.items() if each is not None}
        keys = tuple(map(str, found)) if isinstance(found, Mapping) else ()
        for key in keys:
            if key not in known:
                self.tell(Fate.NO_EQUAL, about, f"field {key} is not known to this import", "")
        return Reader(found, at=at, known=keys, problems=self.problems)

    def spec(self, manifest: Manifest, *, known: Collection[str]) -> Reader:
        """A reader of the manifest's spec."""
        about = f"{manifest.kind} {manifest.name}"
        if not manifest.name:
            self.problems.note(f"{manifest.place} metadata.name", "is missing", "name the object")
        return self.open(manifest.body.get("spec"), at=f"{manifest.place} spec", about=about, known=known)

    def amounts(self, reader: Reader, key: str) -> dict[str, int]:
        """A resource list in base units; absent = {}."""
        value = reader.values.get(key)
        if value is not None and not isinstance(value, Mapping):
            self.problems.note(reader.path(key), "a mapping of resources is needed", "write {cpu: 8}")
        listed = value.items() if isinstance(value, Mapping) else ()
        read = {
            str(name): self.amount(each, str(name), reader.path(f"{key}.{name}")) for name, each in listed
        }
        return {name: amount for name, amount in read.items() if amount is not None}

    def amount(self, value: Any, resource: str, at: str) -> int | None:
        """An amount in base units, None where it is none."""
        found: int | None = self.problems.attempt(lambda: parse_quantity(value, resource=resource, field=at))
        return found

    def done(
        self,
        queues: Iterable[Queue],
        *,
        flavors: tuple[Flavor, ...] | None = None,
        topology: Topology | None = None,
    ) -> Imported:
        """The answer. Raises InvalidInput where the input was wrong or its tree is none of ours."""
        self.problems.settle()
        tree = tuple(queues)
        try:
            QueueTree.of(tree)
        except InvalidInput as error:
            hint = "change the object of that name before the import"
            raise InvalidInput(*(p if p.hint else replace(p, hint=hint) for p in error.problems)) from error
        document = TreeDocument(queues=tree, flavors=flavors, topology=topology)
        return Imported(document=document, findings=tuple(self.found), commands=tuple(self.commands))


def segment(name: str) -> str:
    """A name as a part of a queue path."""
    return re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-") or "queue"


def free_name(wanted: str, taken: Collection[str]) -> str:
    """The name, with a number where it is taken."""
    numbered = (wanted if n == 1 else f"{wanted}-{n}" for n in range(1, len(taken) + 2))
    return next(name for name in numbered if name not in taken)


def name_in(reader: Reader, *keys: str) -> str | None:
    """The first name that one of these fields gives. "" reads as absent, as Kubernetes takes it."""
    return next((reader.text(key) for key in keys if reader.values.get(key) not in (None, "")), None)


def child_path(parent: str, name: str, taken: Collection[str], *, about: str, findings: Findings) -> str:
    """The path of a queue below `parent`; told where the name cannot stay. A path too long is a problem."""
    path = free_name(f"{parent}.{segment(name)}", taken)
    if path.rpartition(".")[2] != name:
        findings.tell(Fate.APPROXIMATED, about, f"is called {path}", "queue paths are lower case, and unique")
    if len(path) > MAX_PATH:
        hint = "shorten the names of the object and of those above it"
        findings.problems.note(about, f"{path} has {len(path)} characters, {MAX_PATH} at most", hint)
    return path


def text_of(amount: int, resource: str) -> str:
    """`8 nvidia.com/gpu`."""
    return f"{format_quantity(amount, resource=resource)} {resource}"


def consistent(queues: Iterable[Queue], findings: Findings) -> Iterator[Queue]:
    """The queues with guarantees that fit: below their limit, and the children's inside the parent's. Told with both
    numbers where one is changed.
    """
    left = sorted(queues, key=lambda queue: -queue.path.count("."))
    totals: dict[tuple[str, Account], int] = {}
    for queue in left:
        rows = []
        for row in queue.quota:
            account = (row.flavor, row.resource)
            below = totals.get((queue.path, account), 0)
            fit = row.guaranteed
            if fit is not None and fit < below:
                fit = below
                _told(findings, queue, row, fit, "children are guaranteed as much")
            if fit is not None and row.limit is not None and fit > row.limit:
                limit = max(row.limit, below)
                fit = min(fit, limit)
                _told(findings, queue, row, fit, f"its limit is {text_of(row.limit, row.resource)}")
                row = replace(row, limit=limit)
            lend = None if row.lend is None or fit is None else min(row.lend, fit)
            rows.append(replace(row, guaranteed=fit, lend=lend))
        found = {(row.flavor, row.resource): row.guaranteed for row in rows}
        accounts = {account for path, account in totals if path == queue.path} | found.keys()
        for account in accounts:
            guaranteed = found.get(account)
            counts = totals.get((queue.path, account), 0) if guaranteed is None else guaranteed
            above = (queue.parent or "", account)
            totals[above] = totals.get(above, 0) + counts
        yield replace(queue, quota=tuple(rows))


def _told(findings: Findings, queue: Queue, row: QuotaRow, fit: int, why: str) -> None:
    was, now = text_of(row.guaranteed or 0, row.resource), text_of(fit, row.resource)
    findings.tell(Fate.APPROXIMATED, queue.path, f"guaranteed {was} became {now}: {why}")


def nothing_found(kinds: str, command: str) -> InvalidInput:
    """The error of an input without any object that is meant."""
    return InvalidInput.at("input", f"holds no {kinds}", command)


def opt_in(namespaces: Iterable[str], findings: Findings) -> None:
    """The command that hands the namespaces' jobs to the placement rules of root."""
    if names := shlex.join(sorted(set(namespaces))):
        labels = f"queuer.dev/managed=true queuer.dev/default-queue={ROOT}"
        findings.commands.append(f"kubectl label namespace {names} {labels}")


def bound(namespaces: Collection[str], findings: Findings) -> tuple[str, ...]:
    """The namespaces of a system whose queues name none: those that the administrator gives, for the whole tree."""
    if not namespaces:
        text = "queues name no namespaces there; here nobody may use a queue without any"
        findings.tell(
            Fate.NO_EQUAL, "all queues", text, "give --namespace, once for each, or write `namespaces`"
        )
    return tuple(sorted(set(namespaces)))

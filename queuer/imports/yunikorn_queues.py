"""The queues of a YuniKorn partition, one by one: amounts, who may submit, limits by user, and properties.

Access adds up from the root down: whoever may use a queue may use all below it. So each leaf here names everybody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from queuer.domain.fields import Reader
from queuer.domain.queue import ROOT, Access, PerUser, Policy, Queue, QuotaRow
from queuer.imports.records import Fate, Findings, child_path, text_of

_QUEUE = (
    "name", "parent", "resources", "maxapplications", "properties", "adminacl", "submitacl", "childtemplate", "queues",
    "limits",
)  # fmt: skip
_LIMIT = ("limit", "users", "groups", "maxresources", "maxapplications")
_RESOURCES = {"vcore": "cpu"}
"""Resources that YuniKorn calls by another name."""
_SORTS = {
    "fair": "application.sort.policy fair: jobs of one queue go by priority, then by submit time",
    "stateaware": "application.sort.policy stateaware: a gang starts whole, so jobs need no turns",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Users and groups that may use a queue, by its own and all higher ACLs."""

    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    everybody: bool = False

    def with_acl(self, text: str) -> Members:
        """These and whom an ACL names: `user,user group,group`, or `*`."""
        users, _, groups = text.partition(" ")
        named = [frozenset(filter(None, part.strip().split(","))) for part in (users, groups)]
        return Members(
            users=self.users | named[0],
            groups=self.groups | named[1],
            everybody=self.everybody or any("*" in part for part in named),
        )


@dataclass(slots=True, kw_only=True)
class Tree:
    """The queues by path here. `paths`: these by YuniKorn's names. `templates`: rows for children that rules create."""

    found: Findings
    queues: dict[str, Queue] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    templates: dict[str, tuple[QuotaRow, ...]] = field(default_factory=dict)
    _members: dict[str, Members] = field(default_factory=dict)

    def read(self, item: Any, *, at: str, parent: str = "", above: Members | None = None) -> None:
        """Take over a queue and all below it. `parent`: YuniKorn's name of the queue above."""
        known = found_name(item)
        spec = self.found.open(item, at=at, about=f"Queue {known}", known=_QUEUE)
        name = (spec.text("name") if spec.need("name") else None) or ""
        theirs = f"{parent}.{name.lower()}".lstrip(".")
        about = f"Queue {theirs}"
        path = self.add(theirs, about=about)
        rows = tuple(self._rows(spec, about))
        self.queues[path] = Queue(path=path, quota=rows, policy=self._policy(spec, about, path))
        self.limits(path, spec, about=about)
        self._note(spec, about, path)
        members = above or Members()
        for key in ("adminacl", "submitacl"):
            members = members.with_acl(str(spec.values.get(key) or ""))
        self._members[path] = members
        amounts = ", ".join(text_of(row.guaranteed, row.resource) for row in rows if row.guaranteed)
        self.found.tell(Fate.MAPPED, about, f"{path}, guaranteed {amounts or 'nothing'}")
        for n, child in enumerate(spec.items("queues")):
            self.read(child, at=f"{spec.path('queues')}[{n}]", parent=theirs, above=members)

    def add(self, theirs: str, *, about: str) -> str:
        """An empty queue for a name of YuniKorn; its path here. A queue above it must be there."""
        parent, _, name = theirs.rpartition(".")
        path = ROOT
        if theirs != ROOT:
            path = child_path(self.paths[parent], name, self.queues, about=about, findings=self.found)
        self.paths[theirs] = path
        self.queues[path] = Queue(path=path, quota=self.templates.get(path.rpartition(".")[0], ()))
        self._members[path] = self._members.get(path.rpartition(".")[0], Members())
        return path

    def limits(self, path: str, spec: Reader, *, about: str) -> None:
        """Take over the limits by user; those for single users or groups are told."""
        for n, item in enumerate(spec.items("limits")):
            row = self.found.open(item, at=f"{spec.path('limits')}[{n}]", about=about, known=_LIMIT)
            users, groups = row.texts("users"), row.texts("groups")
            per_user = PerUser(
                limits=self._amounts(row, "maxresources"), max_running=row.whole("maxapplications") or None
            )
            if users == ("*",) and not groups:
                self.queues[path] = replace(self.queues[path], access=Access(per_user=per_user))
                self.found.tell(Fate.MAPPED, about, f"limit for users *: {_bounds(per_user)}, for each user")
                continue
            who = [
                f"{kind} {', '.join(names)}"
                for kind, names in (("users", users), ("groups", groups))
                if names
            ]
            text = f"limit for {' and '.join(who)}: {_bounds(per_user)}"
            hint = (
                f"access.perUser bounds each user alike; make a queue for them below {path}, with this limit"
            )
            self.found.tell(Fate.NO_EQUAL, about, text, hint)

    def whole(self) -> Iterator[Queue]:
        """All queues, with who may use each leaf."""
        inner = {path.rpartition(".")[0] for path in self.queues}
        for path, queue in self.queues.items():
            members = self._members[path]
            if path in inner or members.everybody:
                yield queue
                continue
            users, groups = sorted(members.users), sorted(members.groups)
            if not (users or groups):
                text = f"no ACL lets anybody submit to it; here everybody of the namespaces of {path} may"
                hint = f"write access: {{groups: […]}} on {path}"
                self.found.tell(Fate.APPROXIMATED, f"Queue {path}", text, hint)
            access = replace(queue.access, users=tuple(users), groups=tuple(groups))
            yield replace(queue, access=access)

    def _rows(self, spec: Reader, about: str, key: str = "resources") -> Iterator[QuotaRow]:
        at = spec.path(key)
        part = self.found.open(spec.values.get(key), at=at, about=about, known=("guaranteed", "max"))
        guaranteed, limits = self._amounts(part, "guaranteed"), self._amounts(part, "max")
        for resource in sorted(guaranteed.keys() | limits.keys()):
            yield QuotaRow(resource=resource, guaranteed=guaranteed.get(resource), limit=limits.get(resource))

    def _amounts(self, reader: Reader, key: str) -> dict[str, int]:
        """Amounts in base units by the resource's name here. YuniKorn allows a blank before the unit."""
        given = reader.values.get(key)
        if isinstance(given, Mapping):
            named = {
                _RESOURCES.get(str(name), str(name)): "".join(each.split()) if isinstance(each, str) else each
                for name, each in given.items()
            }
            reader = Reader({key: named}, at=reader.at, known=(key,), problems=reader.problems)
        return self.found.amounts(reader, key)

    def _policy(self, spec: Reader, about: str, path: str) -> Policy:
        """The policy of its properties; each property without an equal is told."""
        policy, given = Policy(), spec.values.get("properties")
        said = self.found.open(given, at=spec.path("properties"), about=about, known=given or ())
        for key, value in said.values.items():
            match key, str(value).lower():
                case ("preemption.policy", "disabled"):
                    policy = Policy(reclaim=False)
                case ("preemption.policy", "fence"):
                    text = (
                        "preemption.policy fence: queues below it take back guarantees from outside it, too"
                    )
                    self.found.tell(
                        Fate.NO_EQUAL, about, text, f"policy {{reclaim: false}} on {path} takes none"
                    )
                case ("application.sort.policy", sort) if sort in _SORTS:
                    hint = f"make a queue below {path} for each team, which share by weight"
                    self.found.tell(Fate.NO_EQUAL, about, _SORTS[sort], hint)
                case ("application.sort.priority", "disabled"):
                    text = "application.sort.priority disabled: priority orders the jobs of a queue"
                    hint = f"access.maxPriority on {path} bounds it"
                    self.found.tell(Fate.NO_EQUAL, about, text, hint)
                case ("priority.offset" | "priority.policy", _):
                    text = f"{key} {value}: a queue does not change the priority of its jobs"
                    self.found.tell(Fate.NO_EQUAL, about, text, "give jobs a PriorityClass of another value")
                case ("preemption.delay" | "quota.preemption.delay", _):
                    text = f"{key} {value}: a guarantee is taken back at the job's turn"
                    self.found.tell(
                        Fate.NO_EQUAL, about, text, "policy.minRuntime protects who has just started"
                    )
                case (
                    ("preemption.policy" | "application.sort.priority" | "application.sort.policy"),
                    "default" | "enabled" | "fifo",
                ):
                    pass  # as here
                case _:
                    self.found.tell(
                        Fate.NO_EQUAL, about, f"property {key} {value} is not known to this import"
                    )
        return policy

    def _note(self, spec: Reader, about: str, path: str) -> None:
        """Tell what else of a queue has no equal; keep its template."""
        if most := spec.whole("maxapplications"):
            text = f"maxapplications {most}: a queue bounds amounts, not how many jobs run"
            self.found.tell(Fate.NO_EQUAL, about, text, f"a row with a limit of pods on {path}")
        if spec.flag("parent") and not spec.items("queues"):
            text = f"an inner queue without queues: {path} takes jobs itself until it has some"
            self.found.tell(Fate.APPROXIMATED, about, text, "write the queues that placement rules created")
        if spec.said("childtemplate"):
            known = ("maxapplications", "properties", "resources")
            part = self.found.open(
                spec.values["childtemplate"], at=spec.path("childtemplate"), about=about, known=known
            )
            self.templates[path] = tuple(self._rows(part, about))
            text = "childtemplate: its amounts go to the queues that this import makes below it, and to no later ones"
            self.found.tell(Fate.APPROXIMATED, about, text, "copy them to each queue that you add")


def found_name(item: Any) -> str:
    """The name of a queue's body, for what is told of it."""
    return str(item.get("name", "")) if isinstance(item, Mapping) else ""


def _bounds(bounds: PerUser) -> str:
    amounts = [text_of(amount, resource) for resource, amount in bounds.limits.items()]
    return ", ".join([*amounts, *([f"{bounds.max_running} jobs"] if bounds.max_running else [])]) or "nothing"

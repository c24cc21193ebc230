"""The rights of a caller, in the words of Kubernetes RBAC: a verb on a virtual resource of the group `queuer.dev`.

`queues` and `cycles` belong to the cluster, `workloads` to namespaces. A right on a queue holds for all below it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from starlette.requests import Request

from queuer.domain import grants
from queuer.domain.errors import QueuerError

GROUP = "queuer.dev"
AT_ONCE = 16
"""Rights of one question about many names that are asked for at the same time; most are known already."""


class Resource(StrEnum):
    """A virtual resource of the group `queuer.dev`."""

    QUEUES = "queues"
    WORKLOADS = "workloads"
    CYCLES = "cycles"
    AUDIT = "audit"


class Verb(StrEnum):
    """The deed."""

    GET = "get"
    UPDATE = "update"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """`namespace` empty = in all of them; `name` empty = whatever its name."""

    verb: Verb
    resource: Resource
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        named = f" {self.name}" if self.name else ""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}.{GROUP}{named}{where}"


def administering(queue: str) -> Right:
    """The right to change a queue."""
    return Right(verb=Verb.UPDATE, resource=Resource.QUEUES, name=queue)


def reading(namespace: str = "") -> Right:
    """The right to see the jobs of a namespace in full, "" = those of all."""
    return Right(verb=Verb.GET, resource=Resource.WORKLOADS, namespace=namespace)


def updating(namespace: str) -> Right:
    """The right to hold, release and prioritise the jobs of a namespace."""
    return Right(verb=Verb.UPDATE, resource=Resource.WORKLOADS, namespace=namespace)


_SERVICE_ACCOUNT = "system:serviceaccount:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A user as Kubernetes knows it. `extra`: what its authenticator added, and an authorizer may ask for."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def party(self) -> str:
        """The name under which limits of a caller count: service accounts of one namespace are one.

        A writer in a namespace makes as many of them as it likes.
        """
        return self.name.rpartition(":")[0] if self.name.startswith(_SERVICE_ACCOUNT) else self.name


class Unauthenticated(QueuerError):
    """It is not known who asks."""

    code = "unauthenticated"


class Forbidden(QueuerError):
    """The caller lacks a right."""

    code = "forbidden"

    def __init__(self, caller: Caller, right: Right) -> None:
        super().__init__(
            f"{caller.name} may not {right}", hint=f"an admin grants it: {_grant(caller, right)}"
        )
        self.caller = caller
        self.right = right


def _grant(caller: Caller, right: Right) -> str:
    """The command that gives a caller a right, by the roles of the chart; the page that says how, where none has it."""
    if right.resource is Resource.AUDIT:
        return "docs/access.md"
    if right.resource is Resource.QUEUES and right.name:
        return grants.queue_admin(right.name, caller.name)
    reads = right.verb is Verb.GET
    role = (
        "queuer-viewer"
        if reads
        else "queuer-user"
        if right.resource is Resource.WORKLOADS
        else "queuer-admin"
    )
    return grants.binding(role, caller.name, namespace=right.namespace)


class Identity(Protocol):
    """Callers and their rights: an app has one of these."""

    async def caller(self, request: Request) -> Caller:
        """The caller of this request. Raises Unauthenticated, or Unavailable where that cannot be found out."""

    async def allows(self, caller: Caller, right: Right) -> bool:
        """Whether the caller has the right. Raises Unavailable where that cannot be found out."""


class Anyone:
    """The identity of an open server, which serves loopback only: every client is one user who may do everything."""

    async def caller(self, _request: Request) -> Caller:
        """Always the same."""
        return Caller(name="unauthenticated")

    async def allows(self, _caller: Caller, _right: Right) -> bool:
        """Everything."""
        return True


@dataclass(frozen=True, slots=True)
class Asker:
    """A caller together with who decides what it may: what routes ask."""

    caller: Caller
    identity: Identity

    async def may(self, right: Right) -> bool:
        """Whether the caller has the right."""
        return await self.identity.allows(self.caller, right)

    async def require(self, right: Right) -> None:
        """Raise Forbidden unless the caller has the right."""
        if not await self.may(right):
            raise Forbidden(self.caller, right)

    async def administers(self, path: str) -> bool:
        """Whether the caller may change a queue: by a right on all queues, on it, or on one above it."""
        parts = path.split(".")
        names = ("", *(".".join(parts[:n]) for n in range(len(parts), 0, -1)))
        for name in names:
            if await self.may(administering(name)):
                return True
        return False

    async def require_administers(self, path: str) -> None:
        """Raise Forbidden unless the caller may change the queue."""
        if not await self.administers(path):
            raise Forbidden(self.caller, administering(path))

    async def administered(self, paths: Iterable[str]) -> frozenset[str]:
        """Those queues that the caller may change."""
        return await _those(frozenset(paths), self.administers)

    async def reads_everything(self) -> bool:
        """Whether the jobs of all namespaces are shown in full."""
        return await self.may(reading())

    async def readable(self, namespaces: Iterable[str]) -> frozenset[str]:
        """Those namespaces whose jobs the caller sees in full; of others it sees counts and amounts."""
        asked = frozenset(namespaces)
        if await self.reads_everything():
            return asked
        return await _those(asked, lambda namespace: self.may(reading(namespace)))

    async def updatable(self, namespaces: Iterable[str]) -> frozenset[str]:
        """Those namespaces whose jobs the caller may hold, release and prioritise."""
        asked = frozenset(namespaces)
        if not asked or await self.may(updating("")):
            return asked
        return await _those(asked, lambda namespace: self.may(updating(namespace)))

    async def reads(self, namespace: str) -> bool:
        """Whether the jobs of one namespace are shown in full."""
        return await self.reads_everything() or await self.may(reading(namespace))


async def _those(names: Iterable[str], holds: Callable[[str], Awaitable[bool]]) -> frozenset[str]:
    """Those names of which it holds, some asked at once. Raises the first failure by itself, as if one were asked."""
    left, found = iter(names), set[str]()

    async def answer() -> None:
        for name in left:
            if await holds(name):
                found.add(name)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(answer())
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return frozenset(found)


def source(request: Request) -> str:
    """The audit's name for the way that a request came: `cli` or `api`."""
    return "cli" if request.headers.get("user-agent", "").startswith("queuer/") else "api"


# Users and groups that the configuration names are told to who administers the queue, all else to everybody.

_PEOPLE = ("user", "group")


def names_people(access: Mapping[str, Any], placement: Iterable[Mapping[str, Any]]) -> bool:
    """Whether users or groups are in it. `access` lists names, under every key."""
    listed = any(isinstance(value, list | tuple) and value for value in access.values())
    return listed or any(key in rule for rule in placement for key in _PEOPLE)


def nameless(said: Mapping[str, Any]) -> dict[str, Any]:
    """A queue as plain data (`access`, `placement`) without the people that it names."""
    found = dict(said)
    if "access" in said:
        found["access"] = {key: value for key, value in said["access"].items() if not isinstance(value, list)}
    if "placement" in said:
        found["placement"] = [rule for rule in said["placement"] if not any(key in rule for key in _PEOPLE)]
    return found


def nameless_rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    """A placement rule as plain data without the people that it names."""
    return {key: value for key, value in rule.items() if key not in _PEOPLE}


async def masked_for(asker: Asker, queues: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Queues by path as this caller may have them. It asks for rights, so hold no connection."""
    naming = [
        path
        for path, said in queues.items()
        if names_people(said.get("access", {}), said.get("placement", ()))
    ]
    own = await asker.administered(naming)
    return {
        path: nameless(said) if path in naming and path not in own else dict(said)
        for path, said in queues.items()
    }

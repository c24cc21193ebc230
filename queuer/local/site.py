"""The site that the checks of `queuer doctor` look at, and the findings that they yield.

A check looks at one part of a `Site` and yields findings. It raises `Unseen` where it cannot look. The site opens the
cluster once, for all checks of `queuer.local.cluster_checks`; the command line adds the API and the database. The
Kubernetes client is loaded when the cluster is opened, so that a machine with the command line alone can ask the rest.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from queuer.domain.document import TreeDocument
from queuer.domain.errors import QueuerError
from queuer.domain.keys import QUEUE
from queuer.kube.operators import USUAL, Operators
from queuer.kube.resources import SYSTEM_NAMESPACE
from queuer.kube.versions import Form

if TYPE_CHECKING:
    from queuer.kube.client import Client
    from queuer.kube.kinds import JobKind

ANSWER_SECONDS = 10.0
RIGHTS = "let an administrator run it, or name their kubeconfig: --kubeconfig FILE"
"""The fix of a check for which the caller lacks a right."""

Labels = Mapping[str, Mapping[str, str]]
"""Labels of nodes or namespaces, by name."""


class Health(StrEnum):
    """`warning`: legal, and probably not meant; `unknown`: the check could not look, so it says nothing of the part."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about a part, and its fix: a command or an act, "" where there is nothing to mend."""

    health: Health
    text: str
    fix: str = ""


ok, odd, wrong, unknown = (partial(Finding, health) for health in Health)


class Unseen(Exception):
    """A check cannot look. Its arguments are the text and the fix of the finding that says so."""


def not_installed(error: ModuleNotFoundError) -> Unseen:
    """A check needs a package of the servers."""
    return Unseen(f"the package {error.name} is not installed here", "pip install 'queuer[server]'")


def status_of(error: QueuerError) -> int | None:
    """The HTTP status of an answer of the API server; None where it did not answer."""
    return getattr(error, "status", None)


def unreadable(what: str, error: QueuerError) -> Unseen:
    """The API server did not let the check look, or could not."""
    return Unseen(f"{what}: {error}", RIGHTS if status_of(error) in (401, 403) else "is the API server well?")


@dataclass(slots=True, kw_only=True)
class Site:
    """The cluster and the tree that checks look at. Both are None until a check has opened them.

    `home`: the namespace in which Queuer is installed. `operators`: the accounts that its policies trust.
    `upgrade`: the command with which Helm writes the objects of Queuer anew. It is "" where no release has them, and
    None until a check has found Queuer installed.
    """

    kubeconfig: Path | None = None
    home: str = SYSTEM_NAMESPACE
    operators: Operators = field(default_factory=lambda: USUAL)
    tree: TreeDocument | None = None
    cluster: Client | None = None
    form: Form = Form.FULL
    upgrade: str | None = None
    offsets: dict[str, float] = field(default_factory=dict)
    """Seconds by which other clocks are ahead of this machine's."""
    _runner: asyncio.Runner = field(default_factory=asyncio.Runner)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        self._stack.enter_context(self._runner)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def compare_clock(self, name: str, clock: Callable[[], float | None]) -> None:
        """Note how far a clock is ahead; a clock that does not answer is left out."""
        before = time.time()
        if (there := clock()) is not None:
            self.offsets[name] = there - (before + time.time()) / 2

    def open_cluster(self) -> None:
        """Connect to the cluster, and note its clock. Raises Unseen without a cluster or its client; QueuerError."""
        if self.kubeconfig is None and "KUBERNETES_SERVICE_HOST" not in os.environ:
            text = "no cluster was named, so nothing inside it was looked at"
            raise Unseen(text, "--kubeconfig, or KUBECONFIG")
        try:
            from queuer.kube.client import Client
            from queuer.kube.config import load_access
        except ModuleNotFoundError as error:
            raise not_installed(error) from error
        run = self._runner.run
        client = Client(run(load_access(self.kubeconfig)), timeout=ANSWER_SECONDS)
        run(client.__aenter__())
        self._stack.callback(lambda: run(client.__aexit__(None, None, None)))
        self.compare_clock("the cluster", lambda: run(client.server_time()))
        self.cluster = client

    def ask_version(self) -> Form:
        """Note the form that Queuer has in the cluster. Raises KubernetesTooOld, a QueuerError."""
        assert self.cluster is not None
        self.form = self._runner.run(self.cluster.form())
        return self.form

    def ask(self, questions: Iterable[Coroutine[Any, Any, bytes]]) -> list[Any]:
        """The decoded answers to all questions at once; a QueuerError stands in the place of an answer that failed."""

        async def ask(question: Coroutine[Any, Any, bytes]) -> Any:
            try:
                return json.loads(await question)
            except QueuerError as error:
                return error

        async def ask_all() -> list[Any]:
            return await asyncio.gather(*map(ask, questions))

        return self._runner.run(ask_all())

    def get(self, path: str) -> Any:
        """An object; None where there is none. Raises QueuerError."""
        assert self.cluster is not None
        (answer,) = self.ask([self.cluster.get(path)])
        if isinstance(answer, QueuerError):
            if status_of(answer) == HTTPStatus.NOT_FOUND:
                return None
            raise answer
        return answer

    def objects(self, path: str, *, selector: str = "") -> list[bytes]:
        """All objects below a path, as they are sent. Raises QueuerError."""
        cluster = self.cluster
        assert cluster is not None

        async def read() -> list[bytes]:
            pages = [page async for page in cluster.pages(path, selector=selector)]
            return [bytes(item) for page in pages for item in page.items or ()]

        return self._runner.run(read())

    def labelled(self) -> Iterator[tuple[JobKind, list[bytes]]]:
        """By kind of job that the cluster serves, all objects with a queue label. Raises Unseen."""
        from queuer.kube.kinds import KINDS

        for kind in KINDS:
            try:
                yield kind, self.objects(kind.resource.collection, selector=QUEUE)
            except QueuerError as error:
                if status_of(error) != HTTPStatus.NOT_FOUND:
                    raise unreadable(f"{kind.resource.plural} cannot be listed", error) from error

    def labels(self, plural: str) -> Labels:
        """Labels of all `nodes` or `namespaces`. Raises Unseen."""
        try:
            metas = [json.loads(item)["metadata"] for item in self.objects(f"/api/v1/{plural}")]
            return {meta["name"]: meta.get("labels", {}) for meta in metas}
        except QueuerError as error:
            raise unreadable(f"{plural} cannot be listed", error) from error


S = TypeVar("S", bound=Site)


def findings(name: str, check: Callable[[S], Iterator[Finding]], site: S) -> Iterator[tuple[str, Finding]]:
    """The findings of a check, each with its name; `unknown` where it cannot look."""
    try:
        for finding in check(site):
            yield name, finding
    except Unseen as reason:
        yield name, unknown(*reason.args)
    except QueuerError as error:
        yield name, unknown(*unreadable(f"{name} cannot be read", error).args)

"""What `queuer doctor` sees from where it runs: the REST API, this machine's programs, and clocks beside each other."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from queuer import __version__
from queuer.cli.client import Client, CommandFailed, Exit
from queuer.cli.token import CREATE, LOOPBACK
from queuer.domain.document import TreeDocument, parse
from queuer.domain.errors import InvalidInput
from queuer.domain.finding import Finding, odd, ok, unknown, wrong

MOST_SKEW = 5.0
"""Seconds between two clocks. Dates of HTTP have no fraction; a controller is called stale after 30."""


class Api:
    """The API as the caller sees it. `tree`: the configuration, None where it cannot be read."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.tree: TreeDocument | None = None
        self.reachable = False

    def findings(self) -> Iterator[Finding]:
        """What is to be said of it; reads `tree` on the way."""
        try:
            meta = self._client.get("/meta")
        except CommandFailed as error:
            yield wrong("api", error.message, error.hint)
            yield unknown("controller", "only the API says how it is", "mend the API first")
            return
        self.reachable = True
        yield version(meta, self._client.url)
        yield identity(meta, self._client.url)
        yield self._controller()
        # A tree that cannot be had, or is of a newer version, leaves unknown what is compared with it.
        with suppress(CommandFailed, InvalidInput):
            self.tree = parse(self._client.get("/queue-tree"))

    def _controller(self) -> Finding:
        try:
            return controller(self._client.get("/overview")["controller"])
        except CommandFailed as error:
            fix = CREATE if error.exit_code is Exit.FORBIDDEN else error.hint
            return unknown("controller", f"the API does not say how it is: {error.message}", fix)


def version(meta: Mapping[str, Any], url: str) -> Finding:
    """Whether the API is of this version."""
    if meta["version"] == __version__:
        return ok("api", f"{url} answers, version {__version__}")
    text = f"{url} is of version {meta['version']}, this is {__version__}"
    return odd("api", text, f"pip install 'queuer=={meta['version']}', or upgrade the server")


def identity(meta: Mapping[str, Any], url: str) -> Finding:
    """Whether one has to log in."""
    if meta["authentication"]:
        return ok("identity", f"one logs in with {', '.join(meta['authentication'])}")
    fix = "unset QUEUER_AUTH where `queuer serve api` runs"
    if urlsplit(url).hostname in LOOPBACK:
        text = "nobody logs in; whoever can use this machine may change everything"
        return odd("identity", text, fix)
    return wrong("identity", f"nobody logs in: whoever reaches {url} may change everything", fix)


def controller(said: Mapping[str, Any]) -> Finding:
    """Whether somebody decides."""
    if said["state"] in ("leading", "idle"):
        return ok("controller", said["text"])
    fix = "start `queuer serve controller`, or look into its log; here: queuer local up"
    if said["state"] == "away":
        fix = "start the API server of Kubernetes, or mend the way to it: kubectl get --raw /readyz"
    return wrong("controller", said["text"], fix)


def programs(which: Callable[[str], str | None] = shutil.which) -> Iterator[Finding]:
    """Whether `kubectl queuer` works on this machine."""
    if which("kubectl") is None:
        yield odd("kubectl", "kubectl is not on PATH", "install kubectl, or add its directory to PATH")
    elif which("kubectl-queuer") is None:
        text = "kubectl-queuer is not on PATH: `kubectl queuer` does not work"
        yield odd("kubectl", text, "add the directory of the program queuer to PATH")
    else:
        yield ok("kubectl", "kubectl and kubectl-queuer are on PATH")


def ahead(clock: Callable[[], float | None]) -> float | None:
    """Seconds by which a clock is ahead of this machine's; None where it does not answer."""
    before = time.time()
    there = clock()
    return None if there is None else there - (before + time.time()) / 2


def clocks(offsets: Mapping[str, float]) -> Finding:
    """Whether clocks agree. `offsets`: seconds ahead of this machine, by whose clock it is."""
    if not offsets:
        return unknown("clocks", "no other clock could be read", "mend what does not answer first")
    first, last = (pick(offsets, key=offsets.__getitem__) for pick in (min, max))
    skew = offsets[last] - offsets[first]
    if len(offsets) > 1 and skew > MOST_SKEW:
        text = f"the clock of {last} is {skew:.0f} s ahead of that of {first}"
        return wrong("clocks", text, "run NTP (chrony, systemd-timesyncd) on both machines")
    off = max(offsets, key=lambda name: abs(offsets[name]))
    if abs(offsets[off]) > MOST_SKEW:
        text = f"the clock of {off} differs from this machine's by {abs(offsets[off]):.0f} s"
        return odd("clocks", text, "run NTP here: ages that are shown would be wrong")
    return ok("clocks", f"{', '.join(sorted(offsets))} and this machine agree within {MOST_SKEW:.0f} s")

"""Talks to the REST API, and turns what can go wrong into one sentence, what to do about it and an exit code."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from queuer import __version__
from queuer.cli.failures import CommandFailed, Exit, Misused
from queuer.cli.token import CREATE, DEFAULT_API, LOOPBACK, Login, find_login
from queuer.domain.errors import QueuerError
from queuer.domain.variables import Variable

if TYPE_CHECKING:
    import httpx2  # where a request is made it is imported: help and completion from the cache make none

API = Variable(
    name="QUEUER_API", default=DEFAULT_API, form="http address",
    meaning="The server that the command line talks to.",
)  # fmt: skip
TIMEOUT_SECONDS = 30.0
_NOBODY_DECIDES = "Queuer-Controller"
"""The header of every answer while nobody decides."""
LONGEST_PAUSE = 10.0
"""Seconds between two tries to reach a server that is away, at most; the first pause is half a second."""


_AGAIN = "run the same command again: it plans against the tree as it is now"
TELL = "try again in a minute; if it stays so, tell it to who runs Queuer"
"""Said of a server that does not answer well."""
_BY_STATUS = {
    401: (Exit.FORBIDDEN, f"log in: {CREATE}"),
    403: (Exit.FORBIDDEN, ""),
    404: (Exit.NOT_FOUND, ""),
    409: (Exit.CONFLICT, ""),
    412: (Exit.CONFLICT, _AGAIN),
    422: (Exit.USAGE, "mend what is named and run the same command again"),
    500: (Exit.FAILURE, TELL),
    503: (Exit.UNREACHABLE, TELL),
    504: (Exit.TIMEOUT, TELL),
}
"""Exit code and what to do by HTTP status, where the message does not say it."""
_PLAN_ANEW = "make another plan of the document and apply that: queuer plan -f FILE"
_BY_PLACE = {"cycles": "queuer cycles", "queues": "queuer queue ls", "workloads": "queuer jobs -a"}
"""The command that shows what there is, by the first part of an address."""


class Client:
    """A session with one API server. Every method raises CommandFailed.

    It tells the person at the terminal, unless `quiet`, once that nobody decides and once that the server is away.
    """

    def __init__(
        self,
        url: str,
        *,
        login: Login | None = None,
        transport: httpx2.BaseTransport | None = None,
        timeout: float = TIMEOUT_SECONDS,
        quiet: bool = False,
    ) -> None:
        import httpx2

        self._timeout, self._quiet = timeout, quiet
        self._silent, self._failures = False, 0
        self._until: float | None = None
        self.url = url.rstrip("/")
        self._login = login or Login()
        token = {"Authorization": f"Bearer {self._login.token}"} if self._login.token else {}
        # A proxy that is meant for the internet must not stand between us and loopback.
        trust_env = urlsplit(url).hostname not in LOOPBACK
        self._http = httpx2.Client(
            base_url=self.url, timeout=timeout, transport=transport, trust_env=trust_env,
            headers={"Accept": "application/json", "User-Agent": f"queuer/{__version__}", **token},
        )  # fmt: skip

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str] = os.environ, *, timeout: float = TIMEOUT_SECONDS, quiet: bool = False
    ) -> Client:
        """The API named by `QUEUER_API`, by default the one on this machine."""
        url = API.text(environ)
        if urlsplit(url).scheme not in ("http", "https"):
            raise Misused(f"QUEUER_API={url!r} is no http address", next=f"export QUEUER_API={DEFAULT_API}")
        return cls(url, login=find_login(environ), timeout=timeout, quiet=quiet)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def persist(self, until: float = float("inf")) -> None:
        """From now on wait for a server that is away, until this time of `time.monotonic`: for what watches."""
        self._until = until

    def get(self, path: str, **params: str | None) -> Any:
        """The decoded answer to `GET /api/v1{path}`; parameters that are None are left out."""
        given = {k: v for k, v in params.items() if v is not None}
        while True:
            try:
                answer = self.request("GET", path, params=given)
            except CommandFailed as error:
                self._wait_out(error)
                continue
            if self._failures:
                self._say("the server answers again")
                self._failures = 0
            return answer

    def post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        params: Mapping[str, str] | None = None,
        once: bool = False,
    ) -> Any:
        """The decoded answer to a POST of a JSON body. `once`: the server does it once, however often it is sent."""
        key = {"Idempotency-Key": str(uuid.uuid4())} if once else {}
        headers = {"Content-Type": "application/json", **key}
        return self.request("POST", path, params=params, content=json.dumps(body).encode(), headers=headers)

    def _wait_out(self, error: CommandFailed) -> None:
        """Pause, longer each time, where it is worth asking again; else raise it."""
        pause = min(0.5 * 2 ** min(self._failures, 10), LONGEST_PAUSE)
        away = error.exit_code in (Exit.UNREACHABLE, Exit.TIMEOUT)
        if not away or self._until is None or time.monotonic() + pause > self._until:
            raise error
        if not self._failures:
            self._say(f"{error.message}; waiting until it answers")
        self._failures += 1
        time.sleep(pause)

    def _heed(self, answer: Any, said: str | None) -> None:
        """Say it when nobody decides, and when somebody does again: by the answer itself, else by its header."""
        found = answer.get("controller") if isinstance(answer, dict) else None
        if found:
            silent, text = found["state"] not in ("leading", "idle"), found["text"]
            text += "; what is shown is from then" if silent and found["at"] else ""
        else:
            silent, text = said is not None, said or "the controller decides again"
        if silent is not self._silent:
            self._silent = silent
            self._say(f"{'warning: ' if silent else ''}{text}")

    def _say(self, text: str) -> None:
        if not self._quiet:
            from queuer.cli.output import say

            say(text)

    def pages(self, path: str, **params: str | None) -> Iterator[Any]:
        """Every item of a paged list."""
        cursor: str | None = None
        while True:
            page = self.get(path, cursor=cursor, **params)
            yield from page["items"]
            cursor = page["next"]
            if cursor is None:
                return

    def server_time(self) -> float | None:
        """The server's clock, epoch seconds without their fraction; None where it does not answer or say."""
        from email.utils import parsedate_to_datetime

        import httpx2

        try:
            said = self._http.get("/api/v1/meta").headers.get("Date")
        except httpx2.HTTPError:
            return None
        return None if said is None else parsedate_to_datetime(said).timestamp()

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The decoded answer to a request. A failure becomes CommandFailed with the problem's own words."""
        import httpx2

        try:
            response = self._http.request(
                method, f"/api/v1{path}", params=params, content=content, headers=headers
            )
        except httpx2.TimeoutException as error:
            raise CommandFailed(
                f"{self.url} did not answer in {self._timeout:.0f} s",
                hint=TELL,
                next=_look(self.url),
                exit_code=Exit.TIMEOUT,
            ) from error
        except httpx2.HTTPError as error:
            raise CommandFailed(
                f"no Queuer API at {self.url}: {error}",
                hint="start one with `queuer local up`, or name yours: export QUEUER_API=http://HOST:PORT",
                next="queuer local status" if made_here(self.url) else "",
                exit_code=Exit.UNREACHABLE,
            ) from error
        silent = response.headers.get(_NOBODY_DECIDES)
        if response.is_error:
            if silent is not None:
                self._heed(None, silent)
            raise _failure(response, self._login)
        try:
            answer = response.json()
        except ValueError as error:
            raise _stranger(response, Exit.FAILURE) from error
        self._heed(answer, silent)
        return answer


def fetch(path: str, **params: str | None) -> Any:
    """One answer of the API that `QUEUER_API` names."""
    with Client.from_env() as client:
        return client.get(path, **params)


def live_states() -> str:
    """The states of jobs that have not ended, as a filter of the API."""
    from queuer.domain.workload import State

    return ",".join(state for state in State if not state.ended)


def _failure(response: httpx2.Response, login: Login) -> CommandFailed:
    exit_code, hint = _BY_STATUS.get(response.status_code, (Exit.FAILURE, ""))
    place, status, next = (
        response.url.path.removeprefix("/api/v1/").partition("/")[0],
        response.status_code,
        "",
    )
    if response.is_server_error:
        next = _look(str(response.url), log=status == 500)
    elif status == 403:
        next = "queuer whoami"
    elif place == "changesets" and status in (404, 412):  # the same plan would be refused again
        hint = _PLAN_ANEW
    elif status == 404:
        next = _BY_PLACE.get(place, "")
    elif status == 422 and response.request.method == "GET":
        hint = "mend the flag: the same command with --help says what it takes"
    try:
        body = response.json()
        errors, detail, problem = body.get("errors") or [], body["detail"], body.get("code", "")
    except (ValueError, KeyError, AttributeError):
        return _stranger(response, exit_code)
    lines = [_line(error) for error in errors]
    message = "\n  ".join([f"{len(lines)} problems:", *lines]) if len(lines) > 1 else "".join(lines) or detail
    if response.status_code == 401 and login.missing:
        message = f"{message}; {login.missing}"
    if problem == "unavailable":  # the server is well, and has said what it lacks; Kubernetes may be dead
        next = ""
    return CommandFailed(message, hint=hint, next=next, exit_code=exit_code, problem=problem)


def _look(url: str, *, log: bool = False) -> str:
    """Where to look at the servers behind this address, or at the API's `log`. A tenant sees none in a cluster."""
    if not made_here(url):
        return ""
    return "queuer local logs api" if log else "queuer local status"


def made_here(url: str) -> bool:
    """Whether `queuer local` made the server: a port-forward has a loopback address, too."""
    if urlsplit(url).hostname not in LOOPBACK:
        return False
    try:
        from queuer.local.cluster import Cluster
        from queuer.local.stack import default_directory

        made = Cluster.load(default_directory()).queuer_url
    except (ModuleNotFoundError, QueuerError, KeyError):  # no local cluster, or one without an API
        return False
    return urlsplit(url).port == urlsplit(made).port


def _line(error: Mapping[str, str]) -> str:
    """A field's problem with its fix and its place in the document."""
    hint, pointer = error.get("hint"), error.get("pointer")
    text = f"{error['field']}: {error['message']}" + (f" ({hint})" if hint else "")
    return f"{text} at {pointer}" if pointer else text


def _stranger(response: httpx2.Response, exit_code: Exit) -> CommandFailed:
    return CommandFailed(
        f"{response.url} answered {response.status_code}, not as a Queuer API does",
        hint="check QUEUER_API",
        exit_code=exit_code,
    )

"""Requests without a token, over real sockets to the server process, on every route of the app.

Each is answered within a bound, takes a bounded amount of memory, and the server serves afterwards. No cluster is
needed: nobody who sends no token is asked about.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from queuer.api.app import create_app
from queuer.api.http.guard import BODY_SECONDS, READ_METHODS
from queuer.api.server import HEAD_SECONDS
from tests.api.identity import Table, local
from tests.attacks.field import API
from tests.conftest import DatabaseServer

MIB = 1024 * 1024
LARGE, CHUNK = 64 * MIB, 64 * 1024
DEEP = b'{"a":' * 100_000
GROWTH = 32 * MIB
"""What all requests of a test may add to the server's memory, at any time."""
UNREAD = 8 * MIB
"""What of a refused body the kernel may take before the refusal is read."""
ANSWER_SECONDS = 20.0
"""For one request; the machine may be loaded."""
CONNECTIONS = 200
"""Strangers at once."""
KUBECONFIG = {
    "apiVersion": "v1", "kind": "Config", "current-context": "none",
    "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "none", "user": {}}],
    "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
}  # fmt: skip
ABANDONED = [
    (b"", "nothing"),
    (b"GET /api/v1/workloads HTTP/1.1\r\nHost: 127.0", "half a head"),
    (b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /livez", "half a second head"),
]


def routes() -> list[tuple[str, str]]:
    """Method and an address of every route, and of what no route takes."""
    url = "postgresql+psycopg://nobody@127.0.0.1:1/none"
    app = create_app(create_async_engine(url), local(url), Table())
    found = {
        (method, re.sub(r"\{[^}]+\}", "x", route.path))
        for route in _flat(app.routes)
        for method in route.methods
    }
    return sorted(found | {("POST", f"{API}/nothing"), ("GET", "/nothing"), ("PUT", "/login")})


def _flat(found: Iterable[Any]) -> Iterator[Any]:
    for route in found:
        inner = getattr(route, "original_router", None)
        if inner is None:
            yield route
        else:
            yield from _flat(inner.routes)


ROUTES = routes()
WRITES = [(method, path) for method, path in ROUTES if method not in READ_METHODS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The process that is attacked."""

    pid: int
    port: int

    def memory(self) -> int:
        """Bytes that the process has resident now."""
        return self._status("VmRSS")

    def peak(self) -> int:
        """Bytes that it had resident at most since `forget`."""
        return self._status("VmHWM")

    def forget(self) -> None:
        """Let the peak begin anew."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def _status(self, key: str) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))

    def connect(self) -> socket.socket:
        """A connection to it."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_SECONDS)

    def status(self, method: str, path: str) -> int:
        """Of a request without a body."""
        return self.exchange(method, path, "", [])[0]

    def exchange(self, method: str, path: str, headers: str, body: Iterable[bytes]) -> tuple[int, int]:
        """The status of the answer, and the bytes of the body that were taken until it came."""
        with self.connect() as connection:
            connection.sendall(head(method, path, headers))
            return _sent(connection, iter(body))


def head(method: str, path: str, headers: str) -> bytes:
    """A request up to its body."""
    fixed = "Host: 127.0.0.1\r\nContent-Type: application/json\r\nIf-Match: *\r\nIdempotency-Key: k\r\n"
    return f"{method} {path} HTTP/1.1\r\n{fixed}{headers}\r\n".encode()


def _sent(connection: socket.socket, body: Iterator[bytes]) -> tuple[int, int]:
    answer, taken, left, ends = b"", 0, memoryview(b""), time.monotonic() + ANSWER_SECONDS
    connection.setblocking(False)
    while b"\r\n" not in answer:
        left = left or memoryview(next(body, b""))
        readable, writable, _ = select.select([connection], [connection] if left else [], [], 1.0)
        assert time.monotonic() < ends, f"no answer in {ANSWER_SECONDS} s, {taken} bytes were taken"
        if readable:
            part = connection.recv(CHUNK)
            assert part, f"hung up without an answer, {taken} bytes were taken"
            answer += part
        elif writable:
            try:
                number = connection.send(left)
            except OSError:  # it hung up after its answer
                left, body = memoryview(b""), iter(())
                continue
            left, taken = left[number:], taken + number
    return int(answer.split(b" ")[1]), taken


def chunked(part: bytes) -> bytes:
    """One chunk of a body."""
    return b"%x\r\n%s\r\n" % (len(part), part)


@pytest.fixture(scope="module")
def process(database_server: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all, over an empty database, with an API server of Kubernetes that never answers."""
    name, folder = f"queuer_strangers_{uuid4().hex[:8]}", tmp_path_factory.mktemp("strangers")
    database_server.create(name, template=database_server.template)
    (folder / "kubeconfig").write_text(json.dumps(KUBECONFIG))
    settings = {
        "QUEUER_DATABASE_URL": database_server.url_of(name), "QUEUER_PORT": "0",
        "KUBECONFIG": str(folder / "kubeconfig"),
    }  # fmt: skip
    log = folder / "log"
    try:
        with (
            log.open("wb") as target,
            subprocess.Popen(
                [sys.executable, "-m", "queuer", "serve", "api"],
                env={**os.environ, **settings},
                stderr=target,
            ) as running,
        ):
            try:
                yield Server(pid=running.pid, port=_port(log, running))
            finally:
                running.send_signal(signal.SIGTERM)
                assert running.wait(timeout=60) == 0
    finally:
        database_server.drop(name)


def _port(log: Path, running: subprocess.Popen[bytes]) -> int:
    """The port that the log names."""
    for _ in range(600):
        found = re.search(r'"url": "http://127\.0\.0\.1:(\d+)"', log.read_text())
        if found:
            return int(found[1])
        assert running.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.fixture
def server(process: Server) -> Iterator[Server]:
    """The server, which took little more memory by the end of the test, and serves."""
    assert process.status("GET", f"{API}/meta") == 200
    process.forget()
    before = process.memory()
    yield process
    grown = process.peak() - before
    assert grown < GROWTH, f"the server took {grown / MIB:.0f} MiB more"
    began = time.monotonic()
    assert process.status("GET", "/readyz") == 200
    assert time.monotonic() - began < ANSWER_SECONDS


def refused(server: Server, method: str, path: str, status: int) -> bool:
    """Whether it is a refusal, or what a page that needs no token and reads no body says anyway."""
    return 400 <= status < 500 or status == server.status(method, path)


def test_a_body_of_64_mib_is_refused_unread(server: Server) -> None:
    for method, path in ROUTES:
        body = repeat(b" " * CHUNK, LARGE // CHUNK)
        status, taken = server.exchange(method, path, f"Content-Length: {LARGE}\r\n", body)
        assert status == 413, (method, path)
        assert taken <= UNREAD, (method, path, taken)


def test_a_body_that_does_not_say_its_length_is_not_read_beyond_the_bound(server: Server) -> None:
    for method, path in ROUTES:
        body = repeat(chunked(b" " * CHUNK), LARGE // CHUNK)
        status, taken = server.exchange(method, path, "Transfer-Encoding: chunked\r\n", body)
        assert refused(server, method, path, status), (method, path, status)
        assert taken <= UNREAD, (method, path, taken)


def test_json_nested_a_hundred_thousand_deep_is_refused(server: Server) -> None:
    for method, path in ROUTES:
        status, _ = server.exchange(method, path, f"Content-Length: {len(DEEP)}\r\n", [DEEP])
        assert refused(server, method, path, status), (method, path, status)


def test_many_bodies_that_never_end_are_not_kept(server: Server) -> None:
    """Each is all but its last byte of the largest that is taken."""
    with ExitStack() as open_:
        for number in range(CONNECTIONS):
            method, path = WRITES[number % len(WRITES)]
            connection = open_.enter_context(server.connect())
            connection.settimeout(2.0)
            try:
                connection.sendall(head(method, path, f"Content-Length: {MIB}\r\n") + b" " * (MIB - 1))
            except OSError:  # it was refused, or is taken no further
                continue
        assert server.status("GET", f"{API}/meta") == 200


def test_slow_requests_end(server: Server) -> None:
    """A byte a second on every route, and heads that never end: no connection is held for long."""
    with ExitStack() as open_:
        slow = [
            (open_.enter_context(server.connect()), head(method, path, "Content-Length: 1000\r\n"), f"{method} {path}")
            for method, path in ROUTES
        ]  # fmt: skip
        slow += [(open_.enter_context(server.connect()), begun, name) for begun, name in ABANDONED]
        for connection, begun, _ in slow:
            connection.sendall(begun)
            connection.setblocking(False)
        ends, held = time.monotonic() + 2 * max(BODY_SECONDS, HEAD_SECONDS) + 5, [*slow]
        while held and time.monotonic() < ends:
            time.sleep(1.0)
            held = [each for each in held if _lives(each[0])]
        assert [name for *_, name in held] == []


def _lives(connection: socket.socket) -> bool:
    """Whether one more byte is taken by a connection on which the answer, if there is one, does not say the end."""
    try:
        while connection.recv(CHUNK):
            pass
    except BlockingIOError:
        pass
    except OSError:
        return False
    else:
        return False
    try:
        connection.send(b" ")
    except OSError:
        return False
    return True

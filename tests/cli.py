"""Runs the command line in this process against any API, as its entry point does; an API for one that runs apart."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest.mock import patch

import httpx2

from queuer.cli import main
from queuer.cli.client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a run of `queuer` ended."""

    code: int
    out: str
    err: str


def queuer(transport: httpx2.BaseTransport, *arguments: str) -> Done:
    """`queuer ARGUMENTS`, without a terminal."""

    def client(**_: object) -> Client:
        return Client("http://127.0.0.1:8787", transport=transport)

    out, err = io.StringIO(), io.StringIO()
    with (
        patch.object(Client, "from_env", client),
        patch("sys.argv", ["queuer", *arguments]),
        patch("sys.stdin", io.StringIO()),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main.run()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    return Done(code=code, out=out.getvalue(), err=err.getvalue())


@contextmanager
def serving(answer: Callable[[str], object], *, port: int = 0) -> Iterator[int]:
    """A server of this machine that answers each address so, in JSON; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answer(self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()

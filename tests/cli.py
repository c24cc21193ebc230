"""Runs the command line in this process against any API, as its entry point does."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
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

"""The command line over the app of a test: its requests go to the real API, in the test's event loop."""

from __future__ import annotations

import asyncio

import httpx2
import pytest
from typer.testing import CliRunner, Result

from queuer.cli import main
from queuer.cli.client import Client


async def run(monkeypatch: pytest.MonkeyPatch, api: httpx2.AsyncClient, *arguments: str) -> Result:
    """The output and exit code of `queuer ARGUMENTS`."""
    loop = asyncio.get_running_loop()

    def handle(request: httpx2.Request) -> httpx2.Response:
        asked = api.request(
            request.method, str(request.url), content=request.content, headers=dict(request.headers)
        )
        found = asyncio.run_coroutine_threadsafe(asked, loop).result(100)
        return httpx2.Response(found.status_code, content=found.content)

    def connect(*_: object, **__: object) -> Client:
        return Client("http://127.0.0.1:8787", transport=httpx2.MockTransport(handle))

    monkeypatch.setattr(Client, "from_env", connect)
    app = main.build(arguments)
    return await asyncio.to_thread(CliRunner().invoke, app, list(arguments))

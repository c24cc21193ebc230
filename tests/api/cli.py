"""The command line over the app of a test: its requests go to the real API, in the test's event loop."""

from __future__ import annotations

import asyncio

import httpx2

from tests.api.identity import Api
from tests.cli import Done, queuer


class Wire(httpx2.BaseTransport):
    """Carries requests of a thread to the app in the test's event loop. `last`: what was asked last."""

    def __init__(self, api: Api) -> None:
        self._api, self._loop = api, asyncio.get_running_loop()
        self.last: tuple[str, str] = ("", "")

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.last = (request.method.lower(), request.url.path)
        content = request.read()
        asked = self._api.request(request.method, str(request.url), content=content, headers=request.headers)
        answer = asyncio.run_coroutine_threadsafe(asked, self._loop).result(timeout=100)
        passed = ("content-type", "queuer-controller")
        headers = {name: answer.headers[name] for name in passed if name in answer.headers}
        return httpx2.Response(answer.status_code, headers=headers, content=answer.content)


async def run(api: Api | Wire, *arguments: str, user: str = "") -> Done:
    """How `queuer ARGUMENTS` ends, for this user where the API tells users apart."""
    if isinstance(api, Api):
        if user:
            api.headers["user"] = user
        api = Wire(api)
    return await asyncio.to_thread(queuer, api, *arguments)

"""An OpenID Connect provider as a process of its own, and a browser that logs in there."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

START_SECONDS = 120


@contextmanager
def provider(*users: dict[str, Any]) -> Iterator[str]:
    """The issuer. `users`: claims, each with a `sub`."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    claims = [option for user in users for option in ("--user-claims", json.dumps(user))]
    # Its own dependencies warn of their deprecations when they are imported.
    command = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "--port", str(port), *claims]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    issuer = f"http://127.0.0.1:{port}"
    try:
        _until_ready(issuer, process)
        yield issuer
    finally:
        process.terminate()
        process.wait(timeout=60)


def agree(address: str, user: str) -> str:
    """Log in at the provider as a user; the address to which it sends the browser back."""
    found = httpx2.post(address, data={"sub": user}, trust_env=False, timeout=60)
    assert found.status_code == 302, found.text
    return str(found.headers["location"])


def _until_ready(issuer: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            httpx2.get(
                f"{issuer}/.well-known/openid-configuration", trust_env=False, timeout=60
            ).raise_for_status()
        except httpx2.HTTPError:
            assert process.poll() is None, "the provider ended"
            assert time.monotonic() < deadline, "the provider is not ready"
            time.sleep(0.05)
        else:
            return

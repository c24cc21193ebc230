"""Where the API server is and who we are: a kubeconfig, else the pod's service account.

Loading is left to the official client, which knows exec plugins, OIDC and token rotation; only the resulting address,
certificates and headers are used.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import structlog
from yarl import URL

from queuer.domain.errors import Unavailable

log = structlog.get_logger(part="access")

_FIX = "set KUBECONFIG or pass --kubeconfig; in a cluster, mount a service account token"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to reach one API server. `headers` is asked before each request, and renews tokens and certificates."""

    url: str
    ssl: ssl.SSLContext | None
    headers: Callable[[], Awaitable[Mapping[str, str]]]

    def session(self, *, connections: int = 0, **options: Any) -> aiohttp.ClientSession:
        """A session whose requests carry our headers. `connections`: open at once, 0 = any number."""

        ours = URL(self.url).origin()

        async def signed(
            request: aiohttp.ClientRequest, handler: Callable[..., Awaitable[aiohttp.ClientResponse]]
        ) -> aiohttp.ClientResponse:
            if request.url.origin() == ours:  # a redirect to another server gets no token
                request.headers.update(await self.headers())
            return await handler(request)

        connector = aiohttp.TCPConnector(limit=connections, ssl=self.ssl or False)
        return aiohttp.ClientSession(connector=connector, middlewares=(signed,), **options)


async def load_access(kubeconfig: Path | None = None) -> Access:
    """Access from `kubeconfig`, or from inside the cluster where it is None. Raises Unavailable with the fix.

    `kubeconfig` may be a list of files as in KUBECONFIG; those that do not exist are passed over.
    """
    from kubernetes.aio.client import Configuration

    target = Configuration()
    try:
        await _load(kubeconfig, target)
        certificates = _Certificates(target)
    except Exception as error:  # a file that is no kubeconfig breaks the loader in any way
        by = f" by {kubeconfig}" if kubeconfig else ""
        raise Unavailable(
            f"no access to Kubernetes{by}: {' '.join(str(error).split())}", hint=_FIX
        ) from error

    async def headers() -> Mapping[str, str]:
        certificates.renew()
        token = await target.get_api_key_with_prefix("BearerToken", alias="authorization")
        if not token:
            return {}
        return {"Authorization": token if " " in token else f"Bearer {token}"}

    return Access(url=target.host.rstrip("/"), ssl=certificates.context, headers=headers)


async def _load(kubeconfig: Path | None, target: object) -> None:
    """Fill a client configuration. Raises whatever the official loader trips over."""
    from kubernetes.aio import config

    # The client ships type hints for its models but not for its loaders.
    in_cluster: Any = config.load_incluster_config
    from_file: Any = config.load_kube_config
    if kubeconfig is None:
        in_cluster(client_configuration=target)
        return
    if not _exists(str(kubeconfig)):
        raise FileNotFoundError("there is no such file")
    await from_file(config_file=str(kubeconfig), client_configuration=target, persist_config=False)


def _exists(files: str) -> bool:
    """Whether one of these files is there."""
    return any(Path(file).expanduser().exists() for file in files.split(os.pathsep) if file)


class _Certificates:
    """The TLS settings of a client configuration; `context` is None for plain HTTP.

    Files that changed are read into the same context, for connections from then on. An authority that was replaced is
    trusted until the process ends.
    """

    def __init__(self, target: object) -> None:
        authority, own, key = (
            getattr(target, name, None) for name in ("ssl_ca_cert", "cert_file", "key_file")
        )
        self._authority: str | None = authority
        self._own: tuple[str, str | None] | None = (own, key) if own else None
        self._files = [Path(file) for file in (authority, own, key) if file]
        self._seen = self._stamps()
        self.context: ssl.SSLContext | None = None
        if URL(str(getattr(target, "host", ""))).scheme != "http":
            self.context = ssl.create_default_context(cafile=authority)
            if not getattr(target, "verify_ssl", True):
                self.context.check_hostname = False
                self.context.verify_mode = ssl.CERT_NONE
            self._load(self.context)

    def renew(self) -> None:
        """Look whether the files changed. A pair that is half written is read once its other half has changed, too."""
        if self.context is None or self._seen == (stamps := self._stamps()):
            return
        self._seen = stamps
        try:
            self._load(self.context)
        except OSError as error:
            log.warning("certificates not read anew", said=str(error))

    def _load(self, context: ssl.SSLContext) -> None:
        if self._authority:
            context.load_verify_locations(cafile=self._authority)
        if self._own:
            context.load_cert_chain(*self._own)

    def _stamps(self) -> tuple[int, ...]:
        return tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in self._files)

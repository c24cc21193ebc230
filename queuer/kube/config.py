"""Where the API server is and who we are: a kubeconfig, else the pod's service account.

Loading is left to the official client, which knows exec plugins, OIDC and token rotation; only the resulting address,
certificates and headers are used.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from yarl import URL

from queuer.domain.errors import Unavailable

_FIX = "set KUBECONFIG or pass --kubeconfig; in a cluster, mount a service account token"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to reach one API server. `headers` is asked before each request, so that tokens can be renewed."""

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
    """Access from `kubeconfig`, or from inside the cluster where it is None. Raises Unavailable with the fix."""
    from kubernetes.aio import config
    from kubernetes.aio.client import Configuration

    target = Configuration()
    # The client ships type hints for its models but not for its loaders.
    in_cluster: Any = config.load_incluster_config
    from_file: Any = config.load_kube_config
    try:
        if kubeconfig is None:
            in_cluster(client_configuration=target)
        else:
            await from_file(
                config_file=str(kubeconfig),
                client_configuration=target,
                persist_config=False,
            )
    except (config.ConfigException, OSError) as error:
        raise Unavailable(f"no access to Kubernetes: {error}", hint=_FIX) from error

    async def headers() -> Mapping[str, str]:
        token = await target.get_api_key_with_prefix("BearerToken", alias="authorization")
        if not token:
            return {}
        return {"Authorization": token if " " in token else f"Bearer {token}"}

    return Access(url=target.host.rstrip("/"), ssl=_ssl_context(target), headers=headers)


def _ssl_context(target: object) -> ssl.SSLContext | None:
    """The TLS settings of a client configuration; None for plain HTTP."""
    if not str(getattr(target, "host", "")).startswith("https"):
        return None
    context = ssl.create_default_context(cafile=getattr(target, "ssl_ca_cert", None))
    if not getattr(target, "verify_ssl", True):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    cert_file = getattr(target, "cert_file", None)
    if cert_file:
        context.load_cert_chain(cert_file, keyfile=getattr(target, "key_file", None))
    return context

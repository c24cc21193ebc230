"""Login at an OpenID Connect provider: authorization code flow with PKCE, and what its ID token says of a user.

Users and groups are named as kube-apiserver's flags `--oidc-*` name them, so that the same RBAC rules are meant.
Tokens of the provider are used once and kept nowhere.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

import httpx2
import structlog
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from joserfc.jwt import JWTClaimsRegistry

from queuer.api.identity.rights import Caller, Unauthenticated
from queuer.api.settings import LOOPBACK_NAMES, OidcSettings
from queuer.domain.errors import Unavailable

log = structlog.get_logger(part="api")

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]
"""Signatures only: neither `none` nor a secret that both sides know."""
TIMEOUT_SECONDS = 10.0
LEEWAY_SECONDS = 30
AUTHENTICATED = "system:authenticated"
RESERVED = "system:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One login under way: what must come back unchanged (`state`, `nonce`) and the secret of PKCE (`verifier`)."""

    state: str
    nonce: str
    verifier: str

    @classmethod
    def new(cls) -> Attempt:
        """A fresh one."""
        return cls(
            state=secrets.token_urlsafe(32),
            nonce=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(48),
        )

    @property
    def challenge(self) -> str:
        """The provider's view of the verifier (S256)."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class Provider:
    """The provider that the settings name. It is asked anew at each login: logins are rare, keys change."""

    def __init__(self, settings: OidcSettings) -> None:
        self.settings = settings

    async def address(self, attempt: Attempt) -> str:
        """Where to send the browser. Raises Unavailable."""
        async with self._client() as client:
            found = await self._discover(client)
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self.settings.redirect,
            "scope": self.settings.scopes,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        address = str(found["authorization_endpoint"])
        return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"

    async def finish(self, attempt: Attempt, answer: Mapping[str, str]) -> Caller:
        """The person who logged in, by the query with which the browser came back. Raises Unauthenticated,
        Unavailable.
        """
        if not hmac.compare_digest(answer.get("state", "").encode(), attempt.state.encode()):
            raise Unauthenticated(
                "this login was not begun in this browser, or too long ago", hint="log in again"
            )
        if answer.get("iss", self.settings.issuer) != self.settings.issuer:
            raise Unauthenticated("the answer is of another provider")
        if "code" not in answer:
            raise Unauthenticated(f"the provider refused: {answer.get('error', 'no reason given')[:100]}")
        async with self._client() as client:
            found = await self._discover(client)
            token = await self._exchange(client, str(found["token_endpoint"]), answer["code"], attempt)
            keys = await _json(client, "GET", str(found["jwks_uri"]))
        return self.verify(token, keys, nonce=attempt.nonce)

    def verify(self, token: str, keys: Mapping[str, Any], *, nonce: str) -> Caller:
        """The person that an ID token names. Raises Unauthenticated unless it is the provider's, for us, valid now and
        for this login.
        """
        rules = JWTClaimsRegistry(
            leeway=LEEWAY_SECONDS,
            iss={"essential": True, "value": self.settings.issuer},
            aud={"essential": True, "value": self.settings.client_id},
            exp={"essential": True},
            nonce={"essential": True, "value": nonce},
        )
        try:
            claims = jwt.decode(token, KeySet.import_key_set(dict(keys)), algorithms=ALGORITHMS).claims  # type: ignore[arg-type]
            rules.validate(claims)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            log.warning("an ID token was refused", error=type(error).__name__)
            raise Unauthenticated("the provider's token is not valid for this login") from None
        if claims.get("azp", self.settings.client_id) != self.settings.client_id:
            raise Unauthenticated("the provider's token is for another client")
        return self._caller(claims)

    def _caller(self, claims: Mapping[str, Any]) -> Caller:
        name = claims.get(self.settings.username_claim)
        if not isinstance(name, str) or not name:
            raise Unauthenticated(f"the provider's token has no claim {self.settings.username_claim!r}")
        if self.settings.username_claim == "email" and claims.get("email_verified", True) is not True:
            raise Unauthenticated("the provider has not verified the email address")
        said = claims.get(self.settings.groups_claim, [])
        groups = [said] if isinstance(said, str) else said if isinstance(said, list) else []
        user = self.settings.username_prefix + name
        member = [self.settings.groups_prefix + group for group in groups if isinstance(group, str) and group]
        # Names that Kubernetes gives meaning to are not a provider's to give.
        if user.startswith(RESERVED):
            raise Unauthenticated(f"a user of a provider cannot be called {RESERVED}…")
        return Caller(
            name=user, groups=(*(group for group in member if not group.startswith(RESERVED)), AUTHENTICATED)
        )

    async def _exchange(self, client: httpx2.AsyncClient, address: str, code: str, attempt: Attempt) -> str:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.settings.redirect,
            "code_verifier": attempt.verifier,
        }
        login = None
        if self.settings.secret_file is None:
            form["client_id"] = self.settings.client_id
        else:  # encoded as RFC 6749, 2.3.1 says
            secret = _secret(self.settings.secret_file)
            login = httpx2.BasicAuth(quote_plus(self.settings.client_id), quote_plus(secret))
        said = await _json(client, "POST", address, data=form, auth=login)
        if not isinstance(said.get("id_token"), str):
            raise Unauthenticated("the provider gave no ID token", hint="the scopes must have openid")
        return str(said["id_token"])

    async def _discover(self, client: httpx2.AsyncClient) -> Mapping[str, Any]:
        address = f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration"
        found = await _json(client, "GET", address)
        needed = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        if found.get("issuer") != self.settings.issuer or not all(found.get(key) for key in needed):
            log.error("what the OIDC issuer says of itself is not of this issuer", address=address)
            raise Unavailable("the login provider is not set up as QUEUER_OIDC_ISSUER says")
        return found

    def _client(self) -> httpx2.AsyncClient:
        context = ssl.create_default_context()
        if self.settings.ca_file is not None:
            context.load_verify_locations(self.settings.ca_file)
        # A proxy that is meant for the internet must not stand between us and loopback.
        trust_env = urlsplit(self.settings.issuer).hostname not in LOOPBACK_NAMES
        return httpx2.AsyncClient(timeout=TIMEOUT_SECONDS, verify=context, trust_env=trust_env)


async def _json(client: httpx2.AsyncClient, method: str, address: str, **options: Any) -> Mapping[str, Any]:
    """The answer as an object. A refusal is the caller's (Unauthenticated), all else Unavailable."""
    try:
        response = await client.request(method, address, **options)
        if response.status_code in (400, 401, 403):
            log.warning("the login provider refused", address=address, status=response.status_code)
            raise Unauthenticated("the login provider refused", hint="log in again")
        found = response.raise_for_status().json()
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        log.warning("the login provider does not answer", address=address, error=type(error).__name__)
        raise Unavailable("the login provider does not answer") from None
    if not isinstance(found, dict):
        raise Unavailable("the login provider does not answer as OpenID Connect says")
    return found


def _secret(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        log.error("the OIDC client secret cannot be read", path=str(path), error=error.strerror)
        raise Unavailable(
            "the login provider cannot be asked", hint="the server's log has the reason"
        ) from None

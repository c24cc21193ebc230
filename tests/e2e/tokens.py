"""Tokens of service accounts: as the cluster issues them, and as it would have at another time."""

from __future__ import annotations

from joserfc import jwt
from joserfc.jwk import RSAKey

from queuer.local.cluster import Cluster
from tests.e2e.support import get, kubectl

ISSUER = "https://kubernetes.default.svc"


def create_token(cluster: Cluster, namespace: str, *options: str, account: str = "robot") -> str:
    """A token of a service account."""
    return kubectl(cluster, "admin", "create", "token", account, "-n", namespace, *options).strip()


def signed(cluster: Cluster, namespace: str, *, begins: int, ends: int) -> str:
    """A token of `robot` as the API server would have issued it at another time. Seconds since the epoch."""
    uid = get(cluster, "serviceaccount", "robot", "-n", namespace)["metadata"]["uid"]
    claims = {
        "aud": ["queuer"], "iss": ISSUER, "iat": begins, "nbf": begins, "exp": ends,
        "sub": f"system:serviceaccount:{namespace}:robot",
        "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": "robot", "uid": uid}},
    }  # fmt: skip
    key = RSAKey.import_key((cluster.layout.certificates / "apiserver.key").read_bytes())
    return jwt.encode({"alg": "RS256"}, claims, key)

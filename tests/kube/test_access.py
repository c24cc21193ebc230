"""TLS towards the API server: never without verification, and with the certificates that are on disk now."""

from __future__ import annotations

import json
import os
from pathlib import Path

import certifi
import pytest

from queuer.domain.errors import Unavailable
from queuer.kube.config import load_access

_END = "-----END CERTIFICATE-----\n"
_BUNDLE = [each + _END for each in Path(certifi.where()).read_text().split(_END)]


def kubeconfig(at: Path, server: str) -> Path:
    """A kubeconfig whose authority is the file `ca.crt` beside it."""
    named = {
        "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority": "ca.crt"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    }
    path = at / "config"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "x", **named}))
    (at / "ca.crt").write_text(_BUNDLE[0])
    return path


@pytest.mark.parametrize(
    ("server", "verified"), [("https://h:1", True), ("HTTPS://h:1", True), ("http://h:1", False)]
)
async def test_only_plain_http_is_not_verified(tmp_path: Path, server: str, *, verified: bool) -> None:
    """A scheme in capitals would else send the token to whoever answers."""
    access = await load_access(kubeconfig(tmp_path, server))
    assert (access.ssl is not None and access.ssl.check_hostname) is verified


async def test_an_authority_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    """A rotation of the cluster's certificates must not need a restart. A file that cannot be read changes nothing."""
    access = await load_access(kubeconfig(tmp_path, "https://h:1"))
    assert access.ssl is not None
    for number, (text, known) in enumerate((("broken", 1), (_BUNDLE[1], 2), (_BUNDLE[1], 2))):
        (tmp_path / "ca.crt").write_text(text)
        os.utime(tmp_path / "ca.crt", (number, number))
        assert await access.headers() == {"Authorization": "Bearer t"}
        assert access.ssl.cert_store_stats()["x509_ca"] == known


async def test_an_authority_that_is_missing_at_start_is_told(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "https://h:1")
    (tmp_path / "ca.crt").unlink()
    with pytest.raises(Unavailable, match="no access to Kubernetes"):
        await load_access(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("foo: [", "parsing a flow node"),
        ("- a", ""),
        ("", ""),
        ("users: 3", ""),
        ("\udcff", ""),
        (None, "there is no such file"),
        ("certificate-authority-data: '!!!'", "no certificate"),
    ],
)
async def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, text: str | None, said: str) -> None:
    """The doctor is there to find such files: they must not end it with a traceback."""
    path = tmp_path / "broken"
    if text is not None and text.startswith("certificate"):
        text = kubeconfig(tmp_path, "https://h:1").read_text()
        text = text.replace('"certificate-authority": "ca.crt"', '"certificate-authority-data": "!!!"')
    if text is not None:
        path.write_text(text, errors="surrogateescape")
    with pytest.raises(Unavailable) as caught:
        await load_access(path)
    assert f"by {path}: " in caught.value.message
    assert said in caught.value.message
    assert "\n" not in caught.value.message


async def test_a_missing_file_of_several_is_passed_over(tmp_path: Path) -> None:
    """KUBECONFIG may list files, as kubectl takes them."""
    there = kubeconfig(tmp_path, "https://h:1")
    assert (await load_access(Path(f"{tmp_path / 'missing'}{os.pathsep}{there}"))).url == "https://h:1"

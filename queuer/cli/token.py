"""The token that the command line shows the API: `QUEUER_TOKEN`, else that of the kubeconfig's current user.

The latter is a key to the cluster. So it goes only where `QUEUER_API` names the server, and never unencrypted to
another machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from queuer.domain.variables import Variable

TOKEN = Variable(
    name="QUEUER_TOKEN", form="token",
    meaning="What the command line logs in with. Not set: the token of the kubeconfig's current user.",
)  # fmt: skip
LOOPBACK = ("127.0.0.1", "localhost", "::1")
CREATE = "export QUEUER_TOKEN=$(kubectl create token NAME -n NAMESPACE --audience queuer)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """What to show, "" = nothing; `missing`: why there is nothing."""

    token: str = ""
    missing: str = ""


def find_login(environ: Mapping[str, str]) -> Login:
    """How to log in to the API that the environment names."""
    if token := TOKEN.text(environ).strip():
        return _checked(token, "QUEUER_TOKEN")
    url = urlsplit(environ.get("QUEUER_API", ""))
    if not url.hostname:
        return Login(missing="the kubeconfig's token is sent only to a server that QUEUER_API names")
    if url.scheme != "https" and url.hostname not in LOOPBACK:
        return Login(missing="the kubeconfig's token is not sent over plain http to another machine")
    files = list(_kubeconfigs(environ))
    current = next((c["current-context"] for _, c in files if c.get("current-context")), None)
    context = next((found for _, found in _named(files, "contexts", "context", current)), {})
    for path, user in _named(files, "users", "user", context.get("user")):
        return _of_user(path, user)
    return Login(missing="no kubeconfig names a current user")


def _of_user(path: Path, user: Mapping[str, Any]) -> Login:
    """A file wins over a token that is written in place, as for kubectl."""
    if user.get("tokenFile"):
        file = path.parent / str(user["tokenFile"])
        try:
            return _checked(file.read_text().strip(), str(file))
        except (OSError, UnicodeDecodeError) as error:
            return Login(missing=f"{file} cannot be read: {error}")
    if user.get("token"):
        return _checked(str(user["token"]), str(path))
    if isinstance(user.get("exec"), Mapping):
        return Login(
            missing=f"the kubeconfig's user logs in by {user['exec'].get('command')}, which is not run here"
        )
    return Login(missing="the kubeconfig's user has no token")


def _checked(token: str, source: str) -> Login:
    """A token that can stand in a header."""
    if all("!" <= character <= "~" for character in token):
        return Login(token=token)
    return Login(missing=f"what {source} holds is no token")


def _named(
    files: Sequence[tuple[Path, Mapping[str, Any]]], section: str, key: str, name: object
) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Entries of that name, with their files; of several the first counts."""
    for path, config in files:
        section_items = config.get(section)
        for item in section_items if isinstance(section_items, list) else ():
            if isinstance(item, Mapping) and name is not None and item.get("name") == name:
                body = item.get(key)
                yield path, body if isinstance(body, Mapping) else {}


def _kubeconfigs(environ: Mapping[str, str]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The files of KUBECONFIG, else the usual one; what is no kubeconfig is passed over."""
    import yaml

    given = environ.get("KUBECONFIG") or "~/.kube/config"
    for name in filter(None, given.split(os.pathsep)):
        path = Path(name).expanduser()
        try:
            config = yaml.load(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except (OSError, yaml.YAMLError):
            continue
        if isinstance(config, Mapping):
            yield path, config

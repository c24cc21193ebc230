"""Finds the token that the command line shows the API.

`QUEUER_TOKEN` comes first, then the token that `queuer login` keeps for the server, then the token of the kubeconfig's
current user. The last is a key to the cluster: it goes only to a server that `QUEUER_API` names, and never unencrypted
to another machine.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from queuer.domain.variables import Variable

TOKEN = Variable(
    name="QUEUER_TOKEN", form="token",
    meaning="What the command line logs in with. Not set: what `queuer login` keeps, else the kubeconfig's token.",
)  # fmt: skip
DEFAULT_API = "http://127.0.0.1:8787"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
CREATE = "export QUEUER_TOKEN=$(kubectl create token NAME -n NAMESPACE --audience queuer)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A token to show, "" = none; `missing`: the reason why there is none."""

    token: str = ""
    missing: str = ""


def find_login(environ: Mapping[str, str]) -> Login:
    """How to log in to the API that the environment names."""
    if token := TOKEN.text(environ).strip():
        return checked(token, "QUEUER_TOKEN")
    if token := _kept(environ).get((environ.get("QUEUER_API") or DEFAULT_API).rstrip("/"), ""):
        return checked(token, str(_file(environ)))
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
            return checked(file.read_text().strip(), str(file))
        except (OSError, UnicodeDecodeError) as error:
            return Login(missing=f"{file} cannot be read: {error}")
    if user.get("token"):
        return checked(str(user["token"]), str(path))
    if isinstance(user.get("exec"), Mapping):
        return Login(
            missing=f"the kubeconfig's user logs in by {user['exec'].get('command')}, which is not run here"
        )
    return Login(missing="the kubeconfig's user has no token")


def keep(url: str, token: str, environ: Mapping[str, str]) -> None:
    """Keep a token for the server at `url`, in a file that nobody else may read."""
    _write(_kept(environ) | {url: token}, environ)


def forget(url: str, environ: Mapping[str, str]) -> bool:
    """Forget the token for a server; whether there was one."""
    kept = _kept(environ)
    if url not in kept:
        return False
    del kept[url]
    _write(kept, environ)
    return True


def _file(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or "~").expanduser() / ".config"
    return Path(base) / "queuer" / "tokens.json"


def _kept(environ: Mapping[str, str]) -> dict[str, str]:
    """Tokens by server; a file that cannot be read holds none."""
    try:
        found = json.loads(_file(environ).read_text())
    except (OSError, ValueError):
        return {}
    pairs = found.items() if isinstance(found, dict) else ()
    return {url: token for url, token in pairs if isinstance(token, str)}


def _write(tokens: Mapping[str, str], environ: Mapping[str, str]) -> None:
    """Replace the file as a whole."""
    path = _file(environ)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)  # mode 0600
    with os.fdopen(handle, "w") as file:
        json.dump(tokens, file)
    Path(name).replace(path)


def checked(token: str, source: str) -> Login:
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

"""Finds the files that are shipped beside the code: CRDs, policies, module lists, configuration.

In a checkout they lie at the top of the tree; in an installed wheel the same paths lie under `queuer/_data`.
"""

from __future__ import annotations

from pathlib import Path

from queuer.domain.errors import NotFound

_PACKAGE = Path(__file__).resolve().parent.parent


def checkout() -> Path | None:
    """The top of the source tree that this runs from; None = it is installed."""
    top = _PACKAGE.parent
    return top if (top / "pyproject.toml").exists() else None


def root() -> Path:
    """The directory that holds `crds/`, `deploy/`, `migrations/`, `tools/`."""
    return checkout() or _PACKAGE / "_data"


def shipped(path: str) -> Path:
    """The absolute path of a shipped file or directory, e.g. `tools/control-plane/config/kwok.yaml`."""
    found = root() / path
    if not found.exists():
        raise NotFound(f"{found} is missing from this installation", hint="install Queuer again")
    return found


def manifests(path: str) -> list[Path]:
    """The YAML files of a shipped file or directory in name order; an empty list where it does not exist."""
    found = root() / path
    if found.is_file():
        return [found]
    return sorted(found.glob("*.yaml"))

"""Finds the files that are shipped beside the code: CRDs, rights and policies, module lists, configuration.

In a checkout they lie at the top of the tree; in an installed wheel the same paths lie under `queuer/_data`.
All that is installed in a cluster has its only home in the Helm chart, which renders the same files for its namespace.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from queuer.domain.errors import NotFound
from queuer.domain.variables import Variable
from queuer.kube.operators import USUAL, Operators, with_operators
from queuer.kube.versions import Form

SYSTEM_NAMESPACE = "queuer-system"
"""Where the shipped files say that Queuer runs."""
INSTALLED_IN = Variable(
    name="QUEUER_NAMESPACE", default=SYSTEM_NAMESPACE, form="namespace",
    meaning="Where Queuer is installed: the policies trust the service account `queuer-controller` of this namespace.",
)  # fmt: skip
_FILES = "deploy/helm/queuer/files"
CRDS = f"{_FILES}/crds"
NAMESPACE = "deploy/namespace.yaml"
POLICIES = {form: (f"{_FILES}/policies", f"{_FILES}/{form}/policies") for form in Form}
ROLES = {form: (f"{_FILES}/rbac.yaml", f"{_FILES}/{form}/rbac.yaml") for form in Form}

_PACKAGE = Path(__file__).resolve().parent.parent


def checkout() -> Path | None:
    """The top of the source tree that this runs from; None = it is installed."""
    top = _PACKAGE.parent
    return top if (top / "pyproject.toml").exists() else None


def root() -> Path:
    """The directory that holds `deploy/`, `migrations/`, `tools/`."""
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


def objects(
    *paths: str, namespace: str = SYSTEM_NAMESPACE, operators: Operators = USUAL
) -> list[tuple[Path, Mapping[str, Any]]]:
    """The objects of shipped files and directories for Queuer in `namespace`, each with its file. `operators`: the
    accounts that the policies trust.
    """
    import yaml

    files = [file for path in paths for file in manifests(path)]
    texts = [
        (file, with_operators(file.read_text().replace(SYSTEM_NAMESPACE, namespace), operators))
        for file in files
    ]
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [(file, found) for file, text in texts for found in yaml.load_all(text, loader) if found]

"""Values of the chart, from the comments of its values.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tools.reference.markdown import code, page, table

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "queuer"
_ONE = "the policies trust the account `queuer-controller` by name, and a cluster has one release"
HABITS = (
    ("fullnameOverride, nameOverride", f"nothing: {_ONE}"),
    ("serviceAccount.create, serviceAccount.name", f"nothing: {_ONE}"),
    ("serviceAccount.annotations", "`controller.serviceAccountAnnotations`, `api.serviceAccountAnnotations`"),
    ("namespaceOverride", "the option `-n` of Helm"),
    ("replicaCount", "`controller.replicas`, `api.replicas`"),
    ("resources, nodeSelector, tolerations, affinity", "the same below `controller` and `api`"),
    (
        "env, extraEnvVars, extraArgs",
        "`controller.extraEnv`, `api.extraEnv`: [variables](settings.md) set everything",
    ),
    ("image.pullSecrets", "`imagePullSecrets`"),
    ("podDisruptionBudget.enabled", "`controller.maxUnavailable`, `api.maxUnavailable`"),
    ("rbac.create", "`roles.install`"),
    ("installCRDs, crds.enabled", "`crds.install`"),
    ("crds.keep", "nothing: Helm keeps them"),
    ("service.type", "`ingress` or `gateway`: the Service is for inside the cluster"),
    ("ingress.hosts, ingress.tls", "`ingress.host`, `ingress.tlsSecretName`"),
    ("postgresql.enabled, externalDatabase.host", "`database.secretName`: the chart brings no database"),
    ("serviceMonitor.enabled, metrics.enabled", "`monitoring.serviceMonitor`"),
    ("monitoring.serviceMonitor.additionalLabels", "`monitoring.serviceMonitor` with `labels`"),
    ("monitoring.serviceMonitor.namespace", "nothing: Prometheus must select the release namespace"),
)
"""What admins write by habit from other charts, and what to write here."""
_KEY = re.compile(r"^( *)([A-Za-z-]+):(?: +(.*?))?(?: {2,}#.*)?$")


def made() -> str:
    """The page."""
    said = (
        "Values of the chart `deploy/helm/queuer`, each with its default. [Install](../install.md) says which ones "
        "an installation needs; `values.schema.json` refuses a value that is not here. What is below `global` "
        "is ignored: a parent chart hands it to all its charts."
    )
    habits = [(", ".join(map(code, names.split(", "))), here) for names, here in HABITS]
    return page(
        "Values of the chart", said, table(("value", "default", "meaning"), list(_rows())),
        "## Values of other charts", "Refused, as nothing would come of them:", table(("elsewhere", "here"), habits),
    )  # fmt: skip


def _rows() -> Iterator[tuple[str, str, str]]:
    """Path, default and comment of each value. A comment belongs to the key that follows it at once."""
    path: list[tuple[int, str]] = []
    said: list[str] = []
    for line in (CHART / "values.yaml").read_text().splitlines():
        if line.lstrip().startswith("#"):
            said.append(line.strip(" #"))
            continue
        if found := _KEY.match(line):
            depth = len(found[1])
            path = [(at, name) for at, name in path if at < depth] + [(depth, found[2])]
            if found[3] or said:
                yield code(".".join(name for _, name in path)), code(found[3] or ""), " ".join(said)
        said = []

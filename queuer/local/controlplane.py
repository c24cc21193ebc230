"""The Kubernetes parts of a local cluster: programs, their flags, and how to tell that they are ready.

Everything listens on loopback. Only the kubelets are not real: kwok plays them, from stages in
`tools/control-plane/config/kwok.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx2

from queuer.kube.resources import shipped
from queuer.local.binaries import Binaries
from queuer.local.identities import ADMIN, token_of
from queuer.local.processes import Command, Probe

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KWOK = "kwok"
TRAINING_OPERATOR = "training-operator"
KUBERNETES_PARTS = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK, TRAINING_OPERATOR)
# The listeners of the parts; every name gets a free port.
PORT_NAMES = (ETCD, "etcd-peer", API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK, TRAINING_OPERATOR)

# Node lifecycle and taint eviction are left out: they would want a lease renewed for every node.
_CONTROLLERS = (
    "job-controller",
    "cronjob-controller",
    "deployment-controller",
    "replicaset-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "pod-garbage-collector-controller",
    "ttl-after-finished-controller",
    "resourcequota-controller",
    "clusterrole-aggregation-controller",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where a local cluster keeps its things, and its ports by name."""

    directory: Path
    etcd_data: Path
    ports: Mapping[str, int]

    @property
    def certificates(self) -> Path:
        return self.directory / "certificates"

    @property
    def ca_file(self) -> Path:
        """The API server signs its own certificate; the file holds the issuer too."""
        return self.certificates / "apiserver.crt"

    @property
    def tokens(self) -> Path:
        return self.certificates / "tokens.csv"

    @property
    def kubeconfigs(self) -> Path:
        return self.directory / "kubeconfig"

    @property
    def api_url(self) -> str:
        return f"https://127.0.0.1:{self.ports[API_SERVER]}"


def commands(layout: Layout, binaries: Binaries) -> dict[str, Command]:
    """The command of each Kubernetes part, in an order in which they can be started."""
    parts = (
        _etcd(layout, binaries),
        _api_server(layout, binaries),
        _controller_manager(layout, binaries),
        _scheduler(layout, binaries),
        _kwok(layout, binaries),
        _training_operator(layout, binaries),
    )
    return {part.name: part for part in parts}


def answers(url: str, *, token: str | None = None) -> Probe:
    """A probe: does `url` answer with 200? Certificates are not checked: only readiness is asked here."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}

    def probe() -> bool:
        try:
            response = httpx2.get(url, headers=headers, verify=False, trust_env=False, timeout=2.0)
        except httpx2.TransportError:
            return False
        return response.status_code == httpx2.codes.OK

    return probe


def _etcd(layout: Layout, binaries: Binaries) -> Command:
    client = f"http://127.0.0.1:{layout.ports[ETCD]}"
    peer = f"http://127.0.0.1:{layout.ports['etcd-peer']}"
    arguments = [
        str(binaries["etcd"]), "--name=local", f"--data-dir={layout.etcd_data}", "--log-level=warn",
        f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=local={peer}", "--quota-backend-bytes=4294967296",
        "--unsafe-no-fsync",  # a power cut may lose a toy cluster; in exchange writes cost nothing
        "--auto-compaction-mode=periodic", "--auto-compaction-retention=5m",
    ]  # fmt: skip
    return Command(name=ETCD, arguments=arguments, ready=answers(f"{client}/readyz"))


def _api_server(layout: Layout, binaries: Binaries) -> Command:
    # The key that the server makes for its own certificate also signs service account tokens.
    signing_key = layout.certificates / "apiserver.key"
    arguments = [
        str(binaries["kube-apiserver"]), f"--etcd-servers=http://127.0.0.1:{layout.ports[ETCD]}",
        "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
        f"--secure-port={layout.ports[API_SERVER]}", f"--cert-dir={layout.certificates}",
        f"--token-auth-file={layout.tokens}", "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none", "--event-ttl=10m",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={signing_key}", f"--service-account-key-file={signing_key}",
        # ServiceAccount wants accounts that no controller makes here; TaintNodesByCondition taints every new
        # node, and only the node lifecycle controller would lift the taint.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        "--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000",
    ]  # fmt: skip
    ready = answers(f"{layout.api_url}/readyz", token=token_of(layout.tokens, ADMIN))
    return Command(name=API_SERVER, arguments=arguments, ready=ready)


def _controller_manager(layout: Layout, binaries: Binaries) -> Command:
    port = layout.ports[CONTROLLER_MANAGER]
    arguments = [
        str(binaries["kube-controller-manager"]), f"--kubeconfig={layout.kubeconfigs / CONTROLLER_MANAGER}",
        "--leader-elect=false", "--bind-address=127.0.0.1", f"--secure-port={port}",
        "--authentication-skip-lookup=true", f"--cert-dir={layout.certificates / CONTROLLER_MANAGER}",
        f"--controllers={','.join(_CONTROLLERS)}", "--concurrent-job-syncs=20", "--concurrent-gc-syncs=10",
        "--kube-api-qps=5000", "--kube-api-burst=10000",
    ]  # fmt: skip
    return Command(
        name=CONTROLLER_MANAGER, arguments=arguments, ready=answers(f"https://127.0.0.1:{port}/healthz")
    )


def _scheduler(layout: Layout, binaries: Binaries) -> Command:
    port = layout.ports[SCHEDULER]
    config = layout.directory / "scheduler.yaml"
    template = shipped("tools/control-plane/config/scheduler.yaml").read_text()
    config.write_text(template.replace("@KUBECONFIG@", str(layout.kubeconfigs / SCHEDULER)))
    arguments = [
        str(binaries["kube-scheduler"]), f"--config={config}", "--authentication-skip-lookup=true",
        "--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={layout.certificates / SCHEDULER}",
    ]  # fmt: skip
    return Command(name=SCHEDULER, arguments=arguments, ready=answers(f"https://127.0.0.1:{port}/readyz"))


def _kwok(layout: Layout, binaries: Binaries) -> Command:
    port = layout.ports[KWOK]
    arguments = [
        str(binaries["kwok"]), f"--kubeconfig={layout.kubeconfigs / KWOK}",
        f"--config={shipped('tools/control-plane/config/kwok.yaml')}", "--manage-all-nodes=true",
        "--v=WARN", "--node-lease-duration-seconds=0", f"--server-address=127.0.0.1:{port}",
    ]  # fmt: skip
    return Command(name=KWOK, arguments=arguments, ready=answers(f"http://127.0.0.1:{port}/healthz"))


def _training_operator(layout: Layout, binaries: Binaries) -> Command:
    port = layout.ports[TRAINING_OPERATOR]
    arguments = [
        str(binaries["training-operator"]), f"--kubeconfig={layout.kubeconfigs / TRAINING_OPERATOR}",
        f"--health-probe-bind-address=127.0.0.1:{port}",
    ]  # fmt: skip
    return Command(
        name=TRAINING_OPERATOR, arguments=arguments, ready=answers(f"http://127.0.0.1:{port}/readyz")
    )

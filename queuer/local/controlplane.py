"""The Kubernetes parts of a local cluster: programs, their flags, and how to tell that they are ready.

Everything listens on loopback. Only the kubelets are not real: kwok plays them, from stages in
`tools/control-plane/config/kwok.yaml`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident
from typing import Any

import httpx2
import yaml

from queuer.kube.resources import shipped
from queuer.local.binaries import Binaries
from queuer.local.identities import ADMIN, token_of
from queuer.local.processes import Command, Probe

SCHEDULER_CONFIG = "scheduler.yaml"
ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KWOK = "kwok"
TRAINING_OPERATOR = "training-operator"
JOBSET_CONTROLLER = "jobset-controller"
TRAINER = "trainer"
RAY_OPERATOR = "ray-operator"
LWS = "lws"
MPI_OPERATOR = "mpi-operator"
KUBERNETES_PARTS = (
    ETCD,
    API_SERVER,
    CONTROLLER_MANAGER,
    SCHEDULER,
    KWOK,
    TRAINING_OPERATOR,
    JOBSET_CONTROLLER,
)
OPTIONAL_PARTS = (TRAINER, RAY_OPERATOR, LWS, MPI_OPERATOR)
"""Controllers of further job kinds, each named as its program: built and run only where they are asked for."""
_ETCD_PEER = "etcd-peer"
WEBHOOKS = {JOBSET_CONTROLLER: "jobset", TRAINER: "trainer", LWS: "lws"}
"""Parts that serve webhooks: templates of this name have their configuration and the registrations."""
CONFIGS = (SCHEDULER_CONFIG, *(f"{name}.yaml" for name in WEBHOOKS.values()))
"""Configuration files of parts, written into the cluster's directory from templates of the same names."""
_FLAGS = {
    TRAINING_OPERATOR: (),
    JOBSET_CONTROLLER: ("--zap-devel=false",),
    TRAINER: ("--zap-devel=false", "--feature-gates=TrainJobStatus=false"),
    RAY_OPERATOR: ("--metrics-addr=0", "--enable-leader-election=false"),
    LWS: ("--zap-devel=false",),
    MPI_OPERATOR: (),
}
"""The controllers of job kinds, with flags of their own."""
PORT_NAMES = (*KUBERNETES_PARTS, *OPTIONAL_PARTS, _ETCD_PEER, *(f"{part}-webhook" for part in WEBHOOKS))
"""The listeners of the parts; every name gets a free port."""

# Node lifecycle and taint eviction are left out: they would want a lease renewed for every node.
_CONTROLLERS = (
    "job-controller", "cronjob-controller", "deployment-controller", "replicaset-controller", "statefulset-controller",
    "garbage-collector-controller", "namespace-controller", "pod-garbage-collector-controller",
    "ttl-after-finished-controller", "resourcequota-controller", "clusterrole-aggregation-controller",
)  # fmt: skip


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
    """The command of each Kubernetes part that is built, in an order in which they can be started."""
    parts = [
        _etcd(layout, binaries),
        _api_server(layout, binaries),
        _controller_manager(layout, binaries),
        _scheduler(layout, binaries),
        _kwok(layout, binaries),
    ]
    parts += [_operator(layout, binaries, part) for part in _FLAGS if part in binaries.programs]
    return {part.name: part for part in parts}


def webhooks(layout: Layout, part: str) -> list[dict[str, Any]]:
    """A part's webhook configurations: they default, and they refuse changes of what must stay as it is."""
    text = _filled(
        f"{WEBHOOKS[part]}-webhooks.yaml",
        url=f"https://127.0.0.1:{_webhook_port(layout, part)}",
        ca=base64.b64encode(layout.ca_file.read_bytes()).decode(),
    )
    return list(yaml.safe_load_all(text))


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
    peer = f"http://127.0.0.1:{layout.ports[_ETCD_PEER]}"
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
    config = layout.directory / SCHEDULER_CONFIG
    _put(config, _filled(SCHEDULER_CONFIG, kubeconfig=layout.kubeconfigs / SCHEDULER))
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


def _operator(layout: Layout, binaries: Binaries, name: str) -> Command:
    """The controller of a job kind. The Trainer's certificate is named by the folder for temporary files alone."""
    port, folder, environment = layout.ports[name], layout.certificates / name, dict[str, str]()
    arguments = [str(binaries[name]), f"--kubeconfig={layout.kubeconfigs / name}"]
    if name not in WEBHOOKS:
        arguments.append(f"--health-probe-bind-address=127.0.0.1:{port}")
    else:
        if name == TRAINER:
            environment["TMPDIR"] = str(folder)
            folder /= "k8s-webhook-server/serving-certs"
        _serve_as_api_server(layout, folder)
        file = f"{WEBHOOKS[name]}.yaml"
        webhook = _webhook_port(layout, name)
        text = _filled(file, certificates=folder, webhook_port=webhook, health_port=port)
        _put(layout.directory / file, text)
        arguments.append(f"--config={layout.directory / file}")
    ready = answers(f"http://127.0.0.1:{port}/readyz")
    return Command(name=name, arguments=[*arguments, *_FLAGS[name]], ready=ready, environment=environment)


def _serve_as_api_server(layout: Layout, folder: Path) -> None:
    """Webhooks serve with the API server's own certificate, as that is valid for 127.0.0.1."""
    folder.mkdir(parents=True, exist_ok=True)
    for suffix in ("crt", "key"):
        link = folder / f"tls.{suffix}"
        if not link.is_symlink():  # the API server writes its files at its first start
            link.symlink_to(layout.certificates / f"apiserver.{suffix}")


def _webhook_port(layout: Layout, part: str) -> int:
    return layout.ports[f"{part}-webhook"]


def _put(path: Path, text: str) -> None:
    """Write the file whole: parts start at once, so one may read it while it is written again for another."""
    temporary = path.with_name(f".{path.name}-{get_ident()}")
    temporary.write_text(text)
    temporary.rename(path)


def _filled(template: str, **values: object) -> str:
    """A configuration template with its `@NAMES@` replaced."""
    text = shipped(f"tools/control-plane/config/{template}").read_text()
    for name, value in values.items():
        text = text.replace(f"@{name.upper()}@", str(value))
    return text

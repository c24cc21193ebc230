"""Brings a whole local cluster up and down: Kubernetes parts, PostgreSQL, Queuer's controller and API.

Independent parts start at the same time. A second `up` starts the parts that are down and changes nothing else, so it
also mends a cluster after a crash.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import httpx2
from msgspec import structs

from queuer.domain.errors import Conflict, Unavailable
from queuer.domain.variables import Variable
from queuer.local import bootstrap
from queuer.local.binaries import Binaries, default_cache, ensure_binaries
from queuer.local.cluster import (
    ALL_PARTS,
    API_PART,
    CONTROLLER_PART,
    KNOWN_PARTS,
    POSTGRES,
    QUEUER_PARTS,
    Cluster,
    PartStatus,
    State,
)
from queuer.local.controlplane import (
    API_SERVER,
    CONFIGS,
    CONTROLLER_MANAGER,
    ETCD,
    JOBSET_CONTROLLER,
    KUBERNETES_PARTS,
    KWOK,
    OPTIONAL_PARTS,
    PORT_NAMES,
    SCHEDULER,
    TRAINING_OPERATOR,
    WEBHOOKS,
)
from queuer.local.fleet import Fleet, create_nodes
from queuer.local.identities import (
    ADMIN,
    TENANT_NAMESPACES,
    borrow_identities,
    write_kubeconfigs,
    write_tokens,
)
from queuer.local.kubectl import Kubectl
from queuer.local.processes import ProcessTable, locked
from queuer.local.progress import Reporter

PREFERRED_PORTS = {API_PART: 8787}
LOCAL_DIR = Variable(
    name="QUEUER_LOCAL_DIR", form="folder",
    meaning="State, logs and data of the local cluster. "
    "Not set: `/var/lib/queuer/local` for root, else `~/.local/state/queuer/local`.",
)  # fmt: skip
_FILES = ("lock", "state.json", *CONFIGS)
_MOST_TRIES = 100
_SHARED_MEMORY = Path("/dev/shm")
_SHARED_MEMORY_NEEDED = 2 << 30
_LOST = "the memory disk that held the Kubernetes objects was emptied (a reboot?); they are made anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The parts to bring up. `kubeconfig` and `database_url` name an existing cluster and database instead.

    `fleet` None = that of the last start here, at the first one the default. `bare`: nothing of Queuer, neither its
    parts nor CRDs, rights and policies, for an installation by Helm.
    """

    dir: Path
    fleet: Fleet | None = None
    parts: tuple[str, ...] = ALL_PARTS
    bare: bool = False
    kubeconfig: Path | None = None
    database_url: str = ""
    cache: Path = field(default_factory=default_cache)

    @property
    def chosen(self) -> tuple[str, ...]:
        """The parts to run here, in the order of `KNOWN_PARTS`."""
        elsewhere = {
            *((*KUBERNETES_PARTS, *OPTIONAL_PARTS) if self.kubeconfig else ()),
            *((POSTGRES,) if self.database_url else ()),
        }
        left_out = elsewhere.union(QUEUER_PARTS if self.bare else ())
        return tuple(part for part in KNOWN_PARTS if part in self.parts and part not in left_out)


def default_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """`LOCAL_DIR`; else /var/lib for root, because others cannot enter root's home; else the user's own."""
    if named := LOCAL_DIR.text(environ):
        return Path(named).expanduser().absolute()
    if os.geteuid() == 0:
        return Path("/var/lib/queuer/local")
    return Path(environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "queuer" / "local"


class Clock:
    """Seconds that each named step took, for the summary of a start."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = self._now()
        yield
        self.seconds[name] = self._now() - began


def up(options: Options, *, reporter: Reporter, clock: Clock | None = None) -> Cluster:
    """Bring up what is chosen and return a handle on it. Raises `QueuerError`; what started stays running."""
    clock = clock or Clock()
    binaries = _binaries(options, reporter)
    options.dir.mkdir(parents=True, exist_ok=True)
    busy = partial(reporter.say, f"another start in {options.dir} is under way; waiting for it")
    with (
        locked(options.dir / "lock", busy=busy), clock.step("all"), ExitStack() as claims, ThreadPoolExecutor() as pool,
    ):  # fmt: skip
        cluster = _prepare(options, binaries, reporter, claims)
        start = _Start(cluster=cluster, chosen=options.chosen, bare=options.bare, clock=clock)
        if options.kubeconfig is not None:
            start.existing_kubernetes()
        database = pool.submit(start.database_side, pool)
        if options.kubeconfig is None:
            start.kubernetes_side(binaries.crds, pool)
        api = database.result()
        start.part(CONTROLLER_PART)
        api.result()
    return cluster


def down(cluster: Cluster) -> None:
    """Stop all processes, data kept: what depends on others first."""
    extra = [name for name in cluster.processes.names() if name not in KNOWN_PARTS]
    cluster.stop([*extra, *reversed(KNOWN_PARTS)])


def reset(cluster: Cluster) -> None:
    """Stop everything and delete what was made here; files of others in the directory stay."""
    down(cluster)
    layout = cluster.layout
    made = (layout.etcd_data, layout.certificates, layout.kubeconfigs, cluster.database, cluster.cycles)
    for folder in made:
        shutil.rmtree(folder, ignore_errors=True)
    cluster.processes.forget()
    for name in _FILES:
        (cluster.dir / name).unlink(missing_ok=True)
    if not any(cluster.dir.iterdir()):
        cluster.dir.rmdir()


def status(cluster: Cluster) -> list[PartStatus]:
    """One line per part that was brought up."""
    return [cluster.status(part) for part in cluster.state.parts]


def _binaries(options: Options, reporter: Reporter) -> Binaries:
    if options.kubeconfig is None:
        return ensure_binaries(options.cache, reporter=reporter, beside=options.chosen)
    found = shutil.which("kubectl")
    if found is None:
        raise Unavailable(
            "kubectl is needed to use an existing cluster", hint="install kubectl and put it on PATH"
        )
    return Binaries(programs={"kubectl": Path(found)}, crds=())


def _prepare(options: Options, binaries: Binaries, reporter: Reporter, claims: ExitStack) -> Cluster:
    """Make or reread the directory, ports, tokens and kubeconfigs."""
    directory = options.dir.expanduser().resolve()
    known = Cluster.load(directory) if (directory / "state.json").exists() else None
    fleet = _fleet(options, known)
    idle = known is None or all(s.pid is None for s in status(known))
    state = State(
        parts=tuple(
            part for part in KNOWN_PARTS if part in {*options.chosen, *(known.state.parts if known else ())}
        ),
        ports=choose_ports(
            _wanted_ports(options, known), keep_all=known is not None and not idle, claims=claims
        ),
        etcd_data=known.state.etcd_data if known else _etcd_data(directory),
        programs={**(known.state.programs if known else {}), **binaries.programs},
        fleet=fleet,
        crds=known.state.crds if known else (),
        kubeconfig=str(options.kubeconfig.expanduser().resolve()) if options.kubeconfig else "",
        database_url=options.database_url,
    )
    if known and idle and not state.kubeconfig and not state.etcd_data.exists():
        reporter.say(_LOST)
    cluster = Cluster(dir=directory, state=state, processes=ProcessTable(directory))
    if options.kubeconfig is None:
        state.etcd_data.mkdir(mode=0o700, parents=True, exist_ok=True)
        cluster.layout.certificates.mkdir(mode=0o700, exist_ok=True)
        write_tokens(cluster.layout.tokens)
        write_kubeconfigs(
            cluster.layout.kubeconfigs,
            tokens=cluster.layout.tokens,
            server=cluster.api_url,
            ca_file=cluster.ca_file,
        )
    cluster.save()
    return cluster


def _fleet(options: Options, known: Cluster | None) -> Fleet:
    """The nodes to have. Those that exist do not move to other racks, so a cluster keeps the fleet it began with."""
    if known is None or options.fleet in (None, known.state.fleet):
        return options.fleet or (known.state.fleet if known else Fleet())
    made = known.state.fleet
    sizes = f"{made.nodes} nodes, {made.racks} racks, {made.blocks} blocks, {made.gpus} GPUs each"
    raise Conflict(
        f"the cluster in {known.dir} was made with {sizes}",
        hint="start it without these options, or `queuer local reset` to start empty",
    )


def _etcd_data(directory: Path) -> Path:
    """In memory where there is room: etcd's writes are what a toy cluster would otherwise wait for."""
    if _SHARED_MEMORY.is_dir() and shutil.disk_usage(_SHARED_MEMORY).free > _SHARED_MEMORY_NEEDED:
        digest = hashlib.sha256(str(directory).encode()).hexdigest()[:12]
        return _SHARED_MEMORY / f"queuer-{os.getuid()}-{digest}"
    return directory / "etcd"


def _wanted_ports(options: Options, known: Cluster | None) -> dict[str, int]:
    """The ports of the last start; at the first one those that people expect of the parts that run."""
    if known is not None:
        return known.state.ports
    return {part: port for part, port in PREFERRED_PORTS.items() if part in options.chosen}


def choose_ports(wanted: Mapping[str, int], *, keep_all: bool, claims: ExitStack) -> dict[str, int]:
    """A port per listener: the wanted one where it is free or our parts use it, else a free one.

    A part listens only later. Until `claims` closes, no other start on this machine chooses a port of these.
    """
    return {
        name: wanted[name] if keep_all and wanted.get(name) else _claimed(wanted.get(name, 0), claims)
        for name in (*PORT_NAMES, *QUEUER_PARTS)
    }


def _claimed(wanted: int, claims: ExitStack) -> int:
    """A TCP port on which nobody listens, `wanted` if possible. The claim on it is the UDP port of its number."""
    for number in (wanted, *[0] * _MOST_TRIES):
        claim = socket.socket(type=socket.SOCK_DGRAM)
        try:
            with socket.socket() as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(("127.0.0.1", number))
                claim.bind(listener.getsockname())
        except OSError:
            claim.close()
        else:
            return int(claims.enter_context(claim).getsockname()[1])
    raise Unavailable("no port is free on this machine", hint="end what listens on so many")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """One start: what is started where, and the clock that its steps are measured with."""

    cluster: Cluster
    chosen: tuple[str, ...]
    bare: bool
    clock: Clock

    def part(self, name: str) -> None:
        """Start a part if it is chosen, and wait until it is ready."""
        if name in self.chosen:
            with self.clock.step(name):
                self.cluster.start([name])

    def database_side(self, pool: ThreadPoolExecutor) -> Future[None]:
        """PostgreSQL, and the schema where Queuer will run on it. Returns the start of the API, under way."""
        self.part(POSTGRES)
        if any(part in self.chosen for part in QUEUER_PARTS):
            with self.clock.step("database schema"):
                _migrate(self.cluster.database_url)
        return pool.submit(self.part, API_PART)

    def kubernetes_side(self, crds: tuple[Path, ...], pool: ThreadPoolExecutor) -> None:
        """etcd, the API server; then all others at once, the controllers of job kinds once their CRDs are served."""
        self.part(ETCD)
        self.part(API_SERVER)
        waiting = [pool.submit(self.part, part) for part in (CONTROLLER_MANAGER, SCHEDULER, KWOK)]
        if API_SERVER in self.chosen:
            kubectl = self.cluster.kubectl(ADMIN)
            with self.clock.step("rights"):
                bootstrap.install_local(kubectl)
            waiting.append(pool.submit(self._job_kinds, kubectl, crds))
            if not self.bare:
                with self.clock.step("policies"):
                    bootstrap.install(kubectl)
                waiting.append(pool.submit(self._policies, kubectl))
        if KWOK in self.chosen:
            waiting.append(pool.submit(self._nodes))
        for future in waiting:
            future.result()

    def existing_kubernetes(self) -> None:
        """Install Queuer in a cluster that is not ours; the kubeconfig needs the rights for that."""
        kubectl = self.cluster.kubectl(ADMIN)
        with self.clock.step("crds, rights, policies"):
            bootstrap.install(kubectl)
            borrow_identities(kubectl, self.cluster.layout.kubeconfigs)

    def _policies(self, kubectl: Kubectl) -> None:
        with self.clock.step("policies in effect"):
            bootstrap.wait_policies(kubectl, where=next(iter(TENANT_NAMESPACES.values())))

    def _job_kinds(self, kubectl: Kubectl, crds: tuple[Path, ...]) -> None:
        cluster = self.cluster
        with self.clock.step("crds of job kinds"):
            bootstrap.install_job_kinds(kubectl, crds, known=cluster.state.crds)
            replace(cluster, state=structs.replace(cluster.state, crds=crds)).save()
        for part in (TRAINING_OPERATOR, JOBSET_CONTROLLER, *OPTIONAL_PARTS):
            self.part(part)
            if part in self.chosen and part in WEBHOOKS:
                bootstrap.install_webhooks(kubectl, self.cluster.layout, part)

    def _nodes(self) -> None:
        fleet, url = self.cluster.state.fleet, self.cluster.api_url
        headers = {"Authorization": f"Bearer {self.cluster.token(ADMIN)}"}
        with (
            self.clock.step(f"{fleet.nodes} nodes"),
            httpx2.Client(base_url=url, headers=headers, verify=False, trust_env=False) as client,
        ):
            create_nodes(fleet, client)


def _migrate(database_url: str) -> None:
    """`queuer db upgrade` in a process of its own: this one need not load the migration tools."""
    result = subprocess.run(
        [sys.executable, "-m", "queuer", "db", "upgrade"],
        env=os.environ | {"QUEUER_DATABASE_URL": database_url},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if result.returncode:
        raise Unavailable(f"`queuer db upgrade` failed: {result.stderr.strip() or result.stdout.strip()}")

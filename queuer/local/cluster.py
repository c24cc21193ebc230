"""A handle on a cluster that `queuer local` made: who may log in how, and its processes one by one.

It is all that tests, the demo and the command line need to know of a running cluster. It is read back from
`state.json` in the cluster's directory, so any program may hold one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from queuer.domain.errors import Conflict, NotFound
from queuer.local import postgres
from queuer.local.binaries import Binaries
from queuer.local.controlplane import KUBERNETES_PARTS, OPTIONAL_PARTS, Layout, answers, commands
from queuer.local.fleet import Fleet
from queuer.local.identities import ADMIN, API, AUDIENCES, CONTROLLER, TENANT_NAMESPACES, token_of
from queuer.local.kubectl import Kubectl
from queuer.local.processes import Command, ProcessState, ProcessTable

POSTGRES = "postgres"
CONTROLLER_PART = "controller"
API_PART = "api"
QUEUER_PARTS = (CONTROLLER_PART, API_PART)
ALL_PARTS = (POSTGRES, *KUBERNETES_PARTS, *QUEUER_PARTS)
"""Those that run unless somebody chooses."""
KNOWN_PARTS = (POSTGRES, *KUBERNETES_PARTS, *OPTIONAL_PARTS, *QUEUER_PARTS)


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `state.json`: all that cannot be found out again.

    `crds` are the CRD files of job kinds that the API server was given, in folders named after their content.
    `kubeconfig` and `database_url` are those of an existing cluster and database, "" where it has its own.
    """

    parts: tuple[str, ...]
    ports: dict[str, int]
    etcd_data: Path
    programs: dict[str, Path]
    fleet: Fleet
    crds: tuple[Path, ...] = ()
    kubeconfig: str = ""
    database_url: str = ""


class PartStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `queuer local status`."""

    part: str
    state: ProcessState
    pid: int | None
    log: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A local cluster in `dir`. `ca_file` is what TLS clients of `api_url` must trust."""

    dir: Path
    state: State
    processes: ProcessTable

    @classmethod
    def load(cls, directory: Path) -> Cluster:
        """The cluster that was made in `directory`. Raises `NotFound`."""
        directory = directory.expanduser().resolve()
        try:
            content = (directory / "state.json").read_bytes()
        except FileNotFoundError:
            raise NotFound(
                f"there is no local cluster in {directory}", hint="`queuer local up` makes one"
            ) from None
        try:
            state = msgspec.json.decode(content, type=State, dec_hook=lambda kind, value: kind(value))
        except msgspec.ValidationError as error:
            raise Conflict(
                f"{directory / 'state.json'} was written by another version of Queuer: {error}",
                hint=f"stop the processes that {directory / 'pid'} names, then remove the directory",
            ) from error
        return cls(dir=directory, state=state, processes=ProcessTable(directory))

    def save(self) -> None:
        """Write `state.json`, whole or not at all."""
        temporary = self.dir / ".state.json"
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(self.state, enc_hook=str)))
        temporary.rename(self.dir / "state.json")

    @property
    def layout(self) -> Layout:
        return Layout(directory=self.dir, etcd_data=self.state.etcd_data, ports=self.state.ports)

    @property
    def api_url(self) -> str:
        """The Kubernetes API server of this cluster's own parts."""
        return self.layout.api_url

    @property
    def kubernetes_url(self) -> str:
        """The name of the Kubernetes in use: its URL, or the kubeconfig of an existing one."""
        return self.state.kubeconfig or self.api_url

    @property
    def ca_file(self) -> Path:
        return self.layout.ca_file

    @property
    def queuer_url(self) -> str:
        """Queuer's REST API and dashboard."""
        return f"http://127.0.0.1:{self.state.ports[API_PART]}"

    @property
    def controller_url(self) -> str:
        """The controller's probes and metrics, `$CONTROLLER` in the docs."""
        return f"http://127.0.0.1:{self.state.ports[CONTROLLER_PART]}"

    @property
    def database(self) -> Path:
        """The directory of the cluster's own PostgreSQL."""
        return self.dir / "postgres"

    @property
    def cycles(self) -> Path:
        """The directory of the cycles that the controller records."""
        return self.dir / "cycles"

    @property
    def database_url(self) -> str:
        """The database in use, as a SQLAlchemy URL. Raises `NotFound` while the cluster's own is down."""
        if self.state.database_url:
            return self.state.database_url
        server = postgres.running(self.database)
        if server is None:
            raise NotFound(f"PostgreSQL of {self.dir} does not run", hint="`queuer local up` starts it")
        return server.url

    def token(self, identity: str) -> str:
        """The bearer token of an identity: admin, queuer-controller, queuer-api, alice, bob, …"""
        return token_of(self.layout.tokens, identity)

    def kubeconfig(self, identity: str) -> Path:
        """The kubeconfig file of an identity; in an existing cluster the admin's is the one that was given."""
        if self.state.kubeconfig and identity == ADMIN:
            return Path(self.state.kubeconfig)
        path = self.layout.kubeconfigs / identity
        if not path.exists():
            known = ", ".join(sorted(p.name for p in self.layout.kubeconfigs.glob("*")))
            raise NotFound(f"there is no identity {identity!r}", hint=f"known are {known}")
        return path

    def kubectl(self, identity: str) -> Kubectl:
        """A kubectl that acts as an identity."""
        return Kubectl(program=self.state.programs["kubectl"], kubeconfig=self.kubeconfig(identity))

    def start(self, names: Iterable[str], *, environment: Mapping[str, str] | None = None) -> None:
        """Start parts, in the given order, each waited for until ready; `environment` is added to theirs."""
        for name in names:
            if name == POSTGRES:
                postgres.start(self.database)
                continue
            self.launch(self.command(name, environment=environment))

    def launch(self, command: Command) -> None:
        """Start any program under a name of its own (a second controller, say) and wait until it is ready."""
        self.processes.start(command)
        self.processes.wait_ready(command)

    def stop(self, names: Iterable[str]) -> None:
        """Stop parts, in the given order; what is down is left alone."""
        for name in names:
            if name != POSTGRES:
                self.processes.stop(name)
            elif server := postgres.running(self.database):
                server.stop()

    def pid(self, name: str) -> int | None:
        """The PID of a part while it runs, else None."""
        return self.status(name).pid

    def log(self, name: str) -> Path:
        """The log file of a part."""
        return self.database / "log" if name == POSTGRES else self.processes.log(name)

    def status(self, name: str) -> PartStatus:
        """Whether a part runs, was stopped, or crashed."""
        if name != POSTGRES:
            return PartStatus(
                part=name, state=self.processes.state(name), pid=self.processes.pid(name), log=self.log(name)
            )
        if server := postgres.running(self.database):
            return PartStatus(part=name, state=ProcessState.RUNNING, pid=server.pid, log=server.log)
        crashed = (self.database / "data" / "postmaster.pid").exists()
        state = ProcessState.CRASHED if crashed else ProcessState.STOPPED
        return PartStatus(part=name, state=state, pid=None, log=self.log(name))

    def exports(self) -> list[str]:
        """Lines for a shell, after which the docs' commands work there as they are typed."""
        lines = [f"export KUBECONFIG={self.kubeconfig(ADMIN)}"]
        for tenant, namespace in ({} if self.state.kubeconfig else TENANT_NAMESPACES).items():
            lines.append(f"# as {tenant}, of {namespace}: export KUBECONFIG={self.kubeconfig(tenant)}")
        if API_PART in self.state.parts:
            lines.append(f"export QUEUER_API={self.queuer_url}  # queuer logs in with the kubeconfig's token")
        if CONTROLLER_PART in self.state.parts:
            lines.append(f"export CONTROLLER={self.controller_url}")
        programs = {Path(sys.executable).parent, self.state.programs["kubectl"].parent}
        return [*lines, f'export PATH="{":".join(map(str, sorted(programs)))}:$PATH"  # queuer and kubectl']

    def command(self, name: str, *, environment: Mapping[str, str] | None = None) -> Command:
        """How a part is run, `environment` added. Raises `NotFound` for an unknown name."""
        extra = environment or {}
        if name in QUEUER_PARTS:
            return self._queuer(name, extra)
        known = {} if self.state.kubeconfig else self._kubernetes()
        if name not in known:
            parts = (*known, *QUEUER_PARTS)
            raise NotFound(f"there is no part {name!r} to run", hint=f"known are {', '.join(parts)}")
        return replace(known[name], environment={**known[name].environment, **extra})

    def _kubernetes(self) -> dict[str, Command]:
        return commands(self.layout, Binaries(programs=self.state.programs, crds=()))

    def _queuer(self, part: str, environment: Mapping[str, str]) -> Command:
        """`queuer serve PART`, against this cluster's database unless `environment` names another."""
        identity, port = (
            (CONTROLLER, "QUEUER_CONTROLLER_PORT") if part == CONTROLLER_PART else (API, "QUEUER_PORT")
        )
        settings = {
            "KUBECONFIG": str(self.kubeconfig(identity)),
            port: str(self.state.ports[part]),
            "QUEUER_CYCLES_DIR": str(self.cycles),
            "QUEUER_TOKEN_AUDIENCES": ",".join(AUDIENCES),
            **environment,
        }
        if "QUEUER_DATABASE_URL" not in settings:
            settings["QUEUER_DATABASE_URL"] = self.database_url
        ready = answers(f"http://127.0.0.1:{settings[port]}/readyz")
        arguments = [sys.executable, "-m", "queuer", "serve", part]
        return Command(name=part, arguments=arguments, environment=settings, ready=ready)

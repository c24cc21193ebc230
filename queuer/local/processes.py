"""Starts, watches and stops the processes of a local cluster, across several runs of the program.

A started process has a file `pid/NAME.json`, removed when it is stopped on purpose. So a file whose
process is gone means a crash. A PID can be recycled, so the process's start time is compared too.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import psutil

from queuer.domain.errors import Unavailable

_POLL_SECONDS = 0.03
_CLOCK_SECONDS = 30.0  # start times are derived from the wall clock, which may be set meanwhile
READY_SECONDS = 120.0
"""A part that has ended is not waited for: only a slow machine needs so long."""
STOP_SECONDS = 15.0

Probe = Callable[[], bool]


class ProcessFailed(Unavailable):
    """A process exited, or is not ready in time."""

    code = "process_failed"


class ProcessState(StrEnum):
    RUNNING = "running"
    FROZEN = "frozen"
    STOPPED = "stopped"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program to run under a name. `ready` tells whether it does its work yet; None = ready once started.

    `environment` is added to this program's own.
    """

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    ready: Probe | None = None


class ProcessTable:
    """The processes of one directory: PID files in `pid/`, logs in `log/`."""

    def __init__(self, directory: Path) -> None:
        self._pids = directory / "pid"
        self._logs = directory / "log"
        self._children: dict[str, int] = {}  # PIDs that this program started, so that it reaps them

    def start(self, command: Command) -> None:
        """Start it in a session of its own, unless it runs. The log is appended to."""
        if self.pid(command.name) is not None:
            return
        self._pids.mkdir(parents=True, exist_ok=True)
        self._logs.mkdir(parents=True, exist_ok=True)
        with self.log(command.name).open("ab") as log:
            child = subprocess.Popen(
                list(command.arguments), env=os.environ | dict(command.environment), cwd="/",
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        child.returncode = 0  # detached: it outlives this program, and is reaped by `_process`
        self._children[command.name] = child.pid
        record = {"pid": child.pid, "started": psutil.Process(child.pid).create_time()}
        temporary = self._pids / f".{command.name}"
        temporary.write_text(json.dumps(record))
        temporary.rename(self._file(command.name))

    def wait_ready(self, command: Command, *, timeout: float = READY_SECONDS) -> None:
        """Wait until its probe says yes. Raises `ProcessFailed` when it exits before, or is late."""
        deadline = time.monotonic() + timeout
        while command.ready is not None and not command.ready():
            if self.pid(command.name) is None:
                raise ProcessFailed(f"{command.name} exited; {self.last_words(command.name)}")
            if time.monotonic() > deadline:
                raise ProcessFailed(
                    f"{command.name} is not ready after {timeout:.0f} s; {self.last_words(command.name)}"
                )
            time.sleep(_POLL_SECONDS)

    def stop(self, name: str, *, timeout: float = STOP_SECONDS) -> bool:
        """SIGTERM, then SIGKILL when it is late; True when it had to be killed. No error when it is down."""
        process = self._process(name)
        killed = False
        if process is not None:
            _send(process, signal.SIGCONT)  # a frozen process cannot act on SIGTERM
            _send(process, signal.SIGTERM)
            killed = not self._gone(name, timeout)
            if killed:
                _send(process, signal.SIGKILL)
                self._gone(name, timeout)
        self._file(name).unlink(missing_ok=True)
        self._children.pop(name, None)
        return killed

    def state(self, name: str) -> ProcessState:
        _, status = self._look(name)
        if status is not None:
            return ProcessState.FROZEN if status == psutil.STATUS_STOPPED else ProcessState.RUNNING
        return ProcessState.CRASHED if self._file(name).exists() else ProcessState.STOPPED

    def pid(self, name: str) -> int | None:
        """The PID while it runs, else None."""
        process = self._process(name)
        return process.pid if process is not None else None

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def names(self) -> list[str]:
        """All that were started and not stopped on purpose."""
        return sorted(path.stem for path in self._pids.glob("*.json"))

    def forget(self) -> None:
        """Delete all PID files and logs."""
        for folder in (self._pids, self._logs):
            shutil.rmtree(folder, ignore_errors=True)

    def last_words(self, name: str) -> str:
        """Where the log is and its last lines, as the end of a sentence."""
        return f"its log is at {self.log(name)}, last lines:\n{tail(self.log(name), 5)}"

    def _file(self, name: str) -> Path:
        return self._pids / f"{name}.json"

    def _process(self, name: str) -> psutil.Process | None:
        return self._look(name)[0]

    def _look(self, name: str) -> tuple[psutil.Process | None, str | None]:
        """The process and its status, in one look: it may end, and be reaped by another, at any moment."""
        self._reap(name)
        try:
            record = json.loads(self._file(name).read_text())
            process = psutil.Process(record["pid"])
            same = abs(process.create_time() - record["started"]) < _CLOCK_SECONDS
            status = process.status()
            return (process, status) if same and status != psutil.STATUS_ZOMBIE else (None, None)
        except (FileNotFoundError, psutil.NoSuchProcess):
            return None, None

    def _reap(self, name: str) -> None:
        if name not in self._children:
            return
        try:
            ended, _ = os.waitpid(self._children[name], os.WNOHANG)
        except ChildProcessError:
            ended = self._children[name]
        if ended:
            del self._children[name]

    def _gone(self, name: str, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while self._process(name) is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)


@contextmanager
def locked(path: Path, *, busy: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold a lock file: one program at a time. `busy` is called where another program holds it, before the wait."""
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if busy is not None:
                busy()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def tail(path: Path, lines: int) -> str:
    """The last lines of a text file, "" where there is none."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""

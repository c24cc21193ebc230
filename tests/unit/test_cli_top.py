"""`queuer top`: what a frame says, and a terminal that is clean afterwards, whatever became of the server."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from queuer.cli.top import Seen, frame
from tests.cli import serving

GPU = "nvidia.com/gpu"
PATIENCE = 90  # seconds: a loaded machine takes long to start a process, and to end one
NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
OVERVIEW: dict[str, Any] = {
    "asOf": "2026-01-01T11:59:00Z",
    "controller": {"state": "leading", "text": "the controller leads", "cycle": 9, "cycleAgeSeconds": 4.2},
    "cycle": {"id": 7, "status": "GREEDY", "finished": "2026-01-01T11:59:56Z"},
    "counts": {"Queued": 3, "Running": 2},
    "capacity": [{"resource": GPU, "allocatable": "32", "used": "24", "free": "8"}],
    "attention": [{"text": "root.a is \x1b[31mstarved"}],
}  # fmt: skip


def queue(path: str, **more: Any) -> dict[str, Any]:
    account = {
        "resource": GPU, "flavor": None, "used": "8", "guaranteed": "16", "borrowed": "0", "lent": "8",
        "pending": "64", "starved": True, "limit": None,
    }  # fmt: skip
    return {
        "path": path, "parent": path.rpartition(".")[0] or None, "pendingWorkloads": 1,
        "oldestPending": "2026-01-01T11:20:00Z", "accounts": [account],
        "quota": [{"resource": GPU}], "effectiveState": "open", **more,
    }  # fmt: skip


def shown(*queues: dict[str, Any], stale: str = "", height: int = 40) -> list[str]:
    screen = Console(width=120, height=height, file=io.StringIO())
    screen.print(frame(Seen(overview=OVERVIEW, queues=queues, stale=stale), now=NOW, height=height))
    return [line.rstrip() for line in screen.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_a_frame_says_jobs_room_queues_the_oldest_and_the_last_cycle() -> None:
    lines = shown(queue("root"), queue("root.a"))
    assert lines[0] == "Queuer  the controller leads  cycle 9, 4s ago (on record: 7)"
    assert lines[1] == "Jobs    3 Queued, 2 Running"
    assert lines[2] == "Room    24 used, 8 free of 32 gpu"
    assert "! root.a is [31mstarved" in lines
    assert next(line.split() for line in lines if "└─ a" in line) == [
        "└─", "a", "8/16", "64", "!", "1", "40m", "########........",
    ]  # fmt: skip


def test_a_frame_is_no_taller_than_the_terminal_and_says_what_it_leaves_out() -> None:
    lines = shown(queue("root"), *(queue(f"root.q{i}") for i in range(50)), height=24)
    assert len(lines) <= 24
    assert any("more queues: queuer queue tree" in line for line in lines)


def test_a_frame_of_a_server_that_is_away_says_how_old_it_is() -> None:
    assert "STALE: as of 1m ago: no Queuer API" in shown(queue("root"), stale="no Queuer API")[0]


def answer(path: str) -> object:
    return {"items": [queue("root")]} if path.endswith("/queues") else OVERVIEW


def _environment(port: int) -> dict[str, str]:
    here = str(Path(__file__).parents[2])
    return {**os.environ, "QUEUER_API": f"http://127.0.0.1:{port}", "TERM": "xterm", "PYTHONPATH": here,
            "QUEUER_TOKEN": "t"}  # fmt: skip


def test_without_a_terminal_one_frame_is_printed() -> None:
    with serving(answer) as port:
        ran = subprocess.run(
            [sys.executable, "-m", "queuer", "top"],
            env=_environment(port), capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
    assert (ran.returncode, "cycle 9, 4s ago" in ran.stdout, "\x1b" in ran.stdout) == (0, True, False)


@contextmanager
def _running(port: int) -> Iterator[tuple[subprocess.Popen[bytes], int, Callable[[bytes], bytes]]]:
    """The process, the terminal's other end, and a function that reads on until a text has come."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 120))
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen(
        [sys.executable, "-m", "queuer", "top"], env=_environment(port),
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    seen = bytearray()

    def until(text: bytes) -> bytes:
        start, deadline = len(seen), time.monotonic() + PATIENCE
        while text not in seen[start:]:
            assert time.monotonic() < deadline, (text, bytes(seen[-2000:]))
            if select.select([ours], [], [], 0.2)[0]:
                seen.extend(os.read(ours, 65536))
        return bytes(seen[start:])

    try:
        yield process, ours, until
        assert termios.tcgetattr(theirs) == before
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def test_it_says_stale_while_the_server_is_away_recovers_and_leaves_a_clean_terminal() -> None:
    with ExitStack() as first:
        port = first.enter_context(serving(answer))
        with _running(port) as (process, keyboard, until):
            until(b"cycle 9, 4s ago")
            first.close()
            until(b"STALE")
            with serving(answer, port=port):
                deadline = time.monotonic() + PATIENCE
                while b"STALE" in _next_frame(until):
                    assert time.monotonic() < deadline, "it recovers"
                os.write(keyboard, b"q")
                assert b"\x1b[?25h" in until(b"\x1b[?1049l")
                assert process.wait(PATIENCE) == 0


def _next_frame(until: Callable[[bytes], bytes]) -> bytes:
    """All of one frame at least."""
    until(b"q quits")
    return until(b"q quits")


def test_ctrl_c_leaves_as_clean_a_terminal() -> None:
    with serving(answer) as port, _running(port) as (process, _, until):
        until(b"cycle 9, 4s ago")
        process.send_signal(signal.SIGINT)
        until(b"\x1b[?1049l")
        assert process.wait(PATIENCE) == 0

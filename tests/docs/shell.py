"""A shell that keeps its variables from one command to the next, and the typing of a whole page into it."""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from uuid import uuid4

from tests.docs.snippets import Command, File, same, steps

LOOKING = re.compile(r"^(queuer (why|jobs|queue (tree|ls|show)|cycles)|kubectl (get|describe)|curl -s [^-])")
"""Commands that only look: what they show comes a moment later, so they are typed again until it does."""
LOOK_SECONDS = 20.0
LONGEST_SECONDS = 180.0


class Shell:
    """Bash in a directory. Standard error comes with the output, as on a terminal."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--norc"], cwd=directory, env=dict(environment), bufsize=0,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(10)

    def run(self, command: str, *, timeout: float) -> tuple[str, int]:
        """Its output and exit code. The next command finds it in `$?`."""
        stdin, stdout, mark = self._process.stdin, self._process.stdout, f"end-{uuid4().hex}"
        assert stdin is not None
        assert stdout is not None
        text = f"(exit ${{ended:-0}})\n{{ {command}\n}} </dev/null; ended=$?; echo; echo {mark} $ended\n"
        stdin.write(text.encode())
        read, deadline = b"", time.monotonic() + timeout
        while (end := re.search(rf"^{mark} (\d+)\n".encode(), read, re.MULTILINE)) is None:
            ready, _, _ = select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no end of `{command}` in {timeout:.0f} s: {read.decode()}"
            more = os.read(stdout.fileno(), 65536)
            assert more, f"the shell ended in `{command}`: {read.decode()}"
            read += more
        return read[: end.start()].decode().removesuffix("\n"), int(end[1])


def type_page(
    page: str, shell: Shell, work: Path, *, become: Callable[[str], str], here: Callable[[str], str] = str
) -> None:
    """Do what the page says, from top to bottom; its files are written to `work`.

    `become`: the command with which a user takes over; `here`: a command as it has to be on this machine.
    """
    found = list(steps(page))
    for step, after in zip(found, [*found[1:], None], strict=True):
        if isinstance(step, File):
            (work / step.name).write_text(step.text)
            continue
        shell.run(f"{become(step.user)}; (exit $ended)", timeout=LOOK_SECONDS)
        any_end = isinstance(after, Command) and after.text == "echo $?"
        _type(shell, here(step.text), step.output, any_end=any_end)


def _type(shell: Shell, command: str, shown: str, *, any_end: bool) -> None:
    """Type a command and compare; one that only looks is typed again until it shows what the page shows."""
    deadline = time.monotonic() + (LOOK_SECONDS if LOOKING.match(command) else 0.0)
    while True:
        said, ended = shell.run(command, timeout=LONGEST_SECONDS)
        if (any_end or not ended) and (not shown or same(shown, said)):
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"$ {command}\n{said}\nended with {ended}; the page shows:\n{shown}")

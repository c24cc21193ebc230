"""A shell that keeps its variables from one command to the next, and says how each ended."""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

LOOKING = re.compile(r"^(queuer (why|jobs|queue (tree|ls|show)|cycles)|kubectl (get|describe)|curl -s [^-])")
"""Commands that only look: what they show comes a moment later, so they are typed again until it does."""


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

    def run(self, command: str, *, timeout: float = 30.0) -> tuple[str, int]:
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

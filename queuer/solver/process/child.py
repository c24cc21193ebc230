"""A child process that answers questions, one at a time: the only way in which the solver runs beside a program.

The controller keeps one for its decisions and starts one for each forecast. The API server keeps one for the newest
stored cycle. Questions and replies are messages of `wire` on the child's stdin and stdout. A child that is late, or
whose caller gave up, is killed; its owner starts another. A child never outlives its parent. It leads a session of its
own: an interrupt for the parent's process group does not reach it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import weakref
from typing import Any, BinaryIO, cast

from queuer.solver.process import wire
from queuer.solver.records import Snapshot


class ChildFailure(Exception):
    """The child gave no reply that can be used. `late`: not in time."""

    def __init__(self, text: str, *, late: bool = False) -> None:
        super().__init__(text)
        self.late = late


class Child:
    """One process. `known`: the snapshot that it was told last, which its owner keeps up to date."""

    def __init__(self, target: str, *, nice: int = 0) -> None:
        """`target`: `module:name` of what it keeps and requests are answered with; of a class it makes one.

        `nice`: how far it steps back behind other processes.
        """
        pipe, program = subprocess.PIPE, "queuer.solver.process.serving"
        self.known: Snapshot | None = None
        self._struck = False
        self._process = subprocess.Popen(
            (sys.executable, "-m", program, target, str(nice)),
            stdin=pipe,
            stdout=pipe,
            start_new_session=True,
        )
        self._end = weakref.finalize(self, _end, self._process)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def usable(self) -> bool:
        """Whether it may still answer."""
        return not self._struck and self._process.poll() is None

    async def ask(self, request: wire.Request, *, within: float) -> Any:
        """The value that answers a request which refers to no snapshot. Raises as `exchange` and `result_of` do."""
        message = await asyncio.to_thread(wire.pack, request)
        return result_of(await self.exchange(message, within=within))

    async def exchange(self, message: bytes, *, within: float) -> wire.Reply:
        """The reply to a message, after `within` seconds at most. Raises ChildFailure.

        No reply, or a caller that is cancelled, costs the child its life: a later reply would pass for another's.
        """
        try:
            async with asyncio.timeout(within):
                return await asyncio.to_thread(self._exchange, message)
        except TimeoutError:
            failure = ChildFailure(f"no answer within {within:g} s", late=True)
        except EOFError:
            failure = ChildFailure("it ended")
        except Exception as error:  # noqa: BLE001 - whatever it said, it was no reply
            failure = ChildFailure(f"{type(error).__name__}: {error}")
        except BaseException:
            self.kill()
            raise
        self.kill()
        raise failure

    def _exchange(self, message: bytes) -> wire.Reply:
        """In a thread, which a kill sets free."""
        requests, replies = cast(BinaryIO, self._process.stdin), cast(BinaryIO, self._process.stdout)
        requests.write(message)
        requests.flush()
        reply = wire.unpack(wire.receive(replies))
        if not isinstance(reply, wire.Reply):
            raise TypeError("a message that is no reply")
        return reply

    def kill(self) -> None:
        """SIGKILL to all of its session: a process that it started would keep its stdout open."""
        self._struck = True
        _kill(self._process)

    async def end(self) -> None:
        """End it, whatever it is at, and leave no zombie."""
        self.kill()
        await asyncio.to_thread(self._end)


def result_of(reply: wire.Reply) -> Any:
    """The value. Raises ChildFailure where there is none, and the QueuerError that refuses the question."""
    if reply.refused is not None:
        raise reply.refused
    if reply.error:
        raise ChildFailure(reply.error)
    return reply.value


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _end(process: subprocess.Popen[bytes]) -> None:
    _kill(process)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()

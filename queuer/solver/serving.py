"""The program of a solver process: answers the questions on its stdin until that ends, even in the middle of one.

A question is two messages: what is asked, then the snapshot or what differs from the one before. Where nothing is asked
the snapshot is to be taken over, so that the next question is about a known one: that is answered by READY.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import queue
import signal
import sys
import threading
from typing import Any, BinaryIO, Protocol, runtime_checkable

from queuer.solver import wire
from queuer.solver.difference import Difference
from queuer.solver.problem import Budget, Plan, Snapshot

_PR_SET_PDEATHSIG = 1


class Decide(Protocol):
    """The decision (DESIGN 4)."""

    def __call__(self, snapshot: Snapshot, *, now: float, seed: int, budget: Budget) -> Plan:
        """A plan for the snapshot."""


@runtime_checkable
class Follows(Protocol):
    """A decision that keeps what it has worked out about a snapshot for the next."""

    def follow(self, snapshot: Snapshot) -> object:
        """Work it out for this one."""


def resolve(target: str) -> Decide:
    """The function that `module:name` names, or one of the class that it names."""
    module, _, name = target.partition(":")
    found: Any = getattr(importlib.import_module(module), name)
    decide: Decide = found() if isinstance(found, type) else found
    return decide


def serve(target: str, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests; never returns."""
    function = resolve(target)
    line: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def listen() -> None:
        while (head := requests.read(wire.HEADER.size)) and len(head) == wire.HEADER.size:
            line.put(wire.unpack(requests.read(wire.length_of(head))))
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    _send(answers, wire.READY)
    gc.disable()  # nobody waits for it between two answers
    snapshot: Any = None
    while True:
        asked, told = line.get(), line.get()
        try:
            snapshot = told.after(snapshot) if isinstance(told, Difference) else told
            answer = _answer(function, asked, snapshot)
        except Exception as error:  # noqa: BLE001 - told to the parent, which counts it
            text = f"{type(error).__name__}: {error}"
            answer = text if asked is None else (asked[0], text)
        _send(answers, answer)
        gc.collect()


def _answer(function: Decide, asked: Any, snapshot: Snapshot) -> object:
    if asked is None:
        if isinstance(function, Follows):
            function.follow(snapshot)
        return wire.READY
    number, now, seed, budget = asked
    return number, function(snapshot, now=now, seed=seed, budget=budget)


def _send(answers: BinaryIO, message: object) -> None:
    answers.write(wire.pack(message))
    answers.flush()


def _die_with_parent() -> None:
    """Have the kernel do it where it can: a stopped process does not notice that its stdin has ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """What libraries print goes to stderr, so that it cannot pass for an answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_parent()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.argv[1], sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()

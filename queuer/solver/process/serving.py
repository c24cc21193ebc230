"""The program of a solver process: answers the requests on its stdin until that ends, even in the middle of one."""

from __future__ import annotations

import ctypes
import gc
import importlib
import itertools
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, BinaryIO

from queuer.solver.process import wire
from queuer.solver.process.difference import Difference
from queuer.solver.records import Plan, Snapshot

FULL = 64
"""Answers after which all that is kept is searched for garbage; after each only what is new is."""
_PR_SET_PDEATHSIG = 1


def resolve(target: str) -> Callable[..., Plan]:
    """The function that `module:name` names, or one of the class that it names."""
    module, _, name = target.partition(":")
    found: Any = getattr(importlib.import_module(module), name)
    decide: Callable[..., Plan] = found() if isinstance(found, type) else found
    return decide


def serve(target: str, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests; never returns. Garbage is collected while nobody waits for an answer."""
    gc.disable()
    decide = resolve(target)
    line: queue.SimpleQueue[wire.Request] = queue.SimpleQueue()

    def listen() -> None:
        while len(head := requests.read(wire.HEADER.size)) == wire.HEADER.size:
            line.put(wire.unpack(requests.read(wire.length_of(head))))
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    snapshot: Any = None
    for number in itertools.count(1):
        request = line.get()
        told = request.told
        try:
            snapshot = told.after(snapshot) if isinstance(told, Difference) else told
            answer = _answer(decide, request, snapshot)
        except Exception as error:  # noqa: BLE001 - told to the parent
            answer = wire.pack_answer(error=f"{type(error).__name__}: {error}")
        answers.write(answer)
        answers.flush()
        gc.collect(1 if number % FULL else 2)


def _answer(decide: Callable[..., Plan], request: wire.Request, snapshot: Snapshot) -> bytes:
    """Where nothing is asked, a decision that keeps what it works out about snapshots is given this one."""
    if request.budget is not None:
        plan = decide(snapshot, now=request.now, seed=request.seed, budget=request.budget)
        return wire.pack_answer(plan)
    if follow := getattr(decide, "follow", None):
        follow(snapshot)
    return wire.pack_answer()


def main() -> None:
    """What libraries print goes to stderr, so that it cannot pass for an answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":  # it ends with its parent even while stopped
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.argv[1], sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()

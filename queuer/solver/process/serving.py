"""The program of a solver process: answers the requests on its stdin until that ends."""

from __future__ import annotations

import ctypes
import gc
import importlib
import itertools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from queuer.domain.errors import QueuerError
from queuer.solver.process import wire
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
    """Answer requests. Garbage is collected while nobody waits for an answer."""
    gc.disable()
    decide = resolve(target)
    known: Snapshot | None = None
    for number in itertools.count(1):
        head = requests.read(wire.HEADER.size)
        if not head:
            return
        asked: wire.Request = wire.unpack(requests.read(wire.length_of(head)), known=known)
        known = asked.snapshot
        try:
            plan = _decided(decide, asked)
            said = wire.pack(wire.Answer(plan=plan))
        except QueuerError as error:
            said = wire.pack(wire.Answer(refused=error))
        except Exception as error:  # noqa: BLE001 - told to the parent
            said = wire.pack(wire.Answer(error=f"{type(error).__name__}: {error}"))
        answers.write(said)
        answers.flush()
        gc.collect(1 if number % FULL else 2)


def _decided(decide: Callable[..., Plan], asked: wire.Request) -> Plan | None:
    """Where nothing is asked, a decision that keeps what it works out about snapshots is given this one."""
    if asked.budget is not None:
        return decide(asked.snapshot, now=asked.now, seed=asked.seed, budget=asked.budget)
    if follow := getattr(decide, "follow", None):
        follow(asked.snapshot)
    return None


def pipes() -> tuple[BinaryIO, BinaryIO]:
    """Requests and answers of a process that serves its parent, and ends with it.

    What libraries print goes to stderr, so that it cannot pass for an answer.
    """
    if sys.platform == "linux":  # it ends with its parent, even while stopped or in the middle of a decision
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return sys.stdin.buffer, answers


def main() -> None:
    """Serve decisions."""
    serve(sys.argv[1], *pipes())


if __name__ == "__main__":
    main()

"""The program of a child process: answers the requests on its stdin until that ends."""

from __future__ import annotations

import ctypes
import gc
import importlib
import itertools
import os
import signal
import sys
from typing import Any, BinaryIO

from queuer.domain.errors import QueuerError
from queuer.solver.process import wire
from queuer.solver.records import Snapshot

FULL = 64
"""Replies after which all that is kept is searched for garbage; after the others only what is new is."""
_PR_SET_PDEATHSIG = 1


def resolve(target: str) -> Any:
    """The object that `module:name` names, or an instance of the class."""
    module, _, name = target.partition(":")
    found: Any = getattr(importlib.import_module(module), name)
    return found() if isinstance(found, type) else found


def serve(target: str, requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer requests. Garbage is collected while nobody waits for a reply."""
    gc.disable()
    kept = resolve(target)
    known: Snapshot | None = None
    for number in itertools.count(1):
        try:
            body = wire.receive(requests)
        except EOFError:
            return
        request: wire.Request = wire.unpack(body, known=known)
        if isinstance(request, wire.SolveRequest):
            known = request.snapshot
        replies.write(_reply(request, kept))
        replies.flush()
        gc.collect(2 if request.renews or number % FULL == 0 else 1)


def _reply(request: wire.Request, kept: Any) -> bytes:
    try:
        value = request.answer(kept)
        return wire.pack(wire.Reply(value=value))
    except QueuerError as error:
        return wire.pack(wire.Reply(refused=error))
    except Exception as error:  # noqa: BLE001 - told to the parent
        return wire.pack(wire.Reply(error=f"{type(error).__name__}: {error}"))


def pipes() -> tuple[BinaryIO, BinaryIO]:
    """Requests and replies of a process that ends with its parent.

    Prints of libraries go to stderr, so that they cannot pass for a reply.
    """
    if sys.platform == "linux":  # it ends with its parent, even while stopped or in the middle of a decision
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return sys.stdin.buffer, replies


def main() -> None:
    """Serve `target` at the priority `nice`."""
    target, nice = sys.argv[1:]
    os.nice(int(nice))
    serve(target, *pipes())


if __name__ == "__main__":
    main()

"""The program of a solver process: answers the questions on its stdin until that ends, even in the middle of one."""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, BinaryIO

from queuer.core.process import wire
from queuer.core.process.difference import Difference
from queuer.core.records import Plan, Snapshot

_PR_SET_PDEATHSIG = 1


def resolve(target: str) -> Callable[..., Plan]:
    """The function that `module:name` names, or one of the class that it names."""
    module, _, name = target.partition(":")
    found: Any = getattr(importlib.import_module(module), name)
    decide: Callable[..., Plan] = found() if isinstance(found, type) else found
    return decide


def serve(target: str, questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer questions; never returns. Garbage is collected only while nobody waits for an answer."""
    gc.disable()
    decide = resolve(target)
    line: queue.SimpleQueue[wire.Question] = queue.SimpleQueue()

    def listen() -> None:
        while len(head := questions.read(wire.HEADER.size)) == wire.HEADER.size:
            line.put(wire.unpack(questions.read(wire.length_of(head))))
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    snapshot: Snapshot | None = None
    while True:
        question = line.get()
        try:
            snapshot = _told(question, snapshot)
            answer = _answer(decide, question, snapshot)
        except Exception as error:  # noqa: BLE001 - told to the parent
            answer = wire.pack_answer(error=f"{type(error).__name__}: {error}")
        answers.write(answer)
        answers.flush()
        gc.collect()


def _told(question: wire.Question, before: Snapshot | None) -> Snapshot:
    if not isinstance(question.told, Difference):
        return question.told
    assert before is not None
    return question.told.after(before)


def _answer(decide: Callable[..., Plan], question: wire.Question, snapshot: Snapshot) -> bytes:
    """Where nothing is asked, a decision that keeps what it works out about snapshots is given this one."""
    if question.budget is not None:
        plan = decide(snapshot, now=question.now, seed=question.seed, budget=question.budget)
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

"""The program of the process in which simulations are decided: it keeps the newest cycle that it was told."""

from __future__ import annotations

import gc
import os
from typing import BinaryIO

from queuer.api.cycles.judged import Case, Judged, judge
from queuer.domain.errors import QueuerError
from queuer.solver.process import wire
from queuer.solver.process.serving import pipes
from queuer.solver.simulate import Simulations
from queuer.solver.stored import StoredCycle, decode

Answer = Judged | QueuerError | str
"""What came of a question; text: an error that is none of ours."""


def read(pipe: BinaryIO) -> object:
    """The next message. Raises EOFError."""
    head = pipe.read(wire.HEADER.size)
    if len(head) < wire.HEADER.size:
        raise EOFError
    found: object = wire.unpack(pipe.read(wire.length_of(head)))
    return found


def main() -> None:
    """Answer questions until stdin ends: each with the body of a stored cycle, None = of the last.

    Garbage is collected while nobody waits: in the middle of reading a large cycle it would double the time.
    """
    os.nice(10)  # decisions come first
    gc.disable()
    questions, answers = pipes()
    known: tuple[StoredCycle, Simulations] | None = None
    while True:
        try:
            asked = read(questions)
        except EOFError:
            return
        assert isinstance(asked, tuple)
        body, case = asked
        said: Answer
        try:
            if body is not None:
                cycle = decode(body, name="stored cycle")
                known = cycle, Simulations(cycle)
            assert known is not None
            assert isinstance(case, Case)
            said = judge(*known, case)
        except QueuerError as error:
            said = error
        except Exception as error:  # noqa: BLE001 - told to the parent
            said = f"{type(error).__name__}: {error}"
        answers.write(wire.pack(said))
        answers.flush()
        gc.collect(2 if body is not None else 1)


if __name__ == "__main__":
    main()

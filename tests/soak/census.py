"""Runs `queuer` so that it can be asked what it keeps: at SIGUSR1 it counts its own objects into a file.

    QUEUER_TEST_CENSUS=FILE python -m tests.soak.census serve controller

Nothing of Queuer knows of it: what is counted is found as the garbage collector finds it.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import msgspec

FILE = "QUEUER_TEST_CENSUS"
_GROWS = (dict, list, set, deque)
_Cached = type(cache(int))


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """The memory of one process. `entries`: of the containers of all objects of a class together, by
    `Class.attribute`;
    of a module's globals, by `module.name`; of a function's cache, by `module.function()`. Empty ones are left out.

    `blocks`: pieces of memory that Python has given out, whatever the operating system says.
    """

    number: int
    entries: dict[str, int]
    tasks: int
    threads: int
    objects: int
    blocks: int


def take(number: int) -> Census:
    """Count now, after a collection."""
    gc.collect()
    found: Counter[str] = Counter()
    everything = gc.get_objects()
    for thing in everything:
        if isinstance(thing, _Cached):
            found[f"{thing.__module__}.{thing.__qualname__}()"] += thing.cache_info().currsize
        elif str(type(thing).__module__).startswith("queuer."):  # some types have a descriptor there
            for name, held in _attributes(thing):
                found[f"{type(thing).__qualname__}.{name}"] += len(held)
        elif isinstance(thing, ModuleType) and thing.__name__.startswith("queuer."):
            for name, held in vars(thing).items():
                if isinstance(held, _GROWS) and not name.startswith("__"):
                    found[f"{thing.__name__}.{name}"] += len(held)
    try:
        tasks = len(asyncio.all_tasks())
    except RuntimeError:
        tasks = 0  # the signal came between two runs of the loop
    return Census(
        number=number, entries={name: n for name, n in sorted(found.items()) if n}, tasks=tasks,
        threads=threading.active_count(), objects=len(everything), blocks=sys.getallocatedblocks(),
    )  # fmt: skip


def _attributes(thing: object) -> Iterator[tuple[str, Any]]:
    slots = (name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ()))
    own = {name: getattr(thing, name, None) for name in slots} | getattr(thing, "__dict__", {})
    for name, held in own.items():
        if isinstance(held, _GROWS):
            yield name, held


def write(path: Path, census: Census) -> None:
    """Whole or not at all."""
    temporary = path.with_suffix(".new")
    temporary.write_bytes(msgspec.json.encode(census))
    temporary.rename(path)


def read(path: Path) -> Census | None:
    """The last written record, or None."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Census)
    except FileNotFoundError:
        return None


def main() -> None:
    """Be `queuer`, and count when asked."""
    from queuer.cli.main import run

    path, number = Path(os.environ[FILE]), 0

    def count(_signal: int, _frame: FrameType | None) -> None:
        nonlocal number
        number += 1
        write(path, take(number))

    signal.signal(signal.SIGUSR1, count)
    run()


if __name__ == "__main__":
    main()

"""Types for the options of benches and test commands: what makes no sense is refused by `argparse`, which names the
option and what is allowed, before anything is measured.
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from enum import StrEnum
from math import nan
from pathlib import Path
from typing import TypeVar

MOST = 1_000_000
"""Of nodes, jobs, seeds and whatever else is counted."""
LAST_SEED = 10**9
LARGEST = 10**9
"""Of numbers that need not be whole: seconds, deterministic time, load."""
E = TypeVar("E", bound=StrEnum)


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number between these, both allowed."""
    read = _number(int, lambda n: least <= n <= most, f"a whole number from {least} to {most}")
    return lambda text: int(read(text))


def _number(kind: Callable[[str], float], fits: Callable[[float], bool], what: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            number = kind(text)
        except ValueError:
            number = nan
        if not fits(number):
            raise ArgumentTypeError(f"{text!r} is not {what}")
        return number

    return parse


count, positive, seed = whole(0, MOST), whole(1, MOST), whole(0, LAST_SEED)
amount = _number(float, lambda n: 0 <= n <= LARGEST, f"a number from 0 to {LARGEST}")
above_zero = _number(float, lambda n: 0 < n <= LARGEST, f"a number above 0 and up to {LARGEST}")
fraction = _number(float, lambda n: 0 <= n <= 1, "a number from 0 to 1")
below_one = _number(float, lambda n: 0 <= n < 1, "a number from 0 to below 1")


def word(words: type[E]) -> Callable[[str], E]:
    """A member of an enumeration by its value."""

    def parse(text: str) -> E:
        try:
            return words(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not one of {', '.join(words)}") from None

    return parse


def seeds(text: str) -> range:
    """First and last seed, with a hyphen between them."""
    first, _, last = text.partition("-")
    try:
        found = range(seed(first), seed(last) + 1)
    except ArgumentTypeError:
        found = range(0)
    if not found:
        raise ArgumentTypeError(f"{text!r} is not FIRST-LAST, two seeds up to {LAST_SEED} in this order")
    return found


def to_write(text: str) -> Path:
    """A file that is there or can be made. It is tried, but where there was none, none is left: what is written comes
    later, if ever.
    """
    path = Path(text)
    try:
        if path.is_dir():
            raise ArgumentTypeError(f"{text!r} is a directory; name a file")
        if not path.parent.is_dir():
            raise ArgumentTypeError(f"{text!r}: there is no directory {str(path.parent)!r}; make it first")
        there = path.exists()
        path.open("a").close()
        if not there:
            path.resolve().unlink()  # what a link points to, not the link
    except OSError as error:
        raise ArgumentTypeError(f"{text!r} cannot be written ({error.strerror}); name another file") from None
    return path

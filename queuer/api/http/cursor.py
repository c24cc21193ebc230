"""Opaque cursors of lists: the place after the last row shown, so that pages neither repeat nor skip."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TypeVar

from queuer.domain.errors import FieldProblem, InvalidInput

K = TypeVar("K", int, float, str)
_FARTHEST = 1e11
"""Seconds; later instants have no representation as a date."""
_LARGEST = 2**63


def make_cursor(order: str, key: float | str, uid: str = "") -> str:
    """The place after a row in an order of a list: what it is ordered by, and what tells it from its equals."""
    return base64.urlsafe_b64encode(json.dumps([order, key, uid]).encode()).decode().rstrip("=")


def read_cursor(text: str, order: str, kind: type[K]) -> tuple[K, str]:
    """The inverse of `make_cursor`; `kind`: of the key. Raises InvalidInput for what it did not make for this order."""
    try:
        made, key, uid = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if made != order or not isinstance(uid, str) or "\0" in uid or not _fits(key, kind):
            raise ValueError(text)
    except (ValueError, TypeError, binascii.Error) as error:
        problem = "not a cursor of this list"
        raise InvalidInput(
            FieldProblem(field="cursor", message=problem, hint="leave it out to begin anew")
        ) from error
    return kind(key), uid


def _fits(key: object, kind: type) -> bool:
    if kind is str:
        return isinstance(key, str) and "\0" not in key
    if isinstance(key, bool) or not isinstance(key, int | float):
        return False
    return 0 <= key < _FARTHEST if kind is float else isinstance(key, int) and -_LARGEST <= key < _LARGEST

"""Opaque cursors: the place after the last row that was shown, so that pages neither repeat nor skip."""

from __future__ import annotations

import base64
import binascii
import json

from queuer.domain.errors import FieldProblem, InvalidInput

_FARTHEST = 1e11
"""Seconds; later instants have no representation as a date."""


def make_cursor(submitted: float, uid: str) -> str:
    """The place after a workload in the list's order."""
    return base64.urlsafe_b64encode(json.dumps([submitted, uid]).encode()).decode().rstrip("=")


def read_cursor(text: str) -> tuple[float, str]:
    """The inverse of `make_cursor`. Raises InvalidInput for what it did not make."""
    try:
        value = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        submitted, uid = value
        if not isinstance(uid, str) or "\0" in uid or not 0 <= float(submitted) < _FARTHEST:
            raise ValueError(text)
    except (ValueError, TypeError, binascii.Error) as error:
        raise not_a_cursor() from error
    return float(submitted), uid


def not_a_cursor() -> InvalidInput:
    """What was given is none that the list has made."""
    problem = "not a cursor of this list"
    return InvalidInput(FieldProblem(field="cursor", message=problem, hint="leave it out to begin anew"))

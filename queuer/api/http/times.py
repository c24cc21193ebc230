"""Times as parameters: RFC 3339 with an offset. A bare number is none, whatever a library would make of it."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any

from pydantic import BeforeValidator

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def _checked(value: Any) -> Any:
    if isinstance(value, str) and not _RFC3339.fullmatch(value):
        raise ValueError("no RFC 3339 time; write e.g. 2026-01-31T09:00:00Z")
    return value


Instant = Annotated[datetime, BeforeValidator(_checked)]
"""A point in time as a parameter."""

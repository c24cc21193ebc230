"""JSON merge patches (RFC 7386), as the API server applies them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any


def merged(target: Any, patch: Any) -> Any:
    """The target after the patch; neither is changed."""
    if not isinstance(patch, Mapping):
        return deepcopy(patch)
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result

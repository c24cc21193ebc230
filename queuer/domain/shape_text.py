"""Shapes without a manifest: `gpu:8,cpu:4` is a pod of that much, `8xgpu:8,cpu:4` a gang of eight."""

from __future__ import annotations

import re
from collections.abc import Collection

from queuer.domain.errors import InvalidInput
from queuer.domain.fields import nearest
from queuer.domain.quantity import meant, parse_quantity
from queuer.domain.workload import PodSet

MOST = 100_000
"""Pods of a shape."""
MOST_RESOURCES = 16
"""Resources of a pod."""
_COUNT = re.compile(r"-?[0-9]+x")


def parse_shape(text: str, *, resources: Collection[str], field: str = "shape") -> PodSet:
    """The pod set `main` of `COUNTxRESOURCE:AMOUNT,…`; the rest as `parse_amounts` reads it. Raises InvalidInput."""
    count, cross, rest = text.partition("x")
    # The length comes first: `int` raises for very long numbers.
    short = count.isascii() and count.isdigit() and len(count) <= len(str(MOST))
    if not cross or not short or not 0 < int(count) <= MOST:
        raise InvalidInput.at(
            field, f"{text[:60]!r} is not a shape", 'write e.g. "8xgpu:8" or "1xcpu:4,memory:16Gi"'
        )
    requests = {"pods": 1} | parse_amounts(rest, resources=resources, field=field)
    return PodSet(name="main", count=int(count), requests=requests)


def parse_amounts(text: str, *, resources: Collection[str], field: str = "shape") -> dict[str, int]:
    """Requests of one pod in base units, of `RESOURCE:AMOUNT,…`. Of each at most once; zeros are left out.

    A resource may be named by what comes after its slash, where one alone of `resources` ends so. Raises InvalidInput
    naming `field`.
    """
    found: dict[str, int] = {}
    parts = text.split(",")
    if len(parts) > MOST_RESOURCES:
        raise InvalidInput.at(field, f"names more than {MOST_RESOURCES} resources", "ask for the scarce ones")
    for part in parts:
        name, colon, amount = part.strip().partition(":")
        if not colon:
            raise InvalidInput.at(
                field, f"{part[:60]!r} is no resource with its amount", 'write e.g. "gpu:8,cpu:16"'
            )
        resource = _resource(name, resources, field=field)
        if resource in found:
            raise InvalidInput.at(field, f"{resource} is there twice", "name each resource once")
        found[resource] = parse_quantity(amount, resource=resource, field=field, whole=True)
    if not any(found.values()):
        raise InvalidInput.at(field, "asks for nothing", 'write e.g. "gpu:8"')
    return {resource: amount for resource, amount in found.items() if amount}


def _resource(name: str, resources: Collection[str], *, field: str) -> str:
    alike = meant(name, resources)
    if len(alike) == 1:
        return alike[0]
    if _COUNT.match(name):
        raise InvalidInput.at(field, f"{name[:60]!r} counts pods; it is asked for one", 'write e.g. "gpu:8"')
    message = f"{name[:60]!r} is {'several resources' if alike else 'no resource of this cluster'}"
    raise InvalidInput.at(
        field, message, f"write {' or '.join(alike)}" if alike else nearest(name[:60], resources)
    )

"""The shape of one pod as a parameter: `gpu:8,cpu:16,memory:64Gi`.

A resource may be named by what comes after its last slash, if that is one only.
"""

from __future__ import annotations

from collections.abc import Collection

from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.fields import nearest
from queuer.domain.quantity import Resources, parse_quantity

FIELD = "shape"
MOST = 16
"""Resources in one shape."""


def parse_shape(text: str, known: Collection[str]) -> Resources:
    """Requests of one pod, base units. `known`: resources that nodes have. Raises InvalidInput."""
    found: dict[str, int] = {}
    parts = text.split(",")
    if len(parts) > MOST:
        raise _wrong(f"names more than {MOST} resources", "ask for the scarce ones")
    for part in parts:
        name, mark, amount = part.strip().partition(":")
        if not mark:
            raise _wrong(f"{part!r} is no resource with its amount", "write e.g. nvidia.com/gpu:8,cpu:16")
        resource = _resource(name, known)
        if resource in found:
            raise _wrong(f"{resource} is there twice", "name each resource once")
        found[resource] = parse_quantity(amount, resource=resource, field=FIELD, whole=True)
    if not any(found.values()):
        raise _wrong("asks for nothing", "write e.g. nvidia.com/gpu:8")
    return {resource: amount for resource, amount in found.items() if amount}


def _resource(name: str, known: Collection[str]) -> str:
    if name in known:
        return name
    alike = [resource for resource in known if resource.rpartition("/")[2] == name]
    if len(alike) == 1:
        return alike[0]
    hint = f"write {' or '.join(sorted(alike))}" if alike else nearest(name, known)
    raise _wrong(f"no node has {name!r}" if not alike else f"{name!r} is several resources", hint)


def _wrong(message: str, hint: str) -> InvalidInput:
    return InvalidInput(FieldProblem(field=FIELD, message=message, hint=hint))

"""What somebody asks about without a manifest: `8xgpu:8,cpu:4` is a gang of eight pods of that much each."""

from __future__ import annotations

from collections.abc import Collection

from queuer.domain.errors import FieldProblem, InvalidInput
from queuer.domain.quantity import parse_quantity
from queuer.domain.workload import PodSet

MOST = 100_000
"""Pods of a shape."""


def parse_shape(text: str, *, resources: Collection[str], field: str = "shape") -> PodSet:
    """The pod set `main` of `COUNTxRESOURCE:AMOUNT,…`. A resource may be named by what comes after its slash, where one
    alone of `resources` ends so. Raises InvalidInput naming `field`.
    """
    count, cross, rest = text.partition("x")
    if not cross or not (count.isascii() and count.isdigit()) or not 0 < int(count[:7]) <= MOST:
        raise _wrong(field, f"{text[:60]!r} is not a shape", 'write e.g. "8xgpu:8" or "1xcpu:4,memory:16Gi"')
    requests = {"pods": 1}
    for part in rest.split(","):
        name, colon, amount = part.rpartition(":")
        if not colon:
            raise _wrong(field, f"{part[:60]!r} is not an amount", 'write e.g. "gpu:8"')
        resource = _resource(name, resources, field=field)
        requests[resource] = parse_quantity(amount, resource=resource, field=field)
    return PodSet(name="main", count=int(count), requests=requests)


def _resource(name: str, resources: Collection[str], *, field: str) -> str:
    if name in resources:
        return name
    ends = sorted(r for r in resources if r.rpartition("/")[2] == name)
    if len(ends) == 1:
        return ends[0]
    known = ", ".join(ends or sorted(resources)[:20])
    message = f"{name[:60]!r} is {'several resources' if ends else 'no resource of this cluster'}"
    raise _wrong(field, message, f"name one of {known}")


def _wrong(field: str, message: str, hint: str) -> InvalidInput:
    return InvalidInput(FieldProblem(field=field, message=message, hint=hint))

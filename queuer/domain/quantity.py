"""Kubernetes quantities at the edge, integers in base units inside.

Base units: millicores for `cpu`, one for everything else (bytes, devices, pods). Quantities finer than the
base unit are rounded up, as the API server does. Reference: apimachinery `resource.Quantity`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal
from math import floor
from types import MappingProxyType

from queuer.domain.errors import InvalidInput

Resources = Mapping[str, int]
"""Amounts by resource name, in base units."""

NOTHING: Resources = MappingProxyType({})
MAX_AMOUNT = 2**62
"""The largest number that a decision takes: sums must stay within 64 bits."""

_BINARY = {"Ei": 2**60, "Pi": 2**50, "Ti": 2**40, "Gi": 2**30, "Mi": 2**20, "Ki": 2**10}  # largest first
_DECIMAL = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_PATTERN = re.compile(r"^([+-]?\d+(?:\.\d*)?|[+-]?\.\d+)(?:([eE][+-]?\d{1,3})|([KMGTPE]i|[numkMGTPE])?)$")


def parse_quantity(
    value: str | int | float,
    *,
    resource: str,
    field: str = "quantity",
    whole: bool = False,
    most: int = MAX_AMOUNT,
) -> int:
    """Base units of a Kubernetes quantity such as `"500m"`, `"1536Gi"` or `8`. `whole`: nothing is rounded that is
    counted in pieces.

    Raises InvalidInput naming `field` where the text is no quantity, is negative, exceeds `most` or is not `whole`.
    """
    text = str(value).strip() if not isinstance(value, bool) else ""
    match = _PATTERN.match(text)
    if match is None:
        raise InvalidInput.at(field, f"{value!r} is not a quantity", 'write e.g. 8, "500m" or "64Gi"')
    number, exponent, suffix = match.groups()
    amount = Decimal(number)
    if exponent:
        amount = amount.scaleb(int(exponent[1:]))
    elif suffix in _BINARY:
        amount *= _BINARY[suffix]
    else:
        amount = amount.scaleb(_DECIMAL[suffix or ""])
    if _is_cpu(resource):
        amount *= 1000
    base = int(amount.to_integral_value(rounding=ROUND_CEILING))
    if base < 0:
        raise InvalidInput.at(field, f"{value!r} is negative", "use 0 or more")
    if whole and base != amount and not (_is_cpu(resource) or _in_bytes(resource)):
        message = f"{value!r} is no whole number, and {resource} is counted in pieces"
        raise InvalidInput.at(field, message, f"write {base - 1} or {base}")
    if base > most:
        hint = "write less, or leave it out where there is no bound"
        raise InvalidInput.at(field, f"{value!r} is larger than 2^62 {resource}", hint)
    return base


def parse_sum(text: str, *, resource: str) -> int:
    """`parse_quantity` of a sum that Queuer wrote: it may be larger than any amount that is taken in."""
    return parse_quantity(text, resource=resource, most=MAX_AMOUNT**2)


def parse_resources(
    amounts: Mapping[str, str | int | float], *, field: str = "requests", whole: bool = False
) -> dict[str, int]:
    """`parse_quantity` for a whole Kubernetes resource list."""
    return {
        name: parse_quantity(value, resource=name, field=f"{field}.{name}", whole=whole)
        for name, value in amounts.items()
    }


def format_quantity(amount: int, *, resource: str) -> str:
    """The shortest exact quantity of an amount in base units: `1500` cpu → `1500m`, `2**33` memory → `8Gi`."""
    if _is_cpu(resource):
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if amount and _in_bytes(resource):
        for suffix, factor in _BINARY.items():
            if amount % factor == 0:
                return f"{amount // factor}{suffix}"
    return str(amount)


def readable(quantity: str | int, *, resource: str) -> str:
    """An amount as people read it: `15360` cpu → `15,360`, `500m` → `500m`, memory `167772060Mi` → `160 TiB`. It is
    rounded, but to no fewer than four digits, so it is no input. An integer is in base units.
    """
    amount = quantity if isinstance(quantity, int) else parse_sum(quantity, resource=resource)
    if _is_cpu(resource):
        return f"{amount}m" if 0 < abs(amount) < 1000 else _rounded(amount / 1000)
    if _in_bytes(resource):
        for suffix, factor in _BINARY.items():
            if abs(amount) >= factor:
                return f"{_rounded(amount / factor)} {suffix}B"
    return _rounded(amount)


def _rounded(amount: float) -> str:
    """Four digits or more, without noughts at the end of a fraction; separators from five whole digits on."""
    places = 1 if abs(amount) >= 100 else 2 if abs(amount) >= 10 else 3
    near = floor(amount * 10**places + 0.5) / 10**places
    whole = int(near) if near == int(near) else near
    return f"{whole:,}" if abs(near) >= 10_000 else str(whole)


def short(resource: str) -> str:
    """`gpu` of `nvidia.com/gpu`."""
    return resource.rpartition("/")[2]


def meant(word: str, resources: Iterable[str]) -> list[str]:
    """The resources that a word may name: the one of this name, else all that end so after a slash."""
    known = sorted(resources)
    return [word] if word in known else [resource for resource in known if short(resource) == word]


def full_name(word: str, resources: Iterable[str]) -> str:
    """The only resource that a word may name; the word itself where there is none, or several."""
    found = meant(word, resources)
    return found[0] if len(found) == 1 else word


def amount_text(quantity: str | int, resource: str) -> str:
    """`15,360 cpu`, `160 TiB memory`, `8 gpu`, `1 pod`."""
    amount = readable(quantity, resource=resource)
    return f"{amount} {'pod' if (amount, resource) == ('1', 'pods') else short(resource)}"


def amounts_text(amounts: Mapping[str, str | int]) -> str:
    """All of these; a resource is named in full beside another one that ends the same."""
    ends = Counter(map(short, amounts))
    return ", ".join(
        amount_text(amount, name) if ends[short(name)] == 1 else f"{readable(amount, resource=name)} {name}"
        for name, amount in amounts.items()
    )


def in_whole_units(amount: int, *, resource: str) -> float:
    """An amount in base units as Prometheus would have it: cpu in cores, all else as it is."""
    return amount / 1000 if _is_cpu(resource) else float(amount)


def _is_cpu(resource: str) -> bool:
    return resource in ("cpu", "limits.cpu")


def _in_bytes(resource: str) -> bool:
    return resource.removeprefix("limits.") in ("memory", "ephemeral-storage") or resource.startswith(
        "hugepages-"
    )


def format_resources(amounts: Resources) -> dict[str, str]:
    """`format_quantity` for a whole resource list, sorted by name."""
    return {name: format_quantity(amount, resource=name) for name, amount in sorted(amounts.items())}


def devices(demand: Mapping[str, str] | Resources) -> str:
    """The devices that a job asks for, or its cpu if there are none."""
    plain = ("cpu", "memory", "ephemeral-storage", "pods")
    few = [name for name in demand if name not in plain] or [name for name in plain if name in demand][:1]
    return amounts_text({name: demand[name] for name in few})


def age(seconds: float) -> str:
    """`9s`, `4m`, `3h`, `2d`: one unit, rounded down."""
    seconds = max(0.0, seconds)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def add(left: Resources, right: Resources, *, times: int = 1) -> dict[str, int]:
    """`left + times * right`, resource by resource."""
    total = dict(left)
    for name, amount in right.items():
        total[name] = total.get(name, 0) + times * amount
    return total


def beyond(amounts: Iterable[Resources]) -> dict[str, int]:
    """Resources of which these have more together than a decision takes, with their sums."""
    totals: Counter[str] = Counter()
    for each in amounts:
        totals.update(each)
    return {resource: total for resource, total in totals.items() if total > MAX_AMOUNT}


def capped(amounts: Resources, most: int) -> dict[str, int]:
    """No amount above `most`, as pods that name their node themselves may request anything and sums have 64 bits."""
    return {resource: min(amount, most) for resource, amount in amounts.items()}

"""The reason of a gang that its namespace's ResourceQuota has no room for: the limit, the use and its holders, the
request, and the room that is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from queuer.domain.quantity import format_quantity
from queuer.domain.reasons import Reason, Token
from queuer.domain.workload import Workload


class Users(NamedTuple):
    """The largest holders of an amount, and the part of it that work of lower priority than the asking gang holds."""

    holders: Sequence[Mapping[str, Any]]
    lower: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """An amount of a ResourceQuota that a workload's pods would exceed at their smallest size. `used`: as its status
    says; `coming`: what is reckoned as used beside that, or below 0 what is given back.
    """

    quota: str
    resource: str
    limit: int
    used: int
    coming: int
    asks: int

    @property
    def never(self) -> bool:
        """It is larger by itself."""
        return self.asks > self.limit


def reason(workload: Workload, short: Shortage, users: Users) -> Reason:
    """`asks > limit`, or `used + coming + asks > limit`, of which `missing` is too much."""
    partly = any(p.min_count not in (None, p.count) for p in workload.pod_sets)
    asks = "asks at least" if partly else "asks"
    text = f"ResourceQuota {short.quota} of namespace {workload.namespace} allows "
    if short.never:
        token, figures = Token.EXCEEDS_MAX_QUOTA, {"room": short.limit, "needs": short.asks}
    else:
        taken = max(0, short.used + short.coming)
        token = Token.WAITING_FOR_QUOTA
        figures = {"room": max(0, short.limit - taken), "needs": taken + short.asks, "coming": short.coming}
        figures |= {"missing": taken + short.asks - short.limit, "lower": users.lower}
    figures = {"limit": short.limit, "used": short.used, "asks": short.asks, **figures}
    shown = {name: format_quantity(n, resource=short.resource) for name, n in figures.items()}
    text += f"{shown['limit']} {short.resource}"
    if not short.never:
        text += f"; {_used(short, shown, users)}"
    text += f"; this job {asks} {shown['asks']}. There is room for it {_when(figures, shown)}."
    params = {"resourceQuota": short.quota, "namespace": workload.namespace, "resource": short.resource}
    return Reason(token, {**params, **shown}, text)


def _used(short: Shortage, shown: Mapping[str, str], users: Users) -> str:
    """The use, present and expected, and its largest holders."""
    text = f"{shown['used']} {'is' if short.used == 1 else 'are'} used"
    if short.coming > 0:
        text += f", {shown['coming']} more are kept for jobs that start"
    elif short.coming < 0:
        text += f", {shown['coming'].removeprefix('-')} fewer once its victims have left"
    names = ", ".join(f"{holder['name']} ({holder['amount']})" for holder in users.holders)
    return f"{text}, most by {names}" if names else text


def _when(figures: Mapping[str, int], shown: Mapping[str, str]) -> str:
    """The changes that would help: one of them is enough."""
    ways = []
    if "missing" in figures:
        given = f"when {shown['missing']} {'is' if figures['missing'] == 1 else 'are'} given back"
        if figures["lower"]:
            given += f" (work of lower priority uses {shown['lower']}; nobody is evicted for a ResourceQuota)"
        ways.append(given)
    if figures["room"]:
        ways.append(f"if it asks {shown['room']} at most")
    ways.append(f"if {shown['needs']} are allowed")
    return ", or ".join(ways)

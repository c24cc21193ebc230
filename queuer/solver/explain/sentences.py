"""Sentences that need no figures of nodes or quota: about gangs that are put off, bound, or behind another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import ceil

from queuer.domain.quantity import format_quantity
from queuer.domain.reasons import Deferral, Explanation, Protected, Reason, Token, Verdict, simple
from queuer.domain.workload import Workload
from queuer.solver.explain.holders import HOLDERS
from queuer.solver.problem import Bond
from queuer.solver.wellformed import LATEST

GIVEN_BACK = Reason(
    token=Token.PENDING_EVALUATION,
    text="Quota that it needed at its turn has been given back in this cycle; the next cycle decides.",
)
MADE_ROOM = Reason(
    token=Token.PENDING_EVALUATION,
    text="Room that it needed at its turn has been given back in this cycle; the next cycle decides.",
)
LANDING = Reason(
    token=Token.PENDING_EVALUATION,
    text="It has a place, but other jobs are landing on those nodes and could take it; it is tried again when they have"
    " landed.",
)

CROSSING = Reason(
    token=Token.TOPOLOGY_PLACEMENT_FAILED,
    text="There is room for it, but its pod sets could take each other's places while they land.",
)

_WHY = {
    Deferral.TIME: "the exact solver had no time for it",
    Deferral.SIZE: "it is too large a question for the exact solver",
    Deferral.RESERVED: "reservations are in the way of what the exact solver found",
    Deferral.CROSSING: "its pod sets could take each other's places, as they land, in what the exact solver found",
    Deferral.UNSOUND: "nodes, quota or rights to evict do not bear what the exact solver found",
    Deferral.LANDING: "jobs that are landing are in the way of what the exact solver found",
    Deferral.OUTSCORED: "the plan with all of the exact solver's answers scored less than one without",
}


def deferred(cause: Deferral, *, others: bool = False) -> Reason:
    """It is not settled whether there is a place for it. `others`: only other victims of other gangs could make one."""
    if cause is Deferral.PLAN:
        text = "No sound plan was found in this cycle"
    elif cause is Deferral.CROSSING and not others:
        text = "Room was found for it in this cycle, but its pod sets could take each other's places there"
    elif others:
        text = "None of the work that it may evict would make room for it. Whether jobs before it could have evicted"
        text += f" other work instead was not worked out in this cycle: {_WHY[cause]}"
    else:
        text = (
            "In this cycle neither a place for this job was found nor a proof that there is none: "
            + _WHY[cause]
        )
    text += "; the next one tries again."
    return Reason(token=Token.SOLVER_DEFERRED, text=text, params={"cause": cause.value})


def outscored(reason: Reason) -> Reason:
    """The same where it is `deferred` in a plan that was taken instead of the exact solver's."""
    cause = Deferral(reason.params["cause"])
    text = reason.text.replace(_WHY[cause], _WHY[Deferral.OUTSCORED])
    return replace(reason, text=text, params={**reason.params, "cause": Deferral.OUTSCORED.value})


def put_off(*, crossing: bool) -> Explanation:
    """It could start, but not beside those that start in this cycle; `crossing`: not even beside its own pod sets."""
    return Explanation(primary=CROSSING if crossing else LANDING)


def bound(bond: Bond, left: Sequence[str], named: Callable[[str], Workload | None]) -> Explanation:
    """Its place is held while others leave, evicted for it or for another gang, or leaving anyway. `left`: those of
    them that have still to go; `named`: a workload by its uid; None = it is known no more.
    """
    hosts = sorted({name for row in bond.assignments for name in row.nodes})
    nodes = "1 node is" if len(hosts) == 1 else f"{len(hosts)} nodes are"
    match len(left):
        case 0 if bond.victims:
            starts = "the workloads that it waited for have left, and it starts when nothing else is in the way there"
        case 0:
            starts = "it starts in room that workloads evicted for other jobs leave"
        case 1 if (only := named(left[0])) is not None:
            starts = f"it starts when the pods of {only.namespace}/{only.name} have left"
        case 1:
            starts = "it starts when the pods of 1 workload have left"
        case several:
            starts = f"it starts when the pods of {several} workloads have left"
    text = f"{nodes} held for it; {starts}."
    victims, token = list(bond.victims), Token.WAITING_FOR_PREEMPTED_WORKLOADS
    return simple(token, text, victims=victims, hosts=hosts, deadline=bond.deadline)


def behind(owner: Workload, why: str) -> Reason:
    """Another gang goes first."""
    params = {"owner": owner.uid, "name": owner.name, "namespace": owner.namespace}
    return Reason(token=Token.BEHIND_IN_QUEUE, text=f"{owner.namespace}/{owner.name} {why}.", params=params)


def held_up(queue: str, heads: Sequence[Workload], told: Mapping[str, Explanation]) -> Reason:
    """Heads of a strict queue wait whose flavors it may use: the first is named, or the first that can never start, as
    then neither can those behind it. `told`: why they wait, by uid.
    """
    why = f"is ahead of it in {queue}, whose order is strict, and "
    for head in heads:
        if head.uid in told and told[head.uid].verdict is Verdict.CHANGE:
            never = told[head.uid].primary.text.rstrip(".")
            reason = behind(head, f"{why}can never start; change, hold or delete it: {never}")
            return replace(reason, params={**reason.params, "never": True})
    return behind(heads[0], f"{why}waits")


def kept_for(owner: Workload) -> Reason:
    """Another gang awaits pods of the cycle before."""
    return behind(
        owner, "starts first, when jobs that have just started have landed; its place and quota are kept"
    )


def outdone(priority: int, root: str) -> Reason:
    """Others of its priority ask for more together."""
    text = f"{root} is packed: among jobs of priority {priority} those start that ask for most together, "
    text += "and beside them no room for this one was found."
    return Reason(token=Token.BEHIND_IN_QUEUE, text=text, params={"queue": root, "priority": priority})


def protected(token: Token, found: Protected) -> Reason:
    """Work that it could evict but for `minRuntime`. `token`: of the reason beside which it is told."""
    resource, most = found.account[1], found.amounts[:HOLDERS]
    amount, *parts = (
        format_quantity(n, resource=resource)
        for n in (sum(n for _, n in found.amounts), *(n for _, n in most))
    )
    whose = [{"queue": queue, "amount": part} for (queue, _), part in zip(most, parts, strict=True)]
    named = ", ".join(f"{one['amount']} in {one['queue']}" for one in whose)
    held = "1 workload holds" if found.gangs == 1 else f"{found.gangs} workloads hold"
    text = (
        f"{held} {amount} {resource} ({named}) that may not be evicted for it yet, as minRuntime is not over"
    )
    text += f"; the first may be from {_moment(found.until)} on."
    params = {"resource": resource, "protected": amount, "from": whose, "until": found.until}
    return Reason(token=token, text=text, params=params)


def _moment(seconds: float) -> str:
    """A time of day, with its date; a number where calendars have none."""
    whole = ceil(seconds)
    if not 0 <= whole < LATEST:
        return f"{whole} s"
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%d %H:%M:%S} UTC"


def sparing(reason: Reason, spared: Sequence[str]) -> Reason:
    """The same, of a gang that could evict these, had it not itself gone for them."""
    named = ", ".join(spared[:HOLDERS]) + (f" and {len(spared) - HOLDERS} more" if spared[HOLDERS:] else "")
    text = (
        f"{reason.text} It spares {named}, as it was itself evicted for that, directly or by way of others."
    )
    return replace(reason, text=text, params={**reason.params, "spares": list(spared[:HOLDERS])})

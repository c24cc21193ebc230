"""The long gate beside brute force: thousands of small worlds, in each of which the decision must be that of DESIGN 3
looked up arrangement by arrangement.

    python -m tests.solver.many_worlds --kind plain --worlds 2000 [--first SEED]

Not judged are searches too long for it (*too_long*), work that the decision itself *deferred* and, with reservations,
gangs that are *put_off* as they could not land beside others (3.5). *unsound* are plans that the verifier refuses.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from enum import StrEnum

from bench import arguments
from queuer.domain.reasons import Token
from queuer.solver.problem import Plan, Snapshot
from tests.solver.cases import NOW, seeded
from tests.solver.cases_bonds import LATER, standing
from tests.solver.cases_leaving import vacated, vacated_later
from tests.solver.cases_overlapping import overlapping
from tests.solver.cases_reserved import lapsing, reserving, sharing
from tests.solver.cases_rights import linked, twofold
from tests.solver.cases_single import single
from tests.solver.judged import Unsound, exact_plan, played
from tests.solver.oracle_needed import TooManyVictims
from tests.solver.oracle_reservations import Follower


class Outcome(StrEnum):
    """What the brute force says of one world."""

    AGREES = "agrees"
    PUT_OFF = "put_off"
    TOO_LONG = "too_long"
    DEFERRED = "deferred"
    DIFFERS = "differs"
    UNSOUND = "unsound"


WRONG = (Outcome.DIFFERS, Outcome.UNSOUND)


def planned(snap: Snapshot) -> Plan:
    """The exact plan, verified."""
    return exact_plan(snap, now=NOW)


def followed(snap: Snapshot, plan: Plan) -> tuple[Outcome, str]:
    """Whether some run of the tournament with reservations comes to this plan; else where the farthest stopped."""
    if any(e.primary.token is Token.PENDING_EVALUATION for e in plan.explanations.values()):
        return Outcome.PUT_OFF, ""
    follower = Follower(snap, NOW, plan)
    try:
        agrees = follower.agrees()
    except TooManyVictims:
        return Outcome.TOO_LONG, ""
    if agrees is False:
        return Outcome.DIFFERS, follower.wrong[1]
    if follower.deferred:
        return Outcome.DEFERRED, ""
    return (Outcome.TOO_LONG if agrees is None else Outcome.AGREES), ""


def _compared(snap: Snapshot, *, now: float) -> tuple[Outcome, str]:
    try:
        oracle = played(snap, now=now)
    except TooManyVictims:
        return Outcome.TOO_LONG, ""
    except AssertionError as error:
        return Outcome.DIFFERS, (str(error).splitlines() or ["flags, order or eviction cost"])[0]
    if oracle.deferred:
        return Outcome.DEFERRED, ", ".join(oracle.deferred)
    return (Outcome.AGREES if oracle.judged else Outcome.TOO_LONG), ""


KINDS: dict[str, Callable[[int], tuple[Outcome, str]]] = {
    "plain": lambda seed: _compared(seeded(seed), now=NOW),
    "twofold": lambda seed: _compared(twofold(seed), now=NOW),
    "linked": lambda seed: _compared(linked(seed), now=NOW),
    "vacated": lambda seed: _compared(vacated(seed), now=NOW),
    "single": lambda seed: _compared(single(seed), now=NOW),
    "standing": lambda seed: _compared(standing(seed), now=LATER),
    "reserving": lambda seed: followed(reserving(seed), planned(reserving(seed))),
    "sharing": lambda seed: followed(sharing(seed), planned(sharing(seed))),
    "lapsing": lambda seed: followed(lapsing(seed), planned(lapsing(seed))),
    "vacated_later": lambda seed: followed(vacated_later(seed), planned(vacated_later(seed))),
    "overlapping": lambda seed: followed(overlapping(seed), planned(overlapping(seed))),
}


def judged(kind: str, seed: int) -> tuple[Outcome, str]:
    """What comes of one world, and what is wrong with it."""
    try:
        return KINDS[kind](seed)
    except Unsound as error:
        return Outcome.UNSOUND, str(error)
    except TooManyVictims:  # where the world itself is made by brute force
        return Outcome.TOO_LONG, ""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--kind", choices=KINDS, action="append", help="which worlds (default: all)")
    options.add_argument(
        "--worlds", type=arguments.positive, default=500, help="how many of each (default: %(default)s)"
    )
    options.add_argument("--first", type=arguments.seed, default=1000, help="seed of the first")
    return options


def main() -> int:
    """A line for each world that is wrong or deferred, then one JSON line; 1 where any is wrong."""
    wanted = parser().parse_args()
    report = {}
    for kind in wanted.kind or KINDS:
        seen = Counter[Outcome]()
        for seed in range(wanted.first, wanted.first + wanted.worlds):
            outcome, text = judged(kind, seed)
            seen[outcome] += 1
            if outcome in (*WRONG, Outcome.DEFERRED):
                sys.stdout.write(f"{kind} {seed} {outcome}: {text}\n")
                sys.stdout.flush()
        report[kind] = {outcome.value: seen[outcome] for outcome in Outcome}
    sys.stdout.write(json.dumps(report) + "\n")
    return int(any(counts[wrong.value] for counts in report.values() for wrong in WRONG))


if __name__ == "__main__":
    sys.exit(main())

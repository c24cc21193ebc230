"""No answer about a job contradicts itself: hundreds of states are rendered as `queuer why` prints them, and read.

States are those of the stories under tests/scenarios and of random worlds. Each is taken as of the decision, and some
time later, when no cycle has come since.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from datetime import datetime
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from queuer.api.models import instant
from queuer.api.workloads import models
from queuer.api.workloads.detail import Detail
from queuer.api.workloads.explanation import answered
from queuer.api.workloads.paragraphs import paragraphs
from queuer.api.workloads.views import Recorded
from queuer.cli.why import explain as lines_of
from queuer.controller.cycle.forecast import basis_of, with_estimate, without_unsure_ends
from queuer.domain.reasons import Explanation, Reader, Verdict
from queuer.domain.workload import State, Workload
from queuer.sim.engine import Simulation
from queuer.sim.forecast import Effort, forecast
from queuer.sim.scenario import load
from queuer.solver.after_cycle import AfterCycle
from queuer.solver.ask import QueueRanks
from queuer.solver.decide import decide
from queuer.solver.job_detail import explain
from queuer.solver.kept_cycle import DecidedCycle
from queuer.solver.records import WITHOUT_SOLVER
from queuer.solver.stored import StoredCycle
from tests.solver.worlds import NOW, world

FILES = sorted((Path(__file__).parent.parent / "scenarios").glob("*/*.yaml"))
CYCLES, JOBS, LARGEST = 4, 4, 60
"""States of one story: cycles, jobs in each; stories with more jobs than this are left out."""
LATER = (0.0, 400.0)
EFFORT = Effort(rolls=3, decisions=12)
Answer = Mapping[str, Any]
"""As REST has it, with `screen`: the lines of `queuer why`."""


# States


def cycles() -> Iterator[StoredCycle]:
    """Of stories, the first of those in which something waits; then of random worlds."""
    for file in FILES:
        scenario, kept = load(file), list[StoredCycle]()
        if len(scenario.stories) <= LARGEST:
            for _ in Simulation(scenario, budget=WITHOUT_SOLVER, record=kept.append).advance(()):
                pass
            told = [cycle for cycle in kept if cycle.plan and cycle.plan.explanations]
            yield from told[:: max(1, len(told) // CYCLES)][:CYCLES]
    for seed in range(60):
        snapshot = world(seed)
        plan = decide(snapshot, now=NOW, seed=0, budget=WITHOUT_SOLVER)
        yield StoredCycle(snapshot=snapshot, now=NOW, seed=0, budget=WITHOUT_SOLVER, plan=plan)


def recorded(workload: Workload, why: Explanation, *, at: float, detail: Mapping[str, Any]) -> Recorded:
    """A waiting job as the tables have it."""
    explanation = models.Explanation(
        uid=workload.uid, state=State.QUEUED, as_of=instant(at), cycle=1, age_seconds=1.0, kept=1, verdict=why.verdict,
        primary=models.ReasonDetail.from_record(why.primary), others=[], would_admit=[],
        detail=Detail.model_validate(detail),
    )  # fmt: skip
    found = models.WorkloadDetail.from_record(
        workload, state=State.QUEUED, attempt=1, admitted=None, landed=None, finished=None, deleted=None,
        reason=why.primary, domains=(), max_runtime_seconds=workload.max_runtime, state_since=instant(at),
        admission=None, eviction=None, explanation=explanation, timeline=[], as_of=instant(at),
    )  # fmt: skip
    return Recorded(detail=found, past=[])


def answers_of(cycle: StoredCycle) -> Iterator[Answer]:
    """Of some of its waiting jobs, one for each kind of reason first."""
    assert cycle.plan is not None
    after = AfterCycle.of(cycle)
    ranges = forecast(
        without_unsure_ends(after.snapshot, now=cycle.now), now=cycle.now, seed=0, effort=EFFORT
    )
    basis = basis_of(after.snapshot, now=cycle.now)
    ranks = QueueRanks().answer(DecidedCycle(cycle, cycle.plan))
    kinds = {why.primary.token: uid for uid, why in cycle.plan.explanations.items()}
    for uid in list(dict.fromkeys([*kinds.values(), *cycle.plan.explanations]))[:JOBS]:
        why, workload = explain(after, uid), after.pending[uid].workload
        assert why is not None
        found = ranges.get(uid)
        found = None if found is None else replace(found, basis=basis)
        detail = dict(with_estimate(Explanation(primary=why.primary), found, now=cycle.now).detail)
        if "estimate" in detail:
            detail["estimate"] = {**detail["estimate"], "n": 0, "hitRate": None}
        if uid in ranks:
            line = [other for other in ranks if after.pending[other].workload.queue == workload.queue]
            detail["ahead"] = {"gangs": line.index(uid), "of": len(line)}
        for seconds in LATER:
            told = recorded(workload, why, at=cycle.now + seconds, detail=detail)
            yield rendered(answered(told, why, detail, reader=Reader()))


def rendered(job: models.WorkloadDetail) -> Answer:
    """As REST has it, and as the command line prints that."""
    told: dict[str, Any] = job.model_dump(mode="json", by_alias=True)
    return {**told, "screen": [str(line) for line, _ in lines_of(told)]}


@cache
def all_answers() -> tuple[Answer, ...]:
    return tuple(answer for cycle in cycles() for answer in answers_of(cycle))


# Rules


def text(answer: Answer) -> str:
    return "\n".join(answer["screen"])


def line(answer: Answer, label: str) -> str:
    """The lines with this label."""
    return "\n".join(each for each in answer["screen"] if each.strip().startswith(f"{label} "))


def parts(answer: Answer) -> Mapping[str, Any]:
    found: Mapping[str, Any] = answer["explanation"]["detail"]
    return found


def time_of(value: str) -> float:
    return datetime.fromisoformat(value).timestamp()


def a_reserved_start_is_no_earlier_than_the_estimate(answer: Answer) -> bool:
    kept, estimate = parts(answer)["reservation"], parts(answer)["estimate"]
    if not kept or not kept["start"] or not estimate:
        return True
    start = time_of(kept["start"])
    return all(time_of(estimate[end]) <= start for end in ("from", "likely", "to") if estimate[end])


def a_reservation_that_has_passed_is_not_told(answer: Answer) -> bool:
    kept, now = parts(answer)["reservation"], time_of(answer["asOf"])
    if not kept:
        return "reserved  " not in text(answer)
    return time_of(kept["expires"]) > now and (not kept["start"] or time_of(kept["start"]) > now)


def without_an_estimate_no_start_is_told(answer: Answer) -> bool:
    if "no estimate" not in text(answer):
        return True
    return "starts " not in line(answer, "estimate") and "from now" not in line(answer, "reserved")


def a_job_without_an_end_has_none(answer: Answer) -> bool:
    """What is said to declare no end is not told to end."""
    found = re.search(r"no estimate: (\S+/\S+) declares no end", text(answer))
    if found is None:
        return True
    held = [each for each in line(answer, "holds it").splitlines() if f" {found[1]} in " in each]
    return all("ends in" not in each and "overdue" not in each for each in held)


def a_range_is_in_order_and_not_over(answer: Answer) -> bool:
    estimate = parts(answer)["estimate"]
    if not estimate:
        return True
    known = [time_of(estimate[end]) for end in ("from", "likely", "to") if estimate[end]]
    return known == sorted(known) and (not estimate["to"] or known[-1] > time_of(answer["asOf"]))


def nothing_is_overdue_that_promised_nothing(answer: Answer) -> bool:
    rows, now = parts(answer)["holders"], time_of(answer["asOf"])
    return all(row["runs"] is None or time_of(row["ends"]) > now for row in rows)


def only_a_job_that_waits_has_a_time(answer: Answer) -> bool:
    """Not one that has to be changed, is held, or needs an operator."""
    if answer["explanation"]["verdict"] == Verdict.WAIT:
        return True
    return not any(parts(answer)[each] for each in ("estimate", "reservation", "noEstimate"))


def a_job_that_can_never_start_is_behind_nobody(answer: Answer) -> bool:
    return not answer["reason"]["unstartable"] or not (parts(answer)["ahead"] or parts(answer)["holders"])


def no_reason_is_told_twice(answer: Answer) -> bool:
    told = [answer["explanation"]["primary"], *answer["explanation"]["others"]]
    return len({each["text"] for each in told}) == len(told)


def one_thing_has_one_number(answer: Answer) -> bool:
    """Use, limit and guarantee of a queue, whichever sentence names them."""
    known: dict[tuple[object, ...], object] = {}
    for reason in (answer["explanation"]["primary"], *answer["explanation"]["others"]):
        params = reason["params"]
        for name in ("used", "limit", "guaranteed", "held"):
            of = (params.get("queue"), params.get("resource"), params.get("flavor"), params.get("live"), name)
            if name in params and known.setdefault(of, params[name]) != params[name]:
                return False
    return True


def the_closest_domain_is_what_nodes_say(answer: Answer) -> bool:
    """Pods that fit somewhere have nodes with room; where none fits every node is told with a cause."""
    nodes, flavors = parts(answer)["excluded"], parts(answer)["available"]
    if nodes is None:
        return True
    count = {row["why"]: row["nodes"] for row in nodes["by"]}
    closed = nodes["nodes"] - count.get("Reserved", 0)
    others = answer["explanation"]["others"] if len(flavors) == 1 else ()
    reasons = [answer["explanation"]["primary"], *others]
    fits = [r["params"]["fits"] for r in reasons if "fits" in r["params"] and not r["unstartable"]]
    return sum(count.values()) == nodes["nodes"] and all((closed < nodes["of"]) == (n > 0) for n in fits)


def who_would_have_to_end_is_told_with_one_end(answer: Answer) -> bool:
    ends = {(h["namespace"], h["name"]): h["ends"] for h in parts(answer)["holders"] if h["name"]}
    return all(
        ends.get((offer["namespace"], offer["name"])) == offer["by"]
        for offer in answer["explanation"]["wouldAdmit"]
        if offer["name"]
    )


def a_length_of_time_in_a_sentence_is_as_seen_from_now(answer: Answer) -> bool:
    now = time_of(answer["asOf"])
    told = (each for each in answer["explanation"]["others"] if "until" in each["params"])
    return all(
        f"the first in {max(0, ceil(time_of(each['params']['until']) - now))} s" in each["text"]
        for each in told
    )


def no_length_of_time_is_negative(answer: Answer) -> bool:
    return re.search(r"(?<![\w-])-\d+[smhd]\b", text(answer)) is None


# A contradiction for each rule; each answers whether there was a place for it


def _part(name: str) -> Callable[[Any], Any]:
    return lambda told: told["explanation"]["detail"][name]


def _late_estimate(told: Any) -> bool:
    kept, estimate = _part("reservation")(told), _part("estimate")(told)
    if not (kept and kept["start"] and estimate):
        return False
    estimate["from"] = estimate["likely"] = instant(time_of(kept["start"]) + 60).isoformat()
    return True


def _passed_reservation(told: Any) -> bool:
    if kept := _part("reservation")(told):
        kept["start"] = told["submitted"]
    return bool(kept)


def _estimate_unknown(told: Any) -> bool:
    kept = _part("reservation")(told)
    told["explanation"]["detail"] |= {"estimate": None, "noEstimate": "no estimate: nobody knows"}
    return bool(kept and kept["start"])


def _end_after_all(told: Any) -> bool:
    for holder in _part("holders")(told):
        holder |= {"ends": "2100-01-01T00:00:00Z", "leaving": False, "held": False}
    return "declares no end" in _part("noEstimate")(told)


def _likely_before_all(told: Any) -> bool:
    if found := _part("estimate")(told):
        found["likely"] = "1969-01-01T00:00:00Z"
    return bool(found)


def _learned_and_over(told: Any) -> bool:
    for holder in (rows := _part("holders")(told)):
        holder |= {"ends": told["submitted"], "runs": 20}
    return bool(rows)


def _change_with_a_time(told: Any) -> bool:
    told["explanation"]["verdict"] = "CHANGE"
    return bool(_part("estimate")(told))


def _hopeless_in_line(told: Any) -> bool:
    told["reason"]["unstartable"] = True
    return bool(_part("ahead")(told))


def _said_twice(told: Any) -> bool:
    told["explanation"]["others"] = [told["explanation"]["primary"]]
    return True


def _another_number(told: Any) -> bool:
    primary = told["explanation"]["primary"]
    params = {**primary["params"], "used": "12345"}
    told["explanation"]["others"] = [{**primary, "params": params, "text": "another"}]
    return "used" in primary["params"]


def _all_full(told: Any) -> bool:
    if nodes := _part("excluded")(told):
        nodes |= {"nodes": nodes["of"], "by": [{"why": "Full", "nodes": nodes["of"]}]}
    primary = told["explanation"]["primary"]
    return bool(nodes and primary["params"].get("fits") and not primary["unstartable"])


def _another_end(told: Any) -> bool:
    offers = [offer for offer in told["explanation"]["wouldAdmit"] if offer["name"]]
    for offer in offers:
        offer["by"] = "2100-01-01T00:00:00Z"
    return bool(offers)


def _stale_length(told: Any) -> bool:
    rows = [each for each in told["explanation"]["others"] if "until" in each["params"]]
    for each in rows:
        each["text"] = "8 more when their minRuntime is over, the first in 987654 s."
    return bool(rows)


def _minus(told: Any) -> bool:
    told["explanation"]["detail"] |= {"estimate": None, "noEstimate": "it starts in -5m"}
    return True


PLANTED: Mapping[Callable[[Answer], bool], Callable[[Any], bool]] = {
    a_reserved_start_is_no_earlier_than_the_estimate: _late_estimate,
    a_reservation_that_has_passed_is_not_told: _passed_reservation,
    without_an_estimate_no_start_is_told: _estimate_unknown,
    a_job_without_an_end_has_none: _end_after_all,
    a_range_is_in_order_and_not_over: _likely_before_all,
    nothing_is_overdue_that_promised_nothing: _learned_and_over,
    only_a_job_that_waits_has_a_time: _change_with_a_time,
    a_job_that_can_never_start_is_behind_nobody: _hopeless_in_line,
    no_reason_is_told_twice: _said_twice,
    one_thing_has_one_number: _another_number,
    the_closest_domain_is_what_nodes_say: _all_full,
    who_would_have_to_end_is_told_with_one_end: _another_end,
    a_length_of_time_in_a_sentence_is_as_seen_from_now: _stale_length,
    no_length_of_time_is_negative: _minus,
}
"""The rules, with a contradiction that each has to find."""


@pytest.mark.parametrize("rule", PLANTED, ids=lambda rule: rule.__name__)
def test_in_no_state(rule: Callable[[Answer], bool]) -> None:
    wrong = [text(answer) for answer in all_answers() if not rule(answer)]
    assert not wrong, f"{len(wrong)} answers, the first:\n{wrong[0]}"


def test_there_are_states_of_all_kinds() -> None:
    """Rules that meet nothing hold of anything."""
    answers = all_answers()
    assert len(answers) >= 200
    assert len({answer["reason"]["token"] for answer in answers}) >= 8
    for part in ("estimate", "noEstimate", "reservation", "holders", "excluded", "ahead"):
        assert sum(bool(parts(answer)[part]) for answer in answers) >= 10, part


def test_without_an_estimate_the_queue_that_holds_the_room_is_named() -> None:
    told = [line(answer, "estimate") for answer in all_answers() if not parts(answer)["estimate"]]
    assert any(re.search(r"; jobs of root\S* hold the room, and may declare no end", each) for each in told)


@pytest.mark.parametrize("rule", PLANTED, ids=lambda rule: rule.__name__)
def test_a_planted_contradiction_is_found(rule: Callable[[Answer], bool]) -> None:
    for answer in all_answers():
        told = deepcopy({name: value for name, value in answer.items() if name != "screen"})
        if PLANTED[rule](told):
            job = models.WorkloadDetail.model_validate(told)
            explanation = job.explanation.model_copy(update={"paragraphs": paragraphs(job, [])})
            assert not rule(rendered(job.model_copy(update={"explanation": explanation})))
            return
    pytest.fail("no state has a place for it")

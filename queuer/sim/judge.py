"""Judging a scenario from outside: what was admitted, where, who was evicted, what a waiting job was told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from queuer.domain.quantity import format_quantity, parse_quantity
from queuer.sim.consistent import matches
from queuer.sim.engine import Record, Simulation
from queuer.sim.jobs import SimulatedJob, Stage
from queuer.sim.scenario import Scenario
from queuer.solver.records import Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One expectation and what came of it: `missed` is empty where it was met."""

    expectation: str
    missed: str = ""


def run(
    scenario: Scenario,
    *,
    seed: int = 0,
    budget: Budget | None = None,
    record: Record | None = None,
) -> list[Judgement]:
    """Run the scenario and judge every expectation, in the order of the file. `record` gets every cycle."""
    simulation = Simulation(scenario, seed=seed, budget=budget, record=record)
    rows = list(enumerate(scenario.expect))
    found: dict[int, list[Judgement]] = {i: [] for i, _ in rows}
    stops = [float(row["at"]) for _, row in rows if "at" in row]
    for time in simulation.advance(stops):
        for i, row in rows:
            if "at" in row and float(row["at"]) == time:
                found[i] = [v for key in row if key != "at" for v in _at(simulation, time, key, row[key])]
    for i, row in rows:
        if "always" in row:
            found[i] = _always(simulation, row["always"])
        elif "started" in row:
            found[i] = [_started(simulation, uid, window) for uid, window in row["started"].items()]
    return [judgement for i, _ in rows for judgement in found[i]]


def _named(simulation: Simulation, pattern: str) -> list[tuple[str, SimulatedJob]]:
    return [(uid, job) for uid, job in simulation.jobs.items() if matches(uid, pattern)]


def _at(simulation: Simulation, time: float, key: str, body: Any) -> list[Judgement]:
    said = f"at {time:g}: {key} {body}"
    match key:
        case "admitted":
            wrong = [
                f"{uid} is {simulation.stage(uid)}"
                for p in body
                for uid, _ in _named(simulation, p)
                if simulation.stage(uid) is not Stage.RUNNING
            ] + [f"{p} names no workload" for p in body if not _named(simulation, p)]
        case "waiting":
            wrong = [text for p, tokens in body.items() for text in _waiting(simulation, p, tokens)]
        case "evicted":
            wanted = {uid for p in body for uid, _ in _named(simulation, p)}
            got = {uid for uid, job in simulation.jobs.items() if job.evictions}
            wrong = [f"evicted: {sorted(got)}"] if got != wanted else []
        case "count":
            named = {uid for p in body["of"] for uid, _ in _named(simulation, p)}
            running = {uid for uid in named if simulation.stage(uid) is Stage.RUNNING}
            wrong = _within(len(running), body, exact="admitted")
        case "evictedCount":
            gone = {u for p in body["of"] for u, j in _named(simulation, p) if j.evictions}
            wrong = _within(len(gone), body, exact="equals")
        case "domains":
            wrong = [text for uid, wanted in body.items() for text in _domains(simulation, uid, wanted)]
        case "used":
            wrong = _used(simulation, body)
        case _:
            wrong = [f"{key} is not known"]
    return [Judgement(expectation=said, missed="; ".join(wrong))]


def _waiting(simulation: Simulation, pattern: str, tokens: list[str]) -> list[str]:
    wrong = []
    for uid, _ in _named(simulation, pattern):
        stage = simulation.stage(uid)
        if stage not in (Stage.WAITING, Stage.LEAVING):
            wrong.append(f"{uid} is {stage}")
        elif tokens and simulation.plan is not None:
            explanation = simulation.plan.explanations.get(uid)
            got = explanation.primary.token if explanation else "none"
            if got not in tokens:
                wrong.append(f"{uid} is told {got}: {explanation.primary.text if explanation else ''}")
    return wrong


def _within(got: int, body: Mapping[str, Any], *, exact: str) -> list[str]:
    low, high = body.get(exact, body.get("min", 0)), body.get(exact, body.get("max", got))
    return [] if low <= got <= high else [f"got {got}"]


def _domains(simulation: Simulation, uid: str, wanted: Mapping[str, Any]) -> list[str]:
    topology = simulation.scenario.topology
    level = topology.find(wanted["level"])
    if level is None:
        return [f"no level {wanted['level']}"]
    nodes = {n.name: n for n in simulation.scenario.nodes}
    pods: dict[str, int] = {}
    for spread in simulation.world.pods.get(uid, {}).values():
        for name, count in spread.items():
            domain = topology.domain(nodes[name], level)
            last = "" if domain is None else domain[-1]
            pods[last] = pods.get(last, 0) + count
    wrong = []
    if "count" in wanted and len(pods) != wanted["count"]:
        wrong.append(f"{uid} is in {sorted(pods)}")
    if "in" in wanted and not set(pods) <= set(wanted["in"]):
        wrong.append(f"{uid} is in {sorted(pods)}")
    if "pods" in wanted and pods != wanted["pods"]:
        wrong.append(f"{uid} has {pods}")
    return wrong or ([] if pods else [f"{uid} has no pods"])


def _used(simulation: Simulation, body: Mapping[str, Mapping[str, Any]]) -> list[str]:
    wrong = []
    for path, amounts in body.items():
        for resource, text in amounts.items():
            got = simulation.used(path, resource)
            if got != parse_quantity(text, resource=resource):
                wrong.append(f"{path} uses {format_quantity(got, resource=resource)} {resource}")
    return wrong


def _always(simulation: Simulation, body: Mapping[str, Any]) -> list[Judgement]:
    judgements = []
    for key, wanted in body.items():
        match key:
            case "evictions":
                got = sum(len(job.evictions) for job in simulation.jobs.values())
                missed = "" if got == wanted else f"{got} evictions"
            case "neverAdmitted":
                started = sorted(
                    {uid for _, uid in simulation.admissions if any(matches(uid, p) for p in wanted)}
                )
                missed = f"admitted: {started}" if started else ""
            case "wholeGangs":
                missed = f"in part: {sorted(set(simulation.partial))}" if simulation.partial else ""
            case _:
                missed = f"{key} is not known"
        judgements.append(Judgement(expectation=f"always: {key} {wanted}", missed=missed))
    return judgements


def _started(simulation: Simulation, uid: str, window: Mapping[str, float]) -> Judgement:
    said = f"started: {uid} {dict(window)}"
    at = simulation.jobs[uid].started
    if at is None:
        return Judgement(expectation=said, missed="" if "by" not in window else "never started")
    late = "by" in window and at > window["by"]
    early = "after" in window and at < window["after"]
    return Judgement(expectation=said, missed=f"started at {at:g}" if late or early else "")

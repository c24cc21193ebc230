"""Whether what-ifs and offers are kept: `python -m bench.agreement --help`.

What-ifs: `POST /simulations` says what would become of a job; then the same manifest is really created on the cluster,
on which nothing else moves. Offers: what an explanation says would admit a job is done, on the cycle that it is about.
The controller, the API server and PostgreSQL are real processes, Kubernetes is in memory. One JSON object; exit code 1
where something was not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import aiohttp

from bench import arguments
from bench.api_server import ADMIN
from bench.load import Cluster, Size, filled
from bench.scene import Scene, scene, until
from queuer.domain.document import TreeDocument
from queuer.domain.keys import TOPOLOGY_REQUIRED, USER
from queuer.domain.quantity import parse_quantity
from queuer.domain.queue import QueueTree
from queuer.domain.reasons import Token, Verdict
from queuer.kube.objects import JOBS

SMALL = Size(nodes=48, queues=12, jobs=130, limit=0.8, per_user=0.5)
"""Limits keep some room free, so that there is something to offer."""
_MOVING = """
    SELECT (SELECT count(*) FROM workload WHERE deleted_at IS NULL AND (state IN ('Admitted', 'Placing', 'Evicting')
            OR state = 'Queued' AND token IS NULL))
        + (SELECT count(*) FROM ledger JOIN workload USING (uid) WHERE closed IS NULL AND state = 'Succeeded')
        + (SELECT count(*) FROM bond)
"""
_FRESH = "SELECT count(*) FROM stored_cycle JOIN heartbeat USING (cycle)"
_STEPS = "SELECT coalesce(max(id), 0) + (SELECT coalesce(max(cycle), 0) FROM heartbeat) FROM event"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """An answer, or what came of the job: a word of `queuer.api.cycles.models.Answer`, and why it waits."""

    answer: str
    token: str | None = None


async def compared(cases: int, *, seed: int) -> dict[str, Any]:
    """How many agree, and each that does not."""
    async with scene() as at, aiohttp.ClientSession() as session:
        cluster = await filled(at, SMALL, seed=seed)
        api = await at.start("api")
        await at.phase(api, "")
        base = f"http://127.0.0.1:{at.ports[api.pid]}/api/v1"
        return {
            "what_ifs": await what_ifs(session, base, cluster, cases=cases),
            "offers": await offers(session, base, cluster, cases=cases),
        }


async def what_ifs(
    session: aiohttp.ClientSession, base: str, cluster: Cluster, *, cases: int
) -> dict[str, Any]:
    """Each is asked about, then created."""
    words, wrong = Counter[str](), list[dict[str, Any]]()
    for case in range(cases):
        cluster.end(case % 3)
        await rest(cluster.scene)
        manifest = cluster.draw()
        told = await ask(session, f"{base}/simulations", manifest)
        came = await submitted(cluster, manifest)
        words[told.answer] += 1
        print(f"what-if {case}: {told}, {came}", file=sys.stderr)
        if told != came:
            wrong.append({"case": case, "said": str(told), "came": str(came), "job": manifest})
    return {"cases": cases, "agree": cases - len(wrong), "said": dict(words), "wrong": wrong}


async def offers(
    session: aiohttp.ClientSession, base: str, cluster: Cluster, *, cases: int
) -> dict[str, Any]:
    """One that a waiting job is made, drawn at random, is done each time."""
    kinds, wrong, tried = Counter[str](), list[dict[str, Any]](), 0
    while tried < cases:
        cluster.end(1)
        cluster.submit()
        await rest(cluster.scene)
        found = await _offer(session, base, cluster)
        if found is None:
            continue
        uid, made = found
        change, tried = cluster.rng.choice(made)["change"], tried + 1
        kinds[_kind(change)] += 1
        await done(cluster, uid, change)
        kept = await _starts(cluster.scene, uid)
        print(f"offer {tried}: {uid} {change} {kept}", file=sys.stderr)
        if not kept:
            wrong.append({"uid": uid, "change": change, "all": made})
    return {"cases": cases, "kept": cases - len(wrong), "kinds": dict(kinds), "wrong": wrong}


async def _offer(
    session: aiohttp.ClientSession, base: str, cluster: Cluster
) -> tuple[str, list[dict[str, Any]]] | None:
    """A waiting job that is made some, drawn at random, with all of them; None = nobody is."""
    waiting = await cluster.scene.rows("SELECT uid FROM workload WHERE state = 'Queued' ORDER BY uid")
    for uid in cluster.rng.sample([row.uid for row in waiting], len(waiting)):
        async with session.get(f"{base}/workloads/{uid}/explanation", headers=_bearer(ADMIN)) as answer:
            if made := (await answer.json())["wouldAdmit"]:
                return uid, made
    return None


async def done(cluster: Cluster, uid: str, change: str) -> None:
    """What an offer says is done, on the job, on another job or on the queues."""
    job = cluster.now(uid)
    match _kind(change):
        case "ends":
            name = change.removesuffix(" ends").rpartition("/")[2]
            cluster.kubelet.finish(cluster.now(name))
        case "limit":
            await cluster.scene.configure(_raised(cluster, change))
        case "topology":
            level = change.removeprefix("topology=")
            job["metadata"]["annotations"][TOPOLOGY_REQUIRED] = level
            if level == "any":
                del job["metadata"]["annotations"][TOPOLOGY_REQUIRED]
            cluster.scene.server.put(JOBS, job)
        case "count":
            count = int(change.split()[2])
            job["spec"] |= {"parallelism": count, "completions": count}
            cluster.scene.server.put(JOBS, job)


def _kind(change: str) -> str:
    if change.endswith(" ends"):
        return "ends"
    return "limit" if " limit " in change else "count" if "at most " in change else "topology"


def _raised(cluster: Cluster, change: str) -> TreeDocument:
    """The queues with the limits that `QUEUE limit RESOURCE>=AMOUNT, … and …` names."""
    queues = dict(cluster.tree.queues)
    for part in change.split(" and "):
        path, _, told = part.partition(" limit ")
        for said in told.split(", "):
            resource, _, amount = said.partition(">=")
            limit = parse_quantity(amount, resource=resource)
            rows = [
                replace(row, limit=limit) if row.resource == resource else row for row in queues[path].quota
            ]
            queues[path] = replace(queues[path], quota=tuple(rows))
    cluster.tree = QueueTree.of(queues.values())
    return TreeDocument(queues=tuple(cluster.tree))


async def _starts(at: Scene, uid: str, *, seconds: float = 20.0) -> bool:
    """Whether the job is started without anybody being evicted for it."""
    started = f"SELECT count(*) FROM admission WHERE uid = '{uid}'"

    async def there() -> bool:
        return bool(await at.value(started))

    with suppress(TimeoutError):
        await until(there, seconds=seconds, what=f"{uid} starts")
    return await there()


async def ask(session: aiohttp.ClientSession, url: str, manifest: dict[str, Any]) -> Said:
    """What the API says of a manifest."""
    meta = manifest["metadata"]
    body = {"job": manifest, "user": meta["annotations"][USER]}
    async with session.post(url, json=body, headers=_bearer(ADMIN)) as answer:
        found = await answer.json()
        answer.raise_for_status()
    return Said(answer=found["answer"], token=(found["primary"] or {}).get("token"))


async def submitted(cluster: Cluster, manifest: dict[str, Any]) -> Said:
    """What the first cycle that sees the job makes of it."""
    uid = cluster.submit(manifest)
    at = cluster.scene
    seen = f"SELECT count(*) FROM event WHERE uid = '{uid}' AND data->>'to' = 'Admitted'"
    told = f"SELECT count(*) FROM reason_transition WHERE uid = '{uid}' AND token IS NOT NULL"

    async def decided() -> bool:
        return bool(await at.value(seen) or await at.value(told))

    await until(decided, seconds=60, what=f"{uid} is decided on")
    rows = await at.rows(
        f"SELECT token FROM reason_transition WHERE uid = '{uid}' AND token IS NOT NULL ORDER BY id LIMIT 1"
    )
    if not rows:
        return Said(answer="starts")
    token = rows[0].token
    if token == "WaitingForPreemptedWorkloads":
        return Said(answer="evicts")
    return Said(answer="unstartable" if Token(token).verdict is Verdict.CHANGE else "waits", token=token)


async def rest(at: Scene) -> None:
    """Wait until nothing moves, and the cycle that is stored is the newest one."""

    async def still() -> bool:
        before = await at.value(_STEPS)
        await asyncio.sleep(1.5)
        quiet = before == await at.value(_STEPS) and not await at.value(_MOVING)
        return quiet and await at.value(_FRESH) == 1

    await until(still, seconds=120, what="the cluster rests")


def _bearer(user: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {user}"}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m bench.agreement", description=__doc__)
    made.add_argument("--cases", type=arguments.positive, default=100, help="what-ifs, and as many offers")
    made.add_argument("--first", type=arguments.seed, default=1, help="seed")
    return made


def main() -> None:
    """Print the figures; exit code 1 where something was not kept."""
    given = parser().parse_args()
    found = asyncio.run(compared(given.cases, seed=given.first))
    print(json.dumps(found))
    sys.exit(any(part["wrong"] for part in found.values()))


if __name__ == "__main__":
    main()

"""The page at `/plain`: the tree, what waits and why, what runs. Plain HTML without script that reloads itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, Response

from queuer import __version__
from queuer.api.deps import Engine, Settings, asking, one_view, visible
from queuer.api.http import problems
from queuer.api.identity.rights import Asker, Unauthenticated
from queuer.api.live.controller import controller
from queuer.api.pages.html import BUILT, TEMPLATES, short
from queuer.api.pages.login import login_page
from queuer.api.queues.models import Account, Queue, QueueList
from queuer.api.queues.now import Now
from queuer.api.settings import ApiSettings, Authentication
from queuer.api.workloads import views as workload_views
from queuer.api.workloads.models import Workload
from queuer.domain.quantity import parse_quantity
from queuer.domain.workload import State
from queuer.store import listing
from queuer.store.listing import Wanted

router = APIRouter(include_in_schema=False)

ROWS = 100
BAR = 400
NOTHING = "-"
LOOPBACK_BANNER = (
    "No authentication: this server answers on loopback only. Whoever can use this machine can change quota."
)
OPEN_BANNER = "No authentication: everyone who can reach this address can read all jobs and change quota."
ACTIVE = (State.ADMITTED, State.PLACING, State.RUNNING, State.EVICTING)
WAITING = (State.QUEUED, State.HELD)
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    '<rect y="2" width="16" height="3" fill="#2f6f9f"/><rect y="7" width="11" height="3" fill="#d9822b"/>'
    '<rect y="12" width="6" height="3" fill="#9bbdd3"/></svg>'
)


_STYLE = resources.files("queuer.api.pages").joinpath("templates/page.css").read_text()


@dataclass(frozen=True, slots=True)
class Shown:
    """The newest jobs of a list; `more`: there are others."""

    jobs: Sequence[Workload]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the reader chose: `resource` to show, None = the main one; seconds between reloads, 0 = none."""

    resource: str | None
    refresh: int
    banner: str
    logged_in: bool = False


async def visitor(request: Request) -> Asker | None:
    """Who asks; None: nobody who is known."""
    try:
        return await asking(request)
    except Unauthenticated:
        return None


@router.get("/plain")
async def page(
    who: Annotated[Asker | None, Depends(visitor)],
    engine: Engine,
    tree: Now,
    settings: Settings,
    resource: str | None = None,
    refresh: Annotated[int | None, Query(ge=0, le=3600)] = None,
) -> HTMLResponse:
    """The page. `refresh`: seconds between reloads, 0 = none."""
    if who is None:
        return login_page(settings, goes_to="/plain", status=401)
    choice = Choice(
        resource=resource,
        refresh=settings.refresh if refresh is None else refresh,
        banner=_banner(settings, who),
        logged_in=settings.authentication is not Authentication.NONE,
    )
    namespaces = await visible(engine, who)
    there = await tree()
    async with one_view(engine) as snapshot:
        waiting, active = [
            await listing.workloads(snapshot, Wanted(namespaces=namespaces, states=states), count=ROWS + 1)
            for states in (WAITING, ACTIVE)
        ]
        jobs = [await workload_views.rows(snapshot, found[:ROWS]) for found in (waiting, active)]
        leader = await controller(snapshot, stale_after=settings.stale_after)
    queues = QueueList(
        items=list(there.queues.values()),
        revision=there.view.config.revision,
        controller=leader,
        **there.standing,
    )
    more = [len(found) > ROWS for found in (waiting, active)]
    return HTMLResponse(
        render(choice, queues=queues, waiting=Shown(jobs[0], more[0]), active=Shown(jobs[1], more[1]))
    )


def _banner(settings: ApiSettings, who: Asker) -> str:
    if settings.authentication is not Authentication.NONE:
        return f"Logged in as {who.caller.name}."
    return OPEN_BANNER if settings.open_network else LOOPBACK_BANNER


def render(choice: Choice, *, queues: QueueList, waiting: Shown, active: Shown) -> str:
    """The page's HTML."""
    now, names = queues.as_of, resources_of(queues.items)
    shown = choice.resource if choice.resource in names else next(iter(names), "")
    paused = {"refresh": 0}
    kept: dict[str, Any] = {} if choice.refresh else paused
    return TEMPLATES.get_template("page.html").render(
        banner=choice.banner,
        logged_in=choice.logged_in,
        version=__version__,
        revision=queues.revision,
        controller=queues.controller,
        cycle=queues.cycle and {**queues.cycle.model_dump(), "age": _age(now, queues.cycle.finished)},
        as_of=now.strftime("%H:%M:%S"),
        refresh=choice.refresh,
        paused_query=urlencode({"resource": shown} | paused),
        running_query=urlencode({"resource": shown}),
        resource=shown,
        resources=[{"name": name, "query": urlencode({"resource": name} | kept)} for name in names],
        rows=tree_rows(queues.items, shown, now) if shown else [],
        waiting=[_job(job, job.submitted, now) for job in reversed(waiting.jobs)],
        more_waiting=waiting.more,
        active=[_job(job, job.landed or job.admitted or job.submitted, now) for job in active.jobs],
        more_active=active.more,
    )


@router.get("/page.css")
async def style() -> Response:
    return Response(_STYLE, media_type="text/css", headers={"Cache-Control": "max-age=300"})


@router.get("/icon.svg")
async def icon() -> Response:
    return Response(_ICON, media_type="image/svg+xml", headers={"Cache-Control": "max-age=86400"})


@router.get("/problems/{code}")
async def explain_problem(code: str) -> PlainTextResponse:
    """What the `type` of a problem points at."""
    kind = problems.KINDS.get(code)
    if kind is None:
        raise problems.unknown_kind(code)
    return PlainTextResponse(f"{kind.status} {kind.title}\n\n{kind.advice}\n")


def resources_of(queues: Sequence[Queue]) -> list[str]:
    """Resources that quota rows name, most often named first, then the others that are in use."""
    named = Counter(row.resource for queue in queues for row in queue.quota)
    used = {account.resource for queue in queues for account in queue.accounts}
    return [name for name, _ in named.most_common()] + sorted(used - named.keys())


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of a bar, in units of the bar's own width."""

    kind: str
    x: int
    width: int


def tree_rows(queues: Sequence[Queue], resource: str, now: datetime) -> list[Mapping[str, Any]]:
    """One row per queue for the account of `resource` over all flavors."""
    return [_tree_row(queue, _account(queue, resource), now) for queue in queues]


def _account(queue: Queue, resource: str) -> Account | None:
    return next((a for a in queue.accounts if a.resource == resource and a.flavor is None), None)


def _tree_row(queue: Queue, account: Account | None, now: datetime) -> Mapping[str, Any]:
    parts, limit_x = bar(account) if account else ([], None)
    figures = {
        "used": account.used if account else NOTHING,
        "guaranteed": account.guaranteed if account else NOTHING,
        "limit": account.limit if account and account.limit is not None else NOTHING,
        "borrowed": _some(account.borrowed if account else "0"),
        "lent": _some(account.lent if account else "0"),
    }
    count = f" ({queue.pending_workloads})" if queue.pending_workloads else ""
    return {
        **figures,
        "path": queue.path,
        "name": queue.path.rsplit(".", 1)[-1],
        "depth": queue.path.count("."),
        "state": queue.effective_state,
        "starved": account is not None and account.starved,
        "pending": _some(account.pending if account else "0") + count,
        "oldest": _age(now, queue.oldest_pending) if queue.oldest_pending else NOTHING,
        "bar": parts,
        "limit_x": limit_x,
        "label": ", ".join(f"{key} {value}" for key, value in figures.items()),
    }


def bar(account: Account) -> tuple[list[Part], int | None]:
    """Own use, borrowed, lent and free guarantee side by side, and the place of the limit."""
    used, guaranteed, borrowed, lent = (
        parse_quantity(text, resource=account.resource)
        for text in (account.used, account.guaranteed, account.borrowed, account.lent)
    )
    limit = parse_quantity(account.limit, resource=account.resource) if account.limit is not None else None
    whole = max(used, guaranteed, limit or 0)
    if whole == 0:
        return [], None
    own = used - borrowed
    amounts = {"own": own, "borrowed": borrowed, "lent": min(lent, max(guaranteed - own, 0))}
    amounts["free"] = max(guaranteed - own - amounts["lent"], 0) if not borrowed else 0
    parts, at = [], 0
    for kind, amount in amounts.items():
        end = at + amount
        x, edge = round(at * BAR / whole), round(end * BAR / whole)
        if edge > x:
            parts.append(Part(kind=kind, x=x, width=edge - x))
        at = end
    return parts, None if limit is None else min(round(limit * BAR / whole), BAR - 2)


def _age(now: datetime, since: datetime) -> str:
    seconds = max(0.0, (now - since).total_seconds())
    sizes = ((86400, "d"), (3600, "h"), (60, "m"))
    return next(
        (f"{int(seconds // size)} {unit}" for size, unit in sizes if seconds >= size), f"{int(seconds)} s"
    )


def _some(amount: str) -> str:
    return NOTHING if amount == "0" else amount


def _job(job: Workload, since: datetime, now: datetime) -> Mapping[str, Any]:
    return {
        "href": f"/jobs/{job.uid}"
        if BUILT.joinpath("index.html").is_file()
        else f"/api/v1/workloads/{job.uid}",
        "name": job.name,
        "kind": job.kind,
        "namespace": job.namespace,
        "queue": job.queue,
        "asks": asks(job.demand),
        "priority": job.priority,
        "state": job.state,
        "attempt": job.attempt,
        "age": _age(now, since),
        "reason": job.reason,
        "where": ", ".join(job.domains),
    }


def asks(demand: Mapping[str, str]) -> str:
    """The devices that a job asks for, and its cpu."""
    plain = {"memory", "ephemeral-storage", "pods"}
    return ", ".join(
        f"{amount} {short(name)}"
        for name, amount in sorted(demand.items(), reverse=True)
        if name not in plain
    )

"""The caller and its rights, so that a page offers nobody what would be refused."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field

from queuer.api.cycles.routes import READ as READ_CYCLES
from queuer.api.deps import PREFIX, Asking, Engine, one_view
from queuer.api.live.audit import READ as READ_AUDIT
from queuer.api.models import Model
from queuer.domain.queue import ROOT, QueueTree
from queuer.store import reads
from queuer.store.config import load_config

router = APIRouter(prefix=PREFIX, tags=["identity"])


class Me(Model):
    """The caller and its rights."""

    name: str
    groups: list[str]
    reads_everything: bool = Field(description="Jobs of all namespaces are shown in full.")
    namespaces: list[str] = Field(
        description="Namespaces whose jobs are shown in full, of those that a queue names or that had a job."
    )
    updates: list[str] = Field(description="Those whose jobs the caller may hold, release and prioritise.")
    administers: list[str] = Field(description="Queues that the caller may change, each with all below it.")
    may_change: bool = Field(description="The caller may change some queue: `administers` has one.")
    reads_cycles: bool = Field(description="The caller may read the decisions.")
    reads_audit: bool = Field(description="The caller may read the audit, or its part about `administers`.")


@router.get("/me")
async def get_me(engine: Engine, asker: Asking) -> Me:
    """The caller's name and groups, the namespaces that it reads or updates and the queues that it may change."""
    async with one_view(engine) as connection:
        tree = (await load_config(connection)).tree
        seen = await reads.namespaces(connection)
    known = {*seen, *(space for queue in tree for space in queue.namespaces)}
    administered = _topmost(tree, await asker.administered({ROOT, *(queue.path for queue in tree)}))
    return Me(
        name=asker.caller.name,
        groups=list(asker.caller.groups),
        reads_everything=await asker.reads_everything(),
        namespaces=sorted(await asker.readable(known)),
        updates=sorted(await asker.updatable(known)),
        administers=administered,
        may_change=bool(administered),
        reads_cycles=await asker.may(READ_CYCLES),
        reads_audit=bool(administered) or await asker.may(READ_AUDIT),
    )


def _topmost(tree: QueueTree, paths: frozenset[str]) -> list[str]:
    """Those with none of the others above them."""
    return sorted(path for path in paths if not paths.intersection(tree.lineage(path)) - {path})

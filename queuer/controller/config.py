"""Configuration as the leader sees it: the revision in force, and the objects of the cluster that make new ones.

`follow_revision` keeps memory at the database's newest revision. `follow_objects` writes the Queue, Flavor and Topology
objects into the database as changesets, and what queues use back into their status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from queuer.controller.logs import logger
from queuer.controller.memory.state import ClusterState
from queuer.domain.quantity import format_quantity
from queuer.domain.queue import ManagedBy
from queuer.kube import config_crs
from queuer.kube.client import Client
from queuer.kube.config import Access
from queuer.kube.config_crs import ConfigOutcome
from queuer.kube.config_set import ConfigSet
from queuer.store import queues
from queuer.store.config import ConfigUnreadable, load_config, revision
from queuer.store.engine import begin
from queuer.store.leader import check_epoch
from queuer.store.usage import QueueView, tree_view

log = logger("configuration")

EVERY = 0.5
"""Seconds between looks at the revision, one indexed read."""
_AMOUNTS = ("used", "borrowed", "pending")


async def follow_revision(engine: AsyncEngine, state: ClusterState, *, every: float = EVERY) -> None:
    """Take over each new revision. Ends by DatabaseUnavailable, which ends the leadership too."""
    while True:
        await asyncio.sleep(every)
        await catch_up(engine, state)


async def catch_up(engine: AsyncEngine, state: ClusterState) -> None:
    """Take over the newest revision. One that cannot be read leaves the last good one in force."""
    async with begin(engine) as connection:
        if (present := await revision(connection)) == state.rules.revision:
            return
        try:
            rules = await load_config(connection)
        except ConfigUnreadable as error:
            if present != state.revision:
                log.error("configuration not understood", revision=present, said=str(error))
            state.revision = present
            return
    state.configure(rules)
    log.info("configuration", revision=rules.revision, queues=len(rules.tree.queues))


async def follow_objects(
    client: Client, access: Access, engine: AsyncEngine, *, epoch: int, actor: str
) -> None:
    """Apply what the objects say, now and at each change, until cancelled: of a leader that is one no more, nothing."""

    async def apply(wanted: ConfigSet) -> ConfigOutcome:
        async with begin(engine) as connection:
            await check_epoch(connection, epoch)
            changeset = await queues.plan(connection, wanted.document, writer=ManagedBy.CRD)
            if changeset.problems or changeset.conflicts:
                return ConfigOutcome(problems=changeset.problems, conflicts=changeset.conflicts)
            applied = await queues.apply(
                connection, changeset, actor=actor, source="kubernetes", reason="objects changed"
            )
        if changeset.changes:
            log.info("applied", revision=applied, changes=len(changeset.changes))
        return ConfigOutcome()

    async def figures() -> Mapping[str, Mapping[str, Any]]:
        async with begin(engine) as connection:
            view = await tree_view(connection)
        return {path: _figures(found) for path, found in view.queues.items()}

    await config_crs.run(client, access=access, apply=apply, figures=figures)


def _figures(found: QueueView) -> dict[str, dict[str, str]]:
    """Amounts over all flavors by resource, as Kubernetes quantities; zeros left out."""
    return {
        word: {
            row.resource: format_quantity(amount, resource=row.resource)
            for row in found.amounts
            if row.flavor is None and (amount := getattr(row, word))
        }
        for word in _AMOUNTS
    }

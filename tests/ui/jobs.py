"""Jobs that wait for reasons of their own, in a site that is already full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.instances import Form
from bench.load import manifest_of
from bench.scene import until
from queuer.kube.objects import JOBS
from tests.ui.site import Site

HOSTILE = "<img src=x onerror=alert(1)>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Uids. `hostile`: its name is markup; `lost`: its queue does not exist; `large`: no cluster has room."""

    queue: str
    hostile: str
    lost: str
    large: str


def submit(site: Site) -> Waiting:
    """Submit them, and wait until the controller has told why they wait."""
    queue = next(each.path for each in site.cluster.tree if site.cluster.tree.is_leaf(each.path))

    async def work() -> Waiting:
        ask = site.cluster.submit
        small, huge = Form(pods=2, gpus=8), Form(pods=400, gpus=8)
        lost = manifest_of(small, queue=queue, priority=0)
        lost["metadata"]["labels"]["queuer.dev/queue"] = f"{queue}x"
        made = Waiting(
            queue=queue,
            hostile=ask(_named(manifest_of(small, queue=queue, priority=0), HOSTILE)),
            lost=ask(_named(lost, "lost")),
            large=ask(_named(manifest_of(huge, queue=queue, priority=0), "large")),
        )
        uids = f"'{made.hostile}', '{made.lost}', '{made.large}'"
        told = f"SELECT count(*) FROM workload WHERE token IS NOT NULL AND uid IN ({uids})"
        await until(lambda: _all(site, told), seconds=60, what="three jobs know why they wait")
        return made

    return site.run(work(), seconds=90)


async def vanished(site: Site) -> str:
    """The uid of a job that was deleted."""
    cluster = site.cluster
    uid = cluster.submit()
    await site.seen(f"SELECT count(*) FROM workload WHERE uid = '{uid}'")
    cluster.scene.server.remove(JOBS, cluster.now(uid))
    await site.seen(f"SELECT count(*) FROM workload WHERE uid = '{uid}' AND deleted_at IS NOT NULL")
    return uid


async def _all(site: Site, query: str) -> bool:
    return await site.cluster.scene.value(query) == 3


def _named(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    return {**manifest, "metadata": {**manifest["metadata"], "name": name}}

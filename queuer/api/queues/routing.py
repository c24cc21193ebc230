"""The routing of a job that does not exist yet: labels, rules and access say which queue takes it."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from queuer.api.deps import PREFIX, Asking, Engine, one_view
from queuer.api.identity.rights import nameless, nameless_rule, reading
from queuer.api.models import Model
from queuer.domain.access import ACCESS
from queuer.domain.errors import InvalidInput
from queuer.domain.queue import ROOT, QueueState
from queuer.domain.routing import export_routing
from queuer.domain.usable import check_queue, check_user, usable_leaves
from queuer.domain.workload import Workload
from queuer.store.config import load_config

router = APIRouter(prefix=PREFIX, tags=["queues"])
_LABEL = re.compile(r"\s*([^\s=!]+)\s*==?\s*([^\s=]*)\s*")
MOST = 100
"""Queues that are named."""


class Step(Model):
    """A rule of a queue that hands the job on."""

    queue: str = Field(description="Whose rule it is.")
    rule: dict[str, Any] = Field(description="As it is written under `placement`.")


class RoutingPreview(Model):
    """Where a job of this namespace and user would go."""

    namespace: str
    user: str
    groups: list[str]
    queue: str
    by: str = Field(description="`label`: it is the queue that was named; `rule`: by `steps`.")
    steps: list[Step] = Field(description="Rules in the order in which they counted.")
    may: bool = Field(description="Whether a job of theirs is queued there.")
    reason: str = Field(description="Why not; empty where it is.")
    state: QueueState | None = Field(
        description="Of the queue, ancestors included; null where there is none."
    )
    access: dict[str, Any] = Field(description="What is asked of jobs there.")
    usable: list[str] = Field(description=f"Queues that they may use, {MOST} at most.")


@router.get("/routing")
async def get_routing(
    engine: Engine,
    asker: Asking,
    namespace: Annotated[str, Query(min_length=1, max_length=63)],
    queue: Annotated[
        str,
        Query(max_length=63, description="What the job's label, or the namespace's `default-queue`, names."),
    ] = ROOT,
    user: Annotated[str | None, Query(max_length=512, description="Default: who asks.")] = None,
    group: Annotated[str | None, Query(max_length=512, description="A group of theirs.")] = None,
    labels: Annotated[
        str, Query(max_length=4000, description="Labels of the job, `key=value`, by comma.")
    ] = "",
) -> RoutingPreview:
    """To which queue a job goes, by which rules, and whether its user may use it. It says nothing of room or limits.

    Users and groups that a queue names are there for who administers it. Another user, or a group that is not one's
    own, may be asked about by who administers the queue, or may get the workloads of all namespaces.
    """
    caller = asker.caller
    about_self = user in (None, caller.name) and group in (None, *caller.groups)
    if not about_self and not await asker.administers(queue):
        await asker.require(reading())
    async with one_view(engine) as connection:
        tree = (await load_config(connection)).tree
    who = caller.name if user is None else user
    groups = [group] if group is not None else sorted(caller.groups) if who == caller.name else []
    steps = tree.routed(queue, namespace=namespace, user=who, groups=groups, labels=_labels_of(labels))
    path = steps[-1][1].queue if steps else queue
    job = Workload(
        uid="", kind="Job", namespace=namespace, name="", queue=path, pod_sets=(), submitted=0.0, user=who
    )
    own = await asker.administered({path, *(of for of, _ in steps)})
    wrong = check_queue(job, tree, groups) or check_user(job, groups, tree, naming=path in own)
    usable = usable_leaves(job, tree, groups)
    rules = [(of, export_routing([rule])[0]) for of, rule in steps]
    access = ACCESS.show(tree.access(path)) if path in tree else {}
    return RoutingPreview(
        namespace=namespace,
        user=who,
        groups=groups,
        queue=path,
        by="rule" if steps else "label",
        steps=[Step(queue=of, rule=rule if of in own else nameless_rule(rule)) for of, rule in rules],
        may=wrong is None,
        reason="" if wrong is None else wrong.primary.text,
        state=tree.effective_state(path) if path in tree else None,
        access=access if path in own else nameless({"access": access})["access"],
        usable=usable[:MOST],
    )


def _labels_of(text: str) -> dict[str, str]:
    """The labels as they are written for kubectl. Raises InvalidInput for what is none."""
    found = {}
    for part in text.split(",") if text.strip() else ():
        match = _LABEL.fullmatch(part)
        if match is None:
            raise InvalidInput.at("labels", f"{part.strip()!r} is no key=value", "as in app=night,tier=x")
        found[match[1]] = match[2]
    return found

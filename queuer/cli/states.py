"""`queuer queue hold|drain|resume`: whether a queue starts and takes jobs. A changeset like any other, of one field."""

from __future__ import annotations

import json

from queuer.cli.arguments import QueuePath, Reason, Yes
from queuer.cli.asking import confirm
from queuer.cli.client import Client, CommandFailed, Exit
from queuer.cli.config import post, require_reason, show_plan
from queuer.cli.output import Printer, say
from queuer.domain.document import API_VERSION, KIND
from queuer.domain.queue import QueueState


def hold(queue: QueuePath, *, reason: Reason = "", yes: Yes = False) -> None:
    """Start nothing new in a queue; what runs goes on, what comes is queued."""
    _set(queue, QueueState.HELD, reason=reason, yes=yes)


def drain(queue: QueuePath, *, reason: Reason = "", yes: Yes = False) -> None:
    """Start nothing new in a queue and take no new jobs."""
    _set(queue, QueueState.DRAINING, reason=reason, yes=yes)


def resume(queue: QueuePath, *, reason: Reason = "", yes: Yes = False) -> None:
    """Open a queue again that is held or drains."""
    _set(queue, QueueState.OPEN, reason=reason, yes=yes)


def _set(queue: str, state: QueueState, *, reason: str, yes: bool) -> None:
    with Client.from_env() as client:
        document = client.get("/queue-tree", root=queue)
        if queue not in document["queues"]:
            hint = "queuer queue ls"
            raise CommandFailed(f"there is no queue {queue}", hint=hint, exit_code=Exit.NOT_FOUND)
        own = {**document["queues"][queue], "state": state.value}
        # Nothing but the queue itself: what is said again of others would revert an edit made meanwhile.
        body = {"apiVersion": API_VERSION, "kind": KIND, "root": queue, "queues": {queue: own}}
        made = client.request(
            "POST",
            "/changesets",
            content=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        show_plan(made, Printer())
        if not made["changes"]:
            return
        require_reason(made, reason)
        confirm("do it?", yes=yes)
        done = post(client, f"/changesets/{made['id']}:apply", {"reason": reason})
    say(f"applied as revision {done['revision']}; next: queuer queue show {queue}")

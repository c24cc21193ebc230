"""`queuer queue hold|drain|resume`: whether a queue starts and takes jobs. A changeset of one field."""

from __future__ import annotations

from queuer.cli.arguments import QueuePath, Reason, Yes
from queuer.cli.asking import confirm
from queuer.cli.client import Client
from queuer.cli.config import post, show_plan
from queuer.cli.output import Printer, say


def hold(queue: QueuePath, *, reason: Reason = "", yes: Yes = False) -> None:
    """Start nothing new in a queue; what runs goes on, what comes is queued."""
    _set(queue, "hold", reason=reason, yes=yes)


def drain(queue: QueuePath, *, reason: Reason = "", yes: Yes = False) -> None:
    """Start nothing new in a queue and take no new jobs."""
    _set(queue, "drain", reason=reason, yes=yes)


def resume(queue: QueuePath, *, reason: Reason = "", yes: Yes = False) -> None:
    """Open a queue again that is held or drains."""
    _set(queue, "resume", reason=reason, yes=yes)


def _set(queue: str, verb: str, *, reason: str, yes: bool) -> None:
    address = f"/queues/{queue}:{verb}"
    with Client.from_env() as client:
        if not yes:
            asked = client.request("POST", address, params={"dryRun": "true"})
            show_plan(asked, Printer())
            if not asked["changes"]:
                return
            confirm(f"{verb} {queue}?", yes=yes)
        done = post(client, address, {"reason": reason})
    if yes:
        show_plan(done, Printer())
    if done["changes"]:
        say(f"applied as revision {done['revision']}; next: queuer queue show {queue}")

"""`queuer whoami`: who the server takes you for, and what you may."""

from __future__ import annotations

from queuer.cli.client import Client
from queuer.cli.output import Printer, printed


@printed
def whoami(*, out: Printer) -> None:
    """Show who you are to the server: name, groups, what you may read and change."""
    with Client.from_env() as client:
        me = client.get("/me")
    if not out.for_people:
        out.answer(me, names=[me["name"]])
        return
    reads = "all namespaces" if me["readsEverything"] else ", ".join(me["namespaces"])
    facts = {
        "name": me["name"],
        "groups": ", ".join(me["groups"]),
        "reads jobs of": reads,
        "changes": ", ".join(me["administers"]),
        "server": client.url,
    }
    for label, value in facts.items():
        out.line(f"{label:<15}{value or 'none'}")

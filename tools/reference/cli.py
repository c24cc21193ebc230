"""The command line, from its own tree of verbs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer
import typer.main

from queuer.cli.failures import EXIT_BY_VERDICT, Exit
from queuer.cli.main import build
from tools.reference.markdown import anchor, code, page, table


def made() -> str:
    """The page."""
    root = typer.main.get_command(build([]))
    verbs = list(_verbs(root, "queuer"))
    said = (
        "Every verb of `queuer`, also `kubectl queuer`. Output and safety are in "
        "[cli.md](../cli.md). Every error says what to do, and names a command where one helps."
    )
    index = table(("verb", ""), [(f"[`{name}`](#{anchor(name)})", _first(verb)) for name, verb in verbs])
    codes = table(("code", ""), [(str(int(code_)), code_.meaning) for code_ in Exit])
    why = ", ".join(f"{number} for {verdict}" for verdict, number in EXIT_BY_VERDICT.items())
    ends = (
        f"With `--exit-status` the verbs `why`, `sim job` and `sim shape` exit {why}, and 0 when the job waits for "
        "nothing: it would start, evictions included. Without it they exit 0 whatever the answer. "
        "`queuer doctor` exits 1 where something is wrong, else 4 where rights were missing to look; "
        "so does `queuer uninstall-check` where something would be stuck. "
        "`queuer diff` exits 0 for no difference, 1 for some, and above 1 where it failed."
    )
    sections = (_section(name, verb) for name, verb in verbs)
    return page("Command line", said, "## Exit codes", codes, ends, "## Verbs", index, *sections)


def _verbs(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """All verbs, depth first. A group is one itself where it does something without a further word."""
    below = getattr(command, "commands", {})
    if not below or (command.invoke_without_command and name != "queuer"):
        yield name, command
    for word, verb in sorted(below.items()):
        yield from _verbs(verb, f"{name} {word}")


def _section(name: str, verb: Any) -> str:
    context = typer.Context(verb, info_name=name)
    usage = " ".join([name, *verb.collect_usage_pieces(context)])
    records = [
        record
        for p in verb.get_params(context)
        if (record := p.get_help_record(context)) and p.name != "help"
    ]
    parts = [f"### {name}", _told(verb), f"```\n{usage}\n```"]
    if records:
        parts.append(
            table(("option", ""), [(code(re.sub(r" +", " ", what)), said) for what, said in records])
        )
    return "\n\n".join(parts)


def _told(verb: Any) -> str:
    return "\n\n".join(" ".join(part.split()) for part in (verb.help or "").split("\n\n"))


def _first(verb: Any) -> str:
    return _told(verb).split("\n\n")[0]

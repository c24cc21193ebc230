"""The snippets of a page: `console` blocks are typed, `yaml` blocks that name a file are written.

A page is a session of one shell. The rules, which docs/index.md tells the reader:

- `$ ` begins a command, `> ` goes on with it. The lines after it are its output; none shown = anything.
- `…` stands for anything. Ages, times of day, and numbers of cycles and revisions may differ, and blanks in number.
  A cycle `(on record: N)` may be left out.
- A command ends with 0, unless the next one is `$ echo $?`.
- A `yaml` block whose first line is `# NAME.yaml` is that file.
- `<!-- as NAME -->`: the commands that follow are NAME's. `<!-- needs PART -->`: an optional part of a local cluster.
- `<!-- not run: WHY -->`: the next block is for reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

ELLIPSIS = "…"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$|^<!-- (as|not run:) ([^>]*?) -->$", re.MULTILINE | re.DOTALL)
_MOVING = (
    (r" \(on record: \d+\)", ""),
    (r"\b\d+(\.\d+)? ?(ms|s|m|h|d)\b", "AGE"),
    (r"\b\d\d:\d\d(:\d\d)?\b", "TIME"),
    (r"\b(cycle|revision|schema) \S+?(?=[,;.]?(\s|$))", r"\1 N"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file that a page says to save."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command, whose it is, and the output that the page shows ("" = none)."""

    text: str
    user: str
    output: str


def needs(page: str) -> set[str]:
    """Optional parts of a local cluster without which the page cannot be typed."""
    return set(re.findall(r"^<!-- needs (\S+) -->$", page, re.MULTILINE))


def steps(page: str) -> Iterator[File | Command]:
    """The steps of a page's reader, in order."""
    user, read_only = "admin", False
    for kind, body, note, said in FENCE.findall(page):
        if note:
            user, read_only = (said, read_only) if note == "as" else (user, True)
            continue
        skipped, read_only = read_only, False
        if skipped:
            continue
        if kind == "console":
            yield from _commands(body, user)
        elif kind == "yaml" and (named := re.match(r"# (\S+\.yaml)\n", body)):
            yield File(name=named[1], text=body)


def _commands(body: str, user: str) -> Iterator[Command]:
    lines = body.splitlines()
    assert lines[0].startswith("$ "), f"a console block begins with a command: {lines[0]}"
    starts = [i for i, line in enumerate(lines) if line.startswith("$ ")] + [len(lines)]
    for start, end in pairwise(starts):
        text = [lines[start][2:]]
        rest = lines[start + 1 : end]
        while rest and (rest[0].startswith("> ") or text[-1].endswith("\\")):
            text.append(rest.pop(0).removeprefix("> "))
        yield Command(text="\n".join(text), user=user, output="\n".join(rest))


def same(shown: str, real: str) -> bool:
    """Whether real output is what the page shows, by the rules."""
    parts = map(re.escape, map(_settled, shown.split(ELLIPSIS)))
    pattern = ".*".join(part.replace("\\ ", " ") for part in parts)
    return re.fullmatch(rf"\s*{pattern}\s*", _settled(real), re.DOTALL) is not None


def _settled(text: str) -> str:
    """Without what moves: lines without blanks at the end and with single ones inside."""
    for pattern, word in _MOVING:
        text = re.sub(pattern, word, text)
    return "\n".join(
        re.sub(r"[ \t]+", " ", line).strip() if line.strip() else "" for line in text.split("\n")
    )

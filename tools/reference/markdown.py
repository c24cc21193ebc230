"""Markdown as the pages need it: a head that says where a page is made, tables, headings with anchors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape


def page(title: str, said: str, *parts: str) -> str:
    """A whole page. `said`: a paragraph below the title."""
    note = "<!-- Written by `make docs` from the code: change it there. -->"
    return "\n\n".join([f"# {title}", note, said, *(part for part in parts if part)]) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. Cells are Markdown; what would end a cell is escaped."""
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    lines += [f"| {' | '.join(map(_cell, row))} |" for row in rows]
    return "\n".join(lines)


def code(text: object) -> str:
    """As code, nothing where there is nothing."""
    if "|" in (said := str(text)):  # in a table GitHub wants it escaped, and MkDocs shows the escape
        return f"<code>{escape(said, quote=False).replace('|', '&#124;')}</code>"
    return f"`{said}`" if said else ""


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")

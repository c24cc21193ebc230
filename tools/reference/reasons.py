"""Reasons, from the table in `queuer.domain.reasons`, with their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import get_type_hints

from queuer.domain.reasons import ROWS, Token, Verdict
from tools.reference.markdown import anchor, code, page, table

VERDICTS: Mapping[Verdict, str] = MappingProxyType({
    Verdict.CHANGE: "It can never start as it is: change the job or its queue.",
    Verdict.WAIT: "It starts when others have left, or at the next try.",
    Verdict.HELD: "Somebody holds it: release it, or ask who does.",
    Verdict.ESCALATE: "An operator is needed.",
})  # fmt: skip


def made() -> str:
    """The page."""
    said = (
        "A job that waits has one primary reason: a stable token, a verdict, figures, and a sentence that is made of "
        "them. `queuer why` shows it, and REST as [`explanation`](../rest.md#why-a-job-waits). "
        "A job is `unstartable` if it can never start as it is; then its verdict is CHANGE, whatever the token."
    )
    words = table(("verdict", "what it asks of the reader"), [(v, VERDICTS[v]) for v in Verdict])
    index = table(("token", "verdict"), [(f"[{t}](#{anchor(t)})", t.verdict) for t in Token])
    return page("Reasons", said, words, index, *(_section(token) for token in Token))


def _section(token: Token) -> str:
    row = ROWS[token]
    lines = [f"## {token}", row.meaning, f"**{row.verdict}**: {row.advice}"]
    if params := sorted(get_type_hints(row.params)):
        lines.append(f"Parameters, as far as they apply: {', '.join(map(code, params))}.")
    return "\n\n".join(lines)

"""Reasons, from `queuer.domain.tokens`, with the parameters that sentences are made of."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from queuer.domain import sentences
from queuer.domain.tokens import ROWS, Token, Verdict
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
        "A verdict is CHANGE, whatever the token, where not even an idle cluster could hold the job."
    )
    words = table(("verdict", "what it asks of the reader"), [(v, VERDICTS[v]) for v in Verdict])
    index = table(("token", "verdict"), [(f"[{t}](#{anchor(t)})", t.verdict) for t in Token])
    return page("Reasons", said, words, index, *(_section(token) for token in Token))


def _section(token: Token) -> str:
    row, params = ROWS[token], sorted(set(_parameters(token)))
    lines = [f"## {token}", row.meaning, f"**{row.verdict}**: {row.advice}"]
    if params:
        lines.append(f"Parameters of its sentence, as far as they apply: {', '.join(map(code, params))}.")
    return "\n\n".join(lines)


def _parameters(token: Token) -> Iterator[str]:
    """What the token's sentence reads of `p`, with all that it calls."""
    functions = {
        f.name: f for f in ast.parse(inspect.getsource(sentences)).body if isinstance(f, ast.FunctionDef)
    }
    form = sentences.FORMS.get(token)
    open_, seen = [form.__name__] if form else [], set[str]()
    while open_:
        if (name := open_.pop()) in seen or name not in functions:
            continue
        seen.add(name)
        for node in ast.walk(functions[name]):
            match node:
                case ast.Subscript(value=ast.Name(id="p"), slice=ast.Constant(value=str(key))):
                    yield key
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="p"), attr="get"),
                    args=[ast.Constant(value=str(key)), *_],
                ):
                    yield key
                case ast.Call(func=ast.Name(id=called)):
                    open_.append(called)

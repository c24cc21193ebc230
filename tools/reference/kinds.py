"""Kinds of job, from the rows of `queuer.kube.kinds`."""

from __future__ import annotations

from typing import Any

import msgspec

from queuer.kube.kinds import KINDS, JobKind, field_of
from queuer.kube.kinds.pod import GATE
from tools.reference.markdown import code, page, table


def made() -> str:
    """The page."""
    said = (
        "A job of these kinds is queued if it has the label `queuer.dev/queue`, or its namespace a default queue. "
        "[labels.md](../labels.md) says what else a job may ask, [admission.md](../admission.md) what happens to it "
        "on create."
    )
    return page("Kinds of job", said, *map(_section, KINDS))


def _section(kind: JobKind) -> str:
    meta = {"name": "example", "namespace": "example", "uid": "example"}
    body: dict[str, Any] = {"metadata": meta, "spec": kind.example}
    if kind.made is not None and kind.made.carrier is not None:
        body = {"metadata": meta, "carrier": body}
    job = msgspec.convert(body, kind.type)
    sets = table(
        ("pod set", "how many pods", "pod template"),
        [
            (code(role.name), code(field_of(role.count_path)), code(field_of(role.template_path)))
            for role in kind.roles(job)
        ],
    )
    facts = [
        ("API version", code(kind.api_version)),
        ("its controller", " or ".join(map(code, kind.operators))),
        (
            "held by",
            code(field_of(kind.suspend_path)) if kind.gates is None else f"the scheduling gate {code(GATE)}",
        ),
        ("hosts are pinned", _hosts(kind)),
        ("fewer pods than declared, by `min-count`", "yes" if kind.shrinks else "no"),
        ("time limit, read as `max-runtime`", code(field_of(kind.deadline_path))),
        ("label that tells its pods apart", code(kind.pod_label or "")),
    ]
    if kind.clean is not None:
        path, value = kind.clean
        facts.append(("written when it is evicted after its end", code(f"{field_of(path)}: {value}")))
    parts = [f"## {kind.name}", table(("", ""), [row for row in facts if row[1]])]
    return "\n\n".join([*parts, *([sets] if kind.roles(job) else [])])


def _hosts(kind: JobKind) -> str:
    if kind.gates is not None:
        return "on each pod, by the write that opens its gate"
    if kind.made is None:
        return "in its pod templates"
    rest = "" if kind.made.only is None else f"in its pod templates, those of `{kind.made.only}` "
    return f"{rest}on the Jobs that it makes, before it starts"

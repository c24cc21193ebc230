"""Labels and annotations, from `queuer.domain.keys`."""

from __future__ import annotations

from queuer.domain.keys import KEYS, PREFIX, Key, Where
from tools.reference.markdown import code, page, table


def made() -> str:
    """The page."""
    parts = []
    for where in Where:
        parts += [f"## {where}", _table([key for key in KEYS if key.where is where])]
    said = f"All keys are under `{PREFIX}`. What they mean together is in [labels.md](../labels.md)."
    return page("Labels and annotations", said, *parts)


def _table(keys: list[Key]) -> str:
    rows = [(code(_name(key)), key.sort, key.value, key.default) for key in keys]
    if any(key.default for key in keys):
        return table(("key", "kind", "value", "default"), rows)
    return table(("key", "kind", "value"), [row[:3] for row in rows])


def _name(key: Key) -> str:
    name = key.name.removeprefix(PREFIX)
    return f"{name}<podset>" if name.endswith(".") else name

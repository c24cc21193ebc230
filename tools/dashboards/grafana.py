"""Panels and boards as records, and the JSON that Grafana imports.

Each panel has a title, a sentence that says how to read it, and a unit. Panels are laid out in the order given, from
left to right, below the title of their row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

WIDTH = 24
"""Columns of Grafana's grid."""
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Unit(StrEnum):
    """What the numbers of a panel are, as Grafana names it."""

    AMOUNT = "short"
    BYTES = "bytes"
    PER_MINUTE = "cpm"
    PER_SECOND = "reqps"
    RATIO = "percentunit"
    SECONDS = "s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """An expression of PromQL, and the name of its lines: `{{label}}` stands for a label's value."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """`single`: the last value as a large number, red from `red` on; else lines over time."""

    title: str
    about: str
    unit: Unit
    queries: tuple[Query, ...]
    width: int = 8
    single: bool = False
    red: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Panels under one title."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A variable that the reader of a board sets, from the values of a label. `several`: any number of them, or all."""

    name: str
    metric: str
    label: str
    several: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """`uid`: stable, so that an import replaces the board and links stay."""

    uid: str
    title: str
    about: str
    rows: tuple[Row, ...]
    choices: tuple[Choice, ...] = ()

    @property
    def panels(self) -> Iterator[Panel]:
        """All panels, in order."""
        for row in self.rows:
            yield from row.panels


def document(board: Board) -> dict[str, Any]:
    """What Grafana imports."""
    return {
        "uid": board.uid,
        "title": board.title,
        "description": board.about,
        "tags": ["queuer"],
        "schemaVersion": 41,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_source(), *map(_choice, board.choices)]},
        "panels": [{"id": number, **panel} for number, panel in enumerate(_laid_out(board), start=1)],
    }


def _source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _choice(choice: Choice) -> dict[str, Any]:
    query = f"label_values({choice.metric}, {choice.label})"
    several = {
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
    return {
        "name": choice.name,
        "label": choice.name.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": choice.name},
        "refresh": 2,  # whenever the time range changes
        "sort": 1,
        **(several if choice.several else {}),
    }


def _laid_out(board: Board) -> Iterator[dict[str, Any]]:
    y = 0
    for row in board.rows:
        yield {
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": _place(0, y, WIDTH, 1),
            "panels": [],
        }
        x, y, below = 0, y + 1, 0
        for panel in row.panels:
            height = 4 if panel.single else 8
            if x + panel.width > WIDTH:
                x, y, below = 0, y + below, 0
            yield _panel(panel, _place(x, y, panel.width, height))
            x, below = x + panel.width, max(below, height)
        y += below


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green" if panel.red is not None else "text", "value": None}]
    if panel.red is not None:
        steps.append({"color": "red", "value": panel.red})
    return {
        "type": "stat" if panel.single else "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit.value,
                "min": 0,
                "thresholds": {"mode": "absolute", "steps": steps},
            },
            "overrides": [],
        },
        "options": _single() if panel.single else _lines(),
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "expr": query.expr,
                "legendFormat": query.legend,
                "instant": panel.single,
            }
            for at, query in enumerate(panel.queries)
        ],
    }


def _single() -> dict[str, Any]:
    return {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "value_and_name", "graphMode": "none"}


def _lines() -> dict[str, Any]:
    legend = {
        "displayMode": "table",
        "placement": "bottom",
        "calcs": ["lastNotNull", "max"],
        "showLegend": True,
    }
    return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}

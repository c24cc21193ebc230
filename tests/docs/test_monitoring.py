"""Dashboards, alerts and their pages agree with each other, and name metrics and labels that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tools.dashboards.__main__ import BOARDS, FOLDER, made
from tools.dashboards.grafana import Board
from tools.reference.metrics import Family, api, controller

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "deploy/helm/queuer/files/alerts.yaml"
FAMILIES = {family.name: family for family in (*controller(), *api())}
SCRAPED = {"instance"}
"""Labels that Prometheus adds."""


def family_of(name: str) -> Family | None:
    """The metric of a series: a histogram has three kinds."""
    return FAMILIES.get(name) or FAMILIES.get(re.sub("_(bucket|sum|count)$", "", name))


def faults(expr: str) -> Iterator[str]:
    """Names in an expression that no process shows."""
    labels = {"le", *SCRAPED}
    for name, matchers in re.findall(r"(queuer_\w+)(\{[^}]*\})?", expr):
        family = family_of(name)
        if family is None:
            yield f"no metric {name}"
            continue
        labels |= set(family.labels)
        for label in re.findall(r"(\w+)\s*[=!]~?\s*\"", matchers):
            if label not in {*family.labels, *SCRAPED}:
                yield f"{name} has no label {label}"
    for grouped in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expr):
        yield from (f"no label {label}" for label in re.findall(r"\w+", grouped) if label not in labels)


def test_what_is_not_there_is_found() -> None:
    assert list(faults('sum by (shelf) (queuer_leader{queue="a"}) + queuer_nothing')) == [
        "queuer_leader has no label queue",
        "no metric queuer_nothing",
        "no label shelf",
    ]


def test_the_dashboards_are_what_the_code_makes() -> None:
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == {
        name: made(name) for name in BOARDS
    }, "run `python -m tools.dashboards`"


@pytest.mark.parametrize("board", BOARDS.values(), ids=[*BOARDS])
def test_each_panel_says_what_it_is_and_names_metrics_that_there_are(board: Board) -> None:
    panels = list(board.panels)
    assert len({panel.title for panel in panels}) == len(panels)
    for panel in panels:
        assert panel.about.endswith("."), panel.title
        assert len({query.legend for query in panel.queries}) == len(panel.queries), panel.title
        for query in panel.queries:
            assert [*faults(query.expr)] == [], query.expr
            shown = set(re.findall(r"\{\{(\w+)\}\}", query.legend))
            grouped = re.search(r"by \(([^)]*)\)", query.expr)
            assert grouped is None or shown <= set(re.findall(r"\w+", grouped[1])), query.legend
    for choice in board.choices:
        assert choice.label in FAMILIES[choice.metric].labels


def test_panels_do_not_lie_on_each_other() -> None:
    for name in BOARDS:
        taken: set[tuple[int, int]] = set()
        for panel in json.loads(made(name))["panels"]:
            at = panel["gridPos"]
            cells = {
                (x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
            }
            assert not cells & taken, panel["title"]
            assert at["x"] + at["w"] <= 24
            taken |= cells


def test_alerts_name_metrics_that_there_are() -> None:
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    assert {rule["alert"]: [*faults(rule["expr"])] for rule in rules} == {rule["alert"]: [] for rule in rules}
    page = (ROOT / "docs/howto/alerts.md").read_text()
    assert [name for name in re.findall(r"queuer_\w+", page) if family_of(name) is None] == []


def test_each_alert_has_its_page_and_each_page_its_alert() -> None:
    """Pages are short, and name commands, settings and metrics that there are."""
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    urls = {rule["alert"]: rule["annotations"]["runbook_url"] for rule in rules}
    assert urls == {alert: f"docs/runbooks/{alert}.md" for alert in urls}
    assert {rule["labels"]["severity"] for rule in rules} == {"critical", "warning"}
    pages = {path.stem: path.read_text() for path in (ROOT / "docs/runbooks").iterdir()}
    assert set(pages) == set(urls)
    verbs = set(re.findall(r"^### (queuer .+)$", (ROOT / "docs/reference/cli.md").read_text(), re.MULTILINE))
    settings = (ROOT / "docs/reference/settings.md").read_text()
    for name, page in pages.items():
        assert len(page.splitlines()) <= 30, name
        heads = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
        assert heads == [name, "See it", "Causes, the likeliest first", "What to do"]
        for typed in re.findall(r"`(queuer [^`]+)`", page):
            words = re.findall(r"^queuer(?: [a-z]+)+", typed)[0].split()
            assert any(" ".join(words[:n]) in verbs for n in (2, 3)), typed
        assert all(f"`{setting}`" in settings for setting in re.findall(r"QUEUER_[A-Z_]+", page)), name
        assert [metric for metric in re.findall(r"queuer_\w+", page) if family_of(metric) is None] == [], name

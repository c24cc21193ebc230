"""Plays series against the rules of alerts.yaml with promtool, and says which alerts fire."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.programs import promtool

RULES = Path(__file__).resolve().parents[1] / "deploy/helm/queuer/files/alerts.yaml"
STEP = 30
"""Seconds between two scrapes, as the chart sets it, and between two looks at the rules."""
_FIRING = 'max by (alertname) (ALERTS{alertstate="firing"})'

Series = Mapping[str, str]
"""Values by series, in promtool's notation: `1x4` is 1 five times, `0+30x4` grows by 30, `_` is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Scraped series, and exactly those alerts that fire after so many seconds."""

    name: str
    series: Series
    at: int
    firing: Collection[str]


def check(*arguments: str | Path) -> None:
    """Run promtool; an assertion fails with what it says."""
    ran = subprocess.run([promtool(), *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def play(cases: Sequence[Case], folder: Path) -> None:
    """Assert that each case fires what it says, and nothing else. `folder`: where the file of the test goes."""
    document = {
        "rule_files": [str(RULES)],
        "evaluation_interval": f"{STEP}s",
        "tests": [_test(c) for c in cases],
    }
    path = folder / "alerts-test.yaml"
    path.write_text(json.dumps(document))
    check("test", "rules", path)


def _test(case: Case) -> dict[str, Any]:
    fires = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(case.firing)]
    return {
        "name": case.name,
        "interval": f"{STEP}s",
        "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
        "promql_expr_test": [{"expr": _FIRING, "eval_time": f"{case.at}s", "exp_samples": fires}],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """`/metrics` of a process at a time; "" = it did not answer."""

    at: float
    text: str


def series_of(scrapes: Sequence[Scrape], *, instance: str) -> dict[str, str]:
    """Real scrapes as series, each played `STEP` seconds after the one before. Timestamps keep their age."""
    rows: dict[str, dict[int, float]] = {}
    for number, scrape in enumerate(scrapes):
        for family in text_string_to_metric_families(scrape.text):
            for sample in family.samples:
                labels = ", ".join(
                    f"{k}={json.dumps(v)}" for k, v in {**sample.labels, "instance": instance}.items()
                )
                age = number * STEP - scrape.at if sample.name.endswith("_timestamp_seconds") else 0.0
                rows.setdefault(f"{sample.name}{{{labels}}}", {})[number] = sample.value + age
    count = range(len(scrapes))
    return {name: " ".join(_value(values, number) for number in count) for name, values in rows.items()}


def _value(values: Mapping[int, float], number: int) -> str:
    if number in values:
        return repr(values[number])
    return "stale" if number - 1 in values else "_"

"""Each alert fires on what it is for and on nothing else; expressions of rules and dashboards are PromQL."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from tests.alerts import RULES, STEP, Case, Series, check, play
from tools.dashboards.__main__ import BOARDS

CALM: Series = {
    'queuer_leader{instance="c-0"}': "1x400",
    'queuer_leader{instance="c-1"}': "0x400",
    'queuer_cycle_last_success_timestamp_seconds{instance="c-0"}': f"0+{STEP}x400",
    'queuer_cycle_last_success_timestamp_seconds{instance="c-1"}': "0x400",
    'queuer_guard_faults{instance="c-0"}': "0x400",
    'queuer_guard_faults{instance="c-1"}': "0x400",
    'queuer_leader_terms_ended_total{instance="c-0", cause="leadership_lost"}': "1x400",
    'queuer_workloads_in_quarantine{instance="c-0"}': "0x400",
    'queuer_undecodable_total{instance="c-0", resource="jobs"}': "3x400",
    'queuer_tasks_failed_total{instance="c-0", task="retention"}': "1x400",
    'queuer_oldest_open_effect_seconds{instance="c-0"}': "5x400",
    'queuer_oldest_release_seconds{instance="c-0"}': "60x400",
    'queuer_evictions_total{instance="c-0", queue="root.a", reason="reclaim"}': "0+5x400",
    'queuer_evictions_total{instance="c-0", queue="root.a", reason="landing-timeout"}': "1x400",
    'queuer_queue_starved{instance="c-0", queue="root.a", resource="cpu"}': "0x400",
    'queuer_table_bytes{instance="c-0", table="event"}': "1e9x400",
    'queuer_adoptions_refused_total{instance="c-0"}': "2x400",
    'queuer_plans_refused_total{instance="c-0"}': "1x400",
    'queuer_solver_answers_total{instance="c-0", outcome="solved"}': "0+9x400",
    'queuer_solver_answers_total{instance="c-0", outcome="late"}': "2x400",
    'queuer_quota_drift{instance="c-0", queue="root.a", resource="cpu"}': "0x400",
    'queuer_watch_stale_seconds{instance="c-0", resource="pods"}': "0x400",
    'queuer_http_requests_total{instance="a-0", route="/api/v1/me", code="200"}': "0+99x400",
    'queuer_http_requests_total{instance="a-0", route="/healthz/controller", code="503"}': "0+99x400",
    'queuer_http_requests_total{instance="a-0", route="/readyz", code="503"}': "0x400",
    'queuer_stream_clients{instance="a-0"}': "0x400",
}
"""A healthy release over 200 minutes."""
FIRST, OTHER, API = '{instance="c-0"', '{instance="c-1"}', '{instance="a-0"'

BROKEN: dict[str, tuple[Series, int]] = {
    "QueuerNobodyDecides": ({f"queuer_leader{FIRST}}}": "1x9 0x99"}, 600),
    "QueuerTwoDecide": (
        {f"queuer_leader{OTHER}": "0x9 1x99", f"queuer_cycle_last_success_timestamp_seconds{OTHER}": f"0+{STEP}x99"},
        600,
    ),
    "QueuerDatabaseUnavailable": (
        {f'queuer_leader_terms_ended_total{FIRST}, cause="database_unavailable"}}': "_x9 1+25x99"}, 900,
    ),
    "QueuerTermsEnd": ({f'queuer_leader_terms_ended_total{FIRST}, cause="leadership_lost"}}': "1x9 1+1x99"}, 900),
    "QueuerCyclesOverdue": (
        {f"queuer_cycle_last_success_timestamp_seconds{FIRST}}}": f"0+{STEP}x9 270x99"}, 600,
    ),
    "QueuerUnguarded": (
        # No decision is overdue then: none is made.
        {
            f"queuer_guard_faults{FIRST}}}": "0x9 2x99",
            f"queuer_cycle_last_success_timestamp_seconds{FIRST}}}": f"0+{STEP}x9 270x99",
        },
        600,
    ),
    "QueuerQuarantine": ({f"queuer_workloads_in_quarantine{FIRST}}}": "0x9 1x99"}, 1200),
    "QueuerUndecodable": ({f'queuer_undecodable_total{FIRST}, resource="jobs"}}': "3x9 4x99"}, 600),
    "QueuerTaskFailing": ({f'queuer_tasks_failed_total{FIRST}, task="retention"}}': "1x9 1+1x99"}, 900),
    "QueuerEffectOpen": ({f"queuer_oldest_open_effect_seconds{FIRST}}}": f"5x9 5+{STEP}x99"}, 1500),
    "QueuerNotReleased": ({f"queuer_oldest_release_seconds{FIRST}}}": f"60+{STEP}x99"}, 1800),
    "QueuerLandingFails": (
        {f'queuer_evictions_total{FIRST}, queue="root.a", reason="landing-timeout"}}': "1x9 1+1x99"}, 900,
    ),
    "QueuerQueueStarved": (
        {f'queuer_queue_starved{FIRST}, queue="root.a", resource="cpu"}}': "0x9 12x390"}, 4800,
    ),
    "QueuerTableGrows": ({f'queuer_table_bytes{FIRST}, table="event"}}': "1.5e9x2880 2.4e9x400"}, 2970 * STEP),
    "QueuerAdoptionsRefused": ({f"queuer_adoptions_refused_total{FIRST}}}": "2x9 3x99"}, 600),
    "QueuerPlansRefused": ({f"queuer_plans_refused_total{FIRST}}}": "1x9 2x99"}, 600),
    "QueuerSolverFailing": ({f'queuer_solver_answers_total{FIRST}, outcome="late"}}': "2x9 2+1x99"}, 900),
    "QueuerDrift": ({f'queuer_quota_drift{FIRST}, queue="root.a", resource="cpu"}}': "0x9 500x99"}, 1500),
    "QueuerWatchStale": ({f'queuer_watch_stale_seconds{FIRST}, resource="pods"}}': f"0x9 0+{STEP}x99"}, 600),
    "QueuerApiFailing": (
        {f'queuer_http_requests_total{API}, route="/readyz", code="503"}}': "0x9 0+12x99"}, 1200,
    ),
    "QueuerApiGone": ({f"queuer_stream_clients{API}}}": "0x9 stale"}, 900),
}  # fmt: skip
"""What makes an alert fire, and when it does for sure."""


def test_the_rules_and_the_expressions_of_dashboards_are_promql(tmp_path: Path) -> None:
    check("check", "rules", RULES)
    exprs = [query.expr for board in BOARDS.values() for panel in board.panels for query in panel.queries]
    chosen = {"$__rate_interval": "2m", "$queue": "root.a|root.b", "$resource": "cpu"}
    for variable, value in chosen.items():
        exprs = [expr.replace(variable, value) for expr in exprs]
    assert not [expr for expr in exprs if "$" in expr]
    records = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(exprs)]
    path = tmp_path / "panels.yaml"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": records}]}))
    check("check", "rules", path)


def test_each_alert_fires_on_what_it_is_for_and_on_nothing_else(tmp_path: Path) -> None:
    rules = [
        rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]
    assert sorted(BROKEN) == sorted(rules)
    calm = Case(name="calm", series=CALM, at=395 * STEP, firing=())
    gone = {name: values if 'instance="a-' in name else "0x9 stale" for name, values in CALM.items()}
    cases = [calm, Case(name="controllers gone", series=gone, at=900, firing=["QueuerNobodyDecides"])]
    for alert, (series, at) in BROKEN.items():
        calm_so_far = {name: f"{values.split('x')[0]}x{at // STEP + 9}" for name, values in CALM.items()}
        cases.append(Case(name=alert, series={**calm_so_far, **series}, at=at, firing=[alert]))
    play(cases, tmp_path)

"""The board for who runs Queuer: does it decide, how fast, on fresh data, and do decisions reach the cluster."""

from __future__ import annotations

from tools.dashboards.grafana import Board, Panel, Query, Row, Unit


def _percentile(share: float, metric: str, by: str, legend: str) -> Query:
    labels = f"le, {by}" if by else "le"
    rate = f"rate({metric}_bucket[$__rate_interval])"
    return Query(expr=f"histogram_quantile({share}, sum by ({labels}) ({rate}))", legend=legend)


def _a_minute(metric: str, by: str, legend: str) -> Query:
    grouped = f"sum by ({by})" if by else "sum"
    return Query(expr=f"60 * {grouped} (rate({metric}[$__rate_interval]))", legend=legend)


_NOW = (
    Panel(
        title="Leaders", unit=Unit.AMOUNT, width=4, single=True,
        about="One controller decides. 0: nobody does, and new jobs wait. 2: they have different databases.",
        queries=(Query(expr="sum(queuer_leader)", legend="leaders"),), red=2,
    ),
    Panel(
        title="Since the last decision", unit=Unit.SECONDS, width=4, single=True,
        about="Or since there was nothing to decide. Above 120 s an alert fires.",
        queries=(Query(expr="time() - max(queuer_cycle_last_success_timestamp_seconds)", legend="age"),), red=120,
    ),
    Panel(
        title="Faults of the guard", unit=Unit.AMOUNT, width=4, single=True,
        about="Admission policies that are missing or changed. Nothing new starts meanwhile: queuer doctor names them.",
        queries=(Query(expr="max(queuer_guard_faults)", legend="policies"),), red=1,
    ),
    Panel(
        title="Set aside", unit=Unit.AMOUNT, width=4, single=True,
        about="Workloads that are left alone as their handling failed: queuer jobs --reason Quarantined.",
        queries=(Query(expr="max(queuer_workloads_in_quarantine)", legend="workloads"),), red=1,
    ),
    Panel(
        title="Drift", unit=Unit.AMOUNT, width=4, single=True,
        about="Accounts of queues in which ledger and pods differ. The auditor mends it within minutes.",
        queries=(Query(expr="count(queuer_quota_drift > 0) or vector(0)", legend="accounts"),), red=1,
    ),
    Panel(
        title="Versions", unit=Unit.AMOUNT, width=4, single=True,
        about="Processes of each version. Two versions outside an upgrade mean that one was not finished.",
        queries=(Query(expr="count by (version) (queuer_build_info)", legend="{{version}}"),),
    ),
)  # fmt: skip

_LEADER = (
    Panel(
        title="Leader", unit=Unit.AMOUNT,
        about="1 where the process leads.",
        queries=(Query(expr="queuer_leader", legend="{{instance}}"),),
    ),
    Panel(
        title="Terms of office that ended", unit=Unit.PER_MINUTE,
        about="By cause. database_unavailable: the database does not answer, and is tried every second.",
        queries=(_a_minute("queuer_leader_terms_ended_total", "cause", "{{cause}}"),),
    ),
    Panel(
        title="Tasks that failed", unit=Unit.PER_MINUTE,
        about="Tasks beside the decisions, each tried again after 5 s.",
        queries=(_a_minute("queuer_tasks_failed_total", "task", "{{task}}"),),
    ),
)  # fmt: skip

_CYCLES = (
    Panel(
        title="Phases of a decision, 95 %", unit=Unit.SECONDS, width=12,
        about="decide is the whole decision, with the phases of the solver inside it. commit writes it down.",
        queries=(_percentile(0.95, "queuer_cycle_duration_seconds", "phase", "{{phase}}"),),
    ),
    Panel(
        title="Decisions", unit=Unit.PER_MINUTE, width=12,
        about="By what CP-SAT did. GREEDY: nothing was contested. FAILED: decided again without it.",
        queries=(_a_minute("queuer_cycles_total", "status", "{{status}}"),),
    ),
    Panel(
        title="Work of decisions", unit=Unit.PER_MINUTE,
        about="Gangs that had a turn, searches for victims, gangs that CP-SAT was asked to fit in and did.",
        queries=(
            _a_minute("queuer_gangs_tried_total", "", "turns"),
            _a_minute("queuer_victim_searches_total", "", "victim searches"),
            _a_minute("queuer_repair_contested_total", "", "contested"),
            _a_minute("queuer_repair_started_total", "", "fitted in"),
        ),
    ),
    Panel(
        title="Failures of decisions", unit=Unit.PER_MINUTE,
        about="Answers of the solver process that were not used, gangs and plans that were refused.",
        queries=(
            _a_minute('queuer_solver_answers_total{outcome!="solved"}', "outcome", "{{outcome}}"),
            _a_minute("queuer_solver_restarts_total", "", "restarts"),
            _a_minute("queuer_gangs_refused_total", "", "gangs refused"),
            _a_minute("queuer_plans_refused_total", "", "plans refused"),
        ),
    ),
    Panel(
        title="Estimated starts that were right", unit=Unit.RATIO,
        about="Gangs that started inside the range that they had last been told.",
        queries=(
            Query(
                expr="sum(rate(queuer_estimate_hits_total[1h])) / sum(rate(queuer_estimates_total[1h]))",
                legend="inside the range",
            ),
        ),
    ),
)  # fmt: skip

_LANDING = (
    Panel(
        title="Oldest effect and release", unit=Unit.SECONDS,
        about="Age of a start or eviction that no job confirms, and of work that has ended and holds capacity.",
        queries=(
            Query(expr="max(queuer_oldest_open_effect_seconds)", legend="effect"),
            Query(expr="max(queuer_oldest_release_seconds)", legend="release"),
        ),
    ),
    Panel(
        title="From the start until all pods are bound", unit=Unit.SECONDS,
        about="Landings, half of them and 95 %.",
        queries=(
            _percentile(0.5, "queuer_workload_placing_seconds", "", "half"),
            _percentile(0.95, "queuer_workload_placing_seconds", "", "95 %"),
        ),
    ),
    Panel(
        title="Gangs that failed to land or lost pods", unit=Unit.PER_MINUTE,
        about="They start again elsewhere; after a second failure they rest.",
        queries=(
            _a_minute('queuer_evictions_total{reason=~"landing-timeout|lost-pods"}', "reason", "{{reason}}"),
        ),
    ),
)  # fmt: skip

_KUBERNETES = (
    Panel(
        title="Watches that do not answer", unit=Unit.SECONDS,
        about="Since when. 0: the watch is fresh.",
        queries=(Query(expr="max by (resource) (queuer_watch_stale_seconds)", legend="{{resource}}"),),
    ),
    Panel(
        title="Writes to the API server", unit=Unit.PER_MINUTE,
        about="By verb and resource, all controllers together.",
        queries=(_a_minute("queuer_k8s_api_writes_total", "verb, resource", "{{verb}} {{resource}}"),),
    ),
    Panel(
        title="What did not go through", unit=Unit.PER_MINUTE,
        about="Writes that failed or were tried again, objects that were not understood, jobs that nobody charges.",
        queries=(
            _a_minute("queuer_k8s_api_errors_total", "reason", "write: {{reason}}"),
            _a_minute("queuer_undecodable_total", "resource", "not understood: {{resource}}"),
            _a_minute("queuer_adoptions_refused_total", "", "not charged"),
            _a_minute("queuer_workloads_quarantined_total", "", "set aside"),
        ),
    ),
)  # fmt: skip

_DATABASE = (
    Panel(
        title="Size of tables", unit=Unit.BYTES, width=12,
        about="With indexes, counted every 10 min by the leader.",
        queries=(Query(expr="max by (table) (queuer_table_bytes)", legend="{{table}}"),),
    ),
    Panel(
        title="Capacity in use", unit=Unit.RATIO, width=12,
        about="Admitted work of all queues as a part of the live capacity.",
        queries=(
            Query(
                expr='max by (resource) (queuer_queue_used{queue="root", flavor=""}) / '
                '(max by (resource) (queuer_queue_limit{queue="root", flavor=""}) > 0)',
                legend="{{resource}}",
            ),
        ),
    ),
)  # fmt: skip

_API = (
    Panel(
        title="Requests", unit=Unit.PER_SECOND,
        about="By status. 5xx: the server or its database fails.",
        queries=(
            Query(expr="sum by (code) (rate(queuer_http_requests_total[$__rate_interval]))", legend="{{code}}"),
        ),
    ),
    Panel(
        title="Time of a request, 95 %", unit=Unit.SECONDS,
        about="The ten slowest routes. A live view lasts as long as it is open and is left out.",
        queries=(
            Query(
                expr="topk(10, histogram_quantile(0.95, sum by (le, route) "
                '(rate(queuer_http_request_duration_seconds_bucket{route!~".*/stream"}[$__rate_interval]))))',
                legend="{{route}}",
            ),
        ),
    ),
    Panel(
        title="Live views", unit=Unit.AMOUNT,
        about="Pages that are open, and how many seconds the oldest event took to reach them.",
        queries=(
            Query(expr="sum(queuer_stream_clients)", legend="open"),
            Query(expr="max(queuer_stream_lag_seconds)", legend="lag (s)"),
        ),
    ),
)  # fmt: skip

ADMINS = Board(
    uid="queuer-admins",
    title="Queuer: operation",
    about="Whether Queuer decides, how fast, and whether its decisions reach the cluster.",
    rows=(
        Row(title="Now", panels=_NOW),
        Row(title="Leadership", panels=_LEADER),
        Row(title="Decisions", panels=_CYCLES),
        Row(title="Landing", panels=_LANDING),
        Row(title="Kubernetes", panels=_KUBERNETES),
        Row(title="Database and capacity", panels=_DATABASE),
        Row(title="API", panels=_API),
    ),
)

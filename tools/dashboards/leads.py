"""The board for who leads a team: what its queues have, lend, lack and wait for."""

from __future__ import annotations

from tools.dashboards.grafana import Board, Choice, Panel, Query, Row, Unit

_ACCOUNT = '{queue=~"$queue", resource="$resource", flavor=""}'
_BELOW = 'queue=~"($queue)([.].*)?"'
"""Jobs are in leaves: those of an inner queue are all below it."""


def _amount(name: str, legend: str = "{{queue}}") -> Query:
    return Query(expr=f"max by (queue) (queuer_queue_{name}{_ACCOUNT})", legend=legend)


def _amount_or_zero(name: str) -> Query:
    """An amount that has no series where it is 0."""
    expr = f"max by (queue) (queuer_queue_{name}{_ACCOUNT} or 0 * queuer_queue_used{_ACCOUNT})"
    return Query(expr=expr, legend="{{queue}}")


def _wait(share: float, legend: str) -> Query:
    rate = f"rate(queuer_workload_wait_seconds_bucket{{{_BELOW}}}[1h])"
    return Query(expr=f"histogram_quantile({share}, sum by (le, queue) ({rate}))", legend=legend)


_QUOTA = (
    Panel(
        title="Used, guaranteed and limit", unit=Unit.AMOUNT, width=12,
        about="Admitted work of the queue and all below it, in cores, bytes or devices.",
        queries=(
            _amount("used", "{{queue}} used"), _amount("guaranteed", "{{queue}} guaranteed"),
            _amount("limit", "{{queue}} limit"),
        ),
    ),
    Panel(
        title="Starved", unit=Unit.AMOUNT, width=12,
        about="What others borrow of the room that the next job lacks inside its guarantee. It should not last.",
        queries=(_amount_or_zero("starved"),),
    ),
    Panel(
        title="Borrowed", unit=Unit.AMOUNT,
        about="Use above the guarantee. The owners may take it back at any time.",
        queries=(_amount_or_zero("borrowed"),),
    ),
    Panel(
        title="Lent", unit=Unit.AMOUNT,
        about="The part of the guarantee that others use now. The queue takes it back when its own jobs need it.",
        queries=(_amount_or_zero("lent"),),
    ),
    Panel(
        title="Used by flavor", unit=Unit.AMOUNT,
        about="Use of the classes of nodes that the quota of the queue names.",
        queries=(
            Query(
                expr='max by (queue, flavor) (queuer_queue_used{queue=~"$queue", resource="$resource", flavor!=""})',
                legend="{{queue}} {{flavor}}",
            ),
        ),
    ),
)  # fmt: skip

_WAITING = (
    Panel(
        title="Pending amounts", unit=Unit.AMOUNT,
        about="What waiting jobs ask for. Jobs on hold, and jobs that can never start, are not counted.",
        queries=(_amount_or_zero("pending"),),
    ),
    Panel(
        title="Waiting jobs by reason", unit=Unit.AMOUNT,
        about="Why jobs wait. `queuer why JOB` has the numbers of one job.",
        queries=(Query(expr=f"sum by (reason) (queuer_workloads_pending{{{_BELOW}}})", legend="{{reason}}"),),
    ),
    Panel(
        title="Jobs that never start as they are", unit=Unit.AMOUNT,
        about="Their owners have to change them: queuer jobs -q QUEUE lists them with the reason.",
        queries=(
            Query(
                expr=f'sum by (queue, reason) (queuer_workloads_pending{{{_BELOW}, verdict="CHANGE"}})',
                legend="{{queue}} {{reason}}",
            ),
        ),
    ),
    Panel(
        title="Wait before the first start", unit=Unit.SECONDS, width=12,
        about="Of the jobs that started within the last hour, from submission on.",
        queries=(_wait(0.5, "{{queue}} half"), _wait(0.95, "{{queue}} 95 %")),
    ),
    Panel(
        title="Starts and evictions", unit=Unit.PER_MINUTE, width=12,
        about="Gangs a minute. The reason of an eviction names its rule or cause.",
        queries=(
            Query(
                expr=f"60 * sum by (queue) (rate(queuer_admissions_total{{{_BELOW}}}[$__rate_interval]))",
                legend="{{queue}} started",
            ),
            Query(
                expr=f"60 * sum by (queue, reason) (rate(queuer_evictions_total{{{_BELOW}}}[$__rate_interval]))",
                legend="{{queue}} evicted: {{reason}}",
            ),
        ),
    ),
    Panel(
        title="Jobs by state", unit=Unit.AMOUNT, width=24,
        about="Placing means that a gang has started and not all its pods run yet.",
        queries=(Query(expr=f"sum by (queue, state) (queuer_workloads{{{_BELOW}}})", legend="{{queue}} {{state}}"),),
    ),
)  # fmt: skip

LEADS = Board(
    uid="queuer-leads",
    title="Queuer: queues",
    about="What queues use, borrow, lend and wait for.",
    choices=(
        Choice(name="queue", metric="queuer_queue_used", label="queue", several=True),
        Choice(name="resource", metric="queuer_queue_used", label="resource"),
    ),
    rows=(Row(title="Quota", panels=_QUOTA), Row(title="Waiting and starting", panels=_WAITING)),
)

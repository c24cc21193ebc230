"""Metrics of the API server itself, in a registry of its own so that two apps in one process do not mix."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import Scope

from queuer import __version__

UNMATCHED = "unmatched"
METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})


class ApiMetrics:
    """Counters of one app; `registry` is what `/metrics` prints."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "queuer_http_requests_total",
            "Requests answered.",
            ["route", "method", "code"],
            registry=self.registry,
        )
        self._duration = Histogram(
            "queuer_http_request_duration_seconds",
            "Time from request to last byte.",
            ["route", "method"],
            registry=self.registry,
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
        )
        self.streams = Gauge("queuer_stream_clients", "Live views that are open.", registry=self.registry)
        self.stream_lag = Gauge(
            "queuer_stream_lag_seconds",
            "Age of the oldest event when it was last told to live views.",
            registry=self.registry,
        )
        build = Gauge(
            "queuer_build_info", "Always 1; the version is in the label.", ["version"], registry=self.registry
        )
        build.labels(version=__version__).set(1)

    def observe(self, scope: Scope, status: int, seconds: float) -> None:
        """Record a finished request. Labels come from closed sets, never from what the client wrote."""
        route = getattr(scope.get("route"), "path", None) or UNMATCHED
        method = scope["method"] if scope["method"] in METHODS else "OTHER"
        self._requests.labels(route=route, method=method, code=str(status)).inc()
        self._duration.labels(route=route, method=method).observe(seconds)

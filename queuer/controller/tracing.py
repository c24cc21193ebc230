"""Spans of decisions, commits, PATCHes and requests, sent over OTLP/HTTP where an endpoint is given.

Without an endpoint the SDK is not imported, and each span is the API's empty one. With one a thread of its own sends
what was gathered. An endpoint that does not answer costs spans, never a decision: the buffer is bounded, and what does
not fit is dropped. A missing SDK costs the spans, never the server: an operator may set the endpoint in every pod.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog
from opentelemetry import trace

from queuer import __version__
from queuer.domain.variables import Variable

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

TRACER = trace.get_tracer("queuer")
log = structlog.get_logger(part="tracing")
ENDPOINT = Variable(
    name="OTEL_EXPORTER_OTLP_ENDPOINT", form="http address",
    meaning="Where spans are sent, over OTLP/HTTP. Not set: nowhere. Other OTEL_* variables of the SDK hold too.",
)  # fmt: skip
LAST_SPANS = 2.0
"""Seconds that the end of the process waits for the last spans to be sent."""


@contextmanager
def exporting(part: str, environ: Mapping[str, str] = os.environ) -> Iterator[None]:
    """Send spans while the block runs; none where the SDK is missing. `part`: what the process is."""
    provider = _provider(part, environ) if ENDPOINT.text(environ) else None
    if provider is None:
        yield
        return
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        last = threading.Thread(target=provider.shutdown, name="last spans", daemon=True)
        last.start()
        last.join(LAST_SPANS)


def _provider(part: str, environ: Mapping[str, str]) -> TracerProvider | None:
    """The sender of the spans; None where the SDK is missing."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        log.warning(
            f"no traces are sent: {ENDPOINT.name} is set, and the OpenTelemetry SDK is not installed",
            hint=f"pip install 'queuer[otel]', or unset {ENDPOINT.name}", said=str(error),
        )  # fmt: skip
        return None
    name = environ.get("OTEL_SERVICE_NAME", f"queuer-{part}")
    resource = Resource.create({"service.name": name, "service.version": __version__})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider

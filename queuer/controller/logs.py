"""Logs on standard error, as JSON lines or as text, with `cycle`, `workload` and `queue` as fields of their own.

A line that is said inside a span has the ids of its trace. Lines of libraries have the same form.
"""

from __future__ import annotations

import logging
import os
import sys
from enum import StrEnum
from typing import Any, cast

import structlog
from opentelemetry import trace
from structlog.tracebacks import ExceptionDictTransformer
from structlog.types import EventDict, Processor

from queuer.domain.variables import Variable, read


class LogFormat(StrEnum):
    """The form of a line."""

    JSON = "json"
    TEXT = "text"


_LEVELS = ("debug", "info", "warning", "error")


def _level(text: str) -> int:
    """The number of a level. Raises ValueError."""
    if text.lower() not in _LEVELS:
        raise ValueError(f"{text!r} is no level")
    return logging.getLevelNamesMapping()[text.upper()]


LOG_LEVEL = Variable(
    name="QUEUER_LOG_LEVEL", default="info", form="debug, info, warning or error", parse=_level,
    meaning="How much the servers log.",
)  # fmt: skip
LOG_FORMAT = Variable(
    name="QUEUER_LOG_FORMAT", default="json", form="json or text", parse=LogFormat,
    meaning="How the servers log: a JSON object a line, or text for people.",
)  # fmt: skip


def configure() -> None:
    """Set up logging for a server process, as `LOG_LEVEL` and `LOG_FORMAT` say. Raises InvalidInput naming both."""
    given = read(os.environ, {"level": LOG_LEVEL, "form": LOG_FORMAT})
    number = given["level"]
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso"),
        _with_trace,
    ]
    last = _rendering(given["form"])
    structlog.configure(
        processors=[*common, *last],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    own = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=[_of_library, *common], processors=[own, *last])
    )
    logging.basicConfig(handlers=[handler], level=max(number, logging.WARNING))


def _rendering(form: LogFormat) -> list[Processor]:
    if form is LogFormat.TEXT:
        plain = structlog.dev.plain_traceback
        return [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    # Without the values of variables: they hold passwords of databases, and are longer than all else.
    transformer = ExceptionDictTransformer(show_locals=False)
    return [structlog.processors.ExceptionRenderer(transformer), structlog.processors.JSONRenderer()]


def _of_library(_: Any, __: str, event: EventDict) -> EventDict:
    event["part"] = event["_record"].name
    return event


def _with_trace(_: Any, __: str, event: EventDict) -> EventDict:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
        event["span_id"] = trace.format_span_id(context.span_id)
    return event


def logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """A logger whose lines carry the part that speaks."""
    log: Any = structlog.get_logger(part=name)
    return cast("structlog.typing.FilteringBoundLogger", log)

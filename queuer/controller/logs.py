"""Logs as JSON lines on standard error, with `cycle`, `workload` and `queue` as fields of their own."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any, cast

import structlog
from structlog.tracebacks import ExceptionDictTransformer

from queuer.domain.variables import Variable

LOG_LEVEL = Variable(
    name="QUEUER_LOG_LEVEL", default="info", form="debug, info, warning or error",
    meaning="How much the servers log.",
)  # fmt: skip


def configure(level: str | None = None) -> None:
    """Set up logging for a server process; the level is `LOG_LEVEL` where none is given."""
    wanted = (level or LOG_LEVEL.text(os.environ)).upper()
    number = logging.getLevelNamesMapping().get(wanted, logging.INFO)
    logging.basicConfig(stream=sys.stderr, level=max(number, logging.WARNING), format="%(name)s: %(message)s")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            # Without the values of variables: they hold passwords of databases, and are longer than all else.
            structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


def logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """A logger whose lines carry the part that speaks."""
    log: Any = structlog.get_logger(part=name)
    return cast("structlog.typing.FilteringBoundLogger", log)

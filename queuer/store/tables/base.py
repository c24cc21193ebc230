"""The metadata that every table belongs to, and the kinds of columns that several tables share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import CheckConstraint, Column, DateTime, MetaData, SmallInteger, text
from sqlalchemy.dialects.postgresql import JSONB

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def one_of(column: str, words: Iterable[str]) -> CheckConstraint:
    """The constraint that a text column holds one of these words."""
    listed = ", ".join(f"'{word}'" for word in words)
    return CheckConstraint(f"{column} IN ({listed})", name=column)


def singleton() -> tuple[Column[Any], CheckConstraint]:
    """The key of a table that holds exactly one row."""
    return (
        Column("id", SmallInteger, primary_key=True, autoincrement=False, server_default=text("1")),
        CheckConstraint("id = 1", name="singleton"),
    )


def moment(name: str, *, nullable: bool = False) -> Column[Any]:
    """A point in time."""
    return Column(name, DateTime(timezone=True), nullable=nullable)


def stamped(name: str) -> Column[Any]:
    """The time at which the row was written."""
    return Column(name, DateTime(timezone=True), nullable=False, server_default=text("now()"))


def document(name: str, empty: str | None = "{}") -> Column[Any]:
    """A jsonb column; `empty=None` makes it nullable (SQL NULL, never JSON null)."""
    default = None if empty is None else text(f"'{empty}'::jsonb")
    return Column(name, JSONB(none_as_null=True), nullable=empty is None, server_default=default)

"""What a caller is told of itself."""

from __future__ import annotations

from pydantic import Field

from queuer.api.models import Model


class Me(Model):
    """Who asks, and what it may."""

    name: str
    groups: list[str]
    reads_everything: bool = Field(description="Jobs of all namespaces are shown in full.")
    namespaces: list[str] = Field(
        description="Namespaces whose jobs are shown in full, of those that a queue names or that had a job."
    )
    updates: list[str] = Field(description="Those whose jobs the caller may hold, release and prioritise.")
    administers: list[str] = Field(description="Queues that the caller may change, each with all below it.")

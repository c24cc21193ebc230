"""The judgement of stories in which controllers die: what they take for reached, and for a figure."""

from __future__ import annotations

from math import isnan
from random import Random
from typing import Any

import pytest

from queuer.controller.failpoints import Point
from tests.chaos.story import Story
from tests.chaos.ways import owner
from tests.e2e.controller import Controller


class Gone:
    """A controller that is gone, and its log."""

    running = frozen = False

    def __init__(self, log: str) -> None:
        self.log = log

    def log_has(self, text: str) -> bool:
        return text in self.log

    def log_tail(self, _: int) -> str:
        return self.log


def test_a_controller_that_ends_by_itself_has_not_reached_its_point() -> None:
    unused: Any = None
    story = Story(world=unused, seed=0, random=Random(0))
    died: Any = Gone("failpoint committed: kill")
    story.reach(died, Point.COMMITTED, [])
    failed: Any = Gone("Traceback")
    with pytest.raises(AssertionError, match="it ended before committed; its log ends:\nTraceback"):
        story.reach(failed, Point.COMMITTED, [])


def test_a_metric_that_nobody_tells_is_not_zero() -> None:
    """A check that waits for 0 would take a controller that is gone for one that is well."""
    unused: Any = None
    gone = Controller(cluster=unused, database_url="")
    assert isnan(gone.metric("queuer_quota_drift"))


def test_an_owner_comes_once_those_before_it_have_ended_also_while_there_is_no_database() -> None:
    """A storm asks for one in the middle of the outage."""

    class Place:
        def __init__(self) -> None:
            self.there: list[Any] = []

        def jobs(self) -> list[Any]:
            return self.there

        def job(self, label: str, **_: Any) -> None:
            self.there.append({"metadata": {"name": f"{label}-{len(self.there)}"}, "status": {}})

    place: Any = Place()
    for _ in range(2):
        owner(place, Random(0))
    assert len(place.there) == 1
    place.there[0]["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    owner(place, Random(0))
    assert len(place.there) == 2

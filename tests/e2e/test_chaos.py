"""Killed at every failpoint beside a fault, nothing is lost, doubled or over-admitted, and no running gang is harmed.

Two stories share the points; `make chaos` plays them all with as many seeds as are asked for. The same for storms.
"""

from __future__ import annotations

from typing import Any

import pytest

from queuer.controller.failpoints import Point
from queuer.local.cluster import Cluster
from tests.chaos.checker import Gangs, picture, settle, settled, sound
from tests.chaos.faults import Fault
from tests.chaos.storms import SHORT, blow
from tests.chaos.story import play
from tests.chaos.ways import force
from tests.chaos.world import EXPRESS, world
from tests.e2e.support import wait_until
from tests.waiting import PATIENCE

SHARED = 2
"""Stories among which the points are dealt."""
QUICK = (
    Fault.DATABASE, Fault.API_PAUSED, Fault.STREAMS, Fault.POD, Fault.NODE,
    Fault.READ_ONLY, Fault.CLOCK, Fault.FORBIDDEN,
)  # fmt: skip
"""One for each point of a story. The others wait for a lease, for a namespace to go, or for a copy of the database."""


@pytest.mark.timeout(900)  # on a slow machine the checker tells what is not settled before
@pytest.mark.parametrize("seed", range(SHARED))
def test_a_story_of_crashes_ends_as_if_nobody_had_died(cluster: Cluster, seed: int) -> None:
    points = tuple(Point)[seed::SHARED]
    told = [str(told) for told in play(cluster, seed=seed, points=points, faults=QUICK) if told.wrong]
    assert told == []


@pytest.mark.timeout(600)
def test_after_a_storm_all_is_remembered_as_it_is(cluster: Cluster, record_property: Any) -> None:
    """Events lost and doubled, streams cut, 410, no database, no rights: all that was missed is found."""
    told = blow(cluster, seed=1, scale=SHORT, drift=False)
    record_property("figures", str(told))
    assert told.wrong == ()
    wanted = ("dropped", "doubled", "cut", "gone", "401", "403")
    assert [what for what in wanted if not told.counts[what]] == [], str(told)


SABOTAGE = {
    "UPDATE ledger SET closed = now() WHERE closed IS NULL": "is charged",
    "UPDATE admission SET ended_at = now() WHERE ended_at IS NULL": "in force are []",
    "UPDATE workload SET state = 'Queued', admission_id = NULL": "(Queued)",
    "UPDATE workload SET deleted_at = now()": "taken for deleted",
    "DELETE FROM workload": "is lost",
}
"""What is done to the database behind a quiet gang, and what the checker says of it."""


def test_the_checker_sees_what_is_wrong(cluster: Cluster) -> None:
    with world(cluster) as place:
        process = place.controller().start().wait_leading()
        try:
            gang = place.job("gang", queue=EXPRESS, pods=2, gpus=8)
            wait_until(lambda: place.state(gang) == "Running", describe="the gang runs")
            beside = force(place, queue=EXPRESS)
            wait_until(lambda: place.state(beside) == "Running", describe="so does what is above the limit")
            assert settle(place, timeout=PATIENCE) == []
        finally:
            process.kill()
        gangs, quiet = Gangs(), picture(place)
        assert settled(place) == sound(place, quiet, gangs) == []
        place.database.execute("UPDATE ledger SET amounts = amounts || '{\"nvidia.com/gpu\": 17}'")
        [over] = sound(place, quiet, gangs)
        assert f"{EXPRESS} held 17 of 16 GPUs" in over
        for statement, said in SABOTAGE.items():
            place.database.execute(statement)
            assert said in "; ".join(settled(place)), statement
        gone = quiet.pods[gang["metadata"]["uid"]][0]
        place.delete(gone, grace=0)
        assert any("gang-1 ran and lost 1 of 2 pods" in said for said in sound(place, picture(place), gangs))

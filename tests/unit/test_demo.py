"""The demo's sizes: whatever the fleet, GPUs are enough and no rack is, so that the gang must wait for a rack."""

from __future__ import annotations

import io
from collections import Counter
from contextlib import closing
from typing import Any
from unittest.mock import Mock

import pytest

from queuer.domain.document import parse
from queuer.domain.errors import Unavailable
from queuer.domain.queue import QueueTree
from queuer.local import manifests
from queuer.local.manifests import GPU, Sizes
from queuer.local.stage import DemoFailed, Stage
from tests.cli import serving

FLEETS = [(4, 6, 1), (4, 8, 8), (20, 8, 8), (5, 16, 4), (40, 32, 8)]


def gpus(job: dict[str, Any]) -> int:
    """GPUs that a Job asks for."""
    spec = job["spec"]
    each = spec["template"]["spec"]["containers"][0]["resources"]["requests"][GPU]
    return int(spec["parallelism"] * each)


@pytest.mark.parametrize(("racks", "nodes", "each"), FLEETS)
def test_the_jobs_leave_enough_gpus_and_no_whole_rack(racks: int, nodes: int, each: int) -> None:
    sizes = Sizes.of(Counter({f"r{n}": nodes for n in range(racks)}), each)
    small, large = manifests.partial_jobs(sizes), manifests.full_jobs(sizes)
    used = sum(map(gpus, [*small, *large]))
    assert sizes.total - used == sizes.free
    assert sizes.free >= gpus(manifests.gang(sizes))
    assert len(small) + len(large) == racks  # each in a rack of its own: two small ones do not fit into one
    assert 2 * sizes.partial > nodes
    assert used > sizes.total // 2  # team-b borrows
    assert gpus(manifests.gang(sizes)) <= sizes.total // 2  # team-a only asks for its own
    assert 4 * each <= sizes.free - (nodes - sizes.partial) * each  # the PyTorchJob fits beside the gang


@pytest.mark.parametrize(("racks", "nodes", "each"), FLEETS)
def test_the_tree_is_a_valid_one(racks: int, nodes: int, each: int) -> None:
    tree = manifests.tree(Sizes(racks=racks, nodes=nodes, gpus=each), min_runtime=manifests.PROTECTED)
    found = QueueTree.of(parse(tree).queues)
    assert found.leaves == (manifests.TEAM_A, manifests.TEAM_B)
    assert found.policy(manifests.TEAM_B).min_runtime == 900


@pytest.mark.parametrize(
    ("by_rack", "each"),
    [({}, 8), ({"r1": 8, "r2": 8, "r3": 8}, 8), (dict.fromkeys("abcd", 5), 8), (dict.fromkeys("abcd", 8), 0)],
)
def test_a_fleet_that_is_too_small_is_told_what_is_needed(by_rack: dict[str, int], each: int) -> None:
    with pytest.raises(Unavailable, match="4 racks of 6 nodes"):
        Sizes.of(by_rack, each)


def test_it_does_not_play_around_work_that_is_none_of_its_own() -> None:
    """README's `train` never ends: the demo waited for its room, and then failed. So do GPUs of pods in no queue."""

    def job(uid: str, **more: Any) -> dict[str, Any]:
        named = {"kind": "Job", "namespace": "team-a", "name": f"job-{uid}"}
        return {"uid": uid, "state": "Running", "deleted": None, **named, **more}

    gone = job("gone", deleted="2026-11-29T14:00:00Z", state="Queued")
    items = [job("ours"), job("train", name="train"), job("done", state="Succeeded"), gone]
    pods = [
        {"kind": "Pod", "namespace": "ml", "name": "debug", "amounts": {"cpu": "1", "pods": "1"}},
        {"kind": "Deployment", "namespace": "ml", "name": "infer", "amounts": {GPU: "8", "pods": "1"}},
        {"kind": None, "namespace": None, "name": None, "amounts": {GPU: "1", "pods": "1"}},
    ]
    kubectl = Mock(
        run=Mock(return_value='{"items": [{"metadata": {"namespace": "team-a", "name": "job-ours"}}]}')
    )
    with serving(lambda path: {"items": items, "outside": pods}) as port:
        cluster = Mock(
            queuer_url=f"http://127.0.0.1:{port}", token=lambda user: "t", kubectl=lambda user: kubectl
        )
        with (
            closing(Stage(cluster, out=io.StringIO())) as stage,
            pytest.raises(DemoFailed, match="work of somebody else") as found,
        ):
            stage.clean()
    assert found.value.hint == "kubectl delete job train -n team-a; kubectl delete deployment infer -n ml"
    assert [call.args[0] for call in kubectl.run.call_args_list] == ["get"], "it removes nothing"

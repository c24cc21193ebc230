"""Where one gang goes: narrowest domain, fullest node, hosts of its own for pod sets that could rob each other."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuer.domain.workload import Workload
from queuer.solver import placement
from queuer.solver.arrays import Arrays
from queuer.solver.filling import fill
from queuer.solver.placement import Spreads, parts_of, place
from queuer.solver.slots import Room
from tests.solver.make import GPU, decided, gang, hosts, node, pod_set, queue, snapshot


def placed(
    workload: Workload, free: Mapping[str, int], *, racks: str = ""
) -> dict[str, dict[str, int]] | None:
    """Pods by set and node, on nodes with so many GPUs free. `racks`: the rack of each node by one letter."""
    labels = [{"block": "b", "rack": letter} for letter in racks] or [{}] * len(free)
    nodes = [node(name, labels=label) for name, label in zip(free, labels, strict=True)]
    foreign = {name: {GPU: 8 - there} for name, there in free.items()}
    snap = snapshot(nodes, [queue("root"), queue("root.a")], pending=[workload], foreign=foreign)
    arrays = Arrays.of(snap)
    room = Room(arrays.nodes, arrays.nodes.bound_free)
    variant = arrays.waiting.gangs[workload.uid].shape.variants[0]
    found: Spreads | None = place(room, workload, parts_of(arrays.nodes, workload, variant))
    if found is None:
        return None
    return {
        name: {arrays.nodes.names[n]: count for n, count in spread.items()} for name, spread in found.items()
    }


def test_the_fullest_node_that_fits_is_taken() -> None:
    """Whole nodes are left for whole-node pods."""
    assert placed(gang("g", pod_set(1, 2)), {"a": 8, "b": 3, "c": 2}) == {"main": {"c": 2 // 2}}


def test_one_host_before_several() -> None:
    """A gang that fits one node lands there whatever comes beside it."""
    assert placed(gang("g", pod_set(3, 2)), {"a": 2, "b": 2, "c": 7}) == {"main": {"c": 3}}


def test_a_pod_that_uses_a_node_evenly_goes_there() -> None:
    """Four slots of one GPU on two nodes count, four GPUs in pieces of three do not make a slot of four."""
    assert placed(gang("g", pod_set(1, 4)), {"a": 3, "b": 3, "c": 3}) is None


@pytest.mark.parametrize(("level", "nodes"), [("rack", {"c", "d"}), ("host", set())])
def test_required_means_one_domain_and_the_narrowest_that_fits(level: str, nodes: set[str]) -> None:
    """Rack y has room for both pods; no host has; a level that nobody has fits nowhere."""
    found = placed(gang("g", pod_set(2, 8), required=level), {"a": 8, "b": 4, "c": 8, "d": 8}, racks="xxyy")
    assert (set(found["main"]) if found else set()) == nodes
    assert placed(gang("g", pod_set(1, 1), required="row"), {"a": 8}) is None


@pytest.mark.parametrize(
    ("free", "racks", "taken"),
    [
        ((8, 8, 7, 8, 8, 8), "xxyyzz", "xz"),  # whole racks, though `c` is the fullest node
        ((8, 8, 8, 8, 4, 4), "xxxyzz", "xy"),  # two racks of one pod less would need a third
        ((8, 8, 8, 8, 8, 4), "xxxxyy", "x"),
    ],
)
def test_the_fewest_narrower_domains_the_best_filled(free: tuple[int, ...], racks: str, taken: str) -> None:
    """Four pods of a whole node in a block: as few racks as can be, and no larger one than is needed."""
    found = placed(
        gang("g", pod_set(4, 8), required="block"), dict(zip("abcdef", free, strict=True)), racks=racks
    )
    assert found is not None
    assert {racks["abcdef".index(name)] for name in found["main"]} == set(taken)


def test_nodes_in_no_rack_are_not_one_rack() -> None:
    """Racks x and y of two nodes, and four nodes that name none: the gang fills one rack before it takes a stray."""
    racks = ("x", "x", "y", "y", *[None] * 4)
    nodes = [
        node(f"n{number}", labels={"block": "b"} | ({"rack": rack} if rack else {}))
        for number, rack in enumerate(racks)
    ]
    waiting = gang("g", pod_set(3, 8), required="block")
    plan = decided(snapshot(nodes, [queue("root"), queue("root.a")], pending=[waiting]))
    assert len({"n0", "n1"} & hosts(plan, "g").keys()) == 2


def test_the_pod_sets_of_a_gang_lie_together() -> None:
    """The leader goes to the rack of the workers, though a node of another fits it better."""
    sets = (pod_set(2, 8, name="worker"), pod_set(1, 1, name="leader"))
    found = placed(gang("g", *sets, required="block"), {"a": 1, "b": 8, "c": 8, "d": 8}, racks="xyyy")
    assert found is not None
    assert set(found["leader"]) == {"d"}


def test_a_gang_without_a_level_takes_the_fullest_nodes() -> None:
    """Wherever they are."""
    found = placed(gang("g", pod_set(7, 2)), {"a": 4, "b": 8, "c": 8, "d": 4}, racks="xyyz")
    assert found is not None
    assert set(found["main"]) == {"a", "d", "b"}


@given(st.lists(st.integers(1, 9), min_size=2, max_size=7), st.data())
def test_no_fewer_domains_would_hold_the_pods(sums: list[int], data: st.DataObject) -> None:
    """By trying all; of as few, those that are taken leave a smallest domain that the pods need."""
    count = data.draw(st.integers(max(sums) + 1, sum(sums))) if sum(sums) > max(sums) else max(sums)
    spread = fill(np.array(sums), np.zeros(len(sums)), count, [np.arange(len(sums))])
    assert spread is not None
    assert sum(spread.values()) == count
    few = next(n for n in range(1, 8) if any(sum(some) >= count for some in combinations(sums, n)))
    assert len(spread) == few


def test_preferred_goes_outwards() -> None:
    """No rack holds it, the block does."""
    found = placed(gang("g", pod_set(3, 8), preferred="rack"), {"a": 8, "b": 8, "c": 8, "d": 0}, racks="xxyy")
    assert found == {"main": {"a": 1, "b": 1, "c": 1}}


def test_pods_that_keep_off_each_other_lie_on_hosts_of_their_own() -> None:
    """Required anti-affinity per host counts one slot a node."""
    workload = gang("g", pod_set(3, 1, exclusive_host=True))
    assert placed(workload, {"a": 8, "b": 8}) is None
    assert placed(workload, {"a": 8, "b": 8, "c": 1}) == {"main": {"c": 1, "a": 1, "b": 1}}


def test_pod_sets_that_could_rob_each_other_get_hosts_of_their_own() -> None:
    """Two of three workers may come to the host of the leader and leave it 2 of the 4 GPUs that it needs."""
    workload = gang("g", pod_set(1, 4, name="leader"), pod_set(3, 3, name="worker"))
    found = placed(workload, {"a": 8, "b": 8, "c": 8})
    assert found is not None
    assert set(found["leader"]).isdisjoint(found["worker"])
    assert placed(workload, {"a": 8, "b": 8}) is None


def test_a_leader_that_fits_beside_any_worker_may_share_its_host() -> None:
    """Two workers of 3 leave 2 of 8 on each node: the leader finds its GPU wherever they land."""
    workload = gang("g", pod_set(1, 1, name="leader"), pod_set(4, 3, name="worker"))
    found = placed(workload, {"a": 8, "b": 8})
    assert found is not None
    assert sum(found["worker"].values()) == 4


def test_domains_without_room_for_all_pod_sets_together_are_not_looked_into(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each set alone fits every host, so a search for the narrowest domain would try them all."""
    tried = list[object]()

    def pack(search: Any, parts: Any, inside: Any) -> Any:
        tried.append(inside)
        return packed(search, parts, inside)

    packed = placement._Search._pack
    monkeypatch.setattr(placement._Search, "_pack", pack)
    sets = (pod_set(1, 8, name="leader"), pod_set(1, 8, name="worker"))
    found = placed(gang("g", *sets, required="rack"), dict.fromkeys("abcdefgh", 8), racks="xxxxyyyy")
    assert found == {"leader": {"a": 1}, "worker": {"b": 1}}
    assert len(tried) == 1

"""Stored cycles: what is read back is what was written, and the decision made again gives the same plan."""

from __future__ import annotations

import json
import zlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from queuer.cli.sim import app
from queuer.domain.errors import InvalidInput
from queuer.domain.reasons import Deferral
from queuer.domain.workload import PodSet
from queuer.solver.child import Outcome
from queuer.solver.decide import decide
from queuer.solver.problem import Admitted, Budget, SolveStatus, Unbound
from queuer.solver.stored import StoredCycle, again, decode, difference, encode
from tests.solver.cases_crowded import crowded
from tests.solver.cycles import live
from tests.solver.make import GPU, gang, pod_set
from tests.solver.worlds import NOW, world

GREEDY = Budget(deterministic=0.0)
EXACT = Budget(deterministic=0.2)


def stored(seed: int, budget: Budget = GREEDY) -> StoredCycle:
    """The decision on a random world."""
    snapshot = world(seed)
    plan = decide(snapshot, now=NOW, seed=seed, budget=budget)
    return StoredCycle(snapshot=snapshot, now=NOW, seed=seed, budget=budget, plan=plan)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_what_is_read_back_decides_the_same(seed: int) -> None:
    cycle = stored(seed)
    read = decode(encode(cycle))
    assert read == cycle
    assert read.plan is not None
    assert difference(read.plan, again(read)) == ""


@pytest.mark.parametrize("seed", range(3))
def test_with_the_exact_solver_too(seed: int) -> None:
    read = decode(encode(stored(seed, EXACT)))
    assert read.plan is not None
    assert difference(read.plan, again(read)) == ""


def test_bonds_reservations_and_pods_that_land_are_kept() -> None:
    cycles = [(s, p, at) for seed in range(3, 9) for s, p, at in live(seed, cycles=6, budget=GREEDY)]
    assert any(s.bonds for s, _, _ in cycles)
    assert any(s.reservations for s, _, _ in cycles)
    assert any(a.unbound for s, _, _ in cycles for a in s.admitted)
    assert any(a.gone_by for s, _, _ in cycles for a in s.admitted)
    for snapshot, plan, at in cycles:
        cycle = StoredCycle(snapshot=snapshot, now=at, seed=0, budget=GREEDY, plan=plan)
        read = decode(encode(cycle))
        assert read == cycle
        assert difference(plan, again(read)) == ""


MALFORMED = (
    (),
    (pod_set(0, 1),),
    (pod_set(2, 1, min_count=3),),
    (pod_set(1, 1), pod_set(2, 1)),
    (pod_set(2**10, 2**55),),
)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(MALFORMED), st.booleans())
def test_malformed_work_that_was_started_beside_the_queue_is_read_back(
    seed: int, sets: tuple[PodSet, ...], landed: bool
) -> None:
    """Nobody would have admitted it, but it runs: it holds what its pods take. None are known of a job without sets."""
    snapshot = world(seed)
    host = snapshot.nodes[0].node.name
    counts = {one.name: 1 for one in sets}
    loose = tuple(Unbound(pod_set=name, count=1, hosts=(host,)) for name in counts)
    beside = Admitted(
        workload=replace(gang("beside", *sets), queue=snapshot.tree.leaves[0]),
        counts=counts,
        flavors=dict.fromkeys(counts, "default"),
        since=NOW,
        bound={host: {GPU: 1, "pods": 1}} if landed else {},
        unbound=() if landed else loose,
    )
    snapshot = replace(snapshot, admitted=(*snapshot.admitted, beside))
    plan = decide(snapshot, now=NOW, seed=seed, budget=GREEDY)
    read = decode(encode(StoredCycle(snapshot=snapshot, now=NOW, seed=seed, budget=GREEDY, plan=plan)))
    assert read.snapshot == snapshot
    assert difference(plan, again(read)) == ""


@pytest.mark.parametrize("why", [Outcome.LATE, Outcome.RESTING])
def test_greedy_that_stood_in_is_made_again_by_greedy(why: Outcome) -> None:
    cycle = stored(5)
    assert cycle.plan is not None
    told = replace(
        cycle.plan.stats,
        status=SolveStatus.FAILED,
        note=f"{why}: 5 s",
        fallback=why.value,
        phases={"greedy": 0.1},
    )
    late = replace(cycle, budget=Budget(), plan=replace(cycle.plan, stats=told))
    assert late.plan is not None
    assert difference(late.plan, again(late)) == ""


def test_the_first_difference_is_named() -> None:
    cycle = next(c for c in map(stored, range(50)) if c.plan is not None and c.plan.admissions)
    assert cycle.plan is not None
    first = cycle.plan.admissions[0]
    other = replace(cycle.plan, admissions=(replace(first, wave=7), *cycle.plan.admissions[1:]))
    assert difference(other, cycle.plan) == f"admissions[0].wave: 7, {first.wave}"
    fewer = replace(cycle.plan, admissions=())
    assert difference(fewer, cycle.plan) == f"admissions: 0 entries, {len(cycle.plan.admissions)}"


def test_how_far_the_passes_came_is_given_again() -> None:
    """Had one come less far, it would be seen, in whatever it did."""
    cycle = next(c for c in (stored(seed, EXACT) for seed in range(50)) if _worked(c))
    assert cycle.plan is not None
    told = cycle.plan.stats.passes
    assert told is not None
    for name in ("attempts", *told.times, *told.steps):
        less = replace(told, **{name: getattr(told, name) - 1})
        other = replace(cycle.plan, stats=replace(cycle.plan.stats, passes=less))
        assert difference(other, cycle.plan).startswith(f"stats.passes.{name}: ")


def _worked(cycle: StoredCycle) -> bool:
    """Whether the exact solver and a search for victims had something to do."""
    passes = cycle.plan.stats.passes if cycle.plan is not None else None
    return passes is not None and passes.spent > 0 and passes.victims > 0


def test_a_cycle_of_version_1_is_read_and_decided_again() -> None:
    """It does not say how far the passes came, nor what was proved with the victims as they are."""
    cycle = next(c for c in (stored(seed, EXACT) for seed in range(50)) if _worked(c))
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(cycle, enc_hook=dict))
    for name in ("passes", "proved_in_place"):
        del plain["plan"]["stats"][name]
    read = decode(b"queuer-cycle 1\n" + zlib.compress(msgspec.msgpack.encode(plain)))
    assert read.plan is not None
    assert read.plan.stats.passes is None
    made = again(read)
    assert made.stats.passes is not None
    assert difference(read.plan, made) == ""


def test_a_cycle_of_version_2_is_read_and_decided_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not say why gangs were deferred; what does must be given again."""
    monkeypatch.setattr("queuer.solver.rearrange.REARRANGE", -1)
    plans = ((s, decide(s, now=100.0, seed=0, budget=GREEDY)) for s in map(crowded, range(200)))
    snapshot, plan = next((s, plan) for s, plan in plans if plan.stats.deferred)
    cycle = StoredCycle(snapshot=snapshot, now=100.0, seed=0, budget=GREEDY, plan=plan)
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(cycle, enc_hook=dict))
    del plain["plan"]["stats"]["causes"]
    read = decode(b"queuer-cycle 2\n" + zlib.compress(msgspec.msgpack.encode(plain)))
    assert read.plan is not None
    assert difference(read.plan, again(read)) == ""
    other = replace(plan, stats=replace(plan.stats, causes={Deferral.PLAN: plan.stats.deferred}))
    assert difference(other, plan).startswith("stats.causes.")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: b"", "c.cycle: is not a stored cycle"),
        (lambda data: b"PK\x03\x04 something else\n", "c.cycle: is not a stored cycle"),
        (lambda data: data.replace(b" 4\n", b" 5\n", 1), "c.cycle: has version 5 .*reads versions 1 to 4"),
        (lambda data: data.replace(b" 4\n", b" 0\n", 1), "c.cycle: has version 0"),
        (lambda data: data[:-20], "c.cycle: is cut off after"),
        (lambda data: data + b"more", "c.cycle: has 4 bytes after its end"),
        (lambda data: data[:100] + b"\x00\x01\x02" + data[103:], "c.cycle: is damaged"),
    ],
)
def test_a_wrong_file_is_told_from_a_right_one(change, said: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidInput, match=said):
        decode(change(encode(stored(1))), name="c.cycle")


def test_a_wrong_field_is_named() -> None:
    head, _, body = encode(stored(1)).partition(b"\n")
    plain = msgspec.msgpack.decode(zlib.decompress(body))
    plain["snapshot"]["nodes"][0]["node"]["name"] = 5
    wrong = head + b"\n" + zlib.compress(msgspec.msgpack.encode(plain))
    with pytest.raises(
        InvalidInput, match=r"c\.cycle: snapshot\.nodes\[0\]\.node\.name: Expected `str`, got `int`"
    ) as error:
        decode(wrong, name="c.cycle")
    assert error.value.problems[0].field == "c.cycle: snapshot.nodes[0].node.name"


def changed(cycle: StoredCycle, *path: str | int, to: object) -> bytes:
    """The file with one value put in another's place."""
    head, _, body = encode(cycle).partition(b"\n")
    plain = msgspec.msgpack.decode(zlib.decompress(body))
    place = plain
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return head + b"\n" + zlib.compress(msgspec.msgpack.encode(plain))


def test_text_that_is_none_is_refused() -> None:
    """A byte that is no UTF-8, in the name of a node."""
    head, _, body = encode(stored(1)).partition(b"\n")
    wrong = zlib.decompress(body).replace(b"\xa4name\xa2n", b"\xa4name\xa2\xff", 1)
    assert b"\xff" in wrong
    with pytest.raises(InvalidInput, match=r"c\.cycle: .*utf-8"):
        decode(head + b"\n" + zlib.compress(wrong), name="c.cycle")


FIRST = ("snapshot", "pending", 0, "workload", "pod_sets")


@pytest.mark.parametrize(
    ("path", "to", "said"),
    [
        (("now",), float("nan"), "c.cycle: now: nan is no number"),
        (("now",), float("inf"), "c.cycle: now: inf is no number"),
        (("budget", "deterministic"), float("nan"), "c.cycle: budget.deterministic: nan"),
        (("snapshot", "nodes", 0, "node", "allocatable", "pods"), 2**63, "allocatable.pods: 9.* is no whole number"),
        (("snapshot", "nodes", 0, "node", "allocatable", "pods"), -1, "allocatable.pods: -1 is less than 0"),
        (("snapshot", "nodes", 0, "node", "name"), "n1", "snapshot.nodes: name: 'n1' is there 2 times"),
        (("snapshot", "tree", "queues", "root", "path"), "x", "snapshot.tree.queues.root.path: 'x' is not root"),
    ],
)  # fmt: skip
def test_what_cannot_be_decided_on_is_named(path: tuple[str | int, ...], to: object, said: str) -> None:
    cycle = next(c for c in map(stored, range(50)) if c.snapshot.pending and len(c.snapshot.nodes) > 1)
    with pytest.raises(InvalidInput, match=said):
        decode(changed(cycle, *path, to=to), name="c.cycle")


@pytest.mark.parametrize(
    ("path", "to", "said"),
    [
        ((), [], "workload.pod_sets: is empty"),
        ((0, "count"), 0, "workload.pod_sets[0].count: 0 is less than 1"),
        ((0, "count"), 2**61, "beyond 2^62"),
        ((0, "min_count"), 999, "workload.pod_sets[0].min_count: 999 is not between"),
    ],
)
def test_a_gang_that_was_set_aside_is_so_again(path: tuple[str | int, ...], to: object, said: str) -> None:
    """Such a cycle is one that deserves a second look."""
    cycle = next(c for c in map(stored, range(50)) if c.snapshot.pending)
    plan = again(decode(changed(cycle, *FIRST, *path, to=to)))
    assert said in plan.explanations[cycle.snapshot.pending[0].workload.uid].primary.text


def test_a_file_that_unfolds_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuer.solver.stored.MOST_BYTES", 1000)
    with pytest.raises(InvalidInput, match="unpacks to more than 1000 bytes"):
        decode(encode(stored(1)), name="c.cycle")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_change_of_a_file_ends_in_anything_but_an_error_or_a_plan(data: st.DataObject) -> None:
    """One value anywhere in the snapshot is replaced."""
    cycle = stored(data.draw(st.integers(0, 40)))
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(cycle.snapshot, enc_hook=dict))
    path: list[str | int] = ["snapshot"]
    place = plain
    while isinstance(place, dict | list) and place and (len(path) < 3 or data.draw(st.integers(0, 5))):
        key = data.draw(st.sampled_from(list(place) if isinstance(place, dict) else range(len(place))))
        path.append(key)
        place = place[key]
    other: st.SearchStrategy[object] = st.sampled_from(
        [None, "", "x", "root", 0, -1, 2**63, 1e300, float("nan"), [], {}, True]
    )
    with suppress(InvalidInput):
        again(decode(changed(cycle, *path, to=data.draw(other))))


def test_the_verb_decides_again_and_names_a_difference(tmp_path: Path) -> None:
    cycle = next(c for c in map(stored, range(50)) if c.plan is not None and c.plan.admissions)
    assert cycle.plan is not None
    same, other = tmp_path / "same.cycle", tmp_path / "other.cycle"
    same.write_bytes(encode(cycle))
    other.write_bytes(encode(replace(cycle, plan=replace(cycle.plan, admissions=()))))
    runner = CliRunner()
    told = runner.invoke(app, ["cycle", str(same), "--json"])
    assert told.exit_code == 0
    found = json.loads(told.stdout)
    assert found["same"] is True
    assert [a["uid"] for a in found["plan"]["admissions"]] == [a.uid for a in cycle.plan.admissions]
    assert found["plan"]["stats"]["passes"]["attempts"] == 1
    told = runner.invoke(app, ["cycle", str(same)])
    assert "1 attempt; 0 of 0 deterministic time; steps: " in told.stdout
    told = runner.invoke(app, ["cycle", str(other)])
    assert told.exit_code == 1
    assert told.stdout.startswith("DIFFERS other.cycle: admissions: 0 entries, ")


def test_a_simulation_keeps_its_cycles(tmp_path: Path) -> None:
    story = "tests/scenarios/quota/free-flavor-before-eviction.yaml"
    runner = CliRunner()
    assert runner.invoke(app, ["scenario", story, "--store", str(tmp_path / "kept")]).exit_code == 0
    kept = sorted((tmp_path / "kept").iterdir())
    assert kept
    for path in kept:
        assert runner.invoke(app, ["cycle", str(path)]).exit_code == 0

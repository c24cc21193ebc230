"""Config objects: judged together, answered one by one, written seldom."""

from __future__ import annotations

from typing import Any

import pytest

from queuer.domain.errors import FieldProblem
from queuer.kube.config_set import ConfigMeta, ConfigObject, Listed, config_set
from queuer.kube.config_status import PERIOD, CrCondition, Statuses, Verdict, accepted, status_of, verdicts
from queuer.kube.template import merge_diff
from tests.unit.make import sure

FINE = Verdict(condition=CrCondition.IN_FORCE, message="taken over")


def _object(name: str, *, created: int = 0, deleted: bool = False, **spec: Any) -> ConfigObject:
    meta = ConfigMeta(
        name=name, uid=f"uid-{name}", generation=1, creation_timestamp=f"2026-01-01T00:00:{created:02}Z",
        deletion_timestamp="2026-01-02T00:00:00Z" if deleted else None,
    )  # fmt: skip
    return ConfigObject(metadata=meta, spec=spec)


def test_all_objects_become_one_document_that_prunes() -> None:
    """Deletions come from the comparison with the database, so the set must say that it is complete."""
    row = {"resource": "nvidia.com/gpu", "limit": 8}
    listed = Listed(
        queues=(
            _object("b", path="root.b", quota=[row], weight=2),
            _object("gone", path="root.c", deleted=True),
        ),
        flavors=(_object("h100", nodeLabels={"gpu": "h100"}), _object("a100", nodeLabels={"gpu": "a100"})),
        topologies=(_object("t", levels=["topology.kubernetes.io/rack"]),),
    )
    found = config_set(listed)
    assert not found.wrong
    assert found.document.prune
    assert [(q.path, q.weight, q.quota[0].limit) for q in found.document.queues] == [("root.b", 2.0, 8)]
    by_name = [flavor.name for flavor in sure(found.document.flavors)]
    assert by_name == ["a100", "h100"], "as their definition says"
    assert sure(found.document.topology).levels == ("rack", "host")


def test_the_younger_of_two_for_one_queue_is_wrong() -> None:
    """Which of them holds must not depend on the order of a listing."""
    young, old = _object("a", created=2, path="root.x"), _object("b", created=1, path="root.x")
    found = config_set(Listed(queues=(young, old)))
    assert list(found.wrong) == ["uid-a"]
    assert found.owners["queues.root.x"] == "uid-b"


def test_what_cannot_be_read_is_told_to_its_object_and_to_no_other() -> None:
    """One wrong object keeps the whole set from being applied; the others are told which one."""
    wrong = _object("wrong", path="root.w", quota=[{"resource": "cpu", "limit": "many"}])
    listed = Listed(queues=(wrong, _object("right", path="root.r")))
    said = verdicts(listed, config_set(listed))
    assert said["uid-wrong"].condition is CrCondition.INVALID
    assert "queues.root.w.quota[0].limit: 'many' is not a quantity" in said["uid-wrong"].message
    assert said["uid-right"].condition is CrCondition.SET_REFUSED
    assert "queues/wrong" in said["uid-right"].message


@pytest.mark.parametrize(
    ("field", "uid"),
    [
        ("queues.root.a", "uid-a"), ("queues.root.a.quota[0].limit", "uid-a"), ("queues.root.a.b.weight", "uid-b"),
        ("queues.root.ab", None), ("flavors.h100", "uid-h100"), ("topology", "uid-t"),
    ],
)  # fmt: skip
def test_a_problem_of_the_tree_finds_its_object(field: str, uid: str | None) -> None:
    """The nearest path wins; a queue of another writer belongs to no object."""
    listed = Listed(
        queues=(_object("a", path="root.a"), _object("b", path="root.a.b")),
        flavors=(_object("h100", nodeLabels={}),),
        topologies=(_object("t", levels=["rack"]),),
    )
    wanted = config_set(listed)
    problem = FieldProblem(field=field, message="16 is more than 8")
    assert wanted.owner(problem) == uid
    said = verdicts(listed, wanted, problems=(problem,))
    blamed = [u for u, verdict in said.items() if verdict.condition is CrCondition.INVALID]
    assert blamed == ([uid] if uid else [])
    assert all(v.condition is not CrCondition.IN_FORCE for v in said.values())


def test_who_makes_a_sum_too_large_is_blamed_and_not_those_who_were_there() -> None:
    """Guards against a set that is refused with nobody to mend it: the parent is of another writer, or unchanged."""

    def in_force(name: str, **spec: Any) -> ConfigObject:
        found = _object(name, **spec)
        status = status_of(FINE, generation=1, present={}, figures={}, now=0.0)
        return ConfigObject(metadata=found.metadata, spec=spec, status=status)

    old, new, far = (
        in_force("a", path="root.r.a"),
        _object("b", path="root.r.b"),
        _object("c", path="root.s.c"),
    )
    text = "children of root.r are guaranteed 24 gpu (a 16, b 8), more than its 16"
    problem = FieldProblem(field="queues.root.r.quota[0].guaranteed", message=text)
    for parent in ((), (in_force("r", path="root.r"),)):
        listed = Listed(queues=(old, new, far, *parent))
        said = verdicts(listed, config_set(listed), problems=(problem,))
        blamed = {uid: v for uid, v in said.items() if v.condition is CrCondition.INVALID}
        assert list(blamed) == ["uid-b"]
        assert text in blamed["uid-b"].message
        assert "queues/b" in said["uid-c"].message
    lowered = Listed(queues=(old, in_force("b", path="root.r.b"), _object("r", path="root.r")))
    said = verdicts(lowered, config_set(lowered), problems=(problem,))
    assert [uid for uid, v in said.items() if v.condition is CrCondition.INVALID] == ["uid-r"]


def test_a_conflict_with_another_writer_is_its_own_reason() -> None:
    """It is mended elsewhere: by letting one writer go."""
    listed = Listed(queues=(_object("a", path="root.a"),))
    conflicts = (FieldProblem(field="queues.root.a", message="is managed by api"),)
    assert (
        verdicts(listed, config_set(listed), conflicts=conflicts)["uid-a"].condition is CrCondition.CONFLICT
    )


def test_status_is_not_written_where_it_says_the_same() -> None:
    """An unchanged answer must cost no write, however often it is computed."""
    figures = {"used": {"cpu": "4"}}
    first = status_of(FINE, generation=1, present={}, figures=figures, now=0.0)
    assert accepted(first)["lastTransitionTime"] == "1970-01-01T00:00:00Z"
    assert status_of(FINE, generation=1, present=first, figures=figures, now=99.0) == first
    moved = status_of(FINE, generation=2, present=first, figures=figures, now=99.0)
    assert moved != first  # same status of a newer generation: told, but no transition
    assert accepted(moved)["lastTransitionTime"] == "1970-01-01T00:00:00Z"


def test_amounts_that_are_gone_are_taken_out() -> None:
    """A merge patch keeps keys that it does not name."""
    present = status_of(
        FINE, generation=1, present={}, figures={"used": {"cpu": "4", "memory": "1Gi"}}, now=0.0
    )
    wanted = status_of(FINE, generation=1, present=present, figures={"used": {"cpu": "5"}}, now=1.0)
    assert merge_diff(present, wanted) == {"used": {"cpu": "5", "memory": None}}


def test_an_object_in_force_stays_so_while_another_is_wrong() -> None:
    """The last good set holds; only what is new is told to wait."""
    refused = Verdict(condition=CrCondition.SET_REFUSED, message="mend first: queues/x")
    present = status_of(FINE, generation=1, present={}, figures={}, now=0.0)
    assert status_of(refused, generation=1, present=present, figures={}, now=1.0) == present
    newer = status_of(refused, generation=2, present=present, figures={}, now=1.0)
    assert accepted(newer)["status"] == "Unknown"


class _Recorder:
    def __init__(self) -> None:
        self.paths: list[str] = []

    async def merge_patch(self, path: str, body: Any, *, resource: str) -> str:
        self.paths.append(path)
        return "1"


async def test_one_object_is_written_at_most_once_a_period() -> None:
    """However fast a queue's use changes."""
    client: Any = _Recorder()
    statuses, listed = Statuses(), Listed(queues=(_object("a", path="root.a"),))
    statuses.seen(listed)
    for second in range(26):
        figures = {"root.a": {"used": {"cpu": str(second)}}}
        await statuses.write(client, listed, {"uid-a": FINE}, figures=figures, now=float(second))
    assert client.paths == ["/apis/queuer.dev/v1/queues/a/status"] * 3
    assert PERIOD == 10.0
    assert statuses.untold == {"uid-a": FINE}


async def test_an_object_that_comes_into_force_says_so_at_once() -> None:
    """Guards an object that was right all along: its old complaint is gone with the one that was wrong."""
    client: Any = _Recorder()
    statuses, listed = Statuses(), Listed(queues=(_object("a", path="root.a"),))
    statuses.seen(listed)
    waits = Verdict(condition=CrCondition.SET_REFUSED, message="mend first: queues/x")
    others = Verdict(condition=CrCondition.SET_REFUSED, message="mend first: queues/y")
    for second, verdict in enumerate((waits, others, FINE)):
        await statuses.write(client, listed, {"uid-a": verdict}, figures={}, now=float(second))
    assert len(client.paths) == 2, "other words of the same complaint have time"
    assert accepted(statuses.known["uid-a"])["status"] == "True"


async def test_a_verdict_is_news_once() -> None:
    """A verdict in the status was told as an Event when it was written, maybe by another process."""
    client: Any = _Recorder()
    told = status_of(FINE, generation=1, present={}, figures={}, now=0.0)
    meta = _object("a", path="root.a").metadata
    listed = Listed(queues=(ConfigObject(metadata=meta, spec={"path": "root.a"}, status=told),))
    statuses, figures = Statuses(), {"root.a": {"used": {"cpu": "1"}}}
    statuses.seen(listed)
    await statuses.write(client, listed, {"uid-a": FINE}, figures=figures, now=0.0)
    assert (len(client.paths), statuses.untold) == (1, {})

"""The tree as a document: what is read can be written back; writes are whole and against a revision."""

from __future__ import annotations

import httpx2
import pytest
import yaml

from queuer.domain.document import export
from queuer.imports.kueue import read as read_kueue
from tests.api.identity import Api
from tests.api.problems import problem_of
from tests.api.rows import GPU, TREE, Author, changed
from tests.unit.imports.given import manifests
from tests.unit.imports.test_kueue import COHORT

PATH = "/api/v1/queue-tree"


async def put(api: Api, document: object, *, match: str | None = "*", **params: str) -> httpx2.Response:
    headers = {} if match is None else {"If-Match": match}
    return await api.put(PATH, json=document, params=params, headers=headers)


async def test_what_is_read_can_be_applied_again_without_a_change(api: Api) -> None:
    assert (await put(api, TREE)).json()["applied"] is True
    for accept, load in (
        ("application/json", httpx2.Response.json),
        ("application/yaml", lambda r: yaml.safe_load(r.text)),
    ):
        read = await api.get(PATH, headers={"Accept": accept})
        assert read.headers["content-type"].startswith(accept)
        assert read.headers["etag"] == '"1"'
        again = (await put(api, load(read))).json()
        assert (again["applied"], again["changes"], again["revision"]) == (False, [], 1)


async def test_a_subtree_can_be_read_alone(api: Api, author: Author) -> None:
    await author.tree()
    document = (await api.get(PATH, params={"root": "root.research.team-a"})).json()
    assert document["root"] == "root.research.team-a"
    assert set(document["queues"]) == {"root.research.team-a"}
    assert "topology" not in document
    unknown = await api.get(PATH, params={"root": "root.research.team-c"})
    assert "did you mean root.research.team-" in problem_of(unknown, "not_found")["detail"]


async def test_an_empty_installation_reads_as_an_empty_document(api: Api) -> None:
    document = (await api.get(PATH)).json()
    assert document["queues"] == {}
    assert (await put(api, document)).json()["applied"] is False


async def test_a_dry_run_says_what_would_change_and_changes_nothing(api: Api, author: Author) -> None:
    await author.tree()
    row = {"resource": GPU, "guaranteed": 16, "limit": 24}
    wish = changed(team_b={"namespaces": ["team-b"], "weight": 2, "quota": [row]})
    plan = (await put(api, wish, match=None, dryRun="true")).json()
    assert (plan["applied"], plan["baseRevision"], plan["revision"]) == (False, 1, 1)
    (change,) = plan["changes"]
    assert (change["kind"], change["name"], change["action"]) == ("queue", "root.research.team-b", "update")
    assert change["text"] == (
        "root.research.team-b: quota nvidia.com/gpu guaranteed 32 -> 16, "
        "quota nvidia.com/gpu limit none -> 24, weight 1 -> 2"
    )
    assert (await api.get(PATH)).headers["etag"] == '"1"'


async def test_a_write_needs_the_revision_it_was_planned_against(api: Api, author: Author) -> None:
    await author.tree()
    wish = changed(team_b={"namespaces": ["team-b"]})
    problem_of(await put(api, wish, match=None), "revision_required")
    stale = problem_of(await put(api, wish, match='"0"'), "stale_revision")
    assert "revision 1" in stale["detail"]
    done = await put(api, wish, match='"1"')
    assert (done.status_code, done.headers["etag"]) == (200, '"2"')
    problem_of(await put(api, TREE, match='"1"'), "stale_revision")


async def test_only_a_pruning_document_deletes(api: Api, author: Author) -> None:
    await author.tree()
    wish = changed(team_b=None)
    assert (await put(api, wish)).json()["changes"] == []
    pruned = (await put(api, {**wish, "prune": True}, reason="the team is dissolved")).json()
    assert [(c["name"], c["action"]) for c in pruned["changes"]] == [("root.research.team-b", "delete")]
    gone = await api.get("/api/v1/queues/root.research.team-b")
    assert "did you mean root.research.team-a?" in problem_of(gone, "not_found")["detail"]


@pytest.mark.parametrize("document", [[], "text", 7, {"kind": "Pod"}, {"queues": {"root": 5}}])
async def test_what_is_no_tree_is_refused_field_by_field(api: Api, document: object) -> None:
    found = problem_of(await put(api, document), "invalid_input")
    assert found["errors"]


async def test_an_imported_tree_is_accepted(api: Api) -> None:
    """What `queuer import` prints passes every check of a write, and is what was imported."""
    document = export(read_kueue(manifests(COHORT)).document)
    assert (await put(api, document)).json()["applied"] is True
    again = (await put(api, document)).json()
    assert (again["applied"], again["changes"]) == (False, [])

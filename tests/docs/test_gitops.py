"""The tree of docs/howto/gitops.md is in force as it stands, and the tools on that page look at what we write."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from queuer.domain.queue import QueueTree
from queuer.kube.config_set import GROUP, PLURALS, VERSION, ConfigObject, Listed, config_set
from queuer.kube.config_status import ACCEPTED, CrCondition, status_of, verdicts
from tests.docs.conftest import ROOT
from tests.docs.snippets import File, steps

PAGE = (ROOT / "docs" / "howto" / "gitops.md").read_text()


def _listed() -> Listed:
    """What the API server would list once the page's files are applied."""
    texts = [step.text for step in steps(PAGE) if isinstance(step, File)]
    found: dict[str, list[ConfigObject]] = {plural: [] for plural in PLURALS}
    for text in texts:
        for body in yaml.safe_load_all(text):
            assert body["apiVersion"] == f"{GROUP}/{VERSION}"
            plural = {"Queue": "queues", "Flavor": "flavors", "Topology": "topologies"}[body["kind"]]
            meta = body["metadata"] | {"uid": f"{plural}/{body['metadata']['name']}", "generation": 1}
            found[plural].append(msgspec.convert(body | {"metadata": meta}, ConfigObject))
    return Listed(**{plural: tuple(items) for plural, items in found.items()})


def test_the_tree_of_the_page_is_taken_over_whole() -> None:
    listed = _listed()
    wanted = config_set(listed)
    assert not wanted.wrong
    tree = QueueTree.of(wanted.document.queues)
    flavors = {flavor.name for flavor in wanted.document.flavors or ()}
    assert {row.flavor for queue in tree for row in queue.quota} <= flavors
    assert {said.condition for said in verdicts(listed, wanted).values()} == {CrCondition.IN_FORCE}


def test_health_is_read_from_the_condition_that_the_controller_writes() -> None:
    listed = _listed()
    said: dict[str, Any] = status_of(
        verdicts(listed, config_set(listed))["queues/lab"], generation=1, present={}, figures={}, now=0.0
    )
    (condition,) = said["conditions"]
    assert (condition["type"], condition["status"], condition["observedGeneration"]) == (ACCEPTED, "True", 1)
    for word in (f'c.type == "{ACCEPTED}"', f"c.type == '{ACCEPTED}'", "c.status", "c.observedGeneration"):
        assert word in PAGE

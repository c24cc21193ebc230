"""Every field of a queue in documents is in the CRD: the API server drops a field that the CRD does not name."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from queuer.domain.access import ACCESS
from queuer.domain.document import POLICY, QUEUE
from queuer.domain.fields import FieldTable
from queuer.kube.resources import CRDS, shipped

CRD = shipped(CRDS) / "queuer.dev_queues.yaml"


def properties(*path: str) -> set[str]:
    """Names of the properties of `spec`, or of an object inside it."""
    found: Any = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in ("spec", *path):
        found = found["properties"][name]
    return set(found["properties"])


@pytest.mark.parametrize(
    ("table", "path", "beside"),
    [(QUEUE, (), {"path"}), (POLICY, ("policy",), set()), (ACCESS, ("access",), set())],
    ids=["queue", "policy", "access"],
)
def test_the_crd_has_the_fields_of_documents(
    table: FieldTable[Any], path: tuple[str, ...], beside: set[str]
) -> None:
    assert properties(*path) == set(table.names) | beside

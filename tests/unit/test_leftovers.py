"""`queuer uninstall-check` counts the jobs that Queuer queued, and starts no others."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from queuer.kube.kinds import JOB
from queuer.local.leftovers import jobs, queued_jobs
from queuer.local.site import Health, Site
from tests.kube import manifests

ENTERED = {"queuer.dev/user": "ada"}
HELD = {"queuer.dev/status": "OnHold: held by bob; `queuer release` lets it go"}


class Jobs(Site):
    """A site whose cluster has these jobs and nothing else."""

    def __init__(self, *objects: manifests.Manifest) -> None:
        super().__init__()
        self._objects = {JOB.resource.collection: objects}

    def objects(self, path: str, *, selector: str = "") -> list[bytes]:
        assert selector == "queuer.dev/queue"
        return [json.dumps(each).encode() for each in self._objects.get(path, ())]


def job(name: str, annotations: Mapping[str, str] = ENTERED) -> manifests.Manifest:
    """A suspended Job with the label of a queue."""
    made = manifests.job()
    made["metadata"] |= {"name": name, "annotations": dict(annotations), "labels": {"queuer.dev/queue": "a"}}
    return made


def found(site: Site) -> dict[Health, str]:
    return {finding.health: finding.text for finding in jobs(site)}


def test_a_labelled_job_that_never_entered_a_queue_is_none_of_ours() -> None:
    site = Jobs(job("ours"), job("theirs", {}))
    assert [each.name for each in queued_jobs(site).jobs] == ["n/ours"]
    assert found(site) == {Health.WRONG: "1 job waits and would not start: n/ours"}


@pytest.mark.parametrize("hold", [{"queuer.dev/hold": "true"}, HELD])
def test_a_hold_by_annotation_or_by_command_is_kept(hold: dict[str, str]) -> None:
    site = Jobs(job("held", ENTERED | hold))
    assert found(site) == {Health.WARNING: "1 job is held: n/held"}


def test_another_reason_to_wait_is_no_hold() -> None:
    site = Jobs(job("full", ENTERED | {"queuer.dev/status": "WaitingForQuota: all of it is used"}))
    assert found(site) == {Health.WRONG: "1 job waits and would not start: n/full"}


def test_a_job_that_cannot_be_read_is_named_and_the_others_are_counted() -> None:
    odd, theirs = job("odd"), job("theirs", {})
    odd["spec"]["template"] = theirs["spec"]["template"] = "none"
    site = Jobs(odd, theirs, job("ours"))
    assert queued_jobs(site).unreadable == ["n/odd"]
    assert found(site) == {
        Health.WRONG: "1 job waits and would not start: n/ours",
        Health.UNKNOWN: "1 job cannot be read: n/odd",
    }

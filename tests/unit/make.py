"""A job of one pod and what the controller knows of it, as most of its tests need them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from queuer.controller.ledger.round import Round
from queuer.controller.memory.live import JobView
from queuer.controller.memory.pods import PodView
from queuer.controller.memory.state import ClusterState
from queuer.domain.assignments import Assignment, Placement
from queuer.domain.quantity import Resources
from queuer.domain.workload import PodSet, Workload
from queuer.store.outbox import Entry
from queuer.store.tables import EntryKind

T = TypeVar("T")

ONE_POD = {"pods": 1}


def sure(found: T | None) -> T:
    """The value that a test goes on with: it must be there."""
    assert found is not None
    return found


def keep(state: ClusterState, changes: Round) -> None:
    """Memory once the round is written."""
    for change in changes.values():
        state.put(sure(change.after))


def gang(uid: str = "u", *, pods: int = 1, requests: Resources = ONE_POD, **fields: Any) -> Workload:
    """A Job of `root.a` in namespace `ns`, named after its uid."""
    given: dict[str, Any] = {
        "kind": "Job", "namespace": "ns", "name": uid, "queue": "root.a", "submitted": 0.0,
        "pod_sets": (PodSet(name="main", count=pods, requests=requests),),
    }  # fmt: skip
    return Workload(**{"uid": uid, **given, **fields})


def job_view(uid: str = "u", **fields: Any) -> JobView:
    """The same job as Kubernetes shows it while it waits."""
    given = {"kind": "Job", "namespace": "ns", "name": uid, "resource_version": "1", "suspended": True}
    return JobView(**{"uid": uid, **given, **fields})


def pod_view(uid: str = "p", node: str | None = None, **fields: Any) -> PodView:
    """A pod of it, named after its uid."""
    given = {"namespace": "ns", "name": uid, "owner": "u", "pod_set": "main", "requests": ONE_POD}
    return PodView(**{"uid": uid, "node": node, **given, **fields})


def entry_of(uid: str = "u", kind: EntryKind = EntryKind.ADMIT, **fields: Any) -> Entry:
    """The first write, for admission `adm`."""
    given = {"seq": 1, "admission_id": "adm", "epoch": 1, "cycle": 1, "at": 0.0, "patch": {}}
    return Entry(**{"uid": uid, "kind": kind, **given, **fields})


def placed(nodes: Mapping[str, int] | None = None, **fields: Any) -> Placement:
    """Admission `adm`: pods by node, or no assignment where no test looks at one."""
    rows = () if nodes is None else (assigned(nodes),)
    return Placement(**{"id": "adm", "epoch": 1, "cycle": 1, "at": 0.0, "assignments": rows, **fields})


def assigned(nodes: Mapping[str, int]) -> Assignment:
    """The pods of the only pod set by node."""
    return Assignment(pod_set="main", flavor="default", nodes=nodes)

"""Fields of a ClusterQueue or LocalQueue that a tree has no equal of, each with its meaning and the nearest way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from queuer.domain.fields import Reader
from queuer.imports.records import Fate, Findings

CLUSTER_QUEUE = (
    "resourceGroups", "cohort", "cohortName", "queueingStrategy", "namespaceSelector", "flavorFungibility",
    "preemption", "admissionChecks", "admissionChecksStrategy", "stopPolicy", "fairSharing", "admissionScope",
    "concurrentAdmissionPolicy",
)  # fmt: skip
"""The fields of a ClusterQueue's spec that are known here."""
_PREEMPTION = {
    "withinClusterQueue": ("Never", "LowerPriority", "LowerOrNewerEqualPriority"),
    "reclaimWithinCohort": ("Never", "LowerPriority", "Any"),
}
_STOP = ("None", "Hold", "HoldAndDrain")
_STOPS = ("MayStopSearch", "Borrow", "Preempt")


def note_cluster_queue(spec: Reader, about: str, path: str, *, several: bool, found: Findings) -> None:
    """Tell what of the spec is approximated or has no equal. `several`: whether a group has several flavors."""
    _check_words(spec, about, found)
    _preemption(_part(spec, "preemption"), about, path, found)
    if several:
        _fungibility(_part(spec, "flavorFungibility"), about, found)
    checks = [str(_named(item)) for item in spec.items("admissionChecks")]
    listed = _part(spec, "admissionChecksStrategy").get("admissionChecks")
    checks += [str(_named(item)) for item in listed] if isinstance(listed, list) else []
    if checks:
        hint = "without a check, jobs start as soon as quota and nodes allow"
        found.tell(Fate.NO_EQUAL, about, f"admission checks {', '.join(checks)}", hint)
    if _part(spec, "admissionScope").get("admissionMode") == "UsageBasedAdmissionFairSharing":
        text = f"usage-based order among its LocalQueues: {path} orders by priority and time"
        hint = f"make a queue below {path} for each LocalQueue, with policy.halfLife"
        found.tell(Fate.NO_EQUAL, about, text, hint)
    if spec.said("concurrentAdmissionPolicy"):
        text = "concurrentAdmissionPolicy: a running job is not moved to a better flavor"
        found.tell(Fate.NO_EQUAL, about, text, "the first flavor with room is taken at the start")
    if spec.values.get("stopPolicy") == "HoldAndDrain":
        text = "stopPolicy HoldAndDrain became state held: running jobs run on"
        found.tell(Fate.APPROXIMATED, about, text, f"queuer evict the jobs that queuer jobs -q {path} lists")
    if not spec.said("namespaceSelector"):
        found.tell(Fate.MAPPED, about, "no namespaceSelector: no namespace may use it, as in Kueue")


def note_local_queue(spec: Reader, about: str, path: str, found: Findings) -> None:
    """Tell what of a LocalQueue's spec has no equal."""
    spec.one_of("stopPolicy", _STOP)
    if spec.values.get("stopPolicy", "None") != "None":
        text = f"stopPolicy {spec.values['stopPolicy']}: a placement rule cannot be held"
        found.tell(Fate.NO_EQUAL, about, text, f"queuer queue hold {path} holds the whole queue")
    if spec.said("fairSharing"):
        text = f"fairSharing.weight {_part(spec, 'fairSharing').get('weight')} among LocalQueues"
        found.tell(Fate.NO_EQUAL, about, text, f"make a queue below {path} for each, with this weight")


def _check_words(spec: Reader, about: str, found: Findings) -> None:
    """Note words that Kueue does not have: this import would take them for another of its words."""
    spec.one_of("stopPolicy", _STOP)
    spec.one_of("queueingStrategy", ("StrictFIFO", "BestEffortFIFO"))
    known = (*_PREEMPTION, "borrowWithinCohort")
    said = found.open(_part(spec, "preemption"), at=spec.path("preemption"), about=about, known=known)
    for key, words in _PREEMPTION.items():
        said.one_of(key, words)


def _preemption(said: Mapping[str, Any], about: str, path: str, found: Findings) -> None:
    if said.get("withinClusterQueue") == "LowerOrNewerEqualPriority":
        text = "withinClusterQueue LowerOrNewerEqualPriority became preempt: within-queue"
        found.tell(Fate.APPROXIMATED, about, text, "equal priority never displaces equal priority")
    if said.get("reclaimWithinCohort") == "LowerPriority":
        text = "reclaimWithinCohort LowerPriority became reclaim: true, which looks at no priority"
        found.tell(Fate.APPROXIMATED, about, text, f"policy {{reclaim: false}} on {path} takes nothing back")
    borrow = said.get("borrowWithinCohort")
    if isinstance(borrow, Mapping) and borrow.get("policy", "Never") != "Never":
        bound = borrow.get("maxPriorityThreshold")
        text = "borrowWithinCohort LowerPriority" + (f", up to priority {bound}" if bound is not None else "")
        above = path.rpartition(".")[0]
        hint = f"policy {{preempt: lower-priority}} on {above} lets priority count between its queues"
        found.tell(Fate.NO_EQUAL, about, text, hint)


def _fungibility(said: Mapping[str, Any], about: str, found: Findings) -> None:
    if said.get("whenCanBorrow", "MayStopSearch") in _STOPS:
        text = "whenCanBorrow MayStopSearch: a later flavor without borrowing is taken before borrowing in an earlier"
        found.tell(Fate.APPROXIMATED, about, text, "name one flavor in the rows to keep to it")
    if said.get("whenCanPreempt", "TryNextFlavor") in _STOPS:
        text = "whenCanPreempt MayStopSearch: another flavor with room is taken before anybody is evicted"
        found.tell(Fate.APPROXIMATED, about, text, "name one flavor in the rows to keep to it")
    if said.get("preference") == "PreemptionOverBorrowing":
        text = "preference PreemptionOverBorrowing: borrowing is tried before eviction"
        found.tell(Fate.NO_EQUAL, about, text, "a limit at the guarantee forbids borrowing")


def _part(spec: Reader, key: str) -> Mapping[str, Any]:
    value = spec.values.get(key)
    if value is None or isinstance(value, Mapping):
        return value or {}
    spec.problems.note(spec.path(key), "a mapping is needed", "see kubectl explain clusterqueue.spec")
    return {}


def _named(item: Any) -> Any:
    return item.get("name") if isinstance(item, Mapping) else item

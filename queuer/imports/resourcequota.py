"""ResourceQuotas of namespaces as a first tree: a leaf below root for each namespace, guaranteed and limited to them.

Rows are what pods request. Limits of pods, counts of objects and storage stay with the ResourceQuota, which is looked
at before admission anyway. Of several in a namespace the least counts, as in Kubernetes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from queuer.domain.queue import ROOT, Queue, QuotaRow
from queuer.domain.routing import RoutingRule
from queuer.imports.records import (
    Fate,
    Findings,
    Imported,
    Manifest,
    child_path,
    nothing_found,
    opt_in,
    text_of,
)

_PLAIN = ("cpu", "memory", "ephemeral-storage", "pods")
_REQUESTS = "requests."
_STORAGE = ("requests.storage", "requests.volumeattributesclasses")


def read(manifests: Iterable[Manifest]) -> Imported:
    """The tree of the ResourceQuotas. Raises InvalidInput naming every wrong field."""
    found = Findings()
    quotas = [m for m in manifests if m.kind == "ResourceQuota" and not m.group]
    if not quotas:
        raise nothing_found(
            "ResourceQuota", "kubectl get resourcequota -A -o json | queuer import resourcequota -"
        )
    amounts = defaultdict[str, dict[str, int]](dict)
    for manifest in quotas:
        for resource, amount in _hard(manifest, found).items():
            least = amounts[manifest.namespace].get(resource, amount)
            amounts[manifest.namespace][resource] = min(least, amount)
    queues: list[Queue] = []
    for namespace, rows in sorted(amounts.items()):
        about = f"Namespace {namespace}"
        path = child_path(ROOT, namespace, {queue.path for queue in queues}, about=about, findings=found)
        quota = tuple(QuotaRow(resource=r, guaranteed=n, limit=n) for r, n in sorted(rows.items()))
        queues.append(Queue(path=path, quota=quota, namespaces=(namespace,)))
        found.tell(Fate.MAPPED, about, f"{path}, {', '.join(text_of(n, r) for r, n in sorted(rows.items()))}")
    if queues:
        hint = "raise or drop a limit in the document, and in the ResourceQuota, to let a team borrow"
        found.tell(Fate.APPROXIMATED, "all queues", "guaranteed = limit: nobody borrows, as now", hint)
        rules = tuple(RoutingRule(namespace=q.namespaces[0], queue=q.path) for q in queues)
        queues.append(Queue(path=ROOT, placement=rules))
    opt_in(amounts, found)
    return found.done(sorted(queues, key=lambda queue: queue.path))


def _hard(manifest: Manifest, found: Findings) -> dict[str, int]:
    """Requests that it allows its pods, by resource."""
    about = f"ResourceQuota {manifest.namespace}/{manifest.name}"
    spec = found.spec(manifest, known=("hard", "scopes", "scopeSelector"))
    if spec.said("scopes") or spec.said("scopeSelector"):
        text = "it is for some pods alone (scopes): left out"
        found.tell(Fate.NO_EQUAL, about, text, "a queue of its own for such jobs, with access.maxPriority")
        return {}
    amounts: dict[str, int] = {}
    hard = spec.values.get("hard")
    if hard is not None and not isinstance(hard, Mapping):
        found.problems.note(spec.path("hard"), "a mapping of resources is needed", "write hard: {pods: 8}")
    for name, value in hard.items() if isinstance(hard, Mapping) else ():
        resource = name.removeprefix(_REQUESTS)
        if not (name in _PLAIN or (name.startswith(_REQUESTS) and name not in _STORAGE)):
            text = f"{name} {value} bounds no requests of pods: left out"
            found.tell(Fate.NO_EQUAL, about, text, "keep the ResourceQuota: it is looked at before admission")
            continue
        amount = found.amount(value, resource, f"{spec.path('hard')}.{name}")
        if amount is not None:
            amounts[resource] = min(amount, amounts.get(resource, amount))
    return amounts

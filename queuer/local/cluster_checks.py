"""The checks of `queuer doctor` on the cluster: its version, rights of the accounts, and does the tree fit the nodes?

Roles are not compared. The API server is asked what the service accounts may do, as all roles and bindings count.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from http import HTTPStatus
from typing import NamedTuple

from queuer.domain.document import TreeDocument
from queuer.domain.errors import QueuerError
from queuer.domain.fields import twice
from queuer.domain.keys import DEFAULT_QUEUE, MANAGED, QUEUE
from queuer.domain.nodes import HOSTNAME, Node, flavor_of
from queuer.kube.resources import ROLES
from queuer.kube.versions import Form
from queuer.local.installed import FORCED, Check, Document, Shipped, shipped
from queuer.local.site import Finding, Labels, Site, Unseen, odd, ok, status_of, unreadable, wrong

_OPTED_IN = ("true", "required")
_VALUES = (*_OPTED_IN, "false")
_OURS = (MANAGED, DEFAULT_QUEUE)
_NEAR = 0.85
"""How like ours a key must be to count as misspelled; `queuer.io/managed` is, `example.com/managed` is not."""
_NAMED = 3
_REDUCED = " for the reduced form: manifests say more (docs/install.md)"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def kubernetes(site: Site) -> Iterator[Finding]:
    """Whether the API server answers, and is new enough. Opens the site's cluster."""
    try:
        site.open_cluster()
        form = site.ask_version()
    except QueuerError as error:
        if status_of(error) is not None:
            raise Unseen(
                f"the API server lets nobody in so: {error}", "log in to the cluster anew"
            ) from error
        yield wrong(error.message, error.hint or "is it the right KUBECONFIG, and the server well?")
    else:
        yield ok("it answers, and is new enough" + ("" if form is Form.FULL else _REDUCED))


# Rights of the service accounts


class Right(NamedTuple):
    """A right that a service account must have. `resource` may have a subresource: `queues/status`."""

    namespace: str
    account: str
    verb: str
    group: str
    resource: str

    @property
    def name(self) -> str:
        """As kubectl writes it: `patch jobs.batch`."""
        resource, slash, sub = self.resource.partition("/")
        return f"{self.verb} {resource}{'.' + self.group if self.group else ''}{slash}{sub}"

    @property
    def review(self) -> Document:
        """The question to the API server whether the account has it."""
        accounts = "system:serviceaccounts"
        resource, _, sub = self.resource.partition("/")
        asked = {"group": self.group, "resource": resource, "subresource": sub, "verb": self.verb}
        spec = {
            "user": f"system:serviceaccount:{self.namespace}:{self.account}",
            "groups": [accounts, f"{accounts}:{self.namespace}", "system:authenticated"],
            "resourceAttributes": asked,
        }
        return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}


def needed(roles: Sequence[Shipped]) -> Iterator[Right]:
    """The rights that the shipped roles give to service accounts."""
    documents = [each.document for each in roles]
    rules = {d["metadata"]["name"]: d["rules"] for d in documents if d["kind"] == "ClusterRole"}
    for binding in (d for d in documents if d["kind"] == "ClusterRoleBinding"):
        for subject, rule in itertools.product(binding["subjects"], rules[binding["roleRef"]["name"]]):
            for what in itertools.product(rule["verbs"], rule["apiGroups"], rule["resources"]):
                yield Right(subject["namespace"], subject["name"], *what)


def rights(site: Site) -> Iterator[Finding]:
    """Whether the service accounts may do what their roles say: one finding for each account that lacks rights."""
    roles, cluster = shipped(*ROLES[site.form], home=site.home), site.cluster
    assert cluster is not None
    wanted = list(needed(roles))
    answers = site.ask(cluster.create(REVIEWS, right.review) for right in wanted)
    missing: dict[str, list[str]] = defaultdict(list)
    for right, answer in zip(wanted, answers, strict=True):
        if isinstance(answer, QueuerError):
            raise unreadable("rights cannot be asked for", answer)
        if not answer["status"].get("allowed"):
            missing[f"{right.namespace}/{right.account}"].append(right.name)
    by_hand = next(each.install for each in roles if each.document["kind"] == "ClusterRole")
    fix = site.upgrade + FORCED if site.upgrade else by_hand
    for account, names in missing.items():
        yield wrong(f"the service account {account} may not {', '.join(names)}", fix)
    if not missing:
        yield ok(f"the service accounts have the {len(wanted)} rights that they need")


# Configuration objects


def config_objects(site: Site) -> Iterator[Finding]:
    """Whether the Queue, Flavor and Topology objects are in force: the API cannot tell, as it asks no cluster."""
    from queuer.kube.config_set import GROUP, PLURALS, VERSION
    from queuer.kube.config_status import CrCondition, accepted

    count, said = 0, defaultdict[str, list[str]](list)
    for plural in PLURALS:
        try:
            found = [json.loads(item) for item in site.objects(f"/apis/{GROUP}/{VERSION}/{plural}")]
        except QueuerError as error:
            if status_of(error) == HTTPStatus.NOT_FOUND:
                continue  # its definition is missing, which is told
            raise unreadable(f"{plural} cannot be listed", error) from error
        count += len(found)
        for each in found:
            condition = accepted(each.get("status", {}))
            text = f"{plural}/{each['metadata']['name']} is refused: {condition.get('message')}"
            said[condition.get("reason", "")].append(text)
    refused = [*said[CrCondition.INVALID], *said[CrCondition.CONFLICT]] or said[CrCondition.SET_REFUSED][:1]
    for text in refused:
        yield wrong(text, "mend the object and apply it again; until then the last good set stays in force")
    if not refused:
        yield ok(f"{count} objects are in force" if count else "no objects configure Queuer")


# The tree beside the cluster


def fitting(plural: str, compare: Callable[[Labels, TreeDocument | None], Iterator[Finding]]) -> Check:
    """The check that compares labels of the cluster with the tree; nodes are not judged without a tree."""

    def check(site: Site) -> Iterator[Finding]:
        if site.tree is None and plural == "nodes":
            raise Unseen("the API does not tell the configuration", "mend the API first")
        yield from compare(site.labels(plural), site.tree)

    return check


def levels(nodes: Labels, tree: TreeDocument | None) -> Iterator[Finding]:
    """Whether nodes carry the labels of the topology's levels."""
    asked = [key for key in (tree.topology.keys if tree and tree.topology else ()) if key != HOSTNAME]
    for key in asked:
        without = [name for name, labels in nodes.items() if key not in labels]
        fix = f"kubectl label node NAME {key}=VALUE, or mend the level in the tree's topology"
        if nodes and len(without) == len(nodes):
            yield wrong(f"no node has the label {key} of the topology", fix)
        elif without:
            text = f"{len(without)} of {len(nodes)} nodes lack the label {key}: {_some(without)}"
            yield odd(f"{text}; jobs that ask for this level do not go there", fix)
        else:
            yield ok(f"all {len(nodes)} nodes have the label {key}")
    if not asked:
        yield ok("no level is configured beside the host")
    yield from _hosts(nodes)


def _hosts(nodes: Labels) -> Iterator[Finding]:
    """Whether the label that pins pods to a node is that node's alone."""
    fix = f"kubectl label node NAME {HOSTNAME}=NAME --overwrite"
    shared = set(twice(labels[HOSTNAME] for labels in nodes.values() if HOSTNAME in labels))
    if without := [name for name, labels in nodes.items() if HOSTNAME not in labels]:
        yield odd(
            f"nodes lack the label {HOSTNAME}: {_some(without)}; jobs that are sent there never land", fix
        )
    if alike := [name for name, labels in nodes.items() if labels.get(HOSTNAME) in shared]:
        yield odd(f"nodes share a value of {HOSTNAME}: {_some(alike)}; jobs land on either", fix)


def flavors(nodes: Labels, tree: TreeDocument | None) -> Iterator[Finding]:
    """Whether each node has a flavor and each flavor a node."""
    declared = (tree.flavors if tree else None) or ()
    made = [Node(name=name, labels=labels, allocatable={}) for name, labels in nodes.items()]
    by_node = {node.name: flavor_of(node, declared) for node in made}
    left = [name for name, flavor in by_node.items() if flavor is None]
    empty = [flavor for flavor in declared if flavor.name not in by_node.values()]
    if left:
        text = f"{len(left)} of {len(nodes)} nodes belong to no flavor: {_some(left)}; no job goes there"
        yield odd(text, "label them, or add a flavor: queuer export, then queuer apply -f tree.yaml")
    for flavor in empty:
        wanted = ", ".join(f"{key}={value}" for key, value in flavor.node_labels.items())
        text = f"no node belongs to flavor {flavor.name}, which asks for {wanted or 'any label'}"
        yield odd(text, "label nodes so; where an earlier flavor takes them, put this one first")
    if not left and not empty:
        which = f"one of {len(declared)} flavors" if declared else "the flavor default"
        yield ok(f"each of {len(nodes)} nodes belongs to {which}")


def namespaces(there: Labels, tree: TreeDocument | None) -> Iterator[Finding]:
    """Whether opting in is spelled right and, where the tree is known, leads to a queue."""
    faults = [fault for name, labels in there.items() for fault in _misspelled(name, labels)]
    managed = [name for name, labels in there.items() if labels.get(MANAGED) in _OPTED_IN]
    if tree is not None:
        named = {name for queue in tree.queues for name in queue.namespaces}
        for name in (name for name in managed if name not in named):
            text = f"namespace {name} is managed, and no queue names it: no job of it can start"
            fix = f"add {name} to `namespaces` of a queue: queuer export, queuer apply -f"
            faults.append(odd(text, fix))
    yield from faults or [ok(f"{len(managed)} of {len(there)} namespaces are managed")]


def unmanaged(site: Site) -> Iterator[Finding]:
    """Whether jobs that name a queue wait in namespaces that take no part: nobody decides on them."""
    from msgspec import MsgspecError

    from queuer.kube.decoding import decoder_of
    from queuer.kube.kinds import decoded_job
    from queuer.kube.objects import Named

    labels, named = site.labels("namespaces"), decoder_of(Named)
    waiting: dict[str, list[str]] = defaultdict(list)
    for kind, items in site.labelled():
        for item in items:
            meta = named(item).metadata
            if labels.get(meta.namespace, {}).get(MANAGED) in _OPTED_IN:
                continue
            with suppress(MsgspecError):
                job = decoded_job(kind, item)
                if kind.suspended(job) and kind.outcome(job) is None:
                    waiting[meta.namespace].append(meta.name)
    for space, names in sorted(waiting.items()):
        jobs = "1 suspended job has" if len(names) == 1 else f"{len(names)} suspended jobs have"
        text = f"{jobs} a queue label in namespace {space}, which is not managed: {_some(sorted(names))}"
        fix = (
            f"kubectl label namespace {space} {MANAGED}=true, or take their label {QUEUE} off and start them"
        )
        yield odd(text, fix)
    if not waiting:
        yield ok("no job with a queue label waits in a namespace that is not managed")


def _misspelled(space: str, labels: Mapping[str, str]) -> Iterator[Finding]:
    value = labels.get(MANAGED, "false")
    if value not in _VALUES:
        text = f'namespace {space} has {MANAGED}: "{value}", which is neither "true" nor "required"'
        yield wrong(text, f"kubectl label namespace {space} --overwrite {MANAGED}=true")
    for key in labels:
        if key not in _OURS and get_close_matches(key, [MANAGED], cutoff=_NEAR):
            fix = f"kubectl label namespace {space} {key}- {MANAGED}=true"
            yield wrong(f"namespace {space} has the label {key}, not {MANAGED}", fix)


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")

"""YuniKorn's placement rules as rules of root, for jobs that name no leaf.

A rule by user or by namespace names the queue of that name, so it becomes a rule for each queue that is there. A
namespace that the administrator gives gets a queue where YuniKorn would create one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from queuer.domain.fields import Reader
from queuer.domain.queue import ROOT
from queuer.domain.routing import RoutingRule
from queuer.imports.records import Fate
from queuer.imports.yunikorn_queues import Tree

_RULE = ("name", "create", "filter", "parent", "value")
_NAME = re.compile(r"[\w.@:/-]+\$?")
"""A user or group that is no regular expression."""


def rules(partition: Reader, tree: Tree, namespaces: Collection[str]) -> list[RoutingRule]:
    """The placement rules of a partition, in their order. Queues that they create for namespaces join the tree."""
    found: list[RoutingRule] = []
    for n, item in enumerate(partition.items("placementrules")):
        about, at = f"Placement rule {n + 1}", f"{partition.path('placementrules')}[{n}]"
        spec = tree.found.open(item, at=at, about=about, known=_RULE)
        name = ((spec.text("name") if spec.need("name") else None) or "").lower()
        about = f"{about}, {name}"
        parent = _parent(spec.values.get("parent"), f"{at}.parent", about, tree)
        members = list(_members(spec, about, tree))
        if parent is None or not members:
            continue
        for rule in list(_made(name, spec, about, parent, tree, namespaces)):
            for user, group in members:
                if None in (rule.user, user) or rule.user == user:
                    found.append(replace(rule, user=rule.user or user, group=group))
    return found


def _made(
    name: str, spec: Reader, about: str, parent: str, tree: Tree, namespaces: Collection[str]
) -> Iterator[RoutingRule]:
    """The rules that stand for one of YuniKorn's, without its filter. `parent`: YuniKorn's name."""
    create, value = bool(spec.flag("create")), (spec.text("value") or "").lower()
    if name == "provided":
        text = "jobs name their queue by the label queuer.dev/queue, with its path here"
        tree.found.tell(Fate.APPROXIMATED, about, text, "YuniKorn's labels stand on pods, and are not read")
    elif name == "fixed":
        queue = value if value.split(".")[0] == ROOT else f"{parent}.{value}"
        if create and queue not in tree.paths and queue.rpartition(".")[0] in tree.paths:
            tree.add(queue, about=about)
        if queue in tree.paths and queue != ROOT:
            tree.found.tell(Fate.MAPPED, about, f"jobs go to {tree.paths[queue]}")
            yield RoutingRule(queue=tree.paths[queue])
        else:
            tree.found.tell(
                Fate.REFUSED, about, f"there is no queue {queue} below root", "add it to the tree"
            )
    elif name == "user":
        yield from (RoutingRule(user=each, queue=path) for each, path in _below(parent, tree))
        if create:
            text = f"makes no queues: users without one below {parent} stay where the next rule sends them"
            tree.found.tell(Fate.NO_EQUAL, about, text, "write a queue for each user, or access.perUser")
    elif name == "tag" and value == "namespace":
        there = dict(_below(parent, tree))
        for namespace in sorted(set(namespaces) - there.keys()) if create else ():
            path = tree.add(f"{parent}.{namespace}", about=f"Namespace {namespace}")
            tree.queues[path] = replace(tree.queues[path], namespaces=(namespace,))
            there[namespace] = path
        yield from (RoutingRule(namespace=each, queue=path) for each, path in there.items())
        listed = ", ".join(there) or "none"
        text = f"by namespace, to the queue of its name below {parent}: {listed}"
        tree.found.tell(Fate.MAPPED, about, text, "give --namespace for each that shall have a queue")
    else:
        text = (
            f"{name} {value}".rstrip()
            + " has no equal: rules look at namespace, user, group and labels of the job"
        )
        tree.found.tell(Fate.NO_EQUAL, about, text, "write a placement rule by a label")


def _below(parent: str, tree: Tree) -> Iterator[tuple[str, str]]:
    """Queues directly below, by their last name."""
    for theirs, path in tree.paths.items():
        above, _, name = theirs.rpartition(".")
        if above == parent:
            yield name, path


def _parent(item: Any, at: str, about: str, tree: Tree) -> str | None:
    """YuniKorn's name of the queue in which a rule seeks; None where that is no fixed one."""
    if item is None:
        return ROOT
    spec = tree.found.open(item, at=at, about=about, known=_RULE)
    name, value = (spec.text("name") or "").lower(), (spec.text("value") or "").lower()
    theirs = value if value.split(".")[0] == ROOT else f"{ROOT}.{value}"
    if name == "fixed" and theirs in tree.paths and not spec.said("parent"):
        return theirs
    text = f"its parent rule {name} {value}".rstrip() + " names no queue of the tree: left out"
    tree.found.tell(Fate.NO_EQUAL, about, text, "write placement rules on that inner queue")
    return None


def _members(spec: Reader, about: str, tree: Tree) -> Iterator[tuple[str | None, str | None]]:
    """A (user, group) for each that the filter allows, one of them None. Nothing where it has no equal."""
    if not spec.said("filter"):
        yield None, None
        return
    known = ("type", "users", "groups")
    part = tree.found.open(spec.values["filter"], at=spec.path("filter"), about=about, known=known)
    users, groups = part.texts("users"), part.texts("groups")
    named = all(_NAME.fullmatch(name) for name in (*users, *groups))
    if (part.text("type") or "allow").lower() != "allow" or not named or not (users or groups):
        text = "its filter denies, or names users by a pattern: left out"
        tree.found.tell(Fate.NO_EQUAL, about, text, "write a placement rule for each user or group")
        return
    yield from ((name, None) for name in users)
    yield from ((None, name) for name in groups)

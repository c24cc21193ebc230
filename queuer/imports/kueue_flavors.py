"""Kueue's ResourceFlavors and Topologies: which flavors here stand for them, and the rows that their amounts become."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from queuer.domain.document import TOLERATION, toleration_of
from queuer.domain.nodes import HOSTNAME, Flavor, Topology
from queuer.imports.kueue_owners import Amounts, Owner
from queuer.imports.records import Account, Fate, Findings, Manifest, free_name, name_in, segment, text_of

_FLAVOR = ("nodeLabels", "nodeTaints", "tolerations", "topologyName")


class Flavors:
    """ResourceFlavors with the nodes that they name. Those that name the same nodes are one flavor here."""

    def __init__(self, flavors: Iterable[Manifest], topologies: Iterable[Manifest], found: Findings) -> None:
        self._found, self._used = found, dict[str, None]()
        self._first: dict[frozenset[tuple[str, str]], str] = {}
        self.flavors: dict[str, tuple[Flavor, str | None]] = {}
        for manifest in flavors:
            self.flavors[manifest.name] = self._flavor(manifest)
        self._topologies = {m.name: self._levels(m) for m in topologies}
        self._of: dict[str, str] = {}

    def _flavor(self, manifest: Manifest) -> tuple[Flavor, str | None]:
        spec, about = self._found.spec(manifest, known=_FLAVOR), f"ResourceFlavor {manifest.name}"
        tolerations = tuple(
            toleration_of(
                self._found.open(item, at=f"{spec.path('tolerations')}[{n}]", about=about, known=TOLERATION)
            )
            for n, item in enumerate(spec.items("tolerations"))
        )
        flavor = Flavor(
            name=self._free(manifest.name), node_labels=spec.labels("nodeLabels"), tolerations=tolerations
        )
        if spec.items("nodeTaints"):
            text = f"{len(spec.items('nodeTaints'))} nodeTaints need no entry: taints of the nodes themselves count"
            self._found.tell(Fate.MAPPED, about, text)
        return flavor, name_in(spec, "topologyName")

    def _free(self, name: str) -> str:
        """A name here for a ResourceFlavor, which no other has."""
        return free_name(segment(name), {flavor.name for flavor, _ in self.flavors.values()})

    def _levels(self, manifest: Manifest) -> tuple[str, ...]:
        spec = self._found.spec(manifest, known=("levels",))
        about = f"Topology {manifest.name}"
        rows = [
            self._found.open(item, at=f"{spec.path('levels')}[{n}]", about=about, known=("nodeLabel",))
            for n, item in enumerate(spec.items("levels"))
        ]
        keys = tuple((row.text("nodeLabel") if row.need("nodeLabel") else None) or "" for row in rows)
        return tuple(key for key in keys if key != HOSTNAME)

    def _ours(self, name: str, about: str) -> str:
        """The flavor here that stands for one of Kueue's."""
        flavor, _ = self.flavors.get(name, (None, None))
        if flavor is None:
            text = f"ResourceFlavor {name} is not in the input: taken to name all nodes"
            self._found.tell(Fate.APPROXIMATED, about, text, "add the ResourceFlavor to the input")
            flavor = Flavor(name=self._free(name))
        return self._first.setdefault(frozenset(flavor.node_labels.items()), flavor.name)

    def count(self, owners: Iterable[Owner]) -> None:
        """Write the rows of every owner."""
        owners = list(owners)
        labelled = [name for name, (flavor, _) in self.flavors.items() if flavor.node_labels]
        together = {
            resource
            for owner in owners
            for n, group in enumerate(owner.groups)
            for _, amounts in group
            for resource in amounts
            if n != owner.main(labelled)
        }
        for owner in owners:
            parts: dict[Account, dict[str, Amounts]] = {}
            for group in owner.groups:
                for name, amounts in group:
                    ours = self._ours(name, owner.about)
                    self._used[ours] = None
                    for resource, row in amounts.items():
                        flavor = None if resource in together else ours
                        parts.setdefault((flavor, resource), {})[name] = row
            self._tell_freed(owner, together)
            owner.rows = {account: self._sum(owner, account, rows) for account, rows in parts.items()}

    def _tell_freed(self, owner: Owner, together: Set[str]) -> None:
        """Tell which resources keep nobody to the nodes of their flavor any more."""
        for name, amounts in (flavor for group in owner.groups for flavor in group):
            freed = sorted(together & amounts.keys())
            labels = dict(self.flavors[name][0].node_labels) if name in self.flavors else {}
            if freed and labels:
                text = f"{', '.join(freed)} on {name}: counted on all nodes, where pods that ask for nothing else go"
                selector = ", ".join(f"{key}: {value}" for key, value in labels.items())
                hint = f"nodeSelector {{{selector}}} in a job keeps it there"
                self._found.tell(Fate.APPROXIMATED, owner.about, text, hint)

    def _sum(self, owner: Owner, account: Account, rows: Mapping[str, Amounts]) -> Amounts:
        resource = account[1]
        nominal = sum(row.nominal for row in rows.values())
        if len(rows) > 1:
            terms = " + ".join(f"{text_of(row.nominal, resource)} on {name}" for name, row in rows.items())
            text = f"{text_of(nominal, resource)} together: {terms}"
            hint = "flavors of one group, with different nodeLabels, are counted each for itself"
            self._found.tell(Fate.APPROXIMATED, owner.about, text, hint)
        borrowing = [row.borrowing for row in rows.values() if row.borrowing is not None]
        lends = any(row.lending is not None for row in rows.values())
        lending = sum(row.nominal if row.lending is None else row.lending for row in rows.values())
        return Amounts(
            nominal=nominal,
            borrowing=sum(borrowing) if len(borrowing) == len(rows) else None,
            lending=lending if lends else None,
        )

    def offered(self, *, everything: bool) -> tuple[Flavor, ...]:
        """The flavors that queues name, those with most labels first: a node belongs to the first that matches."""
        flavors = {flavor.name: flavor for flavor, _ in self.flavors.values()}
        names = list(flavors) if everything else list(self._used)
        for name, (flavor, _) in self.flavors.items():
            about, ours = f"ResourceFlavor {name}", self._first.get(frozenset(flavor.node_labels.items()))
            if flavor.name in names and flavor.name == name:
                self._found.tell(Fate.MAPPED, about, f"flavor {name}")
            elif flavor.name in names:
                hint = "names of flavors have lower-case letters, digits and hyphens, and are unique"
                self._found.tell(Fate.APPROXIMATED, about, f"is called flavor {flavor.name}", hint)
            elif ours in names:
                self._found.tell(
                    Fate.APPROXIMATED, about, f"names the same nodes as flavor {ours}: counted there"
                )
            else:
                self._found.tell(Fate.APPROXIMATED, about, "left out: no queue names it")
        offered = sorted((flavors.get(n) or Flavor(name=n) for n in names), key=lambda f: -len(f.node_labels))
        rest = [flavor.name for flavor in offered if not flavor.node_labels]
        if len(offered) > len(rest) > 0:
            text = "takes the nodes that no other flavor names; in Kueue it names all nodes"
            self._found.tell(Fate.APPROXIMATED, f"ResourceFlavor {rest[0]}", text, "give it nodeLabels")
        return tuple(offered)

    def topology(self) -> Topology | None:
        """The one topology: that of most flavors. Others are told, and those that are not in the input."""
        for name, (_, wanted) in self.flavors.items():
            if wanted is not None and wanted not in self._topologies:
                text = f"Topology {wanted} is not in the input: its levels are left out"
                hint = "add the Topology to the input"
                self._found.tell(Fate.APPROXIMATED, f"ResourceFlavor {name}", text, hint)
        if not self._topologies:
            return None
        asked = [name for _, name in self.flavors.values() if name in self._topologies]
        chosen = max(self._topologies, key=asked.count)
        for name, levels in self._topologies.items():
            same = levels == self._topologies[chosen]
            text = f"levels {', '.join((*levels, 'host'))}"
            if same:
                self._found.tell(Fate.MAPPED, f"Topology {name}", text)
            else:
                hint = f"there is one topology for all nodes: {chosen}; add the levels that all nodes share"
                self._found.tell(Fate.NO_EQUAL, f"Topology {name}", text, hint)
        return Topology(keys=(*self._topologies[chosen], HOSTNAME))

"""Rules: everything configured, as one value. The store reads it; memory, decision and what-if take it."""

from __future__ import annotations

from dataclasses import dataclass, field

from queuer.domain.nodes import Flavor, Topology
from queuer.domain.queue import DEFAULT_ACCESS, QueueTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """One configuration. `revision`: the database's, -1 where the rules are not stored."""

    tree: QueueTree = field(default_factory=lambda: QueueTree.of(()))
    flavors: tuple[Flavor, ...] = ()
    topology: Topology = field(default_factory=Topology)
    revision: int = -1

    def same_as(self, other: Rules) -> bool:
        """Whether no decision can differ between the two, whatever their revisions."""
        mine, theirs = (self.tree, self.flavors, self.topology), (other.tree, other.flavors, other.topology)
        return mine == theirs

    def max_pending(self, queue: str) -> int:
        """How many jobs of one namespace may wait for a decision in a queue."""
        access = self.tree.access(queue) if queue in self.tree else DEFAULT_ACCESS
        assert access.max_pending is not None, "it has a default"
        return access.max_pending

"""The commands that a caller has the right to, and the refusal of all others.

Hold, release and prioritise need the right to update workloads of the namespace, or to administer the queue. Evict
needs the latter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from queuer.api.identity.rights import Asker, Forbidden, administering, updating
from queuer.domain.errors import Conflict, QueuerError
from queuer.store.commands import Target
from queuer.store.reads import no_workload
from queuer.store.tables import CommandVerb


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of a caller to the workloads that it names."""

    asker: Asker
    administered: frozenset[str]
    updates: frozenset[str]
    reads: frozenset[str]

    @classmethod
    async def of(cls, asker: Asker, targets: Iterable[Target]) -> Rights:
        named = list(targets)
        spaces = {target.namespace for target in named}
        return cls(
            asker=asker,
            administered=await asker.administered(target.queue for target in named),
            updates=await asker.updatable(spaces),
            reads=await asker.readable(spaces),
        )

    def refusal(self, uid: str, target: Target | None, verb: CommandVerb) -> QueuerError | None:
        """Why there is no command; of a job that the caller may not see, as if there were none."""
        if target is None:
            return no_workload(uid)
        administers, updates = target.queue in self.administered, target.namespace in self.updates
        if not (administers or updates or target.namespace in self.reads):
            return no_workload(uid)
        if verb is CommandVerb.EVICT and not administers:
            return Forbidden(self.asker.caller, administering(target.queue))
        if not (administers or updates):
            return Forbidden(self.asker.caller, updating(target.namespace))
        if target.ended:
            return Conflict(f"{target.namespace}/{target.name} has ended or is gone")
        return None

    def may(self, target: Target) -> list[CommandVerb]:
        """The commands that are not refused."""
        return [verb for verb in CommandVerb if self.refusal(target.uid, target, verb) is None]

"""Why a gang neither started nor was bound at its turn; what its reason is made of."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from queuer.domain.quota import Charge, LimitCheck
from queuer.solver.placement import Variant
from queuer.solver.state import Settled


class Block(StrEnum):
    """The obstacle; where several flavors failed, that of the one that came farthest. Least far first."""

    FLAVOR = "flavor"  # no flavor that its queue allows has a node for it
    ENTITLEMENT = "entitlement"  # non-preemptible, and not inside the guarantee of its own queue
    QUOTA = "quota"  # a limit on the path, `broken`
    PLACE = "place"  # no placement in what is free; `owners`: for whom room is held that would make one
    RESERVED = "reserved"  # only on nodes that reservations of `owners` need
    LANDING = "landing"  # only where pods of `owners` are still landing


class Refusal(NamedTuple):
    """One for all gangs of a likeness. `variant`, `charge`: what came farthest, at its smallest size; None = no flavor.
    `landed`: its placement once others have landed, where these are what is in the way.
    """

    block: Block
    variant: Variant | None = None
    charge: Charge | None = None
    broken: LimitCheck | None = None
    owners: tuple[str, ...] = ()
    landed: Settled | None = None

    @property
    def by_capacity(self) -> bool:
        """Whether capacity is in the way, of the nodes or, live, of root."""
        live = self.broken is not None and self.broken.live
        return live or self.block in (Block.PLACE, Block.RESERVED)

"""What comes of a gang's turn: it is settled, or refused with what the explanation needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from queuer.domain.quota import Bar, Charge
from queuer.domain.reasons import Deferral
from queuer.solver.board import Board
from queuer.solver.contested import Proof, Variant
from queuer.solver.order import Gang
from queuer.solver.parts import Spread
from queuer.solver.problem import Assignment, Eviction
from queuer.solver.victims import Reach


class Block(StrEnum):
    """What kept a gang from starting."""

    FLAVOR = "flavor"
    QUOTA = "quota"
    ENTITLEMENT = "entitlement"
    PLACE = "place"
    RESERVED = "reserved"
    LANDING = "landing"
    DEFERRED = "deferred"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a gang did not start at its turn. `variant`: the choice that came farthest; `bar`: the row of quota in its
    way; `owners`: whose reservations are (see `Cycle.in_the_way`); `final`: it is proven, or no proof is owed;
    `others`: not even all its own victims would be enough, so at best other victims of other gangs; `in_place`: proven
    with the victims of this cycle as they are, who might be others; `kept`: something was kept for gangs that await
    pods of earlier cycles; `started`: how many had started before its turn; `packed`: the subtree whose selection took
    what it would have had; `cause`: why it is not settled whether there is a place (only where it is contested and not
    `final`).
    """

    block: Block
    variant: Variant | None = None
    bar: Bar | None = None
    owners: tuple[str, ...] = ()
    final: bool = True
    contested: bool = False
    others: bool = False
    in_place: bool = False
    kept: bool = False
    started: int = 0
    packed: str | None = None
    cause: Deferral | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chosen:
    """A settled gang: it starts now, or it is bound (`bound`) until its victims have gone."""

    gang: Gang
    variant: Variant
    charge: Charge
    spreads: Mapping[str, Spread]
    evictions: tuple[Eviction, ...] = ()
    bound: bool = False

    @property
    def nodes(self) -> frozenset[int]:
        """Where its pods lie."""
        return frozenset(node for spread in self.spreads.values() for node in spread)

    @property
    def is_full(self) -> bool:
        """Whether it has its full size on its first flavors."""
        return self.variant == self.gang.shape.variants[0]


class Arbiter(Protocol):
    """Who is asked about contested gangs, see `queuer.solver.contest`."""

    def settle(self, gang: Gang, variants: Sequence[Variant], *, evict: bool) -> Chosen | Proof | Deferral:
        """The gang settled, a proof that it cannot be, or why neither is known."""

    def opens(self, reach: Reach) -> bool:
        """Whether victims of others are open for a gang with such victims: some of them may go as things are, or might
        if others took somebody else and these could be asked about jointly.
        """

    def asks_readily(self) -> bool:
        """Whether questions cost so little that one is asked for flavors that come before those to be had."""

    def unasked(self) -> Deferral | None:
        """Why no question that leaves the victims of all gangs open can be asked; None = it can."""


@dataclass(slots=True)
class Counts:
    """What happened, for the record (see `CycleStats`), and the steps of searches that are bounded (see `Passes`)."""

    contested: int = 0
    rearranged: int = 0
    proved: int = 0
    proved_in_place: int = 0
    deferred: Counter[Deferral] = field(default_factory=Counter)
    victims: int = 0
    arrangements: int = 0
    moves: int = 0


def assignments(board: Board, chosen: Chosen) -> tuple[Assignment, ...]:
    """The place of a settled gang by node name, pins still open."""
    names = board.frame.names
    return tuple(
        Assignment(
            pod_set=name,
            flavor=chosen.variant.flavors[name],
            nodes={names[n]: count for n, count in sorted(spread.items())},
        )
        for name, spread in chosen.spreads.items()
    )

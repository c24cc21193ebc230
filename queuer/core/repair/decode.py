"""From counts back to nodes: placements that the state bears, and that land beside each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from queuer.core.nodes import Mask
from queuer.core.placement import Spreads, Variant, parts_of, place
from queuer.core.repair.model import ROOT, Option
from queuer.core.repair.window import Window
from queuer.core.shapes import Gang
from queuer.core.state import Settled, State
from queuer.domain.quota import Charge


def fit(
    state: State, gang: Gang, variant: Variant, charge: Charge, *, closed: Mask | None = None
) -> Settled | None:
    """Where a gang starts as things are, off the `closed` nodes, quota and landing counted."""
    workload, landing = gang.workload, state.landing
    if not all(usage.fits(gang.queue, charge) for usage in state.usages()):
        return None
    if not workload.preemptible and not state.claimed.entitled(gang.queue, charge, at=gang.queue):
        return None
    room = state.room(state.bars(gang, charge))
    masks = [mask for mask in (closed, state.closed(gang)) if mask is not None]
    spreads = place(room, workload, parts_of(state.nodes, workload, variant), closed=np.logical_or.reduce(masks) if masks else None)
    if spreads is not None and not landing.may_start(workload, spreads):
        masks += [landing.here, landing.held]
        spreads = place(room, workload, parts_of(state.nodes, workload, variant), closed=np.logical_or.reduce(masks))
    if spreads is None or not landing.may_start(workload, spreads):
        return None
    return Settled(gang=gang, variant=variant, charge=charge, spreads=spreads)


class Decoder:
    """Places the gangs of a window as a solution says."""

    def __init__(self, window: Window, values: Sequence[int]) -> None:
        self._window, self._state, self._tree = window, window.state, window.model.tree
        self._moving: list[tuple[Gang, Option, int]] = []
        self._staying: list[Settled] = []
        copies: dict[int, Counter[int]] = {}
        for option, spot, count in window.model.copies(values):
            copies.setdefault(id(option), Counter())[spot] += count
        changed = window.model.changed(values)
        moving = []
        for uid, start in window.starts.items():
            option = window.options[uid]
            at = self._tree.spot_of(option, start.spreads)
            if changed.isdisjoint(self._tree.leaf_of[list(start.hosts)].tolist()):
                self._staying.append(start)
                copies[id(option)][at] -= 1
            else:
                moving.append((start.gang, option, at))
        moving += [(row.gang, window.options[uid], -1) for uid, row in window.contested.items()]
        for gang, option, at in moving:
            left = copies.get(id(option), Counter())
            spot = at if left[at] > 0 else next((s for s, n in left.items() if n > 0), None)
            if spot is not None:
                left[spot] -= 1
                self._moving.append((gang, option, spot))

    def placed(self) -> Mapping[str, Spreads]:
        """Placements of all starts that may move, and of contested gangs; none if a start found no place. The state is
        as before.
        """
        state = self._state
        mark = state.mark
        for start in self._window.starts.values():
            state.lift(start)
        for start in self._staying:
            state.start(start)
        lifted = state.mark
        for order in (self._by_size, self._by_level):
            found = self._refilled(sorted(self._moving, key=order))
            state.undo(lifted)
            if found:
                break
        state.undo(mark)
        return found

    def _by_size(self, row: tuple[Gang, Option, int]) -> tuple[float, int, int]:
        """Largest pods first, of these the narrowest domains first."""
        _, option, spot = row
        rows = np.array([self._window.question.kinds[kind].row for kind in option.pods])
        size = float((rows / np.maximum(self._state.nodes.total, 1)).max())
        return (-size, len(self._tree.spots[spot].nodes), -sum(option.pods.values()))

    def _by_level(self, row: tuple[Gang, Option, int]) -> tuple[int, float, int]:
        """Narrowest domains first."""
        size, nodes, pods = self._by_size(row)
        return (nodes, size, pods)

    def _refilled(self, moving: Sequence[tuple[Gang, Option, int]]) -> Mapping[str, Spreads]:
        placed = {start.gang.uid: start.spreads for start in self._staying}
        for gang, option, spot in moving:
            closed = None
            if spot != ROOT:
                closed = np.ones(len(self._tree.leaf_of), dtype=bool)
                closed[self._tree.spots[spot].nodes] = False
            found = fit(self._state, gang, option.variant, option.charge, closed=closed)
            if found is None and gang.uid in self._window.starts:
                return {}
            if found is not None:
                self._state.start(found)
                placed[gang.uid] = found.spreads
        return placed

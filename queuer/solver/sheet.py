"""What admitted workloads hold, and what is used and free at one moment: the parts of which a board is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from queuer.domain.quota import Charge
from queuer.domain.usage import Usage
from queuer.solver.frame import Loose, Matrix
from queuer.solver.problem import Admitted


@dataclass(frozen=True, slots=True, eq=False)
class Hold:
    """What an admitted workload holds: quota of a queue, and by node its bound pods' amounts and its unbound
    pods.

    `rows`: the most that it can leave free by node, whoever else goes or stays (see `leaves`).
    """

    admitted: Admitted
    charge: Charge
    bound: Mapping[int, Matrix]
    loose: Mapping[int, Sequence[Loose]]
    rows: Mapping[int, Matrix]

    def stands(self, admitted: Admitted) -> bool:
        """Whether this is what the workload holds in a later snapshot too. Pods that have still to land are counted
        anew on every sheet.
        """
        return not admitted.unbound and (self.admitted is admitted or self.admitted == admitted)


def leaves(
    bound: Mapping[int, Matrix], loose: Mapping[int, Sequence[Loose]], free: Matrix | Mapping[int, Matrix]
) -> Mapping[int, Matrix]:
    """Amounts by node of bound pods, and of unbound ones by their worst choice with this much free before any of them
    has landed (N x R, or by node). With nodes that are empty it is the most that can ever become free.
    """
    if not loose:
        return bound
    found = dict(bound)
    for node, parts in loose.items():
        for part in parts:
            worst = part.worst(free[node])
            found[node] = found[node] + worst if node in found else worst
    return found


class Sheet:
    """Usage of the queues and free amounts of the nodes (N x R) at one moment.

    Pods that have still to land count on every node of their pin as if all that fit came there: `worst` by
    node is what `free` is less for them, reckoned again when something there goes. They come before whoever this cycle
    settles there: `before` is what is free to them.
    """

    __slots__ = ("_before", "_loose", "_worst", "free", "usage")

    def __init__(self, usage: Usage, free: Matrix) -> None:
        self.usage = usage
        self.free = free
        self._loose: dict[int, dict[str, Sequence[Loose]]] = {}
        self._worst: dict[int, Matrix] = {}
        self._before: dict[int, Matrix] = {}

    def copy(self) -> Sheet:
        """An independent copy."""
        twin = Sheet(self.usage.copy(), self.free.copy())
        twin._loose = {node: dict(parts) for node, parts in self._loose.items()}
        twin._worst = dict(self._worst)
        twin._before = dict(self._before)
        return twin

    @property
    def awaiting(self) -> frozenset[int]:
        """Nodes on which pods have still to land."""
        return frozenset(self._loose)

    def before_landing(self) -> dict[int, Matrix]:
        """What is free to the pods that have still to land, by node that any may come to (vectors of R)."""
        return dict(self._before)

    def spared(self, lying: Mapping[str, Mapping[int, Matrix]]) -> dict[int, Matrix]:
        """What more is free by node where those who have still to land lie like this: amounts by uid and node."""
        return {
            node: self._worst[node] - sum(lying[uid][node] for uid in there if node in lying[uid])
            for node, there in self._loose.items()
        }

    def land(self, hold: Hold) -> None:
        """Count the workload's unbound pods; nobody is settled yet."""
        for node, parts in hold.loose.items():
            if node not in self._before:
                self._before[node] = self.free[node].copy()
            self._loose.setdefault(node, {})[hold.admitted.workload.uid] = parts
            self._reckon(node)

    def release(self, hold: Hold, *, times: int = 1) -> None:
        """The workload is gone; `times=-1` puts it back."""
        self.usage.add(hold.admitted.workload.queue, hold.charge, times=-times)
        self.vacate(hold, times=times)

    def vacate(self, hold: Hold, *, times: int = 1) -> None:
        """The same for nodes alone."""
        uid = hold.admitted.workload.uid
        for node, row in hold.bound.items():
            self.free[node] += row * times
        for node, parts in hold.loose.items():
            if times > 0:
                del self._loose[node][uid]
            else:
                self._loose[node][uid] = parts
        for node in {*hold.bound, *hold.loose} & self._before.keys():
            if node in hold.bound:
                self._before[node] = self._before[node] + hold.bound[node] * times
            self._reckon(node)

    def _reckon(self, node: int) -> None:
        before = self._before[node]
        worst = before * 0
        for parts in self._loose[node].values():
            for loose in parts:
                worst += loose.worst(before)
        self.free[node] += self._worst.get(node, 0) - worst
        self._worst[node] = worst

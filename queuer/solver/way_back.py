"""The way back to hosts that a gang keeps off, as others land there: at its turn, and once all have had theirs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from queuer.solver.apart import place_apart
from queuer.solver.greedy import Greedy, Settle
from queuer.solver.holding import restore
from queuer.solver.order import Gang
from queuer.solver.outcome import Block, Chosen, Refusal

Refused = dict[str, tuple[Gang, Refusal]]
"""By uid, in the order of the turns."""
Late = Callable[[], Sequence[Chosen]]
"""Who could not land as things are."""


def ask_back(greedy: Greedy, gang: Gang, settle: Settle, *, late: Late) -> Chosen | None:
    """The gang settled in this way on hosts that it keeps off, where all so far can land: those that come later are not
    to have its place. None = it is not, and nobody lies elsewhere than before.
    """
    before, hosts = dict(greedy.chosen), greedy.keeps_off(gang.uid)
    greedy.keep_off(gang.uid, frozenset())
    answer = settle(gang)
    if isinstance(answer, Chosen):
        if not late():
            return answer
        restore(greedy, before)
    greedy.keep_off(gang.uid, hosts)
    return None


def take_back(
    greedy: Greedy, refused: Refused, heads: Collection[str], *, late: Late, settled: Callable[[str], None]
) -> None:
    """Who kept off some hosts in vain starts on them all the same where all others still land, some elsewhere, and is
    refused no more. `heads`: gangs that others wait behind. Who is to keep off everywhere waits, too.
    """
    everywhere = len(greedy.board.frame.names)
    landing = [uid for uid, (_, refusal) in refused.items() if refusal.block is Block.LANDING]
    for uid in landing:
        given_up = len(greedy.keeps_off(uid)) == everywhere
        if given_up or uid in greedy.awaiting or uid in heads:
            continue
        before, most = dict(greedy.chosen), len(late())
        kept = {one: greedy.keeps_off(one) for one in (uid, *before)}
        greedy.keep_off(uid, frozenset())
        if isinstance(greedy.start(refused[uid][0]), Chosen):
            place_apart(greedy, late(), late)
            if len(late()) <= most:
                del refused[uid]
                settled(uid)
                continue
            restore(greedy, before)
        for one, hosts in kept.items():
            greedy.keep_off(one, hosts)

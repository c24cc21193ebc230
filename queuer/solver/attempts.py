"""Attempt after attempt at the plan of one cycle, until one puts nobody off; the best sound plan counts (DESIGN 3.5).

Gangs that cannot land beside others keep off their hosts in the next attempt, later everywhere. Where the verifier
refuses every plan, the gangs at fault wait; where it still does, they are taken out of what was planned; at last their
bonds and reservations end, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from types import MappingProxyType

from queuer.solver.attempt import Attempt, Given
from queuer.solver.outcome import Chosen
from queuer.solver.packed.worth import packed_subtrees
from queuer.solver.problem import Passes, Plan, Snapshot
from queuer.solver.salvage import listed, nothing, offenders, salvaged
from queuer.solver.score import Score, score
from queuer.solver.verify import Violation, verify
from queuer.solver.yielding import KeptOff, Yielding

SMALL_PLAN = 20_000
"""Nodes times waiting gangs above which one attempt is made only, and greedy's not beside it. After one in which
somebody that was bound before is put off there is another: others may lie where its bond holds a place.
"""
ATTEMPTS = 5
"""Attempts at most while the verifier refuses none, but for two in which those that keep off hosts are asked back."""
SEARCHED = 40_000
"""Steps of searches for victims, in the attempts at one plan so far, after which no other is made for who is put off:
about a second. With fewer more gangs are put off, with more all wait longer for decisions on small clusters.
"""
STEPS = 20_000
"""Such steps for which a unit of the exact solver's time counts here."""
ATTEMPTS_APART = 2
"""Attempts after which whoever cannot land keeps off everywhere."""
LOOKS = 4
"""Looks whether gangs land where they lie otherwise have together the exact solver's budget divided by this. In crowded
clusters of some ten gangs and nodes they find nothing nine times of ten.
"""
ANEW = 2
"""Attempts at most in which turns are played anew with the victims that came out in the end."""
RETRY = 4
"""Each attempt after the first, and that at proofs for greedy's plan, has at least the exact solver's budget divided by
this.
"""


def is_small(snapshot: Snapshot) -> bool:
    """Whether there is time to make several attempts."""
    return len(snapshot.nodes) * len(snapshot.pending) <= SMALL_PLAN


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A plan before its reasons are told, which takes time. `crowded`: who kept off what; `ask_back`: see `Attempt`;
    `late`: who would not land, and should keep off what. `improved`: whether the exact solver has looked at it.
    """

    attempt: Attempt
    plan: Plan
    crowded: KeptOff
    ask_back: bool
    late: Yielding | None
    improved: bool = False

    @property
    def waits(self) -> bool:
        """Whether somebody waits as it keeps off hosts, or would not land."""
        return self.late is not None or self.attempt.apart

    @property
    def outdated(self) -> bool:
        """Whether refusals may not hold any more, see `Attempt`."""
        return self.late is None and self.attempt.outdated


class Attempts:
    """Those at one plan. `passes`: how far all of them came. `lost`: whether the exact solver had a part in some, so
    that the plan might have been better without it; `improved`: whether better places of its were taken.
    `as_greedy`: see `Cycle`.
    """

    def __init__(self, given: Given) -> None:
        self.passes = Passes()
        self.lost = self.improved = False
        self.as_greedy = True
        self._began = self._given = given
        self._snapshot, self._now = given.arrays.snapshot, given.now
        self._crowded: KeptOff = {}
        self._waits = set[str]()
        self._attempts = 0  # none in which anybody was asked back
        self._looks = given.budget.deterministic / LOOKS
        self._taken: Draft | None = None
        self._refused = False  # whether the verifier has refused all drafts once

    def settle(self) -> Plan:
        """The best sound plan; the one that starts nobody where there is none."""
        return self._settled(self._made())

    def better(self, than: Score) -> Plan | None:
        """The same if it scores more; a draft that does not is neither verified nor told its reasons."""
        drafts = self._made()
        if self._score(drafts[0].plan) <= than:
            return None
        plan = self._settled(drafts)
        return plan if self._score(plan) > than else None

    def proven(self, given: Given) -> Plan | None:
        """The plan that `better` took, made once more with another solver; None = it scores less or is not sound, or
        what was made first was not.
        """
        before = self._taken
        if before is None or self._refused:
            return None
        draft = self._run(given, before.crowded, ask_back=before.ask_back)
        draft = self._improved(draft)
        if self._score(draft.plan) < self._score(before.plan):
            return None
        plan, wrong = self._told(draft)
        return None if wrong else plan

    def _settled(self, drafts: Sequence[Draft]) -> Plan:
        plan, wrong = self._best(drafts)
        note = ""
        if wrong:
            note = f"refused by the verifier in part: {listed(wrong)}"
            self._make_wait(offenders(self._snapshot, plan, wrong))
            plan, wrong = self._best(self._made())
        if wrong:
            plan, wrong = salvaged(self._began.arrays, plan, wrong, now=self._now, judge=self._judge)
        if wrong:
            note = f"without what was held: {listed(wrong)}"
            self._give_up(offenders(self._snapshot, plan, wrong))
            plan, wrong = self._best(self._made())
        if wrong:
            return nothing(
                self._began.arrays, now=self._now, note=f"refused by the verifier: {listed(wrong)}"
            )
        return replace(plan, stats=replace(plan.stats, note=note)) if note else plan

    def _best(self, drafts: Sequence[Draft]) -> tuple[Plan, Sequence[Violation]]:
        """The first that the verifier accepts, else the last with what is wrong with it."""
        *others, last = drafts
        for draft in others:
            plan, wrong = self._told(draft)
            if not wrong:
                return plan, ()
        return self._told(last)

    def _told(self, draft: Draft) -> tuple[Plan, Sequence[Violation]]:
        self._taken, plan = draft, draft.attempt.told(draft.plan)
        return plan, self._judge(plan)

    def _judge(self, plan: Plan) -> Sequence[Violation]:
        return verify(self._snapshot, plan, now=self._now)

    def _made(self) -> list[Draft]:
        """What comes of attempts until one puts nobody off, the best first, as the exact solver would have it; of equal
        ones the later. If somebody waits even so because it keeps off the hosts of others, later ones keep off them
        instead, or these off its own, once each. Last, while somebody waits: who keeps off hosts is asked back to them
        at its turn.
        """
        drafts: list[Draft] = []
        began, tried = dict(self._crowded), 0
        others: list[KeptOff] | None = None
        while True:
            draft = self._run(self._given_now(), dict(self._crowded))
            late = draft.late
            drafts.insert(0, draft)
            self._attempts, tried = self._attempts + 1, tried + 1
            again = self._has_time or draft.attempt.gave_back
            if self._attempts >= ATTEMPTS or not again:
                break
            if late:
                others = (late.others or None) if others is None else others
                self._keep_off(late.off, everywhere=tried > ATTEMPTS_APART)
            elif draft.attempt.apart and others:
                self._crowded, tried = _both(began, others.pop(0)), 0
            else:
                break
        if self._has_time:
            drafts += self._asked_back(drafts)
        rearranged = any(draft.plan.stats.rearranged for draft in drafts)
        self.lost |= rearranged and (len(drafts) > 1 or bool(late))
        # Greedy alone would have tried more: the time of the exact solver was counted, too.
        cut_short = is_small(self._snapshot) and self.passes.victims <= SEARCHED and not self._has_time
        self.lost |= cut_short and any(draft.waits for draft in drafts)
        if len(drafts) > 1:
            drafts.sort(key=lambda draft: self._score(draft.plan), reverse=True)
        best = self._improved(drafts[0])
        return [*self._played_anew(best), best, *drafts[1:]]

    def _played_anew(self, best: Draft) -> list[Draft]:
        """Attempts in which gangs are settled at their turns as they are in this one, or the last of these, in the end,
        where those who were refused were so beside other victims; as long as they are no worse, the last first. Packed
        subtrees select by themselves.
        """
        found: list[Draft] = []
        may = self._given.solver is not None and not packed_subtrees(self._snapshot.tree)
        while may and len(found) < ANEW and self._has_time and best.outdated:
            picks = dict(best.attempt.settled)
            draft = self._run(self._given_now(), best.crowded, ask_back=best.ask_back, picks=picks)
            draft = self._improved(draft)
            if self._score(draft.plan) < self._score(best.plan):
                break
            found.insert(0, draft)
            best = draft
        return found

    def _asked_back(self, drafts: Sequence[Draft]) -> list[Draft]:
        """Attempts in which those that keep off hosts are asked back to them: by the best of these in which somebody
        waits, and by all together, as some keep off nothing in the best.
        """
        waiting = [draft for draft in drafts if draft.waits]
        gangs = self._given.arrays.offers.gangs
        if not waiting or any(len(draft.plan.admissions) == len(gangs) for draft in drafts):
            return []
        best = max(waiting, key=lambda draft: self._score(draft.plan)).crowded
        everything = reduce(_both, (draft.crowded for draft in drafts))
        found: list[Draft] = []
        for crowded in (best, everything) if best != everything else (best,):
            if crowded.keys() - self._waits and self._has_time:
                found.append(self._run(self._given_now(), crowded, ask_back=True))
        return found

    @property
    def _has_time(self) -> bool:
        """Whether another attempt may be made."""
        searched = self.passes.victims + STEPS * self.passes.spent
        return is_small(self._snapshot) and searched <= SEARCHED

    def _run(
        self,
        given: Given,
        crowded: KeptOff,
        *,
        ask_back: bool = False,
        picks: Mapping[str, Chosen] = MappingProxyType({}),
    ) -> Draft:
        """An attempt. Where somebody would not land, it is looked at once whether all would if they lay otherwise, as
        long as there is time for such looks.
        """
        attempt = Attempt(given, crowded=crowded, waits=self._waits, ask_back=ask_back, picks=picks)
        plan, late = attempt.run()
        self.passes += attempt.passes
        self.as_greedy &= attempt.as_greedy
        draft = Draft(attempt, plan, crowded, ask_back, late)
        if late is None or self._looks <= 0:
            return draft
        looked = self._improve(draft, most=self._looks)
        self._looks -= attempt.passes.improvement
        return looked

    def _improved(self, draft: Draft) -> Draft:
        """As the exact solver would have it, in what is left of its budget; where somebody would not land as it is."""
        if draft.late or draft.improved:
            return draft
        return self._improve(draft, most=self._given_now().budget.deterministic)

    def _improve(self, draft: Draft, *, most: float) -> Draft:
        attempt = draft.attempt
        plan, better = attempt.improve(draft.plan, most=most)
        self.passes += Passes(improvement=attempt.passes.improvement)
        self.improved |= attempt.improved
        return replace(draft, plan=plan, late=None if better else draft.late, improved=True)

    def _score(self, plan: Plan) -> Score:
        return score(self._snapshot, plan, now=self._now)

    def _given_now(self) -> Given:
        """With what is left of the budget."""
        budget, spent = self._given.budget, self.passes.spent
        left = max(budget.deterministic - spent, budget.deterministic / RETRY)
        return replace(self._given, budget=replace(budget, deterministic=left))

    # What the next attempt does otherwise

    def _keep_off(self, late: KeptOff, *, everywhere: bool) -> None:
        """Whoever cannot land keeps off these hosts, too; off all where that is no news, or has not helped."""
        known = {uid: self._crowded.get(uid, frozenset()) for uid in late}
        if everywhere or all(hosts <= known[uid] for uid, hosts in late.items()):
            late = dict.fromkeys(late, self._everywhere())
        self._crowded = _both(self._crowded, late)

    def _make_wait(self, offenders: Sequence[str]) -> None:
        """They wait, and the exact solver, which may have brought them there, is not asked."""
        self._crowded |= dict.fromkeys(offenders, self._everywhere())
        self._waits |= set(offenders)
        self._given, self.lost, self._refused = replace(self._given, solver=None), True, True

    def _give_up(self, offenders: Sequence[str]) -> None:
        """As if they had no bond and no reservation. The verifier still asks for a bond that stands."""
        self._make_wait(offenders)
        left = replace(
            self._snapshot,
            bonds=tuple(b for b in self._snapshot.bonds if b.uid not in offenders),
            reservations=tuple(r for r in self._snapshot.reservations if r.uid not in offenders),
        )
        self._given = replace(self._given, arrays=replace(self._given.arrays, snapshot=left))

    def _everywhere(self) -> frozenset[str]:
        return frozenset(self._given.arrays.frame.index)


def _both(some: KeptOff, more: KeptOff) -> KeptOff:
    return {uid: some.get(uid, frozenset()) | more.get(uid, frozenset()) for uid in (*some, *more)}

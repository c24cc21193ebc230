"""The verifier's look at evictions: a bond that proves the place, victims that are permitted (DESIGN 3.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from queuer.domain.queue import Preempt, QueueState
from queuer.domain.workload import Workload
from queuer.solver.problem import Admitted, Assignment, Bond, Eviction, EvictionRule
from queuer.solver.verify.case import Case, Rule, Violation, well_formed
from queuer.solver.verify.places import free_at, planned
from queuer.solver.verify.quota import Amounts, Key, Uses, amounts_at, amounts_of, broken_limits


def check_bonds(case: Case) -> Iterator[Violation]:
    """Bonds and evictions belong together, and a bond once given is kept."""
    bonds = {b.uid: b for b in case.plan.bonds}
    evicted = {e.uid for e in case.plan.evictions}
    for eviction in case.plan.evictions:
        bond = bonds.get(eviction.beneficiary)
        if bond is None or eviction.uid not in bond.victims or eviction.beneficiary not in case.bound:
            text = f"evicted for {eviction.beneficiary}, which no bond gives a place"
            yield Violation(rule=Rule.BOND, uid=eviction.uid, text=text)
    until = {b.uid: case.until(b) for b in case.snapshot.bonds}
    for uid in case.bound:
        bond = bonds[uid]
        if bond.deadline <= case.now:
            yield Violation(rule=Rule.BOND, uid=uid, text="its bond has passed its deadline")
        if uid not in case.new and bond.deadline > until[uid] and uid in _standing(case):
            yield Violation(
                rule=Rule.BOND, uid=uid, text="its bond is prolonged, though nobody takes longer to leave"
            )
        staying = [
            v
            for v in bond.victims
            if v in case.running and not case.running[v].releasing and v not in evicted
        ]
        if staying and uid in case.new:
            yield Violation(rule=Rule.BOND, uid=uid, text=f"{staying[0]} is its victim and is not evicted")
        stuck = [v for v in bond.victims if v in case.releasing - case.vacating - evicted]
        if stuck and uid in case.new:
            text = f"{stuck[0]} is its victim, leaves for others, and is not said to be gone soon"
            yield Violation(rule=Rule.BOND, uid=uid, text=text)
        if uid in case.new and not any(v in case.running for v in case.leaving):
            yield Violation(rule=Rule.BOND, uid=uid, text="bound, though nobody leaves")
    earlier: dict[str, Sequence[Assignment]] = {}
    for bond in case.snapshot.bonds:
        if bond.uid in case.pending and case.until(bond) > case.now:
            yield from _kept(case, bond, earlier, still=bond.uid in bonds)
            if bond.uid in bonds or bond.uid in case.started:
                earlier[bond.uid] = bond.assignments


def _kept(
    case: Case, bond: Bond, earlier: Mapping[str, Sequence[Assignment]], *, still: bool
) -> Iterator[Violation]:
    if bond.uid in case.started:
        if bond.uid not in case.resumed and _stands(case, bond, earlier):
            text = "starts with other flavors or sizes than its bond holds"
            yield Violation(rule=Rule.BOND, uid=bond.uid, text=text)
    elif not still and _stands(case, bond, earlier):
        yield Violation(rule=Rule.BOND, uid=bond.uid, text="its bond was dropped, though it stands")


def _standing(case: Case) -> Sequence[str]:
    """Bonds of earlier cycles that are kept as they were: not those that had ended, though they are as before again."""
    kept: dict[str, Sequence[Assignment]] = {}
    for bond in case.snapshot.bonds:
        if bond.uid in case.bound and bond.uid not in case.new and _stands(case, bond, kept):
            kept[bond.uid] = bond.assignments
    return [*kept]


def _stands(case: Case, bond: Bond, earlier: Mapping[str, Sequence[Assignment]]) -> bool:
    """Whether what the bond holds is there at the start of the cycle, its victims and other bonds' gone. `earlier`:
    what those bonds hold that are kept and were made before it.
    """
    workload = case.workload(bond.uid)
    tree = case.snapshot.tree
    if (
        workload.hold
        or not well_formed(workload)
        or workload.queue not in tree
        or not tree.is_leaf(workload.queue)
        or tree.effective_state(workload.queue) is not QueueState.OPEN
    ):
        return False
    sets = {p.name: p for p in workload.pod_sets}
    if not (_still_asked(case, workload, bond) and _still_in_one_domain(case, workload, bond)):
        return False
    for row in bond.assignments:
        terms = case.terms(sets[row.pod_set], row.flavor)
        for name in row.nodes:
            if name not in case.states or not case.states[name].node.accepts(terms):
                return False
            if case.flavor_at(name) != row.flavor:
                return False
        if case.pending[bond.uid].avoid & set(row.nodes):
            return False
    asked = planned(case, {bond.uid: bond.assignments})
    free, held = free_at(case, asked, case.gone), planned(case, earlier)
    for name, amounts in asked.items():
        left = {r: n - held.get(name, {}).get(r, 0) for r, n in free[name].items()}
        if any(left.get(resource, 0) < amount for resource, amount in amounts.items() if amount):
            return False
    before, part = case.used_then, (workload.queue, amounts_at(workload, bond.assignments))
    after = before.copy()
    after.count(*part)
    return next(broken_limits(before, after, [part]), None) is None


def _still_asked(case: Case, workload: Workload, bond: Bond) -> bool:
    """Whether the gang still asks for what the bond holds: its pod sets, their sizes, flavors its queue allows."""
    sizes: dict[str, int] = {}
    for row in bond.assignments:
        sizes[row.pod_set] = sizes.get(row.pod_set, 0) + row.count
    if sizes.keys() - {p.name for p in workload.pod_sets}:
        return False
    for pod_set in workload.pod_sets:
        least = pod_set.count if pod_set.min_count is None else pod_set.min_count
        if not least <= sizes.get(pod_set.name, 0) <= pod_set.count:
            return False
        mine = [row for row in bond.assignments if row.pod_set == pod_set.name]
        if pod_set.exclusive_host and any(n > 1 for row in mine for n in row.nodes.values()):
            return False
        asked = [resource for resource, amount in pod_set.requests.items() if amount]
        for allowed in (case.rows.flavors_for(workload.queue, resource) for resource in asked):
            if allowed and any(row.flavor not in allowed for row in mine):
                return False
    return True


def _still_in_one_domain(case: Case, workload: Workload, bond: Bond) -> bool:
    """Whether all that must be together is in one domain still, by today's labels and levels."""
    topology = case.snapshot.topology
    levels = {p.name: p.required for p in workload.pod_sets}
    together = [(levels[row.pod_set], [*row.nodes]) for row in bond.assignments]
    together.append((workload.required, [name for row in bond.assignments for name in row.nodes]))
    for level, names in together:
        at = topology.find(level) if level is not None else None
        if level is not None and at is None:
            return False
        there = [case.states[n].node for n in names if n in case.states]
        domains = {topology.domain(node, at) for node in there if at is not None}
        if len(domains) > 1 or None in domains:
            return False
    return True


def check_victims(case: Case) -> Iterator[Violation]:
    """Each victim may be evicted at all, and by the rule that is named for its beneficiary."""
    entitled = _entitled_at_turn(case)
    judged: list[Eviction] = []
    for eviction in case.plan.evictions:
        if eviction.beneficiary not in case.bound:
            continue  # check_bonds says so
        victim = case.running[eviction.uid]
        broken = _untouchable(case, victim, eviction) or _not_permitted(
            case, victim.workload, eviction, entitled
        )
        if broken:
            yield Violation(rule=Rule.VICTIM, uid=eviction.uid, text=broken)
        else:
            judged.append(eviction)
    yield from _check_borrowers(case, judged)


def _untouchable(case: Case, victim: Admitted, eviction: Eviction) -> str:
    rest = case.snapshot.tree.policy(case.rows.path(victim.workload.queue)[0]).min_runtime or 0.0
    if not victim.workload.preemptible:
        return "is not preemptible"
    if victim.releasing:
        return "is leaving already"
    if case.now - victim.since < rest:
        return f"has run {case.now - victim.since:.0f} s of its queue's minRuntime {rest:.0f} s"
    bonds = case.bonds_of.get(eviction.uid, ())
    if any(eviction.beneficiary in b.victims for b in bonds) or eviction.uid in _displacers(
        case, eviction.beneficiary
    ):
        return f"displaced {eviction.beneficiary} itself"
    return ""


def _displacers(case: Case, uid: str) -> set[str]:
    """For whose sake it was last evicted, and for whose sake that one was, as long as they wait or run."""
    found, asked = set[str](), {uid}
    while asked:
        rows = [case.pending.get(one) or case.running.get(one) for one in asked]
        asked = {one for row in rows if row is not None for one in row.displaced_by} - found
        found |= asked
    return found


def _not_permitted(
    case: Case, victim: Workload, eviction: Eviction, entitled: Mapping[str, frozenset[str]]
) -> str:
    tree, gang = case.snapshot.tree, case.workload(eviction.beneficiary)
    common = _common(case, gang.queue, victim.queue)
    if eviction.rule is EvictionRule.RECLAIM:
        if common in (gang.queue, victim.queue):
            return f"reclaim is between queues, both are in {common}"
        if not tree.policy(gang.queue).reclaim:
            return f"reclaim is off for {gang.queue}"
        at = _toward(case, gang.queue, common)
        if at not in entitled[gang.uid]:
            return f"{gang.uid} is not entitled at {at}"
        return ""
    if not victim.priority < gang.priority:
        return f"its priority {victim.priority} is not below {gang.priority}"
    policy = tree.policy(common).preempt
    if policy is Preempt.NEVER or (gang.queue != victim.queue and policy is not Preempt.LOWER_PRIORITY):
        return f"{common} says preempt: {policy}"
    return ""


def _common(case: Case, left: str, right: str) -> str:
    above = set(case.rows.path(right))
    return next(path for path in case.rows.path(left) if path in above)


def _toward(case: Case, queue: str, ancestor: str) -> str:
    """The child of `ancestor` on the way to `queue`."""
    path = case.rows.path(queue)
    return path[path.index(ancestor) - 1]


def _entitled_at_turn(case: Case) -> Mapping[str, frozenset[str]]:
    """Where each beneficiary was entitled at its turn, by uid: with what was used at the start of the cycle, held for
    bonds, and decided before it.
    """
    named = {e.beneficiary for e in case.plan.evictions} & set(case.bound)
    found: dict[str, frozenset[str]] = {}
    uses = case.uses(bonds=_standing(case) if named else ())
    for uid in case.in_turn:
        if len(found) == len(named):
            break
        queue, asks = case.part(uid)
        if uid in named:
            found[uid] = uses.entitled_on(queue, asks)
        uses.count(queue, asks)
    return found


def _check_borrowers(case: Case, evictions: list[Eviction]) -> Iterator[Violation]:
    """Every queue that loses a workload to another is above its guarantee at that moment, all that is releasing gone.

    There must be an order in which the victims can go, those of the gang's own queue last of all. Who may
    go last, with all others gone, may go last in any such order (fewer gone before the others helps them),
    so the order is found from its end.
    """
    if not evictions:
        return
    new = {e.uid for e in case.plan.evictions}
    uses = case.uses(without=(case.leaving | case.releasing) - new)
    for uid in case.started:
        uses.count(*case.part(uid))
    across = [
        e for e in evictions if case.running[e.uid].workload.queue != case.workload(e.beneficiary).queue
    ]
    lines = {e.uid: _lines(case, case.running[e.uid], e) for e in across}
    for eviction in across:
        uses.count(*_charged(case.running[eviction.uid]), times=-1)
    while across:
        last = next((e for e in across if _borrows(lines[e.uid], uses)), None)
        if last is None:
            for eviction in across:
                text = f"{case.running[eviction.uid].workload.queue} would not be above its guarantee when it goes"
                yield Violation(rule=Rule.VICTIM, uid=eviction.uid, text=text)
            return
        across.remove(last)
        uses.count(*_charged(case.running[last.uid]))


def _charged(victim: Admitted) -> tuple[str, Amounts]:
    return victim.workload.queue, amounts_of(victim.workload, victim.counts, victim.flavors)


def _lines(case: Case, victim: Admitted, eviction: Eviction) -> list[list[tuple[str, Key, int]]]:
    """For each account that may permit it, of those in which it holds some: what every queue must use beside the victim
    so that it is above its guarantee with it. Where nothing is guaranteed, all of it is above.
    """
    gang = case.workload(eviction.beneficiary)
    queue = victim.workload.queue
    path = case.rows.path(queue)
    below = path[: path.index(_common(case, gang.queue, queue))]
    asks = case.part(gang.uid)[1]
    own = _charged(victim)[1]
    keys: list[Key]
    if eviction.rule is EvictionRule.RECLAIM:
        keys = case.rows.claims(gang.queue, asks)
    else:
        keys = case.rows.claims(queue, asks)
        if not keys:
            return [[]]
    return [[(p, k, case.rows.guaranteed(p, k) - own[k]) for p in below] for k in keys if own.get(k)]


def _borrows(lines: list[list[tuple[str, Key, int]]], rest: Uses) -> bool:
    """Whether the victim's queues are above their guarantee with it counted beside `rest`."""
    return any(all(rest.used(path, key) > least for path, key, least in line) for line in lines)

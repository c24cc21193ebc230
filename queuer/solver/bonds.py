"""Bonds that stand at the start of a cycle: held, or started where their placement is free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from queuer.domain.assignments import Assignment, Bond
from queuer.domain.quota import charge_for
from queuer.domain.workload import PodSet, Workload
from queuer.solver.nodes import Mask, fits
from queuer.solver.placement import Spread, Variant
from queuer.solver.shapes import Gang
from queuer.solver.state import Settled, State


def resume(state: State) -> dict[str, Bond]:
    """Put the standing bonds into the state and start those that can. Returns those that are held still, by uid.

    A bond ends at its deadline, with its gang, or with its placement. Its gang then takes its turn like any other.
    A node that is not ready is waited for until the deadline: its victims have been sent away already.
    Victims that are known to take longer to leave prolong it. None waits for one behind it: should that lose its place,
    it ends.
    """
    held: dict[str, tuple[Bond, Settled]] = {}
    standing = [
        bond for bond in map(partial(prolonged, state), state.snapshot.bonds) if bond.deadline > state.time
    ]
    for uid in dict.fromkeys(victim for bond in standing for victim in bond.victims):
        if uid in state.running and state.running[uid].admitted.releasing and uid not in state.leaving:
            state.leave(uid)
    for bond in standing:
        gang = state.arrays.waiting.gangs.get(bond.uid)
        settled = None if gang is None else restored(state, gang, bond.assignments, unready=True)
        if settled is None:
            continue
        if fits(state.free_later, state.rows(settled)):
            state.bind(settled)
            held[bond.uid] = (bond, settled)
    before, waiting = np.zeros(len(state.nodes.names), dtype=bool), dict[str, Bond]()
    for uid, (bond, settled) in held.items():
        if not _start_if_free(state, settled, before):
            waiting[uid] = bond
            before[list(settled.hosts)] = True
    return waiting


def prolonged(state: State, bond: Bond) -> Bond:
    """With a deadline after which those it waits for are known to have gone."""
    going = (state.running[uid].admitted.gone_by for uid in bond.victims if uid in state.running)
    return replace(bond, deadline=max([bond.deadline, *(at for at in going if at is not None)]))


def _start_if_free(state: State, settled: Settled, before: Mask) -> bool:
    """Start the gang of a bond in its placement, if that is free now. Its quota is held; only what is used is in its
    way. Its hosts are closed to all others where only pods that land there are in its way, or bonds `before` it (N).
    """
    mark, rows, workload = state.mark, state.rows(settled), settled.gang.workload
    state.unbind(settled)
    flavors, spreads = settled.variant.flavors, settled.spreads
    free = fits(state.free_now, rows) and fits(state.free_later, rows) and _is_open(state, settled)
    free = free and state.used_now.fits(workload.queue, settled.charge)
    if free and state.landing.may_start(workload, flavors, spreads, held=before):
        state.start(replace(settled, bound=False))
        return True
    state.undo(mark)
    if free:
        state.close(settled)
    return False


def _is_open(state: State, settled: Settled) -> bool:
    """Whether all nodes of its placement take its pods now."""
    flavors, spreads = settled.variant.flavors, settled.spreads
    return all(
        state.nodes.open_to(p, flavors[p.name])[list(spreads[p.name])].all()
        for p in settled.gang.workload.pod_sets
        if p.name in spreads
    )


def restored(
    state: State, gang: Gang, rows: Sequence[Assignment], *, unready: bool = False
) -> Settled | None:
    """A placement of an earlier cycle as a bound gang; None where it no longer fits gang, queue or nodes.

    `unready`: its nodes may be not ready now, but not cordoned.
    """
    nodes, workload = state.nodes, gang.workload
    by_set = {row.pod_set: row for row in rows}
    spreads: dict[str, Spread] = {}
    for pod_set in workload.pod_sets:
        row = by_set.pop(pod_set.name, None)
        if row is None:
            continue
        if row.flavor not in nodes.flavors or not _usable(state, gang, pod_set, row, unready):
            return None
        spreads[pod_set.name] = {nodes.index[name]: count for name, count in row.nodes.items()}
    counts = {p.name: sum(spreads.get(p.name, {}).values()) for p in workload.pod_sets}
    flavors = {row.pod_set: row.flavor for row in rows}
    if by_set or not _sized(gang, flavors, counts) or not in_domains(state, workload, spreads):
        return None
    charge = charge_for(workload, flavors, counts)
    variant = Variant(flavors=flavors, counts=counts)
    return Settled(gang=gang, variant=variant, charge=charge, spreads=spreads, bound=True)


def _usable(state: State, gang: Gang, pod_set: PodSet, row: Assignment, unready: bool) -> bool:
    """Whether all nodes of a row are there and take its pods, if need be once they are ready."""
    nodes, avoid = state.nodes, gang.pending.avoid
    accepting = nodes.open_to(pod_set, row.flavor, idle=unready)
    return all(
        name in nodes.index
        and accepting[nodes.index[name]]
        and not nodes.snapshot.nodes[nodes.index[name]].node.unschedulable
        and name not in avoid
        and not (pod_set.exclusive_host and count > 1)
        for name, count in row.nodes.items()
    )


def _sized(gang: Gang, flavors: Mapping[str, str], counts: Mapping[str, int]) -> bool:
    """Whether the gang may have these flavors at these sizes."""
    sized = all(p.least <= counts[p.name] <= p.count for p in gang.workload.pod_sets)
    return sized and any(
        all(variant.flavors[name] == flavor for name, flavor in flavors.items())
        for variant in gang.shape.variants
    )


def in_domains(state: State, workload: Workload, spreads: Mapping[str, Spread]) -> bool:
    """Whether a placement lies in one domain wherever one is required."""
    everywhere = [node for spread in spreads.values() for node in spread]
    asked = [(workload.required, everywhere)]
    asked += [(p.required, list(spreads.get(p.name, {}))) for p in workload.pod_sets]
    for level, hosts in asked:
        if level is None or not hosts:
            continue
        at = state.snapshot.topology.find(level)
        if at is None:
            return False
        domains = state.nodes.domains[at][hosts]
        if (domains < 0).any() or (domains != domains[0]).any():
            return False
    return True

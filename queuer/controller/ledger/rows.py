"""The solver's records as the store's rows, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from queuer.controller.logs import logger
from queuer.controller.memory.live import Live, Placement
from queuer.domain.assignments import Assignment, Bond, Reservation
from queuer.domain.nodes import Node, Topology
from queuer.domain.workload import Workload, demand_of
from queuer.store.cycles import Charge, StoredBond, StoredReservation
from queuer.store.inherited import StoredAdmission
from queuer.store.workloads import StoredWorkload

log = logger("rows")


def assignment_json(assignment: Assignment) -> dict[str, Any]:
    """An assignment as the store and REST show it."""
    return {
        "podSet": assignment.pod_set,
        "flavor": assignment.flavor,
        "nodes": dict(assignment.nodes),
        "selector": dict(assignment.selector),
        "hosts": None if assignment.hosts is None else list(assignment.hosts),
    }


def assignment_of(value: Mapping[str, Any]) -> Assignment:
    """The inverse of `assignment_json`."""
    return Assignment(
        pod_set=value["podSet"],
        flavor=value["flavor"],
        nodes=value["nodes"],
        selector=value["selector"],
        hosts=None if value["hosts"] is None else tuple(value["hosts"]),
    )


def charges(
    workload: Workload, assignments: Iterable[Assignment], *, held: Mapping[str, int] = MappingProxyType({})
) -> tuple[Charge, ...]:
    """What the ledger opens for an admission: one row per pod set. `held`: pods of a set, where not all are charged."""
    sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
    counts = {a.pod_set: held.get(a.pod_set, a.count) for a in assignments}
    return tuple(
        Charge(
            pod_set=a.pod_set,
            flavor=a.flavor,
            count=counts[a.pod_set],
            amounts=demand_of((sets[a.pod_set],), counts),
        )
        for a in assignments
    )


def domains(
    assignments: Iterable[Assignment], *, nodes: Mapping[str, Node], topology: Topology
) -> tuple[str, ...]:
    """The domains of the narrowest level above hosts that the plan uses, as `b1/r02`.

    () where none is declared.
    """
    level = len(topology.keys) - 2
    if level < 0:
        return ()
    used = {name for a in assignments for name in a.nodes if name in nodes}
    paths = (topology.domain(nodes[name], level) for name in used)
    return tuple(sorted({"/".join(path) for path in paths if path is not None}))


def bond_row(bond: Bond) -> StoredBond:
    """A bond as the store keeps it."""
    return StoredBond(
        uid=bond.uid,
        assignments=tuple(map(assignment_json, bond.assignments)),
        victims=bond.victims,
        deadline=bond.deadline,
    )


def bond_of(row: StoredBond) -> Bond:
    """The inverse of `bond_row`."""
    return Bond(
        uid=row.uid,
        assignments=tuple(map(assignment_of, row.assignments)),
        victims=row.victims,
        deadline=row.deadline,
    )


def reservation_row(reservation: Reservation) -> StoredReservation:
    """A reservation as the store keeps it."""
    return StoredReservation(
        uid=reservation.uid,
        assignments=tuple(map(assignment_json, reservation.assignments)),
        start=reservation.start,
        expires=reservation.expires,
    )


def reservation_of(row: StoredReservation) -> Reservation:
    """The inverse of `reservation_row`."""
    return Reservation(
        uid=row.uid,
        assignments=tuple(map(assignment_of, row.assignments)),
        start=row.start,
        expires=row.expires,
    )


def _placement(admission: StoredAdmission, held: Mapping[str, int]) -> Placement:
    """One of which the assignments cannot be read has none. It counts in full then, for nobody knows what it holds."""
    at: dict[str, Any] = {
        "id": admission.id,
        "epoch": admission.epoch,
        "cycle": admission.cycle,
        "at": admission.at,
    }
    try:
        found = Placement(**at, assignments=tuple(map(assignment_of, admission.assignments)))
        charged = {name: held.get(name, count) for name, count in found.counts.items()}
    except (AttributeError, KeyError, TypeError) as error:
        log.error("admission not understood", workload=admission.uid, said=repr(error))
        return Placement(**at, assignments=())
    return found if charged == found.counts else replace(found, reduced=charged)


def live_of(
    stored: StoredWorkload,
    admission: StoredAdmission | None,
    *,
    displacer: str | None,
    evictions: tuple[float, ...] = (),
    held: Mapping[str, int] = MappingProxyType({}),
) -> Live:
    """A workload as memory held it before the restart. `displacer`: for whose sake it was last evicted; `evictions`:
    see `Live`; `held`: see `ledger.load_held`. A pod set whose row is missing is charged in full: that is drift.

    When its PATCH was sent and its pods landed is read from the cluster again; a landing deadline starts
    anew.
    """
    setback = stored.setback
    placement = None if admission is None else _placement(admission, held)
    return Live(
        workload=stored.workload,
        state=stored.state,
        attempt=stored.attempt,
        placement=placement,
        explanation=stored.explained,
        barred=stored.barred,
        landed=stored.landed_at,
        running=stored.landed_at,
        avoid=setback.avoid,
        failures=setback.failures,
        rest=setback.rest,
        first=setback.first,
        displaced_by=frozenset() if displacer is None else frozenset({displacer}),
        evictions=evictions,
        deleted=stored.deleted_at is not None,
        override=stored.override,
    )

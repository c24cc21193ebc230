"""The sizes that the benches of one decision are run at: how they are given, and what is drawn for them."""

from __future__ import annotations

import argparse

from bench import arguments
from bench.instances import Mix, instance
from queuer.solver.records import Snapshot


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Options for the size of an instance."""
    parser.add_argument("--nodes", type=arguments.positive, default=640, help="nodes with 8 GPUs each")
    parser.add_argument("--pending", type=arguments.count, default=10_000, help="waiting workloads")
    parser.add_argument("--queues", type=arguments.positive, default=300, help="leaves of the queue tree")
    parser.add_argument("--mix", type=arguments.word(Mix), choices=list(Mix), default=Mix.MIXED)
    parser.add_argument("--fill", type=arguments.fraction, default=0.97, help="part of the GPUs in use")


def drawn(given: argparse.Namespace, *, seed: int, more: int = 0) -> Snapshot:
    """The instance of the size that was given, with `more` waiting workloads."""
    return instance(
        nodes=given.nodes,
        pending=given.pending + more,
        queues=given.queues,
        mix=given.mix,
        fill=given.fill,
        seed=seed,
    )

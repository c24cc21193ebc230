"""kube-scheduler binds every started gang whole on random fragmented clusters, with the shipped and the
default profile. Pods come all at once and in any order, while gangs of an earlier decision still land.
"""

from __future__ import annotations

from queuer.local.cluster import Cluster
from tests.e2e.landing import land, plain_scheduler


def test_every_admitted_gang_lands(cluster: Cluster) -> None:
    with plain_scheduler(cluster):
        outcome = land(cluster, range(10))
    assert outcome.failures == []
    assert outcome.counts["cases"] == 20
    assert outcome.counts["spread"] >= 20, "gangs whose pods have a choice of hosts"
    assert outcome.counts["shared"] >= 8, "hosts to which pods of several gangs may come"
    assert outcome.counts["bound"] >= 20, "pods that had landed when the second decision was made"

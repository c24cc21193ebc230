"""The sentence of each reason says what is lacking, with the numbers that programs get. Stored sentences read
back.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from queuer.domain.reasons import Reason, Token, Verdict, simple
from queuer.domain.reasons.job_sentences import deferred
from queuer.domain.reasons.table import ROWS, _no_sentence

ROW = {"queue": "root.a", "resource": "gpu", "asks": 3, "limit": 4, "used": 2, "held": 0, "guaranteed": 0}
PODS = {"podSet": "main", "count": 6, "per": {"gpu": 1, "memory": 2**30}, "fits": 4, "missing": 2}
HEAD = {"owner": "u1", "name": "big", "namespace": "d", "ownerQueue": "root.a"}
SOMEBODY = {"ownerQueue": "root.a"}
NOWHERE = {"queue": "root.a", "podSet": "main", "flavors": ["y"], "nodes": 0}
V, W, X = ({**HEAD, "name": name} for name in "vwx")
BOND: dict[str, Any] = {"victims": 1, "hosts": ["n0"], "deadline": 9.0, "left": 1, "jobs": [V]}
LOST = {"resource": "x.com/gpu", "amount": 1500, "all": 1500, "next": None, "proved": True}
T = Token
MADE: list[tuple[Token, dict[str, Any], str]] = [
    (T.WAITING_FOR_QUOTA, ROW, "root.a uses 2 of 4 gpu (the limit); this job asks 3."),
    (T.BORROWING_LIMIT_REACHED,
     {**ROW, "resource": "cpu", "flavor": "x", "limit": 2500, "used": 2000, "asks": 1000, "atLeast": True},
     "root.a uses 2 of 2.5 cpu on x (the limit); this job asks at least 1."),
    (T.WAITING_FOR_QUOTA,
     {**ROW, "queue": "root", "flavor": "default", "leaving": 1, "held": 2, "kept": 1, "live": True},
     "root uses 2 of 4 gpu (the live capacity), 1 of these is leaving, 2 more are held for jobs that start when others "
     "have left, 1 is kept for queues that do not lend it; this job asks 3."),
    (T.WAITING_FOR_QUOTA, {name: n for name, n in ROW.items() if name != "limit"} | {"guaranteed": 4},
     "Work that is not preemptible does not borrow: root.a uses 2 of its guaranteed 4 gpu; this job asks 3."),
    (T.EXCEEDS_MAX_QUOTA, {"queue": "root.a", "asked": {"gpu": 3}},
     "Work that is not preemptible starts only inside a guarantee: this job asks 3 gpu; root.a is guaranteed none of "
     "that."),
    (T.EXCEEDS_MAX_QUOTA, {"queue": "root.a", "asked": {}},
     "Work that is not preemptible starts only inside a guarantee: this job asks for pods alone; root.a is guaranteed "
     "none of that."),
    (T.EXCEEDS_MAX_QUOTA, {"queue": "root.a", "resource": "memory", "asks": 2**33, "limit": 2**32},
     "Asks 8 GiB memory; root.a may never use more than 4 GiB."),
    (T.EXCEEDS_MAX_QUOTA, {"queue": "root", "resource": "gpu", "asks": 17, "limit": 16, "live": True},
     "Asks 17 gpu; the cluster has 16."),
    (T.EXCEEDS_MAX_QUOTA,
     {"queue": "root.p", "resource": "gpu", "asks": 6, "limit": 10, "kept": 5, "left": 5, "missing": 1},
     "Asks 6 gpu; even when nothing runs 5 of the 10 of root.p (the limit) are left, as 5 are not lent. It could start "
     "if 1 more were lent, or if it asked for 5 at most."),
    (T.TOPOLOGY_PLACEMENT_FAILED, {**PODS, "level": "rack", "domain": "r0"},
     "main needs room for 6 pods of 1 gpu, 1 GiB memory in one rack; 4 fit in the best rack, r0, 2 are missing."),
    (T.TOPOLOGY_PLACEMENT_FAILED, {**PODS, "count": 1, "fits": 0, "missing": 1, "per": {"gpu": 5}},
     "main needs room for 1 pod of 5 gpu; none fits on any usable node."),
    (T.TOPOLOGY_PLACEMENT_FAILED, {**PODS, "per": {"gpu": 1}, "unstartable": True, "level": "rack", "domain": "r0"},
     "main needs room for 6 pods of 1 gpu in one rack; even with every node idle 4 would fit in the best rack, r0, 2 "
     "would be missing."),
    (T.TOPOLOGY_PLACEMENT_FAILED, {**PODS, "per": {"gpu": 1}, "level": "rack", "fits": 0},
     "main needs room for 6 pods of 1 gpu in one rack; no usable node carries the label of level rack."),
    (T.TOPOLOGY_PLACEMENT_FAILED, {**PODS, "fits": 6, "missing": 0, "together": "host", "sets": [
        {"podSet": "main", "count": 6, "per": {"gpu": 1}}, {"podSet": "b", "count": 1, "per": {"memory": 2**30}}]},
     "main needs room for 6 pods of 1 gpu; b needs room for 1 pod of 1 GiB memory; all of these in one host: there is "
     "room for each alone, none was found for all together."),
    (T.NODES_UNAVAILABLE, {"podSet": "main", "nodes": 4, "cordoned": 1, "notReady": 2, "avoided": 1},
     "None of the 4 nodes for main can be used: 1 cordoned, 2 not ready, 1 avoided after a failed landing."),
    (T.NODES_UNAVAILABLE, {"podSet": "main", "nodes": 1, "cordoned": 0, "notReady": 1, "avoided": 0},
     "The only node for main is not ready."),
    (T.NODES_UNAVAILABLE, {**NOWHERE, "flavors": []}, "The cluster has no nodes."),
    (T.NODES_UNAVAILABLE, NOWHERE, "The cluster has no node of the flavors that root.a allows: y."),
    (T.NO_MATCHING_FLAVOR, {**NOWHERE, "flavors": ["x", "y"], "nodes": 2},
     "None of the 2 nodes of x, y accepts the selectors and tolerations of main."),
    (T.NO_MATCHING_FLAVOR, {**NOWHERE, "flavors": ["x"], "nodes": 2, "taints": ["spot"]},
     "None of the 2 nodes of x accepts the selectors and tolerations of main: it does not tolerate spot."),
    (T.NO_MATCHING_FLAVOR, {**NOWHERE, "flavors": []}, "root.a allows no flavor for all that main asks for."),
    (T.MISCONFIGURED, {"level": "zone", "levels": ["rack", "host"]},
     "There is no topology level zone; levels: rack, host."),
    (T.BEHIND_IN_QUEUE, {**HEAD, "queue": "root.a"},
     "d/big is ahead of it in root.a, whose order is strict, and waits."),
    (T.BEHIND_IN_QUEUE, {**HEAD, "queue": "root.a", "headUnstartable": True, "why": "Asks 5 gpu; root.a has 4."},
     "d/big is ahead of it in root.a, whose order is strict, and can never start; change, hold or delete it: Asks 5 "
     "gpu; root.a has 4."),
    (T.BEHIND_IN_QUEUE, {**HEAD, "nodes": 10, "others": 2},
     "d/big holds a reservation of 10 nodes that this job would break, as well as 2 others."),
    (T.BEHIND_IN_QUEUE, {**HEAD, "landing": True, "host": "n0", "others": 1},
     "It fits but for pods of d/big and of 1 other job that are still landing on n0; it is tried again when they are "
     "bound."),
    (T.BEHIND_IN_QUEUE, {**SOMEBODY, "queue": "root.a"},
     "A job of root.a is ahead of it in root.a, whose order is strict, and waits."),
    (T.BEHIND_IN_QUEUE, {**SOMEBODY, "queue": "root.a", "headUnstartable": True},
     "A job of root.a is ahead of it in root.a, whose order is strict, and can never start; who owns it or administers "
     "the queue must change, hold or delete it."),
    (T.BEHIND_IN_QUEUE, {**SOMEBODY, "nodes": 1, "others": 0},
     "A job of root.a holds a reservation of 1 node that this job would break."),
    (T.BEHIND_IN_QUEUE, {**SOMEBODY, "landing": True, "others": 0},
     "It fits but for pods of a job of root.a that are still landing; it is tried again when they are bound."),
    (T.WAITING_FOR_PREEMPTED_WORKLOADS, {**BOND, "left": 3, "jobs": [SOMEBODY, V, SOMEBODY]},
     "1 node is held for it; it starts when the pods of d/v, 2 jobs of root.a have left."),
    (T.WAITING_FOR_PREEMPTED_WORKLOADS, BOND, "1 node is held for it; it starts when the pods of d/v have left."),
    (T.WAITING_FOR_PREEMPTED_WORKLOADS,
     {**BOND, "hosts": ["n0", "n1"], "left": 5, "jobs": [V, W, X], "lost": LOST},
     "2 nodes are held for it; it starts when the pods of 5 workloads have left: d/v, d/w, d/x and others. Evictions "
     "for it lose 1,500 gpu-seconds of work: the least lost work that makes room (proved on the nodes looked at)."),
    (T.WAITING_FOR_PREEMPTED_WORKLOADS, {**BOND, "lost": {**LOST, "next": 1600, "proved": False, "jobs": 3}},
     "1 node is held for it; it starts when the pods of d/v have left. Evictions for it lose 1,500 gpu-seconds of "
     "work: the best found in the time there was, for 3 jobs together; the next best set looked at "
     "would lose 1,600 gpu-seconds."),
    (T.WAITING_FOR_PREEMPTED_WORKLOADS, {**BOND, "left": 0, "jobs": []},
     "1 node is held for it; the workloads that it waited for have left, and it starts when nothing else is in the way "
     "there."),
    (T.PENDING_EVALUATION, {"freed": "quota"},
     "Quota that it needed at its turn has been given back in this cycle; the next cycle decides."),
    (T.SOLVER_DEFERRED, {"cause": "Plan"},
     "This cycle came to no decision about it; the next one tries again."),
]  # fmt: skip


@pytest.mark.parametrize(("token", "params", "text"), MADE)
def test_each_form_has_its_sentence(token: Token, params: dict[str, Any], text: str) -> None:
    assert Reason(token, params).text == text


@pytest.mark.parametrize(("token", "params", "text"), MADE)
def test_what_is_stored_reads_back_as_the_same_reason(
    token: Token, params: dict[str, Any], text: str
) -> None:
    """Or a restart would write all of them once more."""
    made = Reason(token, params)
    stored = json.loads(json.dumps(made.shown))
    again = Reason.read(token, text, stored)
    assert again == made
    assert (again.text, again.shown) == (text, stored)


def test_programs_get_quantities() -> None:
    params = {**ROW, "resource": "cpu", "asks": 1500, "limit": 4000}
    assert Reason(Token.WAITING_FOR_QUOTA, params).shown == {
        "queue": "root.a",
        "resource": "cpu",
        "asks": "1500m",
        "limit": "4",
        "used": "2m",
        "held": "0",
        "guaranteed": "0",
    }


def test_a_sentence_that_was_said_stays_with_parameters_as_they_are() -> None:
    """Also where these could be read as amounts, or are none."""
    for params in ({"resource": "cpu", "limit": "8"}, {"resource": "cpu", "limit": "many"}, {}):
        said = Reason(token=Token.WAITING_FOR_QUOTA, said="Ask again.", params=params)
        assert (said.text, said.shown) == ("Ask again.", params)
        assert Reason.read(said.token, said.text, said.shown) == said
    assert simple(Token.ON_HOLD, "It is on hold.", by="x").primary.text == "It is on hold."


@pytest.mark.parametrize("token", list(Token))
def test_of_parameters_of_another_form_the_meaning_is_told(token: Token) -> None:
    """As a reason that another version stored may have. Some sentences always come with the reason."""
    row = ROWS[token]
    wanted = "" if row.sentence in (_no_sentence, deferred) else row.meaning
    assert Reason(token, {"level": 3, "cause": 3, "freed": 3}).text == wanted


def test_the_verdict_is_of_the_token_or_of_what_can_never_be() -> None:
    assert Reason(Token.TOPOLOGY_PLACEMENT_FAILED, PODS).verdict is Verdict.WAIT
    assert Reason(Token.TOPOLOGY_PLACEMENT_FAILED, {**PODS, "unstartable": True}).verdict is Verdict.CHANGE
    assert Reason(Token.BEHIND_IN_QUEUE, {**HEAD, "headUnstartable": True}).verdict is Verdict.CHANGE

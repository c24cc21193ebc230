"""The QueueTree document says exactly what is wrong with it, and survives the round trip."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuer.domain.document import POLICY, TreeDocument, export, parse, parse_flavor, parse_queue
from queuer.domain.errors import InvalidInput
from queuer.domain.fields import format_duration, parse_duration
from queuer.domain.nodes import HOSTNAME, Flavor, Toleration, Topology
from queuer.domain.quantity import MAX_AMOUNT
from queuer.domain.queue import (
    Access,
    Order,
    PerUser,
    Policy,
    Preempt,
    Queue,
    QueueState,
    QueueTree,
    QuotaRow,
    Sharing,
)
from queuer.domain.routing import RoutingRule
from queuer.solver.faults import faults_of_tree

HEAD = {"apiVersion": "queuer.dev/v1", "kind": "QueueTree"}


def problems(document: object) -> list[str]:
    """The faults that `parse` finds, as `field: message (hint)`."""
    with pytest.raises(InvalidInput) as caught:
        parse(document)
    return [str(problem) for problem in caught.value.problems]


def test_a_field_without_a_name_is_named_too() -> None:
    assert problems({**HEAD, "queues": {"root": {}}, "": 1})[0].startswith('"": unknown field')


def test_every_wrong_field_is_named_at_once() -> None:
    """One reading shows all mistakes, each with its path and the nearest right name."""
    found = problems(
        {
            "apiVersion": "queuer.dev/v2",
            "kind": "QueueTree",
            "purge": True,
            "root": "root.a",
            "queues": {
                "root.b": None,
                "root.a": {
                    "wieght": 2,
                    "weight": 0,
                    "state": "opened",
                    "namespaces": "team-a",
                    "placement": [{"users": ["eve"], "queue": "root.a.b"}, {"user": 1}],
                    "policy": {"order": "fifo", "minRuntime": 300, "reclaim": "yes", "reservations": -1},
                    "access": {
                        "maxPriority": "system-node-critical",
                        "maxPending": 0,
                        "user": ["eve"],
                        "users": ["eve", "eve"],
                        "groups": ["a\nb", 7],
                        "maxRuntime": "1ms",
                        "perUser": {"limits": {"nvidia.com/gpu": "1.5"}, "maxRunning": 0, "maxJobs": 1},
                    },
                    "quota": [
                        {"resource": "cpu", "limit": "many"},
                        {"flavor": "h100", "guaranteed": 8},
                        {"resource": "memory"},
                        {"resource": "nvidia.com/gpu", "guarantee": 8, "limit": -1},
                        "8 GPUs",
                    ],
                },
            },
            "flavors": [{"nodeLabels": {"gpu": 1}}, {"name": "x"}, {"name": "x"}],
            "topology": {"levels": ["rack", "rack"]},
        }
    )
    assert found == [
        "purge: unknown field (did you mean prune?)",
        "apiVersion: 'queuer.dev/v2' is not queuer.dev/v1 (write apiVersion: queuer.dev/v1)",
        "flavors: is not below root.a (widen `root` or leave it out)",
        "topology: is not below root.a (widen `root` or leave it out)",
        "queues.root.b: is not below root.a (widen `root` or leave the queue out)",
        "queues.root.a.wieght: unknown field (did you mean weight?)",
        "queues.root.a.weight: 0.0 is not above 0",
        'queues.root.a.quota[0].limit: \'many\' is not a quantity (write e.g. 8, "500m" or "64Gi")',
        "queues.root.a.quota[1].resource: is missing",
        "queues.root.a.quota[2]: says no amount (give guaranteed, limit or lend)",
        "queues.root.a.quota[3].guarantee: unknown field (did you mean guaranteed?)",
        "queues.root.a.quota[3].limit: -1 is negative (use 0 or more)",
        "queues.root.a.quota[4]: a mapping is needed, got a text",
        "queues.root.a.policy.order: 'fifo' is not one of the words (known: packed, priority, strict)",
        "queues.root.a.policy.reclaim: true or false is needed, got 'yes'",
        'queues.root.a.policy.minRuntime: 300 is not a duration (write e.g. "300s", "5m" or "1h30m")',
        "queues.root.a.policy.reservations: a whole number from 0 to 2^62 is needed, got -1",
        "queues.root.a.access.user: unknown field (did you mean users?)",
        "queues.root.a.access.users: eve is there twice (keep one of them)",
        "queues.root.a.access.groups[1]: a text is needed, got a number",
        "queues.root.a.access.groups[0]: 'a\\nb' is not a name (write it in one line)",
        "queues.root.a.access.maxPriority: system-node-critical never orders a queued job (name a class of your own)",
        "queues.root.a.access.maxRuntime: no job ends within that (write 1s or more)",
        "queues.root.a.access.maxPending: a whole number from 1 to 2^62 is needed, got 0",
        "queues.root.a.access.perUser.maxJobs: unknown field (known: limits, maxRunning)",
        "queues.root.a.access.perUser.limits.nvidia.com/gpu: '1.5' is no whole number, "
        "and nvidia.com/gpu is counted in pieces (write 1 or 2)",
        "queues.root.a.access.perUser.maxRunning: a whole number from 1 to 2^62 is needed, got 0",
        "queues.root.a.namespaces: a list is needed, got a text",
        "queues.root.a.placement[0].users: unknown field (did you mean user?)",
        "queues.root.a.placement[1].queue: is missing",
        "queues.root.a.placement[1].user: a text is needed, got 1",
        "queues.root.a.state: 'opened' is not one of the words (did you mean open?)",
        "flavors[0].name: is missing",
        "flavors[0].nodeLabels.gpu: a text is needed, got a number (put it in quotes)",
        "flavors[2].name: second flavor x",
        "topology.levels: label key rack occurs twice",
        "topology.levels: level name rack occurs twice",
    ]


MOST, TOO_MUCH = str(MAX_AMOUNT), 10**400
NUMBERS = [
    ("weight", {"weight": MAX_AMOUNT}, {"weight": TOO_MUCH}),
    ("weight", {"weight": float(MAX_AMOUNT)}, {"weight": 1e300}),
    (
        "quota[0].limit",
        {"quota": [{"resource": "x", "limit": MOST}]},
        {"quota": [{"resource": "x", "limit": "9E"}]},
    ),
    ("policy.reservations", {"policy": {"reservations": MAX_AMOUNT}}, {"policy": {"reservations": TOO_MUCH}}),
    ("policy.minRuntime", {"policy": {"minRuntime": "36500d"}}, {"policy": {"minRuntime": "36501d"}}),
    ("policy.halfLife", {"policy": {"halfLife": "36500d"}}, {"policy": {"halfLife": f"{TOO_MUCH}h"}}),
    ("access.maxRuntime", {"access": {"maxRuntime": "36500d"}}, {"access": {"maxRuntime": "36501d"}}),
    ("access.maxPending", {"access": {"maxPending": MAX_AMOUNT}}, {"access": {"maxPending": TOO_MUCH}}),
    (
        "access.perUser.limits.x",
        {"access": {"perUser": {"limits": {"x": MOST}}}},
        {"access": {"perUser": {"limits": {"x": str(2**63 - 1)}}}},
    ),
]


@pytest.mark.parametrize(("field", "most", "beyond"), NUMBERS)
def test_a_number_that_no_decision_takes_is_refused_by_field(field: str, most: Any, beyond: Any) -> None:
    """A decision refuses the whole tree for one number too large, so nothing would start for anybody."""
    tree = QueueTree.of([parse_queue("root.a", most)])
    assert not list(faults_of_tree(tree))
    (problem,) = problems({**HEAD, "queues": {"root.a": beyond}})
    assert problem.startswith(f"queues.root.a.{field}: ")


@pytest.mark.parametrize("document", [None, [], "text", 3, {}, {**HEAD}, {**HEAD, "queues": []}])
def test_what_is_no_document(document: object) -> None:
    """Any JSON or YAML value is refused with a sentence, never with a traceback."""
    assert problems(document)


@pytest.mark.parametrize(
    "path", ["team-a", "root.Team", "root..a", "root." + "x" * 60, "", "root.a.", "root a"]
)
def test_wrong_paths(path: str) -> None:
    """A path that cannot be a label value is named."""
    assert any(f"queues.{path}" in problem for problem in problems({**HEAD, "queues": {path: None}}))


def test_parts_alone() -> None:
    """Queues, policies and flavors of CRs use the same grammar."""
    assert parse_queue("root.a", None) == Queue(path="root.a")
    assert POLICY.parse({"reclaim": False}, at="policy") == Policy(reclaim=False)
    assert parse_flavor({"name": "f"}) == Flavor(name="f", node_labels={})
    with pytest.raises(InvalidInput, match=r"policy\.ordr: unknown field \(did you mean order\?\)"):
        POLICY.parse({"ordr": "strict"}, at="policy")


@pytest.mark.parametrize(
    ("toleration", "said"),
    [
        ({"key": "x", "effect": "NoSchedul"}, "did you mean NoSchedule?"),
        ({"key": "x", "operator": "Exist"}, "did you mean Exists?"),
        ({"operator": "Equal"}, "tolerates nothing (give key, or set operator to Exists)"),
        ({"value": "x"}, "tolerates nothing"),
        ({"key": "x", "operator": "Exists", "value": "y"}, "operator Exists takes no value"),
    ],
)
def test_a_toleration_that_the_api_server_refuses_is_refused(toleration: dict[str, str], said: str) -> None:
    """The patch that starts a job would be refused with it, so no job would start on that flavor."""
    flavors = [{"name": "f", "tolerations": [{"operator": "Exists"}, {"key": "x"}, toleration]}]
    (problem,) = problems({**HEAD, "flavors": flavors})
    assert problem.startswith("flavors[0].tolerations[2]")
    assert said in problem


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("300s", 300),
        ("5m", 300),
        ("1h", 3600),
        ("1h30m", 5400),
        ("2d", 172_800),
        ("1.5h", 5400),
        ("250ms", 0.25),
        ("0s", 0),
    ],
)
def test_durations(text: str, value: float) -> None:
    """Durations as people write them."""
    assert parse_duration(text, field="x") == value
    assert parse_duration(format_duration(value), field="x") == value


@pytest.mark.parametrize("text", ["5", "m", "5 m", "-5m", "5min", "", 300, None, True, "1h!"])
def test_wrong_durations(text: object) -> None:
    """A number without a unit is a trap, and refused."""
    with pytest.raises(InvalidInput, match=r"x: .* is not a duration"):
        parse_duration(text, field="x")


amounts = st.none() | st.integers(0, MAX_AMOUNT)
names = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
durations = st.none() | st.integers(0, 10**9).map(float)
quota_rows = st.builds(
    QuotaRow, resource=st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), flavor=st.none() | names,
    guaranteed=amounts, limit=amounts, lend=amounts,
).filter(lambda row: not row.guaranteed is row.limit is row.lend is None)  # fmt: skip
policies = st.builds(
    Policy, order=st.none() | st.sampled_from(Order), sharing=st.none() | st.sampled_from(Sharing),
    preempt=st.none() | st.sampled_from(Preempt), reclaim=st.none() | st.booleans(), min_runtime=durations,
    max_wait=durations, half_life=durations, reservations=st.none() | st.integers(0, 99),
)  # fmt: skip
per_users = st.builds(
    PerUser, limits=st.dictionaries(st.sampled_from(["cpu", "nvidia.com/gpu"]), st.integers(0, 2**40)),
    max_running=st.none() | st.integers(1, 99),
).filter(lambda own: own != PerUser())  # fmt: skip
people = st.lists(names.map("oidc:{}, inc".format), unique=True, max_size=2).map(tuple)
accesses = st.builds(
    Access, users=people, groups=people, max_priority=st.none() | names,
    max_runtime=st.none() | st.integers(1, 10**6).map(float),
    max_pending=st.none() | st.integers(1, 10**6), per_user=st.none() | per_users,
)  # fmt: skip
rules = st.builds(
    RoutingRule, queue=names.map("root.{}".format), namespace=st.none() | names, user=st.none() | names,
    group=st.none() | names, labels=st.dictionaries(names, names, max_size=2),
)  # fmt: skip
trees = st.dictionaries(
    names.map("root.{}".format),
    st.tuples(
        st.floats(0.001, 1e6),
        st.lists(quota_rows, max_size=3).map(tuple),
        policies,
        accesses,
        st.lists(names, max_size=2).map(tuple),
        st.lists(rules, max_size=2).map(tuple),
        st.sampled_from(QueueState),
    ),
    max_size=4,
)
flavors = st.lists(
    st.builds(
        Flavor,
        name=names,
        node_labels=st.dictionaries(names, names, max_size=2),
        tolerations=st.lists(st.builds(Toleration, key=names), max_size=2).map(tuple),
    ),
    unique_by=lambda f: f.name,
    max_size=3,
).map(tuple)


@given(
    tree=trees,
    flavors=st.none() | flavors,
    prune=st.booleans(),
    levels=st.lists(names, unique=True, max_size=3),
)
def test_round_trip(
    tree: dict[str, Any], flavors: tuple[Flavor, ...] | None, prune: bool, levels: list[str]
) -> None:
    """`parse(export(document))` is the document, so that what is exported can be applied again unchanged."""
    queues = tuple(
        Queue(
            path=path,
            weight=weight,
            quota=quota,
            policy=policy,
            access=access,
            namespaces=namespaces,
            placement=placement,
            state=state,
        )
        for path, (weight, quota, policy, access, namespaces, placement, state) in sorted(tree.items())
    )
    topology = Topology(keys=(*(level for level in levels if level != "host"), HOSTNAME))
    document = TreeDocument(queues=queues, prune=prune, flavors=flavors, topology=topology)
    assert parse(export(document)) == document

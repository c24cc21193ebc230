"""The accounts under which the controllers of job kinds run. The policies trust them by user name.

The shipped policies have the usual accounts. An installation whose controllers run under others names them: in the
chart's value `operators`, and to the controller and `queuer doctor` by `QUEUER_OPERATORS`. The right to make such
an account is the right to act as the controller, so none is in the namespace `default`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from queuer.domain.variables import Variable

Operators = Mapping[str, tuple[str, ...]]
"""User names by controller."""


def _accounts(*names: str) -> tuple[str, ...]:
    return tuple(f"system:serviceaccount:{name}" for name in names)


USUAL: Operators = {
    # The second name is that of its Helm chart.
    "jobset": _accounts("jobset-system:jobset-controller-manager", "jobset-system:jobset-controller"),
    "kuberay": _accounts(
        "kuberay-system:kuberay-operator", "kuberay-operator:kuberay-operator", "ray-system:kuberay-operator",
        "kubeflow:kuberay-operator",
    ),
    "lws": _accounts("lws-system:lws-controller-manager"),
    "mpi-operator": _accounts("mpi-operator:mpi-operator", "kubeflow:mpi-operator"),
    "trainer": _accounts("kubeflow-system:kubeflow-trainer-controller-manager"),
    "training-operator": _accounts("kubeflow:training-operator"),
}  # fmt: skip
"""Where the controllers' own manifests and charts, and Kubeflow's distribution, install them."""
_USER = re.compile(r"[A-Za-z0-9:._@/-]+")


def parse(text: str) -> Operators:
    """All accounts, those of the controllers that `text` names being the ones that it gives. Raises ValueError."""
    found: dict[str, tuple[str, ...]] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, user = part.partition("=")
        if name not in USUAL or (user and not _USER.fullmatch(user)):
            raise ValueError(part)
        found[name] = (*found.get(name, ()), *([user] if user else []))
    return {**USUAL, **found}


OPERATORS = Variable(
    name="QUEUER_OPERATORS", form=f"CONTROLLER=USER by comma, CONTROLLER one of {', '.join(USUAL)}", parse=parse,
    meaning="Accounts of the controllers of job kinds, which the policies trust, e.g. "
    "`kuberay=system:serviceaccount:ray:kuberay-operator`. A controller that is not named has the usual ones, one "
    "without a user has none.",
)  # fmt: skip


def cel_list(names: Iterable[str]) -> str:
    """Names as a list of a policy's expression."""
    return f"[{', '.join(map(repr, names))}]"


def with_operators(text: str, operators: Operators) -> str:
    """The text of a shipped file with these accounts in the place of the usual ones."""
    lists = {cel_list(usual): cel_list(operators[name]) for name, usual in USUAL.items()}
    return re.sub("|".join(map(re.escape, lists)), lambda found: lists[found[0]], text)

"""The policies and rights of the chart are those that the rows of job kinds make."""

from __future__ import annotations

import pytest
import yaml

from queuer.domain.errors import InvalidInput
from queuer.domain.variables import read
from queuer.kube.kinds import KINDS
from queuer.kube.operators import OPERATORS, USUAL
from queuer.kube.resources import POLICIES, objects
from queuer.kube.versions import Form
from tools.policies.render import FOLDER, made

RAY = "system:serviceaccount:ray:operator"


@pytest.mark.parametrize("name", made())
def test_the_chart_has_what_the_rows_make(name: str) -> None:
    assert (FOLDER / name).read_text() == made()[name], "run `python -m tools.policies`"


def test_the_chart_trusts_the_usual_operators_unless_it_is_told_others() -> None:
    values = yaml.safe_load((FOLDER.parent / "values.yaml").read_text())
    assert {name: tuple(users) for name, users in values["operators"].items()} == USUAL
    assert {kind.operators for kind in KINDS if kind.children or kind.made} <= {*USUAL.values()}
    assert [user for users in USUAL.values() for user in users if ":default:" in user] == []


def test_policies_trust_the_operators_that_are_named_and_no_usual_one_beside_them() -> None:
    """Even where the account of one controller is the usual one of another."""
    (swapped,) = USUAL["training-operator"]
    named = f"kuberay={RAY},kuberay={swapped},training-operator={RAY},mpi-operator="
    operators = read({OPERATORS.name: named}, {"operators": OPERATORS})["operators"]
    usual = [d for _, d in objects(*POLICIES[Form.FULL])]
    other = [d for _, d in objects(*POLICIES[Form.FULL], operators=operators)]
    assert [d["metadata"] for d in usual] == [d["metadata"] for d in other]
    gone = [*USUAL["kuberay"], *USUAL["mpi-operator"]]
    assert all(user in str(usual) for user in gone)
    assert not any(user in str(other) for user in gone)
    text = "".join(each["expression"] for d in other for each in d.get("spec", {}).get("matchConditions", ()))
    assert f"in ['{RAY}', '{swapped}'] && o.apiVersion == 'ray.io/v1'" in text
    assert f"in ['{RAY}'] && o.apiVersion == 'kubeflow.org/v1'" in text


@pytest.mark.parametrize("text", ["ray=a", "kuberay=a'] + ['b", "kuberay=a b", RAY])
def test_what_is_no_account_of_an_operator_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"QUEUER_OPERATORS"):
        read({OPERATORS.name: text}, {"operators": OPERATORS})

"""Kubernetes quantities: parsed exactly, rounded up as the API server does, printed shortest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuer.domain.errors import InvalidInput
from queuer.domain.quantity import MAX_AMOUNT, amounts_text, format_quantity, parse_quantity, readable

CASES = Path(__file__).parents[2] / "web/src/text/amounts.json"


@pytest.mark.parametrize(
    ("text", "resource", "base"),
    [
        ("500m", "cpu", 500),
        ("2", "cpu", 2_000),
        ("0.1", "cpu", 100),
        ("100u", "cpu", 1),
        ("64Gi", "memory", 64 * 2**30),
        ("1.5Ki", "memory", 1_536),
        ("1k", "memory", 1_000),
        ("1e3", "memory", 1_000),
        ("1E", "memory", 10**18),
        ("100m", "memory", 1),
        (8, "nvidia.com/gpu", 8),
        ("0", "pods", 0),
    ],
)
def test_parse(text: str | int, resource: str, base: int) -> None:
    """Base units: millicores for cpu, one for the rest; finer amounts are rounded up."""
    assert parse_quantity(text, resource=resource) == base


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "1gi", "-1", "1e30", "0x10", "1.2.3", "nan", True])
def test_refused(text: str) -> None:
    """A wrong quantity is refused with the field's name."""
    with pytest.raises(InvalidInput, match=r"spec\.cpu"):
        parse_quantity(text, resource="cpu", field="spec.cpu")


@given(
    st.integers(min_value=0, max_value=MAX_AMOUNT // 1000),
    st.sampled_from(["cpu", "memory", "pods", "x.io/y"]),
)
def test_formatted_amounts_parse_back(amount: int, resource: str) -> None:
    """The shortest text loses nothing."""
    assert parse_quantity(format_quantity(amount, resource=resource), resource=resource) == amount


def test_shortest_forms() -> None:
    """Amounts as people read them."""
    assert format_quantity(1_500, resource="cpu") == "1500m"
    assert format_quantity(2_000, resource="cpu") == "2"
    assert format_quantity(2**33, resource="memory") == "8Gi"


def test_a_fraction_of_what_is_counted_in_pieces_is_refused_where_it_matters() -> None:
    """A quota of 1.5 GPUs is not one of 2; parts of a core, and of a byte, are rounded."""
    with pytest.raises(InvalidInput, match=r"quota: '1500m' is no whole number.*write 1 or 2"):
        parse_quantity("1500m", resource="nvidia.com/gpu", field="quota", whole=True)
    assert parse_quantity("2000m", resource="nvidia.com/gpu", whole=True) == 2
    assert parse_quantity("0.5", resource="cpu", whole=True) == 500
    assert parse_quantity("1500m", resource="memory", whole=True) == 2


@pytest.mark.parametrize(("resource", "quantity", "said"), json.loads(CASES.read_text()))
def test_amounts_are_told_as_people_read_them(resource: str, quantity: str, said: str) -> None:
    """The page keeps to the same table."""
    assert readable(quantity, resource=resource) == said
    assert readable(parse_quantity(quantity, resource=resource), resource=resource) == said


def test_a_sum_of_amounts_that_are_taken_in_is_read_whatever_it_is() -> None:
    """Else a few absurd jobs would end every list that counts them."""
    assert amounts_text({"example.com/x": str(5 * MAX_AMOUNT)}) == f"{5 * MAX_AMOUNT:,} x"


def test_a_resource_is_named_in_short_unless_another_one_beside_it_ends_the_same() -> None:
    assert amounts_text({"nvidia.com/gpu": "8", "memory": 2**40}) == "8 gpu, 1 TiB memory"
    assert amounts_text({"nvidia.com/gpu": 8, "amd.com/gpu": 4}) == "8 nvidia.com/gpu, 4 amd.com/gpu"

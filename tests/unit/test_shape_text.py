"""Questions without a manifest: bounded before they are read, each resource once."""

from __future__ import annotations

import pytest

from queuer.domain.errors import InvalidInput
from queuer.domain.shape_text import MOST, parse_amounts, parse_shape

KNOWN = ("cpu", "memory", "nvidia.com/gpu")


def test_a_shape_is_a_gang_of_so_many_pods() -> None:
    shape = parse_shape("8xgpu:8,cpu:500m", resources=KNOWN)
    assert (shape.count, shape.requests) == (8, {"pods": 1, "nvidia.com/gpu": 8, "cpu": 500})
    assert parse_shape(f"{MOST}xcpu:1", resources=KNOWN).count == MOST


@pytest.mark.parametrize(
    "count",
    ["", "0", "-1", "two", "٣", str(MOST + 1), "0000001" + 12 * "0", "0000001" + 5000 * "0", "1" * 5000],
    ids=lambda text: text[:20],
)
def test_a_count_that_is_none_or_too_large_is_refused(count: str) -> None:
    with pytest.raises(InvalidInput, match="is not a shape"):
        parse_shape(f"{count}xcpu:1", resources=KNOWN)


@pytest.mark.parametrize("amounts", ["cpu:1,cpu:7", "gpu:1,nvidia.com/gpu:2"])
def test_a_resource_is_named_once(amounts: str) -> None:
    with pytest.raises(InvalidInput, match="is there twice"):
        parse_shape(f"2x{amounts}", resources=KNOWN)
    with pytest.raises(InvalidInput, match="is there twice"):
        parse_amounts(amounts, resources=KNOWN)


@pytest.mark.parametrize("text", ["-1xgpu:8", "8xgpu:8", "cpu:1,2xgpu:8"])
def test_a_gang_is_no_pod(text: str) -> None:
    """Not an unknown resource: the count is what is wrong."""
    with pytest.raises(InvalidInput, match="counts pods; it is asked for one"):
        parse_amounts(text, resources=KNOWN)

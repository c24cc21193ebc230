"""Decayed past use: the closed form is the integral, and sums go up the tree."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuer.domain.past_use import HORIZON, Interval, half_lives, past_use, weight
from queuer.domain.queue import Policy, Queue, QueueTree, Sharing

DAY = 86_400.0


def tree(**half_life: float) -> QueueTree:
    """root.a, root.b with children x and y; half-lives by name of the queue that says it."""
    paths = {"root": "root", "a": "root.a", "b": "root.b", "x": "root.b.x", "y": "root.b.y"}
    return QueueTree.of(
        Queue(path=path, policy=Policy(half_life=half_life.get(name))) for name, path in paths.items()
    )


def integral(opened: float, closed: float, *, now: float, half_life: float) -> float:
    """The definition, by the midpoint rule; divided by what a use for ever gives: half_life / ln 2."""
    steps = 4_000
    width = (closed - opened) / steps
    middles = (opened + (i + 0.5) * width for i in range(steps))
    area = sum(math.exp2(-(now - t) / half_life) * width for t in middles)
    return area / (half_life / math.log(2))


@given(st.floats(0, 20 * DAY), st.floats(1, 20 * DAY), st.floats(0, 5 * DAY), st.floats(0.5 * DAY, 10 * DAY))
def test_closed_form_is_the_integral(opened: float, length: float, since: float, half_life: float) -> None:
    closed = opened + length
    now = closed + since
    assert weight(opened, closed, now=now, half_life=half_life) == pytest.approx(
        integral(opened, closed, now=now, half_life=half_life), rel=1e-4, abs=1e-9
    )


@given(st.lists(st.floats(0, 100 * DAY), min_size=2, max_size=6, unique=True), st.floats(60, 30 * DAY))
def test_an_interval_counts_as_its_parts(times: list[float], half_life: float) -> None:
    times.sort()
    now = times[-1]
    parts = [weight(a, b, now=now, half_life=half_life) for a, b in pairwise(times)]
    assert sum(parts) == pytest.approx(weight(times[0], None, now=now, half_life=half_life), abs=1e-9)


def test_an_open_interval_counts_until_now_and_none_from_the_future() -> None:
    assert weight(0.0, None, now=DAY, half_life=DAY) == 0.5
    assert weight(0.0, 5 * DAY, now=DAY, half_life=DAY) == 0.5
    assert weight(2 * DAY, None, now=DAY, half_life=DAY) == 0.0
    assert weight(-1000 * DAY, None, now=0.0, half_life=DAY) == pytest.approx(1.0)


def test_beyond_the_horizon_nothing_is_left() -> None:
    assert weight(-1e9, -HORIZON * DAY, now=0.0, half_life=DAY) < 1e-6


def test_sums_go_up_and_each_queue_is_judged_by_who_chooses() -> None:
    tall = tree(root=DAY, b=2 * DAY)
    assert half_lives(tall) == {"root.a": DAY, "root.b": DAY, "root.b.x": 2 * DAY, "root.b.y": 2 * DAY}
    used = [
        Interval(queue="root.b.x", amounts={"gpu": 8, "cpu": 100}, opened=-DAY, closed=0.0),
        Interval(queue="root.b.y", amounts={"gpu": 4}, opened=-DAY),
        Interval(queue="root.b.gone", amounts={"gpu": 2}, opened=-DAY),
    ]
    past = past_use(tall, used, now=0.0)
    assert set(past) == {"root.b", "root.b.x", "root.b.y"}
    assert past["root.b"] == {"gpu": pytest.approx(7.0), "cpu": pytest.approx(50.0)}
    assert past["root.b.x"]["gpu"] == pytest.approx(8 * (1 - 2**-0.5))
    assert past["root.b.y"]["gpu"] == pytest.approx(4 * (1 - 2**-0.5))


def test_without_a_half_life_there_is_no_past() -> None:
    used = [Interval(queue="root.a", amounts={"gpu": 8}, opened=-DAY)]
    assert past_use(tree(), used, now=0.0) == {}
    assert past_use(tree(a=DAY), used, now=0.0) == {}  # a leaf chooses among no queues
    off = tree(root=DAY, b=0.0)
    assert set(half_lives(off)) == {"root.a", "root.b"}
    by_priority = QueueTree.of(
        [
            Queue(path="root", policy=Policy(half_life=DAY, sharing=Sharing.PRIORITY)),
            Queue(path="root.a"),
        ]
    )
    assert half_lives(by_priority) == {}

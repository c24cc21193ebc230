"""The rules that `bench.openb` compares with choose as they are published: a rule done wrong would flatter us."""

from __future__ import annotations

import numpy as np

from bench.openb import List, arrivals, cluster, filled, filled_by_rule, pods
from bench.packing_rules import best_fit, descent

GIB = 2**30
BOTH = np.arange(2)


def test_best_fit_weighs_gpus_and_cpu_left_alike() -> None:
    free = np.array([[4, 64_000, GIB], [2, 96_000, GIB]])
    assert best_fit(free, BOTH, np.array([2, 32_000, 0])).tolist() == [0.25, 0.25]


def test_descent_counts_the_gpus_that_popular_pods_cannot_use() -> None:
    """A half of the pods ask for 2 GPUs and 8 CPU: on the first node one GPU is left, on the second two without CPU."""
    free = np.array([[2, 16_000, GIB], [3, 12_000, GIB]])
    rule = descent([(1, 1_000, 0), (2, 8_000, 0)], lambda _: np.array([True, True]))
    assert rule(free, BOTH, np.array([1, 8_000, 0])).tolist() == [0.5, 1.0]


def test_descent_counts_gpus_of_models_that_are_not_accepted() -> None:
    """The first node is of no use to a half of the pods: what is taken there was lost to them already."""
    free = np.array([[4, 16_000, GIB], [4, 16_000, GIB]])
    access = {0: np.array([True, True]), 1: np.array([False, True])}
    rule = descent([(1, 1_000, 0), (1, 1_000, 1)], access.__getitem__)
    assert rule(free, BOTH, np.array([2, 2_000, 0])).tolist() == [-1.0, 0.0]


def test_descent_looks_at_the_most_frequent_shapes() -> None:
    free = np.array([[3, 16_000, GIB], [4, 16_000, GIB]])
    rule = descent([(1, 1_000, 0)] * 19 + [(2, 1_000, 0)], lambda _: np.array([True, True]))
    assert rule(free, BOTH, np.array([2, 2_000, 0])).tolist() == [0.0, 0.0]


def test_arrivals_are_the_whole_list_first_then_drawn_from_it() -> None:
    name = List.DEFAULT
    got = list(arrivals(name, gpus=8_076, seed=3))
    whole = pods(name)
    assert sorted(map(repr, got[: len(whole)])) == sorted(map(repr, whole))
    assert {*got} == {*whole}
    assert sum(p.gpus for p in got[:-1]) < 8_076 <= sum(p.gpus for p in got)
    assert got != list(arrivals(name, gpus=8_076, seed=4))


def test_every_model_that_a_pod_names_is_one_of_the_trace() -> None:
    models = {str(m) for m in cluster().models}
    assert len(models) == 7
    assert all({*pod.models} <= models for pod in pods(List.GPUSPEC33))
    assert cluster().accepts(("G3",)).sum() == 39


def test_what_is_in_use_is_what_was_placed() -> None:
    """Few pods: both fill the same."""
    assert filled(List.DEFAULT, seed=1, gpus=40)[0] == filled_by_rule(List.DEFAULT, best_fit, seed=1, gpus=40)

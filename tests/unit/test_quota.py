"""Quota arithmetic against the rules of docs/decision.md, and against a recount from scratch."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from queuer.domain.queue import Queue, QueueTree, QuotaRow
from queuer.domain.quota import Charge, QuotaBook, Shortfall, charge_of
from queuer.domain.usage import Usage

ANY = (None, "gpu")


def gpus(n: int, flavor: str = "default") -> dict[tuple[str | None, str], int]:
    """A charge of n GPUs."""
    return charge_of({flavor: {"gpu": n}})


def usage(*queues: Queue, capacity: int = 100) -> Usage:
    """Nothing used yet, on a cluster of `capacity` GPUs."""
    return Usage(QuotaBook(QueueTree.of(queues), {"default": {"gpu": capacity}}))


def queue(path: str, *, flavor: str | None = None, weight: float = 1.0, **amounts: int) -> Queue:
    """A queue with one GPU row."""
    return Queue(path=path, weight=weight, quota=(QuotaRow(resource="gpu", flavor=flavor, **amounts),))


def shortfall(tree: Usage, path: str, charge: Charge, *, live: bool = True) -> Shortfall | None:
    """The first row that the charge would break."""
    return next(tree.shortfalls(path, charge, live=live), None)


def test_charges_count_in_both_accounts() -> None:
    """(flavor, resource) and (any, resource); zero asks for nothing."""
    parts = {"x": {"gpu": 2, "absent": 0}, "y": {"gpu": 3}}
    assert charge_of(parts) == {("x", "gpu"): 2, (None, "gpu"): 5, ("y", "gpu"): 3}


def test_the_first_row_that_breaks_is_named_with_its_numbers() -> None:
    """Own limit, the parent's, root's live capacity: nearest first."""
    tree = usage(queue("root.p", limit=6), queue("root.p.a", limit=4), capacity=5)
    tree.add("root.p.a", gpus(3))
    short = shortfall(tree, "root.p.a", gpus(2))
    assert short is not None
    assert (short.queue, short.limit, short.used, short.asks) == ("root.p.a", 4, 3, 2)
    assert {s.queue for s in tree.shortfalls("root.p.a", gpus(4))} == {"root.p.a", "root.p", "root"}
    assert shortfall(tree, "root.p.a", gpus(1)) is None


def test_live_capacity_is_roots_limit() -> None:
    """Marked as such, and left out on request."""
    tree = usage(queue("root.a", guaranteed=0), capacity=4)
    short = shortfall(tree, "root.a", gpus(5))
    assert short is not None
    assert short.live
    assert short.queue == "root"
    assert shortfall(tree, "root.a", gpus(5), live=False) is None


def test_what_is_not_lent_stays_free_for_its_owner() -> None:
    """10 guaranteed, 3 lent, 15 in all: the other may use 8, the owner all its 10."""
    tree = usage(queue("root.lender", guaranteed=10, lend=3), queue("root.other", guaranteed=5), capacity=15)
    assert shortfall(tree, "root.other", gpus(8)) is None
    short = shortfall(tree, "root.other", gpus(9))
    assert short is not None
    assert (short.used, short.held, short.limit) == (0, 7, 15)
    tree.add("root.other", gpus(8))
    assert shortfall(tree, "root.lender", gpus(7)) is None
    assert shortfall(tree, "root.lender", gpus(8)) is not None


def test_over_use_blocks_without_wrapping() -> None:
    """Above a limit that was cut, nothing more fits and nothing goes negative."""
    tree = usage(queue("root.a", limit=2))
    tree.add("root.a", gpus(5))
    short = shortfall(tree, "root.a", gpus(1))
    assert short is not None
    assert (short.used, short.limit) == (5, 2)


def test_entitled_needs_a_claim_and_room_below_the_guarantee() -> None:
    """Resources that nobody is guaranteed make neither a claim nor an obstacle; root entitles nobody."""
    tree = Usage(
        QuotaBook(
            QueueTree.of([queue("root.p", guaranteed=4), Queue(path="root.p.a")]),
            {"default": {"gpu": 8, "cpu": 8}},
        )
    )
    mixed = charge_of({"default": {"gpu": 4, "cpu": 8}})
    assert tree.entitled("root.p.a", mixed, at="root.p")
    assert not tree.entitled("root.p.a", mixed, at="root.p.a")
    assert not tree.entitled("root.p.a", gpus(5), at="root.p")
    assert not tree.entitled("root.p.a", charge_of({"default": {"cpu": 1}}), at="root.p")
    assert not tree.entitled("root.p.a", gpus(1), at="root")


def test_a_flavor_row_claims_its_flavor_only() -> None:
    """Borrowed use of another flavor takes nobody's entitlement away."""
    tree = Usage(
        QuotaBook(
            QueueTree.of([queue("root.a", flavor="x", guaranteed=4)]), {"x": {"gpu": 8}, "y": {"gpu": 8}}
        )
    )
    tree.add("root.a", gpus(8, "y"))
    assert tree.entitled("root.a", gpus(4, "x"), at="root.a")
    assert not tree.entitled("root.a", gpus(1, "y"), at="root.a")


def test_share_is_weighted_excess() -> None:
    """(7 + 1 - 5) of 100, halved by a weight of 2."""
    tree = usage(queue("root.a", guaranteed=5, weight=2.0))
    tree.add("root.a", gpus(7))
    assert tree.share("root.a", gpus(1)) == 0.015


def test_work_of_a_queue_that_is_gone_counts_at_its_ancestor() -> None:
    """Deleting a queue does not make its running work free."""
    tree = usage(queue("root.p", limit=4))
    tree.add("root.p.gone", gpus(3))
    assert tree.used("root.p", ANY) == 3


@settings(max_examples=200)
@given(st.integers(min_value=0, max_value=10**6))
def test_the_row_that_is_told_is_the_first_of_all(seed: int) -> None:
    """Whether or not anybody keeps something back, with and without the live capacity."""
    rng = random.Random(seed)

    def some_row() -> QuotaRow:
        guaranteed = rng.randint(0, 2)
        lend = rng.choice([None, None, rng.randint(0, guaranteed)])
        limit = rng.choice([None, rng.randint(2, 8)])
        return QuotaRow(
            resource="gpu", flavor=rng.choice([None, "x"]), guaranteed=guaranteed, limit=limit, lend=lend
        )

    leaves = ("root.a.x", "root.a.y", "root.b")
    queues = [Queue(path=path, quota=(some_row(),)) for path in leaves]
    queues += [Queue(path="root.a", quota=(QuotaRow(resource="gpu", limit=rng.randint(4, 9)),))]
    tree = Usage(QuotaBook(QueueTree.of(queues), {"x": {"gpu": rng.randint(4, 12)}}))
    for _ in range(8):
        leaf, charge = rng.choice(leaves), gpus(rng.randint(1, 3), "x")
        for live in (True, False):
            first = next(tree.shortfalls(leaf, charge, live=live), None)
            bar = tree.first_broken(leaf, charge, live=live)
            told = None if bar is None else (list(charge)[bar.at], bar.queue, bar.limit, bar.live)
            assert told == (first and (first.account, first.queue, first.limit, first.live))
            assert tree.fits(leaf, charge, live=live) is (first is None)
        tree.add(leaf, charge)


@settings(max_examples=200)
@given(st.integers(min_value=0, max_value=10**6))
def test_incremental_equals_recount(seed: int) -> None:
    """After any sequence of admissions and releases, used and seen are what a recount gives, at every queue."""
    rng = random.Random(seed)
    paths = ["root.a", "root.a.x", "root.a.y", "root.b"]
    queues = []
    for path in paths:
        guaranteed = rng.randint(0, 3)
        queues.append(queue(path, guaranteed=guaranteed, lend=rng.randint(0, guaranteed)))
    queues[0] = queue("root.a", guaranteed=8, lend=rng.randint(0, 8))
    book = QuotaBook(QueueTree.of(queues), {"default": {"gpu": 20}})
    tree = Usage(book)
    held: list[tuple[str, int]] = []
    for _ in range(rng.randint(0, 12)):
        if held and rng.random() < 0.4:
            path, n = held.pop(rng.randrange(len(held)))
            tree.add(path, gpus(n), times=-1)
        else:
            held.append((rng.choice(["root.a.x", "root.a.y", "root.b"]), rng.randint(1, 4)))
            tree.add(held[-1][0], gpus(held[-1][1]))
    for asks in range(1, 12):
        for leaf in ("root.a.x", "root.b"):
            expected = _fits(book, held, leaf, asks)
            assert (shortfall(tree, leaf, gpus(asks)) is None) is expected


def _fits(book: QuotaBook, held: list[tuple[str, int]], leaf: str, asks: int) -> bool:
    def used(path: str, work: list[tuple[str, int]]) -> int:
        return sum(n for at, n in work if f"{at}.".startswith(f"{path}."))

    def base(path: str, work: list[tuple[str, int]]) -> int:
        kids = book.tree.children[path]
        return sum(seen(kid, work) for kid in kids) if kids else used(path, work)

    def seen(path: str, work: list[tuple[str, int]]) -> int:
        return max(base(path, work), book.kept(path, ANY))

    after = [*held, (leaf, asks)]
    for path in book.tree.lineage(leaf):
        limit = book.limit(path, ANY)
        if limit is None:
            continue
        if used(path, after) > limit or (seen(path, after) > seen(path, held) and seen(path, after) > limit):
            return False
    return True
